//! Construction of maps, and their size.

use std::marker::PhantomData;

use super::memory::RecordAllocator;
use super::record::Record;
use super::{DlhtBuildHasher, DlhtRecordMap, Global};
use crate::Result;
use crate::base::reclaim::Reclaimer;
use crate::dlht::DlhtHash;
use crate::dlht::api::plain;
use crate::dlht::core::Core;
use crate::dlht::index::Index;
use crate::dlht::mode::Threading;
use crate::dlht::plan::Plan;
use crate::report::Stats;

/// Returns the default plan of a map's index.
pub(super) fn plan() -> Plan {
    // The index's keys are hashes already, so they are used directly. If they crowd, the index switches to a strong
    // hash function.
    Plan { hash: DlhtHash::Multiplied, ..Plan::default() }
}

/// Converts a number of records. A number that does not fit belongs to no index in memory.
fn in_memory(records: u64) -> usize {
    usize::try_from(records).unwrap_or(usize::MAX)
}

impl<K, V, M: Threading> DlhtRecordMap<K, V, DlhtBuildHasher, Global, M> {
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
    pub fn with_capacity(records: usize) -> Self {
        Self::with_capacity_and_hasher(records, DlhtBuildHasher::default())
    }
}

impl<K, V, S, M: Threading> DlhtRecordMap<K, V, S, Global, M> {
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

    /// Like [`DlhtMap::with_capacity`](crate::DlhtMap::with_capacity), with the given hash function.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// let map = icefield::DlhtMap::<u32, u32, _>::with_capacity_and_hasher(1000, RandomState::new());
    /// assert!(map.capacity() >= 1000);
    /// ```
    #[must_use]
    pub fn with_capacity_and_hasher(records: usize, hash: S) -> Self {
        Self::with_capacity_and_hasher_in(records, hash, Global)
    }
}

impl<K, V, A: RecordAllocator, M: Threading> DlhtRecordMap<K, V, DlhtBuildHasher, A, M> {
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

impl<K, V, S, A: RecordAllocator, M: Threading> DlhtRecordMap<K, V, S, A, M> {
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
    pub fn with_capacity_and_hasher_in(records: usize, hash: S, allocator: A) -> Self {
        plain(Self::of_plan(plan(), records as u64, hash, allocator))
    }

    /// Creates an empty map whose index follows `plan`.
    pub(super) fn of_plan(plan: Plan, records: u64, hash: S, allocator: A) -> Result<Self> {
        Ok(Self {
            core: Core::new(plan, records)?,
            hash,
            crowded: M::Count::default(),
            reclaimer: Reclaimer::new(),
            allocator,
            records: PhantomData,
        })
    }

    /// Returns the number of records in all namespaces, which is exact if no other thread writes meanwhile.
    ///
    /// ```
    /// assert_eq!(icefield::DlhtMap::from([(1, 10)]).len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        in_memory(self.core.len().saturating_add_signed(M::sum(&self.crowded)))
    }

    /// Returns whether the map is empty. The answer is exact if no other thread writes meanwhile.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many records fit before the index must grow.
    pub fn capacity(&self) -> usize {
        in_memory(self.core.capacity())
    }

    /// Makes room in the index for `additional` more records. If that needs a larger index, returns when all entries
    /// have been moved there. Other calls do not wait for that.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// map.reserve(1000);
    /// assert!(map.capacity() >= 1000);
    /// ```
    pub fn reserve(&self, additional: usize) {
        plain(self.try_reserve(additional));
    }

    /// Like [`DlhtMap::reserve`](crate::DlhtMap::reserve), but returns an error instead of panicking.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the map is unchanged.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::new();
    /// assert!(map.try_reserve(1 << 50).is_err());
    /// ```
    pub fn try_reserve(&self, additional: usize) -> Result<()> {
        self.core.reserve(self.len().saturating_add(additional) as u64)
    }

    /// Moves all entries to the smallest index that takes them.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::with_capacity(100_000);
    /// map.shrink_to_fit();
    /// assert!(map.capacity() < 1000);
    /// ```
    pub fn shrink_to_fit(&self) {
        plain(self.try_shrink_to_fit());
    }

    /// Like [`DlhtMap::shrink_to_fit`](crate::DlhtMap::shrink_to_fit), but returns an error instead of panicking.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the map is unchanged.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::with_capacity(100_000);
    /// map.try_shrink_to_fit()?;
    /// assert!(map.capacity() < 1000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_shrink_to_fit(&self) -> Result<()> {
        self.core.shrink()
    }

    /// Returns statistics of the map. The reported memory is that of the index and the records, without the overhead of
    /// the allocator and without memory that keys and values refer to.
    ///
    /// ```
    /// let map: icefield::DlhtMap<u64, [u8; 100]> = (0..1000).map(|key| (key, [0; 100])).collect();
    /// assert!(map.stats().dram_bytes > 1000 * 100, "the records, and the index");
    /// ```
    pub fn stats(&self) -> Stats {
        let (len, guard) = (self.len() as u64, self.core.pin());
        let oldest = self.core.current(&guard);
        let indexes = std::iter::successors(Some(oldest), |index| index.next());
        let bytes: u64 = indexes.map(Index::bytes).sum();
        let record_bytes = size_of::<Record<K, V>>() as u64;
        Stats {
            len_estimate: len,
            capacity: self.core.capacity(),
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
