//! The number of records, kept without a shared counter in the path of every insert.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64};

use crate::Result;
use crate::base::counter::ShardedCounter;

/// The number of records. There is one count for even generations and one for odd generations. If `clear` overtakes a
/// writer, the writer adds to the count of the old generation, which is not read any more.
pub(crate) struct Length {
    counts: [Count; 2],
    /// Serialises scans that count all records.
    counting: Mutex<()>,
}

#[derive(Default)]
struct Count {
    /// If `known`, the number of records minus `change`: the number of records at the beginning of the session, unless
    /// the generation began later.
    base: AtomicI64,
    known: AtomicBool,
    /// Records inserted minus records removed in this session.
    change: ShardedCounter,
}

impl Length {
    /// Creates the counts of a session. `records` is the number that the last clean shutdown stored.
    pub(crate) fn new(generation: u64, records: Option<u64>) -> Self {
        let length =
            Self { counts: [Count::default(), Count::default()], counting: Mutex::new(()) };
        let count = length.count(generation);
        count.base.store(records.unwrap_or(0) as i64, Relaxed);
        // Release: pairs with the Acquire in `known`; a thread that reads `true` also sees `base`.
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

    /// Returns the number of records in constant time; `None` while the number at the beginning of the session is
    /// unknown.
    pub(crate) fn known(&self, generation: u64) -> Option<u64> {
        let count = self.count(generation);
        // Acquire: pairs with the Release that follows the store of `base`.
        count.known.load(Acquire).then(|| self.estimate(generation))
    }

    /// Returns an estimate in constant time. Does not include the records from the beginning of the session while their
    /// number is unknown.
    pub(crate) fn estimate(&self, generation: u64) -> u64 {
        let count = self.count(generation);
        u64::try_from(count.base.load(Relaxed) + count.change.sum()).unwrap_or(0)
    }

    /// Returns the number of records, exact when quiescent. Calls `scan` to count them if the number at the beginning
    /// of the session is unknown.
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

    /// Begins a new, empty generation.
    pub(crate) fn start(&self, generation: u64) {
        let count = self.count(generation);
        count.base.store(-count.change.sum(), Relaxed);
        // Release: as in `new`.
        count.known.store(true, Release);
    }
}
