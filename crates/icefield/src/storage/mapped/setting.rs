//! Properties of a medium that its regions depend on, and the errors of region operations.

use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::directory::Directory;
use super::options::HugePages;
use crate::Error;
use crate::storage::io::{Io, Sharing};

/// The backing of a region's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    Memory,
    /// The file, shared.
    Shared,
    /// The file, shared, on persistent memory.
    SharedSync,
    /// Private copies of the file's pages.
    Private,
}

impl Backing {
    pub(super) fn sharing(self) -> Sharing {
        match self {
            Self::Memory | Self::Private => Sharing::Private,
            Self::Shared => Sharing::Shared,
            Self::SharedSync => Sharing::SharedSync,
        }
    }
}

/// The syncs of a medium.
pub(super) trait SyncAlone {
    /// Makes `sync` while no other thread syncs. If it fails, no further syncs are made, and the caller poisons the
    /// medium.
    fn sync_alone(&self, sync: &dyn Fn() -> Result<(), Errno>) -> Result<(), Errno>;
}

/// The properties of the medium that a region depends on.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) io: &'a Io,
    pub(super) syncs: &'a dyn SyncAlone,
    /// The table's directory, for error messages.
    pub(super) path: &'a Path,
    pub(super) directory: Option<&'a Arc<Directory>>,
    pub(super) backing: Backing,
    /// A file's length and a new file's name must be synced before anything relies on them.
    pub(super) syncs_status: bool,
    pub(super) huge_pages: HugePages,
    /// A fence is a sync of pages. New pages are then mapped one by one at their first stores, unless the file system
    /// is nearly full: if they were mapped together, syncs would write them while they are still empty. Huge pages are
    /// not used: each sync would write all 2 MiB.
    pub(super) syncs_pages: bool,
}

/// An error, and whether it leaves the content of the files unknown.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) poisons: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, poisons: false }
    }
}

pub(super) type Outcome<T> = Result<T, Failure>;
