//! The role of a medium that makes stores durable.

use super::properties::Properties;
use crate::Result;
use crate::storage::commit::Committed;

/// Flushes, fences and syncs, which make stores durable.
pub trait Persist: Properties {
    /// Starts the write-back of every line that overlaps the range. The lines are durable after this thread's next
    /// fence. The range must lie in a region of this medium. For any other range the call may end the process by a
    /// fault or a panic, but has no other effect.
    #[track_caller]
    fn flush(&self, start: *const u8, bytes: usize);

    /// Starts the write-back of the one line that holds the byte, as [`Persist::flush`] does for ranges.
    #[inline(always)]
    #[track_caller]
    fn flush_line(&self, byte: *const u8) {
        self.flush(byte, 1);
    }

    /// Returns when every line that this thread has flushed is durable. A fence can fail on `Disk` only. Code that
    /// supports `Disk` calls [`Persist::try_fence`], or [`Properties::check_writable`] after the fence.
    #[track_caller]
    fn fence(&self);

    /// Like [`Persist::fence`], for tables that also support disks, where a fence is a sync. After a failed sync the
    /// system may have written any or none of the flushed pages, and may still write any page later, with the content
    /// that the page then has. So nothing that relies on this fence may be stored any more, and every later fence
    /// fails. On other media, the call costs as much as [`Persist::fence`].
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`], on `Disk` only; later calls of [`Properties::check_writable`] return it, too.
    #[inline(always)]
    #[track_caller]
    fn try_fence(&self) -> Result<()> {
        self.fence();
        Ok(())
    }

    /// Executes a fence that may be deferred: the lines that this thread has flushed are durable after any thread's
    /// next [`Persist::fence_deferred`], or earlier. Media whose fences cost next to nothing fence at once.
    ///
    /// # Errors
    /// As for [`Persist::try_fence`].
    #[inline(always)]
    #[track_caller]
    fn fence_later(&self) -> Result<()> {
        self.try_fence()
    }

    /// Completes the fences that any thread has deferred by [`Persist::fence_later`].
    ///
    /// # Errors
    /// As for [`Persist::try_fence`].
    #[inline(always)]
    #[track_caller]
    fn fence_deferred(&self) -> Result<()> {
        Ok(())
    }

    /// Begins a fence, where a fence is a sync, and returns its number. The lines that this thread has flushed are
    /// durable when [`Persist::end_fence`] has returned for it, or for a fence that any thread has begun later.
    ///
    /// # Errors
    /// As for [`Persist::try_fence`].
    #[inline(always)]
    #[track_caller]
    fn begin_fence(&self) -> Result<u64> {
        self.try_fence().map(|()| 0)
    }

    /// Ends a fence that was begun by [`Persist::begin_fence`]. Must be called for each.
    ///
    /// # Errors
    /// As for [`Persist::try_fence`].
    #[inline(always)]
    #[track_caller]
    fn end_fence(&self, _begun: u64) -> Result<()> {
        Ok(())
    }

    /// Requests a sync of all stores whose fences any thread has deferred so far by [`Persist::fence_later`]. The future
    /// resolves when these are durable.
    #[track_caller]
    fn committed(&self) -> Committed {
        Committed::known(self.fence_deferred().and_then(|()| self.check_writable()))
    }
}
