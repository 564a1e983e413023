//! The choice of the size of a table's first index, and of each following index.

use std::sync::Arc;

use super::DlhtHash;
use super::hasher::{Hasher, part_of};
use super::index::{Entry, Index, Size};
use crate::base::hash::Seed;
use crate::storage::FaultPlan;
use crate::{Error, Result};

/// An index with fewer bins grows by a factor of eight, one with more by a factor of two: a growth by two moves each
/// record once per record on average, and leaves at most half of the index unused.
const SMALL_BINS: u64 = 1 << 9;
const SMALL_GROWTH_BITS: u32 = 3;
const GROWTH_BITS: u32 = 1;
/// The least growth by which an index grows to a limit. Inserts must not fill the larger index before all records have
/// been moved there.
const LEAST_GROWTH: f64 = 1.25;
/// If a full index holds less than this share of its capacity, its keys crowd into few bins. The second share is that of
/// an index with so few link buckets per bin that its fill varies much by chance.
const CROWDED: f64 = 0.94;
const CROWDED_WITHOUT_LINKS: f64 = 0.25;
const FEW_LINKS: f64 = 1.0 / 64.0;
/// The largest number of bins, which occupy 4 PiB.
const MAX_BINS: u64 = 1 << 46;
/// Link bucket numbers have 32 bits, and a pair of buckets is identified by the first.
const MAX_LINKS: f64 = (u32::MAX - 2) as f64;
/// An index has more link buckets of each kind than it needs on average at its capacity: more by this number of standard
/// deviations, and by a few. By the normal distribution, they do not suffice in less than one table in a hundred thousand.
const DEVIATIONS: f64 = 4.5;
const MORE_SINGLES: f64 = 4.0;
const MORE_PAIRS: f64 = 2.0;
/// The expected number of bins with more records than slots, in an index at its capacity; and without link buckets.
const OVERFULL: f64 = 0.02;
const OVERFULL_WITHOUT_LINKS: f64 = 0.5;
/// The number of bins that are sampled to estimate the number of records.
const SAMPLES: u64 = 1 << 14;

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
    /// The minimum number of bins of a new table.
    pub(super) least_bins: u64,
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
            least_bins: 64,
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
        made.map_err(|_| Error::NoMemory { needed_bytes: size.bytes() })
    }

    /// Returns the size of an index with `bins` bins.
    pub(super) fn size(&self, bins: u64) -> Size {
        let ratio = self.link_ratio.min(MAX_LINKS / bins as f64 / 2.0);
        let fill = fill(bins, ratio);
        let [more_than_3, more_than_7, _] = tails(fill);
        let room = |share: f64, more: f64| {
            let mean = share * bins as f64;
            (mean + DEVIATIONS * mean.sqrt() + more).ceil() as usize
        };
        let (singles, pairs) = match ratio {
            0.0 => (0, 0),
            _ => (room(more_than_3, MORE_SINGLES), room(more_than_7, MORE_PAIRS)),
        };
        Size { bins, singles, pairs, records: (fill * bins as f64).max(1.0) as u64 }
    }

    /// Returns the smallest size that takes `records` before the index must grow.
    pub(super) fn size_for(&self, records: u64) -> Size {
        let whole = |bins: u64| {
            let bins = bins.clamp(self.least_bins, MAX_BINS);
            if self.hash == DlhtHash::Modulo { bins.next_power_of_two() } else { bins }
        };
        // The number of records per bin hardly depends on the number of bins.
        let near = self.size(whole(records / 2));
        let per_bin = near.records as f64 / near.bins as f64;
        let mut size = self.size(whole((records as f64 / per_bin).ceil() as u64));
        while size.records < records && size.bins < MAX_BINS {
            size = self.size(whole(size.bins + 1 + size.bins / 4096));
        }
        size
    }

    /// Returns the size of the index that follows `index`, which is full; `len` is the number of records in the table.
    /// If the records crowd into few bins, the size stays the same: more bins would not help, but another hash function
    /// will.
    ///
    /// # Errors
    /// [`Error::Full`] if the options do not admit the size. They do not apply to a thread that is `moving` bins.
    pub(super) fn next_size(&self, index: &Index, len: u64, moving: bool) -> Result<Size> {
        let size = index.size;
        if self.fixed && !moving {
            // Records that other threads have inserted in batches may not be counted yet.
            let is_full = len >= size.records || index.held() >= size.records;
            return if is_full { Err(Error::Full) } else { Ok(size) };
        }
        let share = match self.link_ratio {
            _ if self.fixed => 1.0,
            ..FEW_LINKS => CROWDED_WITHOUT_LINKS,
            _ => CROWDED,
        };
        // The number of records lacks those of unfinished batches, and the sample errs by 1 %.
        let records = size.records as f64;
        if (len as f64) < records * share && (index.sampled() as f64) < records * (share + 0.03) {
            return Ok(size);
        }
        let small = if size.bins < SMALL_BINS { SMALL_GROWTH_BITS } else { GROWTH_BITS };
        let grown = size.bins << self.growth_bits.unwrap_or(small);
        let grown = self.size(grown.min(MAX_BINS));
        if moving || grown.bytes() <= self.max_bytes {
            return Ok(grown);
        }
        // A smaller step, if the limit still admits one.
        let share = self.max_bytes as f64 / grown.bytes() as f64;
        let limited = self.size((grown.bins as f64 * share * 0.99) as u64);
        let fits = limited.bytes() <= self.max_bytes && !index.hasher.is_modulo();
        let is_worth = limited.bins as f64 >= size.bins as f64 * LEAST_GROWTH;
        if fits && is_worth { Ok(limited) } else { Err(Error::Full) }
    }
}

/// Returns the number of records per bin that an index takes, with a good hash function: until it has used `ratio` link
/// buckets per bin, or until a bin has too many records for its slots in one of `1 / OVERFULL` such indexes.
///
/// With on average *r* records per bin, the number of records of a bin has a Poisson distribution, so
/// P(more than 3) + 2 P(more than 7) link buckets are in use per bin.
fn fill(bins: u64, ratio: f64) -> f64 {
    let is_enough = |records| {
        let [more_than_3, more_than_7, more_than_15] = tails(records);
        if ratio == 0.0 {
            return bins as f64 * more_than_3 < OVERFULL_WITHOUT_LINKS;
        }
        more_than_3 + 2.0 * more_than_7 < ratio && bins as f64 * more_than_15 < OVERFULL
    };
    let (mut low, mut high) = (0.0, 12.0);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if is_enough(middle) { low = middle } else { high = middle }
    }
    low
}

/// Returns the shares of the bins with more than 3, 7 and 15 records, at `records` records per bin.
fn tails(records: f64) -> [f64; 3] {
    let (mut term, mut tails) = ((-records).exp(), [0.0; 3]);
    for k in 0..64 {
        for (tail, at_most) in tails.iter_mut().zip([3, 7, 15]) {
            *tail += if k > at_most { term } else { 0.0 };
        }
        term *= records / f64::from(k + 1);
    }
    tails
}

impl Index {
    /// Returns the number of records and reserved slots, which takes time in proportion to the number of bins.
    fn held(&self) -> u64 {
        self.touched().map(|bin| u64::from(Self::header(self.bin(bin)).taken())).sum()
    }

    /// Estimates the number of records and reserved slots from a sample of the bins. The sample is scattered, because
    /// keys that crowd may do so at equal distances.
    fn sampled(&self) -> u64 {
        if self.len() <= SAMPLES {
            return self.held();
        }
        let bins = (0..SAMPLES).map(|sample| part_of(self.hasher.scattered(sample), self.len()));
        let bins = bins.filter(|&bin| !self.is_untouched(bin));
        let held: u64 = bins.map(|bin| u64::from(Self::header(self.bin(bin)).taken())).sum();
        (held as f64 / SAMPLES as f64 * self.len() as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_what_poisson_says() {
        let plan = Plan::default();
        let per_bin = |plan: &Plan| plan.size(1 << 20).records as f64 / 2_f64.powi(20);
        assert!((1.87..1.92).contains(&per_bin(&plan)), "{}", per_bin(&plan));
        // The paper's ratio of 1/5: 59.8 % of the slots.
        let paper = per_bin(&Plan { link_ratio: 0.2, ..Plan::default() }) / (3.0 + 0.2 * 4.0);
        assert!((0.59..0.605).contains(&paper), "{paper}");
        assert!(Plan { link_ratio: 0.0, ..Plan::default() }.size(1 << 20).records > 1 << 15);
    }

    #[test]
    fn sizes_hold_what_was_asked_for() {
        let plan = Plan::default();
        for records in [0, 1, 100, 121, 10_000, 1_000_000, 32_000_000, 1 << 31, 1 << 40] {
            let size = plan.size_for(records);
            assert!(size.records >= records);
            let smaller = size.bins - size.bins / 2048 - 2;
            assert!(size.bins == 64 || plan.size(smaller).records < records, "{size:?}");
            // Beyond 2^31 records, bins are less full, so that none of them overflows.
            let is_large = (10_000..=1 << 31).contains(&records);
            assert!(!is_large || size.bytes() <= records * 45, "{size:?}");
            let modulo = Plan { hash: DlhtHash::Modulo, ..Plan::default() }.size_for(records);
            assert!(modulo.bins.is_power_of_two() && modulo.bins >= size.bins);
        }
        assert_eq!(plan.size_for(u64::MAX).bins, MAX_BINS, "creation will fail, not this");
    }
}
