//! The number of levels: when one is added or removed, and how full the levels are.

use std::ops::Range;
use std::sync::atomic::Ordering::Acquire;

use super::core::Core;
use super::epoch::LogEpoch;
use super::layout::EntryRef;
use super::layout::{CLASSES, State, class_of};
use super::pack::Last;
use super::root::Relief;
use super::root_lock::Held;
use crate::Result;
use crate::storage::Medium;
use crate::storage::alloc::Blocks;
use crate::types::RecordForm;

/// Number of entries that are sampled to estimate how full a level is.
const SAMPLES: u64 = 64;
/// A level is added when the last one holds this many eighths of the records that fit without continued entries. With
/// fewer, a new level of nearly empty entries would take more space than continued entries; with more, continued
/// entries would slow searches down.
const DUE_EIGHTHS: u64 = 10;
/// When the last level holds this many eighths, the levels' file grows ahead of time, by `AHEAD_BYTES` for each entry
/// that overflows because of new keys. Updates do not make the file grow, because updates alone can fill the last level
/// this far, but no further.
const AHEAD_EIGHTHS: u64 = 9;
const AHEAD_BYTES: u64 = 2 << 20;
/// Maximum number of entries of a chain that an estimate counts. Longer chains come from keys with similar hashes, for
/// which more levels do not help.
const COUNTED: usize = 3;

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// The number of records that fit before the table needs another level.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity_of(self.levels.count(&self.storage))
    }

    fn capacity_of(&self, levels: usize) -> u64 {
        let entries: u64 = (0..=levels).map(|level| self.shape.entries(level)).sum();
        entries.saturating_mul(self.shape.records() as u64)
    }

    /// Returns an error if the medium has no room for a total of `records` records. Takes no space.
    pub(super) fn check_room(&self, records: u64) -> Result<()> {
        let words = self.measure.widths().words() as u64;
        let record_bytes = |records: u64| records.saturating_mul(words * 8);
        // If even the highest possible number of levels has too few entries, continued entries hold the other records.
        let most = self.shape.max_levels();
        let levels = (self.levels.count(&self.storage)..most)
            .find(|&levels| self.capacity_of(levels) >= records);
        let levels = levels.unwrap_or(most);
        let entry_bytes = self.levels.bytes_of(levels);
        let more = record_bytes(records.saturating_sub(self.tallies.estimate()));
        let bytes = entry_bytes.saturating_sub(self.levels.region().len()).saturating_add(more);
        self.storage.check_room(bytes, 0)
    }

    /// Adds levels until `records` fit.
    pub(super) fn make_room_for(&self, records: u64) -> Result<()> {
        let _growing = self.levels.lock(&self.storage);
        if self.capacity() < records {
            self.check_room(records)?;
        }
        while self.capacity() < records
            && self.levels.count(&self.storage) < self.shape.max_levels()
        {
            self.levels.add(&self.storage, self.root_words()?)?;
        }
        Ok(())
    }

    /// Touches the DRAM of a new table if `records` will fill its root, so that the first writes do not wait for pages.
    pub(super) fn populate_for(&self, records: u64) {
        if records >= (self.root.entries() * self.shape.records()) as u64 {
            self.root.populate();
            self.top_filters.populate();
        }
    }

    /// Reserves the space of the buckets that `records` take, if level 1 will hold them all, so that the first writes
    /// do not wait for the files to grow.
    pub(super) fn reserve_buckets(&self, records: u64) -> Result<()> {
        if self.levels.count(&self.storage) > 1 {
            return Ok(());
        }
        let entries = self.shape.entries(1);
        let each = records.div_ceil(entries) as usize;
        for class in 0..CLASSES {
            let runs = (0..self.runs_for(each)).filter(|&run| class_of(run) == class).count();
            self.runs[class].blocks(&self.storage).reserve(entries * runs as u64)?;
        }
        Ok(())
    }

    /// Removes levels as long as the records of the last one fit into the entries above. No other thread writes.
    pub(super) fn drop_levels(&self) -> Result<()> {
        while self.levels.count(&self.storage) > 1 && self.last_fits_above()? {
            self.drop_level()?;
        }
        Ok(())
    }

    /// Returns whether each entry of the level above the last one has room for all records below it.
    fn last_fits_above(&self) -> Result<bool> {
        let level = self.levels.count(&self.storage) - 1;
        for index in 0..self.shape.entries(level) {
            let mut records = self.records_of_chain(self.level_entry(level, index)?)?;
            for below in self.below(level, index) {
                records += self.records_of_chain(self.level_entry(level + 1, below)?)?;
            }
            if records > self.shape.records() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn records_of_chain(&self, first: EntryRef<'_>) -> Result<usize> {
        let chain = self.chain_of(first)?;
        chain.into_iter().map(|entry| Ok(self.state(entry)?.size)).sum()
    }

    /// The entries of the next level below an entry.
    fn below(&self, level: usize, index: u64) -> Range<u64> {
        let step = self.shape.step(level);
        index << step..(index + 1) << step
    }

    /// Moves the records of the last level to the entries above, which have room for them, and removes the level.
    fn drop_level(&self) -> Result<()> {
        let level = self.levels.count(&self.storage) - 1;
        for root_entry in 0..self.root.entries() {
            let _pin = self.pin();
            let held = self.root.lock(&self.storage, root_entry);
            // The unfinished migration and the relief describe the levels before this change, so both are reset.
            self.give_up_underway(&held)?;
            self.root.note_relief(root_entry, Relief::NotYet);
            self.root.forget_asked(root_entry);
            for index in self.entries_below(root_entry, level) {
                self.move_up(&held, level, index)?;
            }
        }
        self.pack(Last::Goes)
    }

    /// The entries of a level below a root entry.
    pub(super) fn entries_below(&self, root_entry: usize, level: usize) -> Range<u64> {
        let below = self.shape.prefix(level) - self.shape.prefix(0);
        (root_entry as u64) << below..(root_entry as u64 + 1) << below
    }

    /// Moves the records below an entry into it. A crash in between leaves copies below, which the copies in the entry
    /// hide.
    fn move_up(&self, held: &Held<'_, M>, level: usize, index: u64) -> Result<()> {
        let first = self.level_entry(level, index)?;
        if self.has_leaves(first)? {
            // The records of leaves move down first. If they moved up with the records of the first entry, a crash
            // could leave only some of the leaves in the chain. A search reads only one leaf, so it would not find the
            // records that the removed leaves had. The last level is nearly empty, so it has room.
            self.migrate_down(held, level, index)?;
        }
        let mut newest_first = self.newest_first(first)?;
        for below in self.below(level, index) {
            self.newest_first_where(
                self.level_entry(level + 1, below)?,
                &mut newest_first,
                |_| true,
            )?;
        }
        let (newest, dropped) = self.newest_of(&newest_first)?;
        let records: Vec<_> = newest.into_iter().rev().copied().collect();
        self.provide_now(&[(first, records.len())])?;
        self.rewrite(held, first, &records, None)?;
        self.tallies.add_records(dropped);
        held.begin_change();
        let emptied = self.drop_chain(first);
        held.end_change();
        emptied
    }

    /// Empties the entries that continue another one, and frees them.
    fn drop_chain(&self, first: EntryRef<'_>) -> Result<()> {
        while let Some(next) = self.next_of(first)? {
            let State { epoch, .. } = self.state(next)?;
            self.store_state(next, State { size: 0, epoch });
            // P8: the size 0 is durable before the entry leaves the chain. Its records are in the first entry by now.
            self.storage.try_fence()?;
            self.unchain(first, next)?;
        }
        Ok(())
    }

    /// Empties and removes the last level, whose records are all in the entries above as well. Called in the packing
    /// phase, so the level's blocks become free without calls to their allocators.
    pub(super) fn take_last_level(&self) -> Result<()> {
        let level = self.levels.count(&self.storage);
        for root_entry in 0..self.root.entries() {
            let held = self.root.lock(&self.storage, root_entry);
            let mut all = Vec::new();
            for index in self.entries_below(root_entry, level) {
                all.extend(self.chain_of(self.level_entry(level, index)?)?);
            }
            held.begin_change();
            let wiped = self.wipe_all(&all);
            all.iter().for_each(|entry| self.leaves.forget(entry.id));
            held.end_change();
            wiped?;
        }
        self.levels.remove_last(&self.storage, self.root_words()?)
    }

    fn wipe_all(&self, entries: &[EntryRef<'_>]) -> Result<()> {
        let empty = State { size: 0, epoch: LogEpoch::NONE };
        for &entry in entries {
            self.store_state(entry, empty);
            self.forget_filter(entry);
        }
        // P8: the entries are durably empty before they lose their buckets.
        self.storage.try_fence()?;
        for entry in entries {
            self.wipe_entry(entry.id, empty)?;
        }
        // The entries have durably lost their buckets before P21 removes their level: a level that is added later finds
        // them empty.
        self.storage.try_fence()
    }

    /// Adds a level below `level` if that is the last one and `DUE_EIGHTHS` eighths full. If it is `AHEAD_EIGHTHS`
    /// eighths full and new keys arrive (`grows`), only extends the file by a part of the next level. Returns whether
    /// there is a level below `level` now.
    pub(super) fn add_level_if_due(&self, level: usize, grows: bool) -> Result<bool> {
        let _growing = self.levels.lock(&self.storage);
        if level < self.levels.count(&self.storage) {
            return Ok(true);
        }
        if level == self.shape.max_levels() {
            return Ok(false);
        }
        let eighths = self.eighths_full(level)?;
        if eighths < DUE_EIGHTHS {
            if grows && eighths >= AHEAD_EIGHTHS && !self.storage.fence_syncs() {
                self.levels.grow_ahead(&self.storage, AHEAD_BYTES);
            }
            return Ok(false);
        }
        self.levels.add(&self.storage, self.root_words()?)?;
        Ok(true)
    }

    /// Estimates from samples how many records the last level holds, in eighths of those that fit without continued
    /// entries.
    fn eighths_full(&self, level: usize) -> Result<u64> {
        let (records, samples) = self.sampled(level)?;
        Ok(records * 8 / (samples * self.shape.records() as u64))
    }

    /// Estimates the number of records of a level, stale ones included.
    fn records_of_level(&self, level: usize) -> Result<u64> {
        let (records, samples) = self.sampled(level)?;
        Ok((u128::from(records) * u128::from(self.shape.entries(level)) / u128::from(samples))
            as u64)
    }

    /// Estimates the number of records of all levels, stale ones included.
    pub(super) fn records_of_levels(&self) -> Result<u64> {
        (1..=self.levels.count(&self.storage)).map(|level| self.records_of_level(level)).sum()
    }

    /// Returns the number of records in a sample of a level's entries, and the number of sampled entries.
    fn sampled(&self, level: usize) -> Result<(u64, u64)> {
        let entries = self.shape.entries(level);
        let samples = entries.min(SAMPLES);
        let mut records = 0;
        for sample in 0..samples {
            let mut next = Some(self.level_entry(level, sample * (entries / samples))?);
            // Read without validation: the number decides only about space.
            self.storage.read_unvalidated(|| {
                for _ in 0..COUNTED {
                    let Some(entry) = next else { break };
                    let state = State::unpack(entry.entry.state.load(&self.storage, Acquire));
                    records += state.size.min(self.shape.records());
                    next = self.next_of(entry).unwrap_or(None);
                }
            });
        }
        Ok((records as u64, samples))
    }
}
