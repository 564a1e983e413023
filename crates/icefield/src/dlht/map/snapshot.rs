//! Pages and snapshots of the records of a namespace.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::sync::Arc;

use super::api::both;
use super::memory::RecordAllocator;
use super::record::{Record, records_of};
use super::walk::{Words, words_before_move};
use super::{DlhtGuard, DlhtNamespace, DlhtRecordMap, Global};
use crate::Result;
use crate::dlht::api::plain;
use crate::dlht::index::{Entry, Index};
use crate::outcome::{Cursor, SCAN_PAGE};

/// One page of the records of a namespace, from [`DlhtMap::scan`](crate::DlhtMap::scan).
///
/// ```
/// let map = icefield::DlhtMap::from([(1, 10)]);
/// let guard = map.pin();
/// let page = map.scan(icefield::Cursor::START, 100, &guard);
/// assert_eq!((page.records, page.next), (vec![(&1, &10)], None));
/// ```
#[derive(Clone, Debug)]
pub struct DlhtMapPage<'g, K, V> {
    /// The records, in the order of their hashes.
    pub records: Vec<(&'g K, &'g V)>,
    /// The cursor of the next page; `None` after the last one.
    pub next: Option<Cursor>,
}

/// All records of a namespace at one moment, from [`DlhtMap::snapshot`](crate::DlhtMap::snapshot).
///
/// ```
/// let map = icefield::DlhtMap::from([(1, "one")]);
/// let guard = map.pin();
/// let before = map.snapshot(&guard);
/// map.put(1, "uno");
/// assert_eq!(before.iter().collect::<Vec<_>>(), [(&1, &"one")]);
/// ```
pub struct DlhtMapSnapshot<'g, K, V, A: RecordAllocator = Global> {
    index: Arc<Index>,
    namespace: u16,
    /// The guard, borrowed for `'g`, was taken before the index was frozen. So it protects all records of the index.
    records: PhantomData<&'g (K, V, A)>,
}

/// An iterator over the records of a [`DlhtMapSnapshot`].
///
/// ```
/// let map = icefield::DlhtMap::from([(1, 10), (2, 20)]);
/// let guard = map.pin();
/// assert_eq!(map.snapshot(&guard).iter().map(|(_, value)| value).sum::<i32>(), 30);
/// ```
pub struct DlhtMapSnapshotIter<'s, 'g, K, V, A: RecordAllocator = Global> {
    snapshot: &'s DlhtMapSnapshot<'g, K, V, A>,
    words: Words<'s>,
    page: std::vec::IntoIter<&'g Record<K, V>>,
}

both! {
    /// Returns about `n` records from `cursor` on, with the consistency of [`iter`](Self::iter), and the cursor of the
    /// next page. Cursors survive every resize, and do not depend on the guard. Fewer records are returned, or none, if
    /// the page contains records of other namespaces. If the index has changed its hash function since the cursor was
    /// returned, the page holds all remaining records.
    ///
    /// ```
    /// use icefield::{Cursor, DlhtMap};
    /// let map = DlhtMap::<_, _>::from_iter((0..1000).map(|key| (key, 1)));
    /// let (mut sum, mut next) = (0, Some(Cursor::START));
    /// while let Some(cursor) = next {
    ///     let guard = map.pin(); // A guard for each page holds back little memory.
    ///     let page = map.scan(cursor, 100, &guard);
    ///     sum += page.records.iter().map(|(_, value)| *value).sum::<i32>();
    ///     next = page.next;
    /// }
    /// assert_eq!(sum, 1000);
    /// ```
    pub fn scan<'g>(
        &self,
        cursor: Cursor,
        n: usize,
        guard: &'g DlhtGuard<'_>,
    ) -> DlhtMapPage<'g, K, V>
    where
        K: 'g,
        V: 'g,
    {
        let (map, number) = (self.map(), self.number());
        map.checked(guard);
        let mut words = Vec::new();
        let next = plain(map.core.scan(cursor.0, n, &mut words)).map(Cursor);
        let mut records = Vec::with_capacity(words.len());
        for (_, word) in words {
            // SAFETY: read under the guard, which lives for `'g`.
            let all = unsafe { records_of::<K, V, A>(word) };
            // SAFETY: as above; records never change.
            let all = all.map(|record| unsafe { &*record.as_ptr() });
            records.extend(all.filter(|record| record.namespace == number).map(Record::pair));
        }
        DlhtMapPage { records, next }
    }

    /// Returns a strong snapshot: all records at one moment. Reads do not wait for it. Writers wait until all entries
    /// have been moved to a new index; the old index is the snapshot. The guard keeps its records, and the snapshot
    /// keeps the old index.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// let guard = map.pin();
    /// let snapshot = map.snapshot(&guard);
    /// map.clear();
    /// assert_eq!((snapshot.iter().count(), map.len()), (1, 0));
    /// ```
    pub fn snapshot<'g>(&self, guard: &'g DlhtGuard<'_>) -> DlhtMapSnapshot<'g, K, V, A> {
        plain(self.try_snapshot(guard))
    }

    /// Like [`snapshot`](Self::snapshot), but returns an error if memory runs out.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the records are unchanged.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// assert_eq!(map.try_snapshot(&map.pin())?.iter().count(), 1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_snapshot<'g>(
        &self,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<DlhtMapSnapshot<'g, K, V, A>> {
        let map = self.map();
        map.checked(guard);
        let index = map.core.replace(Entry::Snapshot)?;
        Ok(DlhtMapSnapshot { index, namespace: self.number(), records: PhantomData })
    }
}

impl<'g, K, V, A: RecordAllocator> DlhtMapSnapshot<'g, K, V, A> {
    /// Returns an iterator over the records, in no particular order.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// let guard = map.pin();
    /// assert_eq!(map.snapshot(&guard).iter().collect::<Vec<_>>(), [(&1, &10)]);
    /// ```
    pub fn iter(&self) -> DlhtMapSnapshotIter<'_, 'g, K, V, A> {
        let words = words_before_move(&self.index);
        DlhtMapSnapshotIter { snapshot: self, words, page: Vec::new().into_iter() }
    }
}

impl<'s, 'g, K, V, A: RecordAllocator> IntoIterator for &'s DlhtMapSnapshot<'g, K, V, A> {
    type Item = (&'g K, &'g V);
    type IntoIter = DlhtMapSnapshotIter<'s, 'g, K, V, A>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'g, K, V, A: RecordAllocator> Iterator for DlhtMapSnapshotIter<'_, 'g, K, V, A> {
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<(&'g K, &'g V)> {
        loop {
            let wanted = |record: &&Record<K, V>| record.namespace == self.snapshot.namespace;
            if let Some(record) = self.page.find(wanted) {
                return Some(record.pair());
            }
            let mut page = Vec::new();
            for word in self.words.by_ref().take(SCAN_PAGE) {
                // SAFETY: the record was in the table when the index was frozen, and the guard is older.
                let records = unsafe { records_of::<K, V, A>(word) };
                // SAFETY: as above; records never change.
                page.extend(records.map(|record| unsafe { &*record.as_ptr() }));
            }
            if page.is_empty() {
                return None;
            }
            self.page = page.into_iter();
        }
    }
}

impl<K, V, A: RecordAllocator> FusedIterator for DlhtMapSnapshotIter<'_, '_, K, V, A> {}

impl<K: fmt::Debug, V: fmt::Debug, A: RecordAllocator> fmt::Debug for DlhtMapSnapshot<'_, K, V, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K, V, A: RecordAllocator> fmt::Debug for DlhtMapSnapshotIter<'_, '_, K, V, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtMapSnapshotIter").finish_non_exhaustive()
    }
}
