//! The options of tables opened by name.

use crate::storage::{Durability, SyncMode};

/// Options of [`AnyTable::create`](crate::AnyTable::create) and [`AnyTable::open_with`](crate::AnyTable::open_with).
/// The fields have the same meaning as the options of the typed tables.
///
/// ```
/// use icefield::{AnyOptions, AnyTable};
/// let directory = tempfile::tempdir()?;
/// let options = AnyOptions { capacity: Some(1000), ..AnyOptions::default() };
/// let table = AnyTable::create(directory.path().join("t.ice"), "iceberg", "u64", "str", &options)?;
/// assert!(table.stats().capacity >= 1000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct AnyOptions {
    /// The number of records that a new table takes before it must grow.
    pub capacity: Option<u64>,
    /// The medium, which determines what the table survives.
    pub durability: Durability,
    /// Determines when writes are acknowledged with [`Durability::Disk`].
    pub sync: SyncMode,
    /// The maximum total size of the table's files, in bytes.
    pub max_bytes: Option<u64>,
    /// If `true`, reads verify the checksums of keys and values that have one, and fail if a checksum is wrong.
    pub verify: bool,
}
