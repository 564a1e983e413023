//! Each system call of the persistent layer, and each allocation of a table in memory, fails in turn: once, or for
//! good.

use std::ops::Range;
use std::path::Path;

use icefield::SyncMode;
use icefield_torture::scenarios::{Records, scenarios};
use icefield_torture::scratch::Scratch;
use icefield_torture::{Failure, dlht, join, syncs};

fn every_call(table: &str, records: Records, seed: u64) {
    let scenarios = scenarios(table, records).expect("a design");
    let place = Scratch::new().expect("a scratch directory");
    let done = (scenarios.faults)(seed, place.path());
    let counts = done.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{table}, {records:?}: {counts:?}");
    if let Err(failure) = counts.judged(seed) {
        panic!("{failure}");
    }
}

#[test]
fn words_survive_every_failing_call() {
    every_call("dash-eh", Records::Words, 3);
}

#[test]
fn linear_hashing_survives_every_failing_call() {
    every_call("dash-lh", Records::Words, 3);
    every_call("dash-lh", Records::Bytes, 6);
}

#[test]
fn icebergs_survive_every_failing_call() {
    every_call("iceberg", Records::Words, 3);
    every_call("iceberg", Records::Bytes, 6);
}

#[test]
fn words_in_plush_survive_every_failing_call() {
    every_call("plush", Records::Words, 3);
}

#[test]
fn bytes_in_plush_survive_every_failing_call() {
    every_call("plush", Records::Bytes, 6);
}

#[test]
fn bytes_survive_every_failing_call() {
    every_call("dash-eh", Records::Bytes, 6);
}

#[test]
fn tables_in_memory_survive_every_failing_allocation() {
    let counts = dlht::faults(0).unwrap_or_else(|failure| panic!("{failure}"));
    println!("tables in memory: {counts:?}");
    if let Err(failure) = counts.judged(0) {
        panic!("{failure}");
    }
}

/// Fails every sync of some histories, and checks a limited number of images for each sync and for each history.
fn every_sync(
    scenario: impl Fn(&syncs::Options, &Path) -> Result<syncs::Counts, Failure>,
    sync: SyncMode,
    seeds: Range<u64>,
) {
    let place = Scratch::for_syncs().expect("a scratch directory");
    let mut counts = syncs::Counts::default();
    for seed in seeds.clone() {
        let options = syncs::Options { seed, sync, images: 16, enough: 200 };
        let done = scenario(&options, place.path());
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{counts:?}");
    if let Err(failure) = counts.judged(seeds.start) {
        panic!("{failure}");
    }
}

/// The period is so long that no background sync runs: the moment of a background sync is not deterministic.
const LATE: SyncMode = SyncMode::Every(3_600_000);

fn every_sync_of_plush(records: Records) {
    let scenario = scenarios("plush", records).expect("a design").syncs;
    every_sync(scenario, SyncMode::Always, 0..4);
    // With these seeds, writes that continued after the failed sync would overwrite a journal and an intent.
    every_sync(scenario, SyncMode::Always, 601..604);
    every_sync(scenario, LATE, 0..2);
}

#[test]
fn words_in_plush_survive_every_failing_sync() {
    every_sync_of_plush(Records::Words);
}

#[test]
fn bytes_in_plush_survive_every_failing_sync() {
    every_sync_of_plush(Records::Bytes);
}

#[test]
fn join_indexes_survive_every_failing_sync() {
    every_sync(join::syncs, SyncMode::Always, 0..4);
}
