//! The cost model: how many records a group holds, and with that how many filter bits a key has and how long buckets
//! are. One number decides all three, because a group's line has room for 320 filter bits and the ends of 16 buckets.
//!
//! A probe costs the group's line; where the filter passes the key, the lines of its bucket. With `m` records a group:
//!
//! - lines a probe:  `1 + pass(m) * (0.75 + (m / 16 + hit) / 4)`, where `pass = hit + (1 - hit) * (1 - e^(-m/64))^5`,
//!   as buckets begin at any of the four records of a line, and a bucket that is hit has one record more;
//! - bytes a key:    `16 + 64 / m`, and a block's checksum.
//!
//! More records a group cost little of the first and save the second, until the filter fills up. The default is the
//! largest filter of whole bits with which a file stays below 18.4 bytes a key: 11 bits and so 29 records, of which 0.6
//! % pass wrongly, 1.8 records a bucket; 1.3 lines a probe at 20 %, 2.45 at 100 %.

use super::layout::{FILTER_WORDS, GROUP_BYTES};
use crate::{Error, Result};

/// Filter bits in a group.
const GROUP_BITS: u64 = 64 * FILTER_WORDS as u64;
/// Filter bits of a key, unless somebody says otherwise.
const BITS: u64 = 11;
/// Records of a group without a filter: nothing but the length of buckets counts.
const RECORDS_UNFILTERED: u64 = 40;
/// Records that a group may grow to by merges, as a multiple of what it was planned for, and shrink to.
const GROWN: (u64, u64) = (3, 2);
const SHRUNK: (u64, u64) = (1, 2);

/// Filter bits for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilterBits(u64);

impl FilterBits {
    /// What an option asks for: `None` for the cost model's choice, 0 for no filter.
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

    /// What a file says.
    pub(super) fn stored(bits: u64) -> Option<Self> {
        (bits == 0 || (2..=64).contains(&bits)).then_some(Self(bits))
    }

    pub(super) fn get(self) -> u64 {
        self.0
    }

    /// Whether there is a filter at all.
    pub(super) fn is_filter(self) -> bool {
        self.0 > 0
    }

    /// Records of a group.
    pub(super) fn group_records(self) -> u64 {
        match self.0 {
            0 => RECORDS_UNFILTERED,
            bits => GROUP_BITS / bits,
        }
    }

    /// Groups for so many records.
    pub(super) fn groups(self, records: u64) -> u64 {
        records.div_ceil(self.group_records()).max(1)
    }

    /// Whether `groups` still serve `records`: neither is the filter too full nor the file too empty.
    pub(super) fn serves(self, groups: u64, records: u64) -> bool {
        let planned = self.groups(records);
        let too_few = planned * GROWN.1 > groups * GROWN.0;
        let too_many = planned * SHRUNK.1 < groups * SHRUNK.0 && groups * GROUP_BYTES > 1 << 16;
        !too_few && !too_many
    }
}

/// What merging group by group costs for a pair of the base, relative to a pair of a rebuild: it copies, where a
/// rebuild reads twice, scatters and sorts.
const COPY_COST: f64 = 0.3;
/// What a change costs then: it is found again, sorted, and parts what is copied together elsewhere.
const CHANGE_COST: f64 = 1.25;

/// Whether the pairs of a base and `changes` are rather merged group by group into `groups` groups than built anew: by
/// the cost of doing it, unless the groups would serve badly what is left. There are so many pairs before and after.
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
