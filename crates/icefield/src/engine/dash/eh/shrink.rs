//! Shrinking in extendible hashing: merges, halving of the directory, return of space (§4.7).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::Eh;
use crate::Result;
use crate::engine::dash::blocks::SegmentBlocks;
use crate::engine::dash::directory::Directory;
use crate::engine::dash::kinds::{Ablation, Kinds};
use crate::engine::dash::layout::{RootWord, State, split_bit};
use crate::engine::dash::root::{hashes_below, segment_of};
use crate::engine::dash::segment::Core;
use crate::engine::slots::EpochGuard;
use crate::storage::{Persist, SimHooks};

impl<A: Ablation> Eh<A> {
    /// Merges the segment of a hash with its neighbour, if both have the same depth and few enough records.
    pub(super) fn merge<T: Kinds>(
        &self,
        core: &Core<T>,
        pin: &EpochGuard<'_>,
        hash: u64,
        percent: u64,
    ) -> Result<bool> {
        let _structure = self.base.shared();
        // The first checks read through `read_unvalidated`: links and records are checked again under the locks.
        let link_of = |segment| core.storage.read_unvalidated(|| core.link(segment));
        let depth = link_of(self.ready(core, hash)?.segment)?.depth;
        // A segment of depth 0 has no neighbour.
        let Some(bit) = depth.checked_sub(1).map(split_bit) else { return Ok(false) };
        if 1 << depth <= self.base.floor() {
            return Ok(false);
        }
        let pattern = hash & !(hashes_below(depth) | bit);
        let [left, right] = [self.ready(core, pattern)?, self.ready(core, pattern | bit)?];
        let ids = [left.segment, right.segment];
        // Both are the same segment if another thread has merged them meanwhile.
        if ids[0] == ids[1]
            || link_of(ids[1])?.depth != depth
            || !core.storage.read_unvalidated(|| core.fit_in_one(ids, percent))?
        {
            return Ok(false);
        }
        // All merges lock the left segment first, which prevents deadlock.
        let [left_held, right_held] = [core.hold(ids[0])?, core.hold(ids[1])?];
        let links = [core.link(ids[0])?, core.link(ids[1])?];
        let fits = self.is_current(core, pattern, left)
            && self.is_current(core, pattern | bit, right)
            && links.iter().all(|link| (link.state, link.depth) == (State::Stable, depth))
            && core.fit_in_one(ids, percent)?;
        if !fits {
            return Ok(false);
        }
        core.deferred_free.enter(pin, ids[1]);
        // P23: after a crash, recovery of the right segment recovers the left one first.
        core.set_link(ids[1], State::Leaving, depth, links[1].side)?;
        let merged = core.merge(&left_held, &right_held, || {
            // P24, commit point of the merge: from here on it is rolled forward.
            core.set_link(ids[0], State::Absorbing, depth - 1, Some(ids[1]))?;
            self.roll_forward(core, ids[0])
        });
        // Also after an error, such as a damaged record, if the merge has not begun (P20).
        if !matches!(merged, Ok(true)) && core.link(ids[0])? == links[0] {
            core.set_link(ids[1], State::Stable, depth, links[1].side)?;
        }
        merged
    }

    /// Finishes a merge that has been committed.
    pub(super) fn roll_forward<T: Kinds>(&self, core: &Core<T>, segment: u32) -> Result<()> {
        let link = core.link(segment)?;
        let (State::Absorbing, Some(right)) = (link.state, link.side) else { return Ok(()) };
        let pattern =
            core.header(segment)?.pattern.load(&core.storage, Acquire) | split_bit(link.depth);
        let side = core.link(right)?.side;
        self.redirect(core, (pattern, link.depth + 1), right, segment)?;
        core.marks.away(right);
        let words = &core.root()?.segments;
        core.segment_blocks.free(
            &core.storage,
            words,
            &SegmentBlocks(core),
            (right, segment),
            || {
                // P25: the fence of the allocator's intents has made the entries durable. P26: the merge is finished.
                core.set_link(segment, State::Stable, link.depth, side)
            },
        )
    }

    /// Halves the directory if no segment needs its present depth. Excludes splits and merges meanwhile; returns
    /// `false` without waiting if one is in progress.
    pub(super) fn halve<T: Kinds>(&self, core: &Core<T>) -> Result<bool> {
        let Some(_alone) = self.base.try_alone() else { return Ok(false) };
        let storage = &core.storage;
        let old = self.root();
        if old.depth == 0 {
            return Ok(false);
        }
        let new = RootWord { depth: old.depth - 1, ..old };
        let (from, to) = (self.entries(storage, old)?, self.entries(storage, new)?);
        let _entries = self.lock_entries();
        // An interrupted split may not be in the directory yet.
        let is_deep = |entry: u64| {
            let link = segment_of(entry).map(|id| core.link(id));
            link.is_none_or(|link| {
                link.is_ok_and(|link| {
                    link.depth + u32::from(link.state == State::Splitting) > new.depth
                })
            })
        };
        let differ = |pair: usize| {
            let [one, other] = [0, 1].map(|which| from[2 * pair + which].load(storage, Relaxed));
            one != other || is_deep(one)
        };
        // The pair that differed last time probably differs still.
        let last = self.deep.load(Relaxed).min(to.len() - 1);
        if let Some(pair) = std::iter::once(last).chain(0..to.len()).find(|&pair| differ(pair)) {
            self.deep.store(pair, Relaxed);
            return Ok(false);
        }
        for (entry, pair) in to.iter().zip(from.chunks_exact(2)) {
            entry.store(storage, pair[0].load(storage, Relaxed), Release);
        }
        storage.flush(to.as_ptr().cast(), size_of_val(to));
        // P13: the smaller directory is durable before the root word selects it.
        storage.fence();
        self.base.set_word(&core.storage, core.root()?, new.pack());
        self.halvings.add(1);
        Ok(true)
    }
}
