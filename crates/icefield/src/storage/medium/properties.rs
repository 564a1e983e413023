//! The properties of a medium, and whether this process may change it.

use std::path::Path;

use super::sealed::Sealed;
use crate::Result;
use crate::storage::commit::SyncMode;
use crate::storage::durability::Durability;

/// The properties of a medium: its place, the events that it survives, the cost of a fence, and whether it may be
/// changed.
pub trait Properties: Sealed {
    /// Fails when this process must not change the table (read-only, poisoned by a failed sync, forked). Every call
    /// that changes a table begins with it; it costs one load.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`], [`crate::Error::Poisoned`] or [`crate::Error::Forked`].
    fn check_writable(&self) -> Result<()>;

    /// Returns whether the regions are private copies of the files, so that stores reach no other process.
    fn is_private(&self) -> bool {
        false
    }

    /// Returns the durability of the files; never `Auto`.
    fn durability(&self) -> Durability;

    /// Returns the table's directory (an invented name for memory and the simulator).
    fn path(&self) -> &Path;

    /// Returns the mode that determines when writes are acknowledged: `Always` wherever a fence costs next to nothing.
    fn sync_mode(&self) -> SyncMode {
        SyncMode::Always
    }

    /// Returns whether a fence costs nothing, so that sharing one gains nothing.
    fn fence_is_free(&self) -> bool {
        false
    }

    /// Returns whether a fence is a sync of files, which takes as long as thousands of operations.
    fn fence_syncs(&self) -> bool {
        false
    }
}

/// Fails after a failed sync, and in a forked child. Does not fail on a medium that is open for reading: there, stores
/// go to private pages and need no sync.
pub(crate) fn sound(storage: &impl Properties) -> Result<()> {
    match storage.check_writable() {
        Err(crate::Error::ReadOnly) => Ok(()),
        answer => answer,
    }
}

/// Fails after a failed sync. Called before a store that overwrites words that the next opening may need, unless the
/// same table call fences before that store and reports the failure. A reader's recovery, which works in private pages,
/// is not stopped.
pub(crate) fn not_poisoned(storage: &impl Properties) -> Result<()> {
    match storage.check_writable() {
        Err(error @ crate::Error::Poisoned) => Err(error),
        _ => Ok(()),
    }
}

/// Fails in a forked child, whose stores would mix with those of its parent. Reads call this before they finish what a
/// crash or a doubling has left undone. On a medium that is open for reading, a child finishes it in private pages.
pub(crate) fn refuse_child(storage: &impl Properties) -> Result<()> {
    match storage.check_writable() {
        Err(error @ crate::Error::Forked) if !storage.is_private() => Err(error),
        _ => Ok(()),
    }
}
