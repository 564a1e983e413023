//! Known bugs of other systems, each in a small table with a corrected form. `BUG` is 0 in the corrected form.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use icefield::pm::{Cell32, Medium, Volatile32};

use super::shelf::{Small, Words};

/// Slots are one line each: key + 1, then the value.
const SLOTS: u64 = 24;
/// One bit per valid slot.
const VALID: u64 = 8;

fn slot(at: u64) -> u64 {
    64 + at * 8
}

/// Returns a slot's bit in the bitmap. Neighbours are in different halves, so that a torn bitmap shows.
fn bit(at: u64) -> u64 {
    1 << (at % 2 * 32 + at / 2)
}

fn is_valid(pm: &Words, at: u64) -> bool {
    pm.load(VALID) & bit(at) != 0
}

fn valid_slots(pm: &Words) -> impl Iterator<Item = u64> {
    let valid = pm.load(VALID);
    (0..SLOTS).filter(move |&at| valid & bit(at) != 0)
}

fn find(pm: &Words, key: u64) -> Option<u64> {
    valid_slots(pm).find(|&at| pm.load(slot(at)) == key + 1)
}

fn free_slot(pm: &Words) -> u64 {
    (0..SLOTS).find(|&at| !is_valid(pm, at)).expect("the tests use fewer keys than slots")
}

fn all(pm: &Words) -> Vec<(u64, u64)> {
    valid_slots(pm).map(|at| (pm.load(slot(at)).wrapping_sub(1), pm.load(slot(at) + 1))).collect()
}

/// Returns the bitmap after a key moved from one slot to another, was inserted, or was removed.
fn moved(pm: &Words, from: Option<u64>, to: Option<u64>) -> u64 {
    pm.load(VALID) & !from.map_or(0, bit) | to.map_or(0, bit)
}

/// Writes a record into a free slot and persists it, as the correct tables do.
fn write_slot(pm: &Words, key: u64, value: u64) -> u64 {
    let at = free_slot(pm);
    pm.store_relaxed(slot(at), key + 1);
    pm.store_relaxed(slot(at) + 1, value);
    pm.persist(slot(at), 2);
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

    fn get(pm: &Words, key: u64) -> Option<u64> {
        find(pm, key).map(|at| pm.load(slot(at) + 1))
    }

    fn set(pm: &Words, key: u64, value: Option<u64>) {
        let from = find(pm, key);
        let to = value.map(|value| {
            let at = free_slot(pm);
            pm.store_relaxed(slot(at), key + 1);
            pm.store_relaxed(slot(at) + 1, value);
            match BUG {
                SHARED_FENCE | NO_FENCE => {}
                WRONG_RANGE => pm.persist(slot(at) + 8, 2),
                _ => pm.persist(slot(at), 2),
            }
            if BUG == SHARED_FENCE {
                pm.flush(slot(at), 2);
            }
            at
        });
        let valid = moved(pm, from, to);
        if BUG == TORN {
            pm.half(VALID * 2).store(&pm.sim, valid as u32, Release);
            pm.half(VALID * 2 + 1).store(&pm.sim, (valid >> 32) as u32, Release);
        } else {
            pm.store(VALID, valid);
        }
        pm.flush(VALID, 1);
        if BUG == NO_FENCE
            && let Some(at) = to
        {
            pm.flush(slot(at), 2);
        }
        if BUG != NO_LAST_FENCE {
            pm.fence();
        }
        if BUG == REDUNDANT {
            pm.flush(VALID, 1);
            pm.fence();
        }
    }

    fn clear(pm: &Words) {
        if BUG == HALF_CLEAR {
            return all(pm).into_iter().for_each(|(key, _)| Self::set(pm, key, None));
        }
        pm.store(VALID, 0);
        pm.persist(VALID, 1);
    }

    fn records(pm: &Words) -> Vec<(u64, u64)> {
        all(pm)
    }
}

/// PM2: a move publishes the new slot, then clears the old one. Wrong: recovery does not look for the copy.
pub struct Mover<const BUG: u32>;

impl<const BUG: u32> Small for Mover<BUG> {
    const NAME: &'static str = "mover";

    fn recover(pm: &Words) {
        if BUG != 0 {
            return;
        }
        for at in valid_slots(pm) {
            let twin =
                valid_slots(pm).find(|&twin| twin > at && pm.load(slot(twin)) == pm.load(slot(at)));
            if let Some(twin) = twin {
                pm.store(VALID, moved(pm, Some(twin), None));
                pm.persist(VALID, 1);
            }
        }
    }

    fn get(pm: &Words, key: u64) -> Option<u64> {
        find(pm, key).map(|at| pm.load(slot(at) + 1))
    }

    fn set(pm: &Words, key: u64, value: Option<u64>) {
        match (find(pm, key), value) {
            (Some(at), Some(value)) => {
                pm.store(slot(at) + 1, value);
                pm.persist(slot(at), 2);
                // The slot is needed for another record.
                let copy = write_slot(pm, key, value);
                pm.store(VALID, moved(pm, None, Some(copy)));
                pm.persist(VALID, 1);
                pm.store(VALID, moved(pm, Some(at), None));
            }
            (None, Some(value)) => {
                let at = write_slot(pm, key, value);
                pm.store(VALID, moved(pm, None, Some(at)));
            }
            (at, None) => pm.store(VALID, moved(pm, at, None)),
        }
        pm.persist(VALID, 1);
    }

    fn records(pm: &Words) -> Vec<(u64, u64)> {
        all(pm)
    }
}

/// PM3: a table that doubles. Its records are an array of pairs, described by its start and its capacity. Wrong: the
/// two are published one after the other. Right: they are published in one word.
pub struct Doubling<const BUG: u32>;

/// The published array: `start << 32 | capacity`, or two words.
const ARRAY: u64 = 8;
const CAPACITY: u64 = 16;

impl<const BUG: u32> Doubling<BUG> {
    fn array(pm: &Words) -> (u64, u64) {
        match pm.load(ARRAY) {
            0 => (64, 4),
            word if BUG == 0 => (word >> 32, word & 0xFFFF_FFFF),
            start => (start, pm.load(CAPACITY)),
        }
    }

    fn publish(pm: &Words, start: u64, capacity: u64) {
        if BUG == 0 {
            pm.store(ARRAY, start << 32 | capacity);
        } else {
            pm.store(CAPACITY, capacity);
            pm.persist(CAPACITY, 1);
            pm.store(ARRAY, start);
        }
        pm.persist(ARRAY, 1);
    }

    /// Returns the position of `key`, or of a free pair for key 0.
    fn find(pm: &Words, key: u64) -> Option<u64> {
        let (start, capacity) = Self::array(pm);
        (0..capacity).map(|at| start + at * 2).find(|&at| pm.load(at) == key)
    }

    fn double(pm: &Words) {
        let (start, capacity) = Self::array(pm);
        // Each array of 4, 8, 16 or 32 pairs has its own place.
        let target = 64 + capacity * 2 * 2;
        for at in 0..capacity * 2 {
            pm.store_relaxed(target + at, pm.load(start + at));
        }
        pm.persist(target, capacity * 2);
        Self::publish(pm, target, capacity * 2);
    }
}

impl<const BUG: u32> Small for Doubling<BUG> {
    const NAME: &'static str = "doubling";

    fn get(pm: &Words, key: u64) -> Option<u64> {
        let value = Self::find(pm, key + 1).map(|at| pm.load(at + 1));
        value.filter(|&value| value != 0).map(|value| value - 1)
    }

    fn set(pm: &Words, key: u64, value: Option<u64>) {
        let value = value.map_or(0, |value| value + 1);
        if let Some(at) = Self::find(pm, key + 1) {
            pm.store(at + 1, value);
            return pm.persist(at + 1, 1);
        }
        if Self::find(pm, 0).is_none() {
            Self::double(pm);
        }
        let at = Self::find(pm, 0).expect("just doubled");
        pm.store(at + 1, value);
        pm.persist(at + 1, 1);
        pm.store(at, key + 1);
        pm.persist(at, 1);
    }

    fn records(pm: &Words) -> Vec<(u64, u64)> {
        let (start, capacity) = Self::array(pm);
        let pairs = (0..capacity).map(|at| (pm.load(start + at * 2), pm.load(start + at * 2 + 1)));
        pairs
            .filter(|&(key, value)| key != 0 && value != 0)
            .map(|(key, value)| (key - 1, value - 1))
            .collect()
    }
}

/// PM4: a directory of two entries. The first segment splits by the key's lowest bit when it holds four keys. A
/// segment of depth 1 holds keys with one value of that bit only. Wrong: the depth changes before the directory.
pub struct Splitting<const BUG: u32>;

/// The segment of odd keys: 0 or 1.
const DIRECTORY: u64 = 8;
/// The depth of segment 0.
const DEPTH: u64 = 16;
const SEGMENT_SLOTS: u64 = 16;

impl<const BUG: u32> Splitting<BUG> {
    fn segment(pm: &Words, key: u64) -> u64 {
        if key % 2 == 1 { pm.load(DIRECTORY) } else { 0 }
    }

    fn pair(segment: u64, at: u64) -> u64 {
        64 + (segment * SEGMENT_SLOTS + at) * 2
    }

    /// Returns whether a record with `key` in segment `segment` is valid.
    fn belongs(pm: &Words, segment: u64, key: u64) -> bool {
        segment == 1 || pm.load(DEPTH) == 0 || key.is_multiple_of(2)
    }

    fn find(pm: &Words, segment: u64, key: u64) -> Option<u64> {
        (0..SEGMENT_SLOTS).map(|at| Self::pair(segment, at)).find(|&at| pm.load(at) == key)
    }

    fn split(pm: &Words) {
        if BUG != 0 {
            pm.store(DEPTH, 1);
            pm.persist(DEPTH, 1);
        }
        for at in 0..SEGMENT_SLOTS {
            let (from, to) = (Self::pair(0, at), Self::pair(1, at));
            if pm.load(from).is_multiple_of(2) {
                pm.store_relaxed(to, pm.load(from));
                pm.store_relaxed(to + 1, pm.load(from + 1));
            }
        }
        pm.persist(Self::pair(1, 0), SEGMENT_SLOTS * 2);
        pm.store(DIRECTORY, 1);
        pm.persist(DIRECTORY, 1);
        if BUG == 0 {
            pm.store(DEPTH, 1);
            pm.persist(DEPTH, 1);
        }
    }
}

impl<const BUG: u32> Small for Splitting<BUG> {
    const NAME: &'static str = "splitting";

    fn recover(pm: &Words) {
        if BUG == 0 && pm.load(DIRECTORY) == 1 && pm.load(DEPTH) == 0 {
            pm.store(DEPTH, 1);
            pm.persist(DEPTH, 1);
        }
    }

    fn get(pm: &Words, key: u64) -> Option<u64> {
        let segment = Self::segment(pm, key);
        let at = Self::find(pm, segment, key + 1).filter(|_| Self::belongs(pm, segment, key))?;
        pm.load(at + 1).checked_sub(1)
    }

    fn set(pm: &Words, key: u64, value: Option<u64>) {
        let value = value.map_or(0, |value| value + 1);
        let segment = Self::segment(pm, key);
        let at = Self::find(pm, segment, key + 1).or_else(|| Self::find(pm, segment, 0));
        let at = at.expect("fewer keys than slots");
        pm.store(at + 1, value);
        pm.persist(at + 1, 1);
        pm.store(at, key + 1);
        pm.persist(at, 1);
        if pm.load(DIRECTORY) == 0 && pm.load(Self::pair(0, 3)) != 0 {
            Self::split(pm);
        }
    }

    fn records(pm: &Words) -> Vec<(u64, u64)> {
        let mut records = Vec::new();
        for segment in 0..=pm.load(DIRECTORY) {
            for at in (0..SEGMENT_SLOTS).map(|at| Self::pair(segment, at)) {
                let (key, value) = (pm.load(at), pm.load(at + 1));
                let stale = segment == 0 && pm.load(DIRECTORY) == 1 && key.is_multiple_of(2);
                if key != 0 && value != 0 && !stale && Self::belongs(pm, segment, key - 1) {
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
    fn durable(pm: &Words) -> &Cell32 {
        pm.half(VALID * 2 + 2)
    }

    fn volatile(pm: &Words) -> &Volatile32 {
        pm.region.at(VALID * 8 + 12).expect("inside the region")
    }
}

impl<const BUG: u32> Small for Locking<BUG> {
    const NAME: &'static str = "locking";

    fn recover(pm: &Words) {
        if BUG != DURABLE_LOCK {
            Self::durable(pm).store(&pm.sim, 0, Release);
        }
        if BUG != VOLATILE_LOCK {
            Self::volatile(pm).store(&pm.sim, 0, Release);
        }
    }

    fn get(pm: &Words, key: u64) -> Option<u64> {
        find(pm, key).map(|at| pm.load(slot(at) + 1))
    }

    fn set(pm: &Words, key: u64, value: Option<u64>) {
        let mut rounds = 0;
        while Self::durable(pm).load(&pm.sim, Acquire) != 0
            || Self::volatile(pm).compare_exchange_weak(&pm.sim, 0, 1, Acquire, Relaxed).is_err()
        {
            pm.sim.wait(rounds);
            rounds += 1;
        }
        Self::durable(pm).store(&pm.sim, 1, Release);
        let from = find(pm, key);
        let to = value.map(|value| write_slot(pm, key, value));
        pm.store(VALID, moved(pm, from, to));
        pm.persist(VALID, 1);
        Self::durable(pm).store(&pm.sim, 0, Release);
        Self::volatile(pm).store(&pm.sim, 0, Release);
    }

    fn records(pm: &Words) -> Vec<(u64, u64)> {
        all(pm)
    }
}

/// PM7: creation. Empty slots hold a pattern that is not zero. Wrong: the table is sealed before the slots do.
pub struct Filled<const BUG: u32>;

const EMPTY: u64 = u64::MAX;

impl<const BUG: u32> Filled<BUG> {
    fn find(pm: &Words, word: u64) -> Option<u64> {
        (0..SLOTS).map(slot).find(|&at| pm.load(at) == word)
    }
}

impl<const BUG: u32> Small for Filled<BUG> {
    const NAME: &'static str = "filled";
    const SEALED_FIRST: bool = BUG != 0;

    fn format(pm: &Words) {
        (0..SLOTS).for_each(|at| pm.store_relaxed(slot(at), EMPTY));
        pm.persist(slot(0), SLOTS * 8);
    }

    fn get(pm: &Words, key: u64) -> Option<u64> {
        Self::find(pm, key).and_then(|at| pm.load(at + 1).checked_sub(1))
    }

    fn set(pm: &Words, key: u64, value: Option<u64>) {
        let at = Self::find(pm, key).or_else(|| Self::find(pm, EMPTY)).expect("a free slot");
        pm.store(at + 1, value.map_or(0, |value| value + 1));
        pm.persist(at + 1, 1);
        pm.store(at, key);
        pm.persist(at, 1);
    }

    fn records(pm: &Words) -> Vec<(u64, u64)> {
        let pairs = (0..SLOTS).map(slot).map(|at| (pm.load(at), pm.load(at + 1)));
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

    fn get(pm: &Words, key: u64) -> Option<u64> {
        find(pm, key).and_then(|at| pm.load(slot(at) + 1).checked_sub(1))
    }

    fn set(pm: &Words, key: u64, value: Option<u64>) {
        let word = value.map_or(0, |value| value + 1);
        match find(pm, key) {
            Some(at) => {
                pm.store(slot(at) + 1, word);
                if BUG != 0 {
                    let_others_in();
                }
                pm.persist(slot(at) + 1, 1);
            }
            None => {
                let at = write_slot(pm, key, word);
                pm.store(VALID, moved(pm, None, Some(at)));
                pm.persist(VALID, 1);
            }
        }
    }

    fn records(pm: &Words) -> Vec<(u64, u64)> {
        all(pm).into_iter().filter_map(|(key, value)| Some((key, value.checked_sub(1)?))).collect()
    }
}

/// PM9: blocks are taken from a durable allocation map, then linked. Wrong: recovery does not look for blocks that
/// were taken and never linked.
pub struct Allocating<const BUG: u32>;

const TAKEN: u64 = 16;

impl<const BUG: u32> Allocating<BUG> {
    fn change(pm: &Words, taken: u64) {
        pm.store(TAKEN, taken);
        pm.persist(TAKEN, 1);
    }
}

impl<const BUG: u32> Small for Allocating<BUG> {
    const NAME: &'static str = "allocating";

    fn recover(pm: &Words) {
        if BUG == 0 {
            Self::change(pm, pm.load(VALID));
        }
    }

    fn get(pm: &Words, key: u64) -> Option<u64> {
        find(pm, key).map(|at| pm.load(slot(at) + 1))
    }

    fn set(pm: &Words, key: u64, value: Option<u64>) {
        let from = find(pm, key);
        let to = value.map(|value| {
            let taken = pm.load(TAKEN);
            let at = (0..SLOTS).find(|&at| taken & bit(at) == 0).expect("a free block");
            Self::change(pm, taken | bit(at));
            pm.store_relaxed(slot(at), key + 1);
            pm.store_relaxed(slot(at) + 1, value);
            pm.persist(slot(at), 2);
            at
        });
        pm.store(VALID, moved(pm, from, to));
        pm.persist(VALID, 1);
        if let Some(from) = from {
            Self::change(pm, pm.load(TAKEN) & !bit(from));
        }
    }

    fn records(pm: &Words) -> Vec<(u64, u64)> {
        all(pm)
    }

    fn faults(pm: &Words) -> Vec<String> {
        let (taken, valid) = (pm.load(TAKEN), pm.load(VALID));
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

    fn get(pm: &Words, key: u64) -> Option<u64> {
        let at = find(pm, key)?;
        let (value, other) = (pm.load(slot(at) + 1), pm.load(slot(at) + 2));
        Some(if value == other ^ MASK { value } else { u64::MAX })
    }

    fn set(pm: &Words, key: u64, value: Option<u64>) {
        let from = find(pm, key);
        if let (true, Some(at), Some(value)) = (BUG != 0, from, value) {
            pm.store(slot(at) + 1, value);
            pm.store(slot(at) + 2, value ^ MASK);
            return pm.persist(slot(at), 3);
        }
        let to = value.map(|value| {
            let at = free_slot(pm);
            pm.store_relaxed(slot(at) + 2, value ^ MASK);
            write_slot(pm, key, value)
        });
        pm.store(VALID, moved(pm, from, to));
        pm.persist(VALID, 1);
    }

    fn records(pm: &Words) -> Vec<(u64, u64)> {
        all(pm)
    }
}

/// Publishes by the order of two stores to one line: the value, then the key. Right on persistent memory if the
/// second is a Release store; wrong on a disk (PM11 again) and wrong with a Relaxed one (PM10).
pub struct SameLine<const RELAXED: bool>;

impl<const RELAXED: bool> Small for SameLine<RELAXED> {
    const NAME: &'static str = "same-line";

    fn get(pm: &Words, key: u64) -> Option<u64> {
        let at = (0..SLOTS).map(slot).find(|&at| pm.load(at) == key + 1)?;
        Some(pm.load(at + 1))
    }

    fn set(pm: &Words, key: u64, value: Option<u64>) {
        let at = (0..SLOTS).map(slot).find(|&at| pm.load(at) == key + 1);
        match (at, value) {
            (Some(at), Some(value)) => pm.store(at + 1, value),
            (Some(at), None) => pm.store(at, 0),
            (None, Some(value)) => {
                let at = (0..SLOTS).map(slot).find(|&at| pm.load(at) == 0).expect("a free slot");
                pm.store_relaxed(at + 1, value);
                if RELAXED {
                    pm.store_relaxed(at, key + 1);
                } else {
                    pm.store(at, key + 1);
                }
                return pm.persist(at, 2);
            }
            (None, None) => return,
        }
        if let Some(at) = at {
            pm.persist(at, 2);
        }
    }

    fn records(pm: &Words) -> Vec<(u64, u64)> {
        let pairs = (0..SLOTS).map(slot).map(|at| (pm.load(at), pm.load(at + 1)));
        pairs.filter(|&(key, _)| key != 0).map(|(key, value)| (key - 1, value)).collect()
    }
}

/// A pass validates against a version that writers increment. Wrong: a record of the stash is published before the
/// version shows the change, as in a table whose own lookups use another word.
pub struct Stashed<const BUG: u32>;

impl<const BUG: u32> Stashed<BUG> {
    fn version(pm: &Words) -> &Volatile32 {
        pm.region.at(VALID * 8 + 8).expect("inside the region")
    }

    /// Increments the version. While it is odd, passes wait.
    fn step(pm: &Words) {
        let version = Self::version(pm);
        // Release: passes see the changes made before.
        version.store(&pm.sim, version.load(&pm.sim, Relaxed).wrapping_add(1), Release);
    }
}

impl<const BUG: u32> Small for Stashed<BUG> {
    const NAME: &'static str = "stashed";
    const WHOLE: bool = true;
    const LOCKED_PASSES: bool = false;

    fn recover(pm: &Words) {
        Self::version(pm).store(&pm.sim, 0, Release);
    }

    fn get(pm: &Words, key: u64) -> Option<u64> {
        find(pm, key).map(|at| pm.load(slot(at) + 1))
    }

    fn set(pm: &Words, key: u64, value: Option<u64>) {
        let from = find(pm, key);
        let to = value.map(|value| write_slot(pm, key, value));
        if BUG == 0 {
            Self::step(pm);
        }
        pm.store(VALID, moved(pm, from, to));
        if BUG != 0 {
            let_others_in();
        }
        pm.persist(VALID, 1);
        if BUG != 0 {
            Self::step(pm);
        }
        Self::step(pm);
    }

    fn clear(pm: &Words) {
        Self::step(pm);
        pm.store(VALID, 0);
        pm.persist(VALID, 1);
        Self::step(pm);
    }

    fn records(pm: &Words) -> Vec<(u64, u64)> {
        let version = Self::version(pm);
        let mut rounds = 0;
        loop {
            let before = version.load(&pm.sim, Acquire);
            let records = all(pm);
            if before.is_multiple_of(2) && version.load(&pm.sim, Acquire) == before {
                return records;
            }
            pm.sim.forget_reads();
            pm.sim.wait(rounds);
            rounds += 1;
        }
    }
}
