//! Relaxed writes (§5.7): records that are in no log, and the checkpoint that makes them durable.

use super::Plush;
use super::core::Core;
use super::incremental_migration::Pace;
use super::words::RecordOf;
use crate::Result;
use crate::base::parallel::{Tasks, in_parallel, threads_for};
use crate::key::{Data, Key, Raw, Value};
use crate::record::LookupKey;
use crate::storage::Medium;
use crate::table::{Arg, Owned};

/// Root entries that a thread takes at a time.
const ENTRIES_AT_A_TIME: usize = 8;

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// Writes one record to the root only. The caller is not pinned.
    fn put_unlogged(&self, probe: &LookupKey<'_>, value: &Raw<'_>) -> Result<()> {
        self.make_payload_room()?;
        let _pin = self.pin();
        self.fits(probe, value)?;
        let value = self.write_payload(probe, value)?;
        if self.payloads.is_some() {
            // The thread that later moves the record fences only its own lines, and calls `fence_deferred` for these.
            self.storage.fence_later().inspect_err(|_| self.finish_payload(value))?;
        }
        let record = RecordOf::<K, V> { key: self.key_words(probe), value, dead: false };
        let admitted = self.admit_unlogged(probe.hash, record);
        self.finish_payload(value);
        admitted
    }

    fn admit_unlogged(&self, hash: u64, record: RecordOf<K, V>) -> Result<()> {
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

    /// Moves every record that is in no log to level 1, on several threads.
    pub(super) fn checkpoint(&self, threads: usize) -> Result<()> {
        let entries = self.root.entries();
        let tasks = Tasks::new(entries.div_ceil(ENTRIES_AT_A_TIME));
        let migrate = |entry: usize| -> Result<()> {
            let _pin = self.pin();
            let held = self.root.lock(&self.storage, entry);
            if self.root.has_unlogged(entry) {
                self.migrate_with_others(&held, |entry| self.root.has_unlogged(entry))?;
            }
            Ok(())
        };
        let work = || -> Result<()> {
            while let Some(task) = tasks.take() {
                let first = task * ENTRIES_AT_A_TIME;
                for entry in first..(first + ENTRIES_AT_A_TIME).min(entries) {
                    // A hash that belongs to the entry.
                    let hash = (entry as u64).rotate_right(self.shape.root_bits);
                    self.with_room(hash, || migrate(entry))?;
                }
            }
            Ok(())
        };
        in_parallel(threads_for(threads, entries, ENTRIES_AT_A_TIME), work).map(drop)
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Plush<K, V, M> {
    /// Does a [`put`](Self::put) without a log (§5.7): the record is durable after the next
    /// [`checkpoint`](Self::checkpoint), [`sync`](Self::sync) or clean shutdown, or earlier. After an earlier crash
    /// each key has one of the values that it has had since the last of these, or the one it had then. Reads see the
    /// record at once.
    ///
    /// # Errors
    /// As [`try_insert`](Self::try_insert).
    ///
    /// ```
    /// let table = icefield::Plush::<u64, u64>::in_memory()?;
    /// for key in 0..1000 {
    ///     table.put_unlogged(key, key)?;
    /// }
    /// table.checkpoint(1)?; // Durable from here on.
    /// assert_eq!(table.get(7)?, Some(7));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn put_unlogged(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<()> {
        let core = &self.core;
        core.storage.check_writable()?;
        let _pass = core.gate.enter();
        let (probe, value) = (core.hash_key(key), V::raw(value));
        core.with_room(probe.hash, || core.put_unlogged(&probe, &value))
    }

    /// Makes all records durable that were put without a log before, on `threads` threads. Root entries without such
    /// records remain as they are.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`], [`crate::Error::ReadOnly`]; records that could not move remain without a log.
    ///
    /// ```
    /// let table = icefield::Plush::<str, u64>::in_memory()?;
    /// table.put_unlogged("answer", 42)?;
    /// table.checkpoint(2)?;
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn checkpoint(&self, threads: usize) -> Result<()> {
        self.core.storage.check_writable()?;
        let _pass = self.core.gate.enter();
        self.core.checkpoint(threads)
    }

    /// Calls [`put_unlogged`](Self::put_unlogged) for each record, then [`checkpoint`](Self::checkpoint) (§5.7).
    ///
    /// # Errors
    /// As these; records before the failure may be there.
    ///
    /// ```
    /// let table = icefield::Plush::<u64, u64>::in_memory()?;
    /// table.bulk_load((0..1000).map(|key| (key, key * 2)))?;
    /// assert_eq!(table.get(500)?, Some(1000));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn bulk_load(&self, records: impl IntoIterator<Item = (Owned<K>, Owned<V>)>) -> Result<()> {
        for (key, value) in records {
            self.put_unlogged(K::arg(&key), <V as Data>::arg(&value))?;
        }
        self.checkpoint(1)
    }

    pub(super) fn sync_now(&self) -> Result<()> {
        match self.core.storage.check_writable() {
            // No record can have been put.
            Err(crate::Error::ReadOnly) => return Ok(()),
            other => other?,
        }
        self.checkpoint(1)?;
        self.core.storage.fence_deferred()?;
        self.core.storage.check_writable()
    }
}
