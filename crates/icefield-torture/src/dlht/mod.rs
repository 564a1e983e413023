//! DLHT in the scenarios: tables in memory. In some scenarios, the threads take turns inside their operations.

mod alone;
mod faults;
mod held;
mod keys;
mod linear;
mod model;
mod own;
mod records;
mod set;
mod turns;

use icefield::base::hash::HashKind;
use icefield::{DlhtHash, DlhtOptions};

pub use self::alone::Alone;
pub use self::faults::faults;
pub use self::keys::DlhtKeys;
pub use self::linear::{linear, linear_map, linear_set};
pub use self::model::DlhtPlace;
pub use self::records::DlhtRecords;
pub use self::set::{SetCounts, set_model};
pub use self::turns::{Batons, DlhtInTurns};

/// The table's name in commands and reports.
pub const NAME: &str = "dlht";

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
