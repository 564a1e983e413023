//! Iterators that move the records out of a map.

use std::fmt;
use std::iter::FusedIterator;

use super::memory::{RecordAllocator, free, give_back};
use super::record::Record;
use super::walk::Takeout;
use super::{DlhtBuildHasher, DlhtRecordMap, Global};
use crate::base::reclaim::for_each_despite_panics;
use crate::dlht::mode::{Shared, Threading};

/// An owning iterator over the records of a map, from its `IntoIterator`. Moves the records of all namespaces out of
/// the map, without copying them.
///
/// ```
/// let map = icefield::DlhtMap::from([(1, "one".to_owned())]);
/// let records: Vec<(i32, String)> = map.into_iter().collect();
/// assert_eq!(records, [(1, "one".to_owned())]);
/// ```
pub struct DlhtMapIntoIter<
    K,
    V,
    S = DlhtBuildHasher,
    A: RecordAllocator = Global,
    M: Threading = Shared,
> {
    map: DlhtRecordMap<K, V, S, A, M>,
    takeout: Takeout<K, V, A>,
    left: usize,
}

/// A draining iterator over the records of a map, from [`DlhtMap::drain`](crate::DlhtMap::drain).
///
/// ```
/// let mut map = icefield::DlhtMap::from([(1, 10)]);
/// assert_eq!(map.drain().collect::<Vec<_>>(), [(1, 10)]);
/// ```
pub struct DlhtMapDrain<
    'a,
    K,
    V,
    S = DlhtBuildHasher,
    A: RecordAllocator = Global,
    M: Threading = Shared,
> {
    map: &'a mut DlhtRecordMap<K, V, S, A, M>,
    takeout: Takeout<K, V, A>,
    left: usize,
}

impl<K, V, S, A: RecordAllocator, M: Threading> DlhtRecordMap<K, V, S, A, M> {
    /// Removes the records of all namespaces, and returns them by an iterator that moves each out of the map. Records
    /// that the iterator has not returned when it is dropped are dropped with it. The memory of the index is kept. If
    /// the iterator is forgotten, the map keeps the records that it has not reached, and a few others may leak.
    ///
    /// ```
    /// let mut map = icefield::DlhtMap::from([(1, "one".to_owned()), (2, "two".to_owned())]);
    /// let mut names: Vec<String> = map.drain().map(|(_, name)| name).collect();
    /// names.sort();
    /// assert_eq!(names, ["one", "two"]);
    /// assert!(map.is_empty());
    /// ```
    pub fn drain(&mut self) -> DlhtMapDrain<'_, K, V, S, A, M> {
        DlhtMapDrain { left: self.len(), takeout: Takeout::new(), map: self }
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> IntoIterator for DlhtRecordMap<K, V, S, A, M> {
    type Item = (K, V);
    type IntoIter = DlhtMapIntoIter<K, V, S, A, M>;

    /// Returns an iterator that moves each record out of the map. It returns the records of all namespaces, so a key
    /// may occur several times.
    fn into_iter(self) -> DlhtMapIntoIter<K, V, S, A, M> {
        DlhtMapIntoIter { left: self.len(), takeout: Takeout::new(), map: self }
    }
}

/// Takes out the next record.
///
/// # Safety
/// As for [`Takeout::next`].
unsafe fn take_next<K, V, S, A: RecordAllocator, M: Threading>(
    map: &DlhtRecordMap<K, V, S, A, M>,
    takeout: &mut Takeout<K, V, A>,
    left: &mut usize,
) -> Option<(K, V)> {
    // SAFETY: the caller's contract.
    let record = unsafe { takeout.next(map) }?;
    *left = left.saturating_sub(1);
    // SAFETY: the record is owned here; it is moved out once, and its memory freed to the allocator that it came from.
    let Record { key, value, .. } = unsafe {
        let parts = record.read();
        give_back(&map.allocator, record);
        parts
    };
    Some((key, value))
}

/// Drops the records that have not been returned. If a destructor panics, the others are dropped all the same.
///
/// # Safety
/// As for [`Takeout::next`].
unsafe fn drop_rest<K, V, S, A: RecordAllocator, M: Threading>(
    map: &DlhtRecordMap<K, V, S, A, M>,
    takeout: &mut Takeout<K, V, A>,
) {
    // SAFETY: the caller's contract.
    let rest = std::iter::from_fn(|| unsafe { takeout.next(map) });
    // SAFETY: taken out, so owned here; made with this allocator.
    for_each_despite_panics(rest, |record| unsafe { free(&map.allocator, record) });
}

impl<K, V, S, A: RecordAllocator, M: Threading> Iterator for DlhtMapIntoIter<K, V, S, A, M> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        // SAFETY: the iterator owns the map.
        unsafe { take_next(&self.map, &mut self.takeout, &mut self.left) }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> Iterator for DlhtMapDrain<'_, K, V, S, A, M> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        // SAFETY: the iterator borrows the map exclusively.
        unsafe { take_next(self.map, &mut self.takeout, &mut self.left) }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> Drop for DlhtMapIntoIter<K, V, S, A, M> {
    fn drop(&mut self) {
        // SAFETY: the iterator owns the map.
        unsafe { drop_rest(&self.map, &mut self.takeout) };
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> Drop for DlhtMapDrain<'_, K, V, S, A, M> {
    fn drop(&mut self) {
        // SAFETY: the iterator borrows the map exclusively.
        unsafe { drop_rest(self.map, &mut self.takeout) };
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> ExactSizeIterator
    for DlhtMapIntoIter<K, V, S, A, M>
{
}
impl<K, V, S, A: RecordAllocator, M: Threading> FusedIterator for DlhtMapIntoIter<K, V, S, A, M> {}
impl<K, V, S, A: RecordAllocator, M: Threading> ExactSizeIterator
    for DlhtMapDrain<'_, K, V, S, A, M>
{
}
impl<K, V, S, A: RecordAllocator, M: Threading> FusedIterator for DlhtMapDrain<'_, K, V, S, A, M> {}

impl<K, V, S, A: RecordAllocator, M: Threading> fmt::Debug for DlhtMapIntoIter<K, V, S, A, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtMapIntoIter").field("left", &self.left).finish_non_exhaustive()
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> fmt::Debug for DlhtMapDrain<'_, K, V, S, A, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtMapDrain").field("left", &self.left).finish_non_exhaustive()
    }
}
