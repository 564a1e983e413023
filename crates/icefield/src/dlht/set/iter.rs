//! Iterators over the keys of a set, its pages and its snapshots.

use std::fmt;
use std::iter::FusedIterator;

use super::{DlhtWordSet, NoValue};
use crate::dlht::iter::{DlhtDrain, DlhtIntoIter, DlhtKeys};
use crate::dlht::mode::{Shared, Threading};
use crate::dlht::snapshot::{Snapshot, SnapshotIter};
use crate::outcome::Cursor;
use crate::types::Word;

/// An iterator over the keys of a set, from [`DlhtWordSet::iter`]. It reads ahead one page at a time.
///
/// ```
/// let set = icefield::DlhtSet::<u64>::from_iter([1, 2]);
/// assert_eq!(set.iter().sum::<u64>(), 3);
/// ```
pub struct DlhtSetIter<'a, K, M: Threading = Shared>(pub(super) DlhtKeys<'a, K, NoValue, M>);

impl<K: Word, M: Threading> Iterator for DlhtSetIter<'_, K, M> {
    type Item = K;

    fn next(&mut self) -> Option<K> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<K: Word, M: Threading> FusedIterator for DlhtSetIter<'_, K, M> {}

impl<K, M: Threading> fmt::Debug for DlhtSetIter<'_, K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DlhtSetIter").field(&self.0).finish()
    }
}

impl<'a, K: Word, M: Threading> IntoIterator for &'a DlhtWordSet<K, M> {
    type Item = K;
    type IntoIter = DlhtSetIter<'a, K, M>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// An iterator that owns its set, from `into_iter`. It reads one page at a time, and frees the set when dropped.
///
/// ```
/// let set = icefield::DlhtSet::<u64>::from([1, 2]);
/// let keys = set.into_iter();
/// assert_eq!(keys.len(), 2);
/// assert_eq!(keys.sum::<u64>(), 3);
/// ```
pub struct DlhtSetIntoIter<K, M: Threading = Shared>(DlhtIntoIter<K, NoValue, M>);

impl<K: Word, M: Threading> IntoIterator for DlhtWordSet<K, M> {
    type Item = K;
    type IntoIter = DlhtSetIntoIter<K, M>;

    fn into_iter(self) -> Self::IntoIter {
        DlhtSetIntoIter(self.table.into_iter())
    }
}

impl<K: Word, M: Threading> Iterator for DlhtSetIntoIter<K, M> {
    type Item = K;

    fn next(&mut self) -> Option<K> {
        self.0.next().map(|(key, NoValue)| key)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<K: Word, M: Threading> ExactSizeIterator for DlhtSetIntoIter<K, M> {}
impl<K: Word, M: Threading> FusedIterator for DlhtSetIntoIter<K, M> {}

impl<K, M: Threading> fmt::Debug for DlhtSetIntoIter<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DlhtSetIntoIter").field(&self.0).finish()
    }
}

/// An iterator over the keys that [`DlhtWordSet::drain`] has removed. Keys that it has not returned when it is dropped
/// stay removed.
///
/// ```
/// let set = icefield::DlhtSet::<u64>::from([1, 2]);
/// assert_eq!(set.drain().sum::<u64>(), 3);
/// assert!(set.is_empty());
/// ```
pub struct DlhtSetDrain<K>(pub(super) DlhtDrain<K, NoValue>);

impl<K: Word> Iterator for DlhtSetDrain<K> {
    type Item = K;

    fn next(&mut self) -> Option<K> {
        self.0.next().map(|(key, NoValue)| key)
    }
}

impl<K: Word> FusedIterator for DlhtSetDrain<K> {}

impl<K> fmt::Debug for DlhtSetDrain<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DlhtSetDrain").field(&self.0).finish()
    }
}

/// One page of keys, from [`DlhtWordSet::scan`].
///
/// ```
/// let set: icefield::DlhtSet<u32> = (0..1000).collect();
/// let (mut seen, mut next) = (0, Some(icefield::Cursor::START));
/// while let Some(cursor) = next {
///     let page = set.scan(cursor, 100);
///     seen += page.keys.len();
///     next = page.next;
/// }
/// assert_eq!(seen, 1000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DlhtSetPage<K> {
    /// The keys, in the order of the set's structure.
    pub keys: Vec<K>,
    /// The cursor of the next page; `None` after the last one.
    pub next: Option<Cursor>,
}

/// All keys of a set at one moment, from [`DlhtWordSet::snapshot`].
///
/// ```
/// let set = icefield::DlhtSet::from([1_u32]);
/// let before = set.snapshot();
/// set.remove(1);
/// assert_eq!(before.iter().collect::<Vec<_>>(), [1]);
/// ```
pub struct DlhtSetSnapshot<K>(pub(super) Snapshot<K, NoValue>);

impl<K: Word> DlhtSetSnapshot<K> {
    /// Returns an iterator over the keys, in no particular order.
    ///
    /// ```
    /// let snapshot = icefield::DlhtSet::<u64>::from([1, 2]).snapshot();
    /// assert_eq!(snapshot.iter().sum::<u64>(), 3);
    /// ```
    pub fn iter(&self) -> DlhtSetSnapshotIter<'_, K> {
        DlhtSetSnapshotIter(self.0.iter())
    }
}

impl<K: Word> fmt::Debug for DlhtSetSnapshot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<'a, K: Word> IntoIterator for &'a DlhtSetSnapshot<K> {
    type Item = K;
    type IntoIter = DlhtSetSnapshotIter<'a, K>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// An iterator over the keys of a [`DlhtSetSnapshot`].
///
/// ```
/// let snapshot = icefield::DlhtSet::<u64>::from([1, 2]).snapshot();
/// assert_eq!(snapshot.into_iter().max(), Some(2));
/// ```
pub struct DlhtSetSnapshotIter<'a, K>(SnapshotIter<'a, K, NoValue>);

impl<K: Word> Iterator for DlhtSetSnapshotIter<'_, K> {
    type Item = K;

    fn next(&mut self) -> Option<K> {
        self.0.next().map(|(key, NoValue)| key)
    }
}

impl<K: Word> fmt::Debug for DlhtSetSnapshotIter<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DlhtSetSnapshotIter").field(&self.0).finish()
    }
}
