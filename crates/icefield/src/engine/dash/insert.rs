//! Inserts a record into a segment. The methods, in this order: the home or probing bucket, displacement of one or two
//! records, the stash, displacement of up to three records, the chain (Algorithms 1, 2).
//!
//! The paper displaces one record and stops at the stash. The two methods after the stash fill segments further (figures:
//! `docs/decisions/0012-dash-displacement.md`, `0118-dash-home-first.md`) and cost time only when the stash is full.
//! Batches use the stash before displacement (`batch`).

use super::bucket::Guard;
use super::kinds::{Ablation, Kinds};
use super::layout::Bucket;
use super::segment::{Core, Found, Segment, Site};
use super::stash;
use crate::Result;
use crate::engine::LookupKey;
use crate::engine::slots::{EpochGuard, PreparedRecord};
use crate::storage::blob::BlobRef;
use crate::storage::{Medium, Persist, SimHooks};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Maximum number of records that are displaced to make room for one.
pub(super) const MAX_MOVES: usize = 3;

/// The same before the stash is used.
const MOVES_BEFORE_STASH: usize = 2;

/// A key's home and probing bucket. The home bucket is locked: no record of that home is added, removed, moved or
/// updated meanwhile (I4).
pub(super) struct Locked<'a, T: Kinds> {
    pub(super) core: &'a Core<T>,
    pub(super) segment: Segment<'a>,
    pub(super) buckets: [&'a Bucket; 2],
    home: Guard<'a, T::Medium>,
    /// `None` while the probing bucket is not locked. Its lock is needed for changes of its metadata words.
    probing: Option<Guard<'a, T::Medium>>,
}

/// Selects the bucket with fewer records, the home bucket if equal (balanced insert, §4.3).
#[inline]
fn balance(metas: [u32; 2], slot_mask: u32) -> Option<(usize, usize)> {
    let [home, probing] = counts(metas);
    let target = usize::from(probing < home);
    Bucket::free_slot(metas[target], slot_mask).map(|slot| (target, slot))
}

/// Counts the bits of two 14-bit words side by side, without the population-count instruction, which not every target
/// processor has.
#[inline]
fn counts([a, b]: [u32; 2]) -> [u32; 2] {
    let mut sums = a | b << 16;
    sums -= sums >> 1 & 0x5555_5555;
    sums = (sums & 0x3333_3333) + (sums >> 2 & 0x3333_3333);
    sums = (sums + (sums >> 4)) & 0x0F0F_0F0F;
    sums = (sums + (sums >> 8)) & 0x00FF_00FF;
    [sums & 0xFF, sums >> 16]
}

impl<'a, T: Kinds> Locked<'a, T> {
    /// Locks a key's home bucket.
    #[inline(always)]
    pub(super) fn new(core: &'a Core<T>, segment: Segment<'a>, hash: u64) -> Self {
        let [home, probing] = core.pair(segment, hash);
        if !core.records.are_words() {
            // For words, `look_ahead` has fetched both.
            home.fetch_for_write();
            probing.fetch_for_write();
        }
        // Every thread that waits for several locks acquires them in ascending order. If the probing bucket is the first
        // one, `lock_probing` could not lock it later.
        let is_last = core.geometry.next(core.geometry.home(hash)) == 0;
        let first = is_last.then(|| probing.lock(&core.storage));
        let guard = home.lock(&core.storage);
        Self { core, segment, buckets: [home, probing], home: guard, probing: first }
    }

    /// Locks the probing bucket as well. The caller holds no lock of a stash bucket.
    #[inline]
    pub(super) fn lock_probing(&mut self) -> &Guard<'a, T::Medium> {
        let (core, probing) = (self.core, self.buckets[1]);
        self.probing.get_or_insert_with(|| probing.lock(&core.storage))
    }

    /// Makes the readers of both buckets wait, as a change in the stash must: it may change the overflow metadata of
    /// either.
    fn begin_both(&mut self) {
        self.home.begin_change();
        self.lock_probing().begin_change();
    }

    #[inline]
    pub(super) fn find(&self, probe: &LookupKey<'_>) -> Result<Option<Found<'a>>> {
        self.core.find_locked(self.segment.id, self.buckets, probe)
    }

    /// Replaces the value word of a record and returns the former one. One flush, one fence.
    #[inline]
    pub(super) fn replace(&mut self, found: &Found<'_>, value: u64) -> u64 {
        let storage = &self.core.storage;
        // Wherever the record is, its readers validate the version of its home bucket.
        self.home.begin_change();
        let cell = found.bucket.value(found.slot);
        let before = cell.load(storage, Relaxed);
        // Release (E3): the blob behind a reference was written before. The fence makes this store the commit point.
        cell.store(storage, value, Release);
        storage.persist(cell);
        before
    }

    /// Makes a record refer to the copy of one of its blobs. One flush, one fence.
    #[cold]
    pub(super) fn relink(&mut self, found: &Found<'_>, blob: BlobRef, copy: BlobRef) {
        let (storage, slot) = (&self.core.storage, &found.bucket.slots[found.slot]);
        self.home.begin_change();
        for (cell, is_key) in [(&slot.key, true), (&slot.value, false)] {
            let word = cell.load(storage, Relaxed);
            if let Some(word) = self.core.records.relinked(word, is_key, blob, copy) {
                // Release (E3): the copy was made durable before. The fence below makes this store the commit point
                // (P27).
                cell.store(storage, word, Release);
            }
        }
        storage.persist(slot);
    }

    /// Removes a record durably, so that its slot may be reused at once. One flush, one fence.
    #[inline]
    pub(super) fn remove(&mut self, found: &Found<'_>, hash: u64, pin: &EpochGuard<'_>) {
        let core = self.core;
        let storage = &core.storage;
        let (key, value) = found.bucket.record(storage, found.slot);
        if found.site == Site::Normal {
            let [home, probing] = self.buckets;
            let is_at_home = std::ptr::eq(found.bucket, home);
            if is_at_home {
                self.home.begin_change();
            } else {
                self.lock_probing().begin_change();
            }
            found.bucket.publish(storage, found.bucket.meta(storage).without(1 << found.slot));
            // Commit point: from here on the removal survives a crash.
            storage.fence();
            if !is_at_home {
                home.forget_spill(storage, probing);
            }
        } else {
            self.lock_probing();
            let guard = found.bucket.lock(storage);
            self.begin_both();
            guard.begin_change();
            found.bucket.publish(storage, found.bucket.meta(storage).without(1 << found.slot));
            // Commit point, as above.
            storage.fence();
            stash::forget(storage, self.buckets, hash, found.site.stash_bucket());
        }
        core.records.retire_key(pin, key);
        core.records.retire_value(pin, value);
    }

    /// Inserts a record whose key is absent. Returns `false` if the segment has no room.
    #[inline]
    pub(super) fn insert(&mut self, hash: u64, record: PreparedRecord) -> Result<bool> {
        let [home, probing] = self.buckets;
        let storage = &self.core.storage;
        let taken = home.meta(storage).allocated();
        // Read through `read_unvalidated`: without its lock, the number of records in the probing bucket is a hint.
        let hint = storage.read_unvalidated(|| probing.meta(storage).allocated());
        if let Some((0, slot)) = self.core.choose([taken, hint]) {
            self.insert_at(0, slot, hash, record);
            return Ok(true);
        }
        self.lock_probing();
        if let Some((target, slot)) = self.core.choose([taken, probing.meta(storage).allocated()]) {
            self.insert_at(target, slot, hash, record);
            return Ok(true);
        }
        let displaces = T::Ablation::PARTS.balancing;
        if displaces && self.displace(hash, record, MOVES_BEFORE_STASH)
            || self.insert_into_stash(hash, record)
            || displaces && self.displace(hash, record, MAX_MOVES)
        {
            return Ok(true);
        }
        self.insert_into_chain(hash, record)
    }

    /// Inserts into a free slot of one of the two buckets, which is locked. Two flushes, two fences; one of each if the
    /// record lies beside the metadata word.
    #[inline(always)]
    fn insert_at(&mut self, target: usize, slot: usize, hash: u64, record: PreparedRecord) {
        let storage = &self.core.storage;
        let bucket = self.buckets[target];
        self.core.write_new(bucket, slot, record);
        match target {
            0 => self.home.begin_change(),
            _ => {
                self.buckets[0].note_spill(storage);
                self.lock_probing().begin_change();
            }
        }
        bucket.set_fingerprint(storage, slot, hash);
        bucket.publish(storage, bucket.meta(storage).with(slot, target == 1));
        // P2, commit point: from here on the record survives a crash.
        storage.fence();
    }

    /// Inserts the record into the first stash bucket with room. As many flushes and fences as [`Locked::insert_at`].
    #[cold]
    fn insert_into_stash(&mut self, hash: u64, record: PreparedRecord) -> bool {
        let core = self.core;
        for (number, bucket) in core.stash(self.segment).iter().enumerate() {
            if self.insert_overflow(bucket, Some(number), hash, record) {
                core.counts.stash_inserts.add(1);
                return true;
            }
        }
        false
    }

    #[cold]
    fn insert_into_chain(&mut self, hash: u64, record: PreparedRecord) -> Result<bool> {
        let core = self.core;
        for block in core.chain(self.segment.id) {
            if self.insert_overflow(&block?.1.bucket, None, hash, record) {
                core.counts.chain_inserts.add(1);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn insert_overflow(
        &mut self,
        bucket: &Bucket,
        number: Option<usize>,
        hash: u64,
        record: PreparedRecord,
    ) -> bool {
        let storage = &self.core.storage;
        let mask = self.core.geometry.slot_mask();
        if bucket.looks_full(storage, mask) {
            return false;
        }
        let guard = bucket.lock(storage);
        let meta = bucket.meta(storage);
        let Some(slot) = Bucket::free_slot(meta.allocated(), mask) else { return false };
        self.core.write_new(bucket, slot, record);
        // The changing bits are set before the record becomes visible: a scan checks only the versions of normal
        // buckets, and must not return a record that is not durable or not yet in the overflow metadata.
        self.begin_both();
        guard.begin_change();
        bucket.set_fingerprint(storage, slot, hash);
        bucket.publish(storage, meta.with(slot, false));
        // P2, commit point, as in `insert_at`.
        storage.fence();
        stash::note(storage, self.buckets, hash, number);
        true
    }

    /// Displaces records to the next bucket, or to the previous one, so that a slot of one of the two buckets becomes
    /// free, and inserts the new record there. Three flushes and fences per displaced record, and
    /// those of [`Locked::insert_at`] for the new one.
    ///
    /// Every record moves to the other of its two buckets. A record whose home is the probing bucket moves to the
    /// bucket after it. A record in the home bucket whose own home is the previous bucket moves back to that bucket.
    /// The paper displaces one record; displacing a few more fills segments further.
    #[cold]
    fn displace(&mut self, hash: u64, record: PreparedRecord, steps: usize) -> bool {
        self.displace_from(1, hash, record, steps) || self.displace_from(0, hash, record, steps)
    }

    fn displace_from(
        &mut self,
        from: usize,
        hash: u64,
        record: PreparedRecord,
        steps: usize,
    ) -> bool {
        let (core, geometry) = (self.core, self.core.geometry);
        let home = geometry.home(hash);
        let mut number = if from == 1 { geometry.next(home) } else { home };
        let mut path = vec![number];
        let mut guards = Vec::new();
        loop {
            if path.len() > steps
                || movable(&core.storage, &self.segment.buckets[number], from == 1, 0).is_none()
            {
                return false;
            }
            number = if from == 1 { geometry.next(number) } else { geometry.previous(number) };
            let bucket = &self.segment.buckets[number];
            // Algorithm 1 omits these locks. The locks are only tried: waiting for them out of order could deadlock. (A
            // failed try also ends paths that return to the buckets of this insert.)
            let Some(guard) = bucket.try_lock(&core.storage) else { return false };
            guards.push(guard);
            path.push(number);
            if Bucket::free_slot(bucket.meta(&core.storage).allocated(), geometry.slot_mask())
                .is_some()
            {
                break;
            }
        }
        for step in (1..path.len()).rev() {
            let [source, target] =
                [path[step - 1], path[step]].map(|number| &self.segment.buckets[number]);
            let leaving = match (step, from) {
                (1, 0) => &self.home,
                (1, _) => self.lock_probing(),
                _ => &guards[step - 2],
            };
            if !core.displace_one((source, leaving), (target, &guards[step - 1]), from == 1) {
                return false;
            }
        }
        drop(guards);
        core.counts.displacements.add(1);
        let taken = self.buckets[from].meta(&core.storage).allocated();
        let Some(slot) = Bucket::free_slot(taken, geometry.slot_mask()) else { return false };
        self.insert_at(from, slot, hash, record);
        true
    }
}

/// Returns a slot, not in `except`, whose record may move to the next bucket (`onwards`) or back to the previous one.
pub(super) fn movable(
    storage: &impl Medium,
    bucket: &Bucket,
    onwards: bool,
    except: u32,
) -> Option<usize> {
    let meta = bucket.meta(storage);
    let movable = if onwards {
        meta.allocated() & !meta.members()
    } else {
        meta.allocated() & meta.members()
    };
    Bucket::slots_of(movable & !except).next()
}

impl<T: Kinds> Core<T> {
    /// Returns the slot for a new record if its home bucket takes it, whatever is in the probing bucket. `taken` is the
    /// home bucket's allocation bitmap.
    #[inline]
    pub(super) fn choose_home(&self, taken: u32) -> Option<usize> {
        Bucket::free_slot(taken, self.own_slots)
    }

    /// Selects the bucket and the slot for a new record, given the allocation bitmaps of a key's two buckets.
    #[inline]
    pub(super) fn choose(&self, metas: [u32; 2]) -> Option<(usize, usize)> {
        if let Some(slot) = self.choose_home(metas[0]) {
            return Some((0, slot));
        }
        let mask = self.geometry.slot_mask();
        if T::Ablation::PARTS.balancing {
            return balance(metas, mask);
        }
        // Without balancing, all slots of the home bucket are its own.
        let free = T::Ablation::PARTS.probing.then(|| Bucket::free_slot(metas[1], mask));
        free.flatten().map(|slot| (1, slot))
    }

    /// Writes a new record to a free slot and makes it durable, unless the metadata word will do so.
    #[inline]
    fn write_new(&self, bucket: &Bucket, slot: usize, record: PreparedRecord) {
        let storage = &self.storage;
        if Bucket::is_beside_meta(slot) && self.records.blobs().is_none() {
            bucket.store_record(storage, slot, record.key, record.value);
        } else {
            bucket.write_record(storage, slot, record.key, record.value);
            // P1: the record and its blobs are durable before any durable word refers to them.
            storage.fence();
        }
    }

    fn displace_one(
        &self,
        (source, leaving): (&Bucket, &Guard<'_, T::Medium>),
        (target, entering): (&Bucket, &Guard<'_, T::Medium>),
        onwards: bool,
    ) -> bool {
        let storage = &self.storage;
        let room = target.meta(storage);
        let Some(slot) = movable(storage, source, onwards, 0) else { return false };
        let Some(free) = Bucket::free_slot(room.allocated(), self.geometry.slot_mask()) else {
            return false;
        };
        let (key, value) = source.record(storage, slot);
        target.write_record(storage, free, key, value);
        // P3: the copy is durable before the target's metadata word refers to it.
        storage.fence();
        if onwards {
            source.note_spill(storage);
        }
        entering.begin_change();
        copy_fingerprint(storage, source, slot, target, free);
        target.publish(storage, room.with(free, onwards));
        // P4: the record is in both buckets; a crash here leaves a duplicate, which recovery removes.
        storage.fence();
        leaving.begin_change();
        source.publish(storage, source.meta(storage).without(1 << slot));
        // P5: the slot is durably free before it is used again.
        storage.fence();
        if !onwards {
            target.forget_spill(storage, source);
        }
        true
    }
}

pub(super) fn copy_fingerprint(
    storage: &impl Medium,
    source: &Bucket,
    slot: usize,
    target: &Bucket,
    to: usize,
) {
    target.set_fingerprint(storage, to, u64::from(source.fingerprint_at(storage, slot)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_side_by_side() {
        let mut words = [0x1234_5678_9ABC_DEF0_u64; 2];
        for _ in 0..1000 {
            words = [words[1], words[0].wrapping_mul(0xD129_0D3B_0B4B_1F35).rotate_left(23)];
            let pair = words.map(|word| word as u32 & 0x3FFF);
            assert_eq!(counts(pair), pair.map(u32::count_ones));
        }
        assert_eq!(counts([0, 0x3FFF]), [0, 14]);
    }
}
