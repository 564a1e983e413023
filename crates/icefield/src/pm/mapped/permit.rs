//! The word that says whether this process may change the table.
//!
//! It lies in a page of its own which the kernel wipes in every child of a fork, so that one load answers all three
//! questions: opened for writing? no failed sync? not forked?

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use crate::pm::io::{Io, Placement};

/// Why changes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    ReadOnly,
    Poisoned,
    Forked,
}

#[derive(Debug)]
pub(super) struct Permit {
    page: NonNull<AtomicU32>,
    page_bytes: usize,
    owner: Pid,
    io: Io,
}

// SAFETY: the page holds one atomic word, mapped until the permit is dropped.
unsafe impl Send for Permit {}
// SAFETY: as above.
unsafe impl Sync for Permit {}

impl Permit {
    /// What the kernel leaves in a child.
    const WIPED: u32 = 0;
    pub(super) const WRITABLE: u32 = 1;
    pub(super) const READ_ONLY: u32 = 2;
    const POISONED: u32 = 3;
    /// Writable, on a kernel that cannot wipe pages: each question compares process ids.
    const WRITABLE_IF_OWNER: u32 = 4;

    pub(super) fn new(io: &Io, state: u32) -> Result<Self, Errno> {
        let page_bytes = rustix::param::page_size();
        let base = io.reserve_addresses(page_bytes)?;
        let permit = Self { page: base.cast(), page_bytes, owner: getpid(), io: io.clone() };
        // SAFETY: the page was just reserved and is not in use.
        unsafe { io.map_zeros(base, page_bytes, Placement::Replace) }?;
        // SAFETY: the page is anonymous, private and ours.
        let wiped = unsafe { io.wipe_on_fork(base, page_bytes) };
        let state =
            if wiped.is_err() && state == Self::WRITABLE { Self::WRITABLE_IF_OWNER } else { state };
        permit.word().store(state, Ordering::Relaxed);
        Ok(permit)
    }

    #[inline(always)]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: mapped and zeroed by `new`, unmapped by `drop`; nobody forms anything but atomics over it.
        unsafe { self.page.as_ref() }
    }

    /// Whether changes are allowed, by one load. `false` means: ask [`Permit::refusal`].
    #[inline(always)]
    pub(super) fn granted(&self) -> bool {
        // Relaxed: who poisoned the table did so on the thread that then reports the failure; other threads may go on
        // for the length of a cache miss, as they could have done before it.
        self.word().load(Ordering::Relaxed) == Self::WRITABLE
    }

    /// Why changes are refused, if they are.
    #[cold]
    pub(super) fn refusal(&self) -> Option<Refusal> {
        match self.word().load(Ordering::Relaxed) {
            Self::WRITABLE => None,
            Self::WIPED => Some(Refusal::Forked),
            Self::READ_ONLY => Some(Refusal::ReadOnly),
            Self::WRITABLE_IF_OWNER if self.is_owner() => None,
            Self::WRITABLE_IF_OWNER => Some(Refusal::Forked),
            _ => Some(Refusal::Poisoned),
        }
    }

    /// Refuses all later changes: a sync failed.
    #[cold]
    pub(super) fn poison(&self) {
        for writable in [Self::WRITABLE, Self::WRITABLE_IF_OWNER] {
            // Relaxed: see `granted`. Other states stay as they are.
            let _ = self.word().compare_exchange(
                writable,
                Self::POISONED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    fn is_owner(&self) -> bool {
        getpid() == self.owner
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody uses it any more.
        unsafe { self.io.unmap(self.page.cast(), self.page_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_why() {
        let io = Io::default();
        let writable = Permit::new(&io, Permit::WRITABLE).unwrap();
        assert!(writable.granted());
        assert_eq!(writable.refusal(), None);
        writable.poison();
        assert!(!writable.granted());
        assert_eq!(writable.refusal(), Some(Refusal::Poisoned));

        let read_only = Permit::new(&io, Permit::READ_ONLY).unwrap();
        read_only.poison();
        assert_eq!(read_only.refusal(), Some(Refusal::ReadOnly));

        let by_owner = Permit::new(&io, Permit::WRITABLE_IF_OWNER).unwrap();
        assert!(!by_owner.granted());
        assert_eq!(by_owner.refusal(), None);
        by_owner.poison();
        assert_eq!(by_owner.refusal(), Some(Refusal::Poisoned));
    }
}
