//! Recovery (§6): one pass over all slots, on several threads, rebuilds the data in DRAM. Then recovery finishes an
//! interrupted step.
//!
//! Recovery's stores to the medium only repeat steps that may already have been done, so recovery can itself be
//! interrupted by a crash and start again. A session that only reads does not finish the step, because that would copy
//! the whole table into private memory; instead, its reads search both places of a record.

use std::array;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::core::Core;
use super::layout::{EMPTY_KEY, Phase, SIDE_KEY, Shape, Slot, fingerprint, fingerprint_of};
use crate::base::group::{Isa, Kernel, dispatch};
use crate::base::parallel::each_range;
use crate::storage::{Medium, Region};
use crate::types::RecordForm;
use crate::{Error, Result};

/// Number of buckets that a thread takes at a time. Tables with fewer buckets are recovered on the calling thread.
const BUCKETS_AT_A_TIME: usize = 1024;

/// The fingerprint of a slot whose key cannot be read. The slot counts as used; scans and `check` report it.
pub(super) const UNREADABLE: u8 = 1;

/// The pass over some buckets, compiled for each instruction set.
struct Adoption<'a, R, M> {
    core: &'a Core<R, M>,
    buckets: Range<u64>,
}

impl<R: RecordForm, M: Medium> Kernel for Adoption<'_, R, M> {
    type Output = Result<i64>;

    #[inline(always)]
    fn run<I: Isa>(self, _: I) -> Result<i64> {
        let (mut records, mut leading) = (0, Vec::new());
        for bucket in self.buckets {
            records += self.core.adopt_buckets(bucket, &mut leading)?;
        }
        self.core.mark_leading(&leading);
        Ok(records)
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Makes the table usable and returns the number of steps that the last session left unfinished: 0 or 1.
    pub(super) fn recover(&self, threads: usize) -> Result<u64> {
        let shape = self.shape();
        if shape.is(Phase::Clearing) {
            if !self.only_reads() {
                self.finish_clearing(shape)?;
            }
            return Ok(1);
        }
        self.for_all_buckets(1 << shape.extent(), threads, |buckets| {
            dispatch(Adoption { core: self, buckets })
        })?;
        self.adopt_overflow()?;
        self.length.add(0, i64::from(self.root()?.side.key(&self.storage) == SIDE_KEY));
        match shape.phase() {
            Phase::Stable | Phase::Clearing => return Ok(0),
            _ if self.only_reads() => self.leave_unfinished(shape)?,
            Phase::Halving => self.finish_halving(shape)?,
            Phase::Doubling => {
                self.resume_doubling(shape);
                self.for_all_buckets(shape.buckets() / 2, threads, |mut buckets| {
                    buckets.try_for_each(|bucket| self.move_both(shape, bucket)).map(|()| 0)
                })?;
            }
        }
        Ok(1)
    }

    /// Returns whether this session only reads: the table is read-only, or its files are mapped privately, so that each
    /// store costs memory that the kernel cannot drop.
    pub(super) fn only_reads(&self) -> bool {
        // `check_writable` alone is not enough: in a forked child of a reader it returns `Forked`.
        self.storage.is_private() || matches!(self.storage.check_writable(), Err(Error::ReadOnly))
    }

    fn finish_clearing(&self, shape: Shape) -> Result<()> {
        self.wipe(shape, |_, _| {})?;
        self.set_shape(shape.then(shape.depth(), Phase::Stable))
    }

    /// Leaves an interrupted doubling or halving unfinished: lookups and scans search both places of a record.
    fn leave_unfinished(&self, shape: Shape) -> Result<()> {
        let mut twice = 0;
        for bucket in 0..shape.buckets() {
            let Some(other) = shape.unfinished(bucket) else { continue };
            for key in self.front_keys(bucket)? {
                twice += u64::from(self.front_keys(other)?.any(|there| there == key));
            }
            for key in self.back_keys(bucket)? {
                twice += u64::from(self.back_keys(other)?.any(|there| there == key));
            }
        }
        // Relaxed: only the caller can access the table.
        self.moves.twice.store(twice, Relaxed);
        self.length.add(0, -(twice as i64));
        if shape.is(Phase::Doubling) {
            self.resume_doubling(shape);
        }
        Ok(())
    }

    fn front_keys(&self, bucket: u64) -> Result<impl Iterator<Item = u64>> {
        self.keys_in(
            self.buckets.front(),
            bucket * self.buckets.yards().bucket_bytes()[0],
            self.buckets.yards().front,
        )
    }

    fn back_keys(&self, bucket: u64) -> Result<impl Iterator<Item = u64>> {
        self.keys_in(
            self.buckets.back(),
            bucket * self.buckets.yards().bucket_bytes()[1],
            self.buckets.yards().back,
        )
    }

    fn keys_in(
        &self,
        region: &Region,
        offset: u64,
        slots: u32,
    ) -> Result<impl Iterator<Item = u64>> {
        let slots: &[Slot] =
            region.get_slice(&self.storage, offset, slots as usize, "the bucket")?;
        Ok(slots.iter().map(|slot| slot.key(&self.storage)).filter(|&key| key != EMPTY_KEY))
    }

    /// Finishes a step in progress, including one that recovery has left unfinished because the session only reads. The
    /// caller holds the structure's mutex.
    pub(super) fn finish_step(&self) -> Result<()> {
        // Relaxed: the caller holds the mutex. Adds the copies that `leave_unfinished` has subtracted, because
        // finishing the step subtracts them again.
        self.length.add(0, self.moves.twice.swap(0, Relaxed) as i64);
        let shape = self.shape();
        match shape.phase() {
            Phase::Stable => Ok(()),
            Phase::Doubling => self.finish_doubling(),
            Phase::Halving => self.finish_halving(shape),
            Phase::Clearing => self.finish_clearing(shape),
        }
    }

    /// Calls `visit` with ranges that together cover all buckets, and adds to the length the numbers of records that
    /// `visit` returns.
    fn for_all_buckets(
        &self,
        buckets: u64,
        threads: usize,
        visit: impl Fn(Range<u64>) -> Result<i64> + Sync,
    ) -> Result<()> {
        let sizes = (BUCKETS_AT_A_TIME, BUCKETS_AT_A_TIME);
        each_range(threads, buckets as usize, sizes, |buckets| {
            let records = visit(buckets.start as u64..buckets.end as u64)?;
            self.length.add(0, records);
            Ok(())
        })
    }

    /// Stores the fingerprints of the records of one bucket of each yard, and returns the number of records. Adds to
    /// `leading` the hashes of the records in the back bucket.
    #[inline(always)]
    fn adopt_buckets(&self, bucket: u64, leading: &mut Vec<u64>) -> Result<i64> {
        let [front, back] = self.buckets.yards().bucket_bytes();
        let (line, in_front) = self.bytes_for(
            self.buckets.front(),
            bucket * front,
            self.buckets.yards().front,
            |_| {},
        )?;
        self.buckets.line(&self.storage, bucket).adopt(line);
        self.buckets.guess_room(&self.storage, bucket);
        let (words, in_back) = self.bytes_for(
            self.buckets.back(),
            bucket * back,
            self.buckets.yards().back,
            |hash| leading.push(hash),
        )?;
        self.buckets.back_word(&self.storage, bucket).store(words[0]);
        Ok(in_front + in_back)
    }

    /// Marks the front buckets of records in the back yard, given their hashes. The marks are in random places, so it
    /// prefetches them.
    fn mark_leading(&self, hashes: &[u64]) {
        const AHEAD: usize = 16;
        let shape = self.shape();
        for (number, &hash) in hashes.iter().enumerate() {
            if let Some(&ahead) = hashes.get(number + AHEAD) {
                self.buckets.fetch_mark(shape.front(ahead));
            }
            self.buckets.lead_behind(shape, hash);
        }
    }

    /// Returns the fingerprints for the slots of a bucket, and the number of readable records. Calls `seen` with the
    /// hash of each such record.
    #[inline(always)]
    fn bytes_for(
        &self,
        region: &Region,
        offset: u64,
        slots: u32,
        seen: impl FnMut(u64),
    ) -> Result<([u64; 8], i64)> {
        let slots: &[Slot] =
            region.get_slice(&self.storage, offset, slots as usize, "the bucket")?;
        if self.records.keys_are_words() {
            Ok(self.bytes_for_words(slots, seen))
        } else {
            Ok(self.bytes_for_references(slots, seen))
        }
    }

    /// Computes [`Core::bytes_for`] if keys are words. It has no branch per slot and two passes: the steps of the first
    /// pass are independent, so the processor overlaps them; the second pass uses vectors.
    #[inline(always)]
    fn bytes_for_words(&self, slots: &[Slot], mut seen: impl FnMut(u64)) -> ([u64; 8], i64) {
        let hash = self.records.hash;
        let (mut ends, mut used) = ([0; 64], [0; 64]);
        for (slot, (end, used)) in slots.iter().zip(ends.iter_mut().zip(&mut used)) {
            let key = slot.key(&self.storage);
            let hash = hash.word(key);
            *end = (hash >> 56) as u8;
            *used = u8::from(key != EMPTY_KEY);
            if key != EMPTY_KEY {
                seen(hash);
            }
        }
        let mut bytes = [0; 64];
        for ((byte, end), used) in bytes.iter_mut().zip(ends).zip(used) {
            *byte = fingerprint_of(end) * used;
        }
        let (words, _) = bytes.as_chunks();
        let words =
            array::from_fn(|word| words.get(word).map_or(0, |word| u64::from_le_bytes(*word)));
        (words, used.into_iter().map(i64::from).sum())
    }

    /// Computes [`Core::bytes_for`] if keys are references.
    fn bytes_for_references(&self, slots: &[Slot], mut seen: impl FnMut(u64)) -> ([u64; 8], i64) {
        let (mut words, mut records) = ([0; 8], 0);
        for (number, slot) in slots.iter().enumerate() {
            let key = slot.key(&self.storage);
            if key == EMPTY_KEY {
                continue;
            }
            let (byte, known) = match self.records.hash_of(&self.storage, key) {
                Ok(hash) => {
                    seen(hash);
                    (fingerprint(hash), 1)
                }
                Err(_) => (UNREADABLE, 0),
            };
            words[number / 8] |= u64::from(byte) << (number % 8 * 8);
            records += known;
        }
        (words, records)
    }

    fn adopt_overflow(&self) -> Result<()> {
        let mut records = 0;
        for number in (0..self.overflow.slots()).rev() {
            let Some(slot) = self.overflow.slot(number) else { continue };
            let key = slot.key(&self.storage);
            if key == EMPTY_KEY {
                self.overflow.free_slot(number);
            } else if let Ok(hash) = self.records.hash_of(&self.storage, key) {
                self.overflow.link(number, hash);
                records += 1;
            }
        }
        self.length.add(0, records);
        Ok(())
    }

    /// Empties every slot, calling `gone` with the words of each record, and resets the data in DRAM. The caller
    /// excludes writers, and the table is already in [`Phase::Clearing`].
    pub(super) fn wipe(&self, shape: Shape, mut gone: impl FnMut(u64, u64)) -> Result<()> {
        let storage = &self.storage;
        let [front, back] = self.buckets.yards().bucket_bytes();
        let ranges: [(&Region, u64); 3] = [
            (self.buckets.front(), shape.buckets() * front / size_of::<Slot>() as u64),
            (self.buckets.back(), shape.buckets() * back / size_of::<Slot>() as u64),
            (self.overflow.region(), self.overflow.slots().into()),
        ];
        for (region, slots) in ranges {
            for number in 0..slots {
                let Some(slot) = region.at::<Slot>(number * size_of::<Slot>() as u64) else {
                    break;
                };
                self.wipe_slot(slot, &mut gone);
            }
        }
        self.wipe_slot(&self.root()?.side, &mut gone);
        // P8: the slots are durably empty before the shape is stable, so no record returns after a crash.
        storage.fence();
        for bucket in 0..shape.buckets() {
            self.buckets.line(&self.storage, bucket).forget();
            self.buckets.guess_room(&self.storage, bucket);
            self.buckets.forget_behind(bucket);
            self.buckets.back_word(&self.storage, bucket).store(0);
        }
        self.overflow.forget();
        Ok(())
    }

    fn wipe_slot(&self, slot: &Slot, gone: &mut impl FnMut(u64, u64)) {
        let key = slot.key(&self.storage);
        if key != EMPTY_KEY {
            gone(key, slot.value(&self.storage));
            slot.empty(&self.storage);
            self.storage.flush_object(slot);
        }
    }
}
