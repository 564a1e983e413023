//! Merging two segments into one: the part that extendible and linear hashing share (§4.7).
//!
//! A merge is a split run backwards. First the left segment's link word is set to splitting. Until the merge is
//! committed, this is the correct state for recovery: the left segment holds records that its right neighbour holds as
//! well, and recovery removes them from the left one. Then all records of the right segment are copied into their
//! buckets in the left one. Then the policy commits with one store. A thread that accessed the right segment meanwhile
//! finds its versions changed and looks up the segment again.
//!
//! Segments are merged automatically only if together they fill at most [`MERGED_PERCENT`] of one. This is far below
//! the load at which segments split, so a table of roughly constant size does neither.

use std::sync::atomic::Ordering::Acquire;

use super::bucket::Guard;
use super::kinds::Kinds;
use super::layout::{Bucket, Geometry, State};
use super::moves::Move;
use super::segment::{Core, Segment};
use crate::Result;
use crate::storage::Medium;

/// Maximum load of a segment after an automatic merge.
pub(super) const MERGED_PERCENT: u64 = 50;
/// Maximum load of a segment after a merge by `shrink_to_fit`.
pub(super) const FITTED_PERCENT: u64 = 85;
/// A removal tries to merge its segment if two conditions hold: the load of the key's two buckets is below
/// `SPARSE_PERCENT`, and the home bucket is one of every `LOOK_ONE_IN` (a power of two).
const SPARSE_PERCENT: u64 = 25;
const LOOK_ONE_IN: usize = 16;

/// A segment with all its locks held.
pub(super) struct Held<'a, M: Medium> {
    pub(super) segment: Segment<'a>,
    pub(super) guards: Vec<Guard<'a, M>>,
}

/// Returns whether removals from this home bucket check their segment.
#[inline]
pub(super) fn is_looked_at(home: usize) -> bool {
    home & (LOOK_ONE_IN - 1) == 0
}

/// Returns whether `records` records in a home bucket and its neighbour are few enough to check the segment.
pub(super) fn is_sparse(geometry: Geometry, records: u32) -> bool {
    u64::from(records) * 100 < 2 * u64::from(geometry.slots) * SPARSE_PERCENT
}

impl<T: Kinds> Core<T> {
    /// Locks all buckets of a segment.
    pub(super) fn hold(&self, id: u32) -> Result<Held<'_, T::Medium>> {
        let segment = self.segment(id)?;
        Ok(Held { segment, guards: self.lock_all(segment) })
    }

    /// Returns whether the records of two segments fill at most `percent` of one.
    pub(super) fn fit_in_one(&self, ids: [u32; 2], percent: u64) -> Result<bool> {
        let mut records = 0;
        for id in ids {
            records += self.count(self.segment(id)?)?;
        }
        Ok(records * 100 <= self.geometry.segment_slots() * percent)
    }

    /// Merges two neighbours, both stable and of the same depth: copies the records of the right one into the left one,
    /// then calls `commit`. Returns `false`, with nothing copied, if the left segment has no room, or if the right
    /// segment still has a chain after `rebalance_stash`.
    pub(super) fn merge(
        &self,
        left: &Held<'_, T::Medium>,
        right: &Held<'_, T::Medium>,
        commit: impl FnOnce() -> Result<()>,
    ) -> Result<bool> {
        let storage = &self.storage;
        if self.header(right.segment.id)?.chain.load(storage, Acquire) != 0 {
            self.rebalance_stash(right.segment, &right.guards)?;
        }
        let Some(moves) = self.plan_merge(left.segment, right.segment)? else { return Ok(false) };
        // Fails here, and not behind P20, if a record that `rebuild_overflow` reads is damaged.
        self.stashed(left.segment)?;
        let depth = self.link(left.segment.id)?.depth.saturating_sub(1);
        // P20: from here on recovery removes the copies below.
        self.set_link(left.segment.id, State::Splitting, depth, Some(right.segment.id))?;
        self.copy_all(&moves);
        left.guards.iter().chain(&right.guards).for_each(Guard::begin_change);
        // P22: all copies are durable before the records of the right segment are given up.
        self.publish_all(&moves);
        self.rebuild_overflow(left.segment)?;
        commit()?;
        self.counts.merges.add(1);
        Ok(true)
    }

    /// Plans a place for each record of the right segment. Returns `None` if they do not fit.
    fn plan_merge<'a>(
        &self,
        left: Segment<'a>,
        right: Segment<'a>,
    ) -> Result<Option<Vec<Move<'a>>>> {
        let (storage, mask) = (&self.storage, self.geometry.slot_mask());
        if self.header(right.id)?.chain.load(storage, Acquire) != 0 {
            return Ok(None);
        }
        let normal = self.geometry.buckets as usize;
        let mut taken: Vec<u32> =
            left.buckets.iter().map(|bucket| bucket.meta(storage).allocated()).collect();
        let mut moves = Vec::new();
        for source in right.buckets {
            for slot in Bucket::slots_of(source.meta(storage).allocated()) {
                let home = self.geometry.home(self.hash_at(source, slot)?);
                let pair = [home, self.geometry.next(home)];
                let at_home = self
                    .choose(pair.map(|number| taken[number]))
                    .map(|(which, free)| (pair[which], free, (which == 1).then_some(home)));
                let stashed = || {
                    (normal..taken.len()).find_map(|number| {
                        Some((number, Bucket::free_slot(taken[number], mask)?, None))
                    })
                };
                let Some((number, free, home)) = at_home.or_else(stashed) else {
                    return Ok(None);
                };
                taken[number] |= 1 << free;
                let target = (&left.buckets[number], free);
                let home = home.map(|home| &left.buckets[home]);
                moves.push(Move { source: (source, slot), target, home });
            }
        }
        Ok(Some(moves))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Release;

    use super::*;
    use crate::base::hash::Seed;
    use crate::engine::dash::directory::Directory;
    use crate::engine::dash::options::DashSettings;
    use crate::engine::dash::{Eh, Lh};
    use crate::engine::opening::Common;
    use crate::engine::{Design, Operations, WriteKind};
    use crate::storage::Mapped;
    use crate::types::{Forms, Ignore, InBytes, InWord, Raw};

    type Check<T> = std::result::Result<T, Box<dyn std::error::Error>>;

    /// A merge that meets a damaged record fails. Once the record is whole again, it can be repeated. Damages each record
    /// of a table in turn.
    /// Returns the number of failed merges, and how many of them failed because of records in the stash.
    fn can_be_repeated<P: Directory>() -> Check<(u32, u32)> {
        let geometry = Geometry { buckets: 4, slots: 7, stash: 2 };
        let (mut failed, mut stashed, mut fewest) = (0, 0, usize::MAX);
        // The first table is not damaged.
        for damaged in std::iter::once(None).chain((0..).map(Some)) {
            let common = Common { hash_seed: Some(Seed([1, 2])), ..Common::default() };
            let settings = DashSettings { geometry, ..DashSettings::default() };
            let storage = Mapped::anonymous(common.anonymous(P::TITLE, P::ALLOWS_DISK)?)?;
            let (table, _) =
                <P as Design>::create::<Forms<InBytes, InWord>, Mapped>(common, settings, storage)?;
            let core = &table.core;
            let key = |n: u64| format!("a key by reference, number {n}").into_bytes();
            let put = |n| table.write(WriteKind::Put, &Raw::Slice(&key(n)), &Raw::Word(n), Ignore);
            let hash_of = |n| core.records.hash_key(&Raw::Slice(&key(n))).hash;
            let is_in_stash = |n| -> Result<bool> {
                let hash = hash_of(n);
                let segment = table.directory.ready(core, hash)?.segment;
                let stashed = core.stashed(core.segment(segment)?)?;
                Ok(stashed.iter().any(|&(other, _)| other == hash))
            };
            // Most keys have the same home bucket, so that some get into a stash. None has a home bucket whose removals
            // merge segments.
            let is_used = |n| match geometry.home(hash_of(n)) {
                2 => true,
                home => !is_looked_at(home) && n % 20 == 0,
            };
            let (first, mut keys) = (table.directory.segments(core), Vec::new());
            for n in (0..).filter(|&n| is_used(n)) {
                put(n)?;
                keys.push(n);
                if table.directory.segments(core) > first + 3 && is_in_stash(n)? {
                    break;
                }
            }
            // Few records stay, among them those in the stash, so that neighbours fit into one segment.
            let mut kept = Vec::new();
            for &n in &keys {
                if n % 20 == 0 || is_in_stash(n)? {
                    kept.push(n);
                } else {
                    table.write(WriteKind::Delete, &Raw::Slice(&key(n)), &Raw::NONE, Ignore)?;
                }
            }
            let mut places = Vec::new();
            for id in table.directory.check(core, &mut |_| {})? {
                for site in core.sites(core.segment(id)?) {
                    let (site, bucket) = site?;
                    let slots = Bucket::slots_of(bucket.meta(&core.storage).allocated());
                    places.extend(slots.map(|slot| (site, &bucket.slots[slot].key)));
                }
            }
            let mut shrunk = Ok(());
            if let Some(damaged) = damaged {
                let Some(&(site, word)) = places.get(damaged) else { break };
                let whole = word.load(&core.storage, Acquire);
                word.store(&core.storage, u64::MAX, Release);
                shrunk = table.shrink_all();
                if shrunk.is_err() {
                    failed += 1;
                    stashed += u32::from(site.stash_bucket().is_some());
                }
                word.store(&core.storage, whole, Release);
            }
            let mut segments = 0;
            for again in [false, true] {
                if again {
                    table.shrink_all()?;
                }
                for &n in &kept {
                    let found = table.contains(&Raw::Slice(&key(n)))?;
                    assert!(found, "{n}, damaged {damaged:?}: {shrunk:?}");
                }
                let mut faults = Vec::new();
                segments = table.directory.check(core, &mut |fault| faults.push(fault))?.len();
                assert!(faults.is_empty(), "damaged {damaged:?}: {faults:?}");
            }
            fewest = fewest.min(segments);
            assert_eq!(segments, fewest, "damaged {damaged:?}: {shrunk:?}");
        }
        Ok((failed, stashed))
    }

    #[test]
    fn merges_that_fail_can_be_repeated() -> Check<()> {
        let (failed, stashed) = can_be_repeated::<Eh>()?;
        assert!(failed > 10 && stashed > 0, "{failed}, {stashed}");
        let (failed, _) = can_be_repeated::<Lh>()?;
        assert!(failed > 0);
        Ok(())
    }
}
