//! One block: its reference, its header, its checksum.

use std::sync::atomic::Ordering;

use crate::storage::cell::Overlay;
use crate::storage::{Cell64, Medium};

/// Blocks begin at multiples of this; offsets are stored in this unit.
pub(super) const UNIT_BYTES: u64 = 16;
/// Bytes of a block before its content.
pub(super) const HEADER_BYTES: u64 = size_of::<Header>() as u64;
/// The longest content of one blob.
pub const MAX_BLOB_BYTES: usize = 16 << 20;

const PLACE_BITS: u32 = 48;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;

/// Names a blob in one word of a slot.
///
/// The low 48 bits hold the block's offset in 16-byte units plus one, so that no reference is 0. The upper 16 bits are
/// the caller's; the store ignores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct BlobRef(u64);

impl BlobRef {
    /// Interprets a stored word as a reference. The word is checked when the reference is used.
    #[inline]
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the word to store.
    #[inline]
    #[must_use]
    pub fn word(self) -> u64 {
        self.0
    }

    /// Returns the caller's bits.
    #[inline]
    #[must_use]
    pub fn tag(self) -> u16 {
        (self.0 >> PLACE_BITS) as u16
    }

    /// Returns a reference to the same blob with other caller's bits.
    #[inline]
    #[must_use]
    pub fn with_tag(self, tag: u16) -> Self {
        Self(self.0 & PLACE_MASK | u64::from(tag) << PLACE_BITS)
    }

    /// Returns whether both name the same block, regardless of their tags.
    #[inline]
    #[must_use]
    pub fn same_block(self, other: Self) -> bool {
        (self.0 ^ other.0) & PLACE_MASK == 0
    }

    /// Returns the reference to the block that begins at byte `offset`.
    #[inline]
    pub(super) fn at(offset: u64) -> Self {
        debug_assert!(offset.is_multiple_of(UNIT_BYTES), "blocks begin at whole units");
        Self(offset / UNIT_BYTES + 1)
    }

    /// Returns the byte at which the block begins; `None` for words that name no block.
    #[inline]
    pub(super) fn offset(self) -> Option<u64> {
        Some((self.0 & PLACE_MASK).checked_sub(1)? * UNIT_BYTES)
    }
}

/// The first 16 bytes of a block.
///
/// They are cells, not bulk bytes: a corrupt reference may lead a reader to a header that another thread is writing.
#[repr(C)]
pub(super) struct Header {
    /// The content's length in the low half, its checksum in the high half.
    shape: Cell64,
    /// The hash of the key of the record that refers to the block.
    owner: Cell64,
}

const _: () = assert!(size_of::<Header>() == UNIT_BYTES as usize);
// SAFETY: two cells, `repr(C)`.
unsafe impl Overlay for Header {}

impl Header {
    /// Stores the header of `content`. The caller flushes it.
    #[track_caller]
    pub fn store(&self, storage: &impl Medium, owner: u64, content: &[u8]) {
        let shape = content.len() as u64 | u64::from(checksum(owner, content)) << 32;
        // Relaxed, both: the block has no reader before the table publishes its reference, with Release.
        self.shape.store(storage, shape, Ordering::Relaxed);
        self.owner.store(storage, owner, Ordering::Relaxed);
    }

    /// Returns the stored length. In a damaged file this can be any number.
    #[inline]
    #[track_caller]
    pub fn len(&self, storage: &impl Medium) -> usize {
        // Relaxed: the table has loaded the reference with Acquire.
        self.shape.load(storage, Ordering::Relaxed) as u32 as usize
    }

    /// Returns the stored owner word.
    #[inline]
    #[track_caller]
    pub fn owner(&self, storage: &impl Medium) -> u64 {
        // Relaxed: as in `len`.
        self.owner.load(storage, Ordering::Relaxed)
    }

    /// Returns whether the block was never written. No written header is zero: the checksum of the empty blob of owner
    /// 0 is not 0.
    #[track_caller]
    pub fn is_blank(&self, storage: &impl Medium) -> bool {
        self.shape.load(storage, Ordering::Relaxed) == 0 && self.owner(storage) == 0
    }

    /// Returns whether the checksum and the owner are those of `content`, written for `owner`.
    #[track_caller]
    pub fn describes(&self, storage: &impl Medium, owner: u64, content: &[u8]) -> bool {
        let sum = (self.shape.load(storage, Ordering::Relaxed) >> 32) as u32;
        self.owner(storage) == owner && sum == checksum(owner, content)
    }
}

/// Returns the header's two words for `content`: for tests that damage a block and then correct its checksum.
#[must_use]
pub fn header_words(owner: u64, content: &[u8]) -> [u64; 2] {
    [content.len() as u64 | u64::from(checksum(owner, content)) << 32, owner]
}

/// Odd constants with evenly spread bits (from the digits of e).
const MIX: [u64; 3] = [0xB7E1_5162_8AED_2A6B, 0xBF71_5880_9CF4_F3C7, 0x62E7_160F_38B4_DA57];

/// Computes a 32-bit checksum of the owner, the length and the content. It must be fast, because it is computed for
/// every value written. It protects against faults of the medium, not against attackers.
pub(super) fn checksum(owner: u64, content: &[u8]) -> u32 {
    let mut sum = fold(owner ^ MIX[0], content.len() as u64 ^ MIX[1]);
    let (pairs, rest) = content.as_chunks::<16>();
    for pair in pairs {
        let (low, high) = halves(pair);
        sum = fold(sum ^ low ^ MIX[1], high ^ MIX[2]);
    }
    let mut last = [0; 16];
    last[..rest.len()].copy_from_slice(rest);
    let (low, high) = halves(&last);
    sum = fold(sum ^ low ^ MIX[2], high ^ MIX[0]);
    (sum ^ sum >> 32) as u32
}

/// Multiplies to 128 bits and XORs the two halves, so that each input bit affects many output bits.
#[inline]
pub(super) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The two little-endian words of 16 bytes.
#[inline]
fn halves(bytes: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*bytes);
    (both as u64, (both >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_keep_place_and_tag_apart() {
        let blob = BlobRef::at(0);
        assert_ne!(blob.word(), 0);
        assert_eq!(blob.with_tag(0xFFFF).offset(), Some(0));
        assert_eq!(blob.with_tag(0xABCD).tag(), 0xABCD);
        assert!(blob.same_block(blob.with_tag(7)));
        assert!(!blob.same_block(BlobRef::at(16)));
        assert_eq!(BlobRef::from_word(0xFFFF << 48).offset(), None);
    }

    #[test]
    fn every_bit_counts_in_the_checksum() {
        assert_ne!(checksum(0, &[]), 0, "a blank header must not describe the empty blob");
        let content: Vec<u8> = (0..67).collect();
        let sum = checksum(9, &content);
        assert_ne!(sum, checksum(8, &content));
        assert_ne!(sum, checksum(9, &content[..66]));
        for bit in 0..content.len() * 8 {
            let mut other = content.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(sum, checksum(9, &other), "bit {bit}");
        }
    }
}
