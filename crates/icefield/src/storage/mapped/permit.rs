//! The word that determines whether this process may change the table.
//!
//! It lies in a separate page, which the kernel wipes in every forked child, so that one load tests three conditions:
//! the table is open for writing, no sync has failed, and the process is not a forked child.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use crate::storage::io::{Io, Placement};

/// The reason why changes are refused.
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
    /// The value in a forked child.
    const WIPED: u32 = 0;
    pub(super) const WRITABLE: u32 = 1;
    pub(super) const READ_ONLY: u32 = 2;
    const POISONED: u32 = 3;
    /// Writable, on a kernel that cannot wipe pages: each check compares process ids.
    const WRITABLE_IF_OWNER: u32 = 4;

    pub(super) fn new(io: &Io, state: u32) -> Result<Self, Errno> {
        let page_bytes = rustix::param::page_size();
        let base = io.reserve_addresses(page_bytes)?;
        let permit = Self { page: base.cast(), page_bytes, owner: getpid(), io: io.clone() };
        // SAFETY: the page was just reserved and is not in use.
        unsafe { io.map_zeros(base, page_bytes, Placement::Replace) }?;
        // SAFETY: the page is anonymous, private and belongs to this permit.
        let wiped = unsafe { io.wipe_on_fork(base, page_bytes) };
        let state =
            if wiped.is_err() && state == Self::WRITABLE { Self::WRITABLE_IF_OWNER } else { state };
        permit.word().store(state, Ordering::Relaxed);
        Ok(permit)
    }

    #[inline(always)]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: mapped and zeroed by `new`, unmapped by `drop`; it is only accessed as an atomic.
        unsafe { self.page.as_ref() }
    }

    /// Returns whether changes are allowed, by one load. After `false`, [`Permit::refusal`] decides.
    #[inline(always)]
    pub(super) fn granted(&self) -> bool {
        // Relaxed: the thread that poisons the table then reports the failure itself. Other threads may see the old
        // value for the duration of a cache miss, as if their changes had come before the failure.
        self.word().load(Ordering::Relaxed) == Self::WRITABLE
    }

    /// Returns why changes are refused, or `None` if they are allowed.
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

    /// Refuses all later changes, after a failed sync.
    #[cold]
    pub(super) fn poison(&self) {
        for writable in [Self::WRITABLE, Self::WRITABLE_IF_OWNER] {
            // Relaxed: see `granted`. Other states do not change.
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
        // SAFETY: the page belongs to this permit, which is being dropped.
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
