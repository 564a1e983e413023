//! Recovery (§6): one pass over all slots makes the DRAM anew, on several threads; then an interrupted step is
//! finished.
//!
//! What it stores on the medium only repeats what may have been done, so that crashes inside it change nothing.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::core::Core;
use super::layout::{EMPTY_KEY, Phase, SIDE_KEY, Shape, Slot, fingerprint};
use crate::Result;
use crate::key::{Key, Value};
use crate::pm::{Medium, Region};

/// Buckets that a thread takes at a time. Smaller tables are recovered on the calling thread.
const BUCKETS_AT_A_TIME: u64 = 1024;

/// The fingerprint of a slot whose key cannot be read: taken, and found by nobody but `check`.
pub(super) const UNREADABLE: u8 = 1;

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// Makes the table usable; tells how many unfinished steps there were.
    pub(super) fn recover(&self, threads: usize) -> Result<u64> {
        let shape = self.shape();
        if shape.is(Phase::Clearing) {
            self.wipe(shape, |_, _| {})?;
            self.set_shape(shape.then(shape.depth(), Phase::Stable))?;
            return Ok(1);
        }
        self.for_all_buckets(1 << shape.extent(), threads, |bucket| self.adopt_buckets(bucket))?;
        self.adopt_overflow()?;
        self.length.add(0, i64::from(self.root()?.side.key(&self.pm) == SIDE_KEY));
        match shape.phase() {
            Phase::Stable | Phase::Clearing => return Ok(0),
            Phase::Halving => self.finish_halving(shape)?,
            Phase::Doubling => {
                self.resume_doubling(shape);
                self.for_all_buckets(shape.buckets() / 2, threads, |bucket| {
                    self.move_both(shape, bucket).map(|()| 0)
                })?;
            }
        }
        Ok(1)
    }

    /// Calls `visit` with every bucket and counts the records that it tells of.
    fn for_all_buckets(
        &self,
        buckets: u64,
        threads: usize,
        visit: impl Fn(u64) -> Result<i64> + Sync,
    ) -> Result<()> {
        let next = AtomicU64::new(0);
        let work = || -> Result<()> {
            let mut records = 0;
            loop {
                let from = next.fetch_add(BUCKETS_AT_A_TIME, Relaxed);
                if from >= buckets {
                    self.length.add(0, records);
                    return Ok(());
                }
                for bucket in from..(from + BUCKETS_AT_A_TIME).min(buckets) {
                    records += visit(bucket)?;
                }
            }
        };
        let helpers = threads.min((buckets / BUCKETS_AT_A_TIME) as usize).saturating_sub(1);
        if helpers == 0 {
            return work();
        }
        std::thread::scope(|scope| {
            let helpers: Vec<_> = (0..helpers).map(|_| scope.spawn(work)).collect();
            let own = work();
            helpers.into_iter().fold(own, |result, helper| match helper.join() {
                Ok(done) => result.and(done),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    /// Gives the records of one bucket of each yard their fingerprints; tells how many there are.
    fn adopt_buckets(&self, bucket: u64) -> Result<i64> {
        let [front, back] = self.yards.bucket_bytes();
        let (line, in_front) = self.bytes_for(&self.front, bucket * front, self.yards.front)?;
        self.front_line(bucket).adopt(line);
        let (words, in_back) = self.bytes_for(&self.back, bucket * back, self.yards.back)?;
        self.back_word(bucket).store(words[0]);
        Ok(in_front + in_back)
    }

    /// The fingerprints for the slots of a bucket, and how many records are known.
    #[inline]
    fn bytes_for(&self, region: &Region, offset: u64, slots: u32) -> Result<([u64; 8], i64)> {
        let slots: &[Slot] = region
            .slice_at(offset, slots as usize)
            .ok_or_else(|| self.corrupt(region, offset, "the file ends before the bucket"))?;
        let (mut words, mut records) = ([0; 8], 0);
        for (number, slot) in slots.iter().enumerate() {
            if let Some((byte, known)) = self.byte_for(slot) {
                words[number / 8] |= u64::from(byte) << (number % 8 * 8);
                records += known;
            }
        }
        Ok((words, records))
    }

    /// The fingerprint for a slot, and 1 if its record is known; `None` when it is empty.
    #[inline]
    fn byte_for(&self, slot: &Slot) -> Option<(u8, i64)> {
        let key = slot.key(&self.pm);
        if key == EMPTY_KEY {
            return None;
        }
        match self.records.hash_of(&self.pm, key) {
            Ok(hash) => Some((fingerprint(hash), 1)),
            Err(_) => Some((UNREADABLE, 0)),
        }
    }

    fn adopt_overflow(&self) -> Result<()> {
        let mut records = 0;
        for number in (0..self.overflow.slots()).rev() {
            let Some(slot) = self.overflow.slot(number) else { continue };
            let key = slot.key(&self.pm);
            if key == EMPTY_KEY {
                self.overflow.give_up(number);
            } else if let Ok(hash) = self.records.hash_of(&self.pm, key) {
                self.overflow.link(number, hash);
                records += 1;
            }
        }
        self.length.add(0, records);
        Ok(())
    }

    /// Empties every slot, showing the words of each record to `gone`; then forgets the DRAM. While nobody writes,
    /// after the shape says that the table is empty.
    pub(super) fn wipe(&self, shape: Shape, mut gone: impl FnMut(u64, u64)) -> Result<()> {
        let pm = &self.pm;
        let [front, back] = self.yards.bucket_bytes();
        let ranges: [(&Region, u64); 3] = [
            (&self.front, shape.buckets() * front / size_of::<Slot>() as u64),
            (&self.back, shape.buckets() * back / size_of::<Slot>() as u64),
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
        // P8: no slot brings a record back once the shape is stable.
        pm.fence();
        for bucket in 0..shape.buckets() {
            self.front_line(bucket).forget();
            self.back_word(bucket).store(0);
        }
        self.overflow.forget();
        Ok(())
    }

    fn wipe_slot(&self, slot: &Slot, gone: &mut impl FnMut(u64, u64)) {
        let key = slot.key(&self.pm);
        if key != EMPTY_KEY {
            gone(key, slot.value(&self.pm));
            slot.empty(&self.pm);
            self.pm.flush_object(slot);
        }
    }
}
