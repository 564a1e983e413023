//! Opening an existing table (§5.4): rolls compactions forward and fills the root from the recovery logs.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::core::Core;
use super::epoch::LogEpoch;
use super::layout::{EntryId, Phase, State};
use super::words::RecordOf;
use crate::Result;
use crate::base::parallel::{Tasks, all_cores, in_parallel};
use crate::storage::Medium;
use crate::storage::superblock::ROOT_OFFSET;
use crate::types::RecordForm;

/// Minimum number of bytes of logs for each thread that replays them.
const REPLAY_BYTES: u64 = 1 << 20;

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Recovers from a crash. Idempotent, so that a crash during recovery does no harm. Returns the number of changes
    /// that were completed or undone. All changes are durable by the caller's next fence, before the first write.
    pub(super) fn recover(&self, phase: Phase) -> Result<u64> {
        self.adopt_levels()?;
        let mut resolved = self.redo_journals()?;
        resolved += self.recover_allocators()?;
        self.fill_used_blocks()?;
        self.adopt_epochs()?;
        if let Some(payloads) = &self.payloads {
            payloads.resume(&self.storage)?;
        }
        self.load_top_filters()?;
        let _pin = self.pin();
        match phase {
            Phase::Stable { .. } => {
                self.replay()?;
                self.begin_epochs();
            }
            Phase::Clearing { set } => {
                self.outlive_logs()?;
                self.begin_epochs();
                self.wipe()?;
                self.set_phase(Phase::Stable { set })?;
                resolved += 1;
            }
            Phase::Packing { set } => {
                self.replay()?;
                self.begin_epochs();
                self.pack_all(set)?;
                resolved += 1;
            }
        }
        for log in 0..self.logs.count() {
            let whole = |record, epoch| self.is_whole(record, epoch);
            self.logs.resume(&self.storage, log, whole)?;
        }
        Ok(resolved)
    }

    /// Returns whether a log's record is not needed, or has its payload. A payload can be missing only where payloads
    /// become durable together with log records.
    fn is_whole(&self, record: RecordOf<R>, epoch: LogEpoch) -> Result<bool> {
        let Some(payloads) = &self.payloads else { return Ok(true) };
        if self.root_words()?.together.load(&self.storage, Acquire) == 0 {
            return Ok(true);
        }
        // A record that was migrated to a level had its payload then. The payload may have been freed since.
        Ok(self.has_arrived(self.hash_of(record), epoch)?
            || payloads.fault(&self.storage, record.reference()).is_none())
    }

    /// Stores whether payloads become durable together with log records from here on. The store is durable by the
    /// caller's next fence. If `together` is `true`, that fence precedes the first record that is logged before its
    /// payload is durable. Otherwise all such records are durable already, and recovery has turned those without a
    /// payload into holes.
    pub(super) fn tell_together(&self, together: bool) -> Result<()> {
        let cell = &self.root_words()?.together;
        if cell.load(&self.storage, Acquire) != u64::from(together) {
            cell.store(&self.storage, together.into(), Release);
            self.storage.flush_object(cell);
        }
        Ok(())
    }

    /// Adopts the number of levels from the root words.
    fn adopt_levels(&self) -> Result<()> {
        let levels = self.root_words()?.levels.load(&self.storage, Acquire);
        if levels == 0 || levels > self.shape.max_levels() as u64 {
            let detail = format!("the number of levels, {levels}, is impossible");
            return Err(self.table.fault(&self.storage, ROOT_OFFSET + 8, detail));
        }
        let (region, bytes) = (self.levels.region(), self.levels.bytes_of(levels as usize));
        if region.len() < bytes {
            let detail =
                format!("the file is shorter than the {bytes} bytes of its {levels} levels");
            return Err(region.fault(&self.storage, region.len(), detail));
        }
        self.levels.adopt(levels as usize);
        Ok(())
    }

    fn recover_allocators(&self) -> Result<u64> {
        let words = self.root_words()?;
        let mut resolved = 0;
        for (class, (pool, words)) in self.runs.iter().zip(&words.runs).enumerate() {
            let owned = |block, tag| self.owns_run(tag, class, block);
            pool.check_used(&self.storage, words)?;
            pool.allocator().raise(&self.storage, words, owned)?;
            // A damaged intent may have raised the number of handed-out blocks to any value.
            pool.check_used(&self.storage, words)?;
            resolved += pool.recover(&self.storage, words, owned)?;
        }
        let owned = |block, tag| self.owns_chained(tag, block);
        self.chains.check_used(&self.storage, &words.chains)?;
        resolved += self.chains.recover(&self.storage, &words.chains, owned)?;
        Ok(resolved)
    }

    /// Sets each root entry's epoch to the one after the latest that has arrived in level 1, or to `NONE` if none has.
    fn adopt_epochs(&self) -> Result<()> {
        let step = self.shape.step(0);
        for entry in 0..self.root.entries() {
            let mut arrived = LogEpoch::NONE;
            for child in 0..1 << step {
                let child = self.level_entry(1, ((entry as u64) << step) + child)?;
                arrived = arrived.or_later(self.state(child)?.epoch);
            }
            let next = if arrived == LogEpoch::NONE { arrived } else { arrived.next() };
            self.root.set_epoch(entry, next);
        }
        Ok(())
    }

    /// Sets the first epoch for root entries for which neither the levels nor the logs have an epoch.
    fn begin_epochs(&self) {
        for entry in 0..self.root.entries() {
            if self.root.epoch(entry) == LogEpoch::NONE {
                self.root.set_epoch(entry, LogEpoch::FIRST);
            }
        }
    }

    /// Fills the root with the log records that have not arrived below. Uses several threads for long logs, as each
    /// log has its own root entries.
    fn replay(&self) -> Result<()> {
        let parts = self.logs.region().len() / REPLAY_BYTES;
        let logs = Tasks::new(self.logs.count());
        in_parallel(all_cores().min(parts as usize).min(self.logs.count()), || {
            while let Some(log) = logs.take() {
                let visit = |chunk, record, epoch| self.replay_one((log, chunk), record, epoch);
                self.logs.replay(&self.storage, log, visit)?;
            }
            Ok(())
        })
        .map(drop)
    }

    fn replay_one(
        &self,
        (log, chunk): (usize, usize),
        record: RecordOf<R>,
        epoch: LogEpoch,
    ) -> Result<()> {
        let hash = self.hash_of(record);
        let entry = self.root_entry(hash);
        if self.has_arrived(hash, epoch)? {
            return Ok(());
        }
        if self.logs.log_of(entry) != log {
            let detail = format!("a record of root entry {entry} is in log {log}");
            if let Some(mended) = &self.mended {
                mended.note(detail);
                return Ok(());
            }
            return Err(self.logs.region().fault(&self.storage, 0, detail));
        }
        if !self.is_whole(record, epoch)? {
            return Ok(());
        }
        if let Some(mended) = &self.mended
            && self.root.is_full(entry)
        {
            self.spill(mended, entry);
        }
        if self.root.is_full(entry) {
            let detail =
                format!("the log has more records of root entry {entry} than the entry has slots");
            return Err(self.logs.region().fault(&self.storage, 0, detail));
        }
        self.root.note_chunk(entry, chunk);
        self.root.push(entry, hash, record);
        self.tallies.add_records(if record.dead { -1 } else { 1 });
        self.root.set_epoch(entry, self.root.epoch(entry).or_later(epoch));
        Ok(())
    }

    /// Returns whether the log records of an epoch have arrived in level 1, in the entry for a hash.
    fn has_arrived(&self, hash: u64, epoch: LogEpoch) -> Result<bool> {
        Ok(!epoch.is_after(self.arrived(hash)?))
    }

    /// Returns the last epoch whose log records with a hash have arrived in level 1. Recovery replays those of later
    /// epochs.
    pub(super) fn arrived(&self, hash: u64) -> Result<LogEpoch> {
        Ok(self.state(self.level_entry(1, self.shape.index(1, hash))?)?.epoch)
    }

    /// Raises the epochs of the root entries to the latest ones in the logs.
    fn outlive_logs(&self) -> Result<()> {
        for log in 0..self.logs.count() {
            self.logs.replay(&self.storage, log, |_, record, epoch| {
                let entry = self.root_entry(self.hash_of(record));
                self.root.set_epoch(entry, self.root.epoch(entry).or_later(epoch));
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Empties all levels, then the root. The entries of level 1 get the epochs of their root entries, so that the
    /// logs' records count as arrived. Called while no thread writes, after the phase word has made the table empty.
    pub(super) fn wipe(&self) -> Result<()> {
        let step = self.shape.step(0);
        for level in 1..=self.levels.count(&self.storage) {
            for index in 0..self.shape.entries(level) {
                let entry = self.level_entry(level, index)?;
                let epoch = match level {
                    1 => self.root.epoch((index >> step) as usize),
                    _ => LogEpoch::NONE,
                };
                self.wipe_entry(entry.id, State { size: 0, epoch })?;
                self.forget_filter(entry);
            }
        }
        self.leaves.forget_all();
        if let Some(payloads) = &self.payloads {
            payloads.release_all(&self.storage)?;
        }
        // P14: all entries are durably empty before the phase becomes stable, so that none of them brings a record
        // back.
        let fenced = self.storage.try_fence();
        for entry in 0..self.root.entries() {
            self.root.empty(entry);
            self.root.set_epoch(entry, self.root.epoch(entry).next());
        }
        self.tallies.reset(0);
        self.tallies.add_writes(1);
        // Even if the fence failed, the table is empty, because the phase word (clearing) is durable.
        fenced
    }

    /// Removes all references from an entry, and stores its state. The stores are flushed.
    pub(super) fn wipe_entry(&self, id: EntryId, state: State) -> Result<()> {
        let entry = self.entry(id)?.entry;
        for cell in entry.runs.iter().chain([&entry.next]) {
            if cell.load(&self.storage, Relaxed) != 0 {
                cell.store(&self.storage, 0, Release);
            }
        }
        if entry.state.load(&self.storage, Relaxed) != state.pack() {
            entry.state.store(&self.storage, state.pack(), Release);
        }
        self.storage.flush(std::ptr::from_ref(entry).cast(), 64);
        Ok(())
    }

    /// Removes every record by one durable store. Called while no thread writes and readers wait.
    pub(super) fn clear(&self) -> Result<()> {
        let words = self.root_words()?;
        let Some(phase) = Phase::unpack(words.phase.load(&self.storage, Acquire)) else {
            return Err(self.table.fault(
                &self.storage,
                ROOT_OFFSET,
                "the phase word is impossible",
            ));
        };
        let set = 1 - phase.set();
        for (pool, words) in self.pools(words) {
            pool.allocator().prepare_switch(&self.storage, words, None);
        }
        // The other set of the allocators' words is durable before the phase word selects it.
        self.storage.try_fence()?;
        // P13, commit point: the table is empty.
        self.set_phase(Phase::Clearing { set })?;
        self.pools(words).for_each(|(pool, _)| pool.allocator().switch());
        self.wipe()?;
        // P15: from here on opening does not repeat the wipe.
        self.set_phase(Phase::Stable { set })
    }
}
