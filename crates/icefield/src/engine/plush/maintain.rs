//! Maintenance: `check`, `backup`, `stats`, and preallocated buckets. `salvage` has its own module.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::Plush;
use super::core::Core;
use super::epoch::LogEpoch;
use super::filter;
use super::layout::{CLASSES, EntryRef, MAX_BUCKETS, class_of};
use super::payload_log::PayloadLog;
use super::scan::Width;
use crate::Result;
use crate::report::{BackupReport, CheckReport, Stats};
use crate::storage::Medium;
use crate::storage::alloc::{Pool, Words};
use crate::types::{RecordForm, Types};

/// The state of a check.
#[derive(Default)]
struct Checking {
    report: CheckReport,
    /// Blocks that entries refer to, by class.
    owned: [HashSet<u32>; CLASSES],
    chained: HashSet<u32>,
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Gives every entry of the first `levels` levels all its buckets. Called before other threads can access the
    /// table.
    pub(super) fn preallocate(&self, levels: usize) -> Result<()> {
        let levels = levels.min(self.shape.max_levels());
        if levels > 0 {
            let entries = self.shape.entries_above(levels + 1);
            self.check_room(entries.saturating_mul(self.shape.records() as u64))?;
        }
        for level in 1..=levels {
            if level > self.levels.count(&self.storage) {
                self.levels.add(&self.storage, self.root_words()?)?;
            }
            let entries = 0..self.shape.entries(level);
            for first in entries.clone().step_by(MAX_BUCKETS) {
                let some = first..entries.end.min(first + MAX_BUCKETS as u64);
                let all_records =
                    |index| Ok((self.level_entry(level, index)?, self.shape.records()));
                self.provide_now(&some.map(all_records).collect::<Result<Vec<_>>>()?)?;
            }
        }
        Ok(())
    }

    /// Checks I1 to I4 for all entries.
    fn check_levels(&self, checking: &mut Checking) {
        for level in 1..=self.levels.count(&self.storage) {
            for index in 0..self.shape.entries(level) {
                let checked = self.level_entry(level, index).and_then(|first| {
                    let chain = self.chain_of(first)?;
                    if self.has_leaves(first)? && !self.are_leaves_apart(first)? {
                        checking.report.fault(format!("I3: leaves of {:?} overlap", first.id));
                    }
                    chain
                        .into_iter()
                        .try_for_each(|entry| self.check_entry(level, index, entry, checking))
                });
                if let Err(error) = checked {
                    checking.report.fault(format!("I1: {error}"));
                }
            }
        }
    }

    fn check_entry(
        &self,
        level: usize,
        index: u64,
        entry: EntryRef<'_>,
        checking: &mut Checking,
    ) -> Result<()> {
        let (id, state) = (entry.id, self.state(entry)?);
        self.check_blocks(entry, checking);
        let first = self.level_entry(level, index)?;
        let is_first = id == first.id;
        if state.epoch != LogEpoch::NONE && !(level == 1 && is_first) {
            checking.report.fault(format!("I4: {id:?} of level {level} has an epoch"));
        }
        let parent = (index >> (self.shape.prefix(level) - self.shape.prefix(0))) as usize;
        if level == 1 && !self.root.epoch(parent).is_after(state.epoch) {
            checking.report.fault(format!("I4: the epoch of {id:?} is ahead of its root entry's"));
        }
        for at in 0..state.size {
            let record = self.record(entry, at)?;
            let hash = self.hash_of(record);
            let (bucket, _) = self.slot_of(at);
            if self.shape.index(level, hash) != index {
                checking
                    .report
                    .fault(format!("I2: record {at} of {id:?} belongs to another entry"));
            }
            let known = |entry: EntryRef<'_>| {
                filter::candidates(&self.storage, entry.entry, hash) & self.candidates(entry, hash)
            };
            if known(entry) >> bucket & 1 == 0 || known(first) == 0 {
                checking.report.fault(format!("I3: record {at} of {id:?} is not in the filter"));
            }
        }
        Ok(())
    }

    fn check_blocks(&self, entry: EntryRef<'_>, checking: &mut Checking) {
        for (run, cell) in entry.entry.runs.iter().enumerate() {
            let block = cell.load(&self.storage, Relaxed);
            if block != 0 && !checking.owned[class_of(run)].insert(block - 1) {
                checking.report.fault(format!("I1: run {run} of {:?} has two owners", entry.id));
            }
        }
        if let super::layout::EntryId::Chained(block) = entry.id
            && !checking.chained.insert(block)
        {
            checking.report.fault(format!("I1: {:?} has two owners", entry.id));
        }
    }

    /// Checks I5 for the blocks of a pool.
    fn check_pool(
        &self,
        pool: &Pool,
        words: &Words,
        owned: &HashSet<u32>,
        report: &mut CheckReport,
    ) -> Result<()> {
        let (used, room) = (pool.used(&self.storage, words), pool.room());
        if used > room {
            report.fault(format!(
                "I5: {used} blocks are allocated, but the file has room for {room}"
            ));
            return Ok(());
        }
        let mut seen = owned.clone();
        for block in pool.free_blocks(&self.storage, words)? {
            if !seen.insert(block) {
                report.fault(format!("I5: block {block} is free and in use, or free twice"));
            }
        }
        if let Some(block) = seen.iter().find(|&&block| u64::from(block) >= used) {
            report.fault(format!("I5: block {block} was never allocated"));
        }
        report.leaked += used.saturating_sub(seen.len() as u64);
        Ok(())
    }

    fn check_space(&self, checking: &mut Checking) -> Result<()> {
        let words = self.root_words()?;
        let owned = checking.owned.iter().chain([&checking.chained]);
        for ((pool, words), owned) in self.pools(words).zip(owned) {
            self.check_pool(pool, words, owned, &mut checking.report)?;
        }
        Ok(())
    }
}

impl<R: RecordForm, M: Medium> Plush<R, M> {
    pub(super) fn check_all(&self, types: &Types) -> Result<CheckReport> {
        let core = &self.core;
        let mut checking = Checking::default();
        let _paused = core.pause_helper();
        let _pin = core.pin();
        core.check_levels(&mut checking);
        core.check_space(&mut checking)?;
        for log in 0..core.logs.count() {
            for fault in core.logs.check(&core.storage, log)? {
                checking.report.fault(format!("I6: {fault}"));
            }
        }
        let mut next = Some(0);
        while let Some(hash) = next {
            let (records, after) = core.range_at(hash, Width::Wide).unwrap_or_else(|error| {
                checking.report.fault(format!("I2: {error}"));
                (Vec::new(), core.narrow_after(hash))
            });
            for record in records {
                if let Some(payloads) = &core.payloads
                    && let Some(fault) = payloads.fault(&core.storage, record.reference())
                {
                    let hash = core.hash_of(record);
                    checking.report.fault(format!("I7: a record with hash {hash:#x}: {fault}"));
                } else if let Err(error) = self.valid(record, types) {
                    checking.report.fault(format!("I2: {error}"));
                }
                checking.report.records += 1;
            }
            next = after;
        }
        Ok(checking.report)
    }

    pub(super) fn backup_to(&self, path: &Path) -> Result<BackupReport> {
        let core = &self.core;
        let _structure = core.exclusion.lock(&core.storage);
        let paused = Instant::now();
        let _closed = core.exclusion.close(&core.storage)?;
        if core.storage.check_writable().is_ok() {
            // The copy must contain the records that are in no log.
            core.checkpoint_all()?;
        }
        let bytes = core.storage.backup_to(path)?;
        Ok(BackupReport { bytes, pause: paused.elapsed() })
    }

    pub(super) fn stats_now(&self) -> Stats {
        let core = &self.core;
        let regions =
            [&core.table, core.levels.region(), core.journals.region(), core.logs.region()];
        let pools = core.runs.iter().chain([&core.chains]).map(Pool::region);
        let bytes = regions.into_iter().chain(pools).map(crate::storage::Region::len).sum();
        let bytes: u64 = bytes;
        let bytes = bytes + core.payloads.as_ref().map_or(0, PayloadLog::bytes);
        let blob_bytes =
            |payloads: &PayloadLog| payloads.usage(&core.storage).chunks * payloads.chunk_size();
        let [migrations, moves, compactions] = core.tallies.details();
        Stats {
            len_estimate: core.tallies.estimate(),
            capacity: core.capacity(),
            storage_bytes: bytes,
            dram_bytes: core.root.bytes() + core.top_filters.bytes() + core.leaves.bytes(),
            durability: Some(core.storage.durability()),
            details: vec![
                ("levels", core.levels.count(&core.storage) as u64),
                ("root entries", core.root.entries() as u64),
                migrations,
                moves,
                compactions,
                ("log bytes", core.logs.region().len()),
                ("blob_bytes", core.payloads.as_ref().map_or(0, blob_bytes)),
                ("filter levels in dram", core.top_filters.levels() as u64),
            ],
        }
    }
}
