//! Concurrent histories on few hot keys of tiny tables that split under them, each judged for linearizability.

use std::time::Duration;

use icefield::pm::sim::{Model, Sim};
use icefield::{DashEh, DashLh, Iceberg, Plush};
use icefield_testkit::Subject;
use icefield_testkit::budget::Budget;
use icefield_testkit::linear::{Counts, scenario};
use icefield_testkit::pool::Pool;

fn histories<T: Subject>(what: &str, seconds: u64, most: u64, first_seed: u64) -> Counts {
    let pool = Pool::new(3);
    let mut counts = Counts::default();
    let mut budget = Budget::time(Duration::from_secs(seconds)).at_least(2048).at_most(most);
    while let Some((number, histories)) = budget.chunk(512) {
        let done = scenario::<T>(first_seed + number, histories, Model::Pmem, &pool);
        counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{what}: {counts:?}, overlap {:.3}", counts.overlap());
    if let Err(failure) = counts.meaningful(first_seed) {
        panic!("{failure}");
    }
    counts
}

/// One test, not two: both would fight for the same processors, and overlap is what is wanted.
#[test]
fn every_history_has_an_order() {
    let words = histories::<DashEh<u64, u64, Sim>>("words", 26, 90_000, 1_000_000);
    let bytes = histories::<DashEh<[u8], [u8], Sim>>("bytes", 8, 10_000, 2_000_000);
    assert!(words.histories >= 2_000 && bytes.histories >= 500, "{words:?} {bytes:?}");
    assert!(words.swapped_rejected > 0, "{words:?}");
    let words = histories::<DashLh<u64, u64, Sim>>("Dash-LH words", 14, 90_000, 5_000_000);
    let bytes = histories::<DashLh<[u8], [u8], Sim>>("Dash-LH bytes", 6, 10_000, 6_000_000);
    assert!(words.histories >= 2_000 && bytes.histories >= 500, "{words:?} {bytes:?}");
    assert!(words.swapped_rejected > 0, "{words:?}");
    let words = histories::<Iceberg<u64, u64, Sim>>("Iceberg words", 14, 90_000, 3_000_000);
    let bytes = histories::<Iceberg<[u8], [u8], Sim>>("Iceberg bytes", 6, 10_000, 4_000_000);
    assert!(words.histories >= 2_000 && bytes.histories >= 500, "{words:?} {bytes:?}");
    assert!(words.swapped_rejected > 0, "{words:?}");
    let words = histories::<Plush<u64, u64, Sim>>("Plush words", 14, 90_000, 5_000_000);
    let bytes = histories::<Plush<[u8], [u8], Sim>>("Plush bytes", 6, 10_000, 6_000_000);
    assert!(words.histories >= 2_000 && bytes.histories >= 500, "{words:?} {bytes:?}");
    assert!(words.swapped_rejected > 0, "{words:?}");
}
