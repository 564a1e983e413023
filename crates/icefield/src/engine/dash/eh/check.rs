//! Checks the directory of extendible hashing (I1).

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::Eh;
use crate::engine::dash::kinds::{Ablation, Kinds};
use crate::engine::dash::layout::{RootWord, State};
use crate::engine::dash::recover::ensure_recovered;
use crate::engine::dash::root::{hashes_below, segment_of};
use crate::engine::dash::segment::Core;
use crate::storage::Cell64;
use crate::{Error, Result};

impl<A: Ablation> Eh<A> {
    /// Returns the segments of all entries, each once, and reports faults to `fault`.
    pub(super) fn check_entries<T: Kinds>(
        &self,
        core: &Core<T>,
        fault: &mut dyn FnMut(String),
    ) -> Result<Vec<u32>> {
        let root = self.root();
        let entries = self.entries(&core.storage, root)?;
        let (mut segments, mut index) = (Vec::new(), 0);
        while index < entries.len() {
            index += match self.check_entry(core, root, entries, index) {
                Ok((segment, span)) => {
                    segments.push(segment);
                    span
                }
                Err(error @ Error::Corrupt { .. }) => {
                    fault(error.to_string());
                    1
                }
                // No space, for example. `clear` relies on this: once it has removed a segment that was not recovered, a
                // reader that located the segment before would recover it.
                Err(error) => return Err(error),
            };
        }
        Ok(segments)
    }

    /// Returns the segment of an entry, and the number of entries that the segment should have from this entry on.
    fn check_entry<T: Kinds>(
        &self,
        core: &Core<T>,
        root: RootWord,
        entries: &[Cell64],
        index: usize,
    ) -> Result<(u32, usize)> {
        let entry = entries[index].load(&core.storage, Acquire);
        let Some(id) = segment_of(entry) else {
            let place = (1 << root.depth) + index as u64;
            return Err(self.base.no_entry(&core.storage, root.parity(), place));
        };
        // Read after the entry. A segment from before a `clear` may have a header that fits, too.
        if !core.segment_blocks.has_handed_out(&core.storage, &core.root()?.segments, id) {
            let detail = format!("directory entry {index} names segment {id}, which is not in use");
            return Err(core.headers.fault(&core.storage, u64::from(id) * 32, detail));
        }
        ensure_recovered(core, self, id)?;
        let (link, pattern) =
            (core.link(id)?, core.header(id)?.pattern.load(&core.storage, Acquire));
        let span = 1_usize << root.depth.saturating_sub(link.depth);
        let covered = entries.get(index..index + span).unwrap_or(&[]);
        // I1: a segment of depth d fills exactly the 2^(g-d) aligned entries of its pattern.
        let wrong = link.depth > root.depth
            || link.state != State::Stable
            || root.index(pattern) != index as u64
            || pattern & hashes_below(link.depth) != 0
            || covered.len() != span
            // Relaxed: the entries are only compared.
            || covered.iter().any(|other| other.load(&core.storage, Relaxed) != entry);
        if wrong {
            let detail = format!(
                "I1: segment {id} ({link:?}, pattern {pattern:#x}) does not fit directory entry {index} of depth {}",
                root.depth
            );
            return Err(core.headers.fault(&core.storage, u64::from(id) * 32, detail));
        }
        Ok((id, span))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Release;

    use super::*;
    use crate::engine::Design;
    use crate::engine::dash::directory::Directory;
    use crate::engine::dash::options::{DashSettings, table_of_words};
    use crate::engine::dash::root::entry_of;
    use crate::engine::opening::Common;
    use crate::storage::sim::{Sim, SimOptions};
    use crate::types::{Forms, InWord};

    type Check = std::result::Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn an_entry_does_not_fit_a_segment_from_before_a_clear() -> Check {
        let table = table_of_words::<Eh, _>(Sim::new(SimOptions::default()))?;
        let (core, eh) = (&table.core, &table.directory);
        let check = || -> Result<_> {
            let mut faults = Vec::new();
            let segments = eh.check(core, &mut |fault| faults.push(fault))?;
            Ok((segments, faults))
        };
        let before = check()?.0;
        table.clear_all()?;
        let (after, faults) = check()?;
        assert!(before.len() == 1 && after.len() == 1 && before != after && faults.is_empty());
        eh.entries(&core.storage, eh.root())?[0].store(&core.storage, entry_of(before[0]), Release);
        let (segments, faults) = check()?;
        assert!(segments.is_empty() && faults.len() == 1, "{segments:?} {faults:?}");
        Ok(())
    }

    /// A reader that located the segment before would recover it once there is space, although it is free by then.
    #[test]
    fn a_table_with_a_segment_that_cannot_be_recovered_is_not_cleared() -> Check {
        let sim = Sim::new(SimOptions::default());
        drop(table_of_words::<Eh, _>(sim.clone())?);
        let (common, settings) = (Common::default(), DashSettings::default());
        let (table, _) = <Eh as Design>::open::<Forms<InWord, InWord>, _>(common, settings, sim)?;
        let core = &table.core;
        core.storage.lose_space(&core.segments, 0..core.segments.len());
        let cleared = table.clear_all();
        assert!(matches!(cleared, Err(Error::NoSpace { .. })), "{cleared:?}");
        assert_eq!(table.directory.root().generation, 0);
        Ok(())
    }
}
