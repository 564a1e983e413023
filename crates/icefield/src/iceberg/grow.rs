//! Doubling in place (§4, §5.3): regions keep their addresses, so the yards grow where they are, and half of each
//! bucket's records move to the bucket that lies as far up as the table was large.
//!
//! The step itself is one durable store, while the gate is closed. Afterwards each bucket of the lower half is UNMOVED,
//! IN_FLIGHT, or MOVED; a write sees to it that its own buckets are MOVED before it locks anything, and moves a few
//! more. Yards do so independently of one another. A record keeps its slot number: nobody uses a target bucket before
//! its source is MOVED, so the slot is free, and recovery knows where a duplicate would be.

use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU64};

use super::core::Core;
use super::fingerprints::used_back;
use super::layout::{EMPTY_KEY, MAX_DEPTH, Phase, SLOT_BYTES, Shape, Slot, fingerprint};
use crate::base::memory::GrowingArray;
use crate::base::sync::Line;
use crate::key::{Key, Value};
use crate::pm::{Medium, Region, refuse_child};
use crate::{Error, Result};

/// Some records of the bucket may belong into the upper half.
const UNMOVED: u8 = 0;
/// Somebody is moving them.
const IN_FLIGHT: u8 = 1;
/// They are there.
const MOVED: u8 = 2;

/// Inserts that find their front bucket full look at the load once in so many times; tiny tables always.
const LOAD_CHECK_ONE_IN: u64 = 32;

/// How far a doubling has come.
pub(super) struct Moves {
    /// For each bucket of the lower half its state: the front yard's, the back yard's.
    states: [GrowingArray<AtomicU8>; 2],
    /// Buckets of both yards that are not MOVED yet.
    left: AtomicU64,
    /// The bucket that the next write moves besides its own.
    next: AtomicU64,
    /// Records that are at both of their places and count once, in a session that only reads.
    pub(super) twice: AtomicU64,
}

/// Which yard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Yard {
    Front = 0,
    Back = 1,
}

impl Moves {
    /// For doublings to at most so many buckets.
    pub(super) fn new(buckets: u64) -> io::Result<Self> {
        let states = || GrowingArray::new(buckets as usize / 2);
        Ok(Self {
            states: [states()?, states()?],
            left: AtomicU64::new(0),
            next: AtomicU64::new(0),
            twice: AtomicU64::new(0),
        })
    }

    /// Has room for a doubling to so many buckets.
    fn reach(&self, buckets: usize) -> io::Result<()> {
        self.states.iter().try_for_each(|states| states.extend(buckets / 2))
    }

    /// All buckets of a lower half are UNMOVED. Before anybody can know of the doubling.
    fn start(&self, half: u64) {
        for states in &self.states {
            states[..half as usize].iter().for_each(|state| state.store(UNMOVED, Relaxed));
        }
        self.left.store(2 * half, Relaxed);
        // Release by the shape word that follows (E4).
        self.next.store(0, Relaxed);
    }
}

/// Gives a bucket free for another try when its move fails.
struct InFlight<'a>(&'a AtomicU8);

impl InFlight<'_> {
    fn moved(self) {
        // Release (E5): who sees MOVED sees the records at their new places.
        self.0.store(MOVED, Release);
        std::mem::forget(self);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        // Release (E5), as MOVED: who takes the bucket next sees what was done so far.
        self.0.store(UNMOVED, Release);
    }
}

/// A record that leaves its bucket.
struct Leaving<'a> {
    number: u32,
    fingerprint: u8,
    source: &'a Slot,
    target: &'a Slot,
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// All slots of both yards.
    fn slots(&self) -> u64 {
        self.shape().buckets() * self.yards.slots()
    }

    /// How many records the table takes before it doubles.
    pub(super) fn capacity(&self) -> u64 {
        (u128::from(self.slots()) * u128::from(self.max_load) / 1000) as u64
    }

    fn is_due(&self) -> bool {
        self.length.estimate(0) > self.capacity()
    }

    /// Doubles the table when the load is over its threshold. An insert calls this when it is done and its front bucket
    /// was full; that the table cannot grow is its problem only when it finds no slot.
    #[cold]
    pub(super) fn grow_if_due(&self, hash: u64) {
        if !self.is_due_by(hash) {
            return;
        }
        // Somebody who holds it is doubling already.
        if let Ok(_structure) = self.structure.try_lock()
            && self.is_due()
        {
            // The records that are there have their slots; the next insert tries again.
            let _ = self.double();
        }
    }

    /// Whether the insert of this hash is one of the few that look at the load, and that asks for a doubling.
    #[inline]
    pub(super) fn is_due_by(&self, hash: u64) -> bool {
        let one_in = self.shape().buckets().min(LOAD_CHECK_ONE_IN);
        hash >> 16 & (one_in - 1) == 0 && self.is_due()
    }

    /// Doubles the table for an insert that found no slot; `false`: it cannot, or that would be no help, because few
    /// slots are used (a crowd of equal hashes).
    #[cold]
    pub(super) fn grow_in_need(&self) -> bool {
        let _structure = self.lock_structure();
        self.length.estimate(0) >= self.capacity() / 2 && self.double().is_ok()
    }

    /// Doubles until there is room for so many records, and moves everything.
    pub(super) fn make_room_for(&self, records: u64) -> Result<()> {
        self.pm.writable()?;
        let _structure = self.lock_structure();
        if self.capacity() < records {
            self.check_room(self.depth_for(records), self.shape().extent())?;
        }
        while self.capacity() < records {
            self.double()?;
        }
        self.finish_doubling()
    }

    /// The depth at which the table takes so many records; none is that large where it is more than [`MAX_DEPTH`].
    pub(super) fn depth_for(&self, records: u64) -> u32 {
        let taken =
            |depth: u32| u128::from(self.yards.slots() << depth) * u128::from(self.max_load) / 1000;
        (0..=MAX_DEPTH).find(|&depth| taken(depth) >= records.into()).unwrap_or(MAX_DEPTH + 1)
    }

    /// Fails when there is no room for the buckets of a depth, while there are those of another, before any is taken.
    pub(super) fn check_room(&self, depth: u32, present: u32) -> Result<()> {
        let bucket_bytes = self.yards.slots() * SLOT_BYTES;
        if depth > self.max_depth.min(MAX_DEPTH) {
            let path = self.pm.path().join(self.front.name());
            return Err(Error::NoSpace { path, needed_bytes: bucket_bytes << depth.min(32) });
        }
        let buckets = (1_u64 << depth).saturating_sub(1 << present);
        let dram_bytes = size_of::<Line>() + size_of::<u64>() + 2;
        self.pm.check_room(buckets * bucket_bytes, buckets * dram_bytes as u64)
    }

    /// The doubling step; the caller holds the structure's mutex.
    fn double(&self) -> Result<()> {
        self.finish_doubling()?;
        let shape = self.shape();
        let new = shape.then(shape.depth() + 1, Phase::Doubling);
        if new.depth() > self.max_depth.min(MAX_DEPTH) {
            return Err(Error::NoSpace {
                path: self.pm.path().join(self.front.name()),
                needed_bytes: new.buckets() * self.yards.slots() * SLOT_BYTES,
            });
        }
        // New slots are zero: empty.
        self.reserve_yards(new)?;
        // Writers that saw the last doubling leave; they would take the states for theirs.
        drop(self.close_gate()?);
        self.moves.start(shape.buckets());
        let _closed = self.close_gate()?;
        // P3, commit point: from here on the doubling is rolled forward.
        self.set_shape(new)?;
        self.counts.doublings.add(1);
        Ok(())
    }

    /// Makes the arrays in DRAM as long as a shape needs them.
    pub(super) fn reach(&self, shape: Shape) -> Result<()> {
        let buckets = 1 << shape.extent();
        let reached = self.front_lines.extend(buckets);
        let reached = reached.and_then(|()| self.back_words.extend(buckets));
        let reached = reached.and_then(|()| self.rooms.extend(buckets));
        let reached = reached.and_then(|()| self.moves.reach(buckets));
        reached.map_err(|source| Error::io(self.pm.path(), source))
    }

    /// Makes the yards as long as a shape needs them.
    pub(super) fn reserve_yards(&self, shape: Shape) -> Result<()> {
        self.reach(shape)?;
        for (region, bytes) in self.yard_bytes(shape) {
            self.pm.grow(region, bytes)?;
            // A halving may have punched it.
            self.pm.reserve(region, 0, bytes)?;
        }
        Ok(())
    }

    /// How long each yard must be.
    pub(super) fn yard_bytes(&self, shape: Shape) -> [(&Region, u64); 2] {
        let [front, back] = self.yards.bucket_bytes();
        [(&self.front, front << shape.extent()), (&self.back, back << shape.extent())]
    }

    /// Moves what is left of a doubling; the caller holds the structure's mutex.
    pub(super) fn finish_doubling(&self) -> Result<()> {
        let shape = self.shape();
        if !shape.is(Phase::Doubling) {
            return Ok(());
        }
        for bucket in 0..shape.buckets() / 2 {
            self.move_both(shape, bucket)?;
        }
        let mut rounds = 0;
        // Whoever moved the last bucket is about to say so.
        while self.shape() == shape {
            self.pm.wait(rounds);
            rounds = rounds.saturating_add(1);
        }
        Ok(())
    }

    /// Begins to move what a doubling of a former session has left.
    pub(super) fn resume_doubling(&self, shape: Shape) {
        self.moves.start(shape.buckets() / 2);
    }

    /// Moves a bucket of each yard.
    pub(super) fn move_both(&self, shape: Shape, bucket: u64) -> Result<()> {
        self.move_bucket(shape, Yard::Front, bucket)?;
        self.move_bucket(shape, Yard::Back, bucket)
    }

    /// Sees to it that a key's buckets have been moved, and moves one more of each yard. Inside the gate.
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

    /// Moves what belongs elsewhere out of one bucket, or waits until somebody else has.
    fn move_bucket(&self, shape: Shape, yard: Yard, bucket: u64) -> Result<()> {
        if let Err(Error::Forked) = self.pm.writable() {
            // Scans come here, too: the files are the parent's, who moves by marks of its own.
            return Err(Error::Forked);
        }
        let state = &self.moves.states[yard as usize][bucket as usize];
        let mut rounds = 0;
        // AcqRel: one thread moves; Acquire (E5) pairs with the Release in `moved`.
        while let Err(now) = state.compare_exchange(UNMOVED, IN_FLIGHT, AcqRel, Acquire) {
            if now == MOVED {
                return Ok(());
            }
            self.pm.wait(rounds);
            rounds = rounds.saturating_add(1);
        }
        let in_flight = InFlight(state);
        // Scans come here, too.
        refuse_child(&self.pm)?;
        match yard {
            Yard::Front => self.move_front(shape, bucket)?,
            Yard::Back => self.move_back(shape, bucket)?,
        }
        in_flight.moved();
        // AcqRel: the last one acts on what all have done.
        if self.moves.left.fetch_sub(1, AcqRel) == 1 {
            // P6: the doubling is over.
            self.set_shape(shape.then(shape.depth(), Phase::Stable))?;
        }
        Ok(())
    }

    fn move_front(&self, shape: Shape, bucket: u64) -> Result<()> {
        let half = shape.buckets() / 2;
        let line = self.front_line(bucket);
        let mut leaving = Vec::new();
        let mut used = self.front_mask() & !line.empty(self.front_mask());
        while used != 0 {
            let number = used.trailing_zeros();
            used &= used - 1;
            let (source, target) =
                (self.front_slot(bucket, number)?, self.front_slot(bucket + half, number)?);
            // A key that cannot be read stays where it is, for `check` to find.
            if let Some(hash) = self.hash_in(source)
                && hash & half != 0
            {
                leaving.push(Leaving { number, fingerprint: fingerprint(hash), source, target });
            }
        }
        // Writers wait for the move before they lock, so these locks are free, or about to be.
        let target = self.front_line(bucket + half);
        line.lock(&self.pm);
        target.lock(&self.pm);
        self.move_all(
            leaving,
            |moved| target.publish(moved.number, moved.fingerprint),
            |moved| line.clear(moved.number),
        );
        self.guess_room(bucket);
        self.guess_room(bucket + half);
        target.unlock();
        line.unlock();
        Ok(())
    }

    fn move_back(&self, shape: Shape, bucket: u64) -> Result<()> {
        let half = shape.buckets() / 2;
        let (line, target) = (self.back_word(bucket), self.back_word(bucket + half));
        let mut leaving = Vec::new();
        for number in used_back(line.load(), self.yards.back) {
            let (source, target) =
                (self.back_slot(bucket, number)?, self.back_slot(bucket + half, number)?);
            if let Some(hash) = self.hash_in(source) {
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

    /// The hash of a slot's record, if there is one that can be read.
    fn hash_in(&self, slot: &Slot) -> Option<u64> {
        let key = slot.key(&self.pm);
        (key != EMPTY_KEY).then(|| self.records.hash_of(&self.pm, key).ok()).flatten()
    }

    /// Moves records of one bucket. Two fences.
    fn move_all(
        &self,
        mut leaving: Vec<Leaving<'_>>,
        publish: impl Fn(&Leaving<'_>),
        clear: impl Fn(&Leaving<'_>),
    ) {
        let pm = &self.pm;
        let mut copied = 0;
        leaving.retain(|moved| {
            let (key, there) = (moved.source.key(pm), moved.target.key(pm));
            if there == EMPTY_KEY {
                moved.target.fill(pm, key, moved.source.value(pm));
                pm.flush_object(moved.target);
                copied += 1;
            }
            // A slot that holds the key was copied before a crash. One that holds another key is a fault in the file:
            // its neighbour stays where it is, for `check` to find.
            there == EMPTY_KEY || there == key
        });
        if leaving.is_empty() {
            return;
        }
        // P4: the copies are durable before the originals go.
        pm.fence();
        leaving.iter().for_each(publish);
        for moved in &leaving {
            moved.source.empty(pm);
            pm.flush_object(moved.source);
        }
        // P5: the originals are gone before the copies may change.
        pm.fence();
        leaving.iter().for_each(clear);
        // Recovery has counted both copies.
        self.length.add(0, copied - leaving.len() as i64);
    }
}
