//! Parallel iteration over tables.

use std::fmt;

use rayon::iter::plumbing::UnindexedConsumer;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::scan_range::drive;
use crate::dlht::Dlht;
use crate::types::Word;

/// Returns the record of two words.
fn typed<K: Word, V: Word>(key: u64, value: u64) -> Option<(K, V)> {
    Some((K::from_word(key)?, V::from_word(value)?))
}

/// A parallel iterator over the records of a table, from `par_iter`. It is weakly consistent: it returns every key that
/// is present during the whole iteration exactly once, also across a resize. No lock is held while user code runs.
///
/// ```
/// use rayon::prelude::*;
/// let table: icefield::Dlht<u64, u64> = (0..10_000).map(|key| (key, 2 * key)).collect();
/// assert_eq!(table.par_iter().map(|(key, value)| value - key).sum::<u64>(), 49_995_000);
/// ```
pub struct DlhtParIter<'a, K, V>(&'a Dlht<K, V>);

impl<'a, K: Word, V: Word> IntoParallelIterator for &'a Dlht<K, V> {
    type Item = (K, V);
    type Iter = DlhtParIter<'a, K, V>;

    fn into_par_iter(self) -> Self::Iter {
        DlhtParIter(self)
    }
}

impl<K: Word, V: Word> ParallelIterator for DlhtParIter<'_, K, V> {
    type Item = (K, V);

    fn drive_unindexed<C: UnindexedConsumer<(K, V)>>(self, consumer: C) -> C::Result {
        drive(&self.0.core, typed, consumer)
    }
}

impl<K, V> Clone for DlhtParIter<'_, K, V> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<K, V> fmt::Debug for DlhtParIter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtParIter").finish_non_exhaustive()
    }
}

/// A parallel iterator that owns its table, from `into_par_iter`.
///
/// ```
/// use rayon::prelude::*;
/// let table = icefield::Dlht::<u64, u64>::from([(1, 10), (2, 20)]);
/// assert_eq!(table.into_par_iter().map(|(_, value)| value).max(), Some(20));
/// ```
pub struct DlhtIntoParIter<K, V>(Dlht<K, V>);

impl<K: Word, V: Word> IntoParallelIterator for Dlht<K, V> {
    type Item = (K, V);
    type Iter = DlhtIntoParIter<K, V>;

    fn into_par_iter(self) -> Self::Iter {
        DlhtIntoParIter(self)
    }
}

impl<K: Word, V: Word> ParallelIterator for DlhtIntoParIter<K, V> {
    type Item = (K, V);

    fn drive_unindexed<C: UnindexedConsumer<(K, V)>>(self, consumer: C) -> C::Result {
        drive(&self.0.core, typed, consumer)
    }
}

impl<K, V> fmt::Debug for DlhtIntoParIter<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtIntoParIter").finish_non_exhaustive()
    }
}
