//! How many levels there are: when another one is added or taken away, and how full they are.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::core::{Core, EntryRef, lock};
use super::epoch::LogEpoch;
use super::layout::{CLASSES, ENTRY_BYTES, State, class_of};
use super::pack::Last;
use super::root::{Held, Relief};
use crate::Result;
use crate::key::{Key, Value};
use crate::pm::alloc::Blocks;
use crate::pm::{Medium, not_poisoned};

/// Entries that are looked at to find out how full a level is.
const SAMPLES: u64 = 64;
/// A level is added when the last one, whose entries are continued where they overflow, holds so many eighths of what
/// fits without that: a level of entries that hold hardly anything takes more space than continuations, a look at which
/// costs searches more.
const DUE_EIGHTHS: u64 = 10;
/// From so many eighths on its file grows ahead of time, by so many bytes for each entry that overflows by new keys:
/// updates bring the last level as far and no further.
const AHEAD_EIGHTHS: u64 = 9;
const AHEAD_BYTES: u64 = 2 << 20;
/// Entries of a chain that count for that: where keys crowd, more levels do not help.
const COUNTED: usize = 3;

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// How many records fit before the table needs another level.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity_of(self.level_count())
    }

    fn capacity_of(&self, levels: usize) -> u64 {
        let entries: u64 = (0..=levels).map(|level| self.shape.entries(level)).sum();
        entries.saturating_mul(self.shape.records() as u64)
    }

    /// Fails when there is no room for so many records in all, before any is taken.
    pub(super) fn check_room(&self, records: u64) -> Result<()> {
        let words = self.measure.widths().words() as u64;
        let record_bytes = |records: u64| records.saturating_mul(words * 8);
        // Entries of the last level that there can be are continued by others.
        let most = self.shape.max_levels();
        let levels = (self.level_count()..most).find(|&levels| self.capacity_of(levels) >= records);
        let levels = levels.unwrap_or(most);
        let entry_bytes = self.shape.entries_above(levels + 1) * ENTRY_BYTES;
        let more = record_bytes(records.saturating_sub(self.estimate()));
        let bytes = entry_bytes.saturating_sub(self.levels.len()).saturating_add(more);
        self.pm.check_room(bytes, 0)
    }

    /// Adds levels until so many records fit.
    pub(super) fn make_room_for(&self, records: u64) -> Result<()> {
        let _growing = lock(&self.pm, &self.growing);
        if self.capacity() < records {
            self.check_room(records)?;
        }
        while self.capacity() < records && self.level_count() < self.shape.max_levels() {
            self.add_level(self.level_count())?;
        }
        Ok(())
    }

    /// Has the memory of a new table there from the start, when so many records will fill its root: else the writes that
    /// do would wait for its pages.
    pub(super) fn populate_for(&self, records: u64) {
        if records >= (self.root.entries() * self.shape.records()) as u64 {
            self.root.populate();
            self.top_filters.populate();
        }
    }

    /// Gives a new table the space of the buckets that so many records take, when level 1 will hold them all: else the
    /// writes that fill it would wait for the files to grow.
    pub(super) fn reserve_buckets(&self, records: u64) -> Result<()> {
        if self.level_count() > 1 {
            return Ok(());
        }
        let entries = self.shape.entries(1);
        let each = records.div_ceil(entries) as usize;
        for class in 0..CLASSES {
            let runs = (0..self.runs_for(each)).filter(|&run| class_of(run) == class).count();
            self.run_blocks(class).reserve(entries * runs as u64)?;
        }
        Ok(())
    }

    /// Adds a level below the last one, which is `level`. One thread at a time.
    pub(super) fn add_level(&self, level: usize) -> Result<()> {
        not_poisoned(&self.pm)?;
        let [from, to] = [1, 2].map(|more| self.shape.entries_above(level + more) * ENTRY_BYTES);
        self.pm.grow(&self.levels, to)?;
        // A table that became smaller has given it back.
        self.pm.reserve(&self.levels, from, to - from)?;
        let cell = &self.root_words()?.levels;
        cell.store(&self.pm, level as u64 + 1, Release);
        // P9: the level is there.
        self.pm.try_persist(cell)?;
        self.level_count.store(level + 1, Release);
        Ok(())
    }

    /// Takes levels away as long as the records of the last one fit into the entries above. Nothing is written meanwhile.
    pub(super) fn drop_levels(&self) -> Result<()> {
        while self.level_count() > 1 && self.last_fits_above()? {
            self.drop_level()?;
        }
        Ok(())
    }

    /// Says whether each entry of the level above the last has room for all records below it.
    fn last_fits_above(&self) -> Result<bool> {
        let level = self.level_count() - 1;
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

    /// The entries of the next level that belong to one.
    fn below(&self, level: usize, index: u64) -> Range<u64> {
        let step = self.shape.step(level);
        index << step..(index + 1) << step
    }

    /// Moves the records of the last level to the entries above, which have room for them, and takes it away.
    fn drop_level(&self) -> Result<()> {
        let level = self.level_count() - 1;
        for root_entry in 0..self.root.entries() {
            let _pin = self.pin();
            let held = self.root.lock(&self.pm, root_entry);
            // Both are about the levels as they were.
            self.give_up_underway(&held)?;
            self.root.note_relief(root_entry, Relief::NotYet);
            for index in self.entries_below(root_entry, level) {
                self.move_up(&held, level, index)?;
            }
        }
        self.pack(Last::Goes)
    }

    /// The entries of a level that belong to one of the root.
    pub(super) fn entries_below(&self, root_entry: usize, level: usize) -> Range<u64> {
        let below = self.shape.prefix(level) - self.shape.prefix(0);
        (root_entry as u64) << below..(root_entry as u64 + 1) << below
    }

    /// Moves what is below an entry into it. A crash in between leaves copies below, which the entry's own hide.
    fn move_up(&self, held: &Held<'_, M>, level: usize, index: u64) -> Result<()> {
        let first = self.level_entry(level, index)?;
        if self.has_leaves(first)? {
            // Down first: were what leaves have in the entry, too, a crash could leave some of them, in which nobody would
            // find what others had. The last level is so empty that it takes it.
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
        let (mut records, dropped) = self.newest_of(newest_first.iter().copied())?;
        records.reverse();
        self.provide_now(&[(first, records.len())])?;
        self.rewrite(held, first, &records, None)?;
        self.estimate.add(dropped);
        held.begin_change();
        let emptied = self.drop_chain(first);
        held.end_change();
        emptied
    }

    /// Empties what continues an entry and gives it back.
    fn drop_chain(&self, first: EntryRef<'_>) -> Result<()> {
        while let Some(next) = self.next_of(first)? {
            let State { epoch, .. } = self.state(next)?;
            self.store_state(next, State { size: 0, epoch });
            // P8: its records are in the entry that it continues.
            self.pm.try_fence()?;
            self.unchain(first, next)?;
        }
        Ok(())
    }

    /// Empties the last level, all records of which are above it, too, and takes it away, while the phase word says that
    /// blocks are packed: those of the level are free without their allocators.
    pub(super) fn take_last_level(&self) -> Result<()> {
        let level = self.level_count();
        for root_entry in 0..self.root.entries() {
            let held = self.root.lock(&self.pm, root_entry);
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
        let cell = &self.root_words()?.levels;
        cell.store(&self.pm, level as u64 - 1, Release);
        // P21: the last level is empty, and not there any more.
        self.pm.try_persist(cell)?;
        self.level_count.store(level - 1, Release);
        Ok(())
    }

    fn wipe_all(&self, entries: &[EntryRef<'_>]) -> Result<()> {
        let empty = State { size: 0, epoch: LogEpoch::NONE };
        for &entry in entries {
            self.store_state(entry, empty);
            self.forget_filter(entry);
        }
        // P8: before they lose their buckets.
        self.pm.try_fence()?;
        for entry in entries {
            self.wipe_entry(entry.id, empty)?;
        }
        // Before P21: a level that is added later finds the entries as they are left here.
        self.pm.try_fence()
    }

    /// Adds a level below the last one when that is more than full; makes a part of its room when that is near, and the
    /// table grows. Whether there is one now.
    pub(super) fn add_level_if_due(&self, level: usize, grows: bool) -> Result<bool> {
        let _growing = lock(&self.pm, &self.growing);
        if level < self.level_count() {
            return Ok(true);
        }
        if level == self.shape.max_levels() {
            return Ok(false);
        }
        let eighths = self.eighths_full(level)?;
        if eighths < DUE_EIGHTHS {
            if grows && eighths >= AHEAD_EIGHTHS && !self.pm.fence_syncs() {
                self.grow_ahead(level);
            }
            return Ok(false);
        }
        self.add_level(level)?;
        Ok(true)
    }

    /// How many eighths of what fits into the last level without continuations it holds, by a sample.
    fn eighths_full(&self, level: usize) -> Result<u64> {
        let (records, samples) = self.sampled(level)?;
        Ok(records * 8 / (samples * self.shape.records() as u64))
    }

    /// Makes a part of the room for a level below the last one: whoever adds it need not wait for all of it.
    fn grow_ahead(&self, level: usize) {
        let bytes = self.shape.entries_above(level + 2) * ENTRY_BYTES;
        let next = bytes.min(self.levels.len() + AHEAD_BYTES);
        // For want of space there will be no level: that is told then.
        let _ = self.pm.grow(&self.levels, next);
    }

    /// About how many records a level holds, stale ones included.
    fn records_of_level(&self, level: usize) -> Result<u64> {
        let (records, samples) = self.sampled(level)?;
        Ok((u128::from(records) * u128::from(self.shape.entries(level)) / u128::from(samples))
            as u64)
    }

    /// About how many records all levels hold, stale ones included.
    pub(super) fn records_of_levels(&self) -> Result<u64> {
        (1..=self.level_count()).map(|level| self.records_of_level(level)).sum()
    }

    /// How many records some entries of a level hold, and how many entries these are.
    fn sampled(&self, level: usize) -> Result<(u64, u64)> {
        let entries = self.shape.entries(level);
        let samples = entries.min(SAMPLES);
        let mut records = 0;
        for sample in 0..samples {
            let mut next = Some(self.level_entry(level, sample * (entries / samples))?);
            // A peek: the number decides about space only.
            self.pm.peek(|| {
                for _ in 0..COUNTED {
                    let Some(entry) = next else { break };
                    let state = State::unpack(entry.entry.state.load(&self.pm, Acquire));
                    records += state.size.min(self.shape.records());
                    next = self.next_of(entry).unwrap_or(None);
                }
            });
        }
        Ok((records as u64, samples))
    }
}
