//! The targets of the fuzzers: functions of bytes that panic when they find a fault. `scripts/fuzz.sh` runs them, with
//! cargo-fuzz if it is available, otherwise with `drive`, on random bytes.

use icefield_torture::Failure;
use icefield_torture::scenarios::{Scenarios, Records, scenarios};

/// The designs that have targets.
const DESIGNS: [&str; 4] = ["dash-eh", "dash-lh", "iceberg", "plush"];

/// Returns the names of all targets: `DESIGN-files` opens damaged files, `DESIGN-operations` runs histories and
/// compares them with a map, `csv-rows` and `ndjson-rows` read input as `icefield load` does.
pub fn targets() -> impl Iterator<Item = String> {
    let kinds = |design| ["files", "operations"].map(|kind| format!("{design}-{kind}"));
    let rows = ["csv-rows", "ndjson-rows"].map(str::to_owned);
    DESIGNS.into_iter().flat_map(kinds).chain(rows)
}

/// Runs a target.
///
/// # Errors
/// The target found a fault; the message describes it.
///
/// # Panics
/// The target does not exist.
pub fn try_run(target: &str, data: &[u8]) -> Result<(), Failure> {
    let (design, kind) = target.rsplit_once('-').expect("DESIGN-KIND");
    if kind == "rows" {
        let rows = icefield_cli::read_all(data.to_vec(), design == "ndjson");
        assert!(rows <= data.len() as u64 + 1, "{rows} rows of {} bytes", data.len());
        return Ok(());
    }
    let scenarios: &Scenarios = scenarios(design, Records::Bytes).expect("a design");
    match kind {
        "files" => (scenarios.fuzz_files)(data),
        "operations" => (scenarios.fuzz_operations)(data),
        _ => panic!("no target `{target}`"),
    }
}

/// Like [`try_run`], for fuzzers, which detect panics.
///
/// # Panics
/// The target found a fault.
pub fn run(target: &str, data: &[u8]) {
    if let Err(failure) = try_run(target, data) {
        panic!("{failure}");
    }
}
