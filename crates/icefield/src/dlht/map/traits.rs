//! The traits of std's collections.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::iter;

use super::memory::RecordAllocator;
use super::record::{Record, Refused, records_of};
use super::spot::Alone;
use super::write::When;
use super::{DlhtBuildHasher, DlhtGuard, DlhtRecordMap, Global};
use crate::Result;
use crate::dlht::api::plain;
use crate::dlht::mode::Threading;
use crate::outcome::SCAN_PAGE;

/// The number of records that `extend` puts in one batch. Records that a batch replaces can be freed after the batch.
const EXTEND: usize = 1024;

impl<K, V, S: Default, A: RecordAllocator + Default, M: Threading> Default
    for DlhtRecordMap<K, V, S, A, M>
{
    /// Creates an empty map with the default hash function and allocator of its types.
    fn default() -> Self {
        Self::with_capacity_and_hasher_in(0, S::default(), A::default())
    }
}

impl<K, V, S, A, M> fmt::Debug for DlhtRecordMap<K, V, S, A, M>
where
    K: fmt::Debug + Hash + Eq + Send,
    V: fmt::Debug + Send,
    S: BuildHasher,
    A: RecordAllocator,
    M: Threading,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter(&self.pin())).finish()
    }
}

impl<K, V, S, A, M> FromIterator<(K, V)> for DlhtRecordMap<K, V, S, A, M>
where
    K: Hash + Eq + Send,
    V: Send,
    S: BuildHasher + Default,
    A: RecordAllocator + Default,
    M: Threading,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(records: I) -> Self {
        let records = records.into_iter();
        let expected = records.size_hint().0;
        let map = Self::with_capacity_and_hasher_in(expected, S::default(), A::default());
        map.put_many(records);
        map
    }
}

impl<K, V, M, const N: usize> From<[(K, V); N]> for DlhtRecordMap<K, V, DlhtBuildHasher, Global, M>
where
    K: Hash + Eq + Send,
    V: Send,
    M: Threading,
{
    fn from(records: [(K, V); N]) -> Self {
        records.into_iter().collect()
    }
}

impl<K, V, S, A, M> Extend<(K, V)> for DlhtRecordMap<K, V, S, A, M>
where
    K: Hash + Eq + Send,
    V: Send,
    S: BuildHasher,
    A: RecordAllocator,
    M: Threading,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, records: I) {
        self.put_many(records);
    }
}

/// Puts the records while other threads use the map. Each record is put by a separate operation.
impl<K, V, S, A, M> Extend<(K, V)> for &DlhtRecordMap<K, V, S, A, M>
where
    K: Hash + Eq + Send,
    V: Send,
    S: BuildHasher,
    A: RecordAllocator,
    M: Threading,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, records: I) {
        self.put_many(records);
    }
}

impl<'r, K, V, S, A, M> Extend<(&'r K, &'r V)> for DlhtRecordMap<K, V, S, A, M>
where
    K: Hash + Eq + Send + Copy,
    V: Send + Copy,
    S: BuildHasher,
    A: RecordAllocator,
    M: Threading,
{
    fn extend<I: IntoIterator<Item = (&'r K, &'r V)>>(&mut self, records: I) {
        self.put_many(records.into_iter().map(|(key, value)| (*key, *value)));
    }
}

impl<K, V, S, A, M> DlhtRecordMap<K, V, S, A, M>
where
    K: Hash + Eq + Send,
    V: Send,
    S: BuildHasher,
    A: RecordAllocator,
    M: Threading,
{
    fn put_many(&self, records: impl IntoIterator<Item = (K, V)>) {
        let mut records = records.into_iter().fuse();
        let mut put = EXTEND;
        while put == EXTEND {
            put = 0;
            let some = records.by_ref().take(EXTEND);
            plain(self.put_all(0, some, When::Always, &self.pin(), |_| put += 1));
        }
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> DlhtRecordMap<K, V, S, A, M> {
    /// Returns the records of all namespaces with their hashes, with the consistency of `iter`.
    pub(super) fn all_records<'g>(
        &'g self,
        guard: &'g DlhtGuard<'_>,
    ) -> impl Iterator<Item = (u64, &'g Record<K, V>)> {
        self.checked(guard);
        let mut next = Some(0);
        let pages = iter::from_fn(move || {
            let mut words = Vec::new();
            next = plain(self.core.scan(next?, SCAN_PAGE, &mut words));
            Some(words)
        });
        pages.flatten().flat_map(|(hash, word)| {
            // SAFETY: read under the guard, which lives as long as the references.
            let records = unsafe { records_of::<K, V, A>(word) };
            // SAFETY: as above; records never change.
            records.map(move |record| (hash, unsafe { &*record.as_ptr() }))
        })
    }
}

/// Copies the records of all namespaces. If other threads write meanwhile, the copy has the consistency of
/// [`DlhtMap::iter`](crate::DlhtMap::iter): it may contain some of these writes. The copy has the same options.
impl<K, V, S, A, M> Clone for DlhtRecordMap<K, V, S, A, M>
where
    K: Hash + Eq + Clone + Send,
    V: Clone + Send,
    S: BuildHasher + Clone,
    A: RecordAllocator,
    M: Threading,
{
    fn clone(&self) -> Self {
        plain(self.try_clone())
    }
}

impl<K, V, S, A, M> DlhtRecordMap<K, V, S, A, M>
where
    K: Hash + Eq + Clone + Send,
    V: Clone + Send,
    S: BuildHasher + Clone,
    A: RecordAllocator,
    M: Threading,
{
    /// Like `clone`, but returns an error instead of panicking.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory) if the index or a record of the copy cannot be allocated.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// assert_eq!(map.try_clone()?, map);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_clone(&self) -> Result<Self> {
        // A copy of a map of a fixed size must not refuse records because they lie otherwise in it.
        let (fixed, max_bytes) = (self.core.plan.fixed, self.core.plan.max_bytes);
        let mut plan = self.core.plan.clone();
        (plan.fixed, plan.max_bytes) = (false, u64::MAX);
        let records = if fixed { self.capacity() } else { self.len() };
        let (hash, allocator) = (self.hash.clone(), self.allocator.clone());
        let mut copy = Self::of_plan(plan, records as u64, hash, allocator)?;
        let (guard, new_guard) = (self.pin(), copy.pin());
        for (hash, Record { namespace, key, value }) in self.all_records(&guard) {
            let spot = Alone { core: &copy.core, hash };
            let record = (key.clone(), value.clone());
            let put = copy.put_at(&spot, *namespace, record, When::Always, &new_guard);
            put.map_err(Refused::reason)?;
        }
        drop(new_guard);
        (copy.core.plan.fixed, copy.core.plan.max_bytes) = (fixed, max_bytes);
        Ok(copy)
    }
}

/// Compares the records of all namespaces. If other threads write meanwhile, there may be no moment at which the maps
/// were as they were found.
impl<K, V, S, A, M> PartialEq for DlhtRecordMap<K, V, S, A, M>
where
    K: Hash + Eq + Send,
    V: PartialEq + Send,
    S: BuildHasher,
    A: RecordAllocator,
    M: Threading,
{
    fn eq(&self, other: &Self) -> bool {
        let (guard, others) = (self.pin(), other.pin());
        self.len() == other.len()
            && self.all_records(&guard).all(|(_, Record { namespace, key, value })| {
                let record = other.find(*namespace, key, &others);
                record.is_some_and(|record| record.value == *value)
            })
    }
}

impl<K, V, S, A, M> Eq for DlhtRecordMap<K, V, S, A, M>
where
    K: Hash + Eq + Send,
    V: Eq + Send,
    S: BuildHasher,
    A: RecordAllocator,
    M: Threading,
{
}
