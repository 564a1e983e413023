//! Dash tables, and the options that only they have.

use super::durable::DurableTable;
use super::options::TableOptions;
use crate::engine::dash::{Directory, Eh, Expansion, Geometry, Lh};
use crate::storage::Mapped;
use crate::types::{Key, Value};

/// A Dash table; use it as [`DashEh`] or [`DashLh`].
///
/// ```
/// let table: icefield::Dash<u64, u64, icefield::Lh> = icefield::DashLh::in_memory()?;
/// # Ok::<(), icefield::Error>(())
/// ```
pub type Dash<K, V, P, M = Mapped> = DurableTable<K, V, P, M>;

/// Dash with extendible hashing: a durable, concurrent hash table that opens instantly.
///
/// ```
/// let table = icefield::DashEh::<str, u64>::in_memory()?;
/// table.insert("one", 1)?;
/// assert_eq!(table.get("one")?, Some(1));
/// # Ok::<(), icefield::Error>(())
/// ```
///
/// A `get` accesses two to three cache lines of the medium (§4.6, Algorithm 3); an insert costs two flushes and two
/// fences, or one of each in two of 14 slots, unless it displaces a record or splits a segment (Algorithm 1); an update or
/// removal costs one of each. In a batch, 32 operations share two fences. A key or value that is stored by reference adds
/// the lines of its bytes.
///
/// Its methods are those of [`DurableTable`], its options [`DashOptions`].
pub type DashEh<K, V, M = Mapped> = Dash<K, V, Eh, M>;

/// Dash with linear hashing: a durable, concurrent hash table that opens instantly and grows by one segment at a time.
/// Operations cost as much as those of [`DashEh`].
///
/// ```
/// let table = icefield::DashLh::<u64, str>::in_memory()?;
/// assert_eq!(table.insert(7, "seven")?, None);
/// assert_eq!(table.get(7)?.as_deref(), Some("seven"));
/// # Ok::<(), icefield::Error>(())
/// ```
///
/// Its methods are those of [`DurableTable`], its options [`DashOptions`].
pub type DashLh<K, V, M = Mapped> = Dash<K, V, Lh, M>;

/// Options for creating or opening a Dash table.
///
/// ```
/// use icefield::{DashEh, DashOptions, Eh};
/// let options: DashOptions<u64, u64, Eh> = DashEh::options().capacity(1000);
/// assert!(options.in_memory()?.capacity() >= 1000);
/// # Ok::<(), icefield::Error>(())
/// ```
pub type DashOptions<K, V, P> = TableOptions<K, V, P>;

impl<K: Key + ?Sized, V: Value + ?Sized, P: Directory> TableOptions<K, V, P> {
    /// Sets the number of stash buckets in each segment of a new table, 2 (the default) to 4. More stash buckets give a
    /// higher load factor.
    ///
    /// ```
    /// let dense = icefield::DashEh::<u64, u64>::options().stash_buckets(4).in_memory()?;
    /// assert!(dense.capacity() > icefield::DashEh::<u64, u64>::in_memory()?.capacity());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn stash_buckets(mut self, buckets: u32) -> Self {
        self.settings.geometry.stash = buckets;
        self
    }

    /// Sets the dimensions of a new table's segments, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn geometry(mut self, geometry: Geometry) -> Self {
        self.settings.geometry = geometry;
        self
    }
}

/// Options for the growth of tables with linear hashing:
///
/// ```
/// use icefield::{DashLh, Expansion};
/// let small = DashLh::<u64, u64>::options()
///     .first_array(1) // As small as can be,
///     .stride(4) // growing by arrays of 1, 1, 1, 1, 2, 2, 2, 2, 4 .. segments,
///     .expansion(Expansion::Load { percent: 90 }) // when nine slots of ten are used.
///     .in_memory()?;
/// assert!(small.capacity() < DashLh::<u64, u64>::in_memory()?.capacity());
/// # Ok::<(), icefield::Error>(())
/// ```
impl<K: Key + ?Sized, V: Value + ?Sized> TableOptions<K, V, Lh> {
    /// Sets the number of segments in the first array of a new table, a power of two up to 4096; 64 by default. This is
    /// also the minimum size of the table.
    #[must_use]
    pub fn first_array(mut self, segments: u32) -> Self {
        self.settings.policy.first_array = segments;
        self
    }

    /// Sets the number of segment arrays of each size in a new table (§5.2): a power of two up to 64; 8 by default.
    /// After this number of arrays of one size, the next arrays are twice as large. A longer stride wastes less space
    /// and needs a longer directory.
    #[must_use]
    pub fn stride(mut self, arrays: u32) -> Self {
        self.settings.policy.stride = arrays;
        self
    }

    /// Sets the condition under which a new table grows.
    #[must_use]
    pub fn expansion(mut self, expansion: Expansion) -> Self {
        self.settings.policy.expansion = expansion;
        self
    }
}
