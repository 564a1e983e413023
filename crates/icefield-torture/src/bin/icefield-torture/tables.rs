//! The tables that have scenarios.

use clap::builder::{PossibleValue, PossibleValuesParser};
use icefield_torture::scenarios::{Records, SCENARIOS};

/// Tables that are not in [`SCENARIOS`], each with a description of its scenarios.
const OTHERS: [(&str, &str); 5] = [
    (JOIN, "A join index: `model`, `crash`, `mutate`, `kill`, `corrupt`, `faults` and `syncs`"),
    (DLHT, "In memory: `model`, `linear` and `faults`"),
    (DLHT_MAP, "In memory, keys and values of any length: `model` and `linear`"),
    (DLHT_SET, "In memory: `model` and `linear`"),
    (DLHT_LOCAL, "In memory, for one thread: `model` only"),
];
pub(super) const JOIN: &str = "join";
pub(super) const DLHT: &str = "dlht";
pub(super) const DLHT_MAP: &str = "dlht-map";
pub(super) const DLHT_SET: &str = "dlht-set";
pub(super) const DLHT_LOCAL: &str = "dlht-local";

/// Returns all table names, for `--table`.
pub(super) fn names() -> PossibleValuesParser {
    let words = SCENARIOS.iter().filter(|scenarios| scenarios.records == Records::Words);
    let tables = words.map(|scenarios| PossibleValue::new(scenarios.table));
    let others = OTHERS.into_iter().map(|(table, help)| PossibleValue::new(table).help(help));
    PossibleValuesParser::new(tables.chain(others))
}
