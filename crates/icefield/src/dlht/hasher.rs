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
    /// The key itself, modulo the number of bins (the paper's default). This is the fastest function for dense keys,
    /// and offers no protection against other key sets. A table whose keys crowd into few bins switches to
    /// [`DlhtHash::Strong`].
    Modulo,
    /// A kind for tests only.
    #[doc(hidden)]
    Kind(HashKind),
}

/// The hash function of one generation. A table changes its function when too many keys share a bin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher {
    hash: Hash,
    modulo: bool,
    /// The number of functions that the table had before.
    pub(super) generation: u16,
}

impl Hasher {
    pub(super) fn new(kind: DlhtHash, seed: Option<Seed>) -> Self {
        let seed = seed.map_or_else(random_seed, |Seed(seed)| seed);
        let (kind, modulo) = match kind {
            DlhtHash::Strong => (HashKind::Strong, false),
            DlhtHash::Modulo => (HashKind::Strong, true),
            DlhtHash::Kind(kind) => (kind, false),
        };
        Self { hash: Hash::new(kind, seed), modulo, generation: 0 }
    }

    /// Returns the next function: strong, with a new random seed that no client can have observed.
    pub(super) fn successor(&self) -> Self {
        Self { generation: self.generation.wrapping_add(1), ..Self::new(DlhtHash::Strong, None) }
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: u64) -> u64 {
        // This branch is well predicted; the strong hash costs two multiplications.
        if self.modulo { key } else { self.hash.word(key) }
    }

    /// Returns how far to shift hashes before masking them, for 2^`bits` bins.
    pub(super) fn shift(&self, bits: u32) -> u32 {
        if self.modulo { 0 } else { (64 - bits).min(63) }
    }

    /// Returns the position of `key` in a scan. The keys of a bin are adjacent in this order, and so are the keys of
    /// the bins into which it is split when the index grows.
    pub(super) fn order(&self, key: u64) -> u64 {
        let hash = self.hash(key);
        if self.modulo { hash.reverse_bits() } else { hash }
    }

    /// Returns the number of the bin at position `place` in a scan of 2^`bits` bins.
    pub(super) fn bin_at(&self, place: u64, bits: u32) -> u64 {
        if self.modulo && bits > 0 { place.reverse_bits() >> (64 - bits) } else { place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_and_order_agree() {
        for kind in [DlhtHash::Strong, DlhtHash::Modulo] {
            let hasher = Hasher::new(kind, Some(Seed([1, 2])));
            for bits in [0_u32, 1, 5, 20] {
                let mask = (1_u64 << bits) - 1;
                for key in (0..500).map(|i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (i % 50))
                {
                    let bin = hasher.hash(key) >> hasher.shift(bits) & mask;
                    let place = if bits == 0 { 0 } else { hasher.order(key) >> (64 - bits) };
                    assert_eq!(hasher.bin_at(place, bits), bin, "{kind:?} {bits} {key}");
                }
            }
        }
    }
}
