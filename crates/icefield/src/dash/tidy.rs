//! What of a segment's records lies beyond their home buckets: brought home when there is room, and noted there.

use super::bucket::Guard;
use super::insert::copy_fingerprint;
use super::kinds::Kinds;
use super::layout::Bucket;
use super::segment::{Core, Segment};
use super::stash;
use crate::Result;
use crate::pm::Medium;

impl<T: Kinds> Core<T> {
    /// Brings stashed records home and frees what the chain does not need any more. The caller holds all locks.
    pub(super) fn tidy(&self, segment: Segment<'_>, guards: &[Guard<'_, T::Medium>]) -> Result<()> {
        guards.iter().for_each(Guard::begin_change);
        self.bring_home(segment)?;
        // P11, as after a split.
        self.pm.fence();
        self.drop_empty_chain(segment)?;
        self.rebuild_overflow(segment)
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
                    let (key, value) = bucket.record(pm, slot);
                    segment.buckets[pair[which]].write_record(pm, free, key, value);
                    moves.push((bucket, slot, &segment.buckets[pair[which]], free, which == 1));
                }
            }
        }
        if moves.is_empty() {
            return Ok(());
        }
        // P9: the copies are durable before their buckets say so.
        pm.fence();
        for &(source, slot, target, free, member) in &moves {
            copy_fingerprint(pm, source, slot, target, free);
            target.publish(pm, target.meta(pm).with(free, member));
        }
        // P10: at home, durably, before they leave the stash; a crash between leaves duplicates, which recovery
        // removes.
        pm.fence();
        for &(source, slot, ..) in &moves {
            // P11: durable by the fence of P16, before the locks are released and the slots used again.
            source.publish(pm, source.meta(pm).without(1 << slot));
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
