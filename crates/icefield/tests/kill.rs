//! Children are killed while they create, open, grow, write and close a table. Every acknowledged write must be
//! present.

use std::process::Command;
use std::time::Duration;

use icefield_torture::budget::Budget;
use icefield_torture::kill::{Counts, ORDERS_VARIABLE};
use icefield_torture::scenarios::{Records, SCENARIOS, Scenarios, scenarios};
use icefield_torture::scratch::Scratch;

/// The entry of a child process. The other tests start this program again, with orders in an environment variable.
/// Without orders, this test does nothing.
#[test]
fn child_entry() {
    let Some(orders) = std::env::var(ORDERS_VARIABLE).ok() else { return };
    let obeys =
        |scenarios: &Scenarios| Some((scenarios.child)(orders.strip_prefix(&name(scenarios))?));
    match SCENARIOS.iter().find_map(obeys) {
        Some(Ok(())) => std::process::exit(0),
        Some(Err(what)) => eprintln!("{what}"),
        None => eprintln!("orders for no table"),
    }
    std::process::exit(1)
}

fn name(scenarios: &Scenarios) -> String {
    format!("{} {:?}", scenarios.table, scenarios.records)
}

fn rounds(table: &str, records: Records, seconds: u64, most: u64, first_seed: u64) {
    let scenarios = scenarios(table, records).expect("a design");
    let place = if table == "plush" { Scratch::for_syncs() } else { Scratch::new() };
    let place = place.expect("a scratch directory");
    let program = std::env::current_exe().expect("the path of this program");
    let command = |orders: &str| {
        let mut command = Command::new(&program);
        command.args(["--exact", "child_entry", "--nocapture", "--test-threads=1"]);
        command.env(ORDERS_VARIABLE, format!("{}{orders}", name(scenarios)));
        command
    };
    let mut counts = Counts::default();
    let mut budget =
        Budget::time(Duration::from_secs(seconds)).at_least(most.min(64)).at_most(most);
    while let Some((number, rounds)) = budget.chunk(8) {
        let path = place.path().join("round");
        let done = (scenarios.kill)(first_seed + number, rounds, &path, &command);
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{}: {counts:?}", name(scenarios));
    if let Err(failure) = counts.meaningful(first_seed) {
        panic!("{failure}");
    }
    assert!(counts.killed >= 40 && counts.killed_at_call >= 5, "{counts:?}");
}

#[test]
fn no_acknowledged_word_is_lost() {
    rounds("dash-eh", Records::Words, 30, 200, 1_000_000);
}

#[test]
fn no_acknowledged_record_of_an_iceberg_is_lost() {
    rounds("iceberg", Records::Words, 20, 120, 3_000_000);
    rounds("iceberg", Records::Bytes, 20, 120, 4_000_000);
}

#[test]
fn no_acknowledged_record_of_a_plush_is_lost() {
    rounds("plush", Records::Words, 20, 120, 5_000_000);
    rounds("plush", Records::Bytes, 20, 120, 6_000_000);
    rounds("plush", Records::Wide, 20, 120, 9_000_000);
}

#[test]
fn no_acknowledged_record_of_linear_hashing_is_lost() {
    rounds("dash-lh", Records::Words, 20, 120, 7_000_000);
    rounds("dash-lh", Records::Bytes, 20, 120, 8_000_000);
}

#[test]
fn no_acknowledged_bytes_are_lost() {
    rounds("dash-eh", Records::Bytes, 30, 200, 2_000_000);
}
