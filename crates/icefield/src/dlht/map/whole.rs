//! Calls for all records of a namespace.

use std::hash::{BuildHasher, Hash};
use std::ops::ControlFlow;

use super::api::both;
use super::iter::{DlhtMapIter, DlhtMapKeys, DlhtMapValues};
use super::memory::RecordAllocator;
use super::record::Record;
use super::{DlhtGuard, DlhtNamespace, DlhtRecordMap};

both! {
    /// Removes the records for which `f` returns `false`, each by a separate operation; returns how many it
    /// removed.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<_, _>::from_iter((0..10).map(|key| (key, key)));
    /// assert_eq!(map.retain(|key, _| key % 2 == 0), 5);
    /// assert_eq!(map.len(), 5);
    /// ```
    pub fn retain(&self, mut f: impl FnMut(&K, &V) -> bool) -> usize {
        let guard = self.map().pin();
        let mut removed = 0;
        for (key, _) in self.iter(&guard) {
            let unwanted = |record: &Record<K, V>| !f(&record.key, &record.value);
            removed += usize::from(self.map().take(self.number(), key, unwanted, &guard).is_some());
        }
        removed
    }

    /// Calls `f` for each record of [`iter`](Self::iter), until `f` returns `Break`.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// let map = icefield::DlhtMap::from([(1, 10), (2, 20)]);
    /// let mut sum = 0;
    /// map.for_each(|_, value| {
    ///     sum += value;
    ///     ControlFlow::Continue(())
    /// });
    /// assert_eq!(sum, 30);
    /// ```
    pub fn for_each(&self, mut f: impl FnMut(&K, &V) -> ControlFlow<()>) {
        let guard = self.map().pin();
        // Ignored: a break is the decision of the caller's closure.
        let _ = self.iter(&guard).try_for_each(|(key, value)| f(key, value));
    }

    /// Returns an iterator over the records. It is weakly consistent: it returns every key that is present
    /// during the whole iteration exactly once.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// assert_eq!(map.iter(&map.pin()).collect::<Vec<_>>(), [(&1, &10)]);
    /// ```
    pub fn iter<'g>(
        &'g self,
        guard: &'g DlhtGuard<'_>,
    ) -> DlhtMapIter<'g, K, V, S, A, M> {
        DlhtMapIter::new(self.map(), self.number(), guard)
    }

    /// Returns an iterator over the keys, with the consistency of [`iter`](Self::iter).
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// assert_eq!(map.keys(&map.pin()).collect::<Vec<_>>(), [&1]);
    /// ```
    pub fn keys<'g>(&'g self, guard: &'g DlhtGuard<'_>) -> DlhtMapKeys<'g, K, V, S, A, M> {
        DlhtMapKeys(self.iter(guard))
    }

    /// Returns an iterator over the values, with the consistency of [`iter`](Self::iter).
    ///
    /// ```
    /// let map = icefield::DlhtMap::from([(1, 10)]);
    /// assert_eq!(map.values(&map.pin()).sum::<i32>(), 10);
    /// ```
    pub fn values<'g>(&'g self, guard: &'g DlhtGuard<'_>) -> DlhtMapValues<'g, K, V, S, A, M> {
        DlhtMapValues(self.iter(guard))
    }
}
