//! DLHT in the scenarios: tables in memory. In some scenarios, the threads take turns inside their operations.

mod alone;
mod faults;
mod held;
mod keys;
mod model;
mod own;
mod records;
mod set;
mod turns;

use icefield::base::hash::HashKind;
use icefield::{DlhtHash, DlhtOptions, Error};

pub use self::alone::Alone;
pub use self::faults::faults;
use self::held::{held, held_one_by_one};
pub use self::keys::DlhtKeys;
pub use self::model::DlhtPlace;
pub use self::records::DlhtRecords;
pub use self::set::{SetCounts, set_model};
pub use self::turns::{Batons, DlhtInTurns};
use crate::failure::Failure;
use crate::linear::{Counts, Ground, Hold, histories_on};
use crate::pool::Pool;
use crate::subject::Seen;

/// The table's name in commands and reports.
pub const NAME: &str = "dlht";
/// One table in this many leaves the scheduling to the operating system.
const FREE_ONE_IN: u64 = 32;

/// Returns options for tables of the smallest geometry. Some variants grow at every second insert, some have link
/// buckets, and in some, five high bits of every hash are zero.
#[must_use]
pub fn tiny<T>(variant: u64) -> DlhtOptions<T> {
    let hash = match variant % 8 {
        0 => DlhtHash::Modulo,
        1 => DlhtHash::Kind(HashKind::Crowded),
        2 => DlhtHash::Multiplied,
        _ => DlhtHash::Strong,
    };
    let ratio = [0.0, 0.5, 3.0][(variant / 8 % 3) as usize];
    DlhtOptions::default()
        .hash(hash)
        .hash_seed([variant, 7])
        .link_ratio(ratio)
        .geometry(0, 1 + (variant / 3 % 2) as u32)
        .least_bins(1 + variant % 5)
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
        let (table, turns) =
            (tiny::<DlhtInTurns>(seed).build()?, !seed.is_multiple_of(FREE_ONE_IN));
        Ok(Ground { table, sim: None, turns, hold: Some(held), pass: snapshot, only_value: None })
    })
}

/// Like [`linear`], on maps of records. In half of the maps, many keys have equal hashes; these have no shadow inserts,
/// because one would refuse other keys too.
///
/// # Errors
/// Returns the first history that no order explains.
pub fn linear_map(seed: u64, histories: u64, pool: &Pool) -> Result<Counts, Failure> {
    histories_on(seed, histories, pool, |seed| {
        let table = DlhtRecords::new(seed)?;
        let hold: Option<Hold<_>> = (!table.is_crowded()).then_some(held_one_by_one);
        let (turns, pass) = (!seed.is_multiple_of(FREE_ONE_IN), DlhtRecords::snapshot);
        Ok(Ground { table, sim: None, turns, hold, pass, only_value: None })
    })
}

/// Like [`linear`], on sets.
///
/// # Errors
/// Returns the first history that no order explains.
pub fn linear_set(seed: u64, histories: u64, pool: &Pool) -> Result<Counts, Failure> {
    histories_on(seed, histories, pool, |seed| {
        let table = DlhtKeys::new(seed)?;
        let (turns, pass) = (!seed.is_multiple_of(FREE_ONE_IN), DlhtKeys::snapshot);
        let (hold, only_value): (Hold<_>, _) = (held_one_by_one, Some(keys::VALUE));
        Ok(Ground { table, sim: None, turns, hold: Some(hold), pass, only_value })
    })
}
