//! The seam between experiments and tables: [`BenchTable`] is one opened table, [`Design`] makes them.
//!
//! The loops are inside the calls, so that a call through `dyn` costs nothing per operation; whatever can take an array
//! of keys can be measured. A new design joins by implementing [`Design`] and a line in [`super::designs`].

use std::path::PathBuf;

use icefield::pm::HugePages;
use icefield::pm::sim::Sim;
use icefield::{Durability, Error, JoinIndex, Result, Stats, SyncMode, Yards};

use crate::args::{Batch, Hashing, Medium};
use crate::keys::Tally;
use crate::limit::Pages;
use crate::stats::Histogram;

/// What is asked of each key of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Of a present key.
    Get,
    /// Of an absent key.
    GetMiss,
    TryInsert,
    Insert,
    Put,
    Update,
    Remove,
    /// An insert and a remove of the same absent key.
    InsDel,
    /// Of a present key: a get, or an update; see [`updates`].
    PutHeavy,
}

/// Whether [`Call::PutHeavy`] updates `key`: as good as a coin, for keys are random.
#[inline]
pub(crate) fn updates(key: u64) -> bool {
    key & 1 == 1
}

impl Call {
    /// How many operations one key stands for.
    pub fn operations(self) -> usize {
        if self == Self::InsDel { 2 } else { 1 }
    }

    /// What a phase over `keys` must answer when each key was as the call expects it.
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

/// One operation of a mixed phase: a get, an update, an insert of any kind, or a removal.
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

/// What a table may leave out of its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// Nothing: every get, update and removal tells the value.
    Values,
    /// Only gets tell the value.
    GetValues,
    /// There are no values.
    Hits,
}

impl Answers {
    /// Whether `call` tells the value of `key`.
    fn tells(self, call: Call, key: u64) -> bool {
        match self {
            Self::Values => true,
            Self::GetValues => call == Call::Get || call == Call::PutHeavy && !updates(key),
            Self::Hits => false,
        }
    }

    /// What is told of gets that find this.
    pub fn told_of(self, found: Tally) -> Tally {
        if self == Self::Hits { Tally { sum: 0, ..found } } else { found }
    }

    /// What `call` over `keys` must answer, from a table that answers like this.
    pub fn expected(self, call: Call, keys: &[u64]) -> Tally {
        let all = call.expected(keys);
        if self == Self::Values || all.sum == 0 {
            return all;
        }
        let told: Vec<u64> = keys.iter().copied().filter(|&key| self.tells(call, key)).collect();
        Tally { sum: Tally::of_values(&told).sum, ..all }
    }
}

/// A table under measurement: 64-bit keys, [`value_of`] each as its value.
pub(crate) trait BenchTable: Send + Sync {
    /// Makes `call` for each key in order. `hits` counts gets and updates and removals that found their key, and
    /// inserts that met none; `sum` adds up the values that they answered.
    fn run(&self, call: Call, keys: &[u64], batch: Batch) -> Result<Tally>;

    /// What the answers hold.
    fn answers(&self) -> Answers {
        Answers::Values
    }

    /// Says that this thread, the `index`-th, begins to use the table, or has ended.
    fn thread(&self, _index: usize, _begins: bool) {}

    /// Operations of several kinds in order.
    fn run_mixed(&self, ops: &[Mixed], batch: Batch) -> Result<Tally>;

    /// [`BenchTable::run`] one by one, each with its time in nanoseconds.
    fn run_timed(&self, call: Call, keys: &[u64], times: &mut Histogram) -> Result<Tally>;

    /// What the table is made of.
    fn stats(&self) -> Stats;

    /// The index behind it, if it is one, in memory or in files.
    fn index(&self) -> Option<&JoinIndex<u64>> {
        None
    }
}

/// A kind of table that can be made and opened.
pub(crate) trait Design: Sync {
    /// Its name in options and results.
    fn name(&self) -> &str;

    /// Whether it is somebody else's.
    fn is_peer(&self) -> bool {
        false
    }

    /// Whether it takes part when no table is asked for by name.
    fn is_usual(&self) -> bool {
        true
    }

    /// Whether its tables are for one thread only, so that there is nothing to measure with more.
    fn is_for_one_thread(&self) -> bool {
        false
    }

    /// Whether its tables can live there.
    fn lives_in(&self, medium: Medium) -> bool;

    /// Where its tables live when no medium is asked for.
    fn usual_medium(&self) -> Medium;

    /// Whether the hash function can be chosen.
    fn offers_hashes(&self) -> bool {
        false
    }

    /// Whether it has levels, and options for the first of them.
    fn offers_levels(&self) -> bool {
        false
    }

    /// Whether it has front and back buckets, whose sizes can be chosen.
    fn offers_yards(&self) -> bool {
        false
    }

    /// Whether its tables give space back to the file system when records go.
    fn gives_space_back(&self) -> bool {
        false
    }

    /// Whether one can say how many threads recover a table.
    fn recovers_on_threads(&self) -> bool {
        false
    }

    /// Whether its tables answer `call`.
    fn offers(&self, _call: Call) -> bool {
        true
    }

    /// Whether its tables hold such records.
    fn holds(&self, records: Records) -> bool {
        records == Records::default()
    }

    /// What pages its memory asks for, so that the bare loops ask for the same.
    fn pages(&self) -> Pages {
        Pages::AsMapped
    }

    /// Whether its tables are made of all their records at once, by [`Design::build`].
    fn is_built(&self) -> bool {
        false
    }

    /// Makes a table of `keys`, [`value_of`] each as its value, with so many threads.
    ///
    /// [`value_of`]: crate::keys::value_of
    fn build(&self, place: &Place, _setup: Setup, _keys: &[u64], _threads: usize) -> Built {
        let detail = format!("{} is filled record by record ({place:?})", self.name());
        Err(Error::InvalidOption { option: "tables", detail })
    }

    /// Makes an empty table.
    fn create(&self, place: &Place, setup: Setup) -> Result<Box<dyn BenchTable>>;

    /// Opens the table that is there, with so many threads if [`Design::recovers_on_threads`].
    fn open(&self, place: &Place, threads: usize) -> Result<Box<dyn BenchTable>>;

    /// What the design itself says that one operation costs, without splits; `None` for peers, which are not compared
    /// with bare loops.
    fn cost(&self, call: Call) -> Option<Cost>;

    /// The regions that a table of this design may have, each with what its lines are called in results.
    fn regions(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

/// What the lines of `region` are called in results.
pub(crate) fn structure_of(design: &dyn Design, region: &str) -> &'static str {
    design
        .regions()
        .iter()
        .find(|(name, _)| *name == region)
        .map_or("other", |(_, structure)| structure)
}

/// What making a table gives.
pub(crate) type Built = Result<Box<dyn BenchTable>>;

/// Where a table is made.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Memory,
    Dir { path: PathBuf, durability: Durability, huge_pages: HugePages },
    Simulated(Sim),
}

/// What records are, of tables that offer more than words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    pub key_bytes: usize,
    pub value_bytes: usize,
    /// Whether gets read the whole value; otherwise its first word.
    pub whole: bool,
    pub allocation: Allocation,
}

impl Default for Records {
    /// Words.
    fn default() -> Self {
        Self { key_bytes: 8, value_bytes: 8, whole: true, allocation: Allocation::Global }
    }
}

/// Where records in memory of their own come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// The program's allocator.
    Global,
    /// The C library's, by the table's allocator parameter.
    Malloc,
}

/// What a table of levels does for the first of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    /// How many have their filters in DRAM, too.
    pub dram_filters: usize,
    /// How many have all their buckets from the start.
    pub preallocated: usize,
}

/// How a table is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Records that it holds without growing.
    pub capacity: u64,
    pub stash_buckets: Option<u32>,
    pub yards: Option<Yards>,
    /// Whether a table grows only when all its slots are used, if it can be told so.
    pub filled_up: bool,
    pub hash: Hashing,
    /// Link buckets per bin.
    pub link_ratio: Option<f64>,
    pub fixed_size: bool,
    pub levels: Option<Levels>,
    /// When writes are acknowledged, on a disk.
    pub sync: SyncMode,
    pub records: Records,
    /// Of its hash, so that runs repeat.
    pub seed: u64,
}

/// The documented cost of an operation: it reads `reads` lines, stores to and flushes `writes`, and fences `fences`
/// times; a batch of 32 shares its fences. Without fences a line that is written is one that an exchange changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub reads: usize,
    pub writes: usize,
    pub fences: usize,
}
