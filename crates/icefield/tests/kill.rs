//! Children are killed while they create, open, grow, write and close a table; nothing acknowledged may be missing.

use std::process::Command;
use std::time::Duration;

use icefield::{DashEh, DashLh, Iceberg, Plush};
use icefield_testkit::FileSubject;
use icefield_testkit::budget::Budget;
use icefield_testkit::kill::{self, Counts, ORDERS_VARIABLE};
use icefield_testkit::scratch::Scratch;

/// Not a test of its own: the other tests start this program again with orders, and this is where it obeys them.
#[test]
fn child_entry() {
    obey::<DashEh<u64, u64>>("words");
    obey::<DashEh<[u8], [u8]>>("bytes");
    obey::<DashLh<u64, u64>>("linear words");
    obey::<DashLh<[u8], [u8]>>("linear bytes");
    obey::<Iceberg<u64, u64>>("iceberg words");
    obey::<Iceberg<[u8], [u8]>>("iceberg bytes");
    obey::<Plush<u64, u64>>("plush words");
    obey::<Plush<[u8], [u8]>>("plush bytes");
}

fn obey<T: FileSubject>(records: &str) {
    let Some(orders) = std::env::var(ORDERS_VARIABLE).ok() else { return };
    let Some(orders) = orders.strip_prefix(records) else { return };
    match kill::child::<T>(orders) {
        Ok(()) => std::process::exit(0),
        Err(what) => {
            eprintln!("{what}");
            std::process::exit(1)
        }
    }
}

fn rounds<T: FileSubject>(records: &str, seconds: u64, most: u64, first_seed: u64) {
    let place = Scratch::new().expect("a scratch directory");
    let program = std::env::current_exe().expect("the path of this program");
    let command = |orders: &str| {
        let mut command = Command::new(&program);
        command.args(["--exact", "child_entry", "--nocapture", "--test-threads=1"]);
        command.env(ORDERS_VARIABLE, format!("{records}{orders}"));
        command
    };
    let mut counts = Counts::default();
    let mut budget =
        Budget::time(Duration::from_secs(seconds)).at_least(most.min(64)).at_most(most);
    while let Some((number, rounds)) = budget.chunk(8) {
        let done =
            kill::scenario::<T>(first_seed + number, rounds, &place.path().join("round"), &command);
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{records}: {counts:?}");
    if let Err(failure) = counts.meaningful(first_seed) {
        panic!("{failure}");
    }
    assert!(counts.killed >= 40 && counts.killed_at_call >= 5, "{counts:?}");
}

#[test]
fn no_acknowledged_word_is_lost() {
    rounds::<DashEh<u64, u64>>("words", 30, 200, 1_000_000);
}

#[test]
fn no_acknowledged_record_of_an_iceberg_is_lost() {
    rounds::<Iceberg<u64, u64>>("iceberg words", 20, 120, 3_000_000);
    rounds::<Iceberg<[u8], [u8]>>("iceberg bytes", 20, 120, 4_000_000);
}

#[test]
fn no_acknowledged_record_of_a_plush_is_lost() {
    rounds::<Plush<u64, u64>>("plush words", 20, 120, 5_000_000);
    rounds::<Plush<[u8], [u8]>>("plush bytes", 20, 120, 6_000_000);
}

#[test]
fn no_acknowledged_record_of_linear_hashing_is_lost() {
    rounds::<DashLh<u64, u64>>("linear words", 20, 120, 7_000_000);
    rounds::<DashLh<[u8], [u8]>>("linear bytes", 20, 120, 8_000_000);
}

#[test]
fn no_acknowledged_bytes_are_lost() {
    rounds::<DashEh<[u8], [u8]>>("bytes", 30, 200, 2_000_000);
}
