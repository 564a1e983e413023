//! Medians and latency histograms.

/// Durations in nanoseconds, up to 18 minutes, exact to 1 %.
pub(crate) type Histogram = hdrhistogram::Histogram<u64>;

const LONGEST_NS: u64 = 1 << 40;
const DIGITS: u8 = 2;

/// Returns an empty histogram.
pub(crate) fn histogram() -> Histogram {
    Histogram::new_with_max(LONGEST_NS, DIGITS).expect("the bounds are valid")
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
    }
}
