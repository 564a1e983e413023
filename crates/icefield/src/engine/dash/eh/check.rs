//! Checks the directory of extendible hashing (I1).

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::Eh;
use crate::Result;
use crate::engine::dash::kinds::{Ablation, Kinds};
use crate::engine::dash::layout::{RootWord, State};
use crate::engine::dash::recover::ensure_recovered;
use crate::engine::dash::root::{hashes_below, segment_of};
use crate::engine::dash::segment::Core;
use crate::storage::Cell64;

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
                Err(error) => {
                    fault(error.to_string());
                    1
                }
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
