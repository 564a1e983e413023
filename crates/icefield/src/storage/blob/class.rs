//! Size classes, and the word that the chunk map holds for each chunk.

use super::block::{HEADER_BYTES, UNIT_BYTES, fold};

/// The smallest block: a header and an equal number of content bytes.
const MIN_BLOCK_BYTES: u32 = 32;

/// The kind and amount of space that a blob occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// One block of the size class with this index.
    Small(usize),
    /// This number of whole chunks.
    Large(u32),
}

/// The block sizes of a store, ascending.
#[derive(Debug)]
pub(super) struct Classes {
    sizes: Vec<u32>,
    chunk_bytes: u32,
}

impl Classes {
    /// Returns the sizes for chunks of `chunk_bytes` (a power of two): multiples of 16 bytes up to 128, then four
    /// sizes per doubling up to a quarter of a chunk, then a third and a half of a chunk.
    pub fn new(chunk_bytes: u32) -> Self {
        let mut sizes = Vec::new();
        let mut size = MIN_BLOCK_BYTES;
        while size <= chunk_bytes / 4 {
            sizes.push(size);
            size += if size < 128 { 16 } else { (1 << size.ilog2()) / 4 };
        }
        sizes.push(chunk_bytes / 3 / UNIT_BYTES as u32 * UNIT_BYTES as u32);
        sizes.push(chunk_bytes / 2);
        Self { sizes, chunk_bytes }
    }

    /// Returns the number of classes.
    pub fn count(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the block size of a class.
    #[inline]
    pub fn size(&self, class: usize) -> u32 {
        self.sizes[class]
    }

    /// Returns the number of blocks in a chunk of a class.
    #[inline]
    pub fn blocks(&self, class: usize) -> u32 {
        self.chunk_bytes / self.sizes[class]
    }

    /// Returns the smallest extent that holds `content` bytes.
    #[inline]
    pub fn extent(&self, content: usize) -> Extent {
        let bytes = content as u64 + HEADER_BYTES;
        let class = self.sizes.partition_point(|&size| u64::from(size) < bytes);
        if class < self.sizes.len() {
            return Extent::Small(class);
        }
        // No overflow: a content to be written has at most MAX_BLOB_BYTES, and a length read from a header is below
        // 2^32.
        Extent::Large(bytes.div_ceil(u64::from(self.chunk_bytes)) as u32)
    }

    /// Returns the map word of chunk `number` if `extent` begins there.
    pub fn encode(&self, number: u32, extent: Extent) -> u64 {
        match extent {
            Extent::Small(class) => seal(number, SMALL, self.sizes[class]),
            Extent::Large(chunks) => seal(number, LARGE, chunks),
        }
    }

    /// Returns the extent that begins at chunk `number` according to its map word. `Ok(None)`: no extent begins there;
    /// `Err`: the blob store never writes this word for this chunk.
    pub fn decode(&self, number: u32, word: u64) -> Result<Option<Extent>, Damaged> {
        if word == FREE {
            return Ok(None);
        }
        let value = (word >> VALUE_SHIFT) as u32;
        let kind = word & KIND_MASK;
        if word != seal(number, kind, value) {
            return Err(Damaged);
        }
        match kind {
            SMALL => self
                .sizes
                .binary_search(&value)
                .map(|class| Some(Extent::Small(class)))
                .map_err(|_| Damaged),
            LARGE if value > 0 => Ok(Some(Extent::Large(value))),
            _ => Err(Damaged),
        }
    }
}

/// A map word that the blob store never writes for this chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

/// The word of a chunk at which no extent begins: it is free, or inside a large run.
pub(super) const FREE: u64 = 0;
const SMALL: u64 = 1;
const LARGE: u64 = 2;
const KIND_MASK: u64 = 0xFF;
const VALUE_SHIFT: u32 = 8;
const CHECK_SHIFT: u32 = 48;

/// Returns the map word of chunk `number` for blocks of `value` bytes or, if `is_large`, for one block of `value`
/// chunks. For tests that write wrong words with correct check bits.
#[must_use]
pub fn map_word(number: u32, is_large: bool, value: u32) -> u64 {
    seal(number, if is_large { LARGE } else { SMALL }, value)
}

/// Returns the size of the blocks of a chunk with this map word, for hints: the word is not checked. 0 if the word
/// names no extent.
#[inline]
pub(super) fn size_hint(word: u64) -> u32 {
    match word & KIND_MASK {
        SMALL => (word >> VALUE_SHIFT) as u32,
        LARGE => u32::MAX,
        _ => 0,
    }
}

/// Packs kind and value with 16 check bits, which depend on the chunk number too. They are needed because the scan
/// frees space by these words: if it accepted a damaged size, it would free parts of live blocks.
fn seal(number: u32, kind: u64, value: u32) -> u64 {
    let plain = kind | u64::from(value) << VALUE_SHIFT;
    let check = fold(plain ^ 0x9E37_79B9_7F4A_7C15, u64::from(number) ^ 0xD1B5_4A32_D192_ED03)
        >> CHECK_SHIFT;
    plain | check << CHECK_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waste_is_bounded() {
        let classes = Classes::new(64 << 10);
        assert_eq!(classes.count(), 7 + 7 * 4 + 2);
        for content in 1..(16 << 10) - 16 {
            let Extent::Small(class) = classes.extent(content) else {
                panic!("{content} is small")
            };
            let size = classes.size(class) as usize;
            let waste = size - (content + 16);
            assert!(waste <= (size / 4).max(15), "{content} bytes in a block of {size}");
        }
        assert_eq!(classes.extent(32 << 10), Extent::Large(1));
        assert_eq!(classes.extent((64 << 10) - 16), Extent::Large(1));
        assert_eq!(classes.extent((64 << 10) - 15), Extent::Large(2));
    }

    #[test]
    fn words_round_trip_and_refuse_damage() {
        let classes = Classes::new(1024);
        let extents =
            (0..classes.count()).map(Extent::Small).chain([Extent::Large(1), Extent::Large(257)]);
        for extent in extents {
            let word = classes.encode(5, extent);
            assert_eq!(classes.decode(5, word), Ok(Some(extent)));
            assert_eq!(classes.decode(6, word), Err(Damaged), "the word of another chunk");
            for bit in 0..64 {
                assert_eq!(
                    classes.decode(5, word ^ 1 << bit),
                    Err(Damaged),
                    "bit {bit} of {extent:?}"
                );
            }
        }
        assert_eq!(classes.decode(5, 0), Ok(None));
    }
}
