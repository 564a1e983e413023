//! Construction of tables and sets.

use std::fmt;
use std::marker::PhantomData;

use super::core::Core;
use super::mode::Threading;
use super::plan::Plan;
use super::{DlhtHash, DlhtTable};
use crate::base::hash::Seed;
use crate::types::{Key, Word};
use crate::{Error, Result};

/// The options of a DLHT table or set, whose type is `T`: a builder, from [`DlhtTable::options`] or
/// [`DlhtWordSet::options`](crate::DlhtWordSet::options).
///
/// ```
/// use icefield::{Dlht, DlhtHash};
/// let table = Dlht::<u64, u64>::options().capacity(100_000).hash(DlhtHash::Modulo).build()?;
/// assert!(table.capacity() >= 100_000);
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct DlhtOptions<T> {
    plan: Plan,
    capacity: usize,
    built: PhantomData<fn() -> T>,
}

impl<T> Clone for DlhtOptions<T> {
    fn clone(&self) -> Self {
        Self { plan: self.plan.clone(), ..*self }
    }
}

impl<T> fmt::Debug for DlhtOptions<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, capacity, built: _ } = self;
        f.debug_struct("DlhtOptions").field("capacity", capacity).field("plan", plan).finish()
    }
}

impl<T> Default for DlhtOptions<T> {
    fn default() -> Self {
        Self { plan: Plan::default(), capacity: 0, built: PhantomData }
    }
}

impl<T> DlhtOptions<T> {
    /// Sets how many records the table takes before it must grow. Default: about a hundred.
    ///
    /// ```
    /// let set = icefield::DlhtSet::<u32>::options().capacity(1000).build()?;
    /// assert!(set.capacity() >= 1000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn capacity(mut self, records: usize) -> Self {
        self.capacity = records;
        self
    }

    /// Sets the hash function that distributes keys over bins. Default: [`DlhtHash::Strong`].
    #[must_use]
    pub fn hash(mut self, hash: DlhtHash) -> Self {
        self.plan.hash = hash;
        self
    }

    /// Sets the seed of the strong hash. Default: a random seed, so that keys that share a bin cannot be constructed.
    ///
    /// ```
    /// fn order(seed: [u64; 2]) -> icefield::Result<Vec<u64>> {
    ///     let table = icefield::Dlht::<u64, u64>::options().hash_seed(seed).build()?;
    ///     (0..100).for_each(|key| table.put(key, key));
    ///     Ok(table.iter().map(|(key, _)| key).collect())
    /// }
    /// assert_eq!(order([1, 2])?, order([1, 2])?, "the same in each run");
    /// assert_ne!(order([1, 2])?, order([3, 4])?);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn hash_seed(mut self, seed: [u64; 2]) -> Self {
        self.plan.seed = Some(Seed(seed));
        self
    }

    /// Sets the number of link buckets per bin, from 0 to 3 (§3.1). With more link buckets, the table is filled further
    /// before it grows, and more gets access a second line. Default: 1/8.
    ///
    /// ```
    /// use icefield::{Dlht, Table};
    /// fn records_that_fit(link_ratio: f64) -> icefield::Result<Option<u64>> {
    ///     let table = Dlht::<u64, u64>::options().fixed_size().link_ratio(link_ratio).build()?;
    ///     Ok((0..).find(|&key| Table::insert(&table, key, key).is_err()))
    /// }
    /// assert!(records_that_fit(1.0)? > records_that_fit(0.05)?);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn link_ratio(mut self, ratio: f64) -> Self {
        self.plan.link_ratio = ratio;
        self
    }

    /// Prevents inserts from growing the table: an insert that finds no room is refused with [`Error::Full`].
    ///
    /// ```
    /// use icefield::{Dlht, Error, Table};
    /// let table = Dlht::<u64, u64>::options().capacity(100).fixed_size().build()?;
    /// let refused = (0..).find_map(|key| Table::insert(&table, key, key).err());
    /// assert!(matches!(refused, Some(Error::Full)));
    /// assert_eq!(table.get(7), Some(7));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn fixed_size(mut self) -> Self {
        self.plan.fixed = true;
        self
    }

    /// Limits an index to this many bytes: an insert that would need a larger one is refused with [`Error::Full`].
    ///
    /// ```
    /// use icefield::{Dlht, Error, Table};
    /// let table = Dlht::<u64, u64>::options().max_bytes(1 << 20).build()?;
    /// let refused = (0..).find_map(|key| Table::insert(&table, key, key).err());
    /// assert!(matches!(refused, Some(Error::Full)));
    /// assert!(table.stats().dram_bytes <= 1 << 20);
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

    /// For tests: sets the minimum number of bins.
    #[doc(hidden)]
    #[must_use]
    pub fn least_bins(mut self, bins: u64) -> Self {
        self.plan.least_bins = bins.max(1);
        self
    }

    /// For tests: the allocations that `faults` selects fail.
    #[cfg(any(test, feature = "sim"))]
    #[doc(hidden)]
    #[must_use]
    pub fn faults(mut self, faults: std::sync::Arc<crate::storage::FaultPlan>) -> Self {
        self.plan.faults = Some(faults);
        self
    }

    /// Creates the core of a table or set.
    pub(super) fn core<M: Threading>(self) -> Result<Core<M>> {
        if !(0.0..=3.0).contains(&self.plan.link_ratio) {
            return Err(Error::InvalidOption {
                option: "link_ratio",
                detail: format!("{} is not between 0 and 3", self.plan.link_ratio),
            });
        }
        Core::new(self.plan, self.capacity as u64)
    }
}

impl<K: Word, V: Word, M: Threading> DlhtOptions<DlhtTable<K, V, M>> {
    /// Creates the table.
    ///
    /// # Errors
    /// Returns [`Error::InvalidOption`] if the link ratio is out of range, and [`Error::NoMemory`] if there is no
    /// memory for the index.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::options().build()?;
    /// assert!(table.is_empty());
    /// assert!(icefield::Dlht::<u64, u64>::options().capacity(1 << 60).build().is_err());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn build(self) -> Result<DlhtTable<K, V, M>> {
        const { <K as Key>::USABLE };
        Ok(DlhtTable { core: self.core()?, types: PhantomData })
    }
}
