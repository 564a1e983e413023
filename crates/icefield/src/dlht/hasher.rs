//! From a key's word to its bin, and the order in which a scan goes through the bins.

use crate::base::hash::{Hash, HashKind, Seed, random_seed};

/// How keys are spread over bins.
///
/// ```
/// use icefield::{Dlht, DlhtHash};
/// let dense = Dlht::<u32, u32>::options().hash(DlhtHash::Modulo).build()?;
/// dense.insert(1, 10);
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DlhtHash {
    /// The keyed hash of [`crate::base::hash`], with a seed of the table's own.
    #[default]
    Strong,
    /// The key itself, modulo the number of bins (the paper's default): the fastest for keys that are dense, and no
    /// defence against keys that are not. A table that finds its keys crowded into few bins goes over to
    /// [`DlhtHash::Strong`].
    Modulo,
    /// One of the kinds that only tests want.
    #[doc(hidden)]
    Kind(HashKind),
}

/// A hash function of one generation: a table changes it when too many keys share a bin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher {
    hash: Hash,
    modulo: bool,
    /// How many functions the table had before.
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

    /// The function after this one: strong, with a seed that nobody can have seen.
    pub(super) fn successor(&self) -> Self {
        Self { generation: self.generation.wrapping_add(1), ..Self::new(DlhtHash::Strong, None) }
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: u64) -> u64 {
        // A branch that always goes the same way; the strong hash costs two multiplications.
        if self.modulo { key } else { self.hash.word(key) }
    }

    /// What to shift hashes by before masking them, for 2^`bits` bins.
    pub(super) fn shift(&self, bits: u32) -> u32 {
        if self.modulo { 0 } else { (64 - bits).min(63) }
    }

    /// Where `key` comes in a scan. A bin's keys are neighbours in this order, and so are those of the bins that it is
    /// split into when the index grows.
    pub(super) fn order(&self, key: u64) -> u64 {
        let hash = self.hash(key);
        if self.modulo { hash.reverse_bits() } else { hash }
    }

    /// The bin, of 2^`bits`, that comes at `place` in a scan.
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
