//! Splitting a segment in two: the part that extendible and linear hashing share (§4.7).
//!
//! The new segment is built privately beside the old one. A record in a normal bucket keeps its position, because the
//! bucket bits of the hash do not change. The whole new segment is durable before one store commits the split (`Link`,
//! [`State::Splitting`]). From then on the split is rolled forward, by the splitting thread or, after a crash, by the
//! first thread that touches the old segment. Readers of the old segment proceed until the moved records are removed
//! from it.

use std::sync::atomic::Ordering::{Acquire, Release};

use super::bucket::Guard;
use super::directory::Directory;
use super::insert::copy_fingerprint;
use super::kinds::Kinds;
use super::layout::{Bucket, Link, State, split_bit};
use super::marks::READY;
use super::segment::{Core, Segment};
use super::segment_builder::NewSegment;
use super::stash;
use crate::Result;
use crate::storage::{Medium, Persist};

/// Maximum chain length of a segment that is split. The records of a longer chain agree in many hash bits, so that a
/// split would not help, and copying the chain would need many blocks at once.
pub(super) const MAX_CHAIN_TO_SPLIT: usize = 8;

impl<T: Kinds> Core<T> {
    /// Splits a segment into itself and a new one. The caller holds all locks of the segment.
    pub(super) fn split_into(
        &self,
        directory: &impl Directory,
        segment: Segment<'_>,
        guards: &[Guard<'_, T::Medium>],
        mut new: NewSegment<'_, T::Medium>,
    ) -> Result<()> {
        let link = self.link(segment.id)?;
        let pattern = self.header(segment.id)?.pattern.load(&self.storage, Acquire);
        let records = self.count(segment)?;
        let bit = split_bit(link.depth);
        let right = Link { state: State::Stable, depth: link.depth + 1, side: link.side };
        let copied = self
            .copy_half(segment, &mut new, bit)
            .and_then(|()| self.complete(&new, right, pattern | bit));
        if let Err(error) = copied {
            self.abandon(new)?;
            return Err(error);
        }
        let new_id = new.segment.id;
        new.unlock();
        // P15, commit point of the split: from here on it is rolled forward.
        self.set_link(segment.id, State::Splitting, link.depth, Some(new_id))?;
        self.marks.set(new_id, READY);
        self.adopt(new)?;
        directory.redirect(self, (pattern | bit, link.depth + 1), segment.id, new_id)?;
        guards.iter().for_each(Guard::begin_change);
        self.strike_half(segment, bit)?;
        // P16: the split is finished.
        self.set_link(segment.id, State::Stable, link.depth + 1, Some(new_id))?;
        self.counts.splits.add(1);
        self.counts.split_records.add(records as i64);
        self.counts.split_slots.add(self.geometry.segment_slots() as i64);
        Ok(())
    }

    /// Finishes a split that a crash interrupted after its commit point. Called during recovery, before any thread uses
    /// the segment.
    pub(super) fn finish_split(&self, directory: &impl Directory, id: u32) -> Result<()> {
        let link = self.link(id)?;
        let (State::Splitting, Some(right)) = (link.state, link.side) else { return Ok(()) };
        let bit = split_bit(link.depth);
        let pattern = self.header(id)?.pattern.load(&self.storage, Acquire) | bit;
        if directory.is_merged(pattern) {
            return self.set_link(id, State::Stable, link.depth, link.side);
        }
        directory.redirect(self, (pattern, link.depth + 1), id, right)?;
        self.strike_half(self.segment(id)?, bit)?;
        self.set_link(id, State::Stable, link.depth + 1, Some(right))
    }

    /// Copies the records whose hash has `bit` set into the new segment. The caller holds all locks of `from`.
    pub(super) fn copy_half(
        &self,
        from: Segment<'_>,
        new: &mut NewSegment<'_, T::Medium>,
        bit: u64,
    ) -> Result<()> {
        self.header(new.segment.id)?.chain.store(&self.storage, 0, Release);
        for (number, bucket) in from.buckets.iter().enumerate().take(self.geometry.buckets as usize)
        {
            let meta = bucket.meta(&self.storage);
            let target = &new.segment.buckets[number];
            let previous = &new.segment.buckets[self.geometry.previous(number)];
            for slot in Bucket::slots_of(meta.allocated()) {
                if self.hash_at(bucket, slot)? & bit != 0 {
                    let home = (meta.members() >> slot & 1 == 1).then_some(previous);
                    self.copy_slot((bucket, slot), (target, slot), home);
                }
            }
        }
        for site in self.sites(from).skip(self.geometry.buckets as usize) {
            let (_, bucket) = site?;
            for slot in Bucket::slots_of(bucket.meta(&self.storage).allocated()) {
                let hash = self.hash_at(bucket, slot)?;
                if hash & bit != 0 {
                    self.copy_overflow(bucket, slot, hash, new)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn hash_at(&self, bucket: &Bucket, slot: usize) -> Result<u64> {
        self.records.hash_of(&self.storage, bucket.record(&self.storage, slot).0)
    }

    /// Copies a record into a bucket that other threads cannot reach. `home` is the record's home, if the target is the
    /// bucket after it. The copy is flushed with the whole segment.
    fn copy_slot(
        &self,
        (source, slot): (&Bucket, usize),
        (target, to): (&Bucket, usize),
        home: Option<&Bucket>,
    ) {
        let storage = &self.storage;
        if let Some(home) = home {
            home.note_spill(storage);
        }
        let (key, value) = source.record(storage, slot);
        target.slots[to].key.store(storage, key, Release);
        target.slots[to].value.store(storage, value, Release);
        copy_fingerprint(storage, source, slot, target, to);
        target.meta.store(storage, target.meta(storage).with(to, home.is_some()).0, Release);
    }

    /// Copies a stashed record into the new segment, to its home or probing bucket if they have room.
    fn copy_overflow(
        &self,
        source: &Bucket,
        slot: usize,
        hash: u64,
        new: &mut NewSegment<'_, T::Medium>,
    ) -> Result<()> {
        let storage = &self.storage;
        let mask = self.geometry.slot_mask();
        let [home, probing] = self.pair(new.segment, hash);
        let metas = [home, probing].map(|bucket| bucket.meta(storage).allocated());
        if let Some((which, free)) = self.choose(metas) {
            let target = ([home, probing][which], free);
            self.copy_slot((source, slot), target, (which == 1).then_some(home));
            return Ok(());
        }
        for (number, bucket) in self.stash(new.segment).iter().enumerate() {
            if let Some(free) = Bucket::free_slot(bucket.meta(storage).allocated(), mask) {
                self.copy_slot((source, slot), (bucket, free), None);
                stash::note(storage, [home, probing], hash, Some(number));
                return Ok(());
            }
        }
        let target = self.chained_room(new)?;
        if let Some(free) = Bucket::free_slot(target.bucket.meta(storage).allocated(), mask) {
            self.copy_slot((source, slot), (&target.bucket, free), None);
            storage.flush_object(target);
            stash::note(storage, [home, probing], hash, None);
        }
        Ok(())
    }

    /// Removes the records whose hash has `bit` set, moves stashed records home where there is room now, and rebuilds
    /// the overflow metadata. The caller holds all locks with their changing bits set, or is recovering the segment.
    pub(super) fn strike_half(&self, segment: Segment<'_>, bit: u64) -> Result<()> {
        let storage = &self.storage;
        for site in self.sites(segment) {
            let (_, bucket) = site?;
            let meta = bucket.meta(storage);
            let mut gone = 0;
            for slot in Bucket::slots_of(meta.allocated()) {
                if self.hash_at(bucket, slot)? & bit != 0 {
                    gone |= 1 << slot;
                }
            }
            if gone != 0 {
                bucket.publish(storage, meta.without(gone));
            }
        }
        // P8: the slots are durably free before any of them is used again.
        storage.fence();
        self.bring_home(segment)?;
        self.drop_empty_chain(segment)?;
        self.rebuild_overflow(segment)
    }

    /// Stores and persists a segment's link word.
    pub(super) fn set_link(
        &self,
        id: u32,
        state: State,
        depth: u32,
        side: Option<u32>,
    ) -> Result<()> {
        let link = &self.header(id)?.link;
        link.store(&self.storage, Link { state, depth, side }.pack(), Release);
        self.storage.persist(link);
        Ok(())
    }
}
