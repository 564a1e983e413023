//! What of a segment's records lies beyond their home buckets: brought home when there is room, and noted there.

use super::bucket::Guard;
use super::insert::movable;
use super::kinds::{Ablation, Kinds};
use super::layout::Bucket;
use super::moves::Move;
use super::segment::{Core, Segment};
use super::stash;
use crate::Result;
use crate::pm::Medium;

impl<T: Kinds> Core<T> {
    /// Brings stashed records home, if need be by moving others on, and frees what the chain does not need any more. The
    /// caller holds all locks.
    pub(super) fn tidy(&self, segment: Segment<'_>, guards: &[Guard<'_, T::Medium>]) -> Result<()> {
        let Some(ways) = self.plan_ways(segment)? else { return Ok(()) };
        guards.iter().for_each(Guard::begin_change);
        if !ways.is_empty() {
            self.copy_all(&ways);
            self.publish_all(&ways);
            self.strike_all(&ways);
            // P5: the slots are durably free before they are used again.
            self.pm.fence();
            self.counts.displacements.add(ways.len() as i64);
        }
        self.bring_home(segment)?;
        // P11, as after a split.
        self.pm.fence();
        self.drop_empty_chain(segment)?;
        self.rebuild_overflow(segment)
    }

    /// Which records to move on so that as many as can be come home; `None`: none can.
    fn plan_ways<'a>(&self, segment: Segment<'a>) -> Result<Option<Vec<Move<'a>>>> {
        let (pm, normal) = (&self.pm, self.geometry.buckets as usize);
        let taken = segment.buckets[..normal].iter().map(|bucket| bucket.meta(pm).allocated());
        let (mut taken, mut left) = (taken.collect::<Vec<_>>(), vec![0_u32; normal]);
        let (mut ways, mut comers) = (Vec::new(), 0);
        for site in self.sites(segment).skip(normal) {
            let (_, bucket) = site?;
            for slot in Bucket::slots_of(bucket.meta(pm).allocated()) {
                let home = self.geometry.home(self.hash_at(bucket, slot)?);
                let pair = [home, self.geometry.next(home)];
                if let Some((which, free)) = self.choose(pair.map(|number| taken[number])) {
                    taken[pair[which]] |= 1 << free;
                } else if let Some(way) = self.plan_way(segment, pair, (&mut taken, &mut left)) {
                    ways.push(way);
                } else {
                    continue;
                }
                comers += 1;
            }
        }
        Ok((comers > 0).then_some(ways))
    }

    /// A record to move on, or back, from one of two full buckets. `taken`: the slots of each bucket that will be;
    /// `left`: those whose records have been planned for before.
    fn plan_way<'a>(
        &self,
        segment: Segment<'a>,
        [home, probing]: [usize; 2],
        (taken, left): (&mut [u32], &mut [u32]),
    ) -> Option<Move<'a>> {
        let (geometry, pm) = (self.geometry, &self.pm);
        if !T::Ablation::PARTS.balancing {
            return None;
        }
        let ways =
            [(probing, geometry.next(probing), true), (home, geometry.previous(home), false)];
        ways.into_iter().find_map(|(from, to, onwards)| {
            let source = &segment.buckets[from];
            let slot = movable(pm, source, onwards, left[from])?;
            let free = Bucket::free_slot(taken[to], geometry.slot_mask())?;
            // The slot that is left is taken at once.
            (left[from], taken[to]) = (left[from] | 1 << slot, taken[to] | 1 << free);
            let target = &segment.buckets[to];
            Some(Move { source: (source, slot), target: (target, free), member: onwards })
        })
    }

    /// Moves records from the stash and the chain to their home or probing buckets, all together in three fences.
    pub(super) fn bring_home(&self, segment: Segment<'_>) -> Result<()> {
        let pm = &self.pm;
        let mut pending = vec![0_u32; self.geometry.buckets as usize];
        let mut moves = Vec::new();
        for site in self.sites(segment).skip(self.geometry.buckets as usize) {
            let (_, bucket) = site?;
            for slot in Bucket::slots_of(bucket.meta(pm).allocated()) {
                let home = self.geometry.home(self.hash_at(bucket, slot)?);
                let pair = [home, self.geometry.next(home)];
                let metas = pair
                    .map(|number| segment.buckets[number].meta(pm).allocated() | pending[number]);
                if let Some((which, free)) = self.choose(metas) {
                    pending[pair[which]] |= 1 << free;
                    let target = (&segment.buckets[pair[which]], free);
                    moves.push(Move { source: (bucket, slot), target, member: which == 1 });
                }
            }
        }
        if !moves.is_empty() {
            self.copy_all(&moves);
            self.publish_all(&moves);
            // P11: durable by the fence of P16, before the locks are released and the slots used again.
            self.strike_all(&moves);
        }
        Ok(())
    }

    /// Recomputes the overflow metadata of all buckets from the records in the stash and the chain.
    pub(super) fn rebuild_overflow(&self, segment: Segment<'_>) -> Result<()> {
        segment.buckets.iter().for_each(|bucket| stash::reset(&self.pm, bucket));
        for site in self.sites(segment).skip(self.geometry.buckets as usize) {
            let (site, bucket) = site?;
            for slot in Bucket::slots_of(bucket.meta(&self.pm).allocated()) {
                let hash = self.hash_at(bucket, slot)?;
                let [home, probing] = self.pair(segment, hash);
                stash::note(&self.pm, home, probing, hash, site.stash_bucket());
            }
        }
        Ok(())
    }

    /// Whether a key with this hash finds room without a split.
    pub(super) fn has_room(&self, segment: Segment<'_>, hash: u64) -> Result<bool> {
        let mask = self.geometry.slot_mask();
        let free =
            |bucket: &Bucket| Bucket::free_slot(bucket.meta(&self.pm).allocated(), mask).is_some();
        let pair = self.pair(segment, hash);
        let metas = pair.map(|bucket| bucket.meta(&self.pm).allocated());
        if self.choose(metas).is_some() || self.stash(segment).iter().any(free) {
            return Ok(true);
        }
        self.chain(segment.id).try_fold(false, |found, block| Ok(found || free(&block?.1.bucket)))
    }
}
