//! Every crash point of every operation, on tiny tables.

use icefield::pm::sim::Sim;
use icefield::{DashEh, DashLh, Iceberg, Plush};
use icefield_testkit::crash::{self, CrashOptions};

#[test]
fn dash_eh_words() {
    let report = crash::run::<DashEh<u64, u64, Sim>>(&CrashOptions::default());
    println!("{report:?}");
    assert_eq!(report.violations, 0);
}

#[test]
fn dash_eh_bytes() {
    let report = crash::run::<DashEh<[u8], [u8], Sim>>(&CrashOptions::default());
    println!("{report:?}");
    assert_eq!(report.violations, 0);
}

#[test]
fn dash_lh_words() {
    let report = crash::run::<DashLh<u64, u64, Sim>>(&CrashOptions::default());
    println!("{report:?}");
    assert_eq!(report.violations, 0);
}

#[test]
fn dash_lh_bytes() {
    let report = crash::run::<DashLh<[u8], [u8], Sim>>(&CrashOptions::default());
    println!("{report:?}");
    assert_eq!(report.violations, 0);
}

#[test]
fn iceberg_words() {
    let report = crash::run::<Iceberg<u64, u64, Sim>>(&CrashOptions::default());
    println!("{report:?}");
    assert_eq!(report.violations, 0);
}

#[test]
fn iceberg_bytes() {
    let report = crash::run::<Iceberg<[u8], [u8], Sim>>(&CrashOptions::default());
    println!("{report:?}");
    assert_eq!(report.violations, 0);
}

#[test]
fn plush_words() {
    let report = crash::run::<Plush<u64, u64, Sim>>(&CrashOptions::default());
    println!("{report:?}");
    assert_eq!(report.violations, 0);
}

#[test]
fn plush_bytes() {
    let report = crash::run::<Plush<[u8], [u8], Sim>>(&CrashOptions::default());
    println!("{report:?}");
    assert_eq!(report.violations, 0);
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
