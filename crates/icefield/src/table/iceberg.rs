//! IcebergHT tables, and the options that only they have.

use super::durable::DurableTable;
use super::options::TableOptions;
use crate::engine::iceberg::{IcebergHt, Yards};
use crate::storage::Mapped;
use crate::types::{Key, Value};

/// IcebergHT: a durable, concurrent, stable and compact hash table that writes one line per update.
///
/// ```
/// let table = icefield::Iceberg::<str, u64>::in_memory()?;
/// assert_eq!(table.insert("answer", 42)?, None);
/// assert_eq!(table.get("answer")?, Some(42));
/// # Ok::<(), icefield::Error>(())
/// ```
///
/// A `get` accesses one line of DRAM and one of the medium (§3.2, §5.1); an insert, update or removal writes one line,
/// with one flush and one fence (§3.2, Algorithms 1 and 2). In a batch, 32 operations share a fence. A key or value
/// that is stored by reference adds the lines of its bytes, and one fence for the record.
///
/// Its methods are those of [`DurableTable`], its options [`IcebergOptions`].
pub type Iceberg<K, V, M = Mapped> = DurableTable<K, V, IcebergHt, M>;

/// Options for creating or opening an IcebergHT table.
///
/// ```
/// use icefield::{Iceberg, IcebergOptions};
/// let options: IcebergOptions<u64, u64> = Iceberg::options().max_load(0.9);
/// assert!(options.in_memory()?.is_empty()?);
/// # Ok::<(), icefield::Error>(())
/// ```
pub type IcebergOptions<K, V> = TableOptions<K, V, IcebergHt>;

impl<K: Key + ?Sized, V: Value + ?Sized> TableOptions<K, V, IcebergHt> {
    /// Sets the load at which a table doubles, as a fraction of its slots: above 0, at most 1; 0.85 by default (§4).
    /// The table does not store this value: each opening may choose another one. If the number of records is known in
    /// advance, 0.95 is a reasonable value; one read in six then searches the back yard.
    ///
    /// ```
    /// let dense = icefield::Iceberg::<u64, u64>::options().max_load(0.95).capacity(1000).in_memory()?;
    /// assert!(dense.capacity() >= 1000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn max_load(mut self, part: f64) -> Self {
        // Values out of range become 0, which `validate` refuses.
        self.settings.max_load =
            if part > 0.0 && part <= 1.0 { (part * 1000.0).ceil() as u32 } else { 0 };
        self
    }

    /// Sets the number of threads that recover a table when it is opened; by default the number of processors.
    ///
    /// ```
    /// use icefield::Iceberg;
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("orders.ice");
    /// drop(Iceberg::<u64, u64>::create(&path)?);
    /// let table = Iceberg::<u64, u64>::options().threads(2).open(&path)?;
    /// println!("{:?}", table.recovery().open_time);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.settings.threads = Some(threads);
        self
    }

    /// Sets how many times the smallest table can double. This determines the address space that each table reserves.
    /// For tests with many tiny tables.
    #[doc(hidden)]
    #[must_use]
    pub fn max_depth(mut self, depth: u32) -> Self {
        self.settings.max_depth = depth;
        self
    }

    /// Sets whether the first batch of reads expects that many keys are absent, for tests with few reads.
    #[doc(hidden)]
    #[must_use]
    pub fn expects_misses(mut self, expects: bool) -> Self {
        self.settings.expects_misses = expects;
        self
    }

    /// Sets the dimensions of a new table's buckets (Table 6), for tests and measurements.
    #[doc(hidden)]
    #[must_use]
    pub fn yards(mut self, yards: Yards) -> Self {
        self.settings.yards = yards;
        self
    }
}
