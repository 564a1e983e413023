//! What a table on real files must offer to be killed, starved and damaged.

use std::path::Path;
use std::sync::Arc;

use icefield::pm::FaultPlan;
use icefield::{Durability, Durable, Result, SyncMode};

use crate::subject::Sample;

/// A table on real files and in anonymous memory.
pub trait FileSubject: Durable<Key: Sample, Value: Sample> + Sized + 'static {
    /// The table's name in commands and reports.
    const NAME: &'static str;
    /// Whether the design takes [`Durability::Disk`].
    const DISKS: bool = false;

    /// A new table at `path`, of a small geometry picked by `how.variant`.
    ///
    /// # Errors
    /// The table's own.
    fn create_at(path: &Path, how: FileOptions) -> Result<Self>;

    /// A new table at `path`, as a program would make one that says nothing of shapes.
    ///
    /// # Errors
    /// The table's own.
    fn create_whole(path: &Path) -> Result<Self>;

    /// Opens the table at `path`.
    ///
    /// # Errors
    /// The table's own.
    fn open_at(path: &Path, how: FileOptions) -> Result<Self>;

    /// Opens the table at `path` for reading only, changing nothing there.
    ///
    /// # Errors
    /// The table's own.
    fn open_to_read(path: &Path) -> Result<Self>;

    /// A new table in anonymous memory.
    ///
    /// # Errors
    /// The table's own.
    fn in_memory(variant: u64) -> Result<Self>;
}

/// From this variant on tables that live on disks are as small as those on the simulated medium.
pub const TINY: u64 = 1 << 32;

/// How a [`FileSubject`] is created or opened.
#[derive(Clone, Debug, Default)]
pub struct FileOptions {
    /// Picks the geometry when the table is created.
    pub variant: u64,
    /// The medium.
    pub durability: Durability,
    /// When writes are acknowledged, on [`Durability::Disk`].
    pub sync: SyncMode,
    /// Most bytes that the table's files may take together.
    pub max_bytes: Option<u64>,
    /// System calls that shall fail or kill.
    pub faults: Option<Arc<FaultPlan>>,
}
