//! DLHT as a subject: tables in memory whose threads take turns inside their operations.

use icefield::base::hash::HashKind;
use icefield::{DlhtHash, DlhtTable, Error, Interleaved, Turns};

use crate::baton;
use crate::failure::Failure;
use crate::linear::{Counts, Ground, histories_on};
use crate::pool::Pool;

/// The table's name in commands and reports.
pub const NAME: &str = "dlht";
/// One table in so many leaves the choice of who runs to the system.
const FREE_ONE_IN: u64 = 32;

/// Threads hand over as their baton says.
#[derive(Clone, Copy, Debug)]
pub struct Batons;

impl Turns for Batons {
    fn give_way() {
        baton::tick();
    }
}

/// A table whose threads take turns.
pub type DlhtInTurns = DlhtTable<u64, u64, Interleaved<Batons>>;

/// A table of the smallest geometry: some grow at every other insert, some have link buckets, some crowd their keys.
///
/// # Errors
/// No memory.
pub fn tiny(variant: u64) -> Result<DlhtInTurns, Error> {
    let hash = match variant % 8 {
        0 => DlhtHash::Modulo,
        1 => DlhtHash::Kind(HashKind::Crowded),
        _ => DlhtHash::Strong,
    };
    let ratio = [0.0, 0.5, 3.0][(variant / 8 % 3) as usize];
    let (bits, growth_bits) = ((variant % 3) as u32, 1 + (variant / 3 % 2) as u32);
    DlhtInTurns::options()
        .hash(hash)
        .hash_seed([variant, 7])
        .link_ratio(ratio)
        .geometry(bits, growth_bits)
        .build()
}

/// About `histories` concurrent histories, each judged for linearizability.
///
/// # Errors
/// The first history that no order explains.
pub fn linear(seed: u64, histories: u64, pool: &Pool) -> Result<Counts, Failure> {
    histories_on(seed, histories, pool, |seed| {
        Ok(Ground { table: tiny(seed)?, sim: None, turns: !seed.is_multiple_of(FREE_ONE_IN) })
    })
}
