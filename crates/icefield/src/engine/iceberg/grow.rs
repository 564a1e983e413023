//! Doubling in place (§4, §5.3): regions keep their addresses, so the yards grow in place. About half of the records of
//! each bucket move to the bucket whose number is higher by the former number of buckets.
//!
//! The step itself is one durable store, while the gate is closed. Afterwards each bucket of the lower half is UNMOVED,
//! IN_FLIGHT, or MOVED. Before a write locks anything, it makes sure that the buckets of its key are MOVED, and it
//! moves one more bucket of each yard. The two yards are moved independently. A record keeps its slot number: a target
//! bucket is not used before its source is MOVED, so the slot is free, and recovery knows the place of a possible
//! duplicate.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::buckets::DRAM_BYTES;
use super::core::Core;
use super::fingerprints::used_back;
use super::layout::{EMPTY_KEY, MAX_DEPTH, Phase, SLOT_BYTES, Shape, Slot, fingerprint};
use super::moves::{IN_FLIGHT, InFlight, MOVED, UNMOVED, Yard};
use crate::storage::{Medium, refuse_child};
use crate::types::RecordForm;
use crate::{Error, Result};

/// Of the inserts that find their front bucket full, one in 32 checks the load. In a table of fewer than 32 buckets, a
/// larger part of them does.
const LOAD_CHECK_ONE_IN: u64 = 32;

/// A record that leaves its bucket.
struct Leaving<'a> {
    number: u32,
    fingerprint: u8,
    source: &'a Slot,
    target: &'a Slot,
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Returns the number of slots in both yards.
    fn slots(&self) -> u64 {
        self.shape().buckets() * self.buckets.yards().slots()
    }

    /// Returns the number of records at which the table doubles.
    pub(super) fn capacity(&self) -> u64 {
        (u128::from(self.slots()) * u128::from(self.max_load) / 1000) as u64
    }

    fn is_due(&self) -> bool {
        self.length.estimate(0) > self.capacity()
    }

    /// Doubles the table if the load is over its threshold. An insert whose front bucket was full calls this at its
    /// end. A failure to grow is ignored here: it matters only to an insert that finds no slot.
    #[cold]
    pub(super) fn grow_if_due(&self, hash: u64) {
        if !self.is_due_by(hash) {
            return;
        }
        // If another thread holds the mutex, it is probably doubling the table already.
        if let Some(_structure) = self.exclusion.try_lock()
            && self.is_due()
        {
            // After a failure the records keep their slots, and a later insert tries again.
            let _ = self.double();
        }
    }

    /// Returns whether the insert of this hash is one of those that check the load, and the load requires a doubling.
    #[inline]
    pub(super) fn is_due_by(&self, hash: u64) -> bool {
        let one_in = self.shape().buckets().min(LOAD_CHECK_ONE_IN);
        hash >> 16 & (one_in - 1) == 0 && self.is_due()
    }

    /// Doubles the table for an insert that found no slot. Returns `false` if that failed or would not help, because
    /// few slots are used (many equal hashes).
    #[cold]
    pub(super) fn grow_in_need(&self) -> bool {
        let _structure = self.exclusion.lock(&self.storage);
        self.length.estimate(0) >= self.capacity() / 2 && self.double().is_ok()
    }

    /// Doubles until there is room for `records` records, and moves all buckets.
    pub(super) fn make_room_for(&self, records: u64) -> Result<()> {
        self.storage.check_writable()?;
        let _structure = self.exclusion.lock(&self.storage);
        if self.capacity() < records {
            self.check_room(self.depth_for(records), self.shape().extent())?;
        }
        while self.capacity() < records {
            self.double()?;
        }
        self.finish_doubling()
    }

    /// Returns the depth at which the table holds `records` records, or more than [`MAX_DEPTH`] if no table is large
    /// enough.
    pub(super) fn depth_for(&self, records: u64) -> u32 {
        let taken = |depth: u32| {
            u128::from(self.buckets.yards().slots() << depth) * u128::from(self.max_load) / 1000
        };
        (0..=MAX_DEPTH).find(|&depth| taken(depth) >= records.into()).unwrap_or(MAX_DEPTH + 1)
    }

    /// Fails if there is no room to grow from depth `present` to depth `depth`, before any space is taken.
    pub(super) fn check_room(&self, depth: u32, present: u32) -> Result<()> {
        let bucket_bytes = self.buckets.yards().slots() * SLOT_BYTES;
        if depth > self.max_depth.min(MAX_DEPTH) {
            let path = self.buckets.front().path(&self.storage);
            return Err(Error::NoSpace { path, needed_bytes: bucket_bytes << depth.min(32) });
        }
        let buckets = (1_u64 << depth).saturating_sub(1 << present);
        // One byte for the progress of doublings.
        self.storage.check_room(buckets * bucket_bytes, buckets * (DRAM_BYTES + 1))
    }

    /// Starts a doubling; the caller holds the structure's mutex.
    fn double(&self) -> Result<()> {
        self.finish_doubling()?;
        let shape = self.shape();
        let new = shape.then(shape.depth() + 1, Phase::Doubling);
        if new.depth() > self.max_depth.min(MAX_DEPTH) {
            return Err(Error::NoSpace {
                path: self.buckets.front().path(&self.storage),
                needed_bytes: new.buckets() * self.buckets.yards().slots() * SLOT_BYTES,
            });
        }
        // New slots are zero, which means empty.
        self.reserve_yards(new)?;
        // Waits for writers that entered during the last doubling: they would mistake the new states for those of that
        // doubling.
        drop(self.exclusion.close(&self.storage)?);
        self.moves.start(shape.buckets());
        self.buckets.forget_marks(new);
        let _closed = self.exclusion.close(&self.storage)?;
        // P3, commit point: from here on the doubling is rolled forward.
        self.set_shape(new)?;
        self.counts.doublings.add(1);
        Ok(())
    }

    /// Extends the arrays in DRAM to the length that a shape needs.
    pub(super) fn reach(&self, shape: Shape) -> Result<()> {
        let buckets = 1 << shape.extent();
        let reached = self.buckets.reach(buckets).and_then(|()| self.moves.reach(buckets));
        reached.map_err(|source| Error::io(self.storage.path(), source))
    }

    /// Extends the yards to the length that a shape needs.
    pub(super) fn reserve_yards(&self, shape: Shape) -> Result<()> {
        self.reach(shape)?;
        for (region, bytes) in self.buckets.bytes(shape) {
            self.storage.grow(region, bytes)?;
            // A halving may have returned this space to the file system.
            self.storage.reserve(region, 0, bytes)?;
        }
        Ok(())
    }

    /// Completes a doubling; the caller holds the structure's mutex.
    pub(super) fn finish_doubling(&self) -> Result<()> {
        let shape = self.shape();
        if !shape.is(Phase::Doubling) {
            return Ok(());
        }
        for bucket in 0..shape.buckets() / 2 {
            self.move_both(shape, bucket)?;
        }
        let mut rounds = 0;
        // The thread that moved the last bucket is about to store the shape.
        while self.shape() == shape {
            self.storage.wait(rounds);
            rounds = rounds.saturating_add(1);
        }
        Ok(())
    }

    /// Resumes a doubling of an earlier session.
    pub(super) fn resume_doubling(&self, shape: Shape) {
        self.moves.start(shape.buckets() / 2);
    }

    /// Calls [`Core::move_bucket`] for `bucket` in both yards.
    pub(super) fn move_both(&self, shape: Shape, bucket: u64) -> Result<()> {
        self.move_bucket(shape, Yard::Front, bucket)?;
        self.move_bucket(shape, Yard::Back, bucket)
    }

    /// Makes sure that a key's buckets have been moved, and moves one more of each yard. The caller is inside the gate.
    #[cold]
    pub(super) fn make_way(&self, shape: Shape, hash: u64) -> Result<()> {
        let half = shape.buckets() / 2;
        self.move_bucket(shape, Yard::Front, shape.front(hash) & (half - 1))?;
        for bucket in shape.back(hash) {
            self.move_bucket(shape, Yard::Back, bucket & (half - 1))?;
        }
        if self.moves.next.load(Relaxed) < half {
            let next = self.moves.next.fetch_add(1, Relaxed);
            if next < half {
                self.move_both(shape, next)?;
            }
        }
        Ok(())
    }

    /// Moves the records that belong elsewhere out of one bucket, or waits until another thread has done it.
    fn move_bucket(&self, shape: Shape, yard: Yard, bucket: u64) -> Result<()> {
        if let Err(Error::Forked) = self.storage.check_writable() {
            // Scans also call this. In a forked child, the files belong to the parent, which has its own move states.
            return Err(Error::Forked);
        }
        let state = &self.moves.states[yard as usize][bucket as usize];
        let mut rounds = 0;
        // AcqRel: only one thread moves the bucket; Acquire (E5) pairs with the Release in `moved`.
        while let Err(now) = state.compare_exchange(UNMOVED, IN_FLIGHT, AcqRel, Acquire) {
            if now == MOVED {
                return Ok(());
            }
            self.storage.wait(rounds);
            rounds = rounds.saturating_add(1);
        }
        let in_flight = InFlight(state);
        // A child process cannot continue the parent's move.
        refuse_child(&self.storage)?;
        match yard {
            Yard::Front => self.move_front(shape, bucket)?,
            Yard::Back => self.move_back(shape, bucket)?,
        }
        in_flight.moved();
        // AcqRel: the thread that moves the last bucket sees what all others have done.
        if self.moves.left.fetch_sub(1, AcqRel) == 1 {
            // P6: the doubling is finished.
            self.set_shape(shape.then(shape.depth(), Phase::Stable))?;
        }
        Ok(())
    }

    fn move_front(&self, shape: Shape, bucket: u64) -> Result<()> {
        let half = shape.buckets() / 2;
        let line = self.buckets.line(&self.storage, bucket);
        let mut leaving = Vec::new();
        let mut used = self.buckets.front_mask() & !line.empty(self.buckets.front_mask());
        while used != 0 {
            let number = used.trailing_zeros();
            used &= used - 1;
            let (source, target) = (
                self.buckets.front_slot(&self.storage, bucket, number)?,
                self.buckets.front_slot(&self.storage, bucket + half, number)?,
            );
            // A record whose key cannot be read stays in place, and `check` reports it.
            if let Some(hash) = self.hash_in(source)
                && hash & half != 0
            {
                leaving.push(Leaving { number, fingerprint: fingerprint(hash), source, target });
            }
        }
        // Writers wait for the move before they lock, so these locks are free or will be soon.
        let target = self.buckets.line(&self.storage, bucket + half);
        line.lock(&self.storage);
        target.lock(&self.storage);
        self.move_all(
            leaving,
            |moved| target.publish(moved.number, moved.fingerprint),
            |moved| line.clear(moved.number),
        );
        self.buckets.guess_room(&self.storage, bucket);
        self.buckets.guess_room(&self.storage, bucket + half);
        target.unlock();
        line.unlock();
        Ok(())
    }

    fn move_back(&self, shape: Shape, bucket: u64) -> Result<()> {
        let half = shape.buckets() / 2;
        let (line, target) = (
            self.buckets.back_word(&self.storage, bucket),
            self.buckets.back_word(&self.storage, bucket + half),
        );
        let mut leaving = Vec::new();
        for number in used_back(line.load(), self.buckets.yards().back) {
            let (source, target) = (
                self.buckets.back_slot(&self.storage, bucket, number)?,
                self.buckets.back_slot(&self.storage, bucket + half, number)?,
            );
            if let Some(hash) = self.hash_in(source) {
                self.buckets.lead_behind(shape, hash);
                let buckets = shape.back(hash);
                if !buckets.contains(&bucket) && buckets.contains(&(bucket + half)) {
                    let fingerprint = fingerprint(hash);
                    leaving.push(Leaving { number, fingerprint, source, target });
                }
            }
        }
        self.move_all(
            leaving,
            |moved| {
                let byte = u64::from(moved.fingerprint) << (8 * moved.number);
                target.store(target.load() & !(0xFF << (8 * moved.number)) | byte);
            },
            |moved| line.clear(moved.number),
        );
        Ok(())
    }

    /// Returns the hash of a slot's record, if there is one and it can be read.
    pub(super) fn hash_in(&self, slot: &Slot) -> Option<u64> {
        let key = slot.key(&self.storage);
        (key != EMPTY_KEY).then(|| self.records.hash_of(&self.storage, key).ok()).flatten()
    }

    /// Moves records out of one bucket. Costs two fences.
    fn move_all(
        &self,
        mut leaving: Vec<Leaving<'_>>,
        publish: impl Fn(&Leaving<'_>),
        clear: impl Fn(&Leaving<'_>),
    ) {
        let storage = &self.storage;
        let mut copied = 0;
        leaving.retain(|moved| {
            let (key, there) = (moved.source.key(storage), moved.target.key(storage));
            if there == EMPTY_KEY {
                moved.target.fill(storage, key, moved.source.value(storage));
                storage.flush_object(moved.target);
                copied += 1;
            }
            // A target slot with the same key was copied before a crash. A target slot with another key is damage in
            // the file: the source record stays in place, and `check` reports it.
            there == EMPTY_KEY || there == key
        });
        if leaving.is_empty() {
            return;
        }
        // P4: the copies are durable before the originals are removed.
        storage.fence();
        leaving.iter().for_each(publish);
        for moved in &leaving {
            moved.source.empty(storage);
            storage.flush_object(moved.source);
        }
        // P5: the originals are durably removed before the copies may change.
        storage.fence();
        leaving.iter().for_each(clear);
        // Recovery has counted both copies of a record that was copied before a crash.
        self.length.add(0, copied - leaving.len() as i64);
    }
}
