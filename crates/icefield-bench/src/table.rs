//! The interface between experiments and tables: a [`BenchTable`] is an open table, a [`Design`] creates tables.
//!
//! The loops over keys are inside the calls, so dynamic dispatch costs nothing per operation. To add a design,
//! implement [`super::adapter::Adapter`] for its table and add a [`Design`] to [`super::designs`].

use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use icefield::storage::HugePages;
use icefield::storage::sim::Sim;
use icefield::{Durability, Error, JoinIndex, Result, Stats, SyncMode, Yards};
use icefield_peers::{Kind, Operation};

use crate::args::Hashing;
use crate::limit::Pages;
use crate::prelude::*;
use crate::stats::Histogram;

/// The operation that a phase applies to each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Looks up a key that is present.
    Get,
    /// Looks up a key that is absent.
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

/// Returns whether [`Call::PutHeavy`] updates `key`. It updates half of all keys, because keys are random.
#[inline]
pub(crate) fn updates(key: u64) -> bool {
    key & 1 == 1
}

impl Call {
    /// The calls that tables implement. The other calls consist of these.
    pub const PLAIN: [Self; 6] =
        [Self::Get, Self::TryInsert, Self::Insert, Self::Put, Self::Update, Self::Remove];

    /// Returns the number of operations that one key counts for.
    pub fn operations(self) -> usize {
        if self == Self::InsDel { 2 } else { 1 }
    }

    /// Returns whether the call adds records.
    pub fn adds(self) -> bool {
        matches!(self, Self::TryInsert | Self::Insert | Self::Put)
    }

    /// Returns the correct answers of a phase over `keys`. Each key must be present or absent as the call requires.
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

/// One operation of a mixed phase.
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

/// Which calls of a table return values.
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

    /// Returns `found` in the form in which this table answers: without the sum of values if it stores keys only.
    pub fn told_of(self, found: Tally) -> Tally {
        if self == Self::Hits { Tally { sum: 0, ..found } } else { found }
    }

    /// Returns the correct answers of `call` over `keys`.
    pub fn expected(self, call: Call, keys: &[u64]) -> Tally {
        let all = call.expected(keys);
        if self == Self::Values || all.sum == 0 {
            return all;
        }
        let told: Vec<u64> = keys.iter().copied().filter(|&key| self.tells(call, key)).collect();
        Tally { sum: Tally::of_values(&told).sum, ..all }
    }
}

/// Operations whose times are recorded.
pub(crate) struct Timed<'a> {
    /// The calls that are made with each key, in order.
    pub calls: &'a [Call],
    pub keys: &'a [u64],
    /// `None`: each operation starts when the one before has ended.
    pub pace: Option<Pace<'a>>,
}

/// Operations that are due at regular times.
pub(crate) struct Pace<'a> {
    /// The time from one operation to the next.
    pub every: Duration,
    /// The time from the moment at which each operation was due to its end, in nanoseconds. It includes the wait for
    /// operations before it, and for a processor that was busy with something else.
    pub since_due: &'a mut Histogram,
}

impl<'a> Timed<'a> {
    /// Makes one call with each key, one after the other.
    pub fn each(call: &'a Call, keys: &'a [u64]) -> Self {
        Self { calls: std::slice::from_ref(call), keys, pace: None }
    }
}

/// A table under measurement: the value of each 64-bit key is [`value_of`](crate::keys::value_of) the key.
pub(crate) trait BenchTable: Send + Sync {
    /// Makes `call` for each key in order. `hits` counts gets, updates and removals of present keys and inserts of
    /// absent ones; `sum` adds up the returned values.
    fn run(&self, call: Call, keys: &[u64], batch: Batch) -> Result<Tally>;

    /// Runs operations of several kinds in order.
    fn run_mixed(&self, ops: &[Mixed], batch: Batch) -> Result<Tally>;

    /// Does the same as [`BenchTable::run`], one operation at a time, and records the time of each in nanoseconds.
    fn run_timed(&self, run: Timed<'_>, times: &mut Histogram) -> Result<Tally>;

    fn answers(&self) -> Answers;

    /// Called when the thread with this number begins to use the table (`begins` is true), and when it has finished.
    fn thread(&self, index: usize, begins: bool);

    fn stats(&self) -> Stats;

    /// Returns the join index behind the table; `None` for other tables and for an index on the simulated medium.
    fn index(&self) -> Option<&JoinIndex<u64>>;
}

/// Returns a count from the design's own statistics, by its name.
pub(crate) fn detail(stats: &Stats, name: &str) -> Option<u64> {
    stats.details.iter().find(|(known, _)| *known == name).map(|(_, count)| *count)
}

pub(crate) type Made = Result<Box<dyn BenchTable>>;

/// The type of a function that builds a table of all its records at once, with a number of threads.
pub(crate) type Build = fn(&Place, Setup, &[u64], usize) -> Made;

/// The functions that make the tables of a design.
pub(crate) enum Maker {
    Ours {
        /// Creates an empty table.
        create: fn(&Place, Setup) -> Made,
        /// Opens the existing table, with this number of recovery threads. Tables without
        /// [`Design::recovers_on_threads`] ignore the number.
        open: fn(&Place, usize) -> Made,
        /// Set if tables of this design are built from all their records at once.
        build: Option<Build>,
    },
    Peer {
        kind: &'static dyn Kind,
        create: fn(&dyn Kind, &Place, Setup) -> Made,
        /// Opens the table that an earlier process stored.
        open: fn(&dyn Kind, &Place) -> Made,
    },
}

/// A kind of table that can be created and opened.
pub(crate) struct Design {
    /// The name used in options and results.
    pub name: &'static str,
    pub maker: Maker,
    /// The media that its tables support, the usual one first.
    pub media: &'static [Medium],
    /// True if its tables are measured when `--tables` is not given.
    pub is_usual: bool,
    /// True if its tables are single-threaded, so that only one thread is measured.
    pub is_for_one_thread: bool,
    /// True if the hash function is an option.
    pub offers_hashes: bool,
    /// True if its tables have levels, with options for the first levels.
    pub offers_levels: bool,
    /// True if its tables have front and back buckets of selectable size.
    pub offers_yards: bool,
    /// True if its tables return space to the file system when records are removed.
    pub gives_space_back: bool,
    /// True if the number of recovery threads is an option.
    pub recovers_on_threads: bool,
    /// The calls that its tables support; `None` if they support all.
    pub calls: Option<&'static [Call]>,
    /// Returns whether its tables can store these records.
    pub holds: fn(Records) -> bool,
    /// The kind of pages in which its memory is mapped; the bare loops use the same.
    pub pages: Pages,
    /// The documented costs of operations without splits, as [`costs`] reads them; empty if there are none.
    pub costs: &'static [(usize, usize, usize)],
    /// The regions that its tables may have, each with the name under which results count its lines.
    pub regions: &'static [(&'static str, &'static str)],
}

/// Lists the regions of a design, each followed by the name under which results count its lines.
macro_rules! regions {
    ($($region:literal $structure:literal,)*) => { &[$(($region, $structure)),*] };
}
pub(crate) use regions;

pub(crate) type DesignRef = &'static Design;

impl Design {
    /// Returns a design of tables that map words to words and whose usual medium is persistent memory.
    pub const fn new(name: &'static str, maker: Maker) -> Self {
        Self {
            name,
            maker,
            media: &[Medium::Pmem, Medium::Memory, Medium::Process, Medium::Sim],
            is_usual: true,
            is_for_one_thread: false,
            offers_hashes: false,
            offers_levels: false,
            offers_yards: false,
            gives_space_back: false,
            recovers_on_threads: false,
            calls: None,
            holds: |records| matches!(records, Records::WORDS),
            pages: Pages::AsMapped,
            costs: &[],
            regions: &[],
        }
    }

    pub fn is_peer(&self) -> bool {
        matches!(self.maker, Maker::Peer { .. })
    }

    /// Returns whether its tables are built from all their records at once, by [`Design::build`].
    pub fn is_built(&self) -> bool {
        matches!(self.maker, Maker::Ours { build: Some(_), .. })
    }

    pub fn lives_in(&self, medium: Medium) -> bool {
        self.media.contains(&medium)
    }

    pub fn usual_medium(&self) -> Medium {
        self.media[0]
    }

    /// Returns whether its tables support `call`.
    pub fn offers(&self, call: Call) -> bool {
        let Maker::Peer { kind, .. } = &self.maker else {
            return self.calls.is_none_or(|calls| calls.contains(&call));
        };
        let needed: &[Operation] = match call {
            Call::Get | Call::GetMiss => &[Operation::Get],
            Call::TryInsert => &[Operation::Insert],
            Call::Put => &[Operation::Put],
            Call::Insert => return false,
            Call::Update => &[Operation::Update],
            Call::Remove => &[Operation::Remove],
            Call::InsDel => &[Operation::InsDel],
            Call::PutHeavy => &[Operation::Get, Operation::Update],
        };
        needed.iter().all(|operation| kind.offers(*operation))
    }

    /// Creates an empty table.
    pub fn create(&self, place: &Place, setup: Setup) -> Made {
        match &self.maker {
            Maker::Ours { create, .. } => create(place, setup),
            Maker::Peer { kind, create, .. } => create(*kind, place, setup),
        }
    }

    /// Opens the existing table.
    pub fn open(&self, place: &Place, threads: usize) -> Made {
        match &self.maker {
            Maker::Ours { open, .. } => open(place, threads),
            Maker::Peer { kind, open, .. } => open(*kind, place),
        }
    }

    /// Builds a table of `keys`, each with its value, with `threads` threads.
    pub fn build(&self, place: &Place, setup: Setup, keys: &[u64], threads: usize) -> Made {
        match &self.maker {
            Maker::Ours { build: Some(build), .. } => build(place, setup, keys, threads),
            _ => Err(unsupported("tables", format!("{} is filled record by record", self.name))),
        }
    }

    /// Returns the documented cost of one operation without splits; `None` if the design has no documented costs, for
    /// example if it is a peer.
    pub fn cost(&self, call: Call) -> Option<Cost> {
        let (reads, writes, fences) = *self.costs.get(match call {
            Call::Get => 0,
            Call::GetMiss => 1,
            Call::TryInsert | Call::Insert => 2,
            Call::Put => 3,
            Call::Update | Call::Remove => 4,
            Call::InsDel => 5,
            Call::PutHeavy => 6,
        })?;
        Some(Cost { reads, writes, fences })
    }

    /// Returns the name that results use for the lines of `region`.
    pub fn structure(&self, region: &str) -> &'static str {
        self.regions.iter().find(|(name, _)| *name == region).map_or("other", |(_, name)| name)
    }
}

/// Returns the error for an option that the table does not support.
pub(crate) fn unsupported(option: &'static str, detail: impl Into<String>) -> Error {
    Error::InvalidOption { option, detail: detail.into() }
}

#[derive(Clone, Debug)]
pub(crate) enum Place {
    Memory,
    Dir { path: PathBuf, durability: Durability, huge_pages: HugePages },
    Simulated(Sim),
}

/// A table and its directory, which is removed on drop.
pub(crate) struct Placed {
    // Field order matters: the table is dropped before its directory.
    pub table: Box<dyn BenchTable>,
    pub design: DesignRef,
    pub place: Place,
    pub dir: RemovedDir,
}

impl Deref for Placed {
    type Target = dyn BenchTable;

    fn deref(&self) -> &Self::Target {
        &*self.table
    }
}

impl Placed {
    /// Returns the simulated medium of the table.
    pub fn sim(&self) -> Outcome<&Sim> {
        match &self.place {
            Place::Simulated(sim) => Ok(sim),
            _ => Err(crate::Error::failed("the table is not on the simulated medium")),
        }
    }

    /// Closes the table and opens it again.
    pub fn reopened(self, threads: usize) -> Result<Self> {
        let Self { table, design, place, dir } = self;
        drop(table);
        Ok(Self { table: design.open(&place, threads)?, design, place, dir })
    }
}

/// The shape of records, for tables that store more than words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    pub key_bytes: usize,
    pub value_bytes: usize,
    /// True if a get reads the whole value, not only its first word.
    pub whole: bool,
    pub form: Form,
}

/// The difference between records of the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Every key has the same size, and so has every value. Records come from the program's allocator.
    Plain,
    /// Values have several sizes.
    Values,
    /// Keys have several sizes, up to that of `key_bytes`.
    Keys,
    /// All records are in a namespace other than the default one.
    Namespace,
    /// Records come from the C library's allocator, through the table's allocator parameter.
    Malloc,
}

impl Records {
    /// Records of two words.
    pub const WORDS: Self = Self { key_bytes: 8, value_bytes: 8, whole: true, form: Form::Plain };
}

/// Options for the first levels of a table with levels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    /// The number of levels that have a copy of their filters in DRAM.
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
    /// True if the table grows only when all its slots are used. Tables without this option ignore it.
    pub filled_up: bool,
    pub hash: Hashing,
    pub link_ratio: Option<f64>,
    pub fixed_size: bool,
    pub levels: Option<Levels>,
    /// Gives a Plush its helper thread.
    pub helper: bool,
    /// Determines when writes on a disk are acknowledged.
    pub sync: SyncMode,
    pub records: Records,
    /// The hash seed, which makes runs repeatable.
    pub seed: u64,
}

/// The documented cost of an operation. It reads `reads` lines, stores to and flushes `writes` lines, and issues
/// `fences` fences; a batch of 32 shares its fences. In a table without fences, `writes` counts the lines that a
/// compare-and-swap changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub reads: usize,
    pub writes: usize,
    pub fences: usize,
}
