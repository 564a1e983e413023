//! Migration (§4.1, §5.1, Listing 2): an entry's records move on to the entries below it, all at once.
//!
//! The data of all targets share a fence, and so do their states. What a crash leaves in between is there twice, above
//! and below: the upper copy hides the lower one, and the next migration merges them.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::compact::Worth;
use super::core::{Core, EntryRef, lock};
use super::filter;
use super::layout::State;
use super::root::{Held, Record};
use crate::key::{Key, Value};
use crate::pm::Medium;
use crate::{Error, Result};

/// Entries that are looked at to find out how full a level is.
const SAMPLES: u64 = 64;
/// A level is added when the last one is full to this part: otherwise the entry that overflows is continued.
const DUE_PART: usize = 4;

/// The newest record of each key.
pub(super) struct Newest {
    pub(super) records: Vec<Record>,
    /// Places in `records` plus one, by key word.
    places: Vec<u32>,
}

impl Newest {
    /// Room for so many keys.
    pub(super) fn with_capacity(keys: usize) -> Self {
        let places = vec![0; (keys * 2).next_power_of_two().max(8)];
        Self { records: Vec::with_capacity(keys), places }
    }

    /// Makes room for so many more keys.
    pub(super) fn reserve(&mut self, keys: usize) {
        let wanted = ((self.records.len() + keys) * 2).next_power_of_two().max(8);
        if wanted <= self.places.len() {
            return;
        }
        self.places = vec![0; wanted];
        for (number, record) in self.records.iter().enumerate() {
            let mut at = home(record.key, wanted);
            while self.places[at] != 0 {
                at = (at + 1) & (wanted - 1);
            }
            self.places[at] = number as u32 + 1;
        }
    }

    /// Takes a record over unless there is one of its key, as `same` says. Whether it did.
    pub(super) fn add<E>(
        &mut self,
        record: Record,
        same: impl Fn(Record, Record) -> std::result::Result<bool, E>,
    ) -> std::result::Result<bool, E> {
        let mut at = home(record.key, self.places.len());
        while let Some(known) = self.places[at].checked_sub(1) {
            if same(self.records[known as usize], record)? {
                return Ok(false);
            }
            at = (at + 1) & (self.places.len() - 1);
        }
        self.records.push(record);
        self.places[at] = self.records.len() as u32;
        Ok(true)
    }
}

/// Where a key word's place is looked for, among a power of two of them.
fn home(key: u64, places: usize) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (places - 1)
}

/// Where a group of records goes.
struct Target<'a> {
    first: EntryRef<'a>,
    tail: EntryRef<'a>,
    state: State,
    added: usize,
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// The newest record of each key of some records, newest first.
    pub(super) fn merge(&self, newest_first: Vec<Record>) -> Result<Vec<Record>> {
        let mut newest = Newest::with_capacity(newest_first.len());
        for record in newest_first {
            if self.dangles(record)? || !newest.add(record, |a, b| self.same_key(a, b))? {
                self.note_dropped(record);
            }
        }
        Ok(newest.records)
    }

    /// As [`Core::merge`], for those who only read.
    pub(super) fn newest_of(&self, newest_first: Vec<Record>) -> Result<Vec<Record>> {
        let mut newest = Newest::with_capacity(newest_first.len());
        for record in newest_first {
            if !self.dangles(record)? {
                newest.add(record, |a, b| self.same_key(a, b))?;
            }
        }
        Ok(newest.records)
    }

    /// Keeps the estimate of how many records there are.
    pub(super) fn note_dropped(&self, record: Record) {
        self.estimate.add(if record.dead { 1 } else { -1 });
    }

    /// Moves the records of a full root entry to level 1. Readers wait until its lock is let go.
    pub(super) fn migrate_root(&self, held: &Held<'_, M>) -> Result<()> {
        let (entry, size) = (held.entry, self.root.size(held.entry));
        if size == 0 {
            return Ok(());
        }
        let epoch = self.root.epoch(entry);
        let newest_first = (0..size).rev().map(|at| self.root.record(entry, at)).collect();
        let groups = self.group(0, &self.merge(newest_first)?);
        let first = (entry as u64) << self.shape.step(0);
        self.distribute(held, 1, first, groups, Some(epoch))?;
        held.begin_change();
        self.root.empty(entry);
        self.root.set_epoch(entry, epoch + 1);
        Ok(())
    }

    /// Moves the records of a level's entry, and of those that continue it, to the next level.
    fn migrate_down(&self, held: &Held<'_, M>, level: usize, index: u64) -> Result<()> {
        let first = self.level_entry(level, index)?;
        let groups = self.group(level, &self.merge(self.newest_first(first)?)?);
        self.distribute(held, level + 1, index << self.shape.step(level), groups, None)?;
        held.begin_change();
        // Oldest first: what is still there hides no newer record below.
        for entry in self.chain_of(first)? {
            let State { epoch, .. } = self.state(entry)?;
            self.store_state(entry, State { size: 0, epoch });
            // P8: the records are below only.
            self.pm.fence();
        }
        while let Some(next) = self.next_of(first)? {
            self.unchain(first, next)?;
        }
        held.end_change();
        Ok(())
    }

    /// Records by the entries of the next level to which they belong, oldest first.
    fn group(&self, level: usize, newest_first: &[Record]) -> Vec<Vec<Record>> {
        let step = self.shape.step(level);
        let mut groups = vec![Vec::new(); 1 << step];
        for &record in newest_first.iter().rev() {
            let index = self.shape.index(level + 1, self.hash_of(record));
            groups[(index & ((1 << step) - 1)) as usize].push(record);
        }
        groups
    }

    /// Appends groups of records to the entries of a level from `first` on, as much of each at once as an entry holds.
    fn distribute(
        &self,
        held: &Held<'_, M>,
        level: usize,
        first: u64,
        mut groups: Vec<Vec<Record>>,
        epoch: Option<u64>,
    ) -> Result<()> {
        self.counts.migrations.add(1);
        let touched: Vec<bool> = groups.iter().map(|group| !group.is_empty()).collect();
        if level == self.level_count() {
            for (group, index) in groups.iter_mut().zip(first..) {
                self.drop_needless(level, index, group)?;
            }
        }
        loop {
            let mut targets = Vec::with_capacity(groups.len());
            for (at, group) in groups.iter_mut().enumerate() {
                if touched[at] && (!group.is_empty() || epoch.is_some()) {
                    let count = group.len().min(self.shape.records());
                    self.make_room(held, level, first + at as u64, count)?;
                    let portion: Vec<Record> = group.drain(..count).collect();
                    targets.push(self.append(level, first + at as u64, &portion, epoch)?);
                }
            }
            self.publish(held, &targets);
            if groups.iter().all(Vec::is_empty) {
                return Ok(());
            }
        }
    }

    /// Drops records of removed keys that are in no entry of the last level: nothing older lies below.
    fn drop_needless(&self, level: usize, index: u64, group: &mut Vec<Record>) -> Result<()> {
        if group.iter().all(|record| !record.dead) {
            return Ok(());
        }
        let chain = self.chain_of(self.level_entry(level, index)?)?;
        let is_empty = |entry: &EntryRef<'_>| self.state(*entry).map(|state| state.size == 0);
        let mut used = Vec::new();
        for entry in chain {
            if !is_empty(&entry)? {
                used.push(entry);
            }
        }
        group.retain(|&record| {
            let hash = self.hash_of(record);
            let may_hold =
                |entry: &EntryRef<'_>| filter::candidates(&self.pm, entry.entry, hash) != 0;
            let needed = !record.dead || used.iter().any(may_hold);
            if !needed {
                self.note_dropped(record);
            }
            needed
        });
        Ok(())
    }

    /// Writes records behind those of an entry that has room; flushed, they do not count yet.
    fn append(
        &self,
        level: usize,
        index: u64,
        records: &[Record],
        epoch: Option<u64>,
    ) -> Result<Target<'_>> {
        let first = self.level_entry(level, index)?;
        let tail = self.tail_of(first)?;
        let before = self.state(tail)?;
        self.provide(tail, before.size + records.len())?;
        if !records.is_empty() {
            self.write_records(tail, before.size, records)?;
        }
        self.counts.moves.add(records.len() as i64);
        let epoch = epoch.unwrap_or(self.state(first)?.epoch);
        Ok(Target {
            first,
            tail,
            state: State { size: before.size + records.len(), epoch },
            added: records.len(),
        })
    }

    /// Makes appended records count.
    fn publish(&self, held: &Held<'_, M>, targets: &[Target<'_>]) {
        // P6: the records and the filters of all targets.
        self.pm.fence();
        held.begin_change();
        let is_chained = |target: &&Target<'_>| target.first.id != target.tail.id;
        for target in targets.iter().filter(is_chained).filter(|target| target.added > 0) {
            self.store_state(target.tail, State { epoch: 0, ..target.state });
        }
        if targets.iter().any(|target| is_chained(&target)) {
            // The records count before the log's copies do not.
            self.pm.fence();
        }
        for target in targets {
            let size = match is_chained(&target) {
                true => State::unpack(target.first.entry.state.load(&self.pm, Relaxed)).size,
                false => target.state.size,
            };
            self.store_state(target.first, State { size, ..target.state });
        }
        // P7, commit point of the migration: the records are below.
        self.pm.fence();
        held.end_change();
    }

    /// The entry of a chain that takes records.
    pub(super) fn tail_of<'a>(&'a self, first: EntryRef<'a>) -> Result<EntryRef<'a>> {
        match self.next_of(first)? {
            None => Ok(first),
            Some(_) => Ok(*self.chain_of(first)?.last().unwrap_or(&first)),
        }
    }

    /// Sees to it that an entry of a level has room for `needed` records, which one entry can hold.
    fn make_room(&self, held: &Held<'_, M>, level: usize, index: u64, needed: usize) -> Result<()> {
        loop {
            let first = self.level_entry(level, index)?;
            let size = self.state(self.tail_of(first)?)?.size;
            let fits = size + needed <= self.shape.records();
            if level < self.level_count() {
                if fits {
                    return Ok(());
                }
                self.migrate_down(held, level, index)?;
                continue;
            }
            let in_place = fits && self.runs_for(size + needed) == self.runs_for(size);
            if in_place {
                return Ok(());
            }
            let worth = if fits { Worth::Early } else { Worth::Full };
            if self.compact(held, first, worth)? {
                continue;
            }
            if fits {
                return Ok(());
            }
            match self.extend_or_deepen(held, level, first) {
                // Better late than never.
                Err(Error::NoSpace { .. }) if self.compact(held, first, Worth::Any)? => {}
                other => other?,
            }
        }
    }

    /// Makes room where an entry of the last level has none, below it or behind it.
    fn extend_or_deepen(
        &self,
        held: &Held<'_, M>,
        level: usize,
        first: EntryRef<'_>,
    ) -> Result<()> {
        if self.add_level_if_due(level)? {
            return Ok(());
        }
        held.begin_change();
        let extended = self.extend(self.tail_of(first)?);
        held.end_change();
        extended
    }

    /// Adds a level below the last one when that is well filled. Whether there is one now.
    fn add_level_if_due(&self, level: usize) -> Result<bool> {
        let _growing = lock(&self.pm, &self.growing);
        if level < self.level_count() {
            return Ok(true);
        }
        if level == self.shape.max_levels() || !self.is_well_filled(level)? {
            return Ok(false);
        }
        self.add_level(level)?;
        Ok(true)
    }

    /// Whether a level is filled to a good part, by a sample.
    fn is_well_filled(&self, level: usize) -> Result<bool> {
        let entries = self.shape.entries(level);
        let samples = entries.min(SAMPLES);
        let mut records = 0;
        for sample in 0..samples {
            let entry = self.level_entry(level, sample * (entries / samples))?.entry;
            // A peek: the number decides about space only.
            let word = self.pm.peek(|| entry.state.load(&self.pm, Acquire));
            records += State::unpack(word).size;
        }
        Ok(records * DUE_PART >= samples as usize * self.shape.records())
    }
}
