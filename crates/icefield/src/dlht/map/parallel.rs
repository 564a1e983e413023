//! The feature `rayon`: parallel iteration over maps of records, and filling in parallel.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use rayon::iter::plumbing::UnindexedConsumer;
use rayon::iter::{
    FromParallelIterator, IntoParallelIterator, ParallelBridge, ParallelExtend, ParallelIterator,
};

use super::memory::RecordAllocator;
use super::record::{Record, records_of};
use super::write::When;
use super::{DlhtBuildHasher, DlhtGuard, DlhtMap, DlhtNamespace, Global};
use crate::dlht::api::plain;
use crate::dlht::parallel::{drive, in_pages};

/// A parallel iterator over the records of a namespace, from [`DlhtMap::par_iter`](crate::DlhtMap::par_iter).
///
/// ```
/// use rayon::prelude::*;
/// let map: icefield::DlhtMap<u32, String> = (0..10_000).map(|key| (key, key.to_string())).collect();
/// let guard = map.pin();
/// assert_eq!(map.par_iter(&guard).map(|(_, text)| text.len()).sum::<usize>(), 38_890);
/// ```
pub struct DlhtMapParIter<'g, K, V, S = DlhtBuildHasher, A: RecordAllocator = Global> {
    map: &'g DlhtMap<K, V, S, A>,
    namespace: u16,
    /// The guard, which keeps the references valid, is borrowed for `'g`. Only its announcement matters, so other
    /// threads may read under it.
    guard: PhantomData<&'g ()>,
}

impl<K, V, S, A> DlhtMap<K, V, S, A>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher + Sync,
    A: RecordAllocator,
{
    /// Returns a parallel iterator over the records of namespace 0. It is weakly consistent: it returns every key that
    /// is present during the whole iteration exactly once, also across a resize. No lock is held while user code runs.
    ///
    /// ```
    /// use rayon::prelude::*;
    /// let map = icefield::DlhtMap::from([("one", 1), ("two", 2)]);
    /// assert_eq!(map.par_iter(&map.pin()).map(|(_, value)| value).max(), Some(&2));
    /// ```
    pub fn par_iter<'g>(&'g self, guard: &'g DlhtGuard<'_>) -> DlhtMapParIter<'g, K, V, S, A> {
        self.checked(guard);
        DlhtMapParIter { map: self, namespace: 0, guard: PhantomData }
    }
}

impl<K, V, S, A> DlhtNamespace<'_, K, V, S, A>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher + Sync,
    A: RecordAllocator,
{
    /// Like [`DlhtMap::par_iter`](crate::DlhtMap::par_iter), on this namespace.
    ///
    /// ```
    /// use rayon::prelude::*;
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let (guard, space) = (map.pin(), map.namespace(7)?);
    /// space.put(1, 10);
    /// assert_eq!(space.par_iter(&guard).count(), 1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn par_iter<'g>(&'g self, guard: &'g DlhtGuard<'_>) -> DlhtMapParIter<'g, K, V, S, A> {
        self.map().checked(guard);
        DlhtMapParIter { map: self.map(), namespace: self.number(), guard: PhantomData }
    }
}

impl<'g, K, V, S, A> ParallelIterator for DlhtMapParIter<'g, K, V, S, A>
where
    K: Send + Sync,
    V: Send + Sync,
    S: Sync,
    A: RecordAllocator,
{
    type Item = (&'g K, &'g V);

    fn drive_unindexed<C: UnindexedConsumer<Self::Item>>(self, consumer: C) -> C::Result {
        let number = self.namespace;
        let pairs = |_, word| {
            // SAFETY: read under the guard, which is borrowed for `'g`.
            let records = unsafe { records_of::<K, V, A>(word) };
            // SAFETY: as above; records never change.
            let records = records.map(|record| unsafe { &*record.as_ptr() });
            let own = records.filter(move |record: &&'g Record<K, V>| record.namespace == number);
            own.map(Record::pair)
        };
        drive(&self.map.core, pairs, consumer)
    }
}

impl<K, V, S, A: RecordAllocator> Clone for DlhtMapParIter<'_, K, V, S, A> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<K, V, S, A: RecordAllocator> fmt::Debug for DlhtMapParIter<'_, K, V, S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtMapParIter").finish_non_exhaustive()
    }
}

/// A parallel iterator that owns its map, from `into_par_iter`. Records are moved out one at a time, and handled in
/// parallel.
///
/// ```
/// use rayon::prelude::*;
/// let map = icefield::DlhtMap::from([(1, "one".to_owned()), (2, "two".to_owned())]);
/// let names: Vec<String> = map.into_par_iter().map(|(_, name)| name).collect();
/// assert_eq!(names.len(), 2);
/// ```
pub struct DlhtMapIntoParIter<K, V, S = DlhtBuildHasher, A: RecordAllocator = Global>(
    DlhtMap<K, V, S, A>,
);

impl<K, V, S, A> IntoParallelIterator for DlhtMap<K, V, S, A>
where
    K: Send,
    V: Send,
    S: Send,
    A: RecordAllocator,
{
    type Item = (K, V);
    type Iter = DlhtMapIntoParIter<K, V, S, A>;

    fn into_par_iter(self) -> Self::Iter {
        DlhtMapIntoParIter(self)
    }
}

impl<K, V, S, A> ParallelIterator for DlhtMapIntoParIter<K, V, S, A>
where
    K: Send,
    V: Send,
    S: Send,
    A: RecordAllocator,
{
    type Item = (K, V);

    fn drive_unindexed<C: UnindexedConsumer<(K, V)>>(self, consumer: C) -> C::Result {
        self.0.into_iter().par_bridge().drive_unindexed(consumer)
    }
}

impl<K, V, S, A: RecordAllocator> fmt::Debug for DlhtMapIntoParIter<K, V, S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtMapIntoParIter").finish_non_exhaustive()
    }
}

/// Inserts the records in no particular order: if a key occurs several times, any of its values stays.
///
/// ```
/// use rayon::prelude::*;
/// let mut map = icefield::DlhtMap::<u32, String>::new();
/// map.par_extend((0..1000_u32).into_par_iter().map(|key| (key, key.to_string())));
/// assert_eq!(map.len(), 1000);
/// ```
impl<K, V, S, A> ParallelExtend<(K, V)> for DlhtMap<K, V, S, A>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher + Sync,
    A: RecordAllocator,
{
    fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, records: I) {
        let (map, records) = (&*self, records.into_par_iter());
        map.reserve(records.opt_len().unwrap_or(0));
        in_pages(records, |page| {
            plain(map.put_all(0, page.drain(..), When::Always, &map.pin(), drop));
        });
    }
}

/// As for records by value.
impl<'r, K, V, S, A> ParallelExtend<(&'r K, &'r V)> for DlhtMap<K, V, S, A>
where
    K: Hash + Eq + Send + Sync + Copy,
    V: Send + Sync + Copy,
    S: BuildHasher + Sync,
    A: RecordAllocator,
{
    fn par_extend<I: IntoParallelIterator<Item = (&'r K, &'r V)>>(&mut self, records: I) {
        self.par_extend(records.into_par_iter().map(|(&key, &value)| (key, value)));
    }
}

/// Inserts the records in no particular order: if a key occurs several times, any of its values stays.
impl<K, V, S, A> FromParallelIterator<(K, V)> for DlhtMap<K, V, S, A>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher + Default + Sync,
    A: RecordAllocator + Default,
{
    fn from_par_iter<I: IntoParallelIterator<Item = (K, V)>>(records: I) -> Self {
        let mut map = Self::default();
        map.par_extend(records);
        map
    }
}
