//! The front and the back yard (§3.2, levels 1 and 2): their slots on the medium, and their metadata in DRAM.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use super::fingerprints::{BackWord, FrontLine};
use super::layout::{MAX_DEPTH, SLOT_BYTES, Shape, Slot, Yards};
use crate::base::memory::GrowingArray;
use crate::base::pipeline::prefetch_read;
use crate::base::sync::{GrowingLines, Line};
use crate::storage::{Medium, Region};
use crate::{Error, Result};

/// The buckets of both yards.
pub(super) struct Buckets {
    yards: Yards,
    front: Region,
    back: Region,
    front_lines: GrowingLines,
    back_words: GrowingArray<AtomicU64>,
    /// For each front bucket, its lowest empty slot, as of the last insert or removal there: a hint.
    rooms: GrowingArray<AtomicU8>,
    /// For each front bucket a mark. The upper 8 bits are the last depth plus one at which one of its records was in the
    /// back yard, or 0. The lower 24 bits are a filter of the hashes of all records that have been there at that depth. A
    /// mark of another depth than the present one says that no record of the bucket is there, so a doubling begins
    /// without marks.
    behind: GrowingArray<AtomicU32>,
}

/// Bytes in DRAM for a bucket of each yard.
pub(super) const DRAM_BYTES: u64 =
    (size_of::<Line>() + size_of::<AtomicU64>() + size_of::<AtomicU8>() + size_of::<AtomicU32>())
        as u64;

/// Number of bits of a mark's filter.
const FILTER_BITS: u32 = 24;
const _: () = assert!(MAX_DEPTH + 1 < 1 << (u32::BITS - FILTER_BITS));
const FILTER: u32 = (1 << FILTER_BITS) - 1;

/// Returns the mark of the shape's depth without any record.
#[inline(always)]
fn empty_mark(shape: Shape) -> u32 {
    (shape.depth() + 1) << FILTER_BITS
}

/// Returns the bit of a hash in the filter, computed from other bits than those that select the bucket or the
/// fingerprint.
#[inline(always)]
fn filter_bit(hash: u64) -> u32 {
    1 << (((hash >> 48 & 0xFF) as u32 * FILTER_BITS) >> 8)
}

/// The mark of a front bucket, for one hash and one shape.
#[derive(Clone, Copy)]
pub(super) struct Lead<'a> {
    mark: &'a AtomicU32,
    /// The bits of the filter that belong to other hashes.
    others: u32,
    /// The mark of the shape's depth with all bits of the filter.
    full: u32,
}

impl Lead<'_> {
    /// Returns 0 if a record with the hash may be in the back yard, and another number if not: callers combine it with
    /// other conditions into one comparison.
    #[inline(always)]
    pub(super) fn difference(&self, storage: &impl Medium) -> u32 {
        storage.sim_yield_point();
        // Acquire (E6): pairs with the Release in `lead_behind`. Compares the depth and the bit of the hash at once.
        (self.mark.load(Acquire) | self.others) ^ self.full
    }
}

impl Buckets {
    /// Creates the yards over two regions, and reserves addresses in DRAM for `most` buckets.
    pub(super) fn new(yards: Yards, [front, back]: [Region; 2], most: usize) -> io::Result<Self> {
        Ok(Self {
            yards,
            front,
            back,
            front_lines: GrowingLines::new(most)?,
            back_words: GrowingArray::new(most)?,
            rooms: GrowingArray::sparse(most)?,
            behind: GrowingArray::sparse(most)?,
        })
    }

    /// Extends the arrays in DRAM to `buckets` buckets.
    pub(super) fn reach(&self, buckets: usize) -> io::Result<()> {
        self.front_lines.extend(buckets)?;
        self.back_words.extend(buckets)?;
        self.rooms.extend(buckets)?;
        self.behind.extend(buckets)
    }

    #[inline(always)]
    pub(super) fn yards(&self) -> Yards {
        self.yards
    }

    pub(super) fn front(&self) -> &Region {
        &self.front
    }

    pub(super) fn back(&self) -> &Region {
        &self.back
    }

    /// Returns both regions, each with the length that `shape` requires.
    pub(super) fn bytes(&self, shape: Shape) -> [(&Region, u64); 2] {
        let [front, back] = self.yards.bucket_bytes();
        [(&self.front, front << shape.extent()), (&self.back, back << shape.extent())]
    }

    /// Returns a mask of the slots that a front bucket has: the lowest bits, one for each slot.
    #[inline(always)]
    pub(super) fn front_mask(&self) -> u64 {
        u64::MAX >> (64 - self.yards.front)
    }

    #[inline(always)]
    pub(super) fn line(&self, storage: &impl Medium, bucket: u64) -> FrontLine<'_> {
        storage.sim_yield_point();
        FrontLine(&self.front_lines[bucket as usize])
    }

    #[inline(always)]
    pub(super) fn back_word(&self, storage: &impl Medium, bucket: u64) -> BackWord<'_> {
        storage.sim_yield_point();
        BackWord(&self.back_words[bucket as usize])
    }

    /// Returns whether a record with this hash may be in the back yard.
    #[inline(always)]
    pub(super) fn leads_behind(&self, storage: &impl Medium, shape: Shape, hash: u64) -> bool {
        self.lead(shape, hash).difference(storage) == 0
    }

    /// Returns the mark of a hash's front bucket.
    #[inline(always)]
    pub(super) fn lead(&self, shape: Shape, hash: u64) -> Lead<'_> {
        Lead {
            mark: &self.behind[shape.front(hash) as usize],
            others: FILTER & !filter_bit(hash),
            full: empty_mark(shape) | FILTER,
        }
    }

    /// Marks the front bucket of a record in the back yard. Called before reads can find the record there, or before
    /// `shape` is stable.
    #[inline]
    pub(super) fn lead_behind(&self, shape: Shape, hash: u64) {
        let (mark, empty) = (&self.behind[shape.front(hash) as usize], empty_mark(shape));
        // Relaxed: the thread that stored the mark did so for all reads of this shape.
        let mut known = mark.load(Relaxed);
        loop {
            let before = if known & !FILTER == empty { known } else { empty };
            let all = before | filter_bit(hash);
            if all == known {
                return;
            }
            // Release (E6): a read that sees a mark of a later depth sees that depth, and repeats its search. An
            // exchange, because a doubling marks buckets without their locks.
            match mark.compare_exchange_weak(known, all, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => known = now,
            }
        }
    }

    /// Removes the marks that an earlier step left for the depth of `shape`, the next shape.
    pub(super) fn forget_marks(&self, shape: Shape) {
        for mark in &self.behind[..shape.buckets() as usize] {
            // Relaxed: no thread uses marks of this depth before the store of the shape, which publishes this one (E4).
            let known = mark.load(Relaxed);
            if known & !FILTER == empty_mark(shape) {
                // An exchange, because a writer may be storing a mark of the present depth. Release (E6): as in
                // `forget_behind`, for a read that has had the shape of this depth since before the last step.
                let _ = mark.compare_exchange(known, 0, Release, Relaxed);
            }
        }
    }

    /// Removes the mark of a front bucket, while writers are excluded and reads find nothing.
    pub(super) fn forget_behind(&self, bucket: u64) {
        // Release (E6): a read that sees no mark sees that the shape has changed, and repeats its search.
        self.behind[bucket as usize].store(0, Release);
    }

    /// Prefetches for [`Buckets::lead_behind`].
    #[inline(always)]
    pub(super) fn fetch_mark(&self, bucket: u64) {
        prefetch_read(&raw const self.behind[bucket as usize]);
    }

    /// Stores the lowest slot in the mask `empty` as the hint that [`Buckets::room_at`] returns for a front bucket.
    #[inline(always)]
    pub(super) fn guess(&self, bucket: u64, empty: u64) {
        // Relaxed: a hint only.
        self.rooms[bucket as usize].store(empty.trailing_zeros() as u8, Relaxed);
    }

    /// Calls [`Buckets::guess`] with the slots that are empty according to the fingerprints.
    #[inline(always)]
    pub(super) fn guess_room(&self, storage: &impl Medium, bucket: u64) {
        self.guess(bucket, self.line(storage, bucket).empty(self.front_mask()));
    }

    /// Lowers the hint to `slot`, which has become empty, unless the hint is lower. Does not search the fingerprints:
    /// that would wait for the store just made.
    #[inline]
    pub(super) fn guess_emptied(&self, bucket: u64, slot: u32) {
        let room = &self.rooms[bucket as usize];
        room.store(room.load(Relaxed).min(slot as u8), Relaxed);
    }

    /// Returns the slot of a front bucket that an insert will probably take, or `None` if the insert will probably go
    /// to the back yard. It reads one byte per bucket, which is cached more often than the fingerprints.
    #[inline(always)]
    pub(super) fn room_at(&self, storage: &impl Medium, bucket: u64) -> Option<&Slot> {
        storage.sim_yield_point();
        // Relaxed: a hint.
        let slot = u32::from(self.rooms[bucket as usize].load(Relaxed));
        if slot < self.yards.front { self.front_at(bucket, slot) } else { None }
    }

    /// Returns a slot of the front yard, or `None` outside the file.
    #[inline(always)]
    pub(super) fn front_at(&self, bucket: u64, slot: u32) -> Option<&Slot> {
        self.front.at((bucket * u64::from(self.yards.front) + u64::from(slot)) * SLOT_BYTES)
    }

    /// Returns all slots of a front bucket, or `None` outside the file.
    #[inline(always)]
    pub(super) fn front_bucket(&self, bucket: u64) -> Option<&[Slot]> {
        let slots = self.yards.front;
        self.front.slice_at(bucket * u64::from(slots) * SLOT_BYTES, slots as usize)
    }

    /// Returns a slot of the back yard, or `None` outside the file.
    #[inline(always)]
    pub(super) fn back_at(&self, bucket: u64, slot: u32) -> Option<&Slot> {
        self.back.at((bucket * u64::from(self.yards.back) + u64::from(slot)) * SLOT_BYTES)
    }

    /// Returns a slot of the front yard, or an error outside the file.
    #[inline(always)]
    pub(super) fn front_slot(
        &self,
        storage: &impl Medium,
        bucket: u64,
        slot: u32,
    ) -> Result<&Slot> {
        let found = self.front_at(bucket, slot);
        found.ok_or_else(|| no_slot(storage, &self.front, bucket, slot))
    }

    /// Returns a slot of the back yard, or an error outside the file.
    #[inline(always)]
    pub(super) fn back_slot(&self, storage: &impl Medium, bucket: u64, slot: u32) -> Result<&Slot> {
        let found = self.back_at(bucket, slot);
        found.ok_or_else(|| no_slot(storage, &self.back, bucket, slot))
    }
}

/// Returns the error for a slot beyond the end of its file.
#[cold]
pub(super) fn no_slot(storage: &impl Medium, region: &Region, bucket: u64, slot: u32) -> Error {
    let detail = format!("the file ends before slot {slot} of bucket {bucket}");
    region.fault(storage, region.len(), detail)
}
