//! Merging two segments into one: the part that extendible and linear hashing share (§4.7).
//!
//! A merge is a split run backwards. First the left segment's link word says that it is being split, which is what it
//! will look like until the merge is a fact: it holds records that its right neighbour holds as well, and a crash has
//! them struck out. Then it gets copies of all the neighbour's records, at the buckets that they had. Then the policy
//! commits, by one store of its own. Whoever looked at the neighbour meanwhile finds its versions changed and asks the
//! directory again.
//!
//! Segments are merged when both together fill less of one than [`MERGED_PERCENT`], far below the load at which they
//! are split: a table that hovers about any size does neither.

use std::sync::atomic::Ordering::Acquire;

use super::bucket::Guard;
use super::kinds::Kinds;
use super::layout::{Bucket, Geometry, State};
use super::moves::Move;
use super::segment::{Core, Segment};
use crate::Result;
use crate::pm::Medium;

/// How full a segment may be after a merge that nobody asked for.
pub(super) const MERGED_PERCENT: u64 = 50;
/// How full one may be after `shrink_to_fit`.
pub(super) const FITTED_PERCENT: u64 = 85;
/// A removal that leaves its two buckets less full than this, and one home bucket in so many (a power of two), has
/// the segment looked at.
const SPARSE_PERCENT: u64 = 25;
const LOOK_ONE_IN: usize = 16;

/// A segment with all its locks.
pub(super) struct Held<'a, M: Medium> {
    pub(super) segment: Segment<'a>,
    pub(super) guards: Vec<Guard<'a, M>>,
}

/// Whether a removal from this home bucket is a reason to look how much is left.
#[inline]
pub(super) fn is_looked_at(home: usize) -> bool {
    home & (LOOK_ONE_IN - 1) == 0
}

/// Whether so many records in a home bucket and its neighbour are a reason to look at the segment.
pub(super) fn is_sparse(geometry: Geometry, records: u32) -> bool {
    u64::from(records) * 100 < 2 * u64::from(geometry.slots) * SPARSE_PERCENT
}

impl<T: Kinds> Core<T> {
    /// Takes all locks of a segment.
    pub(super) fn hold(&self, id: u32) -> Result<Held<'_, T::Medium>> {
        let segment = self.segment(id)?;
        Ok(Held { segment, guards: self.lock_all(segment) })
    }

    /// Whether two segments together fill so much of one at most.
    pub(super) fn fit_in_one(&self, ids: [u32; 2], percent: u64) -> Result<bool> {
        let mut records = 0;
        for id in ids {
            records += self.count(self.segment(id)?)?;
        }
        Ok(records * 100 <= self.geometry.segment_slots() * percent)
    }

    /// Gives the left of two neighbours, both stable and of the same depth, copies of the other's records, and then has
    /// the policy commit. `false`: it has no room for them, or the other has a chain; nothing has changed.
    pub(super) fn merge(
        &self,
        left: &Held<'_, T::Medium>,
        right: &Held<'_, T::Medium>,
        commit: impl FnOnce() -> Result<()>,
    ) -> Result<bool> {
        let pm = &self.pm;
        if self.header(right.segment.id)?.chain.load(pm, Acquire) != 0 {
            self.tidy(right.segment, &right.guards)?;
        }
        let Some(moves) = self.plan_merge(left.segment, right.segment)? else { return Ok(false) };
        let depth = self.link(left.segment.id)?.depth.saturating_sub(1);
        // P20: from here on a crash strikes out what follows.
        self.set_link(left.segment.id, State::Splitting, depth, Some(right.segment.id))?;
        self.copy_all(&moves);
        left.guards.iter().chain(&right.guards).for_each(Guard::begin_change);
        // P22: all of them are there before the other segment's do not count any more.
        self.publish_all(&moves);
        commit()?;
        self.counts.merges.add(1);
        self.rebuild_overflow(left.segment).map(|()| true)
    }

    /// Where each record of the right segment goes; `None`: there is no room.
    fn plan_merge<'a>(
        &self,
        left: Segment<'a>,
        right: Segment<'a>,
    ) -> Result<Option<Vec<Move<'a>>>> {
        let (pm, mask) = (&self.pm, self.geometry.slot_mask());
        if self.header(right.id)?.chain.load(pm, Acquire) != 0 {
            return Ok(None);
        }
        let normal = self.geometry.buckets as usize;
        let mut taken: Vec<u32> =
            left.buckets.iter().map(|bucket| bucket.meta(pm).allocated()).collect();
        let mut moves = Vec::new();
        for source in right.buckets {
            for slot in Bucket::slots_of(source.meta(pm).allocated()) {
                let home = self.geometry.home(self.hash_at(source, slot)?);
                let pair = [home, self.geometry.next(home)];
                let at_home = self
                    .choose(pair.map(|number| taken[number]))
                    .map(|(which, free)| (pair[which], free, which == 1));
                let stashed = || {
                    (normal..taken.len()).find_map(|number| {
                        Some((number, Bucket::free_slot(taken[number], mask)?, false))
                    })
                };
                let Some((number, free, member)) = at_home.or_else(stashed) else {
                    return Ok(None);
                };
                taken[number] |= 1 << free;
                let target = (&left.buckets[number], free);
                moves.push(Move { source: (source, slot), target, member });
            }
        }
        Ok(Some(moves))
    }
}
