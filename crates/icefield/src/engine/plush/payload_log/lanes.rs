//! Lanes: the chunks to which threads append records. Each has a mutex.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};

use crate::base::thread;
use crate::engine::exclusion::{lock, try_lock};
use crate::storage::Medium;

/// The largest number of chunks to which contending threads append at the same time.
const MAX_LANES: usize = 8;

/// The chunk to which a lane's records are appended, and the offset of the next record.
pub(super) type Current = Option<(u32, u64)>;

/// Two lines, because processors prefetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Lane(Mutex<Current>);

#[derive(Default)]
pub(super) struct Lanes {
    lanes: [Lane; MAX_LANES],
    /// The number of lanes in use, less one. Grows when a thread finds its lane taken, so that a log with one writer
    /// fills one chunk.
    contended: AtomicUsize,
}

impl Lanes {
    /// Locks a lane for the calling thread, if possible one that no other thread uses.
    #[inline]
    pub(super) fn enter(&self, storage: &impl Medium) -> MutexGuard<'_, Current> {
        // Relaxed, here and below: any lane will do.
        let used = self.contended.load(Relaxed) + 1;
        let mine = &self.lanes[thread::number() % used].0;
        try_lock(mine).unwrap_or_else(|| self.enter_contended(storage, used, mine))
    }

    #[cold]
    fn enter_contended<'a>(
        &'a self,
        storage: &impl Medium,
        used: usize,
        mine: &'a Mutex<Current>,
    ) -> MutexGuard<'a, Current> {
        self.contended.fetch_max(used.min(MAX_LANES - 1), Relaxed);
        let free = self.lanes.iter().take(used + 1).find_map(|lane| try_lock(&lane.0));
        free.unwrap_or_else(|| lock(storage, mine))
    }

    /// Locks one lane after the other. The caller holds no lane.
    pub(super) fn each<'a>(
        &'a self,
        storage: &'a impl Medium,
    ) -> impl Iterator<Item = MutexGuard<'a, Current>> {
        self.lanes.iter().map(|lane| lock(storage, &lane.0))
    }

    /// Lets all threads enter the first lane again, until they contend for it.
    pub(super) fn narrow(&self) {
        self.contended.store(0, Relaxed);
    }
}
