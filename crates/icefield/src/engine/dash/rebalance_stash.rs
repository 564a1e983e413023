//! Moves the stashed and chained records of a segment home, and rebuilds the overflow metadata.

use super::bucket::Guard;
use super::insert::{MAX_MOVES, movable};
use super::kinds::{Ablation, Kinds};
use super::layout::Bucket;
use super::moves::Move;
use super::segment::{Core, Segment, Site};
use super::stash;
use crate::Result;
use crate::storage::Persist;

/// Planned displacements by round. Those of one round are performed together, after those of the earlier rounds.
type Rounds<'a> = [Vec<Move<'a>>; MAX_MOVES];

impl<T: Kinds> Core<T> {
    /// Moves stashed records home, displacing other records where that makes room, and frees chained buckets that
    /// become empty. The caller holds all locks.
    pub(super) fn rebalance_stash(
        &self,
        segment: Segment<'_>,
        guards: &[Guard<'_, T::Medium>],
    ) -> Result<()> {
        let Some(rounds) = self.plan_ways(segment)? else { return Ok(()) };
        guards.iter().for_each(Guard::begin_change);
        for moves in rounds.iter().filter(|moves| !moves.is_empty()) {
            self.copy_all(moves);
            self.publish_all(moves);
            self.strike_all(moves);
            // P5: the slots are durably free before they are used again.
            self.storage.fence();
            self.counts.displacements.add(moves.len() as i64);
        }
        self.bring_home(segment)?;
        // P11: the removals by `bring_home` are durable before chained buckets are freed and slots used again.
        self.storage.fence();
        self.drop_empty_chain(segment)?;
        self.rebuild_overflow(segment)
    }

    /// Plans the displacements that let as many records as possible move home. A move into a slot that another move
    /// vacates is in a later round than that move. Returns `None` if no record can move home.
    fn plan_ways<'a>(&self, segment: Segment<'a>) -> Result<Option<Rounds<'a>>> {
        let (storage, normal) = (&self.storage, self.geometry.buckets as usize);
        let taken = segment.buckets[..normal].iter().map(|bucket| bucket.meta(storage).allocated());
        let (mut taken, mut left) = (taken.collect::<Vec<_>>(), vec![0_u32; normal]);
        let (mut rounds, mut comers) = (Rounds::default(), 0);
        for site in self.sites(segment).skip(normal) {
            let (_, bucket) = site?;
            for slot in Bucket::slots_of(bucket.meta(storage).allocated()) {
                let home = self.geometry.home(self.hash_at(bucket, slot)?);
                let pair = [home, self.geometry.next(home)];
                if let Some((which, free)) = self.choose(pair.map(|number| taken[number])) {
                    taken[pair[which]] |= 1 << free;
                } else if !T::Ablation::PARTS.balancing
                    || !self.plan_way(segment, pair[1], true, (&mut taken, &mut left), &mut rounds)
                        && !self.plan_way(
                            segment,
                            home,
                            false,
                            (&mut taken, &mut left),
                            &mut rounds,
                        )
                {
                    continue;
                }
                comers += 1;
            }
        }
        Ok((comers > 0).then_some(rounds))
    }

    /// Plans displacements that make room in bucket `from`: each moves a record to the next bucket (`onwards`) or the
    /// previous one, until a bucket on the path has a free slot. Returns `false` if it finds no such path of at most
    /// [`MAX_MOVES`] moves. For each bucket, `taken` has the slots that will be in use, and `left` has the slots whose
    /// records are already planned to move.
    fn plan_way<'a>(
        &self,
        segment: Segment<'a>,
        from: usize,
        onwards: bool,
        (taken, left): (&mut [u32], &mut [u32]),
        rounds: &mut Rounds<'a>,
    ) -> bool {
        let mut path: Vec<(usize, usize)> = Vec::with_capacity(MAX_MOVES);
        let mut number = from;
        let free = loop {
            let (storage, bucket) = (&self.storage, &segment.buckets[number]);
            if !path.is_empty()
                && let Some(free) = Bucket::free_slot(taken[number], self.geometry.slot_mask())
            {
                break free;
            }
            let Some(slot) = movable(storage, bucket, onwards, left[number]) else { return false };
            if path.len() == MAX_MOVES || path.iter().any(|&(passed, _)| passed == number) {
                return false;
            }
            path.push((number, slot));
            let geometry = self.geometry;
            number = if onwards { geometry.next(number) } else { geometry.previous(number) };
        };
        taken[number] |= 1 << free;
        let mut target = (&segment.buckets[number], free);
        for (round, (number, slot)) in path.into_iter().rev().enumerate() {
            // The vacated slot is filled in the next round.
            left[number] |= 1 << slot;
            let source = (&segment.buckets[number], slot);
            rounds[round].push(Move { source, target, home: onwards.then_some(source.0) });
            target = source;
        }
        true
    }

    /// Moves records from the stash and the chain to their home or probing buckets, if these have room. Costs two
    /// fences in all; the caller's next fence makes the removals durable.
    pub(super) fn bring_home(&self, segment: Segment<'_>) -> Result<()> {
        let storage = &self.storage;
        let mut pending = vec![0_u32; self.geometry.buckets as usize];
        let mut moves = Vec::new();
        for site in self.sites(segment).skip(self.geometry.buckets as usize) {
            let (_, bucket) = site?;
            for slot in Bucket::slots_of(bucket.meta(storage).allocated()) {
                let home = self.geometry.home(self.hash_at(bucket, slot)?);
                let pair = [home, self.geometry.next(home)];
                let metas = pair.map(|number| {
                    segment.buckets[number].meta(storage).allocated() | pending[number]
                });
                if let Some((which, free)) = self.choose(metas) {
                    pending[pair[which]] |= 1 << free;
                    let target = (&segment.buckets[pair[which]], free);
                    let home = (which == 1).then_some(&segment.buckets[home]);
                    moves.push(Move { source: (bucket, slot), target, home });
                }
            }
        }
        if !moves.is_empty() {
            self.copy_all(&moves);
            self.publish_all(&moves);
            // P11: the caller's next fence (after a split, that of P16) makes the removals durable, before the locks
            // are released and the slots used again.
            self.strike_all(&moves);
        }
        Ok(())
    }

    /// Rebuilds the overflow metadata of all buckets from the membership bits and the records in the stash and the chain.
    ///
    /// # Errors
    /// The segment is damaged; nothing has changed.
    pub(super) fn rebuild_overflow(&self, segment: Segment<'_>) -> Result<()> {
        let normal = self.geometry.buckets as usize;
        let stashed = self.stashed(segment)?;
        for (number, bucket) in segment.buckets.iter().enumerate() {
            let next = (number < normal).then(|| &segment.buckets[self.geometry.next(number)]);
            let spills = next.is_some_and(|next| next.meta(&self.storage).members() != 0);
            stash::reset(&self.storage, bucket, spills);
        }
        for (hash, site) in stashed {
            stash::note(&self.storage, self.pair(segment, hash), hash, site.stash_bucket());
        }
        Ok(())
    }

    /// The hashes of the records in the stash and the chain, and where these are.
    pub(super) fn stashed(&self, segment: Segment<'_>) -> Result<Vec<(u64, Site)>> {
        let mut stashed = Vec::new();
        for site in self.sites(segment).skip(self.geometry.buckets as usize) {
            let (site, bucket) = site?;
            for slot in Bucket::slots_of(bucket.meta(&self.storage).allocated()) {
                stashed.push((self.hash_at(bucket, slot)?, site));
            }
        }
        Ok(stashed)
    }

    /// Returns whether the segment has room for a key with this hash.
    pub(super) fn has_room(&self, segment: Segment<'_>, hash: u64) -> Result<bool> {
        let mask = self.geometry.slot_mask();
        let free = |bucket: &Bucket| {
            Bucket::free_slot(bucket.meta(&self.storage).allocated(), mask).is_some()
        };
        let pair = self.pair(segment, hash);
        let metas = pair.map(|bucket| bucket.meta(&self.storage).allocated());
        if self.choose(metas).is_some() || self.stash(segment).iter().any(free) {
            return Ok(true);
        }
        self.chain(segment.id).try_fold(false, |found, block| Ok(found || free(&block?.1.bucket)))
    }
}
