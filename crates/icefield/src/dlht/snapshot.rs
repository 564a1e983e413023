//! The strong snapshot (§3.4.4): all records at one moment.
//!
//! All records are copied to a new index of the same size, which writers may not enter before the last bin has been
//! moved. The old index then holds all records as of that moment, and does not change while the snapshot lives.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::core::Core;
use super::get::Picture;
use super::index::{Entry, Index};
use super::mode::Threading;
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
        SnapshotIter { snapshot: self, bin: 0, picture: Picture::default(), at: 0 }
    }

    pub(super) fn picture(&self, bin: u64) -> Picture {
        let line = self.index.bin(bin);
        // Every bin is frozen, so the records cannot change.
        self.index.read_all(line, Index::header(line))
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
    /// The next bin to copy.
    bin: u64,
    picture: Picture,
    /// The position of the next record in `picture`.
    at: usize,
}

impl<K: Word, V: Word> Iterator for SnapshotIter<'_, K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            while let Some(&(key, value)) = self.picture.records().get(self.at) {
                self.at += 1;
                if let (Some(key), Some(value)) = (K::from_word(key), V::from_word(value)) {
                    return Some((key, value));
                }
            }
            if self.bin >= self.snapshot.index.len() {
                return None;
            }
            if let Some(end) = self.snapshot.index.untouched_until(self.bin) {
                self.bin = end;
                continue;
            }
            (self.picture, self.at) = (self.snapshot.picture(self.bin), 0);
            self.bin += 1;
        }
    }
}

impl<K: Word, V: Word> fmt::Debug for SnapshotIter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotIter").field("bin", &self.bin).finish_non_exhaustive()
    }
}
