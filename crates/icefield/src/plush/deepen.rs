//! How many levels there are: when another one is added, and how full they are.

use std::sync::atomic::Ordering::{Acquire, Release};

use super::core::{Core, lock};
use super::layout::{CLASSES, ENTRY_BYTES, State, class_of};
use crate::key::{Key, Value};
use crate::pm::Medium;
use crate::pm::alloc::Blocks;
use crate::{Error, Result};

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
        let levels = (self.level_count()..=self.shape.max_levels())
            .find(|&levels| self.capacity_of(levels) >= records);
        let Some(levels) = levels else {
            let path = self.pm.path().join(self.levels.name());
            return Err(Error::NoSpace { path, needed_bytes: record_bytes(records) });
        };
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
        let entries = self.shape.entries_above(level + 2);
        self.pm.grow(&self.levels, entries * ENTRY_BYTES)?;
        let cell = &self.root_words()?.levels;
        cell.store(&self.pm, level as u64 + 1, Release);
        // P9: the level is there.
        self.pm.persist(cell);
        self.level_count.store(level + 1, Release);
        Ok(())
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
