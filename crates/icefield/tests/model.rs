//! Random sequences of all operations against a reference map: words and bytes, on the simulated medium, in anonymous
//! memory and in a directory.

use std::time::{Duration, Instant};

use icefield::storage::sim::{Model, Pool as Memory};
use icefield_torture::budget::Budget;
use icefield_torture::churn::ChurnOptions;
use icefield_torture::model::Counts;
use icefield_torture::pool::Pool;
use icefield_torture::scenarios::{MIXED, Records, SCENARIOS, Scenarios, UNEVEN, scenarios};
use icefield_torture::scratch::Scratch;
use icefield_torture::{Failure, iterate};

const STEPS: usize = 300;

fn histories(
    what: &str,
    seconds: u64,
    first_seed: u64,
    scenario: impl Fn(u64) -> Result<Counts, Failure>,
) -> Counts {
    let mut counts = Counts::default();
    let mut budget = Budget::time(Duration::from_secs(seconds)).at_least(100).at_most(4000);
    while let Some((number, _)) = budget.chunk(1) {
        let done = scenario(first_seed + number);
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{what}: {counts:?}");
    assert!(
        counts.histories >= 20 && counts.scans >= 100 && counts.operations >= 20_000,
        "{counts:?}"
    );
    counts
}

fn both(table: &str) -> [&'static Scenarios; 2] {
    [Records::Words, Records::Bytes].map(|records| scenarios(table, records).expect("a design"))
}

/// Returns all kinds of records of a design, each with its own seeds.
fn all(table: &str, first_seed: u64) -> impl Iterator<Item = (&'static Scenarios, u64)> {
    let seeds = (0..).map(move |number| first_seed + number * 1_000_000);
    SCENARIOS.iter().filter(move |scenarios| scenarios.table == table).zip(seeds)
}

fn simulated(table: &str, first_seed: u64) {
    for (scenarios, first_seed) in all(table, first_seed) {
        let memory = Memory::default();
        let what = format!("{table}, {:?}, on the simulated medium", scenarios.records);
        let counts = histories(&what, 1, first_seed, |seed| {
            (scenarios.model_simulated)(seed, STEPS, Model::Pmem, &memory)
        });
        assert!(counts.reopens >= 40, "{counts:?}");
    }
}

fn in_files(table: &str, first_seed: u64) {
    for (scenarios, first_seed) in all(table, first_seed) {
        let place = Scratch::new().expect("a scratch directory");
        let path = place.path().join("table");
        let what = format!("{table}, {:?}, in files", scenarios.records);
        let counts =
            histories(&what, 1, first_seed, |seed| (scenarios.model_in_files)(seed, STEPS, &path));
        assert!(counts.reopens >= 20, "{counts:?}");
    }
}

fn in_memory(table: &str, first_seed: u64) {
    let mixed = MIXED.iter().find(|mixed| mixed.table == table).expect("a design");
    let [words, bytes] = both(table);
    for (number, (what, scenario)) in (0..).zip([
        ("words", words.model_in_memory),
        ("bytes", bytes.model_in_memory),
        ("byte keys and word values", mixed.byte_keys),
        ("word keys and byte values", mixed.byte_values),
    ]) {
        let what = format!("{table}, {what}, in memory");
        histories(&what, 1, first_seed + number * 1_000_000, |seed| scenario(seed, STEPS));
    }
}

fn scans(table: &str) {
    let [words, bytes] = both(table);
    let (pool, memory) = (Pool::new(3), Memory::default());
    let mut counts = iterate::Counts::default();
    let is_enough = |counts: &iterate::Counts| {
        counts.scans >= 50 && counts.writes >= 1000 && counts.grown_tables >= 5
    };
    let started = Instant::now();
    for seed in 0..3000 {
        // On a busy machine, the writers of a round may get little processor time before the scanners finish. Further
        // rounds follow then.
        let is_due = seed >= 40 && started.elapsed() >= Duration::from_secs(2);
        if is_due && is_enough(&counts) {
            break;
        }
        let scenarios = if seed % 4 == 0 { bytes } else { words };
        let done = (scenarios.iterate)(seed, &pool, &memory);
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{table}, scans among writers: {counts:?}");
    assert!(is_enough(&counts), "{counts:?}");
    // On a busy machine, a thread that often yields may get little processor time. The table is at fault only if no
    // scanner at all finishes before its two writers.
    assert!(counts.outrun * iterate::PASSES / 2 < counts.scans, "scans starve: {counts:?}");
}

#[test]
fn dash_eh_simulated() {
    simulated("dash-eh", 1_000_000);
}

#[test]
fn dash_eh_in_memory() {
    in_memory("dash-eh", 3_000_000);
}

#[test]
fn dash_eh_in_files() {
    in_files("dash-eh", 7_000_000);
}

#[test]
fn dash_eh_scans_among_writers() {
    scans("dash-eh");
}

#[test]
fn dash_lh_simulated() {
    simulated("dash-lh", 21_000_000);
}

#[test]
fn dash_lh_in_memory() {
    in_memory("dash-lh", 23_000_000);
}

#[test]
fn dash_lh_in_files() {
    in_files("dash-lh", 27_000_000);
}

#[test]
fn dash_lh_scans_among_writers() {
    scans("dash-lh");
}

#[test]
fn iceberg_simulated() {
    simulated("iceberg", 11_000_000);
}

#[test]
fn iceberg_in_memory() {
    in_memory("iceberg", 13_000_000);
}

#[test]
fn iceberg_in_files() {
    in_files("iceberg", 17_000_000);
}

#[test]
fn iceberg_scans_among_writers() {
    scans("iceberg");
}

#[test]
fn plush_simulated() {
    simulated("plush", 31_000_000);
}

#[test]
fn plush_in_memory() {
    in_memory("plush", 33_000_000);
}

#[test]
fn plush_with_wide_records_in_memory() {
    for (number, (what, scenario)) in (0..).zip(UNEVEN) {
        let first_seed = 41_000_000 + number * 1_000_000;
        histories(what, 2, first_seed, |seed| scenario(seed, STEPS));
    }
}

#[test]
fn plush_in_files() {
    in_files("plush", 37_000_000);
}

#[test]
fn plush_scans_among_writers() {
    scans("plush");
}

/// Replaces records repeatedly; the files must stop growing. The scenario limits their size in proportion to the
/// records, also after most are removed. Tables for which this limit is tight are tested by `icefield-torture churn`.
fn churned(table: &str, records: Records) {
    let scenarios = scenarios(table, records).expect("a design");
    let place = Scratch::new().expect("a scratch directory");
    let options =
        ChurnOptions { records: 30_000, turnovers: 24, readers: 1, ..ChurnOptions::default() };
    let counts = (scenarios.churn)(&options, &place.path().join("table"));
    let counts = counts.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{table}, {records:?}: {counts:?}");
    assert!(counts.reads > 100, "{counts:?}");
    assert!(counts.most_bytes <= counts.early_bytes * 5 / 4, "no plateau: {counts:?}");
}

#[test]
fn files_stay_in_proportion_to_records_that_come_and_go() {
    for table in ["dash-eh", "dash-lh", "iceberg"] {
        churned(table, Records::Words);
    }
}
