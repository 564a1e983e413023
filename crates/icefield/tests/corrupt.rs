//! Damaged tables: no panic, no hang, and no invented result from a table whose check is clean.

mod corrupt {
    mod lends;
}

use std::time::Duration;

use icefield_torture::budget::Budget;
use icefield_torture::corrupt::Counts;
use icefield_torture::scenarios::{Records, scenarios};
use icefield_torture::scratch::Scratch;

#[path = "corrupt/hostile.rs"]
mod hostile;

fn images(table: &str, records: Records, first_seed: u64) {
    let scenarios = scenarios(table, records).expect("a design");
    let mut counts = Counts::default();
    let mut budget = Budget::time(Duration::from_secs(2)).at_least(600).at_most(10_000);
    while let Some((number, mutations)) = budget.chunk(500) {
        let done = (scenarios.corrupt)(first_seed + number, mutations);
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    judge(&format!("images of {table}, {records:?}"), counts, first_seed, 600);
}

fn files(table: &str, records: Records, first_seed: u64) {
    let scenarios = scenarios(table, records).expect("a design");
    let mut counts = Counts::default();
    let mut budget = Budget::time(Duration::from_secs(2)).at_least(200).at_most(600);
    while let Some((number, mutations)) = budget.chunk(50) {
        let place = Scratch::new().expect("a scratch directory");
        let done = (scenarios.corrupt_files)(first_seed + number, mutations, place.path());
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    judge(&format!("files of {table}, {records:?}"), counts, first_seed, 200);
}

fn judge(what: &str, counts: Counts, seed: u64, least: u64) {
    println!("{what}: {counts:?}");
    assert!(counts.mutations >= least, "{counts:?}");
    if let Err(failure) = counts.judged(seed) {
        panic!("{failure}");
    }
}

#[test]
fn damaged_images_of_words() {
    images("dash-eh", Records::Words, 1_000_000);
}

#[test]
fn damaged_images_of_bytes() {
    images("dash-eh", Records::Bytes, 2_000_000);
}

#[test]
fn damaged_images_of_linear_hashing() {
    images("dash-lh", Records::Words, 9_000_000);
    images("dash-lh", Records::Bytes, 10_000_000);
}

/// In a former version, freeing a chain with a cycle did not terminate.
#[test]
fn a_damaged_chain_ends() {
    let scenarios = scenarios("dash-lh", Records::Bytes).expect("a design");
    let done = (scenarios.corrupt)(517, 190).unwrap_or_else(|failure| panic!("{failure}"));
    judge("images with cycles in chains", done, 517, 190);
}

#[test]
fn damaged_files_of_linear_hashing() {
    files("dash-lh", Records::Words, 11_000_000);
    files("dash-lh", Records::Bytes, 12_000_000);
}

#[test]
fn damaged_images_of_icebergs() {
    images("iceberg", Records::Words, 5_000_000);
    images("iceberg", Records::Bytes, 6_000_000);
}

#[test]
fn damaged_files_of_icebergs() {
    files("iceberg", Records::Words, 7_000_000);
    files("iceberg", Records::Bytes, 8_000_000);
}

#[test]
fn damaged_images_of_plush() {
    images("plush", Records::Words, 9_000_000);
    images("plush", Records::Bytes, 10_000_000);
    images("plush", Records::Wide, 13_000_000);
}

#[test]
fn damaged_files_of_plush() {
    files("plush", Records::Words, 11_000_000);
    files("plush", Records::Bytes, 12_000_000);
    files("plush", Records::Wide, 14_000_000);
}

#[test]
fn damaged_files_of_words() {
    files("dash-eh", Records::Words, 3_000_000);
}

#[test]
fn damaged_files_of_bytes() {
    files("dash-eh", Records::Bytes, 4_000_000);
}
