//! The layout on the medium (§2, §6), and the hash bits that determine the buckets of a record.

use std::mem::offset_of;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::base::group::WholeLoads;
use crate::storage::cell::Overlay;
use crate::storage::{Cell64, Cell128, Medium};

/// The key word of a slot that holds no record.
pub(super) const EMPTY_KEY: u64 = 0;
/// The key word of the side slot while it holds the record of the key whose word is [`EMPTY_KEY`].
pub(super) const SIDE_KEY: u64 = 1;
pub(super) const SLOT_BYTES: u64 = 16;
/// Maximum number of slots in a front bucket: one fingerprint line.
pub(super) const MAX_FRONT: u32 = 64;
/// Maximum number of slots in a back bucket: one fingerprint word.
pub(super) const MAX_BACK: u32 = 8;
/// Maximum depth: 2^32 buckets in each yard hold 300 billion records.
pub(super) const MAX_DEPTH: u32 = 32;

/// One record: key word and value word, both in one line.
#[repr(transparent)]
pub(super) struct Slot(Cell128);

// SAFETY: transparent over an overlay.
unsafe impl Overlay for Slot {}

impl Slot {
    /// Loads both words, as of one moment given the proof that the processor can.
    #[inline(always)]
    #[track_caller]
    pub(super) fn load(&self, storage: &impl Medium, whole: Option<WholeLoads>) -> [u64; 2] {
        // Acquire (E3): pairs with the Release stores below.
        self.0.load(storage, whole)
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn key(&self, storage: &impl Medium) -> u64 {
        // Acquire (E3): as above.
        self.0.load_word::<0>(storage, Acquire)
    }

    /// Loads the value word. The caller makes sure that the record does not change.
    #[inline(always)]
    #[track_caller]
    pub(super) fn value(&self, storage: &impl Medium) -> u64 {
        self.0.load_word::<1>(storage, Relaxed)
    }

    /// Fills an empty slot. A crash between the two stores leaves an empty slot.
    #[inline(always)]
    #[track_caller]
    pub(super) fn fill(&self, storage: &impl Medium, key: u64, value: u64) {
        self.set_value(storage, value);
        // Release (E3): the value is stored before the key, in memory and on the medium.
        self.0.store_word::<0>(storage, key, Release);
    }

    /// Replaces the key word by another word for the same key.
    #[track_caller]
    pub(super) fn set_key(&self, storage: &impl Medium, key: u64) {
        // Release (E3): as in `set_value`.
        self.0.store_word::<0>(storage, key, Release);
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn set_value(&self, storage: &impl Medium, value: u64) {
        // Release (E3): the blob behind a reference was written before.
        self.0.store_word::<1>(storage, value, Release);
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn empty(&self, storage: &impl Medium) {
        // Release (E3), as for every word of a slot.
        self.0.store_word::<0>(storage, EMPTY_KEY, Release);
    }
}

/// The table's root words, page 1 of `table.ice`.
#[repr(C)]
pub(super) struct Root {
    /// [`Shape`]. The commit point of a doubling, a halving and `clear`.
    pub(super) shape: Cell64,
    _reserved: [Cell64; 7],
    /// The record of the key whose word is [`EMPTY_KEY`].
    pub(super) side: Slot,
    _reserved_side: [Cell64; 6],
}

// SAFETY: `repr(C)`, cells and overlays only.
unsafe impl Overlay for Root {}

impl Root {
    /// Returns the stored shape, or `None` if the word is invalid.
    pub(super) fn stored_shape(&self, storage: &impl Medium) -> Option<Shape> {
        Shape::checked(self.shape.load(storage, Acquire))
    }
}

const _: () = assert!(size_of::<Slot>() as u64 == SLOT_BYTES && align_of::<Slot>() == 16);
const _: () = assert!(offset_of!(Root, side) == 64 && size_of::<Root>() == 128);
const _: () = assert!(size_of::<Root>() as u64 <= crate::storage::superblock::ROOT_BYTES);

/// The dimensions of buckets (Table 6). Only tests and ablations use anything but the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Yards {
    /// Number of slots in a front bucket, 1 to 64.
    pub front: u32,
    /// Number of slots in a back bucket, 1 to 8.
    pub back: u32,
}

impl Default for Yards {
    fn default() -> Self {
        Self { front: MAX_FRONT, back: MAX_BACK }
    }
}

impl Yards {
    /// Returns whether the fields are within their bounds.
    pub(super) fn is_valid(self) -> bool {
        (1..=MAX_FRONT).contains(&self.front) && (1..=MAX_BACK).contains(&self.back)
    }

    /// Returns the number of slots in a front and a back bucket together.
    #[inline]
    pub(super) fn slots(self) -> u64 {
        u64::from(self.front + self.back)
    }

    /// Returns the bytes of a front bucket and of a back bucket.
    pub(super) fn bucket_bytes(self) -> [u64; 2] {
        [self.front, self.back].map(|slots| u64::from(slots) * SLOT_BYTES)
    }
}

/// The step that the table as a whole is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Every record is in a bucket of its hash.
    Stable = 1,
    /// Records of the upper half may still be in the lower half.
    Doubling = 2,
    /// The table is empty, whatever the slots hold.
    Clearing = 3,
    /// Records may still be in the upper half of the yards, above the present buckets.
    Halving = 4,
}

/// The number of buckets in each yard, the phase of the table, and the number of steps so far, in one word.
///
/// ```text
/// 63 number of the step 16 | 15 phase 8 | 7 depth 0
/// ```
///
/// Each yard has 2^depth buckets. During a doubling or halving, `depth` is already the new depth. Every change of the
/// word increments the step number, so an unchanged word means that no step intervened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape(u64);

impl Shape {
    /// Returns the shape of an empty new table.
    pub(super) fn first(depth: u32) -> Self {
        Self(u64::from(depth) | (Phase::Stable as u64) << 8)
    }

    #[inline(always)]
    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// Converts a word that [`Shape::word`] has returned.
    #[inline(always)]
    pub(super) fn of(word: u64) -> Self {
        debug_assert!(Self::checked(word).is_some());
        Self(word)
    }

    /// Returns `None` for a word that is not a valid shape.
    pub(super) fn checked(word: u64) -> Option<Self> {
        let shape = Self(word);
        let possible = match (word >> 8) as u8 {
            1 | 3 => shape.depth() <= MAX_DEPTH,
            2 => (1..=MAX_DEPTH).contains(&shape.depth()),
            4 => shape.depth() < MAX_DEPTH,
            _ => false,
        };
        possible.then_some(shape)
    }

    /// Returns the shape of the next step, which has this depth and phase.
    #[must_use]
    pub(super) fn then(self, depth: u32, phase: Phase) -> Self {
        Self(u64::from(depth) | (phase as u64) << 8 | ((self.0 >> 16) + 1) << 16)
    }

    #[inline(always)]
    pub(super) fn depth(self) -> u32 {
        u32::from(self.0 as u8)
    }

    pub(super) fn phase(self) -> Phase {
        match (self.0 >> 8) as u8 {
            1 => Phase::Stable,
            2 => Phase::Doubling,
            3 => Phase::Clearing,
            _ => Phase::Halving,
        }
    }

    #[inline(always)]
    pub(super) fn is(self, phase: Phase) -> bool {
        (self.0 >> 8) as u8 == phase as u8
    }

    /// Returns the bucket that may still hold records of `bucket` while a doubling or halving moves them.
    pub(super) fn unfinished(self, bucket: u64) -> Option<u64> {
        match self.phase() {
            Phase::Doubling => bucket.checked_sub(self.buckets() / 2),
            Phase::Halving => Some(bucket + self.buckets()),
            Phase::Stable | Phase::Clearing => None,
        }
    }

    /// Returns the number of buckets in each yard.
    #[inline(always)]
    pub(super) fn buckets(self) -> u64 {
        1 << (self.0 & 63)
    }

    /// Returns the depth of the yards, including buckets that a halving has not emptied yet.
    #[inline]
    pub(super) fn extent(self) -> u32 {
        self.depth() + u32::from(self.is(Phase::Halving))
    }

    /// Returns the front bucket of a hash (h0).
    #[inline(always)]
    pub(super) fn front(self, hash: u64) -> u64 {
        hash & (self.buckets() - 1)
    }

    /// Returns the two back buckets of a hash (h1, h2).
    #[inline(always)]
    pub(super) fn back(self, hash: u64) -> [u64; 2] {
        let words = back_words(hash);
        [words & (self.buckets() - 1), words >> 32 & (self.buckets() - 1)]
    }

    /// Returns the front bucket of a hash before this doubling or halving, if it is a different one.
    #[inline]
    pub(super) fn front_before(self, hash: u64) -> Option<u64> {
        if self.is(Phase::Stable) {
            return None;
        }
        let before = self.before(hash);
        (before != self.front(hash)).then_some(before)
    }

    /// Returns the back buckets of a hash before this doubling or halving.
    #[inline]
    pub(super) fn back_before(self, hash: u64) -> [u64; 2] {
        let words = back_words(hash);
        [self.before(words), self.before(words >> 32)]
    }

    fn before(self, word: u64) -> u64 {
        let buckets = match self.phase() {
            Phase::Stable | Phase::Clearing => self.buckets(),
            Phase::Doubling => self.buckets() / 2,
            Phase::Halving => self.buckets() * 2,
        };
        word & (buckets - 1)
    }
}

/// Returns the bits that select the back buckets, 32 for each, independent of the front bucket's bits. The lowest bits
/// of the two halves differ. So a hash has two different back buckets in every table with at least two buckets per
/// yard, and a halving never joins them: the present back bucket of a record determines its bucket in any larger table.
#[inline]
fn back_words(hash: u64) -> u64 {
    // Arbitrary constants: the fractions of the square roots of three and two. The factor must be odd.
    let product = u128::from(hash ^ 0xBB67_AE85_84CA_A73B) * 0x6A09_E667_F3BC_C909;
    let words = product as u64 ^ (product >> 64) as u64;
    words & !(1 << 32) | (!words & 1) << 32
}

/// Returns whether a record with this hash, in this back bucket of a table of this depth, is at or after a place in
/// scan order ([`scan_place`]).
pub(super) fn back_is_behind(hash: u64, bucket: u64, depth: u32, place: u64) -> bool {
    let words = back_words(hash);
    [words & u64::from(u32::MAX), words >> 32]
        .into_iter()
        .any(|word| word & ((1 << depth) - 1) == bucket && scan_place(word) >= place)
}

/// Converts a bucket number to its place in scan order, which is the number with its bits reversed, or such a place to
/// its bucket number. A doubling splits a place into two neighbours.
#[inline]
pub(super) fn scan_place(bucket: u64) -> u64 {
    bucket.reverse_bits()
}

/// Returns the one-byte hash by which buckets are searched. Its low seven bits are never all clear.
#[inline(always)]
pub(super) fn fingerprint(hash: u64) -> u8 {
    fingerprint_of((hash >> 56) as u8)
}

/// Computes [`fingerprint`] from the hash's highest byte.
#[inline(always)]
pub(super) fn fingerprint_of(byte: u8) -> u8 {
    byte | u8::from(byte & 0x7F == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_differ_and_nonsense_is_refused() {
        let mut shape = Shape::first(7);
        for phase in [Phase::Doubling, Phase::Stable, Phase::Clearing, Phase::Halving] {
            let next = shape.then(7, phase);
            assert_eq!((next.depth(), next.phase(), next.is(phase)), (7, phase, true));
            assert_eq!(Shape::checked(next.word()), Some(next));
            assert_ne!((next, next.then(7, phase)), (shape, next));
            shape = next;
        }
        assert_eq!(Shape::checked(0), None);
        assert_eq!(Shape::checked(33 | 1 << 8), None);
        assert_eq!(Shape::checked(2 << 8), None);
        assert_eq!(Shape::checked(32 | 4 << 8), None);
        assert_eq!(Shape::checked(u64::MAX), None);
        // The number of the step wraps within its bits.
        let last = Shape::checked(Shape::first(7).word() | u64::MAX << 16).unwrap();
        assert_eq!(last.then(7, Phase::Stable), Shape::first(7));
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics of integers")]
    fn fingerprints_leave_empty_and_reserved_alone() {
        let mut seen = [0_u32; 256];
        for high in 0..=u16::MAX {
            seen[usize::from(fingerprint(u64::from(high) << 48))] += 1;
        }
        assert_eq!((seen[0], seen[0x80]), (0, 0));
        assert!(seen.iter().enumerate().all(|(byte, &count)| byte % 128 == 0 || count >= 256));
    }

    #[test]
    fn a_doubling_splits_buckets_in_two_and_a_halving_joins_them() {
        let before = Shape::first(5);
        let after = before.then(6, Phase::Doubling);
        for n in 0..1000_u64 {
            let hash = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let back = before.back(hash);
            assert_eq!(after.front(hash) & 31, before.front(hash));
            assert_eq!(after.back(hash).map(|bucket| bucket & 31), back);
            assert_eq!(after.back_before(hash), back);
            assert_eq!(after.front_before(hash).unwrap_or(after.front(hash)), before.front(hash));
            let halving = after.then(5, Phase::Halving);
            assert_eq!(halving.back(hash), back);
            assert_eq!(halving.back_before(hash), after.back(hash));
            assert_eq!(
                halving.front_before(hash).unwrap_or(halving.front(hash)),
                after.front(hash)
            );
        }
    }

    #[test]
    fn scan_places_ascend_and_split_into_neighbours() {
        for depth in [1, 2, 5] {
            let mut places: Vec<u64> = (0..1 << depth).map(scan_place).collect();
            places.sort_unstable();
            let width = 1_u64 << (64 - depth);
            assert!(places.iter().enumerate().all(|(at, &place)| place == at as u64 * width));
            for bucket in 0..1 << depth {
                let place = scan_place(bucket);
                assert_eq!(scan_place(bucket + (1 << depth)), place + width / 2);
                assert_eq!(scan_place(place), bucket);
            }
        }
    }
}
