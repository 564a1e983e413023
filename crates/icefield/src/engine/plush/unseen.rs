//! The records of a root entry that windows have added on disks, and that readers do not see before the sync.
//!
//! They are behind those that readers see, in the order of the log, and become visible in this order. Each window counts
//! how many were ever added when it has added its own. When its fence is over, it shows all up to this number: the fence
//! covers what earlier windows have added to the entry, because they began theirs before they released the lock.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The counts of one entry. All but `waiters` change under the lock of the entry, so Relaxed suffices; without the lock
/// they are read for estimates only.
#[derive(Default)]
pub(super) struct Unseen {
    /// Number of windows that have added records and have not ended their fence.
    windows: AtomicU32,
    /// Number of threads that wait until there are none. Windows add no records meanwhile.
    waiters: AtomicU32,
    /// Number of records ever added, and ever shown to readers.
    added: AtomicU64,
    shown: AtomicU64,
}

impl Unseen {
    /// Returns whether a window has not ended its fence.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.windows.load(Relaxed) > 0
    }

    /// Number of records that readers do not see.
    #[inline]
    pub(super) fn records(&self) -> usize {
        // Wraps only without the lock.
        self.added.load(Relaxed).wrapping_sub(self.shown.load(Relaxed)) as usize
    }

    /// Returns whether a thread waits until readers see all records.
    #[inline]
    pub(super) fn is_awaited(&self) -> bool {
        self.waiters.load(Relaxed) > 0
    }

    /// Counts the thread among those that wait, until the result is dropped.
    pub(super) fn wait(&self) -> Waiting<'_> {
        self.waiters.fetch_add(1, Relaxed);
        Waiting(&self.waiters)
    }

    /// Counts a record that a window adds.
    pub(super) fn add(&self) {
        self.added.store(self.added.load(Relaxed) + 1, Relaxed);
    }

    /// Notes that a window has added its records. Returns the number of records ever added.
    pub(super) fn begin(&self) -> u64 {
        self.windows.store(self.windows.load(Relaxed) + 1, Relaxed);
        self.added.load(Relaxed)
    }

    /// Ends what `begin` has begun, with its result. Returns the number of records that the caller must show. If the last
    /// window ends, drops those that no window has shown.
    pub(super) fn end(&self, until: u64, is_durable: bool) -> u64 {
        let before = self.shown.load(Relaxed);
        let due = if is_durable { until.saturating_sub(before) } else { 0 };
        let windows = self.windows.load(Relaxed) - 1;
        self.windows.store(windows, Relaxed);
        let shown = if windows == 0 { self.added.load(Relaxed) } else { before + due };
        self.shown.store(shown, Relaxed);
        due
    }
}

/// Counts a thread among those that wait while it exists.
pub(super) struct Waiting<'a>(&'a AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
