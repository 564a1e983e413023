//! DLHT in the scenarios: tables in memory. In some scenarios, the threads take turns inside their operations.

mod alone;
mod faults;
mod held;
mod model;
mod own;
mod set;
mod turns;

use icefield::base::hash::HashKind;
use icefield::{DlhtHash, DlhtOptions, Error};

pub use self::alone::Alone;
pub use self::faults::faults;
use self::held::held;
pub use self::model::DlhtPlace;
pub use self::set::{SetCounts, set_model};
pub use self::turns::{Batons, DlhtInTurns};
use crate::failure::Failure;
use crate::linear::{Counts, Ground, histories_on};
use crate::pool::Pool;
use crate::subject::Seen;

/// The table's name in commands and reports.
pub const NAME: &str = "dlht";
/// One table in this many leaves the scheduling to the operating system.
const FREE_ONE_IN: u64 = 32;

/// Creates a table of the smallest geometry. Some variants grow at every second insert, some have link buckets, and in
/// some, five high bits of every hash are zero.
///
/// # Errors
/// Returns an error if memory is exhausted.
pub fn tiny(variant: u64) -> Result<DlhtInTurns, Error> {
    let hash = match variant % 8 {
        0 => DlhtHash::Modulo,
        1 => DlhtHash::Kind(HashKind::Crowded),
        2 => DlhtHash::Multiplied,
        _ => DlhtHash::Strong,
    };
    let ratio = [0.0, 0.5, 3.0][(variant / 8 % 3) as usize];
    DlhtInTurns::options()
        .hash(hash)
        .hash_seed([variant, 7])
        .link_ratio(ratio)
        .geometry(0, 1 + (variant / 3 % 2) as u32)
        .least_bins(1 + variant % 5)
        .build()
}

/// Returns options for tables of every shape: tiny ones that grow often and through several sizes at once, with and
/// without link buckets.
#[must_use]
pub fn shaped<T>(seed: u64) -> DlhtOptions<T> {
    let hash = match seed % 7 {
        0 => DlhtHash::Modulo,
        1 => DlhtHash::Multiplied,
        2 => DlhtHash::Kind(HashKind::Crowded),
        _ => DlhtHash::Strong,
    };
    let ratio = [0.125, 0.0, 1.0, 3.0][(seed / 7 % 4) as usize];
    let options = DlhtOptions::default().hash(hash).hash_seed([seed, 1]).link_ratio(ratio);
    options.geometry(0, 1 + (seed % 3) as u32).least_bins(1 + seed % 11)
}

/// Returns all records of a snapshot.
fn snapshot(table: &DlhtInTurns) -> Result<Option<Seen>, Error> {
    Ok(Some(table.snapshot().iter().collect()))
}

/// Runs about `histories` concurrent histories, which include shadow inserts, and checks each for linearizability.
///
/// # Errors
/// Returns the first history that no order explains.
pub fn linear(seed: u64, histories: u64, pool: &Pool) -> Result<Counts, Failure> {
    histories_on(seed, histories, pool, |seed| {
        let (table, turns) = (tiny(seed)?, !seed.is_multiple_of(FREE_ONE_IN));
        Ok(Ground { table, sim: None, turns, hold: Some(held), pass: snapshot })
    })
}
