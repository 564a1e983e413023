//! Counts of a table in DRAM: the estimated number of records, and the operations since the table was opened.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard};

use crate::base::counter::ShardedCounter;
use crate::engine::exclusion::lock;
use crate::storage::Medium;

pub(super) struct Tallies {
    /// The estimated number of records: those at the opening, plus the ones added since, less the ones merged away.
    records: ShardedCounter,
    /// The result of [`Tallies::changes`] at the last exact count of the records, and the result of that count.
    exact: [AtomicU64; 2],
    /// Records written.
    writes: ShardedCounter,
    /// Records moved from one level to the next.
    moves: ShardedCounter,
    migrations: ShardedCounter,
    compactions: ShardedCounter,
    /// See [`Tallies::lock_in_vain`].
    in_vain: Mutex<Option<u64>>,
}

impl Tallies {
    pub(super) fn new() -> Self {
        Self {
            records: ShardedCounter::default(),
            exact: [AtomicU64::new(u64::MAX), AtomicU64::new(0)],
            writes: ShardedCounter::default(),
            moves: ShardedCounter::default(),
            migrations: ShardedCounter::default(),
            compactions: ShardedCounter::default(),
            in_vain: Mutex::new(None),
        }
    }

    /// Locks the result of [`Tallies::changes`] at the last attempt to make room; `None` if that attempt succeeded.
    /// The lock also ensures that only one thread makes room at a time.
    pub(super) fn lock_in_vain(&self, storage: &impl Medium) -> MutexGuard<'_, Option<u64>> {
        lock(storage, &self.in_vain)
    }

    /// Changes the estimated number of records.
    #[inline]
    pub(super) fn add_records(&self, change: i64) {
        self.records.add(change);
    }

    /// Counts records that were written.
    #[inline]
    pub(super) fn add_writes(&self, writes: i64) {
        self.writes.add(writes);
    }

    pub(super) fn add_moves(&self, records: usize) {
        self.moves.add(records as i64);
    }

    pub(super) fn add_migration(&self) {
        self.migrations.add(1);
    }

    pub(super) fn add_compaction(&self) {
        self.compactions.add(1);
    }

    /// Returns the estimate as a signed number. Before [`Tallies::reset`] it lacks the records of earlier sessions, and
    /// is negative if more records were merged away than added.
    pub(super) fn balance(&self) -> i64 {
        self.records.sum()
    }

    /// Resets the estimate to a number of records.
    pub(super) fn reset(&self, records: u64) {
        self.records.add((records as i64).wrapping_sub(self.records.sum()));
    }

    /// Returns a number that changes with every write.
    pub(super) fn changes(&self) -> u64 {
        self.writes.sum() as u64
    }

    /// Stores an exact count, if nothing was written while it was taken. `changes` is the result of
    /// [`Tallies::changes`] from before the count.
    pub(super) fn note_exact(&self, changes: u64, records: u64) {
        if self.changes() == changes {
            self.exact[1].store(records, Relaxed);
            self.exact[0].store(changes, Release);
        }
    }

    /// Estimates the number of records.
    pub(super) fn estimate(&self) -> u64 {
        let [changes, records] = [self.exact[0].load(Acquire), self.exact[1].load(Relaxed)];
        if changes == self.changes() {
            return records;
        }
        u64::try_from(self.records.sum()).unwrap_or(0)
    }

    /// Returns the counts for `stats`.
    pub(super) fn details(&self) -> [(&'static str, u64); 3] {
        [
            ("migrations", self.migrations.sum() as u64),
            ("moves", self.moves.sum() as u64),
            ("compactions", self.compactions.sum() as u64),
        ]
    }
}
