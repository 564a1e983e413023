//! All scenarios for all persistent tables, compiled once. Programs call them through function pointers and
//! instantiate no tables themselves, which would take the compiler minutes per program.

use std::path::Path;
use std::process::Command;

use icefield::storage::sim::{Model, Pool as Memory, Sim};
use icefield::{DashEh, DashLh, Iceberg, Plush};

use crate::churn::{self, ChurnOptions};
use crate::crash::mutate::{self, MutateOptions, MutateReport};
use crate::crash::{self, CrashOptions, CrashReport};
use crate::file_subject::{FileOptions, FileSubject};
use crate::place::{FilePlace, MemoryPlace, SimPlace};
use crate::pool::Pool;
use crate::subject::Subject;
use crate::{Failure, corrupt, faults, hostile, iterate, kill, linear, model, syncs};

/// The types of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// Keys and values are words.
    Words,
    /// Keys and values are byte strings.
    Bytes,
    /// Keys of 16 and values of 32 bytes, for tables that store them in their slots.
    Wide,
}

/// The scenarios for the tables of one design with one kind of records.
#[derive(Debug)]
pub struct Scenarios {
    /// The design.
    pub table: &'static str,
    /// The kind of records.
    pub records: Records,
    /// True if the design supports disks.
    pub disks: bool,
    /// [`model::scenario`] on the simulated medium: seed, length, crash model.
    pub model_simulated: fn(u64, usize, Model, &Memory) -> Result<model::Counts, Failure>,
    /// [`model::scenario`] in anonymous memory.
    pub model_in_memory: ModelInMemory,
    /// [`model::scenario`] in a directory, which must not exist yet: seed, length.
    pub model_in_files: fn(u64, usize, &Path) -> Result<model::Counts, Failure>,
    /// [`iterate::scenario`].
    pub iterate: fn(u64, &Pool, &Memory) -> Result<iterate::Counts, Failure>,
    /// [`crash::run`].
    pub crash: fn(&CrashOptions) -> CrashReport,
    /// [`mutate::run`].
    pub mutate: fn(&MutateOptions) -> MutateReport,
    /// [`kill::scenario`].
    pub kill: KillScenario,
    /// [`kill::child`].
    pub child: fn(&str) -> Result<(), String>,
    /// [`linear::scenario`].
    pub linear: fn(u64, u64, Model, &Pool) -> Result<linear::Counts, Failure>,
    /// [`corrupt::scenario`].
    pub corrupt: fn(u64, u64) -> Result<corrupt::Counts, Failure>,
    /// [`corrupt::scenario_on_files`].
    pub corrupt_files: fn(u64, u64, &Path) -> Result<corrupt::Counts, Failure>,
    /// [`churn::scenario`].
    pub churn: fn(&ChurnOptions, &Path) -> Result<churn::Counts, Failure>,
    /// [`hostile::scenario`].
    pub hostile: fn(u64, u64) -> Result<hostile::Counts, Failure>,
    /// [`hostile::scenario_on_files`].
    pub hostile_files: fn(u64, u64, &Path) -> Result<hostile::Counts, Failure>,
    /// [`hostile::fuzz::files`].
    pub fuzz_files: fn(&[u8]) -> Result<(), Failure>,
    /// [`hostile::fuzz::operations`].
    pub fuzz_operations: fn(&[u8]) -> Result<(), Failure>,
    /// [`faults::scenario`].
    pub faults: fn(u64, &Path) -> Result<faults::Counts, Failure>,
    /// [`syncs::tables`], for designs that support disks.
    pub syncs: fn(&syncs::Options, &Path) -> Result<syncs::Counts, Failure>,
}

/// [`kill::scenario`] of one table.
pub type KillScenario =
    fn(u64, u64, &Path, &dyn Fn(&str) -> Command) -> Result<kill::Counts, Failure>;

impl Scenarios {
    const fn of<S: Subject, F: FileSubject>(records: Records) -> Self {
        Self {
            table: S::NAME,
            records,
            disks: S::DISKS,
            model_simulated: |seed, length, model, memory| {
                model::scenario::<S, _>(seed, length, || SimPlace::new(seed, model, memory))
            },
            model_in_memory: in_memory::<F>,
            model_in_files: |seed, length, path| {
                let how = FileOptions { variant: seed, ..FileOptions::default() };
                let place = || FilePlace::<F>::new(path.to_owned(), how.clone());
                model::scenario::<F, _>(seed, length, place)
            },
            iterate: iterate::scenario::<S>,
            crash: crash::run::<S>,
            mutate: mutate::run::<S>,
            kill: kill::scenario::<F>,
            child: kill::child::<F>,
            linear: linear::scenario::<S>,
            corrupt: corrupt::scenario::<S>,
            corrupt_files: corrupt::scenario_on_files::<F>,
            churn: churn::scenario::<F>,
            hostile: hostile::scenario::<S>,
            hostile_files: hostile::scenario_on_files::<F>,
            fuzz_files: hostile::fuzz::files::<S>,
            fuzz_operations: hostile::fuzz::operations::<S>,
            faults: faults::scenario::<F>,
            syncs: syncs::tables::<F>,
        }
    }
}

fn in_memory<F: FileSubject>(seed: u64, length: usize) -> Result<model::Counts, Failure> {
    model::scenario::<F, _>(seed, length, || MemoryPlace(seed))
}

/// Lists every scenario for every kind of records that a design supports. `wide` designs also store records wider
/// than words.
macro_rules! all_scenarios {
    (all: $($table:ident),*; wide: $($wide:ident),*) => {
        /// All designs with words and with bytes, and the `wide` ones with wide records.
        pub static SCENARIOS: &[Scenarios] = &[
            $(
                Scenarios::of::<$table<u64, u64, Sim>, $table<u64, u64>>(Records::Words),
                Scenarios::of::<$table<[u8], [u8], Sim>, $table<[u8], [u8]>>(Records::Bytes),
            )*
            $(Scenarios::of::<$wide<[u8; 16], [u8; 32], Sim>, $wide<[u8; 16], [u8; 32]>>(Records::Wide),)*
        ];

        /// [`Mixed`] for tables with byte keys and word values, and with word keys and byte values.
        pub static MIXED: &[Mixed] = &[$(Mixed::of::<$table<[u8], u64>, $table<u64, [u8]>>()),*];
    };
}
all_scenarios! { all: DashEh, DashLh, Iceberg, Plush; wide: Plush }

/// Returns the scenarios for a design's tables, or `None` if no persistent design of this name has such records.
#[must_use]
pub fn scenarios(table: &str, records: Records) -> Option<&'static Scenarios> {
    SCENARIOS.iter().find(|scenarios| scenarios.table == table && scenarios.records == records)
}

/// [`model::scenario`] in anonymous memory: seed, length.
pub type ModelInMemory = fn(u64, usize) -> Result<model::Counts, Failure>;

/// [`model::scenario`] in anonymous memory, for tables that combine wide keys or values with words or bytes.
pub static UNEVEN: [(&str, ModelInMemory); 3] = [
    ("plush, word keys and wide values", in_memory::<Plush<u64, [u8; 64]>>),
    ("plush, wide keys and word values", in_memory::<Plush<[u8; 64], u64>>),
    ("plush, wide keys and byte values", in_memory::<Plush<[u8; 32], [u8]>>),
];

/// The scenarios for tables with mixed records.
#[derive(Debug)]
pub struct Mixed {
    /// The design.
    pub table: &'static str,
    /// [`model::scenario`] with byte keys and word values.
    pub byte_keys: ModelInMemory,
    /// [`model::scenario`] with word keys and byte values.
    pub byte_values: ModelInMemory,
}

impl Mixed {
    const fn of<A: FileSubject, B: FileSubject>() -> Self {
        Self { table: A::NAME, byte_keys: in_memory::<A>, byte_values: in_memory::<B> }
    }
}
