//! Medians and latency histograms.

/// Returns the middle value, or the mean of the middle two of an even number of values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len.is_multiple_of(2) => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        _ => Some(sorted[middle]),
    }
}

/// log2 of the buckets per power of two: values are exact to 1.6 %.
const SUB_BITS: u32 = 6;
/// Durations up to 2^40 ns, about 18 minutes.
const POWERS: u32 = 40;

/// Counts of durations in nanoseconds, exact to 1.6 %; the largest is exact.
#[derive(Clone)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Histogram {
    pub fn new() -> Self {
        Self {
            counts: vec![0; ((POWERS - SUB_BITS + 1) << SUB_BITS) as usize],
            total: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }

    #[inline]
    pub fn record(&mut self, ns: u64) {
        let last = self.counts.len() - 1;
        self.counts[bucket_of(ns).min(last)] += 1;
        self.total += 1;
        self.sum_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub fn count(&self) -> u64 {
        self.total
    }

    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.total.max(1) as f64
    }

    pub fn max_ns(&self) -> f64 {
        self.max_ns as f64
    }

    /// Returns the smallest duration that a share `quantile` of all does not exceed.
    pub fn quantile(&self, quantile: f64) -> f64 {
        let rank = ((quantile * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return (top_of(bucket) as f64).min(self.max_ns());
            }
        }
        self.max_ns()
    }
}

/// Below 2^SUB_BITS each value has its own bucket; above, each power of two has 2^SUB_BITS buckets.
#[inline]
fn bucket_of(ns: u64) -> usize {
    let power = (ns | 1).ilog2();
    if power < SUB_BITS {
        return ns as usize;
    }
    let shift = power - SUB_BITS;
    (((shift + 1) << SUB_BITS) as u64 + ((ns >> shift) - (1 << SUB_BITS))) as usize
}

/// Returns the largest value of a bucket.
fn top_of(bucket: usize) -> u64 {
    let (group, within) = ((bucket >> SUB_BITS) as u32, (bucket & ((1 << SUB_BITS) - 1)) as u64);
    if group == 0 {
        return within;
    }
    let shift = group - 1;
    (((1 << SUB_BITS) + within + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn buckets_cover_all_values_in_order() {
        let mut last = 0;
        for ns in (0..5_000).chain((13..39).map(|power| (1u64 << power) + 7)) {
            let bucket = bucket_of(ns);
            assert!(bucket >= last, "{ns} goes back");
            assert!(
                top_of(bucket) >= ns && (bucket == 0 || top_of(bucket - 1) < ns),
                "{ns} is outside its bucket"
            );
            last = bucket;
        }
    }

    #[test]
    fn quantiles_are_close() {
        let mut histogram = Histogram::new();
        (1..=100_000).for_each(|ns| histogram.record(ns));
        for (quantile, expected) in [(0.5, 50_000.0), (0.99, 99_000.0), (0.9999, 99_990.0)] {
            assert!((histogram.quantile(quantile) / expected - 1.0).abs() < 0.017);
        }
        assert_eq!(histogram.max_ns(), 100_000.0);
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        assert_eq!((twice.count(), twice.mean_ns()), (200_000, histogram.mean_ns()));
    }
}
