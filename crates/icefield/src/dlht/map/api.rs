//! The calls of a map, and of its namespaces.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use super::record::{Record, records_of};
use super::write::{Put, When};
use super::{DlhtBuildHasher, DlhtGuard, DlhtMap};
use crate::base::counter::ShardedCounter;
use crate::base::pipeline::prefetch_read;
use crate::base::reclaim::Reclaimer;
use crate::dlht::DlhtHash;
use crate::dlht::api::plain;
use crate::dlht::core::Core;
use crate::dlht::plan::Plan;
use crate::table::{Occupied, SCAN_PAGE, same_length};
use crate::{Error, Result};

/// Namespaces are numbered below this (§3.4.2).
const NAMESPACES: u16 = 4096;
/// Keys of a batch whose records are asked for before the first is looked at.
const BATCH: usize = 64;

impl<K: Hash + Eq + Send, V: Send> DlhtMap<K, V> {
    /// An empty map that grows as needed.
    ///
    /// ```
    /// assert!(icefield::DlhtMap::<String, String>::new().is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity_and_hasher(0, DlhtBuildHasher::default())
    }

    /// An empty map that takes `records` records before its index must grow.
    ///
    /// ```
    /// assert!(icefield::DlhtMap::<String, String>::with_capacity(1000).capacity() >= 1000);
    /// ```
    #[must_use]
    pub fn with_capacity(records: u64) -> Self {
        Self::with_capacity_and_hasher(records, DlhtBuildHasher::default())
    }
}

impl<K, V, S> DlhtMap<K, V, S> {
    /// An empty map with a hash function of the caller's.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// let map = icefield::DlhtMap::<u32, u32, _>::with_capacity_and_hasher(10, RandomState::new());
    /// assert_eq!(map.len(), 0);
    /// ```
    #[must_use]
    pub fn with_capacity_and_hasher(records: u64, hash: S) -> Self {
        // Keys of the index are hashes: good ones need no other, and crowded ones get one.
        let plan = Plan { hash: DlhtHash::Modulo, ..Plan::default() };
        Self {
            core: plain(Core::new(plan, records)),
            hash,
            len: ShardedCounter::default(),
            reclaimer: Reclaimer::new(),
            records: PhantomData,
        }
    }

    /// Protects what is read from the map until the guard is dropped.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let guard = map.pin();
    /// assert_eq!(map.get(&1, &guard), None);
    /// ```
    pub fn pin(&self) -> DlhtGuard<'_> {
        DlhtGuard { guard: self.reclaimer.pin(), reclaimer: &self.reclaimer }
    }

    /// How many records there are, in all namespaces: exact when quiescent.
    ///
    /// ```
    /// assert_eq!(icefield::DlhtMap::from_iter([(1, 10)]).len(), 1);
    /// ```
    pub fn len(&self) -> u64 {
        u64::try_from(self.len.sum()).unwrap_or(0)
    }

    /// Whether there is no record: exact when quiescent.
    ///
    /// ```
    /// assert!(icefield::DlhtMap::<u32, u32>::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many records fit before the index must grow.
    ///
    /// ```
    /// assert!(icefield::DlhtMap::<u32, u32>::new().capacity() >= 64);
    /// ```
    pub fn capacity(&self) -> u64 {
        self.core.capacity()
    }
}

macro_rules! calls {
    ($(#[$doc:meta])* $self:ident: $ty:ty, $map:expr, $namespace:expr) => {
        $(#[$doc])*
        impl<K: Hash + Eq + Send, V: Send, S: BuildHasher> $ty {
            /// The value of `key`. Never waits; one line of the index and the record.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([("one".to_owned(), 1)]);
            /// assert_eq!(map.get("one", &map.pin()), Some(&1));
            /// ```
            pub fn get<'g, Q: Hash + Eq + ?Sized>(
                &$self,
                key: &Q,
                guard: &'g DlhtGuard<'_>,
            ) -> Option<&'g V>
            where
                K: Borrow<Q> + 'g,
            {
                $map.find($namespace, key, guard).map(|record| &record.value)
            }

            /// Whether `key` is present.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// assert!(map.contains(&1));
            /// ```
            pub fn contains<Q: Hash + Eq + ?Sized>(&$self, key: &Q) -> bool
            where
                K: Borrow<Q>,
            {
                $map.find($namespace, key, &$map.pin()).is_some()
            }

            /// A copy of the value of `key`.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// assert_eq!(map.get_cloned(&1), Some(10));
            /// ```
            pub fn get_cloned<Q: Hash + Eq + ?Sized>(&$self, key: &Q) -> Option<V>
            where
                K: Borrow<Q>,
                V: Clone,
            {
                $map.find($namespace, key, &$map.pin()).map(|record| record.value.clone())
            }

            /// Inserts `key` only if it is absent; else gives the present value.
            ///
            /// ```
            /// use icefield::Occupied;
            /// let map = icefield::DlhtMap::<u32, u32>::new();
            /// let guard = map.pin();
            /// assert_eq!(map.try_insert(1, 10, &guard), Ok(()));
            /// assert_eq!(map.try_insert(1, 20, &guard), Err(Occupied(&10)));
            /// ```
            pub fn try_insert<'g>(
                &$self,
                key: K,
                value: V,
                guard: &'g DlhtGuard<'_>,
            ) -> std::result::Result<(), Occupied<&'g V>>
            where
                K: 'g,
            {
                match plain($map.put($namespace, key, value, When::Absent, guard)) {
                    Put::Kept(Some(present)) | Put::Replaced(present) => Err(Occupied(present)),
                    Put::Inserted | Put::Kept(None) => Ok(()),
                }
            }

            /// Inserts or replaces; gives the previous value.
            ///
            /// ```
            /// let map = icefield::DlhtMap::<u32, u32>::new();
            /// let guard = map.pin();
            /// assert_eq!(map.insert(1, 10, &guard), None);
            /// assert_eq!(map.insert(1, 20, &guard), Some(&10));
            /// ```
            pub fn insert<'g>(
                &$self,
                key: K,
                value: V,
                guard: &'g DlhtGuard<'_>,
            ) -> Option<&'g V>
            where
                K: 'g,
            {
                plain($map.put($namespace, key, value, When::Always, guard)).replaced()
            }

            /// Replaces the value only if `key` is present; gives the previous one.
            ///
            /// ```
            /// let map = icefield::DlhtMap::<u32, u32>::new();
            /// assert_eq!(map.update(1, 10, &map.pin()), None);
            /// assert!(map.is_empty());
            /// ```
            pub fn update<'g>(
                &$self,
                key: K,
                value: V,
                guard: &'g DlhtGuard<'_>,
            ) -> Option<&'g V>
            where
                K: 'g,
            {
                plain($map.put($namespace, key, value, When::Present, guard)).replaced()
            }

            /// Removes `key`; gives the value it had.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// assert_eq!(map.remove(&1, &map.pin()), Some(&10));
            /// ```
            pub fn remove<'g, Q: Hash + Eq + ?Sized>(
                &$self,
                key: &Q,
                guard: &'g DlhtGuard<'_>,
            ) -> Option<&'g V>
            where
                K: Borrow<Q> + 'g,
            {
                $map.take($namespace, key, |_| true, guard).map(|record| &record.value)
            }

            /// Calls [`get`](Self::get) for each key in order, memory latencies of bins and of records overlapped (§3.3).
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// let guard = map.pin();
            /// let mut found = [None; 2];
            /// map.get_batch(&[&1, &2], &mut found, &guard);
            /// assert_eq!(found, [Some(&10), None]);
            /// ```
            pub fn get_batch<'g, Q: Hash + Eq + ?Sized>(
                &$self,
                keys: &[&Q],
                found: &mut [Option<&'g V>],
                guard: &'g DlhtGuard<'_>,
            ) where
                K: Borrow<Q> + 'g,
            {
                $map.find_all($namespace, keys, found, guard);
            }

            /// The records, weakly consistent: every key that is present throughout is seen exactly once.
            ///
            /// ```
            /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
            /// assert_eq!(map.iter(&map.pin()).collect::<Vec<_>>(), [(&1, &10)]);
            /// ```
            pub fn iter<'g>(&'g $self, guard: &'g DlhtGuard<'_>) -> DlhtMapIter<'g, K, V, S> {
                DlhtMapIter::new($map, $namespace, guard)
            }
        }
    };
}
calls! {
    /// The calls, on namespace 0.
    self: DlhtMap<K, V, S>, self, 0
}
calls! {
    /// The calls of [`DlhtMap`], on this namespace.
    self: DlhtNamespace<'_, K, V, S>, self.map, self.number
}

impl<K: Hash + Eq + Send, V: Send, S: BuildHasher> DlhtMap<K, V, S> {
    /// Records of their own: equal keys of different namespaces do not conflict (§3.4.2). Namespace 0 is the map itself.
    ///
    /// # Errors
    /// [`Error::InvalidOption`]: `number` is not below 4096.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// let (orders, guard) = (map.namespace(7)?, map.pin());
    /// orders.insert(1, 10, &guard);
    /// assert_eq!((orders.get(&1, &guard), map.get(&1, &guard)), (Some(&10), None));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn namespace(&self, number: u16) -> Result<DlhtNamespace<'_, K, V, S>> {
        if number >= NAMESPACES {
            return Err(Error::InvalidOption {
                option: "namespace",
                detail: format!("{number} is not below {NAMESPACES}"),
            });
        }
        Ok(DlhtNamespace { map: self, number })
    }

    /// Removes every record of every namespace, all at one moment.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from_iter([(1, 10)]);
    /// map.clear();
    /// assert!(map.is_empty());
    /// ```
    pub fn clear(&self) {
        plain(self.clear_all(&self.pin()));
    }

    /// Keeps only the records of namespace 0 for which `f` says so. Each removal is an operation of its own.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from_iter((0..10).map(|key| (key, key)));
    /// map.retain(|key, _| key % 2 == 0);
    /// assert_eq!(map.len(), 5);
    /// ```
    pub fn retain(&self, mut f: impl FnMut(&K, &V) -> bool) {
        let guard = self.pin();
        for (key, _) in self.iter(&guard) {
            self.take(0, key, |record| !f(&record.key, &record.value), &guard);
        }
    }

    fn find_all<'g, Q: Hash + Eq + ?Sized>(
        &self,
        namespace: u16,
        keys: &[&Q],
        found: &mut [Option<&'g V>],
        guard: &'g DlhtGuard<'_>,
    ) where
        K: Borrow<Q> + 'g,
    {
        plain(same_length(keys.len(), found.len()));
        for (keys, found) in keys.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
            self.core.get_all(
                keys.len(),
                |at| self.hash_of(namespace, keys[at]),
                |_, word| {
                    if let Some(word) = word {
                        // A hint; whatever lies there.
                        prefetch_read(std::ptr::without_provenance::<u8>(word as usize));
                    }
                },
            );
            for (key, found) in keys.iter().zip(found) {
                *found = self.find(namespace, *key, guard).map(|record| &record.value);
            }
        }
    }
}

/// A namespace of a [`DlhtMap`], from [`DlhtMap::namespace`].
pub struct DlhtNamespace<'a, K, V, S = DlhtBuildHasher> {
    map: &'a DlhtMap<K, V, S>,
    number: u16,
}

impl<K, V, S> fmt::Debug for DlhtNamespace<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtNamespace").field("number", &self.number).finish_non_exhaustive()
    }
}

/// An iterator over the records of a namespace, from [`DlhtMap::iter`].
pub struct DlhtMapIter<'g, K, V, S = DlhtBuildHasher> {
    map: &'g DlhtMap<K, V, S>,
    namespace: u16,
    /// Held for as long as references are: they are the guard's.
    guard: &'g DlhtGuard<'g>,
    page: std::vec::IntoIter<&'g Record<K, V>>,
    next: Option<u64>,
}

impl<'g, K: Hash + Eq + Send, V: Send, S: BuildHasher> DlhtMapIter<'g, K, V, S> {
    fn new(map: &'g DlhtMap<K, V, S>, namespace: u16, guard: &'g DlhtGuard<'_>) -> Self {
        map.checked(guard);
        Self { map, namespace, guard, page: Vec::new().into_iter(), next: Some(0) }
    }

    fn read_page(&mut self, cursor: u64) -> Result<()> {
        let _pinned = self.guard;
        let mut words = Vec::new();
        self.next = self.map.core.scan(cursor, SCAN_PAGE, &mut words)?;
        let mut page: Vec<&'g Record<K, V>> = Vec::with_capacity(words.len());
        for (_, word) in words {
            // SAFETY: read under the guard, which lives as long as the references.
            page.extend(unsafe { records_of::<K, V>(word).map(|record| &*record.as_ptr()) });
        }
        page.retain(|record| record.namespace == self.namespace);
        self.page = page.into_iter();
        Ok(())
    }
}

impl<'g, K: Hash + Eq + Send, V: Send, S: BuildHasher> Iterator for DlhtMapIter<'g, K, V, S> {
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<(&'g K, &'g V)> {
        loop {
            if let Some(record) = self.page.next() {
                return Some((&record.key, &record.value));
            }
            let cursor = self.next.take()?;
            plain(self.read_page(cursor));
        }
    }
}

impl<K, V, S> fmt::Debug for DlhtMapIter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtMapIter").field("next", &self.next).finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Send, V: Send> Default for DlhtMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V, S> fmt::Debug for DlhtMap<K, V, S>
where
    K: Hash + Eq + Send + fmt::Debug,
    V: Send + fmt::Debug,
    S: BuildHasher,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter(&self.pin())).finish()
    }
}

impl<K: Hash + Eq + Send, V: Send> FromIterator<(K, V)> for DlhtMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(records: I) -> Self {
        let records = records.into_iter();
        let mut map = Self::with_capacity(records.size_hint().0 as u64);
        map.extend(records);
        map
    }
}

impl<K: Hash + Eq + Send, V: Send, S: BuildHasher> Extend<(K, V)> for DlhtMap<K, V, S> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, records: I) {
        for (key, value) in records {
            self.insert(key, value, &self.pin());
        }
    }
}
