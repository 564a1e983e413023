//! The choice of the size of a table's first index, and of each following index.

use std::sync::Arc;

use super::DlhtHash;
use super::hasher::Hasher;
use super::index::{Entry, Index, Size};
use crate::base::hash::Seed;
use crate::storage::FaultPlan;
use crate::{Error, Result};

/// An index with fewer bins grows whenever it is full: its memory is small, and its fill varies too much by chance to
/// detect crowding.
const SMALL_BINS: u64 = 1 << 12;
/// An index with at least this many bins grows by a factor of two.
const BIG_BINS: u64 = 1 << 26;
/// If a full index holds less than this share of its capacity, its keys crowd into few bins.
const CROWDED: f64 = 0.25;
/// The logarithm of the largest number of bins, which occupy 4 PiB.
const MAX_BITS: u32 = 46;
/// Link bucket numbers have 32 bits, and a pair of buckets is identified by the first.
const MAX_LINKS: f64 = (u32::MAX - 2) as f64;

/// The options of a table that concern its indexes.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) hash: DlhtHash,
    pub(super) seed: Option<Seed>,
    /// Link buckets per bin.
    pub(super) link_ratio: f64,
    /// Set if inserts must not grow the table.
    pub(super) fixed: bool,
    /// The maximum size of an index, in bytes.
    pub(super) max_bytes: u64,
    /// The logarithm of the minimum number of bins of a new table.
    pub(super) least_bits: u32,
    /// The logarithm of the growth factor, for tests. By default it depends on the size.
    pub(super) growth_bits: Option<u32>,
    /// The allocations that fail, for tests.
    pub(super) faults: Option<Arc<FaultPlan>>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            hash: DlhtHash::Strong,
            seed: None,
            link_ratio: 1.0 / 8.0,
            fixed: false,
            max_bytes: u64::MAX,
            // The bins fill one page.
            least_bits: 6,
            growth_bits: None,
            faults: None,
        }
    }
}

impl Plan {
    pub(super) fn index(&self, size: Size, hasher: Hasher, entry: Entry) -> Result<Index> {
        let made = match &self.faults {
            None => Index::new(size, hasher, entry),
            Some(faults) => faults
                .enter("bins", true)
                .and_then(|()| faults.enter("link buckets", true))
                .map_err(Into::into)
                .and_then(|()| Index::new(size, hasher, entry)),
        };
        made.map_err(|_| Error::NoMemory { needed_bytes: (1 << size.bits) * 64 })
    }

    /// Returns the size of an index with 2^`bits` bins.
    pub(super) fn size(&self, bits: u32) -> Size {
        let links = (2_f64.powi(bits as i32) * self.link_ratio).ceil().min(MAX_LINKS);
        Size { bits, links: links as usize }
    }

    /// Returns the smallest size that takes `records` before the index must grow.
    pub(super) fn size_for(&self, records: u64) -> Size {
        let mut size = self.size(self.least_bits);
        while capacity(size) < records && size.bits < MAX_BITS {
            size = self.size(size.bits + 1);
        }
        size
    }

    /// Returns the size of the index that follows `index`, which is full and holds `len` records. If the records crowd
    /// into few bins, the size stays the same: more bins would not help, but another hash function will.
    pub(super) fn next_size(&self, index: &Index, len: u64) -> Size {
        let bins = index.len();
        let crowded = bins >= SMALL_BINS && (len as f64) < capacity(index.size) as f64 * CROWDED;
        let growth_bits = match bins {
            _ if crowded => 0,
            ..SMALL_BINS => self.growth_bits.unwrap_or(3),
            SMALL_BINS..BIG_BINS => self.growth_bits.unwrap_or(2),
            BIG_BINS.. => self.growth_bits.unwrap_or(1),
        };
        self.size((index.size.bits + growth_bits).min(MAX_BITS))
    }
}

/// Returns the number of records that an index takes, with a good hash function, until its link buckets are used up.
///
/// With *n* bins and on average *r* records per bin, the number of records of a bin has a Poisson distribution, so
/// P(more than 3) + 2 P(more than 7) link buckets are in use per bin.
pub(super) fn capacity(size: Size) -> u64 {
    let bins = 2_f64.powi(size.bits as i32);
    // An index without link buckets is full when the first bin needs one.
    let links = size.links.max(1) as f64 / bins;
    let (mut low, mut high) = (0.0, 12.0);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if links_used(middle) < links { low = middle } else { high = middle }
    }
    (bins * low).max(1.0) as u64
}

/// Returns the number of link buckets in use per bin, at `records` records per bin.
fn links_used(records: f64) -> f64 {
    let (mut term, mut at_most_3, mut at_most_7) = ((-records).exp(), 0.0, 0.0);
    for k in 0..8 {
        if k < 4 {
            at_most_3 += term;
        }
        at_most_7 += term;
        term *= records / f64::from(k + 1);
    }
    (1.0 - at_most_3) + 2.0 * (1.0 - at_most_7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_what_poisson_says() {
        let plan = Plan::default();
        let per_bin = capacity(plan.size(20)) as f64 / 2_f64.powi(20);
        assert!((1.87..1.92).contains(&per_bin), "{per_bin}");
        // The paper's ratio of 1/5: 59.8 % of the slots.
        let paper = Plan { link_ratio: 0.2, ..Plan::default() };
        let occupancy = capacity(paper.size(20)) as f64 / (2_f64.powi(20) * (3.0 + 0.2 * 4.0));
        assert!((0.59..0.605).contains(&occupancy), "{occupancy}");
        assert!(capacity(Plan { link_ratio: 0.0, ..Plan::default() }.size(20)) > 1 << 15);
    }

    #[test]
    fn sizes_hold_what_was_asked_for() {
        let plan = Plan::default();
        for records in [0, 1, 100, 121, 1_000_000, 32_000_000] {
            let size = plan.size_for(records);
            assert!(capacity(size) >= records);
            assert!(size.bits == 6 || capacity(plan.size(size.bits - 1)) < records);
        }
        assert_eq!(plan.size_for(u64::MAX).bits, MAX_BITS, "creation will fail, not this");
    }
}
