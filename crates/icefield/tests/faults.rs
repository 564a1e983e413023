//! Every system call of the persistent layer, and every allocation of a table in memory, fails in turn, once and for
//! good.

use icefield::{DashEh, DashLh, Iceberg, Plush};
use icefield_testkit::faults::scenario;
use icefield_testkit::scratch::Scratch;
use icefield_testkit::{FileSubject, dlht};

fn every_call<T: FileSubject>(what: &str, seed: u64) {
    let place = Scratch::new().expect("a scratch directory");
    let counts = scenario::<T>(seed, place.path()).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{what}: {counts:?}");
    if let Err(failure) = counts.judged(seed) {
        panic!("{failure}");
    }
}

#[test]
fn words_survive_every_failing_call() {
    every_call::<DashEh<u64, u64>>("words", 3);
}

#[test]
fn linear_hashing_survives_every_failing_call() {
    every_call::<DashLh<u64, u64>>("Dash-LH words", 3);
    every_call::<DashLh<[u8], [u8]>>("Dash-LH bytes", 6);
}

#[test]
fn icebergs_survive_every_failing_call() {
    every_call::<Iceberg<u64, u64>>("Iceberg words", 3);
    every_call::<Iceberg<[u8], [u8]>>("Iceberg bytes", 6);
}

#[test]
fn plush_survives_every_failing_call() {
    every_call::<Plush<u64, u64>>("Plush words", 3);
    every_call::<Plush<[u8], [u8]>>("Plush bytes", 6);
}

#[test]
fn bytes_survive_every_failing_call() {
    every_call::<DashEh<[u8], [u8]>>("bytes", 6);
}

#[test]
fn tables_in_memory_survive_every_failing_allocation() {
    let counts = dlht::faults(0).unwrap_or_else(|failure| panic!("{failure}"));
    println!("tables in memory: {counts:?}");
    if let Err(failure) = counts.judged(0) {
        panic!("{failure}");
    }
}
