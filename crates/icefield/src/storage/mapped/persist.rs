//! Durability on the real medium: write-backs, fences and syncs.

use std::path::Path;
use std::sync::atomic::{Ordering, compiler_fence};

use super::Mapped;
use super::effort::Effort;
use super::permit::Refusal;
use super::setting::Backing;
use crate::storage::arch;
use crate::storage::commit::{Committed, SyncMode};
use crate::storage::durability::Durability;
use crate::storage::io::Errno;
use crate::storage::medium::{Persist, Properties};
use crate::storage::mutex::lock;
use crate::{Error, Result};

impl Mapped {
    /// Records a range that the next fence of this thread has to sync.
    #[cold]
    fn note_dirty(&self, start: *const u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let regions = lock(&self.regions);
        let found = regions.iter().find_map(|file| Some((file, file.offset_of(start, bytes)?)));
        if let Some((file, offset)) = found {
            self.dirty.note(file, offset..offset + bytes as u64);
        }
    }

    /// Syncs the ranges that this thread has recorded.
    #[cold]
    fn sync_dirty(&self) -> Result<()> {
        self.synced(self.dirty.sync_own())
    }

    /// Poisons the medium if the sync failed. Fails if any sync has ever failed: nothing may be changed then.
    pub(super) fn synced(&self, answer: Result<(), Errno>) -> Result<()> {
        if answer.is_err() {
            self.permit.poison();
        }
        match self.permit.refusal() {
            Some(Refusal::Poisoned) => Err(Error::Poisoned),
            _ => Ok(()),
        }
    }
}

impl Persist for Mapped {
    #[inline(always)]
    fn flush(&self, start: *const u8, bytes: usize) {
        match self.effort {
            Effort::None | Effort::FenceOnly => {}
            Effort::Lines(instruction) => arch::flush_range(instruction, start, bytes),
            Effort::Sync => self.note_dirty(start, bytes),
        }
    }

    #[inline(always)]
    fn flush_line(&self, byte: *const u8) {
        if self.is_free {
            return;
        }
        match self.effort {
            Effort::None | Effort::FenceOnly => {}
            Effort::Lines(instruction) => arch::flush_line(instruction, byte),
            Effort::Sync => self.note_dirty(byte, 1),
        }
    }

    #[inline(always)]
    fn fence(&self) {
        // A failure has poisoned the medium.
        let _ = self.try_fence();
    }

    #[inline(always)]
    fn try_fence(&self) -> Result<()> {
        // SeqCst: all stores that a process has executed survive when it is killed, so it suffices that the compiler
        // keeps their order.
        compiler_fence(Ordering::SeqCst);
        if self.is_free {
            return Ok(());
        }
        match self.effort {
            Effort::None => Ok(()),
            Effort::Lines(_) | Effort::FenceOnly => {
                arch::store_fence();
                Ok(())
            }
            Effort::Sync => self.sync_dirty(),
        }
    }

    #[inline]
    fn fence_later(&self) -> Result<()> {
        if self.effort != Effort::Sync {
            return self.try_fence();
        }
        self.synced(self.dirty.leave_own())
    }

    #[inline]
    fn fence_deferred(&self) -> Result<()> {
        if self.effort != Effort::Sync {
            return Ok(());
        }
        self.synced(self.dirty.fence_deferred())
    }

    #[inline]
    fn begin_fence(&self) -> Result<u64> {
        if self.effort != Effort::Sync {
            return self.try_fence().map(|()| 0);
        }
        Ok(self.dirty.begin_own())
    }

    #[inline]
    fn end_fence(&self, begun: u64) -> Result<()> {
        if self.effort != Effort::Sync {
            return Ok(());
        }
        self.synced(self.dirty.end_own(begun))
    }

    fn committed(&self) -> Committed {
        match self.check_writable() {
            Ok(()) => {}
            // No fence can be pending on a read-only medium.
            Err(Error::ReadOnly) => return Committed::known(Ok(())),
            // Forked: only the parent has the thread that syncs. Poisoned: no further syncs are made.
            refused => return Committed::known(refused),
        }
        if self.effort != Effort::Sync {
            return Committed::known(Ok(()));
        }
        if self.committer.start().is_err() || self.committer.is_current() {
            // Either the committer cannot be started, or it runs a waker that made this call: sync on this thread.
            return Committed::known(self.fence_deferred());
        }
        match self.dirty.ask() {
            Some((group, ticket)) => Committed::by(group, ticket),
            None => Committed::known(Ok(())),
        }
    }
}

impl Properties for Mapped {
    #[inline(always)]
    fn check_writable(&self) -> Result<()> {
        if self.permit.granted() {
            return Ok(());
        }
        match self.permit.refusal() {
            None => Ok(()),
            Some(Refusal::ReadOnly) => Err(Error::ReadOnly),
            Some(Refusal::Poisoned) => Err(Error::Poisoned),
            Some(Refusal::Forked) => Err(Error::Forked),
        }
    }

    fn is_private(&self) -> bool {
        self.backing() == Backing::Private
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn sync_mode(&self) -> SyncMode {
        self.sync
    }

    fn fence_is_free(&self) -> bool {
        self.is_free
    }

    fn fence_syncs(&self) -> bool {
        self.effort == Effort::Sync
    }
}
