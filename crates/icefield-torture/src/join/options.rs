//! The options of the indexes in the scenarios.

use icefield::base::hash::HashKind;
use icefield::{JoinIndex, JoinOptions};

/// Returns options with which merges of both kinds, full delta stores, long buckets and wide groups occur after a few
/// changes. Different variants have different options.
pub(super) fn options(variant: u64) -> JoinOptions<u64> {
    // Some variants put all keys into one bucket.
    let hash = match variant % 11 {
        10 => HashKind::Constant,
        8 | 9 => HashKind::Crowded,
        _ => HashKind::Strong,
    };
    JoinIndex::<u64>::options()
        .hash(hash)
        .hash_seed([variant, 0x1CE])
        .threads(1)
        .replace(true)
        .delta_limit([6, 20, 100, 1000][(variant / 3 % 4) as usize])
        .filter_bits_per_key([11, 0, 4, 64, 16][(variant % 5) as usize])
}
