//! The yards' metadata in DRAM (§3.1): one byte for each slot, a lock bit for each front bucket.
//!
//! A byte is EMPTY, RESERVED (back yard only: a thread is filling the slot), or the fingerprint of the slot's record,
//! which is published when the slot is durable. A front bucket's line changes only under its lock. A back bucket's word
//! changes by atomic operations, because its records belong to different front buckets.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::layout::MAX_FRONT;
use crate::base::group::{Isa, Native};
use crate::base::sync::{Line, fence};
use crate::storage::Medium;

/// The lock bit of a front bucket, in its last word: the highest bit of the last slot's byte, which therefore keeps
/// only seven bits of a fingerprint.
const LOCK: u64 = 1 << 63;
/// The byte of a slot without a record.
const EMPTY: u8 = 0;
/// The byte of a back slot that a thread is filling. It is not a fingerprint, because its low seven bits are 0.
const RESERVED: u8 = 0x80;

/// The slots of a front bucket that have a given fingerprint, and its empty slots. A hint only, unless the caller holds
/// the bucket's lock.
#[derive(Clone, Copy)]
pub(super) struct View {
    /// Slots that have the fingerprint.
    pub(super) candidates: u64,
    pub(super) empty: u64,
}

/// The line of a front bucket.
#[derive(Clone, Copy)]
pub struct FrontLine<'a>(pub &'a Line);

impl FrontLine<'_> {
    /// Returns the slots whose byte is `byte`; the last slot's byte is compared without the bit of the lock.
    #[inline(always)]
    fn find(self, isa: impl Isa, byte: u8) -> u64 {
        let found = self.0.find_bytes(isa, byte);
        // Acquire (E2): pairs with the Release in `publish`.
        fence(Acquire);
        found
    }

    /// Returns the slots of `mask` that have the fingerprint.
    #[inline(always)]
    pub fn candidates(self, fingerprint: u8, mask: u64) -> u64 {
        self.candidates_on(Native::default(), fingerprint, mask)
    }

    /// Computes [`FrontLine::candidates`] with `isa`.
    #[inline(always)]
    pub(super) fn candidates_on(self, isa: impl Isa, fingerprint: u8, mask: u64) -> u64 {
        self.find(isa, fingerprint) & mask
    }

    /// Returns the slots of `mask` that are empty.
    #[inline(always)]
    pub(super) fn empty(self, mask: u64) -> u64 {
        self.find(Native::default(), EMPTY) & mask
    }

    /// Returns [`FrontLine::candidates`] and [`FrontLine::empty`].
    #[inline(always)]
    pub(super) fn view(self, isa: impl Isa, fingerprint: u8, mask: u64) -> View {
        let (candidates, empty) = (self.find(isa, fingerprint), self.find(isa, EMPTY));
        View { candidates: candidates & mask, empty: empty & mask }
    }

    /// Returns whether a thread holds the lock.
    #[inline(always)]
    pub fn is_locked(self) -> bool {
        // Acquire (E1): pairs with the Release in `unlock`; a thread that sees the bit clear sees only durable words.
        self.0.0[7].load(Acquire) & LOCK != 0
    }

    /// Takes the lock and returns whether that succeeded.
    #[inline(always)]
    pub fn try_lock(self) -> bool {
        // Acquire (E1): pairs with the Release in `unlock`.
        !self.is_locked() && self.0.0[7].fetch_or(LOCK, Acquire) & LOCK == 0
    }

    #[inline(always)]
    pub(super) fn lock(self, storage: &impl Medium) {
        let mut rounds = 0;
        while !self.try_lock() {
            storage.wait(rounds);
            rounds = rounds.saturating_add(1);
        }
    }

    /// Releases the lock.
    #[inline(always)]
    pub fn unlock(self) {
        let word = &self.0.0[7];
        // Relaxed: only the holder of the lock changes the word; other threads only set the lock bit again. Release
        // (E1): everything that the holder did, its fence included, precedes the store.
        word.store(word.load(Relaxed) & !LOCK, Release);
    }

    /// Returns the byte of a slot, for `check` and halvings.
    pub(super) fn byte(self, slot: u32) -> u8 {
        // Acquire (E2).
        let byte = byte_of(self.0.0[slot as usize / 8].load(Acquire), slot % 8);
        if slot == MAX_FRONT - 1 { byte & 0x7F } else { byte }
    }

    /// Stores the fingerprint of a slot, under the lock (or before other threads can access the bucket).
    #[inline(always)]
    pub fn publish(self, slot: u32, fingerprint: u8) {
        self.put(slot, if slot == MAX_FRONT - 1 { fingerprint & 0x7F } else { fingerprint });
    }

    /// Makes a slot EMPTY, under the lock.
    #[inline(always)]
    pub fn clear(self, slot: u32) {
        self.put(slot, EMPTY);
    }

    /// Stores the bytes of all slots, before other threads can access the bucket, and clears the lock bit.
    pub(super) fn adopt(self, words: [u64; 8]) {
        for (word, bytes) in self.0.0.iter().zip(words) {
            word.store(bytes, Relaxed);
        }
        // Release (E2): the slots are durable.
        self.0.0[7].store(words[7] & !LOCK, Release);
    }

    /// Makes all slots EMPTY, while no thread holds the lock or can take it.
    pub(super) fn forget(self) {
        // Release (E2): the slots are durably empty.
        self.0.0.iter().for_each(|word| word.store(0, Release));
    }

    #[inline(always)]
    fn put(self, slot: u32, byte: u8) {
        let (word, shift) = (&self.0.0[slot as usize / 8], slot % 8 * 8);
        let keep = !(0xFF << shift) | if slot == MAX_FRONT - 1 { LOCK } else { 0 };
        // Relaxed: under the lock no other thread changes the word. Release (E2): the slot is durable.
        word.store(word.load(Relaxed) & keep | u64::from(byte) << shift, Release);
    }
}

#[derive(Clone, Copy)]
pub(super) struct BackWord<'a>(pub(super) &'a AtomicU64);

impl BackWord<'_> {
    #[inline(always)]
    pub(super) fn load(self) -> u64 {
        // Acquire (E2): pairs with the Release in `publish`.
        self.0.load(Acquire)
    }

    pub(super) fn byte(self, slot: u32) -> u8 {
        byte_of(self.load(), slot)
    }

    /// Claims the first empty slot of the first `slots` slots.
    pub(super) fn claim(self, slots: u32) -> Option<u32> {
        let mut word = self.0.load(Relaxed);
        loop {
            let slot = (0..slots).find(|&slot| byte_of(word, slot) == EMPTY)?;
            let claimed = word | u64::from(RESERVED) << (8 * slot);
            // AcqRel: the Acquire pairs with the Release in `change`, so the removal that emptied the slot is durable.
            match self.0.compare_exchange_weak(word, claimed, AcqRel, Relaxed) {
                Ok(_) => return Some(slot),
                Err(now) => word = now,
            }
        }
    }

    /// Stores the fingerprint of a claimed slot.
    pub(super) fn publish(self, slot: u32, fingerprint: u8) {
        self.change(slot, RESERVED, fingerprint);
    }

    /// Makes the slot of a removed record EMPTY.
    pub(super) fn clear(self, slot: u32) {
        self.change(slot, byte_of(self.0.load(Relaxed), slot), EMPTY);
    }

    /// Changes the byte of a slot that only the caller can change.
    fn change(self, slot: u32, from: u8, to: u8) {
        // Release (E2): the slot is durable.
        self.0.fetch_xor(u64::from(from ^ to) << (8 * slot), Release);
    }

    /// Stores all bytes of a bucket that only the caller can change.
    pub(super) fn store(self, word: u64) {
        // Release (E2): the slots are durable.
        self.0.store(word, Release);
    }
}

#[inline(always)]
pub(super) fn byte_of(word: u64, slot: u32) -> u8 {
    (word >> (8 * slot)) as u8
}

/// Returns the slots with records in a back bucket's word.
pub(super) fn used_back(word: u64, slots: u32) -> impl Iterator<Item = u32> {
    (0..slots).filter(move |&slot| !matches!(byte_of(word, slot), EMPTY | RESERVED))
}

/// Returns the number of taken slots in a back bucket.
#[inline]
pub(super) fn taken_back(word: u64) -> u32 {
    // Unused slots of narrow buckets are always EMPTY.
    8 - Native::default().match16([word, u64::MAX], EMPTY).count_ones()
}

/// Returns the slots of two back buckets that have the fingerprint: bits 0 to 7 and 8 to 15.
#[inline(always)]
pub(super) fn candidates_back(words: [u64; 2], fingerprint: u8) -> u32 {
    Native::default().match16(words, fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sync::Lines;
    use crate::storage::sim::{Sim, SimOptions};

    #[test]
    fn the_lock_bit_and_the_last_fingerprint_share_a_byte() {
        let lines = Lines::new(1).unwrap();
        let line = FrontLine(&lines[0]);
        let storage = Sim::new(SimOptions::default());
        for fingerprint in [0x01, 0x81, 0x7F, 0xFF] {
            line.lock(&storage);
            assert!(line.is_locked() && !line.try_lock());
            line.publish(63, fingerprint);
            assert!(line.is_locked());
            assert_eq!(line.candidates(fingerprint, u64::MAX), 1 << 63);
            assert_eq!(line.candidates(fingerprint ^ 0x80, u64::MAX), 1 << 63);
            assert_eq!(line.candidates(fingerprint ^ 0x02, u64::MAX), 0);
            assert_eq!(line.empty(u64::MAX), u64::MAX >> 1);
            line.unlock();
            assert!(!line.is_locked());
            assert_eq!(line.candidates(fingerprint, u64::MAX), 1 << 63);
            line.lock(&storage);
            line.clear(63);
            assert!(line.is_locked());
            line.unlock();
            assert_eq!(line.empty(u64::MAX), u64::MAX);
        }
    }

    #[test]
    fn back_slots_are_claimed_once() {
        let word = AtomicU64::new(0);
        let bucket = BackWord(&word);
        assert_eq!(bucket.claim(2), Some(0));
        assert_eq!(bucket.claim(2), Some(1));
        assert_eq!(bucket.claim(2), None);
        assert_eq!(taken_back(bucket.load()), 2);
        assert_eq!(used_back(bucket.load(), 2).count(), 0);
        bucket.publish(1, 0x85);
        assert_eq!(used_back(bucket.load(), 2).collect::<Vec<_>>(), [1]);
        assert_eq!(candidates_back([0, bucket.load()], 0x85), 1 << 9);
        bucket.publish(0, 0x85);
        bucket.clear(0);
        bucket.clear(1);
        assert_eq!(bucket.load(), 0);
    }
}
