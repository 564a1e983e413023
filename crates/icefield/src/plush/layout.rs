//! What lies where on the medium (§4.1, Figures 3 and 4), the packed words, and which bits of a hash say where a record
//! belongs.

use std::mem::offset_of;
use std::ops::Range;

use super::epoch::LogEpoch;
use super::words::Widths;
use crate::base::pipeline::{prefetch_read, prefetch_write};
use crate::pm::alloc::Words;
use crate::pm::cell::Overlay;
use crate::pm::{Cell32, Cell64, Region};

/// Slots in a bucket: one media block of records.
pub(super) const SLOTS: usize = 16;
/// The most buckets of an entry, and the largest fan-out.
pub(super) const MAX_BUCKETS: usize = 16;
/// The most records of an entry.
pub(super) const MAX_RECORDS: usize = SLOTS * MAX_BUCKETS;
/// Bytes of a directory entry.
pub(super) const ENTRY_BYTES: u64 = size_of::<Entry>() as u64;
/// Runs of buckets that an entry refers to: 1, 1, 2, 4 and 8 buckets.
pub(super) const RUNS: usize = 5;
/// Sizes of runs: each has blocks, an allocator and a region of its own.
pub(super) const CLASSES: usize = 4;
/// More levels than these would be wider than [`MAX_PREFIX`].
pub(super) const MAX_LEVELS: usize = 8;
/// The widest level: 2^30 entries hold 2^38 records.
pub(super) const MAX_PREFIX: u32 = 30;
/// Journals, which bounds how many entries are compacted at once.
pub(super) const JOURNALS: usize = 4;
/// Two to this power are the most recovery logs.
pub(super) const MAX_LOG_BITS: u32 = 6;
/// Two to this power are the most entries of level 1 for one of the root.
pub(super) const MAX_FIRST_BITS: u32 = 4;
/// The most chunks of a recovery log.
pub(super) const MAX_LOG_CHUNKS: usize = 64;
/// The most records of a recovery log's chunk.
pub(super) const MAX_LOG_RECORDS: u32 = 1 << 20;

/// Sixteen records: their first words, which are the keys' first, then the other words of each, so that a search reads
/// the former only.
#[derive(Clone, Copy)]
pub(super) struct Bucket<'a> {
    pub(super) heads: &'a [Cell64; SLOTS],
    rests: &'a [Cell64],
}

impl<'a> Bucket<'a> {
    /// That of a number, in a region of buckets.
    #[inline(always)]
    pub(super) fn at(region: &'a Region, number: u64, widths: Widths) -> Option<Self> {
        let words = region.slice_at(number * widths.bucket_bytes(), widths.bucket_words())?;
        let (heads, rests) = words.split_first_chunk()?;
        Some(Self { heads, rests })
    }

    /// All words but the first of records that follow one another.
    #[inline(always)]
    pub(super) fn rests(self, slots: Range<usize>) -> &'a [Cell64] {
        let rest = self.rests.len() / SLOTS;
        &self.rests[slots.start * rest..slots.end * rest]
    }

    /// Asks for all of it.
    #[inline]
    pub(super) fn prefetch(self) {
        for line in [&self.heads[..], self.rests] {
            line.iter().step_by(LINE_WORDS).for_each(|word| prefetch_read(word));
        }
    }

    /// Asks for slots that will be written.
    #[inline]
    pub(super) fn prefetch_write(self, slots: Range<usize>) {
        for line in [&self.heads[slots.clone()], self.rests(slots)] {
            let words = line.iter().step_by(LINE_WORDS).chain(line.last());
            words.for_each(|word| prefetch_write(word));
        }
    }
}

/// A directory entry of a level: seven lines. Those that a migration changes lie side by side.
///
/// ```text
///  0       8         28     32               64                     448
///  | state | 5 runs  | next | 256 dead bits  | filter, 6 lines      |
/// ```
#[repr(C, align(64))]
pub(super) struct Entry {
    /// [`State`]. The commit point of every migration is a store to it.
    pub(super) state: Cell64,
    /// First blocks of the runs, plus one; 0: none yet.
    pub(super) runs: [Cell32; RUNS],
    /// The entry that continues this one, a block of `chains.ice`, plus one; 0: none. In the last level only.
    pub(super) next: Cell32,
    /// One bit a slot: the record says that its key was removed.
    pub(super) dead: [Cell64; MAX_RECORDS / 64],
    /// `filter`: one bit of each half word for each bucket.
    pub(super) filter: [Cell64; FILTER_WORDS],
}

/// Words of an entry's filter.
pub(super) const FILTER_WORDS: usize = 48;
/// Words of a line.
pub(super) const LINE_WORDS: usize = 8;

/// The head of a compaction in progress: what the entry shall hold. The records' words follow, one record after the
/// other. Valid while `seal` fits the rest.
#[repr(C, align(64))]
pub(super) struct Journal {
    pub(super) seal: Cell64,
    /// [`EntryId`].
    pub(super) entry: Cell64,
    /// Records that the entry shall hold.
    pub(super) records: Cell64,
    /// A leaf that the entry is split into, as an [`EntryId`], and in the upper half how many records that has then; 0:
    /// none.
    pub(super) other: Cell64,
    pub(super) dead: [Cell64; MAX_RECORDS / 64],
}

/// Bytes of a journal.
pub(super) const fn journal_bytes(widths: Widths) -> u64 {
    (size_of::<Journal>() + MAX_RECORDS * widths.words() * size_of::<Cell64>()) as u64
}

/// The head of a recovery log's chunk; the records follow.
#[repr(C, align(64))]
pub(super) struct ChunkHead {
    /// How many chunks of the log had been begun when this one was begun last, itself included; 0: never.
    pub(super) turn: Cell64,
    _reserved: [Cell64; 7],
}

/// The table's root words, page 1 of `table.ice`.
#[repr(C)]
pub(super) struct Root {
    /// [`Phase`]. The commit point of `clear`.
    pub(super) phase: Cell64,
    /// How many levels there are.
    pub(super) levels: Cell64,
    /// 1: a log may have records whose payloads a crash has taken; 0: it has none.
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
const _: () = assert!(size_of::<Root>() as u64 <= crate::pm::superblock::ROOT_BYTES);

/// How many records an entry holds, and in its upper 48 bits up to which epoch of their root entry the records of the
/// recovery log have arrived here. Level 1 only, none elsewhere.
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

/// What the table as a whole is doing, and which of their two sets of words the allocators go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Stable {
        set: usize,
    },
    /// Whatever entries and logs hold, the table is empty.
    Clearing {
        set: usize,
    },
    /// Blocks are in use where entries lead to them, whatever the allocators' lists say.
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

    /// `None` for a word that no phase packs to.
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

/// An entry by number: the levels' entries one level after the other, and the chained ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryId {
    Level(u32),
    Chained(u32),
}

const CHAINED: u32 = 1 << 31;

impl EntryId {
    /// As an allocator's tag.
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

/// How large things are. Fixed at a table's creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Two to this power are the entries of the root.
    pub root_bits: u32,
    /// Two to this power entries of level 1 belong to an entry of the root.
    pub first_bits: u32,
    /// Two to this power entries of a level belong to one of the level above: the fan-out, and the buckets of an entry.
    pub fan_bits: u32,
    /// Slots of a bucket that are used, 1 to 16.
    pub slots: u32,
    /// Two to this power recovery logs.
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
    /// Whether the fields are within their bounds.
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

    /// As superblock parameters.
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

    /// Bits of a hash that choose an entry of a level; level 0 is the root.
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

    /// How many levels there can be.
    pub(super) fn max_levels(self) -> usize {
        (1..=MAX_LEVELS).take_while(|&level| self.prefix(level) <= MAX_PREFIX).count()
    }

    /// How many entries the levels above one have together.
    #[inline]
    pub(super) fn entries_above(self, level: usize) -> u64 {
        (1..level).map(|level| self.entries(level)).sum()
    }

    /// The entry of a level to which a hash belongs.
    #[inline]
    pub(super) fn index(self, level: usize, hash: u64) -> u64 {
        // In two steps: a shift by 64 is none.
        hash >> 1 >> (63 - self.prefix(level))
    }

    /// By how many bits the entries of the next level are more.
    #[inline]
    pub(super) fn step(self, level: usize) -> u32 {
        self.prefix(level + 1) - self.prefix(level)
    }

    /// To which of the entries below that of its level a hash belongs.
    #[inline]
    pub(super) fn place_below(self, level: usize) -> impl Fn(u64) -> usize {
        let (shift, mask) = (63 - self.prefix(level + 1), (1 << self.step(level)) - 1);
        move |hash| (hash >> 1 >> shift) as usize & mask
    }

    /// Bytes of a log chunk.
    pub(super) fn chunk_bytes(self, widths: Widths) -> u64 {
        let records = widths.log_bytes(self.log_records);
        (size_of::<ChunkHead>() as u64 + records).next_multiple_of(256)
    }

    /// Bytes of all recovery logs.
    pub(super) fn log_bytes(self, widths: Widths) -> u64 {
        (self.chunk_bytes(widths) * u64::from(self.log_chunks)) << self.log_bits
    }
}

/// Which run a bucket is in, and which of its buckets it is: 0; 1; 2 3; 4 5 6 7; 8 ...
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
