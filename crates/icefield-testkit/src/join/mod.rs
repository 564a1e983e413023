//! The scenarios for [`JoinIndex`], which is a multimap that is built, not a map that is filled: random changes and
//! probes against a naive list of pairs, crash images, killed children, damaged files, failing system calls.

mod corrupt;
mod crash;
mod faults;
mod kill;
mod model;
mod steps;

use icefield::base::hash::HashKind;
use icefield::{JoinIndex, JoinOptions};

pub use corrupt::{corrupt, every_flip};
pub use crash::crash;
pub use faults::faults;
pub use kill::{KILLED_IN, child, kill};
pub use model::{ModelCounts, model_in_files, model_simulated};

/// The table's name in commands and reports.
pub const NAME: &str = "join";

/// Options in which merges of both kinds, full delta stores, long buckets and wide groups are a few changes away.
/// `variant` picks among them.
fn options(variant: u64) -> JoinOptions<u64> {
    // Now and then all keys are in one bucket.
    let hash = match variant % 11 {
        10 => HashKind::Constant,
        8 | 9 => HashKind::Crowded,
        _ => HashKind::Strong,
    };
    JoinIndex::<u64>::options()
        .hash(hash)
        .hash_seed([variant, 0x1CE])
        .threads(1)
        .delta_limit([6, 20, 100, 1000][(variant / 3 % 4) as usize])
        .filter_bits_per_key([11, 0, 4, 64, 16][(variant % 5) as usize])
}
