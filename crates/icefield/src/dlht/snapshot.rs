//! The strong snapshot (§3.4.4): all records at one moment.
//!
//! All records are copied to a new index of the same size, which writers may not enter before the last bin has been
//! moved. The old index then holds all records as of that moment, and does not change while the snapshot lives.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::core::Core;
use super::index::{Entry, Index};
use super::mode::Threading;
use super::walk::Walk;
use crate::Result;
use crate::types::Word;

/// All records of a table at one moment, from [`super::DlhtTable::snapshot`].
///
/// ```
/// let table = icefield::Dlht::<u64, u64>::from_iter([(1, 10)]);
/// let before = table.snapshot();
/// table.insert(1, 11);
/// assert_eq!(before.iter().collect::<Vec<_>>(), [(1, 10)]);
/// ```
pub struct Snapshot<K, V> {
    pub(super) index: Arc<Index>,
    types: PhantomData<fn(K, V)>,
}

impl<K: Word, V: Word> Snapshot<K, V> {
    pub(super) fn take<M: Threading>(core: &Core<M>, entry: Entry) -> Result<Self> {
        Ok(Self { index: core.replace(entry)?, types: PhantomData })
    }

    /// Returns an iterator over the records, in no particular order.
    ///
    /// ```
    /// let table = icefield::Dlht::from_iter([(1_u64, 10_u64)]);
    /// let snapshot = table.snapshot();
    /// table.insert(1, 11);
    /// assert_eq!(snapshot.iter().collect::<Vec<_>>(), [(1, 10)]);
    /// ```
    pub fn iter(&self) -> SnapshotIter<'_, K, V> {
        SnapshotIter { snapshot: self, walk: self.walk() }
    }

    pub(super) fn walk(&self) -> Walk {
        Walk::before_move(&self.index)
    }

    /// Returns the next record of a walk.
    pub(super) fn next(&self, walk: &mut Walk) -> Option<(K, V)> {
        loop {
            let (key, value) = walk.next(&self.index)?;
            if let (Some(key), Some(value)) = (K::from_word(key), V::from_word(value)) {
                return Some((key, value));
            }
        }
    }
}

impl<K: Word, V: Word> fmt::Debug for Snapshot<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'a, K: Word, V: Word> IntoIterator for &'a Snapshot<K, V> {
    type Item = (K, V);
    type IntoIter = SnapshotIter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// An iterator over the records of a [`Snapshot`].
///
/// ```
/// let snapshot = icefield::Dlht::<u64, u64>::from_iter([(1, 10), (2, 20)]).snapshot();
/// assert_eq!(snapshot.iter().map(|(_, value)| value).sum::<u64>(), 30);
/// ```
pub struct SnapshotIter<'a, K, V> {
    snapshot: &'a Snapshot<K, V>,
    walk: Walk,
}

impl<K: Word, V: Word> Iterator for SnapshotIter<'_, K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.snapshot.next(&mut self.walk)
    }
}

impl<K: Word, V: Word> fmt::Debug for SnapshotIter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotIter").finish_non_exhaustive()
    }
}
