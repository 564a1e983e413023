//! Lanes: the chunks to which threads append records, each under a mutex of its own.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};

use crate::base::thread;
use crate::engine::exclusion::{lock, try_lock};
use crate::storage::Medium;

/// The largest number of chunks to which contending threads append at the same time.
const MAX_LANES: usize = 8;

/// What one lane has written.
#[derive(Default)]
pub(super) struct Lane {
    /// The chunk to which records are appended, and the offset of the next record.
    pub(super) current: Option<(u32, u64)>,
    /// Bytes and records that the session has written through this lane.
    pub(super) bytes: u64,
    pub(super) records: u64,
}

/// Two lines, because processors prefetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Place(Mutex<Lane>);

#[derive(Default)]
pub(super) struct Lanes {
    places: [Place; MAX_LANES],
    /// The number of lanes in use, less one. Grows on contention, so that a log with one writer fills one chunk.
    contended: AtomicUsize,
}

impl Lanes {
    /// Locks a lane for the calling thread, if possible one that no other thread uses.
    #[inline]
    pub(super) fn enter(&self, storage: &impl Medium) -> MutexGuard<'_, Lane> {
        // Relaxed, here and below: any lane will do.
        let used = self.contended.load(Relaxed) + 1;
        let mine = &self.places[thread::number() % used.min(MAX_LANES)].0;
        try_lock(mine).unwrap_or_else(|| self.enter_contended(storage, used, mine))
    }

    #[cold]
    fn enter_contended<'a>(
        &'a self,
        storage: &impl Medium,
        used: usize,
        mine: &'a Mutex<Lane>,
    ) -> MutexGuard<'a, Lane> {
        // An increment may be lost: the number only affects speed.
        self.contended.store(used.min(MAX_LANES - 1), Relaxed);
        let free = self.places.iter().take(used + 1).find_map(|place| try_lock(&place.0));
        free.unwrap_or_else(|| lock(storage, mine))
    }

    /// Locks one lane after the other. The caller holds no lane.
    pub(super) fn each<'a>(
        &'a self,
        storage: &'a impl Medium,
    ) -> impl Iterator<Item = MutexGuard<'a, Lane>> {
        self.places.iter().map(|place| lock(storage, &place.0))
    }
}
