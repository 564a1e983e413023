//! Repairs a damaged table that is opened for salvage: rebuilds the directory from the headers of its segments, and
//! lost headers from the directory.

use std::cmp::Reverse;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::super::layout::{Link, MAX_DEPTH, RootWord, State};
use super::super::root::{entry_of, hashes_below, segment_of};
use super::{Ablation, Core, Eh, Kinds};
use crate::Result;
use crate::engine::mending::Mending;
use crate::storage::Cell64;

/// A segment as its header describes it.
#[derive(Clone, Copy)]
struct Claim {
    /// The number of leading bits of `pattern` that the segment's hashes share.
    depth: u32,
    pattern: u64,
    /// Set if the left neighbour may hold the segment's records as well.
    leaves: bool,
    id: u32,
}

impl<A: Ablation> Eh<A> {
    /// Replaces invalid entries, according to the headers of the segments. If several segments claim a hash, the
    /// segment with the least depth gets the hash, because this segment holds the records of the others until its split
    /// is finished.
    pub(super) fn mend_entries<T: Kinds>(core: &Core<T>, mending: &Mending) -> Result<()> {
        let (storage, words) = (&core.storage, core.root()?);
        words.segments.forget(storage);
        let segments = core.segment_blocks.used(storage, &words.segments);
        let segments = core.mend_segments(segments, mending)?;
        words.segments.bound(storage, segments);
        let root = RootWord::unpack(words.directory.load(storage, Acquire));
        if root.depth > MAX_DEPTH {
            // Opening the table reports this error.
            return Ok(());
        }
        let eh = Self::map(storage, root)?;
        mending.lengthen(storage, eh.base.region(root.parity()), (2 << root.depth) * 8)?;
        let entries = eh.entries(storage, root)?;
        let mut claims = Vec::new();
        // Segments from before a `clear`, which may still have headers.
        let former = core.segment_blocks.passed_over(storage, &words.segments);
        let ids = (0..segments).filter(|id| !former.contains(id));
        for id in ids.map(|id| id as u32) {
            match core.claim(id) {
                Some(claim) if claim.depth <= root.depth => claims.push(claim),
                _ => {}
            }
        }
        claims.sort_by_key(|claim| (!claim.leaves, Reverse(claim.depth)));
        let mut made = vec![None; entries.len()];
        for claim in &claims {
            let first = root.index(claim.pattern) as usize;
            let last = root.index(claim.pattern | hashes_below(claim.depth)) as usize;
            made[first..=last].fill(Some(claim.id));
        }
        let mut mended = 0;
        for (index, (entry, made)) in entries.iter().zip(made).enumerate() {
            // Index bit depth - 1 becomes bit 63. Two shifts, because depth 0 would need a shift by 64.
            let hash = (index as u64) << 1 << (63 - root.depth);
            let named = segment_of(entry.load(storage, Relaxed));
            let is_right = named.is_some_and(|id| match core.claim(id) {
                Some(claim) => {
                    claim.depth <= root.depth && hash & !hashes_below(claim.depth) == claim.pattern
                }
                // The header is lost, so nothing contradicts the entry.
                None => {
                    u64::from(id) < segments
                        && !former.contains(&id.into())
                        && core.has_no_header(id)
                }
            });
            if let (false, Some(id)) = (is_right, made) {
                entry.store(storage, entry_of(id), Relaxed);
                mended += 1;
            }
        }
        if mended > 0 {
            let all = entries.len();
            mending.note(format!("{mended} of {all} directory entries rebuilt from the segments"));
        }
        Self::mend_headers(core, root, entries, mending)
    }

    /// Makes headers for segments without one, according to the entries that name them.
    fn mend_headers<T: Kinds>(
        core: &Core<T>,
        root: RootWord,
        entries: &[Cell64],
        mending: &Mending,
    ) -> Result<()> {
        let (mut made, mut index) = (Vec::new(), 0);
        let segments: Vec<_> =
            entries.iter().map(|entry| segment_of(entry.load(&core.storage, Relaxed))).collect();
        for run in segments.chunk_by(|one, other| one == other) {
            let (first, len) = (index, run.len());
            index += len;
            let Some(id) = run[0].filter(|&id| core.has_no_header(id)) else { continue };
            // Other runs of entries do not correspond to a prefix.
            if len.is_power_of_two() && first % len == 0 {
                // Index bit depth - 1 becomes bit 63. Two shifts, because depth 0 would need a shift by 64.
                let pattern = (first as u64) << 1 << (63 - root.depth);
                made.push(core.mend_header(id, pattern, root.depth - len.ilog2(), 0)?);
            }
        }
        core.tell_mended_headers(&made, mending)
    }
}

impl<T: Kinds> Core<T> {
    /// Reads a segment's header. Returns `None` if the segment is free, or the header damaged or missing.
    fn claim(&self, id: u32) -> Option<Claim> {
        let header = self.header(id).ok()?;
        let link = Link::unpack(header.link.load(&self.storage, Acquire))?;
        if link.state == State::Free {
            return None;
        }
        // The link of an absorbing segment has the depth after the merge.
        let pattern = header.pattern.load(&self.storage, Acquire) & !hashes_below(link.depth);
        Some(Claim { depth: link.depth, pattern, leaves: link.state == State::Leaving, id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Design;
    use crate::engine::dash::options::DashSettings;
    use crate::engine::opening::Common;
    use crate::storage::{Mapped, MappedOptions};
    use crate::types::{Forms, InWord};

    #[test]
    fn a_segment_that_absorbs_another_claims_the_hashes_of_both_only() {
        let common = Common { capacity: 10_000, ..Common::default() };
        let storage = Mapped::anonymous(MappedOptions::default()).expect("memory");
        let (table, _) = <Eh as Design>::create::<Forms<InWord, InWord>, _>(
            common,
            DashSettings::default(),
            storage,
        )
        .expect("memory");
        let core = &table.core;
        let depth = core.link(0).expect("in use").depth;
        assert!(depth > 1, "one bit less is another range");
        // As a merge does at its commit point (P24).
        core.set_link(0, State::Absorbing, depth - 1, Some(1)).expect("in use");
        assert_eq!(core.claim(0).map(|claim| claim.depth), Some(depth - 1));
    }
}
