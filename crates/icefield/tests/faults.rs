//! Every system call of the persistent layer, and every allocation of a table in memory, fails in turn, once and for
//! good.

use icefield_testkit::arsenal::{Records, arsenal};
use icefield_testkit::dlht;
use icefield_testkit::scratch::Scratch;

fn every_call(table: &str, records: Records, seed: u64) {
    let arsenal = arsenal(table, records).expect("a design");
    let place = Scratch::new().expect("a scratch directory");
    let done = (arsenal.faults)(seed, place.path());
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
fn plush_survives_every_failing_call() {
    every_call("plush", Records::Words, 3);
    every_call("plush", Records::Bytes, 6);
    every_call("plush", Records::Wide, 9);
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
