//! Calls on a whole set: its size, its keys, and the removal of all of them.

use std::ops::ControlFlow;

use super::{DlhtSetDrain, DlhtSetIter, DlhtSetPage, DlhtSetSnapshot, DlhtWordSet};
use crate::Result;
use crate::dlht::api::plain;
use crate::dlht::mode::Threading;
use crate::outcome::Cursor;
use crate::report::Stats;
use crate::table::Collection;
use crate::types::Word;

impl<K: Word, M: Threading> Collection for DlhtWordSet<K, M> {
    fn len(&self) -> Result<u64> {
        Ok(self.table.core.len())
    }
    fn capacity(&self) -> u64 {
        self.table.core.capacity()
    }
    fn stats(&self) -> Stats {
        self.stats()
    }
    fn clear(&self) -> Result<()> {
        self.try_clear()
    }
    fn reserve(&self, additional: u64) -> Result<()> {
        self.table.core.reserve(self.table.core.len().saturating_add(additional))
    }
    fn shrink_to_fit(&self) -> Result<()> {
        self.try_shrink_to_fit()
    }
}

/// Calls on the whole set.
///
/// # Panics
/// [`DlhtWordSet::reserve`], [`DlhtWordSet::shrink_to_fit`], [`DlhtWordSet::clear`], [`DlhtWordSet::drain`] and
/// [`DlhtWordSet::snapshot`] panic if the system has no memory. The calls of the same names with `try_` return an error
/// instead.
impl<K: Word, M: Threading> DlhtWordSet<K, M> {
    /// Returns the number of keys, in constant time. The number is exact if no other thread changes the set meanwhile.
    ///
    /// ```
    /// assert_eq!(icefield::DlhtSet::from_iter([1_u32, 2]).len(), 2);
    /// ```
    #[inline]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether the set is empty. The answer is exact if no other thread changes the set meanwhile.
    ///
    /// ```
    /// assert!(icefield::DlhtSet::<u32>::new().is_empty());
    /// ```
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns how many keys fit before the set must grow.
    ///
    /// ```
    /// assert!(icefield::DlhtSet::<u32>::with_capacity(1000).capacity() >= 1000);
    /// ```
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Returns statistics of the set.
    ///
    /// ```
    /// let set: icefield::DlhtSet<u32> = (0..1000).collect();
    /// assert!(set.stats().dram_bytes > 8 * 1000);
    /// ```
    pub fn stats(&self) -> Stats {
        self.table.stats()
    }

    /// Makes room for `additional` more keys. If that needs a larger index, returns when all keys have been moved
    /// there.
    ///
    /// ```
    /// let set = icefield::DlhtSet::<u32>::new();
    /// set.reserve(1000);
    /// assert!(set.capacity() >= 1000);
    /// ```
    pub fn reserve(&self, additional: usize) {
        self.table.reserve(additional);
    }

    /// Like [`DlhtWordSet::reserve`], but returns an error if memory runs out.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the keys are unchanged.
    ///
    /// ```
    /// let set = icefield::DlhtSet::<u32>::new();
    /// set.try_reserve(1000)?;
    /// assert!(set.try_reserve(1 << 50).is_err());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_reserve(&self, additional: usize) -> Result<()> {
        self.table.try_reserve(additional)
    }

    /// Moves all keys to the smallest index that takes them.
    ///
    /// ```
    /// let set = icefield::DlhtSet::<u32>::with_capacity(100_000);
    /// set.shrink_to_fit();
    /// assert!(set.capacity() < 1000);
    /// ```
    pub fn shrink_to_fit(&self) {
        self.table.shrink_to_fit();
    }

    /// Like [`DlhtWordSet::shrink_to_fit`], but returns an error if memory runs out.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the keys are unchanged.
    ///
    /// ```
    /// let set = icefield::DlhtSet::<u32>::with_capacity(100_000);
    /// set.try_shrink_to_fit()?;
    /// assert!(set.capacity() < 1000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_shrink_to_fit(&self) -> Result<()> {
        self.table.try_shrink_to_fit()
    }

    /// Removes all keys in one atomic step.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from_iter([1_u32]);
    /// set.clear();
    /// assert!(set.is_empty());
    /// ```
    pub fn clear(&self) {
        self.table.clear();
    }

    /// Like [`DlhtWordSet::clear`], but returns an error if memory runs out.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the keys are unchanged.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from([1_u32]);
    /// set.try_clear()?;
    /// assert!(set.is_empty());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_clear(&self) -> Result<()> {
        self.table.try_clear()
    }

    /// Removes all keys at one moment, and returns an iterator over exactly these keys: a key that another thread
    /// inserts is either among them or remains in the set. Waiting and memory are those of
    /// [`DlhtTable::drain`](crate::DlhtTable::drain).
    ///
    /// ```
    /// let set = icefield::DlhtSet::<u64>::from([1, 2]);
    /// let drained = set.drain();
    /// set.insert(3);
    /// assert_eq!((drained.sum::<u64>(), set.len()), (3, 1));
    /// ```
    pub fn drain(&self) -> DlhtSetDrain<K> {
        DlhtSetDrain(self.table.drain())
    }

    /// Like [`DlhtWordSet::drain`], but returns an error if memory runs out.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the keys are unchanged.
    ///
    /// ```
    /// assert_eq!(icefield::DlhtSet::from([1_u32]).try_drain()?.collect::<Vec<_>>(), [1]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_drain(&self) -> Result<DlhtSetDrain<K>> {
        self.table.try_drain().map(DlhtSetDrain)
    }

    /// Removes the keys for which `f` returns `false`, each by a separate operation; returns how many it removed. No
    /// lock is held while `f` runs.
    ///
    /// ```
    /// let set: icefield::DlhtSet<u32> = (0..10).collect();
    /// assert_eq!(set.retain(|key| key % 2 == 0), 5);
    /// assert_eq!(set.len(), 5);
    /// ```
    pub fn retain(&self, mut f: impl FnMut(K) -> bool) -> usize {
        self.iter().filter(|key| !f(*key) && self.remove(*key)).count()
    }

    /// Returns an iterator over the keys. It is weakly consistent: it returns every key that is present during the whole
    /// iteration exactly once, also across a resize.
    ///
    /// ```
    /// assert_eq!(icefield::DlhtSet::from_iter([1_u32]).iter().collect::<Vec<_>>(), [1]);
    /// ```
    pub fn iter(&self) -> DlhtSetIter<'_, K, M> {
        DlhtSetIter(self.table.keys())
    }

    /// Calls `f` for each key of [`DlhtWordSet::iter`], until `f` returns `Break`. No lock is held while `f` runs.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// let mut sum = 0;
    /// icefield::DlhtSet::<u64>::from([1, 2]).for_each(|key| {
    ///     sum += key;
    ///     ControlFlow::Continue(())
    /// });
    /// assert_eq!(sum, 3);
    /// ```
    pub fn for_each(&self, f: impl FnMut(K) -> ControlFlow<()>) {
        let _ = self.iter().try_for_each(f);
    }

    /// Returns about `n` keys from `cursor` on, like [`DlhtWordSet::iter`], and the cursor of the next page. Cursors
    /// survive every resize. If the set has changed its hash function since the cursor was returned, the page holds all
    /// remaining keys.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from([1_u32]);
    /// let page = set.scan(icefield::Cursor::START, 100);
    /// assert_eq!((page.keys, page.next), (vec![1], None));
    /// ```
    pub fn scan(&self, cursor: Cursor, n: usize) -> DlhtSetPage<K> {
        let page = self.table.scan(cursor, n);
        let keys = page.records.into_iter().map(|(key, _)| key).collect();
        DlhtSetPage { keys, next: page.next }
    }

    /// Returns a strong snapshot: all keys at one moment. Reads do not wait for it. Writers wait until all keys have
    /// been moved to a new index; the old index is the snapshot.
    ///
    /// ```
    /// let set = icefield::DlhtSet::from([1_u32]);
    /// let snapshot = set.snapshot();
    /// set.insert(2);
    /// assert_eq!(snapshot.iter().collect::<Vec<_>>(), [1]);
    /// ```
    pub fn snapshot(&self) -> DlhtSetSnapshot<K> {
        plain(self.try_snapshot())
    }

    /// Like [`DlhtWordSet::snapshot`], but returns an error if memory runs out.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the keys are unchanged.
    ///
    /// ```
    /// assert_eq!(icefield::DlhtSet::from([1_u32]).try_snapshot()?.iter().count(), 1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_snapshot(&self) -> Result<DlhtSetSnapshot<K>> {
        self.table.try_snapshot().map(DlhtSetSnapshot)
    }
}
