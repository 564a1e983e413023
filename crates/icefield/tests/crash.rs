//! Every crash point of every operation, on tiny tables.

use icefield::SyncMode;
use icefield::storage::sim::Model;
use icefield_torture::crash::{self, CrashOptions};
use icefield_torture::scenarios::{Records, scenarios};

fn every_point(table: &str, records: Records) {
    let scenarios = scenarios(table, records).expect("a design");
    let report = (scenarios.crash)(&CrashOptions { states: 6_000, ..CrashOptions::default() });
    println!("{report:?}");
    assert_eq!(report.violations, 0);
}

#[test]
fn dash_eh_words() {
    every_point("dash-eh", Records::Words);
}

#[test]
fn dash_eh_bytes() {
    every_point("dash-eh", Records::Bytes);
}

#[test]
fn dash_lh_words() {
    every_point("dash-lh", Records::Words);
}

#[test]
fn dash_lh_bytes() {
    every_point("dash-lh", Records::Bytes);
}

#[test]
fn iceberg_words() {
    every_point("iceberg", Records::Words);
}

#[test]
fn iceberg_bytes() {
    every_point("iceberg", Records::Bytes);
}

#[test]
fn plush_words() {
    every_point("plush", Records::Words);
}

#[test]
fn plush_bytes() {
    every_point("plush", Records::Bytes);
}

#[test]
fn plush_wide() {
    every_point("plush", Records::Wide);
}

/// Runs on a disk in all sync modes, two of which acknowledge writes before they are durable.
fn plush_on_disk(records: Records) {
    let scenarios = scenarios("plush", records).expect("a design");
    for sync in [SyncMode::Always, SyncMode::Every(10), SyncMode::Never] {
        let options =
            CrashOptions { model: Model::Disk, sync, states: 2_500, ..CrashOptions::default() };
        let report = (scenarios.crash)(&options);
        println!("{sync}: {report:?}");
        assert_eq!(report.violations, 0);
    }
}

#[test]
fn plush_words_on_disk() {
    plush_on_disk(Records::Words);
}

#[test]
fn plush_bytes_on_disk() {
    plush_on_disk(Records::Bytes);
}

#[test]
fn plush_wide_on_disk() {
    plush_on_disk(Records::Wide);
}

#[test]
fn the_block_allocator() {
    let report = crash::run_allocator(&CrashOptions::default());
    println!("{report:?}");
    assert_eq!(report.violations, 0);
}

#[test]
fn the_blob_store() {
    let report = crash::run_blob_store(&CrashOptions::default());
    println!("{report:?}");
    assert_eq!(report.violations, 0);
}
