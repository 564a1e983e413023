//! How many records there are, without a shared counter on the way of every insert.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64};

use crate::Result;
use crate::base::counter::ShardedCounter;

/// One count per parity of the generation, so that a writer which `clear` overtakes counts where nobody looks.
pub(crate) struct Length {
    counts: [Count; 2],
    /// Serialises counting.
    counting: Mutex<()>,
}

#[derive(Default)]
struct Count {
    /// Records at the beginning of the session, when `known`.
    base: AtomicI64,
    known: AtomicBool,
    /// Inserted less removed since.
    change: ShardedCounter,
}

impl Length {
    /// `records`: what the last clean shutdown wrote down.
    pub(crate) fn new(generation: u64, records: Option<u64>) -> Self {
        let length =
            Self { counts: [Count::default(), Count::default()], counting: Mutex::new(()) };
        let count = length.count(generation);
        count.base.store(records.unwrap_or(0) as i64, Relaxed);
        // Release: pairs with the Acquire in `known`; who sees that it is known sees `base`.
        count.known.store(records.is_some(), Release);
        length
    }

    fn count(&self, generation: u64) -> &Count {
        &self.counts[(generation & 1) as usize]
    }

    #[inline]
    pub(crate) fn add(&self, generation: u64, records: i64) {
        self.count(generation).change.add(records);
    }

    /// Constant time; `None` while the number at the beginning of the session is unknown.
    pub(crate) fn known(&self, generation: u64) -> Option<u64> {
        let count = self.count(generation);
        // Acquire: pairs with the Release that follows the store of `base`.
        count.known.load(Acquire).then(|| self.estimate(generation))
    }

    /// Constant time; lacks what was there at the beginning of the session while that is unknown.
    pub(crate) fn estimate(&self, generation: u64) -> u64 {
        let count = self.count(generation);
        u64::try_from(count.base.load(Relaxed) + count.change.sum()).unwrap_or(0)
    }

    /// Exact when quiescent; calls `scan` to count all records when the number at the beginning is unknown.
    pub(crate) fn exact(&self, generation: u64, scan: impl FnOnce() -> Result<u64>) -> Result<u64> {
        if let Some(known) = self.known(generation) {
            return Ok(known);
        }
        let _counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.known(generation) {
            return Ok(known);
        }
        let counted = scan()?;
        let count = self.count(generation);
        count.base.store(counted as i64 - count.change.sum(), Relaxed);
        // Release: as in `new`.
        count.known.store(true, Release);
        Ok(counted)
    }

    /// A generation begins, empty.
    pub(crate) fn start(&self, generation: u64) {
        let count = self.count(generation);
        count.base.store(-count.change.sum(), Relaxed);
        // Release: as in `new`.
        count.known.store(true, Release);
    }
}
