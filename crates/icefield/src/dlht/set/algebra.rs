//! Set algebra. Lookups of a page of keys in the other set are one batch.

use std::ops::{BitAnd, BitOr, BitXor, Sub};

use super::DlhtWordSet;
use crate::dlht::mode::Threading;
use crate::outcome::{Cursor, SCAN_PAGE};
use crate::types::Word;

/// Set algebra, as in the standard library. The operands may be sets for any number of threads or for one.
///
/// Iterators and comparisons are as consistent as [`DlhtWordSet::iter`]: the result is exact for every key that no thread
/// inserts or removes meanwhile. A key that is inserted or removed meanwhile may be in the result or not, and
/// [`DlhtWordSet::union`] and [`DlhtWordSet::symmetric_difference`] may return it twice.
impl<K: Word, M: Threading> DlhtWordSet<K, M> {
    /// Returns an iterator over the keys that are in both sets. Scans the smaller set.
    ///
    /// ```
    /// use icefield::DlhtSet;
    /// let (a, b) = (DlhtSet::from([1, 2_u32]), DlhtSet::from([2, 3]));
    /// assert_eq!(a.intersection(&b).collect::<Vec<_>>(), [2]);
    /// ```
    pub fn intersection<'a, N: Threading>(
        &'a self,
        other: &'a DlhtWordSet<K, N>,
    ) -> impl Iterator<Item = K> + 'a {
        // One of the two is empty. The two scans have different types if the modes differ.
        let small = self.len() <= other.len();
        let own = small.then(|| self.filtered(other, true)).into_iter().flatten();
        own.chain((!small).then(|| other.filtered(self, true)).into_iter().flatten())
    }

    /// Returns an iterator over the keys that are in this set, but not in `other`.
    ///
    /// ```
    /// use icefield::DlhtSet;
    /// let (a, b) = (DlhtSet::from([1, 2_u32]), DlhtSet::from([2, 3]));
    /// assert_eq!(a.difference(&b).collect::<Vec<_>>(), [1]);
    /// ```
    pub fn difference<'a, N: Threading>(
        &'a self,
        other: &'a DlhtWordSet<K, N>,
    ) -> impl Iterator<Item = K> + 'a {
        self.filtered(other, false)
    }

    /// Returns an iterator over the keys that are in exactly one of the sets.
    ///
    /// ```
    /// use icefield::DlhtSet;
    /// let (a, b) = (DlhtSet::from([1, 2_u32]), DlhtSet::from([2, 3]));
    /// assert_eq!(a.symmetric_difference(&b).sum::<u32>(), 1 + 3);
    /// ```
    pub fn symmetric_difference<'a, N: Threading>(
        &'a self,
        other: &'a DlhtWordSet<K, N>,
    ) -> impl Iterator<Item = K> + 'a {
        self.difference(other).chain(other.difference(self))
    }

    /// Returns an iterator over the keys that are in at least one of the sets, each once.
    ///
    /// ```
    /// use icefield::DlhtSet;
    /// let (a, b) = (DlhtSet::from([1, 2_u32]), DlhtSet::from([2, 3]));
    /// assert_eq!(a.union(&b).sum::<u32>(), 1 + 2 + 3);
    /// ```
    pub fn union<'a, N: Threading>(
        &'a self,
        other: &'a DlhtWordSet<K, N>,
    ) -> impl Iterator<Item = K> + 'a {
        self.iter().chain(other.difference(self))
    }

    /// Returns whether the sets have no key in common.
    ///
    /// ```
    /// use icefield::DlhtSet;
    /// assert!(DlhtSet::from([1_u32]).is_disjoint(&DlhtSet::from([2])));
    /// ```
    pub fn is_disjoint<N: Threading>(&self, other: &DlhtWordSet<K, N>) -> bool {
        self.intersection(other).next().is_none()
    }

    /// Returns whether all keys of this set are in `other`.
    ///
    /// ```
    /// use icefield::DlhtSet;
    /// assert!(DlhtSet::from([1_u32]).is_subset(&DlhtSet::from([1, 2])));
    /// ```
    pub fn is_subset<N: Threading>(&self, other: &DlhtWordSet<K, N>) -> bool {
        self.len() <= other.len() && self.difference(other).next().is_none()
    }

    /// Returns whether all keys of `other` are in this set.
    ///
    /// ```
    /// use icefield::DlhtSet;
    /// assert!(DlhtSet::from([1, 2_u32]).is_superset(&DlhtSet::from([1])));
    /// ```
    pub fn is_superset<N: Threading>(&self, other: &DlhtWordSet<K, N>) -> bool {
        other.is_subset(self)
    }

    /// Returns an iterator over the keys that are in `other`, or over those that are not, according to `wanted`.
    fn filtered<'a, N: Threading>(
        &'a self,
        other: &'a DlhtWordSet<K, N>,
        wanted: bool,
    ) -> impl Iterator<Item = K> + 'a {
        self.pages().flat_map(move |keys| {
            let mut found = vec![false; keys.len()];
            other.contains_batch(&keys, &mut found);
            let both = keys.into_iter().zip(found);
            both.filter_map(move |(key, found)| (found == wanted).then_some(key))
        })
    }

    fn pages(&self) -> impl Iterator<Item = Vec<K>> {
        let mut next = Some(Cursor::START);
        std::iter::from_fn(move || {
            let page = self.scan(next.take()?, SCAN_PAGE);
            next = page.next;
            Some(page.keys)
        })
    }
}

/// Returns a new set of the keys that are in at least one of the sets.
impl<K: Word, M: Threading> BitOr<&DlhtWordSet<K, M>> for &DlhtWordSet<K, M> {
    type Output = DlhtWordSet<K, M>;

    fn bitor(self, other: &DlhtWordSet<K, M>) -> DlhtWordSet<K, M> {
        self.union(other).collect()
    }
}

/// Returns a new set of the keys that are in both sets.
impl<K: Word, M: Threading> BitAnd<&DlhtWordSet<K, M>> for &DlhtWordSet<K, M> {
    type Output = DlhtWordSet<K, M>;

    fn bitand(self, other: &DlhtWordSet<K, M>) -> DlhtWordSet<K, M> {
        self.intersection(other).collect()
    }
}

/// Returns a new set of the keys that are in exactly one of the sets.
impl<K: Word, M: Threading> BitXor<&DlhtWordSet<K, M>> for &DlhtWordSet<K, M> {
    type Output = DlhtWordSet<K, M>;

    fn bitxor(self, other: &DlhtWordSet<K, M>) -> DlhtWordSet<K, M> {
        self.symmetric_difference(other).collect()
    }
}

/// Returns a new set of the keys that are in the first set, but not in the second.
impl<K: Word, M: Threading> Sub<&DlhtWordSet<K, M>> for &DlhtWordSet<K, M> {
    type Output = DlhtWordSet<K, M>;

    fn sub(self, other: &DlhtWordSet<K, M>) -> DlhtWordSet<K, M> {
        self.difference(other).collect()
    }
}
