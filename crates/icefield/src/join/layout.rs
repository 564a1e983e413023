//! The layout of an index: the files of a generation, the lines of its groups, and the root words, which name the
//! present generation.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::line::Line;
use crate::base::hash::Hash;
use crate::storage::cell::Overlay;
use crate::storage::superblock::{ROOT_OFFSET, TABLE_REGION};
use crate::storage::{Cell64, Medium, Region};
use crate::{Error, Result};

/// The base regions of generations with even and odd numbers.
pub(super) const BASES: [&str; 2] = ["base-0.ice", "base-1.ice"];
/// The delta logs of generations with even and odd numbers.
pub(super) const DELTAS: [&str; 2] = ["delta-0.ice", "delta-1.ice"];

/// The unit of checksums and of the areas' alignment.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Bytes of a record: key and payload.
pub(super) const RECORD_BYTES: u64 = 16;
/// Number of records in a line.
pub(super) const LINE_RECORDS: u64 = 4;
/// Bytes of a group.
pub(super) const GROUP_BYTES: u64 = 64;
/// Number of buckets of a group.
pub(super) const BUCKETS: usize = 16;
/// Words of a group's filter.
pub(super) const FILTER_WORDS: usize = 5;
/// Maximum number of records in a group whose ends fit into its line.
pub(super) const NARROW_RECORDS: u64 = 255;
/// Words of a wide group: the beginning of each bucket, and the end of the last one.
pub(super) const WIDE_WORDS: usize = BUCKETS + 1;
/// Bytes that a wide group takes in the wide area.
pub(super) const WIDE_BYTES: u64 = 192;
/// An index has fewer records than this: the number of a record has 48 bits.
pub(super) const MAX_RECORDS: u64 = 1 << 48;

const _: () =
    assert!(WIDE_WORDS as u64 * 8 <= WIDE_BYTES && WIDE_BYTES.is_multiple_of(GROUP_BYTES));
const _: () = assert!(8 + BUCKETS + FILTER_WORDS * 8 == GROUP_BYTES as usize);
const _: () = assert!(size_of::<Line>() as u64 == GROUP_BYTES);

/// The index of the word with the number of the group's first record and the bit [`WIDE`].
pub(super) const FIRST_WORD: usize = 0;
/// The index of the first of the two words with the ends of the group's buckets, one byte each. In a wide group, this
/// word is the group's number among the wide groups instead.
pub(super) const ENDS_WORD: usize = 1;
/// The index of the first word of a group's filter.
pub(super) const FILTER_WORD: usize = 3;
/// The bit that is set if the ends of the group's buckets are in the wide area. The highest byte of the word stays
/// zero, because it is read as the beginning of bucket 0.
pub(super) const WIDE: u64 = 1 << 48;
/// The bits of the first record's number.
pub(super) const FIRST_MASK: u64 = MAX_RECORDS - 1;

/// A pair on the medium.
#[repr(C)]
pub(super) struct Record(pub(super) [Cell64; 2]);

// SAFETY: repr(C), cells only.
unsafe impl Overlay for Record {}

impl Record {
    pub(super) fn load(&self, storage: &impl Medium) -> [u64; 2] {
        // Relaxed: only complete records are read. The order comes from E1, from joining the threads of the build, or
        // from the root words, which name only complete generations.
        [self.0[0].load(storage, Relaxed), self.0[1].load(storage, Relaxed)]
    }

    pub(super) fn store(&self, storage: &impl Medium, pair: [u64; 2]) {
        for (cell, word) in self.0.iter().zip(pair) {
            // Relaxed: no probe reads the record before the generation is sealed and published.
            cell.store(storage, word, Relaxed);
        }
    }
}

/// Returns the bit that a hash sets in word `word` of the filter. A hash sets one bit in each word.
#[inline(always)]
pub(super) fn filter_bit(hash: u64, word: usize) -> u32 {
    (hash >> (4 + 6 * word)) as u32 & 63
}

/// Returns the bucket of a hash in its group.
#[inline(always)]
pub(super) fn bucket_of(hash: u64) -> usize {
    hash as usize & (BUCKETS - 1)
}

/// Returns which of `count` equal shares of the hash range contains a hash. Shares nest: with `count = a * b`, the
/// result divided by `b` is the hash's share among `a` shares.
#[inline(always)]
pub(super) fn share_of(hash: u64, count: u64) -> u64 {
    ((u128::from(hash) * u128::from(count)) >> 64) as u64
}

/// The sizes of the areas of a generation's file. The areas follow one another: header, groups, records, wide groups,
/// and the checksums of all blocks before the checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) records: u64,
    pub(super) groups: u64,
    pub(super) wide: u64,
}

impl Layout {
    /// The offset of the groups' lines.
    pub(super) const GROUPS_AT: u64 = BLOCK_BYTES;

    /// The offset of the records.
    pub(super) fn records_at(&self) -> u64 {
        (Self::GROUPS_AT + self.groups * GROUP_BYTES).next_multiple_of(BLOCK_BYTES)
    }

    /// The offset of the wide groups.
    pub(super) fn wide_at(&self) -> u64 {
        (self.records_at() + self.records * RECORD_BYTES).next_multiple_of(BLOCK_BYTES)
    }

    /// The offset of the checksums: one word for each block before them.
    pub(super) fn sums_at(&self) -> u64 {
        (self.wide_at() + self.wide * WIDE_BYTES).next_multiple_of(BLOCK_BYTES)
    }

    /// Number of blocks before the checksums, including the header.
    pub(super) fn blocks(&self) -> u64 {
        self.sums_at() / BLOCK_BYTES
    }

    /// Bytes of the checksums.
    pub(super) fn sums_bytes(&self) -> u64 {
        (self.blocks() * 8).next_multiple_of(BLOCK_BYTES)
    }

    /// Bytes of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.sums_at() + self.sums_bytes()
    }

    /// Returns whether the sizes are within their limits. If they are, no offset computed from them overflows.
    fn is_possible(&self) -> bool {
        self.records < MAX_RECORDS
            && (1..MAX_RECORDS).contains(&self.groups)
            && self.wide <= self.groups
    }
}

/// The magic word of a sealed generation.
const MAGIC: u64 = u64::from_le_bytes(*b"joinbase");

/// The words of the header. The rest of the block is zero.
#[repr(C)]
pub(super) struct Header {
    magic: Cell64,
    generation: Cell64,
    uuid: [Cell64; 2],
    records: Cell64,
    groups: Cell64,
    wide: Cell64,
    /// The checksum of the area of checksums.
    sums_sum: Cell64,
    /// The checksum of the header's words above.
    sum: Cell64,
    rest: [Cell64; (BLOCK_BYTES / 8 - 9) as usize],
}

// SAFETY: repr(C), cells only.
unsafe impl Overlay for Header {}

const _: () = assert!(size_of::<Header>() as u64 == BLOCK_BYTES);

/// The content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sealed {
    pub(super) generation: u64,
    pub(super) uuid: [u64; 2],
    pub(super) layout: Layout,
    pub(super) sums_sum: u64,
}

impl Sealed {
    fn words(&self) -> [u64; 8] {
        let Layout { records, groups, wide } = self.layout;
        let [first, second] = self.uuid;
        [MAGIC, self.generation, first, second, records, groups, wide, self.sums_sum]
    }

    /// Returns the checksum of the header, which the root words contain.
    pub(super) fn sum(&self, sums: &Hash) -> u64 {
        words_sum(sums, &self.words())
    }

    /// Writes and flushes the header of a file. The other blocks must be durable, or flushed by this thread. This
    /// thread's next fence (P3) then makes the whole file durable. Except in a new index, this fence must come before
    /// the root words name the file.
    pub(super) fn write(&self, storage: &impl Medium, region: &Region, sums: &Hash) -> Result<()> {
        let header = region.at::<Header>(0).ok_or_else(|| short(storage, region))?;
        let [magic, generation, first, second, records, groups, wide, sums_sum] = self.words();
        let cells = [
            (&header.generation, generation),
            (&header.uuid[0], first),
            (&header.uuid[1], second),
            (&header.records, records),
            (&header.groups, groups),
            (&header.wide, wide),
            (&header.sums_sum, sums_sum),
            (&header.sum, self.sum(sums)),
            (&header.magic, magic),
        ];
        for (cell, word) in cells {
            // Relaxed: the checksum binds the words together.
            cell.store(storage, word, Relaxed);
        }
        storage.flush_object(header);
        storage.check_writable()
    }

    /// Reads and validates a header, and checks that the file is not shorter than the header says.
    pub(super) fn read(storage: &impl Medium, region: &Region, sums: &Hash) -> Result<Self> {
        let sealed = Self::header(storage, region, sums)?;
        if region.len() < sealed.layout.bytes() {
            let detail = format!("the file ends before byte {}", sealed.layout.bytes());
            return Err(region.fault(storage, region.len(), &detail));
        }
        Ok(sealed)
    }

    /// Like [`Sealed::read`], for a file that may be too short.
    pub(super) fn header(storage: &impl Medium, region: &Region, sums: &Hash) -> Result<Self> {
        let header = region.at::<Header>(0).ok_or_else(|| short(storage, region))?;
        let load = |cell: &Cell64| cell.load(storage, Relaxed);
        let sealed = Self {
            generation: load(&header.generation),
            uuid: [load(&header.uuid[0]), load(&header.uuid[1])],
            layout: Layout {
                records: load(&header.records),
                groups: load(&header.groups),
                wide: load(&header.wide),
            },
            sums_sum: load(&header.sums_sum),
        };
        let fault = |offset, detail: &str| Err(region.fault(storage, offset, detail));
        if load(&header.magic) != MAGIC {
            return fault(0, "the file is not a sealed generation of a join index");
        }
        if load(&header.sum) != sealed.sum(sums) {
            return fault(64, "the header's checksum is wrong");
        }
        if !sealed.layout.is_possible() {
            return fault(32, "the header's numbers are impossible");
        }
        Ok(sealed)
    }

    /// Returns the offset of the first nonzero word after the header in its block.
    pub(super) fn stray(storage: &impl Medium, region: &Region) -> Option<u64> {
        let header = region.at::<Header>(0)?;
        let at = header.rest.iter().position(|cell| cell.load(storage, Relaxed) != 0)?;
        Some(72 + at as u64 * 8)
    }
}

/// The root words, which name the present generation. The region `table.ice` holds two copies of them, one line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root {
    /// The number of the generation. Its parity selects the files.
    pub(super) generation: u64,
    /// The checksum of the generation's header.
    pub(super) header_sum: u64,
    /// Planned filter bits for each key; 0 if there is no filter.
    pub(super) filter_bits: u64,
}

/// A copy of the root words: generation, header's checksum, filter bits, four zeros, checksum.
type RootCopy = [Cell64; 8];
const ROOT_COPIES: [u64; 2] = [ROOT_OFFSET, ROOT_OFFSET + 64];

impl Root {
    fn words(&self) -> [u64; 7] {
        [self.generation, self.header_sum, self.filter_bits, 0, 0, 0, 0]
    }

    /// Returns the index in [`BASES`] and in [`DELTAS`] of the generation's regions.
    pub(super) fn slot(&self) -> usize {
        (self.generation & 1) as usize
    }

    /// Makes this the present generation: the commit point of a build or merge. Its files must be durable.
    pub(super) fn publish(&self, storage: &impl Medium, table: &Region, sums: &Hash) -> Result<()> {
        for offset in ROOT_COPIES {
            let copy = table.at::<RootCopy>(offset).ok_or_else(|| short(storage, table))?;
            let words = self.words();
            for (cell, word) in copy.iter().zip(words) {
                cell.store(storage, word, Relaxed);
            }
            // Release: nothing relies on it; the checksum shows whether the words belong together.
            copy[7].store(storage, words_sum(sums, &words), Release);
            // P4, commit point: once the first copy is durable, the new generation is the present one after a crash.
            storage.try_persist(copy)?;
        }
        Ok(())
    }

    fn copies(storage: &impl Medium, table: &Region, sums: &Hash) -> Result<[Option<Self>; 2]> {
        let mut found = [None; 2];
        for (found, offset) in found.iter_mut().zip(ROOT_COPIES) {
            let copy = table.at::<RootCopy>(offset).ok_or_else(|| short(storage, table))?;
            let words: [u64; 8] = std::array::from_fn(|at| copy[at].load(storage, Relaxed));
            let [generation, header_sum, filter_bits, .., sum] = words;
            let root = Self { generation, header_sum, filter_bits };
            let whole = words[..7] == root.words() && sum == words_sum(sums, &words[..7]);
            *found = whole.then_some(root);
        }
        Ok(found)
    }

    /// Returns the present generation: the newer one if the copies differ.
    pub(super) fn read(storage: &impl Medium, table: &Region, sums: &Hash) -> Result<Self> {
        let copies = Self::copies(storage, table, sums)?;
        let newest = copies.into_iter().flatten().max_by_key(|root| root.generation);
        newest.ok_or_else(|| {
            table.fault(storage, ROOT_OFFSET, "both copies of the root words are damaged")
        })
    }

    /// Returns whether both copies are valid and equal. They are not if a crash happened between their writes, or if
    /// one is damaged.
    pub(super) fn is_settled(storage: &impl Medium, table: &Region, sums: &Hash) -> Result<bool> {
        let [first, second] = Self::copies(storage, table, sums)?;
        Ok(first.is_some() && first == second)
    }

    /// Returns the offset of the first nonzero word behind the copies and the watermark.
    pub(super) fn stray(storage: &impl Medium, table: &Region) -> Option<u64> {
        let start = WATERMARK + 8;
        let count = table.len().saturating_sub(start) / 8;
        let cells = table.slice_at::<Cell64>(start, count as usize)?;
        let at = cells.iter().position(|cell| cell.load(storage, Relaxed) != 0)?;
        Some(start + at as u64 * 8)
    }
}

/// The offset of the watermark: the number of delta records. It is stored after the records are durable, and not
/// flushed. So it is never too high, and is exact unless the power fails.
const WATERMARK: u64 = ROOT_COPIES[1] + 64;
/// Number of bits of the watermark that hold the number. The upper bits hold a part of a checksum.
const WATERMARK_BITS: u32 = 40;

/// The content of the watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watermark {
    /// The number of delta records that are known to have become durable.
    Records(u64),
    /// A word that this generation cannot have stored.
    Odd,
}

fn watermark_word(sums: &Hash, generation: u64, records: u64) -> u64 {
    match records {
        0 => 0,
        _ => records | words_sum(sums, &[generation, records]) << WATERMARK_BITS,
    }
}

/// Stores the number of delta records.
pub(super) fn set_watermark(
    storage: &impl Medium,
    table: &Region,
    sums: &Hash,
    generation: u64,
    records: u64,
) -> Result<()> {
    let cell = table.at::<Cell64>(WATERMARK).ok_or_else(|| short(storage, table))?;
    cell.store(storage, watermark_word(sums, generation, records), Relaxed);
    Ok(())
}

/// Resets the watermark before the root words name another generation. The fence also makes the flushed blocks of that
/// generation durable.
pub(super) fn reset_watermark(storage: &impl Medium, table: &Region) -> Result<()> {
    let cell = table.at::<Cell64>(WATERMARK).ok_or_else(|| short(storage, table))?;
    cell.store(storage, 0, Relaxed);
    // P3: the other generation's file and the watermark of 0 are durable before the root words name that generation.
    storage.try_persist(cell)
}

/// Returns the stored number of delta records.
pub(super) fn watermark(
    storage: &impl Medium,
    table: &Region,
    sums: &Hash,
    generation: u64,
) -> Result<Watermark> {
    let cell = table.at::<Cell64>(WATERMARK).ok_or_else(|| short(storage, table))?;
    let word = cell.load(storage, Relaxed);
    let records = word & ((1 << WATERMARK_BITS) - 1);
    Ok(match word == watermark_word(sums, generation, records) {
        true => Watermark::Records(records),
        false => Watermark::Odd,
    })
}

/// Returns the checksum of at most 8 words.
pub(super) fn words_sum(sums: &Hash, words: &[u64]) -> u64 {
    let mut bytes = [0; 64];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    sums.bytes(&bytes[..words.len() * 8])
}
/// Returns the error for a region that is too short.
#[cold]
pub(super) fn short(storage: &impl Medium, region: &Region) -> Error {
    let detail = if region.name() == TABLE_REGION {
        "the superblock ends too early"
    } else {
        "the file ends too early"
    };
    region.fault(storage, region.len(), detail)
}

/// Returns the bytes of arrays of words, in the byte order of the cells on the medium.
pub(super) fn as_bytes<const N: usize>(records: &[[u64; N]]) -> &[u8] {
    // SAFETY: words have no padding, and every byte is a valid `u8`.
    unsafe { std::slice::from_raw_parts(records.as_ptr().cast(), size_of_val(records)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_nest() {
        for hash in [0, 1, u64::MAX, 0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210] {
            for (a, b) in [(1, 7), (512, 698), (2048, 3), (3, 5)] {
                assert_eq!(share_of(hash, a * b) / b, share_of(hash, a));
            }
        }
    }

    /// `Isa::has_bits` hard-codes the layout of the filter.
    #[test]
    fn the_bits_that_probes_ask_for_are_those_of_the_filter() {
        use crate::base::group::{Generic, Isa};
        let all = |words: [u64; 8], hash| {
            Generic.has_bits(&words.map(std::sync::atomic::AtomicU64::new), hash)
        };
        for hash in [0, u64::MAX, 0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210] {
            let mut words = [0; 8];
            for word in 0..FILTER_WORDS {
                words[FILTER_WORD + word] = 1 << filter_bit(hash, word);
            }
            assert!(all(words, hash));
            for word in FILTER_WORD..FILTER_WORD + FILTER_WORDS {
                let mut others = words;
                others[word] = !others[word];
                assert!(!all(others, hash), "{hash:#x}, word {word}");
            }
        }
    }

    #[test]
    fn areas_follow_one_another() {
        for records in [0, 1, 255, 256, 10_000_000] {
            for (groups, wide) in [(1, 0), (1, 1), (357_143, 20)] {
                let layout = Layout { records, groups, wide };
                assert!(layout.is_possible());
                assert!(layout.records_at() >= Layout::GROUPS_AT + groups * GROUP_BYTES);
                assert!(layout.wide_at() >= layout.records_at() + records * RECORD_BYTES);
                assert!(layout.sums_at() >= layout.wide_at() + wide * WIDE_BYTES);
                assert!(layout.bytes() >= layout.sums_at() + layout.blocks() * 8);
                assert!(layout.bytes().is_multiple_of(BLOCK_BYTES));
            }
        }
    }
}
