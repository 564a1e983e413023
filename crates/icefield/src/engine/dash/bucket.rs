//! Operations on one bucket: search by fingerprint, writing and removal of records (§4.1, §4.2).

use std::mem::offset_of;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::layout::{Bucket, Meta, SLOTS, Slot, fingerprint};
use crate::base::group::{Isa, Native};
use crate::base::pipeline::prefetch_write;
use crate::base::reclaim::PROTECTED;
use crate::base::version_lock::{self, WriteGuard};
use crate::storage::lock::PmLock;
use crate::storage::{Cell64, LINE_BYTES, Medium};

pub(super) type Guard<'a, M> = WriteGuard<PmLock<'a, M>>;

impl Bucket {
    #[inline]
    pub(super) fn version_lock<'a, M: Medium>(&'a self, storage: &'a M) -> PmLock<'a, M> {
        PmLock::new(storage, &self.lock)
    }

    /// Prefetches all four lines of the bucket for writing. The medium reads them as one block.
    #[inline]
    pub(super) fn fetch_for_write(&self) {
        prefetch_write(self);
        for slot in [2, 6, 10] {
            prefetch_write(&raw const self.slots[slot]);
        }
    }

    #[inline]
    pub(super) fn lock<'a, M: Medium>(&'a self, storage: &'a M) -> Guard<'a, M> {
        version_lock::lock(self.version_lock(storage))
    }

    #[inline]
    pub(super) fn try_lock<'a, M: Medium>(&'a self, storage: &'a M) -> Option<Guard<'a, M>> {
        version_lock::try_lock(self.version_lock(storage))
    }

    #[inline]
    pub(super) fn meta(&self, storage: &impl Medium) -> Meta {
        // Acquire (E2): pairs with the Release in `publish`. A reader that sees a slot's bit, and follows the reference
        // in the slot before it validates, must see the reference that belongs to the bit. The slot's previous
        // reference may lead to a blob that was freed before the reader was pinned.
        Meta(self.meta.load(storage, Acquire))
    }

    /// Returns a bit for each slot that holds a record with the fingerprint of `hash`.
    #[inline]
    pub(super) fn candidates(&self, storage: &impl Medium, hash: u64) -> u32 {
        // Relaxed: racy reads of a seqlock. A wrong fingerprint costs one slot check, or the version check detects it.
        let words = [
            self.fingerprints[0].load(storage, Relaxed),
            self.fingerprints[1].load(storage, Relaxed),
        ];
        Native::default().match16(words, fingerprint(hash)) & self.meta(storage).allocated()
    }

    /// Returns whether a stash bucket or a chained bucket seems to be full; does not need its lock. The caller skips a
    /// full bucket and reads any other bucket again under its lock.
    ///
    /// The metadata word is read through `read_unvalidated`: another thread may be changing this word for records of
    /// other home buckets. The word only selects the bucket for a new record; no result depends on it.
    pub(super) fn looks_full(&self, storage: &impl Medium, slot_mask: u32) -> bool {
        let taken = storage.read_unvalidated(|| self.meta(storage).allocated());
        Self::free_slot(taken, slot_mask).is_none()
    }

    /// Returns the first slot that is not in `taken`.
    #[inline]
    pub(super) fn free_slot(taken: u32, slot_mask: u32) -> Option<usize> {
        let free = !taken & slot_mask;
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    /// Returns a mask of the slots in the line of the metadata word. A record of words in one of them needs no flush and
    /// no fence for itself: stores to one line reach the medium in order, so it is durable when the metadata word is.
    pub(super) const fn slots_beside_meta() -> u32 {
        (1 << ((LINE_BYTES - offset_of!(Bucket, slots)) / size_of::<Slot>())) - 1
    }

    #[inline]
    pub(super) fn is_beside_meta(slot: usize) -> bool {
        Self::slots_beside_meta() >> slot & 1 == 1
    }

    /// Stores and flushes a record in a slot that is not allocated. Readers do not see it until [`Bucket::publish`].
    #[inline]
    pub(super) fn write_record(&self, storage: &impl Medium, slot: usize, key: u64, value: u64) {
        self.store_record(storage, slot, key, value);
        storage.flush_object(&self.slots[slot]);
    }

    /// Does the same as [`Bucket::write_record`] without the flush.
    #[inline]
    pub(super) fn store_record(&self, storage: &impl Medium, slot: usize, key: u64, value: u64) {
        let place = &self.slots[slot];
        // Release (E3): a reader that still expects the slot's former record finds only references to complete blobs.
        place.key.store(storage, key, Release);
        place.value.store(storage, value, Release);
    }

    /// Sets a slot's fingerprint. It lies in the line of the metadata word and is stored before that word, so a crash
    /// that keeps the record keeps the fingerprint.
    #[inline]
    pub(super) fn set_fingerprint(&self, storage: &impl Medium, slot: usize, hash: u64) {
        let (word, shift) = (&self.fingerprints[slot / 8], slot % 8 * 8);
        // Relaxed load: only the holder of the lock stores here. Release store (E2): on the medium, it precedes the
        // store of the metadata word, which is in the same line.
        let others = word.load(storage, Relaxed) & !(0xFF << shift);
        word.store(storage, others | u64::from(fingerprint(hash)) << shift, Release);
    }

    pub(super) fn fingerprint_at(&self, storage: &impl Medium, slot: usize) -> u8 {
        (self.fingerprints[slot / 8].load(storage, Relaxed) >> (slot % 8 * 8)) as u8
    }

    /// Stores and flushes the metadata word; the next fence makes this store the commit point. The caller has set the
    /// changing bit.
    #[inline]
    pub(super) fn publish(&self, storage: &impl Medium, meta: Meta) {
        // Release (E2): a thread that sees the word sees the fingerprints and the records.
        self.meta.store(storage, meta.0, Release);
        storage.flush_object(&self.meta);
    }

    /// Returns a mask of the slots in the line of `slot`.
    #[inline]
    pub(super) fn line_of(slot: usize) -> u32 {
        const PER_LINE: usize = LINE_BYTES / size_of::<Slot>();
        /// Number of slots that would fit into the space of the metadata.
        const BEFORE: usize = offset_of!(Bucket, slots) / size_of::<Slot>();
        let line = (slot + BEFORE) / PER_LINE;
        ((1 << PER_LINE) - 1) << (line * PER_LINE) >> BEFORE
    }

    /// Returns a slot's words. The caller holds the lock of the record's home bucket or of this one, or validates the
    /// versions afterwards.
    #[inline]
    pub(super) fn record(&self, storage: &impl Medium, slot: usize) -> (u64, u64) {
        // PROTECTED (E3): pairs with the Release in `store_record`.
        (
            self.slots[slot].key.load(storage, PROTECTED),
            self.slots[slot].value.load(storage, PROTECTED),
        )
    }

    pub(super) fn slots_of(mut mask: u32) -> impl Iterator<Item = usize> {
        std::iter::from_fn(move || {
            (mask != 0).then(|| {
                let slot = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                slot
            })
        })
    }

    #[inline]
    pub(super) fn value(&self, slot: usize) -> &Cell64 {
        &self.slots[slot.min(SLOTS - 1)].value
    }
}
