//! Known bugs of other systems, each in a small table with a corrected form. `BUG` is 0 in the corrected form.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use icefield::storage::{Cell32, SimHooks, Volatile32};

use super::shelf::{Small, Words};

/// Number of slots. Each is one line: key + 1, then the value.
const SLOTS: u64 = 24;
/// The word with the bitmap, which has a bit for each slot, set if the slot is valid.
const VALID: u64 = 8;

fn slot(at: u64) -> u64 {
    64 + at * 8
}

/// Returns a slot's bit in the bitmap. Neighbours are in different halves, so that a torn bitmap is detected.
fn bit(at: u64) -> u64 {
    1 << (at % 2 * 32 + at / 2)
}

fn is_valid(storage: &Words, at: u64) -> bool {
    storage.load(VALID) & bit(at) != 0
}

fn valid_slots(storage: &Words) -> impl Iterator<Item = u64> {
    let valid = storage.load(VALID);
    (0..SLOTS).filter(move |&at| valid & bit(at) != 0)
}

fn find(storage: &Words, key: u64) -> Option<u64> {
    valid_slots(storage).find(|&at| storage.load(slot(at)) == key + 1)
}

fn free_slot(storage: &Words) -> u64 {
    (0..SLOTS).find(|&at| !is_valid(storage, at)).expect("the tests use fewer keys than slots")
}

fn all(storage: &Words) -> Vec<(u64, u64)> {
    valid_slots(storage)
        .map(|at| (storage.load(slot(at)).wrapping_sub(1), storage.load(slot(at) + 1)))
        .collect()
}

/// Returns the bitmap after a key moved from one slot to another, was inserted, or was removed.
fn moved(storage: &Words, from: Option<u64>, to: Option<u64>) -> u64 {
    storage.load(VALID) & !from.map_or(0, bit) | to.map_or(0, bit)
}

/// Writes a record into a free slot and persists it, as the correct tables do.
fn write_slot(storage: &Words, key: u64, value: u64) -> u64 {
    let at = free_slot(storage);
    storage.store_relaxed(slot(at), key + 1);
    storage.store_relaxed(slot(at) + 1, value);
    storage.persist(slot(at), 2);
    at
}

/// The bitmap table: a record is durable before one 8-byte store makes it valid and its predecessor invalid.
pub struct Bitmap<const BUG: u32>;

/// PM1: the validity word and the record, on another line, share one fence.
pub const SHARED_FENCE: u32 = 1;
/// PM6: the flush covers the wrong line.
pub const WRONG_RANGE: u32 = 6;
/// PM7: the record is flushed only after its publication, without a fence between.
pub const NO_FENCE: u32 = 7;
/// PM7: the last fence is missing.
pub const NO_LAST_FENCE: u32 = 71;
/// PM10: the bitmap is published in two halves, as a compiler may tear a plain store.
pub const TORN: u32 = 10;
/// `clear` removes one record after the other.
pub const HALF_CLEAR: u32 = 50;
/// A redundant flush and fence: correct, but slow.
pub const REDUNDANT: u32 = 99;

impl<const BUG: u32> Small for Bitmap<BUG> {
    const NAME: &'static str = "bitmap";
    const WHOLE: bool = true;

    fn get(storage: &Words, key: u64) -> Option<u64> {
        find(storage, key).map(|at| storage.load(slot(at) + 1))
    }

    fn set(storage: &Words, key: u64, value: Option<u64>) {
        let from = find(storage, key);
        let to = value.map(|value| {
            let at = free_slot(storage);
            storage.store_relaxed(slot(at), key + 1);
            storage.store_relaxed(slot(at) + 1, value);
            match BUG {
                SHARED_FENCE | NO_FENCE => {}
                WRONG_RANGE => storage.persist(slot(at) + 8, 2),
                _ => storage.persist(slot(at), 2),
            }
            if BUG == SHARED_FENCE {
                storage.flush(slot(at), 2);
            }
            at
        });
        let valid = moved(storage, from, to);
        if BUG == TORN {
            storage.half(VALID * 2).store(&storage.sim, valid as u32, Release);
            storage.half(VALID * 2 + 1).store(&storage.sim, (valid >> 32) as u32, Release);
        } else {
            storage.store(VALID, valid);
        }
        storage.flush(VALID, 1);
        if BUG == NO_FENCE
            && let Some(at) = to
        {
            storage.flush(slot(at), 2);
        }
        if BUG != NO_LAST_FENCE {
            storage.fence();
        }
        if BUG == REDUNDANT {
            storage.flush(VALID, 1);
            storage.fence();
        }
    }

    fn clear(storage: &Words) {
        if BUG == HALF_CLEAR {
            return all(storage).into_iter().for_each(|(key, _)| Self::set(storage, key, None));
        }
        storage.store(VALID, 0);
        storage.persist(VALID, 1);
    }

    fn records(storage: &Words) -> Vec<(u64, u64)> {
        all(storage)
    }
}

/// PM2: a move publishes the new slot, then clears the old one. Wrong: recovery does not look for a key in two slots.
pub struct Mover<const BUG: u32>;

impl<const BUG: u32> Small for Mover<BUG> {
    const NAME: &'static str = "mover";

    fn recover(storage: &Words) {
        if BUG != 0 {
            return;
        }
        for at in valid_slots(storage) {
            let twin = valid_slots(storage)
                .find(|&twin| twin > at && storage.load(slot(twin)) == storage.load(slot(at)));
            if let Some(twin) = twin {
                storage.store(VALID, moved(storage, Some(twin), None));
                storage.persist(VALID, 1);
            }
        }
    }

    fn get(storage: &Words, key: u64) -> Option<u64> {
        find(storage, key).map(|at| storage.load(slot(at) + 1))
    }

    fn set(storage: &Words, key: u64, value: Option<u64>) {
        match (find(storage, key), value) {
            (Some(at), Some(value)) => {
                storage.store(slot(at) + 1, value);
                storage.persist(slot(at), 2);
                // Moves the record, as if the slot were needed for another record.
                let copy = write_slot(storage, key, value);
                storage.store(VALID, moved(storage, None, Some(copy)));
                storage.persist(VALID, 1);
                storage.store(VALID, moved(storage, Some(at), None));
            }
            (None, Some(value)) => {
                let at = write_slot(storage, key, value);
                storage.store(VALID, moved(storage, None, Some(at)));
            }
            (at, None) => storage.store(VALID, moved(storage, at, None)),
        }
        storage.persist(VALID, 1);
    }

    fn records(storage: &Words) -> Vec<(u64, u64)> {
        all(storage)
    }
}

/// PM3: a table that doubles. Its records are an array of pairs, described by its start and its capacity. Wrong: the
/// two are published one after the other. Right: they are published in one word.
pub struct Doubling<const BUG: u32>;

/// The published array: `start << 32 | capacity`, or `start` alone in the wrong form.
const ARRAY: u64 = 8;
const CAPACITY: u64 = 16;

impl<const BUG: u32> Doubling<BUG> {
    fn array(storage: &Words) -> (u64, u64) {
        match storage.load(ARRAY) {
            0 => (64, 4),
            word if BUG == 0 => (word >> 32, word & 0xFFFF_FFFF),
            start => (start, storage.load(CAPACITY)),
        }
    }

    fn publish(storage: &Words, start: u64, capacity: u64) {
        if BUG == 0 {
            storage.store(ARRAY, start << 32 | capacity);
        } else {
            storage.store(CAPACITY, capacity);
            storage.persist(CAPACITY, 1);
            storage.store(ARRAY, start);
        }
        storage.persist(ARRAY, 1);
    }

    /// Returns the position of `key`, or of a free pair for key 0.
    fn find(storage: &Words, key: u64) -> Option<u64> {
        let (start, capacity) = Self::array(storage);
        (0..capacity).map(|at| start + at * 2).find(|&at| storage.load(at) == key)
    }

    fn double(storage: &Words) {
        let (start, capacity) = Self::array(storage);
        // Each array of 4, 8, 16 or 32 pairs has its own place.
        let target = 64 + capacity * 2 * 2;
        for at in 0..capacity * 2 {
            storage.store_relaxed(target + at, storage.load(start + at));
        }
        storage.persist(target, capacity * 2);
        Self::publish(storage, target, capacity * 2);
    }
}

impl<const BUG: u32> Small for Doubling<BUG> {
    const NAME: &'static str = "doubling";

    fn get(storage: &Words, key: u64) -> Option<u64> {
        let value = Self::find(storage, key + 1).map(|at| storage.load(at + 1));
        value.filter(|&value| value != 0).map(|value| value - 1)
    }

    fn set(storage: &Words, key: u64, value: Option<u64>) {
        let value = value.map_or(0, |value| value + 1);
        if let Some(at) = Self::find(storage, key + 1) {
            storage.store(at + 1, value);
            return storage.persist(at + 1, 1);
        }
        if Self::find(storage, 0).is_none() {
            Self::double(storage);
        }
        let at = Self::find(storage, 0).expect("just doubled");
        storage.store(at + 1, value);
        storage.persist(at + 1, 1);
        storage.store(at, key + 1);
        storage.persist(at, 1);
    }

    fn records(storage: &Words) -> Vec<(u64, u64)> {
        let (start, capacity) = Self::array(storage);
        let pairs = (0..capacity)
            .map(|at| (storage.load(start + at * 2), storage.load(start + at * 2 + 1)));
        pairs
            .filter(|&(key, value)| key != 0 && value != 0)
            .map(|(key, value)| (key - 1, value - 1))
            .collect()
    }
}

/// PM4: a directory of two entries. The first segment splits by the key's lowest bit when it holds four keys. A
/// segment of depth 1 holds keys with one value of that bit only. Wrong: the depth changes before the directory.
pub struct Splitting<const BUG: u32>;

/// The word with the segment of odd keys: 0 or 1.
const DIRECTORY: u64 = 8;
/// The word with the depth of segment 0.
const DEPTH: u64 = 16;
const SEGMENT_SLOTS: u64 = 16;

impl<const BUG: u32> Splitting<BUG> {
    fn segment(storage: &Words, key: u64) -> u64 {
        if key % 2 == 1 { storage.load(DIRECTORY) } else { 0 }
    }

    fn pair(segment: u64, at: u64) -> u64 {
        64 + (segment * SEGMENT_SLOTS + at) * 2
    }

    /// Returns whether a record with `key` in segment `segment` is valid.
    fn belongs(storage: &Words, segment: u64, key: u64) -> bool {
        segment == 1 || storage.load(DEPTH) == 0 || key.is_multiple_of(2)
    }

    fn find(storage: &Words, segment: u64, key: u64) -> Option<u64> {
        (0..SEGMENT_SLOTS).map(|at| Self::pair(segment, at)).find(|&at| storage.load(at) == key)
    }

    fn split(storage: &Words) {
        if BUG != 0 {
            storage.store(DEPTH, 1);
            storage.persist(DEPTH, 1);
        }
        for at in 0..SEGMENT_SLOTS {
            let (from, to) = (Self::pair(0, at), Self::pair(1, at));
            if storage.load(from).is_multiple_of(2) {
                storage.store_relaxed(to, storage.load(from));
                storage.store_relaxed(to + 1, storage.load(from + 1));
            }
        }
        storage.persist(Self::pair(1, 0), SEGMENT_SLOTS * 2);
        storage.store(DIRECTORY, 1);
        storage.persist(DIRECTORY, 1);
        if BUG == 0 {
            storage.store(DEPTH, 1);
            storage.persist(DEPTH, 1);
        }
    }
}

impl<const BUG: u32> Small for Splitting<BUG> {
    const NAME: &'static str = "splitting";

    fn recover(storage: &Words) {
        if BUG == 0 && storage.load(DIRECTORY) == 1 && storage.load(DEPTH) == 0 {
            storage.store(DEPTH, 1);
            storage.persist(DEPTH, 1);
        }
    }

    fn get(storage: &Words, key: u64) -> Option<u64> {
        let segment = Self::segment(storage, key);
        let at = Self::find(storage, segment, key + 1)
            .filter(|_| Self::belongs(storage, segment, key))?;
        storage.load(at + 1).checked_sub(1)
    }

    fn set(storage: &Words, key: u64, value: Option<u64>) {
        let value = value.map_or(0, |value| value + 1);
        let segment = Self::segment(storage, key);
        let at = Self::find(storage, segment, key + 1).or_else(|| Self::find(storage, segment, 0));
        let at = at.expect("fewer keys than slots");
        storage.store(at + 1, value);
        storage.persist(at + 1, 1);
        storage.store(at, key + 1);
        storage.persist(at, 1);
        if storage.load(DIRECTORY) == 0 && storage.load(Self::pair(0, 3)) != 0 {
            Self::split(storage);
        }
    }

    fn records(storage: &Words) -> Vec<(u64, u64)> {
        let mut records = Vec::new();
        for segment in 0..=storage.load(DIRECTORY) {
            for at in (0..SEGMENT_SLOTS).map(|at| Self::pair(segment, at)) {
                let (key, value) = (storage.load(at), storage.load(at + 1));
                let stale = segment == 0 && storage.load(DIRECTORY) == 1 && key.is_multiple_of(2);
                if key != 0 && value != 0 && !stale && Self::belongs(storage, segment, key - 1) {
                    records.push((key - 1, value - 1));
                }
            }
        }
        records
    }
}

/// PM5: a lock on the medium. Wrong: recovery trusts it.
pub struct Locking<const BUG: u32>;

/// The lock becomes durable accidentally, by a flush of its line.
pub const DURABLE_LOCK: u32 = 1;
/// The lock is volatile, so it holds garbage after every opening.
pub const VOLATILE_LOCK: u32 = 2;

impl<const BUG: u32> Locking<BUG> {
    fn durable(storage: &Words) -> &Cell32 {
        storage.half(VALID * 2 + 2)
    }

    fn volatile(storage: &Words) -> &Volatile32 {
        storage.region.at(VALID * 8 + 12).expect("inside the region")
    }
}

impl<const BUG: u32> Small for Locking<BUG> {
    const NAME: &'static str = "locking";

    fn recover(storage: &Words) {
        if BUG != DURABLE_LOCK {
            Self::durable(storage).store(&storage.sim, 0, Release);
        }
        if BUG != VOLATILE_LOCK {
            Self::volatile(storage).store(&storage.sim, 0, Release);
        }
    }

    fn get(storage: &Words, key: u64) -> Option<u64> {
        find(storage, key).map(|at| storage.load(slot(at) + 1))
    }

    fn set(storage: &Words, key: u64, value: Option<u64>) {
        let mut rounds = 0;
        while Self::durable(storage).load(&storage.sim, Acquire) != 0
            || Self::volatile(storage)
                .compare_exchange_weak(&storage.sim, 0, 1, Acquire, Relaxed)
                .is_err()
        {
            storage.sim.wait(rounds);
            rounds += 1;
        }
        Self::durable(storage).store(&storage.sim, 1, Release);
        let from = find(storage, key);
        let to = value.map(|value| write_slot(storage, key, value));
        storage.store(VALID, moved(storage, from, to));
        storage.persist(VALID, 1);
        Self::durable(storage).store(&storage.sim, 0, Release);
        Self::volatile(storage).store(&storage.sim, 0, Release);
    }

    fn records(storage: &Words) -> Vec<(u64, u64)> {
        all(storage)
    }
}

/// PM7: creation. Empty slots hold a pattern that is not zero. Wrong: the table is sealed before the slots hold it.
pub struct Filled<const BUG: u32>;

const EMPTY: u64 = u64::MAX;

impl<const BUG: u32> Filled<BUG> {
    fn find(storage: &Words, word: u64) -> Option<u64> {
        (0..SLOTS).map(slot).find(|&at| storage.load(at) == word)
    }
}

impl<const BUG: u32> Small for Filled<BUG> {
    const NAME: &'static str = "filled";
    const SEALED_FIRST: bool = BUG != 0;

    fn format(storage: &Words) {
        (0..SLOTS).for_each(|at| storage.store_relaxed(slot(at), EMPTY));
        storage.persist(slot(0), SLOTS * 8);
    }

    fn get(storage: &Words, key: u64) -> Option<u64> {
        Self::find(storage, key).and_then(|at| storage.load(at + 1).checked_sub(1))
    }

    fn set(storage: &Words, key: u64, value: Option<u64>) {
        let at =
            Self::find(storage, key).or_else(|| Self::find(storage, EMPTY)).expect("a free slot");
        storage.store(at + 1, value.map_or(0, |value| value + 1));
        storage.persist(at + 1, 1);
        storage.store(at, key);
        storage.persist(at, 1);
    }

    fn records(storage: &Words) -> Vec<(u64, u64)> {
        let pairs = (0..SLOTS).map(slot).map(|at| (storage.load(at), storage.load(at + 1)));
        pairs
            .filter(|&(key, value)| key != EMPTY && value != 0)
            .map(|(key, value)| (key, value - 1))
            .collect()
    }
}

/// Gives other threads time to read a store that is not durable yet, even on a busy machine.
fn let_others_in() {
    std::thread::sleep(Duration::from_micros(50));
}

/// PM8: values change in place. Wrong: a reader returns the value that it finds, whether it is persistent or not.
pub struct Eager<const BUG: u32>;

impl<const BUG: u32> Small for Eager<BUG> {
    const NAME: &'static str = "eager";
    const LOCKED_READS: bool = BUG == 0;

    fn get(storage: &Words, key: u64) -> Option<u64> {
        find(storage, key).and_then(|at| storage.load(slot(at) + 1).checked_sub(1))
    }

    fn set(storage: &Words, key: u64, value: Option<u64>) {
        let word = value.map_or(0, |value| value + 1);
        match find(storage, key) {
            Some(at) => {
                storage.store(slot(at) + 1, word);
                if BUG != 0 {
                    let_others_in();
                }
                storage.persist(slot(at) + 1, 1);
            }
            None => {
                let at = write_slot(storage, key, word);
                storage.store(VALID, moved(storage, None, Some(at)));
                storage.persist(VALID, 1);
            }
        }
    }

    fn records(storage: &Words) -> Vec<(u64, u64)> {
        all(storage)
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.checked_sub(1)?)))
            .collect()
    }
}

/// PM9: blocks are taken from a durable allocation map, then linked. Wrong: recovery does not look for blocks that
/// were taken and never linked.
pub struct Allocating<const BUG: u32>;

const TAKEN: u64 = 16;

impl<const BUG: u32> Allocating<BUG> {
    fn change(storage: &Words, taken: u64) {
        storage.store(TAKEN, taken);
        storage.persist(TAKEN, 1);
    }
}

impl<const BUG: u32> Small for Allocating<BUG> {
    const NAME: &'static str = "allocating";

    fn recover(storage: &Words) {
        if BUG == 0 {
            Self::change(storage, storage.load(VALID));
        }
    }

    fn get(storage: &Words, key: u64) -> Option<u64> {
        find(storage, key).map(|at| storage.load(slot(at) + 1))
    }

    fn set(storage: &Words, key: u64, value: Option<u64>) {
        let from = find(storage, key);
        let to = value.map(|value| {
            let taken = storage.load(TAKEN);
            let at = (0..SLOTS).find(|&at| taken & bit(at) == 0).expect("a free block");
            Self::change(storage, taken | bit(at));
            storage.store_relaxed(slot(at), key + 1);
            storage.store_relaxed(slot(at) + 1, value);
            storage.persist(slot(at), 2);
            at
        });
        storage.store(VALID, moved(storage, from, to));
        storage.persist(VALID, 1);
        if let Some(from) = from {
            Self::change(storage, storage.load(TAKEN) & !bit(from));
        }
    }

    fn records(storage: &Words) -> Vec<(u64, u64)> {
        all(storage)
    }

    fn faults(storage: &Words) -> Vec<String> {
        let (taken, valid) = (storage.load(TAKEN), storage.load(VALID));
        let lost = taken & !valid;
        let unowned = valid & !taken;
        let fault = |what: &str, bits: u64| format!("{what}: {bits:#x}");
        let found = [(lost, "taken, not linked"), (unowned, "linked, not taken")];
        found
            .into_iter()
            .filter(|(bits, _)| *bits != 0)
            .map(|(bits, what)| fault(what, bits))
            .collect()
    }
}

/// PM11: a value of two words in one line. Wrong: both change in place, as if the line were atomic. Right: they are
/// written to a new slot.
pub struct Wide<const BUG: u32>;

const MASK: u64 = 0xAAAA_AAAA_AAAA_AAAA;

impl<const BUG: u32> Small for Wide<BUG> {
    const NAME: &'static str = "wide";

    fn get(storage: &Words, key: u64) -> Option<u64> {
        let at = find(storage, key)?;
        let (value, other) = (storage.load(slot(at) + 1), storage.load(slot(at) + 2));
        Some(if value == other ^ MASK { value } else { u64::MAX })
    }

    fn set(storage: &Words, key: u64, value: Option<u64>) {
        let from = find(storage, key);
        if let (true, Some(at), Some(value)) = (BUG != 0, from, value) {
            storage.store(slot(at) + 1, value);
            storage.store(slot(at) + 2, value ^ MASK);
            return storage.persist(slot(at), 3);
        }
        let to = value.map(|value| {
            let at = free_slot(storage);
            storage.store_relaxed(slot(at) + 2, value ^ MASK);
            write_slot(storage, key, value)
        });
        storage.store(VALID, moved(storage, from, to));
        storage.persist(VALID, 1);
    }

    fn records(storage: &Words) -> Vec<(u64, u64)> {
        all(storage)
    }
}

/// Publishes by the order of two stores to one line: the value, then the key. Right on persistent memory if the second
/// store is a Release store. Wrong with a Relaxed store (PM10), and wrong on a disk (PM11 again).
pub struct SameLine<const RELAXED: bool>;

impl<const RELAXED: bool> Small for SameLine<RELAXED> {
    const NAME: &'static str = "same-line";

    fn get(storage: &Words, key: u64) -> Option<u64> {
        let at = (0..SLOTS).map(slot).find(|&at| storage.load(at) == key + 1)?;
        Some(storage.load(at + 1))
    }

    fn set(storage: &Words, key: u64, value: Option<u64>) {
        let at = (0..SLOTS).map(slot).find(|&at| storage.load(at) == key + 1);
        match (at, value) {
            (Some(at), Some(value)) => storage.store(at + 1, value),
            (Some(at), None) => storage.store(at, 0),
            (None, Some(value)) => {
                let at =
                    (0..SLOTS).map(slot).find(|&at| storage.load(at) == 0).expect("a free slot");
                storage.store_relaxed(at + 1, value);
                if RELAXED {
                    storage.store_relaxed(at, key + 1);
                } else {
                    storage.store(at, key + 1);
                }
                return storage.persist(at, 2);
            }
            (None, None) => return,
        }
        if let Some(at) = at {
            storage.persist(at, 2);
        }
    }

    fn records(storage: &Words) -> Vec<(u64, u64)> {
        let pairs = (0..SLOTS).map(slot).map(|at| (storage.load(at), storage.load(at + 1)));
        pairs.filter(|&(key, _)| key != 0).map(|(key, value)| (key - 1, value)).collect()
    }
}

/// A pass over all records validates against a version that writers increment. Wrong: a record is published before the
/// version shows the change, as can happen in a stash whose lookups validate another word.
pub struct Stashed<const BUG: u32>;

impl<const BUG: u32> Stashed<BUG> {
    fn version(storage: &Words) -> &Volatile32 {
        storage.region.at(VALID * 8 + 8).expect("inside the region")
    }

    /// Increments the version. While it is odd, passes wait.
    fn step(storage: &Words) {
        let version = Self::version(storage);
        // Release: passes see the changes made before.
        version.store(&storage.sim, version.load(&storage.sim, Relaxed).wrapping_add(1), Release);
    }
}

impl<const BUG: u32> Small for Stashed<BUG> {
    const NAME: &'static str = "stashed";
    const WHOLE: bool = true;
    const LOCKED_PASSES: bool = false;

    fn recover(storage: &Words) {
        Self::version(storage).store(&storage.sim, 0, Release);
    }

    fn get(storage: &Words, key: u64) -> Option<u64> {
        find(storage, key).map(|at| storage.load(slot(at) + 1))
    }

    fn set(storage: &Words, key: u64, value: Option<u64>) {
        let from = find(storage, key);
        let to = value.map(|value| write_slot(storage, key, value));
        if BUG == 0 {
            Self::step(storage);
        }
        storage.store(VALID, moved(storage, from, to));
        if BUG != 0 {
            let_others_in();
        }
        storage.persist(VALID, 1);
        if BUG != 0 {
            Self::step(storage);
        }
        Self::step(storage);
    }

    fn clear(storage: &Words) {
        Self::step(storage);
        storage.store(VALID, 0);
        storage.persist(VALID, 1);
        Self::step(storage);
    }

    fn records(storage: &Words) -> Vec<(u64, u64)> {
        let version = Self::version(storage);
        let mut rounds = 0;
        loop {
            let before = version.load(&storage.sim, Acquire);
            let records = all(storage);
            if before.is_multiple_of(2) && version.load(&storage.sim, Acquire) == before {
                return records;
            }
            storage.sim.forget_reads();
            storage.sim.wait(rounds);
            rounds += 1;
        }
    }
}
