//! Forged tables are changed while they lend values: no borrowed byte may change, and no call may panic or hang.

use icefield_torture::hostile::Counts;
use icefield_torture::scenarios::{Records, scenarios};
use icefield_torture::scratch::Scratch;

/// Runs the scenario with images on the simulated medium and with a few tables in files. The files are also opened
/// read-only and salvaged.
fn forged(table: &str, records: Records, seed: u64, images: u64, files: u64) {
    let scenarios = scenarios(table, records).expect("a design");
    let mut counts = Counts::default();
    let done = (scenarios.hostile)(seed, images);
    counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    let place = Scratch::new().expect("a scratch directory");
    let done = (scenarios.hostile_files)(seed, files, place.path());
    counts.add(done.unwrap_or_else(|failure| panic!("{failure}")));
    println!("{table}, {records:?}: {counts:?}");
    if let Err(failure) = counts.judged(seed) {
        panic!("{failure}");
    }
}

#[test]
fn forged_tables_of_dash() {
    forged("dash-eh", Records::Bytes, 21_000_000, 1000, 40);
    forged("dash-eh", Records::Words, 22_000_000, 400, 10);
}

#[test]
fn forged_tables_of_linear_hashing() {
    forged("dash-lh", Records::Bytes, 23_000_000, 1000, 40);
    forged("dash-lh", Records::Words, 24_000_000, 400, 10);
}

#[test]
fn forged_tables_of_icebergs() {
    forged("iceberg", Records::Bytes, 25_000_000, 1000, 40);
    forged("iceberg", Records::Words, 26_000_000, 400, 10);
}

#[test]
fn forged_tables_of_plush() {
    forged("plush", Records::Bytes, 27_000_000, 1000, 40);
    forged("plush", Records::Words, 28_000_000, 400, 10);
    forged("plush", Records::Wide, 29_000_000, 400, 10);
}
