//! Iterators over the records of a table.

use std::fmt;
use std::iter::FusedIterator;

use super::mode::{Shared, Threading};
use super::snapshot::Snapshot;
use super::walk::Walk;
use super::{DlhtIter, DlhtTable};
use crate::outcome::{Cursor, SCAN_PAGE};
use crate::types::Word;

impl<K: Word, V: Word, M: Threading> Iterator for DlhtIter<'_, K, V, M> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            if let Some(record) = self.page.next() {
                return Some(record);
            }
            let page = self.table.scan(self.next.take()?, SCAN_PAGE);
            (self.page, self.next) = (page.records.into_iter(), page.next);
        }
    }

    /// The bounds concern the records that have been read ahead: how many follow depends on other threads.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let read = self.page.len();
        (read, self.next.is_none().then_some(read))
    }
}

impl<K: Word, V: Word, M: Threading> FusedIterator for DlhtIter<'_, K, V, M> {}

impl<K, V, M: Threading> fmt::Debug for DlhtIter<'_, K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtIter").field("next", &self.next).finish_non_exhaustive()
    }
}

/// An iterator over the keys of a table, from [`DlhtTable::keys`].
///
/// ```
/// let table = icefield::Dlht::<u64, u64>::from([(1, 10), (2, 20)]);
/// let mut keys: Vec<u64> = table.keys().collect();
/// keys.sort();
/// assert_eq!(keys, [1, 2]);
/// ```
pub struct DlhtKeys<'a, K, V, M: Threading = Shared>(pub(super) DlhtIter<'a, K, V, M>);

impl<K: Word, V: Word, M: Threading> Iterator for DlhtKeys<'_, K, V, M> {
    type Item = K;

    fn next(&mut self) -> Option<K> {
        self.0.next().map(|(key, _)| key)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<K: Word, V: Word, M: Threading> FusedIterator for DlhtKeys<'_, K, V, M> {}

impl<K, V, M: Threading> fmt::Debug for DlhtKeys<'_, K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DlhtKeys").field(&self.0).finish()
    }
}

/// An iterator over the values of a table, from [`DlhtTable::values`].
///
/// ```
/// let table = icefield::Dlht::<u64, u64>::from([(1, 10), (2, 20)]);
/// assert_eq!(table.values().max(), Some(20));
/// ```
pub struct DlhtValues<'a, K, V, M: Threading = Shared>(pub(super) DlhtIter<'a, K, V, M>);

impl<K: Word, V: Word, M: Threading> Iterator for DlhtValues<'_, K, V, M> {
    type Item = V;

    fn next(&mut self) -> Option<V> {
        self.0.next().map(|(_, value)| value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<K: Word, V: Word, M: Threading> FusedIterator for DlhtValues<'_, K, V, M> {}

impl<K, V, M: Threading> fmt::Debug for DlhtValues<'_, K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DlhtValues").field(&self.0).finish()
    }
}

/// An iterator that owns its table, from `into_iter`. It reads one page at a time, and frees the table when dropped.
///
/// ```
/// let table = icefield::Dlht::<u64, u64>::from([(1, 10), (2, 20)]);
/// let records = table.into_iter();
/// assert_eq!(records.size_hint(), (2, Some(2)));
/// assert_eq!(records.map(|(_, value)| value).sum::<u64>(), 30);
/// ```
pub struct DlhtIntoIter<K, V, M: Threading = Shared> {
    table: DlhtTable<K, V, M>,
    page: std::vec::IntoIter<(K, V)>,
    next: Option<Cursor>,
    /// The number of records not yet returned. No other thread has the table, so the table's count was exact.
    left: usize,
}

impl<K: Word, V: Word, M: Threading> IntoIterator for DlhtTable<K, V, M> {
    type Item = (K, V);
    type IntoIter = DlhtIntoIter<K, V, M>;

    fn into_iter(self) -> Self::IntoIter {
        let left = self.len();
        let (page, next) = (Vec::new().into_iter(), Some(Cursor::START));
        DlhtIntoIter { table: self, page, next, left }
    }
}

impl<K: Word, V: Word, M: Threading> DlhtTable<K, V, M> {
    /// Returns an iterator over the keys that owns the table.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10), (2, 20)]);
    /// assert_eq!(table.into_keys().sum::<u64>(), 3);
    /// ```
    pub fn into_keys(self) -> impl ExactSizeIterator<Item = K> + FusedIterator {
        self.into_iter().map(|(key, _)| key)
    }

    /// Returns an iterator over the values that owns the table.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from([(1, 10), (2, 20)]);
    /// assert_eq!(table.into_values().sum::<u64>(), 30);
    /// ```
    pub fn into_values(self) -> impl ExactSizeIterator<Item = V> + FusedIterator {
        self.into_iter().map(|(_, value)| value)
    }
}

impl<K: Word, V: Word, M: Threading> Iterator for DlhtIntoIter<K, V, M> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            if let Some(record) = self.page.next() {
                self.left = self.left.saturating_sub(1);
                return Some(record);
            }
            let page = self.table.scan(self.next.take()?, SCAN_PAGE);
            (self.page, self.next) = (page.records.into_iter(), page.next);
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K: Word, V: Word, M: Threading> ExactSizeIterator for DlhtIntoIter<K, V, M> {}
impl<K: Word, V: Word, M: Threading> FusedIterator for DlhtIntoIter<K, V, M> {}

impl<K, V, M: Threading> fmt::Debug for DlhtIntoIter<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtIntoIter").field("left", &self.left).finish_non_exhaustive()
    }
}

/// An iterator over the records that [`DlhtTable::drain`] has removed. Records that it has not returned when it is
/// dropped are dropped with it: they stay removed.
///
/// ```
/// let table = icefield::Dlht::<u64, u64>::from([(1, 10), (2, 20)]);
/// let mut drained = table.drain();
/// assert!(table.is_empty() && drained.next().is_some());
/// drop(drained);
/// assert!(table.is_empty());
/// ```
pub struct DlhtDrain<K, V> {
    /// The replaced index. Its bins are frozen.
    removed: Snapshot<K, V>,
    walk: Walk,
}

impl<K: Word, V: Word> DlhtDrain<K, V> {
    pub(super) fn new(removed: Snapshot<K, V>) -> Self {
        Self { walk: removed.walk(), removed }
    }
}

impl<K: Word, V: Word> Iterator for DlhtDrain<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.removed.next(&mut self.walk)
    }
}

impl<K: Word, V: Word> FusedIterator for DlhtDrain<K, V> {}

impl<K, V> fmt::Debug for DlhtDrain<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtDrain").finish_non_exhaustive()
    }
}
