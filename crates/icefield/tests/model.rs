//! Random sequences of every operation against a reference map: words and bytes, on the simulated medium, in anonymous
//! memory and in a directory.

use std::time::Duration;

use icefield::pm::sim::{Model, Pool as Memory, Sim};
use icefield::{DashEh, DashLh, Iceberg, Plush};
use icefield_testkit::budget::Budget;
use icefield_testkit::model::{Counts, scenario};
use icefield_testkit::place::{FilePlace, MemoryPlace, Place, SimPlace};
use icefield_testkit::pool::Pool;
use icefield_testkit::scratch::Scratch;
use icefield_testkit::{FileOptions, FileSubject, Sample, Subject, iterate};

const STEPS: usize = 300;

fn histories<T, P>(what: &str, seconds: u64, first_seed: u64, place: impl Fn(u64) -> P) -> Counts
where
    T: icefield::Durable<Key: Sample, Value: Sample>,
    P: Place<T>,
{
    let mut counts = Counts::default();
    let mut budget = Budget::time(Duration::from_secs(seconds)).at_least(100).at_most(4000);
    while let Some((number, _)) = budget.chunk(1) {
        let seed = first_seed + number;
        let done = scenario(seed, STEPS, || place(seed));
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{what}: {counts:?}");
    assert!(
        counts.histories >= 20 && counts.scans >= 100 && counts.operations >= 20_000,
        "{counts:?}"
    );
    counts
}

fn simulated<T: Subject>(what: &str, seconds: u64, first_seed: u64) {
    let memory = Memory::default();
    let place = |seed| SimPlace::new(seed, Model::Pmem, &memory);
    let counts = histories::<T, _>(what, seconds, first_seed, place);
    assert!(counts.reopens >= 40, "{counts:?}");
}

fn in_files<T: FileSubject>(what: &str, first_seed: u64) {
    let place = Scratch::new().expect("a scratch directory");
    let path = place.path().join("table");
    let counts = histories::<T, _>(what, 5, first_seed, |seed| {
        FilePlace::new(path.clone(), FileOptions { variant: seed, ..FileOptions::default() })
    });
    assert!(counts.reopens >= 20, "{counts:?}");
}

#[test]
fn simulated_words() {
    simulated::<DashEh<u64, u64, Sim>>("words on the simulated medium", 9, 1_000_000);
}

#[test]
fn simulated_bytes() {
    simulated::<DashEh<[u8], [u8], Sim>>("bytes on the simulated medium", 9, 2_000_000);
}

#[test]
fn linear_simulated() {
    simulated::<DashLh<u64, u64, Sim>>("Dash-LH words on the simulated medium", 6, 21_000_000);
    simulated::<DashLh<[u8], [u8], Sim>>("Dash-LH bytes on the simulated medium", 6, 22_000_000);
}

#[test]
fn linear_in_memory_and_files() {
    histories::<DashLh<u64, u64>, _>("Dash-LH words in memory", 2, 23_000_000, MemoryPlace);
    histories::<DashLh<[u8], [u8]>, _>("Dash-LH bytes in memory", 2, 24_000_000, MemoryPlace);
    histories::<DashLh<[u8], u64>, _>("Dash-LH byte keys in memory", 2, 25_000_000, MemoryPlace);
    histories::<DashLh<u64, [u8]>, _>("Dash-LH byte values in memory", 2, 26_000_000, MemoryPlace);
    in_files::<DashLh<u64, u64>>("Dash-LH words in files", 27_000_000);
    in_files::<DashLh<[u8], [u8]>>("Dash-LH bytes in files", 28_000_000);
}

#[test]
fn iceberg_simulated() {
    simulated::<Iceberg<u64, u64, Sim>>("Iceberg words on the simulated medium", 6, 11_000_000);
    simulated::<Iceberg<[u8], [u8], Sim>>("Iceberg bytes on the simulated medium", 6, 12_000_000);
}

#[test]
fn iceberg_in_memory() {
    histories::<Iceberg<u64, u64>, _>("Iceberg words in memory", 2, 13_000_000, MemoryPlace);
    histories::<Iceberg<[u8], [u8]>, _>("Iceberg bytes in memory", 2, 14_000_000, MemoryPlace);
    histories::<Iceberg<[u8], u64>, _>("Iceberg byte keys in memory", 2, 15_000_000, MemoryPlace);
    histories::<Iceberg<u64, [u8]>, _>("Iceberg byte values in memory", 2, 16_000_000, MemoryPlace);
}

#[test]
fn iceberg_in_files() {
    in_files::<Iceberg<u64, u64>>("Iceberg words in files", 17_000_000);
    in_files::<Iceberg<[u8], [u8]>>("Iceberg bytes in files", 18_000_000);
}

#[test]
fn plush_simulated() {
    simulated::<Plush<u64, u64, Sim>>("Plush words on the simulated medium", 6, 21_000_000);
    simulated::<Plush<[u8], [u8], Sim>>("Plush bytes on the simulated medium", 6, 22_000_000);
}

#[test]
fn plush_in_memory() {
    histories::<Plush<u64, u64>, _>("Plush words in memory", 2, 23_000_000, MemoryPlace);
    histories::<Plush<[u8], [u8]>, _>("Plush bytes in memory", 2, 24_000_000, MemoryPlace);
    histories::<Plush<[u8], u64>, _>("Plush byte keys in memory", 2, 25_000_000, MemoryPlace);
    histories::<Plush<u64, [u8]>, _>("Plush byte values in memory", 2, 26_000_000, MemoryPlace);
}

#[test]
fn plush_in_files() {
    in_files::<Plush<u64, u64>>("Plush words in files", 27_000_000);
    in_files::<Plush<[u8], [u8]>>("Plush bytes in files", 28_000_000);
}

#[test]
fn words_in_memory() {
    histories::<DashEh<u64, u64>, _>("words in memory", 3, 3_000_000, MemoryPlace);
}

#[test]
fn bytes_in_memory() {
    histories::<DashEh<[u8], [u8]>, _>("bytes in memory", 3, 4_000_000, MemoryPlace);
}

#[test]
fn mixed_types_in_memory() {
    histories::<DashEh<[u8], u64>, _>(
        "byte keys and word values in memory",
        2,
        5_000_000,
        MemoryPlace,
    );
    histories::<DashEh<u64, [u8]>, _>(
        "word keys and byte values in memory",
        2,
        6_000_000,
        MemoryPlace,
    );
}

#[test]
fn words_in_files() {
    in_files::<DashEh<u64, u64>>("words in files", 7_000_000);
}

#[test]
fn bytes_in_files() {
    in_files::<DashEh<[u8], [u8]>>("bytes in files", 8_000_000);
}

#[test]
fn iceberg_scans_among_writers() {
    scans::<Iceberg<u64, u64, Sim>, Iceberg<[u8], [u8], Sim>>("Iceberg scans among writers");
}

#[test]
fn plush_scans_among_writers() {
    scans::<Plush<u64, u64, Sim>, Plush<[u8], [u8], Sim>>("Plush scans among writers");
}

#[test]
fn scans_among_writers() {
    scans::<DashEh<u64, u64, Sim>, DashEh<[u8], [u8], Sim>>("scans among writers");
}

fn scans<W: Subject, B: Subject>(what: &str) {
    let (pool, memory) = (Pool::new(3), Memory::default());
    let mut counts = iterate::Counts::default();
    let mut budget = Budget::time(Duration::from_secs(6)).at_least(100).at_most(3000);
    while let Some((seed, _)) = budget.chunk(1) {
        let done = if seed % 4 == 0 {
            iterate::scenario::<B>(seed, &pool, &memory)
        } else {
            iterate::scenario::<W>(seed, &pool, &memory)
        };
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{what}: {counts:?}");
    assert!(counts.scans >= 50 && counts.writes >= 1000 && counts.grown_tables >= 5, "{counts:?}");
}
