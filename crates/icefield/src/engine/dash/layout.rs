//! The layout on the medium (§4.1, Figures 3 and 4), and the packed words.

use std::mem::offset_of;

use crate::storage::cell::Overlay;
use crate::storage::{Cell32, Cell64, Volatile32};

pub(super) const SLOTS: usize = 14;
pub(super) const OVERFLOW_SLOTS: usize = 4;
pub(super) const BUCKET_BYTES: u64 = 256;
/// Maximum depth of the directory: 2^28 entries index about 4 TiB of segments.
pub(super) const MAX_DEPTH: u32 = 28;

/// One record: two words in one line. A key or value that does not fit a word is a reference into the blob store.
#[repr(C, align(16))]
pub(super) struct Slot {
    pub(super) key: Cell64,
    pub(super) value: Cell64,
}

/// A bucket: one version lock, 32 bytes of metadata (lock included) and 14 records in four lines.
///
/// ```text
///  0        4          8              12     16                         32         256
///  | lock   | overflow | overflow fps | meta | 14 fingerprints, 2 unused | 14 slots  |
///  |------- volatile ---------------- | ------------- durable -------------------- |
/// ```
#[repr(C, align(64))]
pub(super) struct Bucket {
    /// The version lock (`base::version_lock`).
    pub(super) lock: Volatile32,
    /// [`OverflowWord`]: describes stashed records whose home is this bucket or the previous one; has the spill bit.
    pub(super) overflow: Volatile32,
    /// The fingerprints of stashed records, one byte for each place of `overflow`.
    pub(super) overflow_fingerprints: Volatile32,
    /// [`Meta`]: the slots that hold records. The commit point of every insert and remove is a store to this word.
    pub(super) meta: Cell32,
    /// One byte per slot, the low byte of the key's hash; bytes 14 and 15 are unused.
    pub(super) fingerprints: [Cell64; 2],
    pub(super) slots: [Slot; SLOTS],
}

/// The words of a segment, 32 bytes in `headers.ice`. They are apart from the buckets because lookups need them only
/// for a chain, and a pass over all segments reads two headers per line.
#[repr(C)]
pub(super) struct Header {
    /// [`Link`]: state, local depth, right neighbour. The commit point of a split is a store to this word.
    pub(super) link: Cell64,
    /// The hash prefix that the segment covers, left-aligned. Never changes while the segment is live.
    pub(super) pattern: Cell64,
    /// The chain of further stash buckets: one more than the number of its first block in `chains.ice`; 0 if the
    /// segment has no chain.
    pub(super) chain: Cell64,
    /// Linear hashing: one more than the generation in which the segment was last made. If that generation is not the
    /// present one, the segment's chain is ignored. Extendible hashing: 0.
    pub(super) birth: Cell64,
}

/// A chained stash bucket: a block of `chains.ice`.
#[repr(C, align(64))]
pub(super) struct ChainBlock {
    /// One more than the number of the next block of the chain or of the free list; 0 in the last block.
    pub(super) next: Cell64,
    _reserved: [Cell64; 7],
    pub(super) bucket: Bucket,
}

/// The table's root words, page 1 of `table.ice`.
#[repr(C)]
pub(super) struct Root {
    /// The root word: [`RootWord`] with extendible hashing, `Extent` with linear hashing. The commit point of doubling,
    /// expansion and `clear`.
    pub(super) directory: Cell64,
    _reserved: [Cell64; 7],
    pub(super) segments: crate::storage::alloc::Words,
    pub(super) chains: crate::storage::alloc::Words,
}

// SAFETY: `repr(C)`, cells only, alignment 16.
unsafe impl Overlay for Slot {}
// SAFETY: `repr(C)`, cells only, alignment 64.
unsafe impl Overlay for Bucket {}
// SAFETY: `repr(C)`, cells only.
unsafe impl Overlay for Header {}
// SAFETY: `repr(C)`, cells and overlays only, alignment 64.
unsafe impl Overlay for ChainBlock {}
// SAFETY: `repr(C)`, cells and overlays only.
unsafe impl Overlay for Root {}

const _: () = assert!(size_of::<Bucket>() as u64 == BUCKET_BYTES);
const _: () = assert!(offset_of!(Bucket, meta) == 12 && offset_of!(Bucket, fingerprints) == 16);
const _: () = assert!(offset_of!(Bucket, slots) == 32);
const _: () = assert!(Bucket::slots_beside_meta() == 0b11);
const _: () = assert!(size_of::<Header>() == 32);
const _: () = assert!(size_of::<ChainBlock>() == 320 && offset_of!(ChainBlock, bucket) == 64);
const _: () = assert!(size_of::<Root>() as u64 <= crate::storage::superblock::ROOT_BYTES);

/// The dimensions of segments. Users select only `stash`; tests and ablations also change the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Number of normal buckets in a segment, a power of two from 2 to 512.
    pub buckets: u32,
    /// Number of slots of a bucket that are used, 1 to 14.
    pub slots: u32,
    /// Number of stash buckets in a segment, at most 4.
    pub stash: u32,
}

impl Default for Geometry {
    fn default() -> Self {
        Self { buckets: 64, slots: SLOTS as u32, stash: 2 }
    }
}

impl Geometry {
    pub(super) fn is_valid(self) -> bool {
        self.buckets.is_power_of_two()
            && (2..=512).contains(&self.buckets)
            && (1..=SLOTS as u32).contains(&self.slots)
            && self.stash <= 4
    }

    /// The number of buckets in a segment, stash included.
    #[inline]
    pub(super) fn all_buckets(self) -> usize {
        (self.buckets + self.stash) as usize
    }

    /// The number of slots in a segment, stash included.
    #[inline]
    pub(super) fn segment_slots(self) -> u64 {
        self.all_buckets() as u64 * u64::from(self.slots)
    }

    #[inline]
    pub(super) fn segment_bytes(self) -> u64 {
        self.all_buckets() as u64 * BUCKET_BYTES
    }

    /// Returns the home bucket of a key. The hash bits from 8 on select it; they lie between those of the fingerprint
    /// and those of the directory index.
    #[inline]
    pub(super) fn home(self, hash: u64) -> usize {
        (hash >> 8) as usize & (self.buckets as usize - 1)
    }

    /// Returns the probing bucket of a home bucket.
    #[inline]
    pub(super) fn next(self, bucket: usize) -> usize {
        (bucket + 1) & (self.buckets as usize - 1)
    }

    /// Returns the bucket whose probing bucket is `bucket`.
    #[inline]
    pub(super) fn previous(self, bucket: usize) -> usize {
        bucket.wrapping_sub(1) & (self.buckets as usize - 1)
    }

    /// Returns a mask of the slots that are used. The first and the last of them lie on either side of the end of the
    /// metadata's line where possible, so that tests with few slots see records inside and outside that line.
    #[inline]
    pub(super) fn slot_mask(self) -> u32 {
        let unused = SLOTS as u32 - self.slots;
        let first = if self.slots == 1 { unused } else { unused.min(1) };
        ((1 << self.slots) - 1) << first
    }

    /// Returns a mask of the first slots, nine of 14. While one of them is free, a bucket takes each new record of its
    /// own, however few records are in the next bucket.
    pub(super) fn own_slots(self) -> u32 {
        let mask = self.slot_mask();
        mask & ((1 << (self.slots * 9 / 14)) - 1) << mask.trailing_zeros()
    }
}

#[inline]
pub(super) fn fingerprint(hash: u64) -> u8 {
    hash as u8
}

/// A bucket's durable metadata: allocation bitmap (bits 0-13) and membership bitmap (bits 14-27; set: the record's home
/// is the previous bucket). One store changes both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta(pub(super) u32);

impl Meta {
    const MASK: u32 = (1 << SLOTS) - 1;

    /// A bit per slot: set if the slot holds a record.
    #[inline]
    pub(super) fn allocated(self) -> u32 {
        self.0 & Self::MASK
    }
    /// A bit per slot: set if its record's home is the previous bucket.
    #[inline]
    pub(super) fn members(self) -> u32 {
        (self.0 >> SLOTS) & Self::MASK
    }
    #[inline]
    pub(super) fn count(self) -> u32 {
        self.allocated().count_ones()
    }
    #[inline]
    #[must_use]
    pub(super) fn with(self, slot: usize, member: bool) -> Self {
        Self(self.0 | 1 << slot | u32::from(member) << (slot + SLOTS))
    }
    #[inline]
    #[must_use]
    pub(super) fn without(self, slots: u32) -> Self {
        Self(self.0 & !(slots | slots << SLOTS))
    }
}

/// A home bucket's overflow metadata (§4.3): four places for fingerprints of records in the stash, a count of the
/// records without a place, and the *spill bit*.
///
/// Bits 0-3: place taken. 4-7: the record's home is the previous bucket. 8-15: stash bucket, two bits a place. 16-30:
/// number of further records of this home in the stash or its chain; saturates at its maximum. 31: the next bucket may
/// hold records of this home, or places that describe such records. If the word is 0, all records of this home are in
/// this bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OverflowWord(pub(super) u32);

impl OverflowWord {
    const COUNT_SHIFT: u32 = 16;
    const COUNT_MAX: u32 = (1 << 15) - 1;
    const SPILLS: u32 = 1 << 31;

    #[inline]
    pub(super) fn taken(self) -> u32 {
        self.0 & 0xF
    }
    #[inline]
    pub(super) fn members(self) -> u32 {
        (self.0 >> 4) & 0xF
    }
    #[inline]
    pub(super) fn stash_bucket(self, place: usize) -> usize {
        (self.0 >> (8 + 2 * place)) as usize & 3
    }
    #[inline]
    pub(super) fn count(self) -> u32 {
        self.0 >> Self::COUNT_SHIFT & Self::COUNT_MAX
    }
    #[inline]
    pub(super) fn spills(self) -> bool {
        self.0 & Self::SPILLS != 0
    }
    #[must_use]
    pub(super) fn spilling(self, spills: bool) -> Self {
        Self(self.0 & !Self::SPILLS | if spills { Self::SPILLS } else { 0 })
    }
    #[must_use]
    pub(super) fn with(self, place: usize, member: bool, stash_bucket: usize) -> Self {
        let cleared = self.without(place).0;
        Self(
            cleared
                | 1 << place
                | u32::from(member) << (4 + place)
                | (stash_bucket as u32 & 3) << (8 + 2 * place),
        )
    }
    #[must_use]
    pub(super) fn without(self, place: usize) -> Self {
        Self(self.0 & !(1 << place | 1 << (4 + place) | 3 << (8 + 2 * place)))
    }
    #[must_use]
    pub(super) fn counted_up(self) -> Self {
        if self.count() == Self::COUNT_MAX { self } else { Self(self.0 + (1 << Self::COUNT_SHIFT)) }
    }
    #[must_use]
    pub(super) fn counted_down(self) -> Self {
        match self.count() {
            0 | Self::COUNT_MAX => self,
            _ => Self(self.0 - (1 << Self::COUNT_SHIFT)),
        }
    }
}

/// The state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In the directory, or new and not yet in the directory.
    Stable,
    /// Its right neighbour holds a complete copy of the half of the records that will move there.
    Splitting,
    /// In the free list; `side` is the next free segment.
    Free,
    /// It holds the records of its right neighbour, which is about to be freed.
    Absorbing,
    /// Its left neighbour may be about to absorb its records: recovery of this segment recovers the left one first.
    Leaving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) state: State,
    pub(super) depth: u32,
    /// The right neighbour in hash order; `None` for the last segment.
    pub(super) side: Option<u32>,
}

impl Link {
    pub(super) fn pack(self) -> u64 {
        let state = match self.state {
            State::Stable => 1,
            State::Splitting => 2,
            State::Free => 3,
            State::Absorbing => 4,
            State::Leaving => 5,
        };
        state | u64::from(self.depth) << 8 | self.side.map_or(0, |side| u64::from(side) + 1) << 16
    }

    /// Returns `None` for a word that no link packs to.
    pub(super) fn unpack(word: u64) -> Option<Self> {
        let state = match word & 0xFF {
            1 => State::Stable,
            2 => State::Splitting,
            3 => State::Free,
            4 => State::Absorbing,
            5 => State::Leaving,
            _ => return None,
        };
        let depth = (word >> 8) as u32 & 0xFF;
        let side = match word >> 16 {
            0 => None,
            side => Some(u32::try_from(side - 1).ok()?),
        };
        (depth <= MAX_DEPTH).then_some(Self { state, depth, side })
    }
}

/// Generation and depth of the directory. Each `clear` starts a generation; the parity of the generation selects the
/// directory region and the set of allocator words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RootWord {
    pub(super) generation: u64,
    pub(super) depth: u32,
}

impl RootWord {
    #[inline]
    pub(super) fn pack(self) -> u64 {
        self.generation << 8 | u64::from(self.depth)
    }
    #[inline]
    pub(super) fn unpack(word: u64) -> Self {
        Self { generation: word >> 8, depth: word as u32 & 0xFF }
    }
    #[inline]
    pub(super) fn parity(self) -> usize {
        (self.generation & 1) as usize
    }
    /// Returns the index of the directory entry of a hash.
    #[inline]
    pub(super) fn index(self, hash: u64) -> u64 {
        self.place(hash) - (1 << self.depth)
    }
    /// Returns the place of a hash's directory entry in the region. The directory of each depth begins at place
    /// 2^depth.
    #[inline]
    pub(super) fn place(self, hash: u64) -> u64 {
        (1 << 63 | hash >> 1) >> (63 - self.depth)
    }
}

/// Returns the hash bit that separates the halves of a segment of local depth `depth`.
#[inline]
pub(super) fn split_bit(depth: u32) -> u64 {
    1 << (63 - depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_slots_are_the_first_ones() {
        let own = |slots| Geometry { slots, ..Geometry::default() }.own_slots();
        assert_eq!(own(14), 0x1FF);
        assert_eq!((own(7), own(2), own(1)), (0b1_1110, 0b10, 0));
    }

    #[test]
    fn overflow_words_keep_their_places_apart() {
        let word = OverflowWord::default().with(0, false, 3).with(2, true, 1).counted_up();
        assert_eq!((word.taken(), word.members(), word.count()), (0b101, 0b100, 1));
        assert_eq!((word.stash_bucket(0), word.stash_bucket(2)), (3, 1));
        let emptied = word.spilling(true).without(0).without(2).counted_down();
        assert!(emptied.spills() && !word.spills());
        assert_eq!(emptied.spilling(false), OverflowWord::default());
    }

    #[test]
    fn a_full_overflow_count_sticks() {
        let mut word = OverflowWord(u32::MAX);
        word = word.counted_up().counted_down();
        assert_eq!(word.count(), 0x7FFF);
        assert!(word.spills());
    }

    #[test]
    fn links_survive_packing_and_nonsense_is_refused() {
        for side in [None, Some(0), Some(u32::MAX - 1)] {
            let link = Link { state: State::Splitting, depth: 7, side };
            assert_eq!(Link::unpack(link.pack()), Some(link));
        }
        assert_eq!(Link::unpack(0), None);
        assert_eq!(Link::unpack(1 | 64 << 8), None);
        assert_eq!(Link::unpack(u64::MAX), None);
    }

    #[test]
    fn directory_index_takes_the_top_bits() {
        assert_eq!(RootWord { generation: 0, depth: 0 }.index(u64::MAX), 0);
        assert_eq!(RootWord { generation: 0, depth: 3 }.index(0b101 << 61), 0b101);
    }
}
