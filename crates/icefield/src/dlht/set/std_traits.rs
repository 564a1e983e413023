//! The traits of the standard library's sets.

use std::fmt;

use super::DlhtWordSet;
use crate::Result;
use crate::dlht::api::plain;
use crate::dlht::mode::Threading;
use crate::outcome::SCAN_PAGE;
use crate::types::Word;

impl<K: Word, M: Threading> Default for DlhtWordSet<K, M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Word, M: Threading> fmt::Debug for DlhtWordSet<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Copies the keys, which other threads may change meanwhile: the copy is as consistent as [`DlhtWordSet::iter`].
///
/// # Panics
/// [`DlhtWordSet::try_clone`] returns an error where `clone` panics: if the system has no memory.
impl<K: Word, M: Threading> Clone for DlhtWordSet<K, M> {
    fn clone(&self) -> Self {
        plain(self.try_clone())
    }
}

impl<K: Word, M: Threading> DlhtWordSet<K, M> {
    /// Like `clone`: copies the keys to a new set with the same options, but returns an error if memory runs out. The
    /// size of its index is that of the copy of a table ([`DlhtTable::try_clone`](crate::DlhtTable::try_clone)). Shadow
    /// inserts are not copied.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory).
    ///
    /// ```
    /// let set = icefield::DlhtSet::from([1_u32]);
    /// let copy = set.try_clone()?;
    /// set.insert(2);
    /// assert_eq!(copy.len(), 1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self { table: self.table.try_clone()? })
    }
}

/// Compares the keys. The result is exact if no other thread changes a set meanwhile.
impl<K: Word, M: Threading> PartialEq for DlhtWordSet<K, M> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.is_subset(other)
    }
}

impl<K: Word, M: Threading> Eq for DlhtWordSet<K, M> {}

impl<K: Word, M: Threading, const N: usize> From<[K; N]> for DlhtWordSet<K, M> {
    fn from(keys: [K; N]) -> Self {
        Self::from_iter(keys)
    }
}

impl<K: Word, M: Threading> FromIterator<K> for DlhtWordSet<K, M> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let keys = keys.into_iter();
        let mut set = Self::with_capacity(keys.size_hint().0);
        set.extend(keys);
        set
    }
}

impl<K: Word, M: Threading> Extend<K> for DlhtWordSet<K, M> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        let mut keys = keys.into_iter();
        loop {
            let some: Vec<_> = keys.by_ref().take(SCAN_PAGE).collect();
            if some.is_empty() {
                return;
            }
            self.insert_batch(&some, &mut vec![false; some.len()]);
        }
    }
}

impl<'r, K: Word, M: Threading> Extend<&'r K> for DlhtWordSet<K, M> {
    fn extend<I: IntoIterator<Item = &'r K>>(&mut self, keys: I) {
        self.extend(keys.into_iter().copied());
    }
}
