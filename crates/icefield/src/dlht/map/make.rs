//! Construction of maps, and their size.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use super::memory::RecordAllocator;
use super::record::Record;
use super::write::When;
use super::{DlhtBuildHasher, DlhtGuard, DlhtMap, Global};
use crate::Result;
use crate::base::counter::ShardedCounter;
use crate::base::reclaim::Reclaimer;
use crate::dlht::DlhtHash;
use crate::dlht::api::plain;
use crate::dlht::core::Core;
use crate::dlht::index::Index;
use crate::dlht::plan::Plan;
use crate::report::Stats;

/// The number of records that `extend` puts in one batch. Records that a batch replaces can be freed after the batch.
const EXTEND: usize = 1024;

impl<K, V> DlhtMap<K, V> {
    /// Creates an empty map that grows as needed.
    ///
    /// ```
    /// assert!(icefield::DlhtMap::<String, String>::new().is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Creates an empty map that takes `records` records before its index must grow.
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
    /// Creates an empty map with the given hash function.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// let map = icefield::DlhtMap::with_hasher(RandomState::new());
    /// map.put("one", 1);
    /// assert_eq!(map.get_cloned("one"), Some(1));
    /// ```
    #[must_use]
    pub fn with_hasher(hash: S) -> Self {
        Self::with_capacity_and_hasher(0, hash)
    }

    /// Like [`DlhtMap::with_capacity`], with the given hash function.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// let map = icefield::DlhtMap::<u32, u32, _>::with_capacity_and_hasher(1000, RandomState::new());
    /// assert!(map.capacity() >= 1000);
    /// ```
    #[must_use]
    pub fn with_capacity_and_hasher(records: u64, hash: S) -> Self {
        Self::with_capacity_and_hasher_in(records, hash, Global)
    }
}

impl<K, V, A: RecordAllocator> DlhtMap<K, V, DlhtBuildHasher, A> {
    /// Creates an empty map that allocates its records from `allocator` (§3.1). The index is allocated from the system.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32, _, _>::new_in(icefield::Global);
    /// assert!(map.is_empty());
    /// ```
    #[must_use]
    pub fn new_in(allocator: A) -> Self {
        Self::with_capacity_and_hasher_in(0, DlhtBuildHasher::default(), allocator)
    }
}

impl<K, V, S, A: RecordAllocator> DlhtMap<K, V, S, A> {
    /// Creates an empty map that takes `records` records before its index must grow, with the given hash function and
    /// allocator.
    ///
    /// ```
    /// use icefield::{DlhtBuildHasher, DlhtMap, Global};
    /// let hash = DlhtBuildHasher::default();
    /// let map = DlhtMap::<u32, u32, _, _>::with_capacity_and_hasher_in(1000, hash, Global);
    /// assert!(map.capacity() >= 1000);
    /// ```
    #[must_use]
    pub fn with_capacity_and_hasher_in(records: u64, hash: S, allocator: A) -> Self {
        // The index's keys are hashes already, so they are used directly. If they crowd, the index switches to a strong
        // hash function.
        let plan = Plan { hash: DlhtHash::Multiplied, ..Plan::default() };
        Self {
            core: plain(Core::new(plan, records)),
            hash,
            crowded: ShardedCounter::default(),
            reclaimer: Reclaimer::new(),
            allocator,
            records: PhantomData,
        }
    }

    /// Returns a guard, which protects all data read from the map until the guard is dropped.
    ///
    /// ```
    /// let map = icefield::DlhtMap::from_iter([(1, "one".to_owned())]);
    /// let guard = map.pin();
    /// let name = map.get(&1, &guard);
    /// map.delete(&1);
    /// assert_eq!(name.map(String::as_str), Some("one"), "freed after the guard");
    /// ```
    pub fn pin(&self) -> DlhtGuard<'_> {
        DlhtGuard { guard: self.reclaimer.pin(), reclaimer: &self.reclaimer }
    }

    /// Returns the number of records in all namespaces, which is exact if no other thread writes meanwhile.
    ///
    /// ```
    /// assert_eq!(icefield::DlhtMap::from_iter([(1, 10)]).len(), 1);
    /// ```
    pub fn len(&self) -> u64 {
        self.core.len().saturating_add_signed(self.crowded.sum())
    }

    /// Returns whether the map is empty. The answer is exact if no other thread writes meanwhile.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many records fit before the index must grow.
    pub fn capacity(&self) -> u64 {
        self.core.capacity()
    }

    /// Makes room in the index for `additional` more records. If that needs a larger index, returns when all entries
    /// have been moved there. Other calls do not wait for that.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// map.reserve(1000);
    /// assert!(map.capacity() >= 1000);
    /// ```
    pub fn reserve(&self, additional: u64) {
        plain(self.try_reserve(additional));
    }

    /// Like [`DlhtMap::reserve`], but returns an error instead of panicking.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the map is unchanged.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// assert!(map.try_reserve(1 << 50).is_err());
    /// ```
    pub fn try_reserve(&self, additional: u64) -> Result<()> {
        self.core.reserve(self.len().saturating_add(additional))
    }

    /// Moves all entries to the smallest index that takes them.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::with_capacity(100_000);
    /// map.shrink_to_fit();
    /// assert!(map.capacity() < 1000);
    /// ```
    pub fn shrink_to_fit(&self) {
        plain(self.core.shrink());
    }

    /// Returns statistics of the map. The reported memory is that of the index and the records, without the overhead of
    /// the allocator and without memory that keys and values refer to.
    ///
    /// ```
    /// let map: icefield::DlhtMap<u64, [u8; 100]> = (0..1000).map(|key| (key, [0; 100])).collect();
    /// assert!(map.stats().dram_bytes > 1000 * 100, "the records, and the index");
    /// ```
    pub fn stats(&self) -> Stats {
        let (len, guard) = (self.len(), self.core.pin());
        let oldest = self.core.current(&guard);
        let indexes = std::iter::successors(Some(oldest), |index| index.next());
        let bytes: u64 = indexes.map(Index::bytes).sum();
        let record_bytes = size_of::<Record<K, V>>() as u64;
        Stats {
            len_estimate: len,
            capacity: self.capacity(),
            dram_bytes: bytes + len * record_bytes,
            details: vec![("index-bytes", bytes), ("record-bytes", record_bytes)],
            ..Stats::default()
        }
    }

    /// Returns the allocator of the records.
    ///
    /// ```
    /// use icefield::DlhtMap;
    /// let names = DlhtMap::<u32, String>::new();
    /// let ages = DlhtMap::<u32, u8, _, _>::new_in(names.allocator().clone());
    /// ages.put(1, 40); // From the same allocator.
    /// ```
    pub fn allocator(&self) -> &A {
        &self.allocator
    }

    /// Returns the hash function of the keys.
    ///
    /// ```
    /// use std::hash::BuildHasher;
    /// use icefield::DlhtMap;
    /// let names = DlhtMap::<u32, String>::new();
    /// let ages = DlhtMap::<u32, u8, _>::with_hasher(names.hasher().clone());
    /// assert_eq!(ages.hasher().hash_one(1), names.hasher().hash_one(1));
    /// ```
    pub fn hasher(&self) -> &S {
        &self.hash
    }
}

impl<K, V> Default for DlhtMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S, A: RecordAllocator> fmt::Debug for DlhtMap<K, V, S, A>
where
    K: Hash + Eq + Send,
    V: Send,
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

impl<K: Hash + Eq + Send, V: Send, S: BuildHasher, A: RecordAllocator> Extend<(K, V)>
    for DlhtMap<K, V, S, A>
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, records: I) {
        let mut records = records.into_iter().fuse();
        let mut put = EXTEND;
        while put == EXTEND {
            put = 0;
            let some = records.by_ref().take(EXTEND);
            plain(self.put_all(0, some, When::Always, &self.pin(), |_| put += 1));
        }
    }
}
