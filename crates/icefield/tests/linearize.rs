//! Concurrent histories on few hot keys of tiny tables that split under them, each judged for linearizability.

use std::time::Duration;

use icefield::pm::sim::Model;
use icefield_testkit::arsenal::{Records, arsenal};
use icefield_testkit::budget::Budget;
use icefield_testkit::linear::Counts;
use icefield_testkit::pool::Pool;

fn histories(table: &str, records: Records, seconds: u64, most: u64, first_seed: u64) -> Counts {
    let arsenal = arsenal(table, records).expect("a design");
    let pool = Pool::new(3);
    let mut counts = Counts::default();
    let mut budget = Budget::time(Duration::from_secs(seconds)).at_least(2048).at_most(most);
    while let Some((number, histories)) = budget.chunk(512) {
        let done = (arsenal.linear)(first_seed + number, histories, Model::Pmem, &pool);
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{table}, {records:?}: {counts:?}, overlap {:.3}", counts.overlap());
    if let Err(failure) = counts.meaningful(first_seed) {
        panic!("{failure}");
    }
    counts
}

/// One test, not two: both would fight for the same processors, and overlap is what is wanted.
#[test]
fn every_history_has_an_order() {
    for (table, first_seed) in [
        ("dash-eh", 1_000_000),
        ("dash-lh", 7_000_000),
        ("iceberg", 3_000_000),
        ("plush", 5_000_000),
    ] {
        let words = histories(table, Records::Words, 9, 90_000, first_seed);
        let bytes = histories(table, Records::Bytes, 4, 10_000, first_seed + 1_000_000);
        assert!(words.histories >= 2_000 && bytes.histories >= 500, "{words:?} {bytes:?}");
        assert!(words.swapped_rejected > 0, "{words:?}");
    }
    let wide = histories("plush", Records::Wide, 5, 10_000, 9_000_000);
    assert!(wide.histories >= 500, "{wide:?}");
}

/// Histories in which a table of linear hashing was cleared while a split was not over: the split gave a chained bucket
/// back to the allocator's next set, which handed it out twice.
#[test]
fn a_clear_waits_for_splits() {
    let arsenal = arsenal("dash-lh", Records::Words).expect("a design");
    let pool = Pool::new(3);
    for seed in [14_343, 14_359, 976_777] {
        let done = (arsenal.linear)(seed, 1024, Model::Pmem, &pool);
        println!("{:?}", done.unwrap_or_else(|failure| panic!("{failure}")));
    }
}
