//! Damaged tables: no panic, no hang, no answer that nobody wrote from a table that calls itself clean.

use std::time::Duration;

use icefield::pm::sim::Sim;
use icefield::{DashEh, DashLh, Iceberg, Plush};
use icefield_testkit::budget::Budget;
use icefield_testkit::corrupt::{Counts, scenario, scenario_on_files};
use icefield_testkit::scratch::Scratch;
use icefield_testkit::{FileSubject, Subject};

fn images<T: Subject>(what: &str, first_seed: u64) {
    let mut counts = Counts::default();
    let mut budget = Budget::time(Duration::from_secs(14)).at_least(1000).at_most(10_000);
    while let Some((number, mutations)) = budget.chunk(500) {
        let done = scenario::<T>(first_seed + number, mutations);
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    judge(what, counts, first_seed, 1000);
}

fn files<T: FileSubject>(what: &str, first_seed: u64) {
    let mut counts = Counts::default();
    let mut budget = Budget::time(Duration::from_secs(5)).at_least(50).at_most(600);
    while let Some((number, mutations)) = budget.chunk(50) {
        let place = Scratch::new().expect("a scratch directory");
        let done = scenario_on_files::<T>(first_seed + number, mutations, place.path());
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    judge(what, counts, first_seed, 50);
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
    images::<DashEh<u64, u64, Sim>>("images of words", 1_000_000);
}

#[test]
fn damaged_images_of_bytes() {
    images::<DashEh<[u8], [u8], Sim>>("images of bytes", 2_000_000);
}

#[test]
fn damaged_images_of_linear_hashing() {
    images::<DashLh<u64, u64, Sim>>("images of Dash-LH words", 9_000_000);
    images::<DashLh<[u8], [u8], Sim>>("images of Dash-LH bytes", 10_000_000);
}

#[test]
fn damaged_files_of_linear_hashing() {
    files::<DashLh<u64, u64>>("files of Dash-LH words", 11_000_000);
    files::<DashLh<[u8], [u8]>>("files of Dash-LH bytes", 12_000_000);
}

#[test]
fn damaged_images_of_icebergs() {
    images::<Iceberg<u64, u64, Sim>>("images of Iceberg words", 5_000_000);
    images::<Iceberg<[u8], [u8], Sim>>("images of Iceberg bytes", 6_000_000);
}

#[test]
fn damaged_files_of_icebergs() {
    files::<Iceberg<u64, u64>>("files of Iceberg words", 7_000_000);
    files::<Iceberg<[u8], [u8]>>("files of Iceberg bytes", 8_000_000);
}

#[test]
fn damaged_images_of_plush() {
    images::<Plush<u64, u64, Sim>>("images of Plush words", 9_000_000);
    images::<Plush<[u8], [u8], Sim>>("images of Plush bytes", 10_000_000);
}

#[test]
fn damaged_files_of_plush() {
    files::<Plush<u64, u64>>("files of Plush words", 11_000_000);
    files::<Plush<[u8], [u8]>>("files of Plush bytes", 12_000_000);
}

#[test]
fn damaged_files_of_words() {
    files::<DashEh<u64, u64>>("files of words", 3_000_000);
}

#[test]
fn damaged_files_of_bytes() {
    files::<DashEh<[u8], [u8]>>("files of bytes", 4_000_000);
}
