//! The interface that scenarios need of a table on real files: kills, failing system calls, and damaged files.

use std::path::Path;
use std::sync::Arc;

use icefield::storage::FaultPlan;
use icefield::{Durability, Durable, Result, SyncMode};

use crate::subject::Sample;

/// A table on real files and in anonymous memory.
pub trait FileSubject: Durable<Key: Sample, Value: Sample> + Sized + 'static {
    /// The table's name in commands and reports.
    const NAME: &'static str;
    /// True if the design supports [`Durability::Disk`].
    const DISKS: bool = false;

    /// Creates a table at `path`, with a small geometry selected by `how.variant`.
    ///
    /// # Errors
    /// Returns the table's error.
    fn create_at(path: &Path, how: FileOptions) -> Result<Self>;

    /// Creates a table at `path` with default geometry.
    ///
    /// # Errors
    /// Returns the table's error.
    fn create_whole(path: &Path) -> Result<Self>;

    /// Opens the table at `path`.
    ///
    /// # Errors
    /// Returns the table's error.
    fn open_at(path: &Path, how: FileOptions) -> Result<Self>;

    /// Opens the table at `path` read-only, without changing its files.
    ///
    /// # Errors
    /// Returns the table's error.
    fn open_to_read(path: &Path) -> Result<Self>;

    /// Creates a table in anonymous memory.
    ///
    /// # Errors
    /// Returns the table's error.
    fn in_memory(variant: u64) -> Result<Self>;
}

/// In designs that support disks, variants from this one on have the tiny geometries of the simulated tables.
pub const TINY: u64 = 1 << 32;

/// Options for creating or opening a [`FileSubject`].
#[derive(Clone, Debug, Default)]
pub struct FileOptions {
    /// Selects the geometry of a new table.
    pub variant: u64,
    /// The medium.
    pub durability: Durability,
    /// Determines when writes are acknowledged, on [`Durability::Disk`].
    pub sync: SyncMode,
    /// Maximum total size of the table's files.
    pub max_bytes: Option<u64>,
    /// System calls that fail or kill the process.
    pub faults: Option<Arc<FaultPlan>>,
}
