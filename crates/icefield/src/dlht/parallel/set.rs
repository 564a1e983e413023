//! Parallel iteration over sets.

use std::fmt;

use rayon::iter::plumbing::UnindexedConsumer;
use rayon::iter::{IntoParallelIterator, IntoParallelRefIterator, ParallelIterator};

use crate::dlht::DlhtSet;
use crate::types::Word;

fn drive<K: Word, C: UnindexedConsumer<K>>(set: &DlhtSet<K>, consumer: C) -> C::Result {
    set.table.par_iter().map(|(key, _)| key).drive_unindexed(consumer)
}

/// A parallel iterator over the keys of a set, from `par_iter`. It is weakly consistent: it returns every key that
/// is present during the whole iteration exactly once.
///
/// ```
/// use rayon::prelude::*;
/// let set: icefield::DlhtSet<u64> = (0..10_000).collect();
/// assert_eq!(set.par_iter().filter(|key| key % 2 == 0).count(), 5000);
/// ```
pub struct DlhtSetParIter<'a, K>(&'a DlhtSet<K>);

impl<'a, K: Word> IntoParallelIterator for &'a DlhtSet<K> {
    type Item = K;
    type Iter = DlhtSetParIter<'a, K>;

    fn into_par_iter(self) -> Self::Iter {
        DlhtSetParIter(self)
    }
}

impl<K: Word> ParallelIterator for DlhtSetParIter<'_, K> {
    type Item = K;

    fn drive_unindexed<C: UnindexedConsumer<K>>(self, consumer: C) -> C::Result {
        drive(self.0, consumer)
    }
}

impl<K> Clone for DlhtSetParIter<'_, K> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<K> fmt::Debug for DlhtSetParIter<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtSetParIter").finish_non_exhaustive()
    }
}

/// A parallel iterator that owns its set, from `into_par_iter`.
///
/// ```
/// use rayon::prelude::*;
/// let set = icefield::DlhtSet::<u64>::from([1, 2]);
/// assert_eq!(set.into_par_iter().sum::<u64>(), 3);
/// ```
pub struct DlhtSetIntoParIter<K>(DlhtSet<K>);

impl<K: Word> IntoParallelIterator for DlhtSet<K> {
    type Item = K;
    type Iter = DlhtSetIntoParIter<K>;

    fn into_par_iter(self) -> Self::Iter {
        DlhtSetIntoParIter(self)
    }
}

impl<K: Word> ParallelIterator for DlhtSetIntoParIter<K> {
    type Item = K;

    fn drive_unindexed<C: UnindexedConsumer<K>>(self, consumer: C) -> C::Result {
        drive(&self.0, consumer)
    }
}

impl<K> fmt::Debug for DlhtSetIntoParIter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtSetIntoParIter").finish_non_exhaustive()
    }
}
