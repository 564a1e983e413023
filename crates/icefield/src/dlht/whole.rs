//! Calls on a whole table: its size, its records, and the removal of all of them.

use std::ops::ControlFlow;

use super::api::{plain, to_usize};
use super::index::Entry;
use super::iter::{DlhtDrain, DlhtKeys, DlhtValues};
use super::mode::Threading;
use super::snapshot::Snapshot;
use super::{DlhtIter, DlhtTable};
use crate::Result;
use crate::outcome::{Computed, Cursor, Decision};
use crate::report::Stats;
use crate::table::Page;
use crate::types::Word;

/// Calls on the whole table.
///
/// # Panics
/// [`DlhtTable::reserve`], [`DlhtTable::shrink_to_fit`], [`DlhtTable::clear`], [`DlhtTable::drain`] and
/// [`DlhtTable::snapshot`] panic if the system has no memory. The calls of the same names with `try_` return an error
/// instead.
impl<K: Word, V: Word, M: Threading> DlhtTable<K, V, M> {
    /// Returns the number of records, in constant time. The number is exact if no other thread writes meanwhile.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// assert_eq!(table.len(), 1);
    /// ```
    #[inline]
    pub fn len(&self) -> usize {
        to_usize(self.core.len())
    }

    /// Returns whether the table is empty. The answer is exact if no other thread writes meanwhile.
    ///
    /// ```
    /// assert!(icefield::Dlht::<u64, u64>::new().is_empty());
    /// ```
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many records fit before the table must grow.
    ///
    /// ```
    /// assert!(icefield::Dlht::<u64, u64>::with_capacity(1000).capacity() >= 1000);
    /// ```
    pub fn capacity(&self) -> usize {
        to_usize(self.core.capacity())
    }

    /// Returns statistics of the table.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::with_capacity(100_000);
    /// (0..100_000).for_each(|key| table.put(key, key));
    /// let stats = table.stats();
    /// assert!(stats.len_estimate <= stats.capacity);
    /// assert!(stats.dram_bytes / stats.len_estimate < 64, "bytes of the index for each record");
    /// ```
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Returns an iterator over the records (§3.4.4). It is weakly consistent: it returns every key that is present
    /// during the whole iteration exactly once, also across a resize.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// assert_eq!(table.iter().collect::<Vec<_>>(), [(1, 10)]);
    /// ```
    pub fn iter(&self) -> DlhtIter<'_, K, V, M> {
        DlhtIter { table: self, page: Vec::new().into_iter(), next: Some(Cursor::START) }
    }

    /// Returns an iterator over the keys, as consistent as [`DlhtTable::iter`].
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10), (2, 20)]);
    /// assert_eq!(table.keys().sum::<u64>(), 3);
    /// ```
    pub fn keys(&self) -> DlhtKeys<'_, K, V, M> {
        DlhtKeys(self.iter())
    }

    /// Returns an iterator over the values, as consistent as [`DlhtTable::iter`].
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10), (2, 20)]);
    /// assert_eq!(table.values().sum::<u64>(), 30);
    /// ```
    pub fn values(&self) -> DlhtValues<'_, K, V, M> {
        DlhtValues(self.iter())
    }

    /// Calls `f` for each record of [`DlhtTable::iter`], until `f` returns `Break`. No lock is held while `f` runs.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// let mut sum = 0;
    /// table.for_each(|_, value| {
    ///     sum += value;
    ///     ControlFlow::Continue(())
    /// });
    /// assert_eq!(sum, 10);
    /// ```
    pub fn for_each(&self, mut f: impl FnMut(&K, &V) -> ControlFlow<()>) {
        for (key, value) in self.iter() {
            if f(&key, &value).is_break() {
                return;
            }
        }
    }

    /// Returns about `n` records from `cursor` on, like [`DlhtTable::iter`], and the cursor of the next page. Cursors
    /// survive every resize. If the table has changed its hash function since the cursor was returned, the page holds
    /// all remaining records.
    ///
    /// ```
    /// use icefield::Cursor;
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// let page = table.scan(Cursor::START, 100);
    /// assert_eq!((page.records, page.next), (vec![(1, 10)], None));
    /// ```
    pub fn scan(&self, cursor: Cursor, n: usize) -> Page<K, V> {
        plain(self.page(cursor, n))
    }

    /// Returns a strong snapshot: all records at one moment. Reads do not wait for it. Writers wait until all records
    /// have been moved to a new index; the old index is the snapshot.
    ///
    /// ```
    /// let table = icefield::Dlht::from_iter([(1_u64, 10_u64)]);
    /// let snapshot = table.snapshot();
    /// table.insert(2, 20);
    /// assert_eq!(snapshot.iter().count(), 1);
    /// ```
    pub fn snapshot(&self) -> Snapshot<K, V> {
        plain(self.try_snapshot())
    }

    /// Like [`DlhtTable::snapshot`], but returns an error if memory runs out.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the records are unchanged.
    ///
    /// ```
    /// let table = icefield::Dlht::from_iter([(1_u64, 10_u64)]);
    /// assert_eq!(table.try_snapshot()?.iter().count(), 1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_snapshot(&self) -> Result<Snapshot<K, V>> {
        Snapshot::take(&self.core, Entry::Snapshot)
    }

    /// Removes all records at one moment.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// table.clear();
    /// assert!(table.is_empty());
    /// ```
    pub fn clear(&self) {
        plain(self.try_clear());
    }

    /// Like [`DlhtTable::clear`], but returns an error if memory runs out.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the records are unchanged.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10)]);
    /// table.try_clear()?;
    /// assert!(table.is_empty());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_clear(&self) -> Result<()> {
        self.core.clear()
    }

    /// Removes all records at one moment, and returns an iterator over exactly these records: an insert of another
    /// thread is either among them or remains in the table. Reads do not wait. Writers wait until the index is replaced
    /// by an empty one of the same size, as for [`DlhtTable::clear`]. The iterator keeps the memory of the old index
    /// until it is dropped.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10), (2, 20)]);
    /// let drained = table.drain();
    /// table.insert(3, 30);
    /// assert_eq!(drained.map(|(_, value)| value).sum::<u64>(), 30);
    /// assert_eq!(table.len(), 1);
    /// ```
    pub fn drain(&self) -> DlhtDrain<K, V> {
        plain(self.try_drain())
    }

    /// Like [`DlhtTable::drain`], but returns an error if memory runs out.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the records are unchanged.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10)]);
    /// assert_eq!(table.try_drain()?.collect::<Vec<_>>(), [(1, 10)]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_drain(&self) -> Result<DlhtDrain<K, V>> {
        Ok(DlhtDrain::new(Snapshot::take(&self.core, Entry::Clear)?))
    }

    /// Makes room for `additional` more records. If that needs a larger index, returns when all records have been moved
    /// there.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.reserve(1000);
    /// assert!(table.capacity() >= 1000);
    /// ```
    pub fn reserve(&self, additional: usize) {
        plain(self.try_reserve(additional));
    }

    /// Like [`DlhtTable::reserve`], but returns an error if memory runs out.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the records are unchanged.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.try_reserve(1000)?;
    /// assert!(table.capacity() >= 1000);
    /// assert!(table.try_reserve(1 << 50).is_err());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_reserve(&self, additional: usize) -> Result<()> {
        self.core.reserve(self.core.len().saturating_add(additional as u64))
    }

    /// Moves all records to the smallest index that takes them.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::with_capacity(100_000);
    /// table.shrink_to_fit();
    /// assert!(table.capacity() < 1000);
    /// ```
    pub fn shrink_to_fit(&self) {
        plain(self.try_shrink_to_fit());
    }

    /// Like [`DlhtTable::shrink_to_fit`], but returns an error if memory runs out.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the records are unchanged.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::with_capacity(100_000);
    /// table.try_shrink_to_fit()?;
    /// assert!(table.capacity() < 1000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_shrink_to_fit(&self) -> Result<()> {
        self.core.shrink()
    }

    /// Removes the records for which `f` returns `false`, each by a separate operation; returns how many it removed.
    ///
    /// ```
    /// let table = icefield::Dlht::from_iter((0..10_u64).map(|key| (key, key)));
    /// assert_eq!(table.retain(|key, _| key % 2 == 0), 5);
    /// assert_eq!(table.len(), 5);
    /// ```
    pub fn retain(&self, mut f: impl FnMut(K, &V) -> bool) -> usize {
        let mut removed = 0;
        for (key, _) in self.iter() {
            let computed = self.compute(key, |value| match value {
                Some(value) if !f(key, value) => Decision::Remove,
                _ => Decision::Keep,
            });
            removed += usize::from(matches!(computed, Computed::Removed(_)));
        }
        removed
    }

    pub(super) fn page(&self, cursor: Cursor, n: usize) -> Result<Page<K, V>> {
        let mut words = Vec::new();
        let next = self.core.scan(cursor.0, n, &mut words)?;
        let typed = |(key, value)| Some((K::from_word(key)?, V::from_word(value)?));
        let records = words.into_iter().filter_map(typed).collect();
        Ok(Page { records, next: next.map(Cursor) })
    }
}
