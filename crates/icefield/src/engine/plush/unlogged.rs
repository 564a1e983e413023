//! Relaxed writes (§5.7): records that are in no log, and the checkpoint that makes them durable.

use super::Plush;
use super::core::Core;
use super::incremental_migration::Pace;
use super::words::RecordOf;
use crate::Result;
use crate::base::parallel::{all_cores, each_range, threads_for};
use crate::engine::LookupKey;
use crate::storage::Medium;
use crate::types::{Raw, RecordForm};

/// Number of root entries that a thread takes at a time.
const ENTRIES_AT_A_TIME: usize = 8;
/// Minimum number of root entries with records in no log for each thread, if the caller does not choose the number of
/// threads.
const ENTRIES_EACH: usize = 32;

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Writes one record to the root only. The calling thread must not be pinned.
    fn put_unlogged(&self, probe: &LookupKey<'_>, value: &Raw<'_>) -> Result<()> {
        self.make_payload_room()?;
        let _pin = self.pin();
        self.fits(probe, value)?;
        let value = self.write_payload(probe, value)?;
        if self.payloads.is_some() {
            // Another thread may migrate the record, and its fence does not cover lines that this thread flushed. A
            // migration therefore calls `fence_deferred`, which covers the lines that any thread flushed before it
            // called `fence_later`.
            self.storage.fence_later().inspect_err(|_| self.finish_payload(value))?;
        }
        let record = RecordOf::<R> { key: self.key_words(probe), value, dead: false };
        let admitted = self.admit_unlogged(probe.hash, record);
        self.finish_payload(value);
        admitted
    }

    fn admit_unlogged(&self, hash: u64, record: RecordOf<R>) -> Result<()> {
        loop {
            let held = self.hold(hash);
            if self.root.is_full(held.entry) {
                self.empty_together(&held)?;
                continue;
            }
            self.root.note_unlogged(held.entry);
            self.root.push(held.entry, hash, record);
            self.note_written(1, 1);
            self.step_ahead(&held, Pace::Whole);
            return Ok(());
        }
    }

    /// Moves every record that is in no log to level 1, on several threads. The caller is inside the gate, has closed it,
    /// or is the only user of the table.
    pub(super) fn checkpoint(&self, threads: usize) -> Result<()> {
        let migrate = |entry: usize| -> Result<()> {
            let _pin = self.pin();
            let held = self.root.lock(&self.storage, entry);
            if self.root.has_unlogged(entry) {
                self.migrate_with_others(&held, |entry| self.root.has_unlogged(entry))?;
            }
            Ok(())
        };
        let sizes = (ENTRIES_AT_A_TIME, ENTRIES_AT_A_TIME);
        each_range(threads, self.root.entries(), sizes, |mut entries| {
            entries.try_for_each(|entry| {
                // A hash whose root entry is `entry`.
                let hash = (entry as u64).rotate_right(self.shape.root_bits);
                self.with_room(hash, || migrate(entry))
            })
        })
    }

    /// Calls [`Core::checkpoint`] with as many threads as have enough to do.
    pub(super) fn checkpoint_all(&self) -> Result<()> {
        let entries = (0..self.root.entries()).filter(|&entry| self.root.has_unlogged(entry));
        self.checkpoint(threads_for(all_cores(), entries.count(), ENTRIES_EACH))
    }
}

impl<R: RecordForm, M: Medium> Plush<R, M> {
    /// Writes a record without a log; see [`Plush::put_unlogged`](crate::Plush::put_unlogged).
    pub(crate) fn put_unlogged(&self, key: &Raw<'_>, value: &Raw<'_>) -> Result<()> {
        let core = &self.core;
        core.storage.check_writable()?;
        let _pass = core.exclusion.enter();
        let probe = core.hash_key(key);
        core.with_room(probe.hash, || core.put_unlogged(&probe, value))
    }

    /// Makes the records durable that were put without a log, on `threads` threads. If `threads` is 0, uses as many cores
    /// as have enough work.
    pub(crate) fn checkpoint(&self, threads: usize) -> Result<()> {
        self.core.storage.check_writable()?;
        let _pass = self.core.exclusion.enter();
        if threads == 0 { self.core.checkpoint_all() } else { self.core.checkpoint(threads) }
    }

    pub(super) fn sync_now(&self) -> Result<()> {
        match self.core.storage.check_writable() {
            // A read-only session has written no records, so there is nothing to make durable.
            Err(crate::Error::ReadOnly) => return Ok(()),
            other => other?,
        }
        self.checkpoint(0)?;
        self.core.storage.fence_deferred()?;
        self.core.storage.check_writable()
    }
}
