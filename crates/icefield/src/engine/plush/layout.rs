//! The layout on the medium (§4.1, Figures 3 and 4), the packed words, and the bits of a hash that select the entries
//! of a record.

use std::mem::offset_of;
use std::ops::Range;

use super::epoch::LogEpoch;
use crate::base::pipeline::{prefetch_read, prefetch_write};
use crate::storage::alloc::Words;
use crate::storage::cell::Overlay;
use crate::storage::{Cell32, Cell64, Region};
use crate::types::Form;

/// Number of slots in a bucket: one media block of records.
pub(super) const SLOTS: usize = 16;
/// The most buckets of an entry, and the largest fan-out.
pub(super) const MAX_BUCKETS: usize = 16;
/// The most records of an entry.
pub(super) const MAX_RECORDS: usize = SLOTS * MAX_BUCKETS;
pub(super) const ENTRY_BYTES: u64 = size_of::<Entry>() as u64;
/// Number of an entry's runs of buckets. The runs have 1, 1, 2, 4 and 8 buckets.
pub(super) const RUNS: usize = 5;
/// Number of different sizes of runs. Each size has its own blocks, allocator and region.
pub(super) const CLASSES: usize = 4;
/// Maximum number of levels. With a fan-out of 16, more levels would be wider than [`MAX_PREFIX`].
pub(super) const MAX_LEVELS: usize = 8;
/// The widest level: 2^30 entries hold 2^38 records.
pub(super) const MAX_PREFIX: u32 = 30;
/// Number of journals, and so of entries that can be compacted or split at the same time.
pub(super) const JOURNALS: usize = 4;
/// Binary logarithm of the greatest number of recovery logs.
pub(super) const MAX_LOG_BITS: u32 = 6;
/// Binary logarithm of the greatest number of level 1 entries for one root entry.
pub(super) const MAX_FIRST_BITS: u32 = 4;
pub(super) const MAX_LOG_CHUNKS: usize = 64;
pub(super) const MAX_LOG_RECORDS: u32 = 1 << 20;

pub(super) const WORD_BYTES: usize = size_of::<u64>();

/// The numbers of words of key and value. Fixed at a table's creation, by its types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Widths {
    pub(super) key: usize,
    pub(super) value: usize,
    /// `true` if these words are the key and the value themselves.
    pub(super) inline: bool,
}

impl Widths {
    pub(super) const BY_REFERENCE: Self = Self { key: 1, value: 1, inline: false };

    pub(super) const fn of([key, value]: [Form; 2]) -> Self {
        const fn words(form: Form) -> Option<usize> {
            match form {
                Form::Word => Some(1),
                Form::Fixed(bytes) => Some(bytes.div_ceil(WORD_BYTES)),
                Form::Variable => None,
            }
        }
        match (words(key), words(value)) {
            (Some(key), Some(value)) => Self { key, value, inline: true },
            _ => Self::BY_REFERENCE,
        }
    }

    #[inline(always)]
    pub(super) const fn words(self) -> usize {
        self.key + self.value
    }

    #[inline(always)]
    pub(super) const fn log_words(self) -> usize {
        self.words() + 1
    }

    #[inline(always)]
    pub(super) const fn bucket_words(self) -> usize {
        SLOTS * self.words()
    }

    pub(super) const fn bucket_bytes(self) -> u64 {
        (self.bucket_words() * WORD_BYTES) as u64
    }

    pub(super) const fn log_bytes(self, records: u32) -> u64 {
        records as u64 * (self.log_words() * WORD_BYTES) as u64
    }

    /// Encodes the widths as a superblock parameter.
    pub(super) fn pack(self) -> u64 {
        if self.words() == 2 { 0 } else { (self.key | self.value << 8) as u64 }
    }
}

/// Sixteen records: the first word of each key, then the other words of each record. A search reads only the first
/// words of records with other keys.
#[derive(Clone, Copy)]
pub(super) struct Bucket<'a> {
    pub(super) heads: &'a [Cell64; SLOTS],
    rests: &'a [Cell64],
}

impl<'a> Bucket<'a> {
    /// The bucket with a number, in a region of buckets.
    #[inline(always)]
    pub(super) fn at(region: &'a Region, number: u64, widths: Widths) -> Option<Self> {
        let words = region.slice_at(number * widths.bucket_bytes(), widths.bucket_words())?;
        let (heads, rests) = words.split_first_chunk()?;
        Some(Self { heads, rests })
    }

    /// The words of consecutive records, without the first word of each.
    #[inline(always)]
    pub(super) fn rests(self, slots: Range<usize>) -> &'a [Cell64] {
        let rest = self.rests.len() / SLOTS;
        &self.rests[slots.start * rest..slots.end * rest]
    }

    /// Prefetches the whole bucket.
    #[inline]
    pub(super) fn prefetch(self) {
        for line in [&self.heads[..], self.rests] {
            line.iter().step_by(LINE_WORDS).for_each(|word| prefetch_read(word));
        }
    }

    /// Bytes of the bucket: the first words and the others are adjacent.
    pub(super) fn bytes(self) -> usize {
        size_of_val(self.heads) + size_of_val(self.rests)
    }

    /// Prefetches slots that will be written.
    #[inline]
    pub(super) fn prefetch_write(self, slots: Range<usize>) {
        for line in [&self.heads[slots.clone()], self.rests(slots)] {
            let words = line.iter().step_by(LINE_WORDS).chain(line.last());
            words.for_each(|word| prefetch_write(word));
        }
    }
}

/// A directory entry of a level: seven lines. The entries that a migration changes are adjacent.
///
/// ```text
///  0       8         28     32               64                     448
///  | state | 5 runs  | next | 256 dead bits  | filter, 6 lines      |
/// ```
#[repr(C, align(64))]
pub(super) struct Entry {
    /// [`State`]. A store to it is the commit point of every migration.
    pub(super) state: Cell64,
    /// The block numbers of the runs, plus one; 0 for a run that the entry does not have.
    pub(super) runs: [Cell32; RUNS],
    /// The entry that continues this one, a block of `chains.ice`, plus one; 0 if none does. In the last level only.
    pub(super) next: Cell32,
    /// One bit for each slot, set if its record is a removal.
    pub(super) dead: [Cell64; MAX_RECORDS / 64],
    /// Rows of 16 bits, each with one bit for each bucket; see the module `filter`.
    pub(super) filter: [Cell64; FILTER_WORDS],
}

pub(super) const FILTER_WORDS: usize = 48;
pub(super) const LINE_WORDS: usize = 8;

/// The head of a journal: the new contents of an entry that is compacted or split. The records' words follow, one
/// record after the other. Valid if `seal` is the checksum of the rest.
#[repr(C, align(64))]
pub(super) struct Journal {
    pub(super) seal: Cell64,
    /// [`EntryId`].
    pub(super) entry: Cell64,
    /// Number of records.
    pub(super) records: Cell64,
    /// The other leaf of a split, as an [`EntryId`], and in the upper half its new number of records; 0 if the entry
    /// is not split.
    pub(super) other: Cell64,
    pub(super) dead: [Cell64; MAX_RECORDS / 64],
}

pub(super) const fn journal_bytes(widths: Widths) -> u64 {
    (size_of::<Journal>() + MAX_RECORDS * widths.words() * size_of::<Cell64>()) as u64
}

/// The head of a recovery log's chunk; the records follow.
#[repr(C, align(64))]
pub(super) struct ChunkHead {
    /// The log's turn when this chunk was last begun, this chunk included; 0 if it was never begun.
    pub(super) turn: Cell64,
    _reserved: [Cell64; 7],
}

/// The table's root words, page 1 of `table.ice`.
#[repr(C)]
pub(super) struct Root {
    /// [`Phase`]. The commit point of `clear`.
    pub(super) phase: Cell64,
    /// Number of levels.
    pub(super) levels: Cell64,
    /// 1: a log may have records whose payloads a crash has lost; 0: no log has any.
    pub(super) together: Cell64,
    _reserved: [Cell64; 5],
    pub(super) runs: [Words; CLASSES],
    pub(super) chains: Words,
}

// SAFETY: `repr(C)`, cells only, alignment 64.
unsafe impl Overlay for Entry {}
// SAFETY: `repr(C)`, cells only, alignment 64.
unsafe impl Overlay for Journal {}
// SAFETY: `repr(C)`, cells only, alignment 64.
unsafe impl Overlay for ChunkHead {}
// SAFETY: `repr(C)`, cells and overlays only.
unsafe impl Overlay for Root {}

const _: () = assert!(ENTRY_BYTES == 448 && offset_of!(Entry, runs) == 8);
const _: () = assert!(offset_of!(Entry, next) == 28 && offset_of!(Entry, dead) == 32);
const _: () = assert!(offset_of!(Entry, filter) == 64);
const _: () = assert!(size_of::<Journal>() == 64 && offset_of!(Journal, dead) == 32);
const _: () = assert!(size_of::<ChunkHead>() == 64);
const _: () = assert!(offset_of!(Root, together) == 16);
const _: () = assert!(offset_of!(Root, runs) == 64 && offset_of!(Root, chains) == 64 + 4 * 320);
const _: () = assert!(size_of::<Root>() as u64 <= crate::storage::superblock::ROOT_BYTES);

/// The state word of an entry. The lower 16 bits are the number of its records. The upper 48 bits, used in level 1
/// only, are the epoch of the root entry up to which the records of the recovery log have arrived here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) size: usize,
    pub(super) epoch: LogEpoch,
}

impl State {
    #[inline]
    pub(super) fn pack(self) -> u64 {
        self.size as u64 | self.epoch.bits() << 16
    }

    #[inline]
    pub(super) fn unpack(word: u64) -> Self {
        Self { size: usize::from(word as u16), epoch: LogEpoch::of_bits(word >> 16) }
    }
}

/// The operation in progress on the whole table. `set` is the set of the allocators' words that is in use, 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Stable {
        set: usize,
    },
    /// The table is empty, whatever entries and logs hold.
    Clearing {
        set: usize,
    },
    /// The blocks that entries refer to are in use, whatever the allocators' lists contain.
    Packing {
        set: usize,
    },
}

impl Phase {
    pub(super) fn pack(self) -> u64 {
        match self {
            Self::Stable { set } => 2 | set as u64,
            Self::Clearing { set } => 4 | set as u64,
            Self::Packing { set } => 6 | set as u64,
        }
    }

    /// `None` for a word that is not a packed phase.
    pub(super) fn unpack(word: u64) -> Option<Self> {
        let set = (word & 1) as usize;
        match word & !1 {
            2 => Some(Self::Stable { set }),
            4 => Some(Self::Clearing { set }),
            6 => Some(Self::Packing { set }),
            _ => None,
        }
    }

    pub(super) fn set(self) -> usize {
        match self {
            Self::Stable { set } | Self::Clearing { set } | Self::Packing { set } => set,
        }
    }
}

/// The number of an entry: among the entries of all levels, counted from level 1 on, or among the chained entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryId {
    Level(u32),
    Chained(u32),
}

const CHAINED: u32 = 1 << 31;

impl EntryId {
    /// Encodes the number as an allocator's tag.
    pub(super) fn pack(self) -> u32 {
        match self {
            Self::Level(number) => number,
            Self::Chained(block) => block | CHAINED,
        }
    }

    pub(super) fn unpack(tag: u32) -> Self {
        if tag & CHAINED == 0 { Self::Level(tag) } else { Self::Chained(tag & !CHAINED) }
    }
}

/// The sizes of a table's parts. Fixed at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Binary logarithm of the number of root entries.
    pub root_bits: u32,
    /// Binary logarithm of the number of level 1 entries for each root entry.
    pub first_bits: u32,
    /// Binary logarithm of the number of entries for each entry of the level above (the fan-out), and of the number of
    /// buckets of an entry.
    pub fan_bits: u32,
    /// Slots of a bucket that are used, 1 to 16.
    pub slots: u32,
    /// Binary logarithm of the number of recovery logs.
    pub log_bits: u32,
    /// Chunks of a recovery log, at least two.
    pub log_chunks: u32,
    /// Records of a chunk.
    pub log_records: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            root_bits: 6,
            first_bits: 0,
            fan_bits: 4,
            slots: SLOTS as u32,
            log_bits: 2,
            log_chunks: 4,
            log_records: 2048,
        }
    }
}

impl Shape {
    /// Returns whether the fields are within their bounds.
    pub(super) fn is_valid(self) -> bool {
        self.root_bits <= 20
            && self.first_bits <= MAX_FIRST_BITS
            && (1..=4).contains(&self.fan_bits)
            && (1..=SLOTS as u32).contains(&self.slots)
            && self.log_bits <= self.root_bits
            && self.log_bits <= MAX_LOG_BITS
            && (2..=MAX_LOG_CHUNKS as u32).contains(&self.log_chunks)
            && (1..=MAX_LOG_RECORDS).contains(&self.log_records)
    }

    /// Encodes the shape as superblock parameters.
    pub(super) fn pack(self) -> [u32; 3] {
        let bits = self.root_bits | self.first_bits << 8 | self.fan_bits << 16 | self.slots << 24;
        [bits, self.log_bits | self.log_chunks << 8, self.log_records]
    }

    pub(super) fn unpack([bits, log, log_records]: [u32; 3]) -> Option<Self> {
        let shape = Self {
            root_bits: bits & 0xFF,
            first_bits: bits >> 8 & 0xFF,
            fan_bits: bits >> 16 & 0xFF,
            slots: bits >> 24,
            log_bits: log & 0xFF,
            log_chunks: log >> 8,
            log_records,
        };
        shape.is_valid().then_some(shape)
    }

    /// Records of an entry, in the root and in every level.
    #[inline]
    pub(super) fn records(self) -> usize {
        (self.slots as usize) << self.fan_bits
    }

    /// Number of bits of a hash that select an entry of a level; level 0 is the root.
    #[inline]
    pub(super) fn prefix(self, level: usize) -> u32 {
        match level {
            0 => self.root_bits,
            _ => self.root_bits + self.first_bits + self.fan_bits * (level as u32 - 1),
        }
    }

    /// Entries of a level.
    #[inline]
    pub(super) fn entries(self, level: usize) -> u64 {
        1 << self.prefix(level)
    }

    /// The greatest number of levels.
    pub(super) fn max_levels(self) -> usize {
        (1..=MAX_LEVELS).take_while(|&level| self.prefix(level) <= MAX_PREFIX).count()
    }

    /// Number of entries of the levels above `level`, without the root.
    #[inline]
    pub(super) fn entries_above(self, level: usize) -> u64 {
        (1..level).map(|level| self.entries(level)).sum()
    }

    /// The entry of a level for a hash.
    #[inline]
    pub(super) fn index(self, level: usize, hash: u64) -> u64 {
        // In two steps, because a shift by 64 would overflow.
        hash >> 1 >> (63 - self.prefix(level))
    }

    /// Binary logarithm of the number of entries of the next level for each entry of this one.
    #[inline]
    pub(super) fn step(self, level: usize) -> u32 {
        self.prefix(level + 1) - self.prefix(level)
    }

    /// Returns a function that maps a hash to a place among the entries directly below the hash's entry of `level`.
    #[inline]
    pub(super) fn place_below(self, level: usize) -> impl Fn(u64) -> usize {
        let (shift, mask) = (63 - self.prefix(level + 1), (1 << self.step(level)) - 1);
        move |hash| (hash >> 1 >> shift) as usize & mask
    }

    pub(super) fn chunk_bytes(self, widths: Widths) -> u64 {
        let records = widths.log_bytes(self.log_records);
        (size_of::<ChunkHead>() as u64 + records).next_multiple_of(256)
    }

    pub(super) fn log_bytes(self, widths: Widths) -> u64 {
        (self.chunk_bytes(widths) * u64::from(self.log_chunks)) << self.log_bits
    }
}

/// The run of a bucket, and the bucket's place in it. The runs are 0; 1; 2 3; 4 5 6 7; 8 ...
#[inline]
pub(super) fn run_of(bucket: usize) -> (usize, usize) {
    match bucket.checked_ilog2() {
        None => (0, 0),
        Some(log) => (log as usize + 1, bucket - (1 << log)),
    }
}

/// Buckets of a run.
#[inline]
pub(super) fn run_buckets(run: usize) -> u64 {
    1 << run.saturating_sub(1)
}

/// The class of a run: its index among the regions and allocators.
#[inline]
pub(super) fn class_of(run: usize) -> usize {
    run.saturating_sub(1)
}

/// An entry and its number.
#[derive(Clone, Copy)]
pub(super) struct EntryRef<'a> {
    pub(super) id: EntryId,
    pub(super) entry: &'a Entry,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_fill_the_runs_one_after_the_other() {
        let mut next = [0; RUNS];
        for bucket in 0..MAX_BUCKETS {
            let (run, place) = run_of(bucket);
            assert_eq!(place as u64, next[run]);
            next[run] += 1;
        }
        assert!((0..RUNS).all(|run| next[run] == run_buckets(run)));
    }

    #[test]
    fn words_survive_packing_and_nonsense_is_refused() {
        let state = State { size: 256, epoch: LogEpoch::of_bits(u64::MAX) };
        assert_eq!(State::unpack(state.pack()), state);
        for phase in
            [Phase::Stable { set: 1 }, Phase::Clearing { set: 0 }, Phase::Packing { set: 1 }]
        {
            assert_eq!(Phase::unpack(phase.pack()), Some(phase));
        }
        assert!([0, 1, 8, u64::MAX].iter().all(|&word| Phase::unpack(word).is_none()));
        for id in [EntryId::Level(7), EntryId::Chained(7)] {
            assert_eq!(EntryId::unpack(id.pack()), id);
        }
        let shape = Shape::default();
        assert_eq!(Shape::unpack(shape.pack()), Some(shape));
        assert_eq!(Shape::unpack([u32::MAX; 3]), None);
    }

    #[test]
    fn an_entry_covers_the_entries_below_it() {
        let shape = Shape { root_bits: 0, first_bits: 1, fan_bits: 2, ..Shape::default() };
        for hash in [0, 1 << 63, u64::MAX, 0x9E37_79B9_7F4A_7C15] {
            assert_eq!(shape.index(0, hash), 0);
            for level in 0..4 {
                let below = shape.index(level + 1, hash);
                assert_eq!(below >> shape.step(level), shape.index(level, hash));
            }
        }
    }
}
