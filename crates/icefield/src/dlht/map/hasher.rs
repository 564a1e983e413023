//! The hash of keys of any type: the keyed function of [`crate::base::hash`] behind the traits of the standard library.

use std::fmt;
use std::hash::{BuildHasher, Hasher};

use crate::base::hash::{Hash, HashKind, random_seed};

/// Builds hashers that share one random seed.
///
/// ```
/// use std::hash::BuildHasher;
/// use icefield::DlhtBuildHasher;
/// let (one, other) = (DlhtBuildHasher::default(), DlhtBuildHasher::default());
/// assert_eq!(one.hash_one("key"), one.clone().hash_one("key"));
/// assert_ne!(one.hash_one("key"), other.hash_one("key"), "another seed");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DlhtBuildHasher(Hash);

impl Default for DlhtBuildHasher {
    fn default() -> Self {
        Self(Hash::new(HashKind::Strong, random_seed()))
    }
}

impl BuildHasher for DlhtBuildHasher {
    type Hasher = DlhtHasher;

    #[inline]
    fn build_hasher(&self) -> DlhtHasher {
        DlhtHasher { hash: self.0, state: 0 }
    }
}

/// A hasher of [`DlhtBuildHasher`].
///
/// ```
/// use std::hash::{BuildHasher, Hash, Hasher};
/// let builder = icefield::DlhtBuildHasher::default();
/// let mut hasher: icefield::DlhtHasher = builder.build_hasher();
/// "one".hash(&mut hasher);
/// assert_eq!(hasher.finish(), builder.hash_one("one"));
/// ```
#[derive(Clone)]
pub struct DlhtHasher {
    hash: Hash,
    state: u64,
}

/// Omits the keys of the hash function, and the state, from which they could be inferred.
impl fmt::Debug for DlhtHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtHasher").finish_non_exhaustive()
    }
}

impl Hasher for DlhtHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.write_u64(self.hash.bytes(bytes));
    }
    #[inline]
    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }
    #[inline]
    fn write_u16(&mut self, n: u16) {
        self.write_u64(u64::from(n));
    }
    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
    #[inline]
    fn write_u64(&mut self, n: u64) {
        // The state is zero or already a hash, so adding `n` to it distinguishes (a, b) from (b, a).
        self.state = self.hash.word(self.state.rotate_left(32).wrapping_add(n));
    }
    #[inline]
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_tells_no_secret() {
        let builder = DlhtBuildHasher::default();
        let mut hasher = builder.build_hasher();
        hasher.write_u64(1);
        let printed = format!("{builder:?}, {hasher:?}");
        assert_eq!(printed, "DlhtBuildHasher(Hash { .. }), DlhtHasher { .. }");
    }
}
