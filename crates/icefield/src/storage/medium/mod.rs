//! The interface of all media: map and grow regions, load and store words, flush lines, fence.
//!
//! Each role of a medium is a separate trait, and [`Medium`] is all of them. Tables are written against [`Medium`].
//! Code that needs only one role can require its trait: cells, for example, require [`Words`].

mod bytes;
mod persist;
mod properties;
mod regions;
pub(crate) mod sealed;
mod sim_hooks;
mod words;

use std::path::Path;

use crate::storage::arch::LINE_BYTES;
use crate::storage::region::Region;
use crate::{Error, Result};

pub use bytes::Bytes;
pub use persist::Persist;
pub use properties::Properties;
pub(crate) use properties::{not_poisoned, refuse_child, sound};
pub use regions::Regions;
pub(super) use regions::in_use;
pub use sim_hooks::SimHooks;
pub use words::Words;

/// An opened table directory on some medium. Only [`crate::storage::Mapped`] and the simulator, `Sim`, implement it.
///
/// Its roles are supertraits. The trait adds the calls that begin and end the use by a table, the calls that copy the
/// files, and combinations of the roles' calls.
pub trait Medium:
    Regions + Words + Bytes + Persist + Properties + SimHooks + Send + Sync + Sized + 'static
{
    /// The medium of a copy that [`Medium::copy_regions`] begins.
    type Copied: Medium;

    /// Calls [`Persist::flush`] for a range of a region.
    ///
    /// # Panics
    /// The range lies outside the region.
    #[inline]
    #[track_caller]
    fn flush_range(&self, region: &Region, offset: u64, bytes: u64) {
        let start = region.place(offset, bytes);
        assert!(start.is_some(), "a flush of {bytes} bytes outside {}", region.name());
        if let Some(start) = start {
            self.flush(start.as_ptr(), bytes as usize);
        }
    }

    /// Flushes the lines of one object.
    #[inline(always)]
    #[track_caller]
    fn flush_object<T>(&self, object: &T) {
        let start = std::ptr::from_ref(object).cast();
        // An object no larger than its alignment lies in one line.
        if const { size_of::<T>() <= align_of::<T>() && align_of::<T>() <= LINE_BYTES } {
            self.flush_line(start);
        } else {
            self.flush(start, size_of::<T>());
        }
    }

    /// Flushes one object and fences.
    #[inline(always)]
    #[track_caller]
    fn persist<T>(&self, object: &T) {
        self.flush_object(object);
        self.fence();
    }

    /// Like [`Medium::persist`], but with [`Persist::try_fence`].
    ///
    /// # Errors
    /// As for [`Persist::try_fence`].
    #[inline(always)]
    #[track_caller]
    fn try_persist<T>(&self, object: &T) -> Result<()> {
        self.flush_object(object);
        self.try_fence()
    }

    /// Returns the medium for the exclusive use of one table. A table hands out references into its files. They are
    /// valid only if no other code changes the files. The call therefore refuses a medium whose regions are in use, or
    /// on which another table is open.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] names the conflict.
    fn claimed(self) -> Result<Self> {
        Ok(self)
    }

    /// Copies the table's files, in their present state, into a new table directory at `path`, and returns the number
    /// of bytes copied. The caller ensures that no thread changes them meanwhile.
    ///
    /// # Errors
    /// The copy could not be written (nothing is left at `path` then), or the medium has no files.
    fn backup_to(&self, path: &Path) -> Result<u64> {
        let _ = path;
        Err(Error::Unsupported("this medium has no files to copy".into()))
    }

    /// Begins a copy of the table at `path`: a new, unpublished table directory with the first bytes of the regions in
    /// `parts`. The caller completes and publishes it, and keeps those bytes unchanged during the call.
    ///
    /// # Errors
    /// As for [`Medium::backup_to`].
    fn copy_regions(&self, path: &Path, parts: &[(&Region, u64)]) -> Result<Self::Copied> {
        let _ = (path, parts);
        Err(Error::Unsupported("this medium has no files to copy".into()))
    }

    /// Called once when a new table is complete on the medium. Makes it visible under its path atomically.
    ///
    /// # Errors
    /// The directory could not be synced or renamed. The path then holds no table, unless the renaming could not be
    /// undone.
    fn publish_created(&self) -> Result<()>;

    /// Ends the medium's use by a table: called once by the table's `Drop`, after its last store.
    fn close(&self);
}
