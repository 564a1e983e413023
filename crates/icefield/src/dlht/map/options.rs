//! Options of maps.

use std::fmt;
use std::marker::PhantomData;

use super::make::plan;
use super::memory::RecordAllocator;
use super::{DlhtBuildHasher, DlhtRecordMap, Global};
use crate::dlht::mode::{Shared, Threading};
use crate::dlht::plan::Plan;
use crate::{Error, Result};

/// The options of a map: a builder, from [`DlhtMap::options`](crate::DlhtMap::options).
///
/// ```
/// use icefield::DlhtMap;
/// let map = DlhtMap::<String, u32>::options().capacity(100_000).max_bytes(64 << 20).build()?;
/// assert!(map.capacity() >= 100_000);
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone)]
pub struct DlhtMapOptions<
    K,
    V,
    S = DlhtBuildHasher,
    A: RecordAllocator = Global,
    M: Threading = Shared,
> {
    plan: Plan,
    capacity: usize,
    hash: S,
    allocator: A,
    types: PhantomData<fn(K, V, M)>,
}

impl<K, V, M: Threading> DlhtRecordMap<K, V, DlhtBuildHasher, Global, M> {
    /// Returns the options of a new map.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<String, u32>::options().capacity(1000).fixed_size().build()?;
    /// assert!(map.is_empty());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn options() -> DlhtMapOptions<K, V, DlhtBuildHasher, Global, M> {
        DlhtMapOptions::new(DlhtBuildHasher::default(), Global)
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> DlhtMapOptions<K, V, S, A, M> {
    pub(super) fn new(hash: S, allocator: A) -> Self {
        Self { plan: plan(), capacity: 0, hash, allocator, types: PhantomData }
    }

    /// Sets how many records the map takes before its index must grow. Default: about a hundred.
    #[must_use]
    pub fn capacity(mut self, records: usize) -> Self {
        self.capacity = records;
        self
    }

    /// Sets the hash function of the keys. Default: [`DlhtBuildHasher`], which is keyed by a random seed.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// let options = icefield::DlhtMap::<String, u32>::options();
    /// let map = options.hasher(RandomState::new()).build()?;
    /// map.put("one".to_owned(), 1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn hasher<T>(self, hash: T) -> DlhtMapOptions<K, V, T, A, M> {
        let Self { plan, capacity, allocator, types, .. } = self;
        DlhtMapOptions { plan, capacity, hash, allocator, types }
    }

    /// Sets the allocator of the records (§3.1). Default: the global one. The index is allocated from the system.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::options().allocator(icefield::Global).build()?;
    /// map.put(1, 10);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn allocator<B: RecordAllocator>(self, allocator: B) -> DlhtMapOptions<K, V, S, B, M> {
        let Self { plan, capacity, hash, types, .. } = self;
        DlhtMapOptions { plan, capacity, hash, allocator, types }
    }

    /// Sets the number of link buckets per bin of the index, from 0 to 3 (§3.1). With more link buckets, the index is
    /// filled further before it grows, and more gets access a second line. Default: 1/8.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::options().link_ratio(0.5).build()?;
    /// assert!(icefield::DlhtMap::<u32, u32>::options().link_ratio(4.0).build().is_err());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn link_ratio(mut self, ratio: f64) -> Self {
        self.plan.link_ratio = ratio;
        self
    }

    /// Prevents inserts from growing the index: an insert that finds no room is refused with [`Error::Full`]. The
    /// `checked_` calls return the error and the record; the plain calls panic.
    ///
    /// ```
    /// use icefield::{DlhtMap, Error};
    /// let map = DlhtMap::<u32, String>::options().capacity(100).fixed_size().build()?;
    /// let refused = (0..).find_map(|key| map.checked_put(key, key.to_string()).err());
    /// let refused = refused.expect("at some time it is full");
    /// assert!(matches!(refused.error, Error::Full));
    /// assert_eq!(refused.value, refused.key.to_string(), "the record comes back");
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn fixed_size(mut self) -> Self {
        self.plan.fixed = true;
        self
    }

    /// Limits the index to this many bytes: an insert that would need a larger index is refused with [`Error::Full`].
    /// Records need memory beyond that.
    ///
    /// ```
    /// use icefield::{DlhtMap, Error};
    /// let map = DlhtMap::<u32, u32>::options().max_bytes(1 << 16).build()?;
    /// let refused = (0..).find_map(|key| map.checked_put(key, key).err());
    /// assert!(refused.is_some_and(|refused| matches!(refused.error, Error::Full)));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.plan.max_bytes = bytes;
        self
    }

    /// For tests: sets the minimum number of bins to 2^`bits`, and the growth factor to 2^`growth_bits`.
    #[doc(hidden)]
    #[must_use]
    pub fn geometry(mut self, bits: u32, growth_bits: u32) -> Self {
        self.plan.least_bins = 1 << bits.min(40);
        self.plan.growth_bits = Some(growth_bits.clamp(1, 8));
        self
    }

    /// For tests: the allocations of indexes that `faults` selects fail.
    #[cfg(any(test, feature = "sim"))]
    #[doc(hidden)]
    #[must_use]
    pub fn faults(mut self, faults: std::sync::Arc<crate::storage::FaultPlan>) -> Self {
        self.plan.faults = Some(faults);
        self
    }

    /// Creates the map.
    ///
    /// # Errors
    /// Returns [`Error::InvalidOption`] if the link ratio is out of range, and [`Error::NoMemory`] if there is no
    /// memory for the index.
    ///
    /// ```
    /// let map = icefield::DlhtMap::<u32, u32>::options().build()?;
    /// assert!(map.is_empty());
    /// assert!(icefield::DlhtMap::<u32, u32>::options().capacity(1 << 60).build().is_err());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn build(self) -> Result<DlhtRecordMap<K, V, S, A, M>> {
        let ratio = self.plan.link_ratio;
        if !(0.0..=3.0).contains(&ratio) {
            return Err(Error::InvalidOption {
                option: "link_ratio",
                detail: format!("{ratio} is not between 0 and 3"),
            });
        }
        DlhtRecordMap::of_plan(self.plan, self.capacity as u64, self.hash, self.allocator)
    }
}

impl<K, V, S, A: RecordAllocator, M: Threading> fmt::Debug for DlhtMapOptions<K, V, S, A, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtMapOptions")
            .field("capacity", &self.capacity)
            .field("fixed_size", &self.plan.fixed)
            .field("max_bytes", &self.plan.max_bytes)
            .finish_non_exhaustive()
    }
}
