//! Concurrent histories on tables, maps of records and sets, whose threads take turns.

use icefield::Error;

use super::held::{held, held_one_by_one};
use super::keys::{DlhtKeys, VALUE};
use super::records::DlhtRecords;
use super::tiny;
use super::turns::DlhtInTurns;
use crate::failure::Failure;
use crate::linear::{Counts, Ground, Hold, histories_on};
use crate::pool::Pool;
use crate::subject::Seen;

/// One table in this many leaves the scheduling to the operating system.
const FREE_ONE_IN: u64 = 32;

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
        Ok(Ground { hold: Some(held), pass: snapshot, ..Ground::of(table, turns) })
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
        Ok(Ground { hold, pass, ..Ground::of(table, turns) })
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
        let (hold, only_value): (Hold<_>, _) = (held_one_by_one, Some(VALUE));
        Ok(Ground { hold: Some(hold), pass, only_value, ..Ground::of(table, turns) })
    })
}
