//! Keys and values, generated before the clock starts.

use icefield_torture::rng::mix;
use icefield_torture::workload::{Distribution, Stream};

/// Returns the value stored under `key`; it is derived from the key, so every answer can be checked.
#[inline]
pub(crate) fn value_of(key: u64) -> u64 {
    key.rotate_left(17) ^ 0x5BD1_E995
}

/// The combined answers of all operations of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The number of operations that found, newly inserted or removed their key.
    pub hits: u64,
    /// The wrapping sum of the returned values.
    pub sum: u64,
}

impl Tally {
    /// Returns the answers of reads, updates or removals of `keys` when all are present.
    pub fn of_values(keys: &[u64]) -> Self {
        let sum = keys.iter().fold(0, |sum: u64, key| sum.wrapping_add(value_of(*key)));
        Self { hits: keys.len() as u64, sum }
    }

    pub fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.sum = self.sum.wrapping_add(other.sum);
    }

    #[inline]
    pub fn insert(&mut self, new: bool) {
        self.hits += u64::from(new);
    }

    #[inline]
    pub fn answer(&mut self, value: Option<u64>) {
        if let Some(value) = value {
            self.hits += 1;
            self.sum = self.sum.wrapping_add(value);
        }
    }
}

/// Returns the sum of the answers of all threads.
///
/// # Errors
/// The error of the first thread that failed.
pub(crate) fn sum(parts: Vec<icefield::Result<Tally>>) -> icefield::Result<Tally> {
    let mut all = Tally::default();
    for part in parts {
        all.add(part?);
    }
    Ok(all)
}

/// A numbered sequence of distinct keys in random order, of unlimited length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySpace {
    offset: u64,
}

impl KeySpace {
    pub fn new(seed: u64) -> Self {
        Self { offset: mix(seed) }
    }

    #[inline]
    pub fn key(self, index: u64) -> u64 {
        mix(index.wrapping_add(self.offset))
    }

    pub fn keys(self, range: std::ops::Range<u64>) -> Vec<u64> {
        range.map(|index| self.key(index)).collect()
    }

    /// Returns `count` draws from the first `present` keys.
    pub fn draw(self, dist: Distribution, present: u64, count: usize, seed: u64) -> Vec<u64> {
        let mut stream = Stream::new(dist, present, seed);
        (0..count).map(|_| self.key(stream.draw())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct() {
        let keys = KeySpace::new(7).keys(0..100_000);
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), keys.len());
        assert_eq!(
            Tally::of_values(&keys[..2]).sum,
            value_of(keys[0]).wrapping_add(value_of(keys[1]))
        );
    }

    #[test]
    fn draws_are_present_keys() {
        let space = KeySpace::new(1);
        let present = space.keys(0..100);
        for dist in [Distribution::Uniform, Distribution::Zipf(0.99), Distribution::Latest(0.5)] {
            assert!(space.draw(dist, 100, 1_000, 3).iter().all(|key| present.contains(key)));
        }
    }
}
