//! The cost model: how many records a group has. This number also determines the filter bits of a key and the length of
//! buckets, because the line of a group has room for 320 filter bits and the ends of 16 buckets.
//!
//! A probe reads the group's line and, if the key passes the filter, the lines of its bucket. With `m` records in a
//! group, and with a share `hit` of probe keys that are present:
//!
//! - lines of a probe: `1 + pass(m) * (0.75 + (m / 16 + hit) / 4)`, where `pass = hit + (1 - hit) * (1 - e^(-m/64))^5`.
//!   The 0.75 is due to buckets that begin at any of the four records of a line; a bucket with a hit has one record
//!   more;
//! - bytes of a key: `16 + 64 / m`, and its share of a block's checksum.
//!
//! A larger `m` adds few lines and saves bytes, until the filter is nearly full. The default is the largest whole
//! number of filter bits with which a file has less than 18.4 bytes a key: 11 bits. A group then has 29 records and a
//! bucket 1.8; 0.6 % of absent keys pass; a probe reads 1.3 lines at 20 % hits and 2.45 at 100 %.

use super::layout::{FILTER_WORDS, GROUP_BYTES};
use crate::base::hash::Hash;
use crate::{Error, Result};

/// Filter bits in a group.
const GROUP_BITS: u64 = 64 * FILTER_WORDS as u64;
/// Default number of filter bits of a key.
const BITS: u64 = 11;
/// Number of records of a group without a filter, where only the length of buckets matters.
const RECORDS_UNFILTERED: u64 = 40;
/// The fractions of the planned number of records to which a group may grow, and shrink, before a merge rebuilds.
const GROWN: (u64, u64) = (3, 2);
const SHRUNK: (u64, u64) = (1, 2);

/// Minimum number of records for each thread.
pub(super) const RECORDS_PER_THREAD: usize = 1 << 15;

/// The parameters of building a generation.
pub(super) struct Site<'a, M> {
    pub(super) storage: &'a M,
    pub(super) hash: &'a Hash,
    /// The hash function for checksums.
    pub(super) sums: &'a Hash,
    pub(super) uuid: [u64; 2],
    /// The number of the new generation.
    pub(super) generation: u64,
    pub(super) bits: FilterBits,
    pub(super) threads: usize,
    /// Maximum size of the generation's file, in bytes.
    pub(super) limit: u64,
}

/// Filter bits for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilterBits(u64);

impl FilterBits {
    /// Returns the number for an option: `None` selects the cost model's choice, 0 selects no filter.
    pub(super) fn chosen(asked: Option<u32>) -> Result<Self> {
        match asked {
            None => Ok(Self(BITS)),
            Some(bits @ (0 | 2..=64)) => Ok(Self(bits.into())),
            Some(bits) => Err(Error::InvalidOption {
                option: "filter_bits_per_key",
                detail: format!("{bits} is neither 0 nor from 2 to 64"),
            }),
        }
    }

    /// Returns the number stored in a file, or `None` if it is invalid.
    pub(super) fn stored(bits: u64) -> Option<Self> {
        (bits == 0 || (2..=64).contains(&bits)).then_some(Self(bits))
    }

    pub(super) fn get(self) -> u64 {
        self.0
    }

    /// Returns whether there is a filter.
    pub(super) fn is_filter(self) -> bool {
        self.0 > 0
    }

    /// Returns the planned number of records in a group.
    pub(super) fn group_records(self) -> u64 {
        match self.0 {
            0 => RECORDS_UNFILTERED,
            bits => GROUP_BITS / bits,
        }
    }

    /// Returns the number of groups for `records` records.
    pub(super) fn groups(self, records: u64) -> u64 {
        records.div_ceil(self.group_records()).max(1)
    }

    /// Returns whether `groups` groups still suit `records` records. With too few groups, filters would be too full;
    /// with too many, lines would waste space.
    pub(super) fn serves(self, groups: u64, records: u64) -> bool {
        let planned = self.groups(records);
        let too_few = planned * GROWN.1 > groups * GROWN.0;
        let too_many = planned * SHRUNK.1 < groups * SHRUNK.0 && groups * GROUP_BYTES > 1 << 16;
        !too_few && !too_many
    }
}

/// The cost of a pair of the base in a merge by group, relative to a rebuild. The merge copies the pair; a rebuild
/// reads it twice, scatters it and sorts it.
const COPY_COST: f64 = 0.3;
/// The cost of a change in a merge by group: it is looked up, sorted, and splits a run of records that is otherwise
/// copied as one.
const CHANGE_COST: f64 = 1.25;

/// Returns whether a merge by group, into `groups` groups, is better than a rebuild: it must cost less, and the groups
/// must suit the remaining pairs. `before` and `after` are the numbers of pairs before and after the merge.
pub(super) fn merges_by_group(
    bits: FilterBits,
    groups: u64,
    (before, after): (u64, u64),
    changes: u64,
) -> bool {
    let all = before as f64 + changes as f64;
    let by_group = before as f64 * COPY_COST + changes as f64 * CHANGE_COST;
    bits.serves(groups, after) && by_group < all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_stays_below_its_bytes() {
        let bits = FilterBits::chosen(None).unwrap();
        assert_eq!(bits.group_records(), 29);
        let groups = bits.groups(10_000_000);
        assert!((groups * GROUP_BYTES) as f64 / 1e7 < 2.3);
    }

    #[test]
    fn growth_by_a_tenth_is_merged_and_by_twice_is_not() {
        let bits = FilterBits::chosen(None).unwrap();
        let groups = bits.groups(1_000_000);
        assert!(merges_by_group(bits, groups, (1_000_000, 1_100_000), 100_000));
        assert!(!merges_by_group(bits, groups, (1_000_000, 2_000_000), 1_000_000));
        assert!(!merges_by_group(bits, groups, (0, 100), 100));
        assert!(!merges_by_group(bits, groups, (1_000_000, 200_000), 1), "one key was most of it");
        assert!(bits.serves(groups, 600_000) && !bits.serves(groups, 400_000));
    }

    #[test]
    fn absurd_filters_are_refused() {
        assert!(FilterBits::chosen(Some(1)).is_err() && FilterBits::chosen(Some(65)).is_err());
        assert_eq!(FilterBits::chosen(Some(64)).unwrap().group_records(), 5);
        assert!(!FilterBits::chosen(Some(0)).unwrap().is_filter());
        assert_eq!(FilterBits::stored(1), None);
    }
}
