//! The mapping of a key's word to its bin, and the order in which a scan visits the bins.

use crate::base::hash::{Hash, HashKind, Seed, random_seed};

/// The hash function that distributes keys over bins.
///
/// ```
/// use icefield::{Dlht, DlhtHash};
/// let dense = Dlht::<u32, u32>::options().hash(DlhtHash::Modulo).build()?;
/// (0..1000).for_each(|key| dense.put(key, key)); // Spreads the keys evenly over the bins.
/// assert_eq!(dense.len(), 1000);
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DlhtHash {
    /// A keyed hash with a seed for each table. It resists keys that are chosen without knowledge of the seed.
    #[default]
    Strong,
    /// The key itself, modulo the number of bins (the paper's default), which is then a power of two. This is the
    /// fastest function for dense keys, and offers no protection against other key sets. A table whose keys crowd into
    /// few bins switches to [`DlhtHash::Strong`].
    Modulo,
    /// The key times a constant. For keys that are hashes or random already. A table whose keys crowd
    /// into few bins switches to [`DlhtHash::Strong`].
    Multiplied,
    /// A kind for tests only.
    #[doc(hidden)]
    Kind(HashKind),
}

/// An odd number with about as many ones as zeros: 2^64 divided by the golden ratio.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Keyed,
    Modulo,
    Multiplied,
}

/// The hash function of one generation. A table changes its function when too many keys share a bin.
///
/// The bins of an index divide the range of hashes into equal parts: key `k` belongs to bin *hash(k) n / 2^64* of *n*
/// bins. For [`DlhtHash::Modulo`], the hash consists of the lowest bits of the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher {
    hash: Hash,
    family: Family,
    /// The number of functions that the table had before.
    pub(super) generation: u16,
}

impl Hasher {
    pub(super) fn new(kind: DlhtHash, seed: Option<Seed>) -> Self {
        let seed = seed.map_or_else(random_seed, |Seed(seed)| seed);
        let (kind, family) = match kind {
            DlhtHash::Strong => (HashKind::Strong, Family::Keyed),
            DlhtHash::Modulo => (HashKind::Strong, Family::Modulo),
            DlhtHash::Multiplied => (HashKind::Strong, Family::Multiplied),
            DlhtHash::Kind(kind) => (kind, Family::Keyed),
        };
        Self { hash: Hash::new(kind, seed), family, generation: 0 }
    }

    /// Returns the next function: strong, with a new random seed that no client can have observed.
    pub(super) fn successor(&self) -> Self {
        Self { generation: self.generation.wrapping_add(1), ..Self::new(DlhtHash::Strong, None) }
    }

    /// Returns whether the number of bins must be a power of two.
    pub(super) fn is_modulo(&self) -> bool {
        self.family == Family::Modulo
    }

    /// Returns the number of the bin of `key`, of `bins` bins. `shift` is that of [`Hasher::shift`].
    #[inline(always)]
    pub(super) fn bin_of(&self, key: u64, bins: u64, shift: u32) -> u64 {
        // These branches are well predicted; the keyed hash costs two multiplications.
        let hash = match self.family {
            Family::Keyed => self.hash.word(key),
            Family::Modulo => key << shift,
            Family::Multiplied => key.wrapping_mul(FACTOR),
        };
        part_of(hash, bins)
    }

    /// Returns how far [`DlhtHash::Modulo`] shifts keys, for `bins` bins.
    pub(super) fn shift(&self, bins: u64) -> u32 {
        (64 - bins.trailing_zeros()).min(63)
    }

    /// Returns the position of `key` in a scan. The keys of a bin are adjacent in this order, and so are the keys of
    /// the bins into which it is split when the index grows.
    pub(super) fn order(&self, key: u64) -> u64 {
        match self.family {
            Family::Keyed => self.hash.word(key),
            Family::Modulo => key.reverse_bits(),
            Family::Multiplied => key.wrapping_mul(FACTOR),
        }
    }

    /// Returns the positions of a sample, scattered over all positions.
    pub(super) fn scattered(&self, sample: u64) -> u64 {
        self.hash.word(sample)
    }

    /// Returns the number of the bin whose keys come after those of `before` others in a scan of `bins` bins.
    pub(super) fn bin_at(&self, before: u64, bins: u64) -> u64 {
        match bins.trailing_zeros() {
            bits @ 1.. if self.is_modulo() => before.reverse_bits() >> (64 - bits),
            _ => before,
        }
    }
}

/// Divides all positions into `parts` equal parts, and returns the number of the part in which `position` lies.
#[inline(always)]
pub(super) fn part_of(position: u64, parts: u64) -> u64 {
    ((u128::from(position) * u128::from(parts)) >> 64) as u64
}

/// Returns the first and the last position in `part` of `parts` parts.
pub(super) fn positions(part: u64, parts: u64) -> (u64, u64) {
    let first = |part: u64| (u128::from(part) << 64).div_ceil(u128::from(parts));
    (first(part) as u64, (first(part + 1) - 1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_and_order_agree() {
        for kind in [DlhtHash::Strong, DlhtHash::Modulo, DlhtHash::Multiplied] {
            let hasher = Hasher::new(kind, Some(Seed([1, 2])));
            for bins in [1_u64, 2, 3, 32, 1000, 1 << 20, (1 << 40) + 1] {
                let bins = if hasher.is_modulo() { bins.next_power_of_two() } else { bins };
                for key in (0..500).map(|i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (i % 50))
                {
                    let bin = hasher.bin_of(key, bins, hasher.shift(bins));
                    assert!(!hasher.is_modulo() || bin == key % bins);
                    let order = hasher.order(key);
                    let before = part_of(order, bins);
                    assert_eq!(hasher.bin_at(before, bins), bin, "{kind:?} {bins} {key}");
                    let (first, last) = positions(before, bins);
                    assert!((first..=last).contains(&order));
                }
            }
        }
    }

    #[test]
    fn parts_have_all_positions_once() {
        for parts in [1, 2, 3, 5, 1000, 1 << 40, u64::MAX] {
            let sample = [0, 1, parts / 3, parts / 2, parts.saturating_sub(2), parts - 1];
            for part in sample.into_iter().filter(|&part| part < parts) {
                let (first, last) = positions(part, parts);
                assert_eq!((part_of(first, parts), part_of(last, parts)), (part, part));
                assert_eq!(first.checked_sub(1).is_none(), part == 0);
                assert_eq!(last.checked_add(1).is_none(), part == parts - 1);
                assert!(part == 0 || part_of(first - 1, parts) == part - 1);
            }
        }
    }
}
