//! The table without its operations: yards, the DRAM beside them, how a key is found without a lock and under one.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fingerprints::{BackWord, FrontLine, candidates_back, taken_back};
use super::grow::Moves;
use super::layout::{
    EMPTY_KEY, Phase, Root, SIDE_KEY, SLOT_BYTES, Shape, Slot, Yards, fingerprint,
};
use super::overflow::Overflow;
use crate::base::counter::ShardedCounter;
use crate::base::gate::{Gate, Pass};
use crate::base::memory::ZeroedArray;
use crate::base::sync::Lines;
use crate::key::{Key, Value};
use crate::pm::superblock::ROOT_OFFSET;
use crate::pm::{Medium, Region};
use crate::record::length::Length;
use crate::record::{Pin, Probe, Records, Unlinked};
use crate::{Error, Result};

/// What all files of the table share: the medium, the regions, the records, and the DRAM beside them.
pub(crate) struct Core<K: ?Sized, V: ?Sized, M> {
    pub(super) yards: Yards,
    pub(super) records: Records<K, V>,
    pub(super) length: Length,
    pub(super) table: Region,
    pub(super) front: Region,
    pub(super) back: Region,
    pub(super) overflow: Overflow,
    pub(super) front_lines: Lines,
    pub(super) back_words: ZeroedArray<AtomicU64>,
    /// [`Shape`], a copy of the durable one, never ahead of it.
    pub(super) shape: AtomicU64,
    /// Writers pass it; steps close it.
    pub(super) gate: Gate,
    /// One step at a time.
    pub(super) structure: Mutex<()>,
    pub(super) moves: Moves,
    /// As deep as the address space allows.
    pub(super) max_depth: u32,
    /// Records in a thousand slots at which the table doubles.
    pub(super) max_load: u32,
    /// Whether reads need no lock.
    pub(super) loads_whole: bool,
    pub(super) counts: Counts,
    /// Last, so that everything that leads into its mappings is dropped before.
    pub(super) pm: M,
}

/// Events that are rare, counted for `stats` and the benchmarks.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) doublings: ShardedCounter,
    pub(super) halvings: ShardedCounter,
    pub(super) back_inserts: ShardedCounter,
    pub(super) overflow_inserts: ShardedCounter,
}

/// Which slot a record is in, or shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The slot of the key whose word is [`EMPTY_KEY`].
    Side,
    Front {
        bucket: u64,
        slot: u32,
    },
    Back {
        bucket: u64,
        slot: u32,
    },
    Overflow(u32),
}

/// A record, found under its lock.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) place: Place,
    pub(super) slot: &'a Slot,
}

/// A key's front bucket, locked: the key's record does not come, go or change meanwhile.
pub(super) struct Locked<'a, K: ?Sized, V: ?Sized, M> {
    core: &'a Core<K, V, M>,
    pub(super) shape: Shape,
    line: FrontLine<'a>,
    _pass: Pass<'a>,
}

impl<K: ?Sized, V: ?Sized, M> Drop for Locked<'_, K, V, M> {
    #[inline]
    fn drop(&mut self) {
        self.line.unlock();
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// The root words.
    #[inline]
    pub(super) fn root(&self) -> Result<&Root> {
        self.table.at::<Root>(ROOT_OFFSET).ok_or_else(|| {
            self.corrupt(&self.table, ROOT_OFFSET, "the file ends before the root words")
        })
    }

    /// A fault in one of the table's files.
    #[cold]
    pub(super) fn corrupt(&self, region: &Region, offset: u64, detail: impl Into<String>) -> Error {
        Error::corrupt(self.pm.path().join(region.name()), offset, detail)
    }

    /// The present shape.
    #[inline(always)]
    pub(super) fn shape(&self) -> Shape {
        self.pm.beside();
        // Acquire (E4): pairs with the Release in `set_shape`.
        let word = self.shape.load(Acquire);
        // Only words that were packed are ever stored; a wrong one would be seen as an empty table.
        Shape::unpack(word).unwrap_or(Shape { depth: 0, phase: Phase::Clearing, step: 0 })
    }

    /// Stores, persists and then publishes a shape.
    pub(super) fn set_shape(&self, shape: Shape) -> Result<()> {
        let cell = &self.root()?.shape;
        cell.store(&self.pm, shape.pack(), Release);
        // P3, P6, P7, P9: see the module's header.
        self.pm.persist(cell);
        // Release (E4): pairs with the Acquire in `shape`.
        self.shape.store(shape.pack(), Release);
        Ok(())
    }

    pub(super) fn lock_structure(&self) -> MutexGuard<'_, ()> {
        // A panic cannot have left anything half done that a crash could not: the next step goes on with it.
        self.structure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All slots that are used in a front bucket's line.
    #[inline(always)]
    pub(super) fn front_mask(&self) -> u64 {
        u64::MAX >> (64 - self.yards.front)
    }

    #[inline(always)]
    pub(super) fn front_line(&self, bucket: u64) -> FrontLine<'_> {
        self.pm.beside();
        FrontLine(&self.front_lines[bucket as usize])
    }

    #[inline(always)]
    pub(super) fn back_word(&self, bucket: u64) -> BackWord<'_> {
        self.pm.beside();
        BackWord(&self.back_words[bucket as usize])
    }

    /// A slot of the front yard.
    #[inline(always)]
    pub(super) fn front_slot(&self, bucket: u64, slot: u32) -> Result<&Slot> {
        let number = bucket * u64::from(self.yards.front) + u64::from(slot);
        self.front.at(number * SLOT_BYTES).ok_or_else(|| self.no_slot(&self.front, number))
    }

    /// A slot of the back yard.
    #[inline(always)]
    pub(super) fn back_slot(&self, bucket: u64, slot: u32) -> Result<&Slot> {
        let number = bucket * u64::from(self.yards.back) + u64::from(slot);
        self.back.at(number * SLOT_BYTES).ok_or_else(|| self.no_slot(&self.back, number))
    }

    #[cold]
    fn no_slot(&self, region: &Region, number: u64) -> Error {
        self.corrupt(region, number * SLOT_BYTES, "the file ends before the slot")
    }

    /// The slot of a place.
    pub(super) fn slot(&self, place: Place) -> Result<&Slot> {
        match place {
            Place::Side => Ok(&self.root()?.side),
            Place::Front { bucket, slot } => self.front_slot(bucket, slot),
            Place::Back { bucket, slot } => self.back_slot(bucket, slot),
            Place::Overflow(slot) => self
                .overflow
                .slot(slot)
                .ok_or_else(|| self.no_slot(self.overflow.region(), u64::from(slot))),
        }
    }

    /// Whether the key's record is in the side slot.
    #[inline(always)]
    fn is_side(&self, probe: &Probe<'_>) -> bool {
        self.records.is_key_word(probe, EMPTY_KEY)
    }

    /// Protects by-reference records from reuse.
    #[inline]
    pub(super) fn pin(&self) -> Pin<'_> {
        self.records.pin()
    }

    /// The value word of a key, without a lock (§5.1). Good while the pin lasts.
    #[inline]
    pub(super) fn lookup(&self, _pin: &Pin<'_>, probe: &Probe<'_>) -> Result<Option<u64>> {
        loop {
            let shape = self.shape();
            if shape.phase == Phase::Clearing {
                return Ok(None);
            }
            let line = self.front_line(shape.front(probe.hash));
            let found = if self.loads_whole {
                let found = self.search(shape, probe);
                // Whoever changed what was loaded had set the lock bit before: clear, it says that the change is
                // durable. A miss is an answer, too.
                self.wait_unlocked(line);
                found
            } else {
                line.lock(&self.pm);
                let found = self.search(shape, probe);
                line.unlock();
                found
            };
            // Hits, misses and faults alike count only when no step came between.
            if self.shape() == shape {
                return found;
            }
            self.pm.forget_reads();
        }
    }

    /// Returns when the lock bit of a front bucket has been seen clear.
    #[inline(always)]
    pub(super) fn wait_unlocked(&self, line: FrontLine<'_>) {
        self.pm.beside();
        let mut rounds = 0;
        while line.is_locked() {
            self.pm.wait(rounds);
            rounds = rounds.saturating_add(1);
        }
    }

    /// Looks wherever the key may be; where a doubling or halving may be moving it, at its old place first.
    #[inline(always)]
    fn search(&self, shape: Shape, probe: &Probe<'_>) -> Result<Option<u64>> {
        if self.is_side(probe) {
            let [key, value] = self.root()?.side.load(&self.pm);
            return Ok((key == SIDE_KEY).then_some(value));
        }
        let bucket = shape.front(probe.hash);
        if let Some(source) = shape.front_before(probe.hash)
            && let Some(value) = self.search_front(source, probe, Self::read_shared)?
        {
            return Ok(Some(value));
        }
        if let Some(value) = self.search_front(bucket, probe, Self::read_own)? {
            return Ok(Some(value));
        }
        let buckets = shape.back(probe.hash);
        if shape.phase != Phase::Stable
            && let Some(value) = self.search_back(shape.back_before(probe.hash), probe)?
        {
            return Ok(Some(value));
        }
        if let Some(value) = self.search_back(buckets, probe)? {
            return Ok(Some(value));
        }
        if self.overflow.is_empty(probe.hash) {
            return Ok(None);
        }
        self.overflow.find(probe.hash, |_, slot| self.read_shared(slot, probe))
    }

    #[inline(always)]
    fn search_front(
        &self,
        bucket: u64,
        probe: &Probe<'_>,
        read: impl Fn(&Self, &Slot, &Probe<'_>) -> Result<Option<u64>>,
    ) -> Result<Option<u64>> {
        let line = self.front_line(bucket);
        let mut candidates = line.candidates(fingerprint(probe.hash), self.front_mask());
        while candidates != 0 {
            let slot = self.front_slot(bucket, candidates.trailing_zeros())?;
            if let Some(value) = read(self, slot, probe)? {
                return Ok(Some(value));
            }
            candidates &= candidates - 1;
        }
        Ok(None)
    }

    /// The value word of a slot that changes under the key's own lock only, if it holds the key.
    #[inline(always)]
    fn read_own(&self, slot: &Slot, probe: &Probe<'_>) -> Result<Option<u64>> {
        let [key, value] = slot.load(&self.pm);
        Ok(self.holds(key, probe)?.then_some(value))
    }

    #[inline(always)]
    fn search_back(&self, buckets: [u64; 2], probe: &Probe<'_>) -> Result<Option<u64>> {
        let words = buckets.map(|bucket| self.back_word(bucket).load());
        let mut candidates = candidates_back(words, fingerprint(probe.hash));
        while candidates != 0 {
            let (which, slot) = place_of(candidates);
            let slot = self.back_slot(buckets[which], slot)?;
            if let Some(value) = self.read_shared(slot, probe)? {
                return Ok(Some(value));
            }
            candidates &= candidates - 1;
        }
        Ok(None)
    }

    /// The value word of a slot that another lock's holder may be changing, or a move, if it holds the key. What they have
    /// not made durable yet decides nothing: whatever the slot holds then, it is not the key, or the key is elsewhere.
    #[inline(always)]
    fn read_shared(&self, slot: &Slot, probe: &Probe<'_>) -> Result<Option<u64>> {
        let key = self.pm.peek(|| slot.key(&self.pm));
        if key == EMPTY_KEY || !self.records.matches(&self.pm, key, probe)? {
            return Ok(None);
        }
        let [now, value] = slot.load(&self.pm);
        Ok((now == key).then_some(value))
    }

    /// Locks a key's front bucket, where it is for as long as the caller is inside the gate.
    #[inline]
    pub(super) fn lock(&self, hash: u64) -> Result<Locked<'_, K, V, M>> {
        let pass = self.gate.enter();
        let shape = self.shape();
        if shape.phase == Phase::Doubling {
            self.make_way(shape, hash)?;
        }
        let line = self.front_line(shape.front(hash));
        line.lock(&self.pm);
        Ok(Locked { core: self, shape, line, _pass: pass })
    }

    /// Finds a key under its lock, after a doubling has moved its buckets.
    #[inline]
    pub(super) fn find_locked(&self, shape: Shape, probe: &Probe<'_>) -> Result<Option<Found<'_>>> {
        if self.is_side(probe) {
            let slot = &self.root()?.side;
            let found = Found { place: Place::Side, slot };
            return Ok((slot.key(&self.pm) == SIDE_KEY).then_some(found));
        }
        let bucket = shape.front(probe.hash);
        let line = self.front_line(bucket);
        let mut candidates = line.candidates(fingerprint(probe.hash), self.front_mask());
        while candidates != 0 {
            let number = candidates.trailing_zeros();
            let slot = self.front_slot(bucket, number)?;
            if self.holds(slot.key(&self.pm), probe)? {
                return Ok(Some(Found { place: Place::Front { bucket, slot: number }, slot }));
            }
            candidates &= candidates - 1;
        }
        self.find_behind(shape, probe)
    }

    /// The rest of [`Core::find_locked`].
    #[inline]
    fn find_behind(&self, shape: Shape, probe: &Probe<'_>) -> Result<Option<Found<'_>>> {
        let buckets = shape.back(probe.hash);
        let words = buckets.map(|bucket| self.back_word(bucket).load());
        let mut candidates = candidates_back(words, fingerprint(probe.hash));
        while candidates != 0 {
            let (which, number) = place_of(candidates);
            let slot = self.back_slot(buckets[which], number)?;
            if self.holds(self.pm.peek(|| slot.key(&self.pm)), probe)? {
                let place = Place::Back { bucket: buckets[which], slot: number };
                return Ok(Some(Found { place, slot }));
            }
            candidates &= candidates - 1;
        }
        if self.overflow.is_empty(probe.hash) {
            return Ok(None);
        }
        let place = self.overflow.find(probe.hash, |number, slot| {
            let holds = self.holds(self.pm.peek(|| slot.key(&self.pm)), probe)?;
            Ok(holds.then_some(Place::Overflow(number)))
        })?;
        place.map(|place| Ok(Found { place, slot: self.slot(place)? })).transpose()
    }

    #[inline(always)]
    fn holds(&self, key: u64, probe: &Probe<'_>) -> Result<bool> {
        Ok(key != EMPTY_KEY && self.records.matches(&self.pm, key, probe)?)
    }

    /// Takes a free slot for an absent key, under its lock: in the front bucket, but for those `taken` already; in the
    /// emptier of the two back buckets; in the overflow yard (Algorithms 1, 2).
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the overflow yard cannot grow.
    #[inline]
    pub(super) fn claim(&self, shape: Shape, probe: &Probe<'_>, taken: u64) -> Result<Place> {
        if self.is_side(probe) {
            return Ok(Place::Side);
        }
        let bucket = shape.front(probe.hash);
        let empty = self.front_line(bucket).empty(self.front_mask() & !taken);
        if empty != 0 {
            return Ok(Place::Front { bucket, slot: empty.trailing_zeros() });
        }
        self.claim_behind(shape, probe.hash)
    }

    fn claim_behind(&self, shape: Shape, hash: u64) -> Result<Place> {
        let [first, second] = shape.back(hash);
        let load = |bucket| taken_back(self.back_word(bucket).load());
        let order = if load(second) < load(first) { [second, first] } else { [first, second] };
        for bucket in order {
            if let Some(slot) = self.back_word(bucket).claim(self.yards.back) {
                self.counts.back_inserts.add(1);
                return Ok(Place::Back { bucket, slot });
            }
        }
        let slot = self.overflow.claim(&self.pm)?;
        self.counts.overflow_inserts.add(1);
        Ok(Place::Overflow(slot))
    }

    /// Gives a claimed slot back.
    pub(super) fn give_up(&self, place: Place) {
        match place {
            Place::Side | Place::Front { .. } => {}
            Place::Back { bucket, slot } => self.back_word(bucket).give_up(slot),
            Place::Overflow(slot) => self.overflow.give_up(slot),
        }
    }

    /// Fills a claimed slot; the caller flushes and fences.
    #[inline]
    pub(super) fn fill(&self, place: Place, slot: &Slot, record: Unlinked) {
        let key = if place == Place::Side { SIDE_KEY } else { record.key };
        slot.fill(&self.pm, key, record.value);
    }

    /// Lets reads find a claimed slot, which is durable.
    #[inline]
    pub(super) fn publish(&self, place: Place, hash: u64) {
        match place {
            Place::Side => {}
            Place::Front { bucket, slot } => {
                self.front_line(bucket).publish(slot, fingerprint(hash));
            }
            Place::Back { bucket, slot } => self.back_word(bucket).publish(slot, fingerprint(hash)),
            Place::Overflow(slot) => self.overflow.link(slot, hash),
        }
    }

    /// Offers the slot of a removed record again; its end is durable.
    #[inline]
    pub(super) fn release(&self, place: Place, hash: u64) {
        match place {
            Place::Side => {}
            Place::Front { bucket, slot } => self.front_line(bucket).clear(slot),
            Place::Back { bucket, slot } => self.back_word(bucket).clear(slot),
            Place::Overflow(slot) => self.overflow.unlink(slot, hash),
        }
    }
}

/// Which of two back buckets, and which of its slots, the first of some [`candidates_back`] is.
#[inline(always)]
fn place_of(candidates: u32) -> (usize, u32) {
    let place = candidates.trailing_zeros();
    (place as usize / 8, place % 8)
}

impl<'a, K: Key + ?Sized, V: Value + ?Sized, M: Medium> Locked<'a, K, V, M> {
    /// Finds the key.
    #[inline]
    pub(super) fn find(&self, probe: &Probe<'_>) -> Result<Option<Found<'a>>> {
        self.core.find_locked(self.shape, probe)
    }

    /// Inserts a record whose key is absent; tells where. One line, one flush, one fence.
    #[inline]
    pub(super) fn insert(&self, probe: &Probe<'_>, record: Unlinked) -> Result<Place> {
        let core = self.core;
        let place = core.claim(self.shape, probe, 0)?;
        let slot = core.slot(place)?;
        core.fill(place, slot, record);
        // P2, commit point: from here on a crash keeps the record.
        core.pm.persist(slot);
        core.publish(place, probe.hash);
        Ok(place)
    }

    /// Replaces the value word of a record; returns the former one. One line, one flush, one fence.
    #[inline]
    pub(super) fn replace(&self, found: &Found<'_>, value: u64) -> u64 {
        let pm = &self.core.pm;
        let before = found.slot.value(pm);
        found.slot.set_value(pm, value);
        // P2, commit point.
        pm.persist(found.slot);
        before
    }

    /// Takes a record out; returns its value word. One line, one flush, one fence.
    #[inline]
    pub(super) fn remove(&self, found: &Found<'_>, hash: u64, pin: &Pin<'_>) -> u64 {
        let core = self.core;
        let (key, value) = (found.slot.key(&core.pm), found.slot.value(&core.pm));
        found.slot.empty(&core.pm);
        // P2, commit point: from here on a crash keeps the record away.
        core.pm.persist(found.slot);
        core.release(found.place, hash);
        core.records.retire_key(pin, key);
        core.records.retire_value(pin, value);
        value
    }
}
