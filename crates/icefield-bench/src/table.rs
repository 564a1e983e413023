//! The interface between experiments and tables: [`BenchTable`] is an open table, [`Design`] creates them.
//!
//! The loops over keys are inside the calls, so dynamic dispatch costs nothing per operation; any table that takes
//! an array of keys can be measured. To add a design, implement [`Design`] and add a line to [`super::designs`].

use std::path::PathBuf;

use icefield::storage::HugePages;
use icefield::storage::sim::Sim;
use icefield::{Durability, Error, JoinIndex, Result, Stats, SyncMode, Yards};

use crate::args::{Batch, Hashing, Medium};
use crate::keys::Tally;
use crate::limit::Pages;
use crate::stats::Histogram;

/// The operation that a phase applies to each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// The key is present.
    Get,
    /// The key is absent.
    GetMiss,
    TryInsert,
    Insert,
    Put,
    Update,
    Remove,
    /// An insert and a remove of the same absent key, counted as two operations.
    InsDel,
    /// A get or an update of a present key; see [`updates`].
    PutHeavy,
}

/// Returns whether [`Call::PutHeavy`] updates `key`. Keys are random, so half of them are updated.
#[inline]
pub(crate) fn updates(key: u64) -> bool {
    key & 1 == 1
}

impl Call {
    /// Returns the number of operations that one key counts for.
    pub fn operations(self) -> usize {
        if self == Self::InsDel { 2 } else { 1 }
    }

    /// Returns the required answers of a phase over `keys` in which each key was as the call expects.
    pub fn expected(self, keys: &[u64]) -> Tally {
        let values = Tally::of_values(keys);
        match self {
            Self::Get | Self::Update | Self::Remove | Self::PutHeavy => values,
            Self::GetMiss => Tally::default(),
            Self::TryInsert | Self::Insert | Self::Put => Tally { sum: 0, ..values },
            Self::InsDel => Tally { hits: 2 * values.hits, ..values },
        }
    }
}

/// One operation of a mixed phase: a get, an update, any kind of insert, or a removal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixed {
    pub key: u64,
    pub call: Call,
}

impl Mixed {
    pub fn new(call: Call, key: u64) -> Self {
        Self { key, call }
    }
}

/// The calls of a table that return values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// Every get, update and removal returns the value.
    Values,
    /// Only gets return the value.
    GetValues,
    /// The table stores keys only.
    Hits,
}

impl Answers {
    /// Returns whether `call` returns the value of `key`.
    fn tells(self, call: Call, key: u64) -> bool {
        match self {
            Self::Values => true,
            Self::GetValues => call == Call::Get || call == Call::PutHeavy && !updates(key),
            Self::Hits => false,
        }
    }

    /// Returns the answers of gets whose keys and values are `found`.
    pub fn told_of(self, found: Tally) -> Tally {
        if self == Self::Hits { Tally { sum: 0, ..found } } else { found }
    }

    /// Returns the required answers of `call` over `keys`.
    pub fn expected(self, call: Call, keys: &[u64]) -> Tally {
        let all = call.expected(keys);
        if self == Self::Values || all.sum == 0 {
            return all;
        }
        let told: Vec<u64> = keys.iter().copied().filter(|&key| self.tells(call, key)).collect();
        Tally { sum: Tally::of_values(&told).sum, ..all }
    }
}

/// A table under measurement: the value of each 64-bit key is [`value_of`] the key.
pub(crate) trait BenchTable: Send + Sync {
    /// Makes `call` for each key in order. `hits` counts gets, updates and removals of present keys and inserts of
    /// absent ones; `sum` adds up the returned values.
    fn run(&self, call: Call, keys: &[u64], batch: Batch) -> Result<Tally>;

    fn answers(&self) -> Answers {
        Answers::Values
    }

    /// Called when this thread, number `_index`, starts to use the table, and when it has finished.
    fn thread(&self, _index: usize, _begins: bool) {}

    /// Runs operations of several kinds in order.
    fn run_mixed(&self, ops: &[Mixed], batch: Batch) -> Result<Tally>;

    /// Does the same as [`BenchTable::run`], one operation at a time, and records the time of each in nanoseconds.
    fn run_timed(&self, call: Call, keys: &[u64], times: &mut Histogram) -> Result<Tally>;

    fn stats(&self) -> Stats;

    /// Returns the join index behind the table, in memory or in files; `None` for other tables.
    fn index(&self) -> Option<&JoinIndex<u64>> {
        None
    }
}

/// A kind of table that can be created and opened.
pub(crate) trait Design: Sync {
    /// Returns the name used in options and results.
    fn name(&self) -> &str;

    /// Returns whether it is a competitor and not one of our tables.
    fn is_peer(&self) -> bool {
        false
    }

    /// Returns whether it is measured when `--tables` is not given.
    fn is_usual(&self) -> bool {
        true
    }

    /// Returns whether its tables are single-threaded, so that only one thread is measured.
    fn is_for_one_thread(&self) -> bool {
        false
    }

    fn lives_in(&self, medium: Medium) -> bool;

    /// Returns the default medium.
    fn usual_medium(&self) -> Medium;

    /// Returns whether the hash function is an option.
    fn offers_hashes(&self) -> bool {
        false
    }

    /// Returns whether it has levels, and options for the first of them.
    fn offers_levels(&self) -> bool {
        false
    }

    /// Returns whether it has front and back buckets of selectable size.
    fn offers_yards(&self) -> bool {
        false
    }

    /// Returns whether its tables return space to the file system when records are removed.
    fn gives_space_back(&self) -> bool {
        false
    }

    /// Returns whether the number of recovery threads is an option.
    fn recovers_on_threads(&self) -> bool {
        false
    }

    /// Returns whether its tables support `call`.
    fn offers(&self, _call: Call) -> bool {
        true
    }

    /// Returns whether its tables can store these records.
    fn holds(&self, records: Records) -> bool {
        records == Records::default()
    }

    /// Returns the kind of pages in which its memory is mapped; the bare loops use the same.
    fn pages(&self) -> Pages {
        Pages::AsMapped
    }

    /// Returns whether its tables are built from all their records at once, by [`Design::build`].
    fn is_built(&self) -> bool {
        false
    }

    /// Builds a table of `_keys`, [`value_of`] each as its value, with `_threads` threads.
    ///
    /// [`value_of`]: crate::keys::value_of
    fn build(&self, place: &Place, _setup: Setup, _keys: &[u64], _threads: usize) -> Built {
        let detail = format!("{} is filled record by record ({place:?})", self.name());
        Err(Error::InvalidOption { option: "tables", detail })
    }

    /// Creates an empty table.
    fn create(&self, place: &Place, setup: Setup) -> Result<Box<dyn BenchTable>>;

    /// Opens the existing table, with `threads` recovery threads if [`Design::recovers_on_threads`].
    fn open(&self, place: &Place, threads: usize) -> Result<Box<dyn BenchTable>>;

    /// Returns the documented cost of one operation without splits; `None` for peers, which are not compared with
    /// bare loops.
    fn cost(&self, call: Call) -> Option<Cost>;

    /// Returns the regions that its tables may have, each with the name of its lines in results.
    fn regions(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

/// Returns the name in results of the lines of `region`.
pub(crate) fn structure_of(design: &dyn Design, region: &str) -> &'static str {
    design
        .regions()
        .iter()
        .find(|(name, _)| *name == region)
        .map_or("other", |(_, structure)| structure)
}

pub(crate) type Built = Result<Box<dyn BenchTable>>;

#[derive(Clone, Debug)]
pub(crate) enum Place {
    Memory,
    Dir { path: PathBuf, durability: Durability, huge_pages: HugePages },
    Simulated(Sim),
}

/// The shape of records, for tables that store more than words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    pub key_bytes: usize,
    pub value_bytes: usize,
    /// True if gets read the whole value and not only its first word.
    pub whole: bool,
    pub allocation: Allocation,
}

impl Default for Records {
    /// Records of two words.
    fn default() -> Self {
        Self { key_bytes: 8, value_bytes: 8, whole: true, allocation: Allocation::Global }
    }
}

/// The allocator of records that live outside the table's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// The program's global allocator.
    Global,
    /// The C library's allocator, through the table's allocator parameter.
    Malloc,
}

/// Options for the first levels of a table with levels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    /// The number of levels with their filters in DRAM too.
    pub dram_filters: usize,
    /// The number of levels that have all their buckets from the start.
    pub preallocated: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// The number of records that the table holds without growing.
    pub capacity: u64,
    pub stash_buckets: Option<u32>,
    pub yards: Option<Yards>,
    /// True if the table grows only when all its slots are used, if it offers this.
    pub filled_up: bool,
    pub hash: Hashing,
    pub link_ratio: Option<f64>,
    pub fixed_size: bool,
    pub levels: Option<Levels>,
    /// Determines when writes on a disk are acknowledged.
    pub sync: SyncMode,
    pub records: Records,
    /// The hash seed, which makes runs repeatable.
    pub seed: u64,
}

/// The documented cost of an operation: it reads `reads` lines, stores to and flushes `writes` lines, and issues
/// `fences` fences; a batch of 32 shares its fences. Without fences, a written line is one that a compare-and-swap
/// changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub reads: usize,
    pub writes: usize,
    pub fences: usize,
}
