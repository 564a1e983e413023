//! The fuzzers' targets: functions of bytes that panic when something happens that must not. `scripts/fuzz.sh` runs them,
//! under cargo-fuzz where that can be had, else by `drive`, with random bytes.

use icefield_testkit::Failure;
use icefield_testkit::arsenal::{Arsenal, Records, arsenal};

/// The designs that have targets.
const DESIGNS: [&str; 4] = ["dash-eh", "dash-lh", "iceberg", "plush"];

/// The names of all targets: `DESIGN-files` opens damaged files, `DESIGN-operations` runs histories beside a map.
pub fn targets() -> impl Iterator<Item = String> {
    let kinds = |design| ["files", "operations"].map(|kind| format!("{design}-{kind}"));
    DESIGNS.into_iter().flat_map(kinds)
}

/// Runs a target.
///
/// # Errors
/// The target found something; the words say what.
///
/// # Panics
/// There is no such target.
pub fn try_run(target: &str, data: &[u8]) -> Result<(), Failure> {
    let (design, kind) = target.rsplit_once('-').expect("DESIGN-KIND");
    let arsenal: &Arsenal = arsenal(design, Records::Bytes).expect("a design");
    match kind {
        "files" => (arsenal.fuzz_files)(data),
        "operations" => (arsenal.fuzz_operations)(data),
        _ => panic!("no target `{target}`"),
    }
}

/// As [`try_run`], for fuzzers: they see panics.
///
/// # Panics
/// The target found something.
pub fn run(target: &str, data: &[u8]) {
    if let Err(failure) = try_run(target, data) {
        panic!("{failure}");
    }
}
