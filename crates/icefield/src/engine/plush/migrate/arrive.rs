//! The second half of a migration: makes room in the target entries and appends the records to them.

use std::sync::atomic::Ordering::Relaxed;

use super::{Groups, Migration, MigrationOf, change_without};
use crate::engine::plush::compact::{Absorbed, Worth};
use crate::engine::plush::core::Core;
use crate::engine::plush::epoch::LogEpoch;
use crate::engine::plush::layout::EntryRef;
use crate::engine::plush::layout::{Shape, State};
use crate::engine::plush::level::Provided;
use crate::engine::plush::moving::{Moving, MovingOf, counted};
use crate::engine::plush::root_lock::Held;
use crate::storage::Medium;
use crate::types::RecordForm;
use crate::{Error, Result};

/// Number of targets that share their fences. Their writes, 30 blocks, stay in the medium's buffer (16 KiB on Optane)
/// until their states follow; with all 16 targets together, the entries were written twice.
const TOGETHER: usize = 8;
/// If the filters of an entry of the last level contain at least one in this many of the arriving records, the entry is
/// compacted before it is full.
const UPDATES_PART: usize = 4;

/// A group of records: the number of its migration, and the number of its target entry in that migration.
type Place = (usize, usize);

impl<R> Groups<R> {
    /// The next records of an entry's group, at most as many as one entry holds.
    fn portion(&self, place: usize, shape: Shape) -> &[R] {
        let left = &self.records[self.left[place].clone()];
        &left[..left.len().min(shape.records())]
    }
}

impl<M: Medium, A, B> Migration<'_, M, Moving<A, B>> {
    /// Counts `records` more records of an entry's group as arrived.
    fn note_arrived(&mut self, place: usize, records: usize) {
        let Groups { records: all, left } = &mut self.groups;
        let start = left[place].start;
        left[place].start += records;
        self.copied += counted(&all[start..start + records]);
    }
}

/// A chain that a group of records is appended to: its first entry, and its last one, the tail.
struct Target<'a> {
    place: Place,
    first: EntryRef<'a>,
    tail: EntryRef<'a>,
    /// Records in the tail, and records to be appended to it.
    size: usize,
    added: usize,
    /// The log epoch to store in the first entry's state.
    epoch: LogEpoch,
}

impl Target<'_> {
    fn is_chained(&self) -> bool {
        self.first.id != self.tail.id
    }

    fn tells_log(&self) -> bool {
        self.epoch != LogEpoch::NONE
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Appends groups of records to their target entries. After an error, the source entries still hold all records.
    pub(super) fn distribute(&self, migrations: &mut [MigrationOf<'_, R, M>]) -> Result<()> {
        let distributed = self.distribute_all(migrations);
        if distributed.is_err() {
            // Recovery takes the log records of these targets for arrived.
            let halfway = migrations.iter().filter(|migration| migration.told);
            halfway.for_each(|migration| self.root.note_halfway(migration.held.entry));
        }
        let change = |migration: &MigrationOf<'_, R, M>| match distributed {
            Ok(()) => migration.dropped,
            // The copies count until a compaction drops them or the records that they hide.
            Err(_) => migration.copied,
        };
        self.tallies.add_records(migrations.iter().map(change).sum());
        distributed
    }

    /// Does the work of `distribute`, in portions of at most one entry's records.
    fn distribute_all(&self, migrations: &mut [MigrationOf<'_, R, M>]) -> Result<()> {
        let mut places = Vec::new();
        for (number, migration) in migrations.iter_mut().enumerate() {
            places.extend(self.places_of(migration)?.into_iter().map(|place| (number, place)));
        }
        // Where a fence is a sync, all targets share it: a sync costs more than any number of media writes.
        let together = if self.storage.fence_syncs() { places.len() } else { TOGETHER };
        while !places.is_empty() {
            for places in places.chunks(together) {
                self.arrive(migrations, places)?;
            }
            places.retain(|&(number, place)| !migrations[number].groups.left[place].is_empty());
        }
        Ok(())
    }

    /// Returns the targets of a migration: the entries that receive records, or only its epoch.
    fn places_of(&self, migration: &mut MigrationOf<'_, R, M>) -> Result<Vec<usize>> {
        let Migration { level, first, places, groups, epoch, dropped, .. } = migration;
        // A record whose payload was freed is in no group, but its entry must get the epoch. So all entries get it if
        // the table has payloads.
        let tells_all = epoch.is_some_and(|epoch| {
            epoch.is_round() || groups.left.len() == 1 || self.payloads.is_some()
        });
        let mut places: Vec<usize> =
            places.clone().filter(|&place| tells_all || !groups.left[place].is_empty()).collect();
        if *level == self.levels.count(&self.storage)
            && groups.records.iter().any(|moving| moving.record.dead)
        {
            for &place in &places {
                *dropped += self.drop_needless(*level, *first + place as u64, groups, place)?;
            }
        }
        if epoch.is_none() {
            places.retain(|&place| !groups.left[place].is_empty());
        }
        Ok(places)
    }

    /// Moves the next portion of each group to its entry.
    fn arrive(&self, migrations: &mut [MigrationOf<'_, R, M>], places: &[Place]) -> Result<()> {
        for &(number, place) in places {
            let Migration { level, first, .. } = migrations[number];
            self.prefetch_entry(level, first + place as u64);
        }
        // Makes room for all groups first: that may take further migrations, which would evict the entries from the
        // medium's buffer.
        for &(number, place) in places {
            let migration = &mut migrations[number];
            loop {
                let Migration { held, level, first, groups, .. } = migration;
                let portion = groups.portion(place, self.shape);
                if !self.make_room(held, *level, *first + place as u64, portion)? {
                    break;
                }
                let arrived = portion.len();
                migration.note_arrived(place, arrived);
            }
        }
        let mut targets = Vec::with_capacity(places.len());
        for &(number, place) in places {
            let Migration { level, first, groups, epoch, .. } = &migrations[number];
            let added = groups.portion(place, self.shape).len();
            if epoch.is_some() || added > 0 {
                let first = self.level_entry(*level, first + place as u64)?;
                // Without records to append, only the epoch is stored, in the state of the first entry.
                let tail = if added == 0 { first } else { self.tail_of(first)? };
                let size = self.state(tail)?.size;
                let epoch = epoch.unwrap_or(self.state(first)?.epoch);
                let place = (number, place);
                targets.push(Target { place, first, tail, size, added, epoch });
            }
        }
        if targets.is_empty() {
            return Ok(());
        }
        let provided = match self.provide(targets.iter().map(|to| (to.tail, to.size + to.added))) {
            Err(Error::NoSpace { .. }) if self.absorb_in_need(migrations, places)? => {
                return self.arrive(migrations, places);
            }
            provided => provided?,
        };
        targets.iter().for_each(|to| self.prefetch_slots(to.tail, to.size..to.size + to.added));
        let appended = targets.iter().try_for_each(|target| {
            let (number, place) = target.place;
            self.append(target, migrations[number].groups.portion(place, self.shape))
        });
        if let Err(error) = appended {
            return self.settle_runs(&provided).and(Err(error));
        }
        let changed = targets.chunk_by(|a, b| a.place.0 == b.place.0);
        let helds = changed.map(|of| migrations[of[0].place.0].held);
        self.publish(helds, &targets, &provided)?;
        for Target { place: (number, place), added, .. } in targets {
            let migration = &mut migrations[number];
            migration.told |= migration.epoch.is_some();
            migration.note_arrived(place, added);
        }
        Ok(())
    }

    /// Merges arriving records into last-level entries because space for more runs is missing. Drops stale records.
    /// Returns whether any entry took records.
    fn absorb_in_need(
        &self,
        migrations: &mut [MigrationOf<'_, R, M>],
        places: &[Place],
    ) -> Result<bool> {
        let mut any = false;
        for &(number, place) in places {
            let Migration { held, level, first, groups, .. } = &migrations[number];
            let portion = groups.portion(place, self.shape);
            if *level < self.levels.count(&self.storage) || portion.is_empty() {
                continue;
            }
            let entry = self.level_entry(*level, first + place as u64)?;
            if !self.has_leaves(entry)?
                && self.absorb(held, entry, portion, Worth::Any)? == Absorbed::Yes
            {
                let arrived = portion.len();
                migrations[number].note_arrived(place, arrived);
                any = true;
            }
        }
        Ok(any)
    }

    /// Drops removals of keys that a last-level entry does not hold: such a key has no older record that the removal
    /// must hide. Returns the change of the estimated number of records.
    fn drop_needless(
        &self,
        level: usize,
        index: u64,
        groups: &mut Groups<MovingOf<R>>,
        place: usize,
    ) -> Result<i64> {
        let mut used = Vec::new();
        let first = self.level_entry(level, index)?;
        let has_leaves = self.has_leaves(first)?;
        let chain = if has_leaves { Vec::new() } else { self.chain_of(first)? };
        for entry in chain {
            if self.state(entry)?.size > 0 {
                used.push(entry);
            }
        }
        let is_needless = |moving: &MovingOf<R>| {
            if !has_leaves {
                return Ok(!used.iter().any(|entry| self.candidates(*entry, moving.hash) != 0));
            }
            let Some(key) = self.sort_key_of(moving)? else { return Ok(true) };
            let (leaf, _) = self.leaf_of(first, &key)?;
            Ok::<_, Error>(self.candidates(leaf, moving.hash) == 0)
        };
        let range = groups.left[place].clone();
        let (mut kept, mut dropped) = (range.start, 0);
        for at in range {
            let moving = groups.records[at];
            if moving.record.dead && is_needless(&moving)? {
                dropped += change_without(moving.record);
            } else {
                groups.records[kept] = groups.records[at];
                kept += 1;
            }
        }
        groups.left[place].end = kept;
        Ok(dropped)
    }

    /// Writes and flushes records behind those of an entry that has room and the runs for them. The records count once
    /// `publish` has stored the state of their entry.
    fn append(&self, target: &Target<'_>, records: &[MovingOf<R>]) -> Result<()> {
        if !records.is_empty() {
            self.write_records(target.tail, target.size, records)?;
            if target.is_chained() {
                self.announce(target.first, target.size, records);
            }
        }
        self.tallies.add_moves(records.len());
        Ok(())
    }

    /// Publishes appended records: stores the states of their entries. `helds` are the root entries of these records.
    fn publish<'h>(
        &self,
        helds: impl Iterator<Item = &'h Held<'h, M>> + Clone,
        targets: &[Target<'_>],
        provided: &Provided,
    ) -> Result<()> {
        // P3, P6: the runs, records and filters of these targets are durable before the records count.
        self.end_runs(provided, self.storage.try_fence())?;
        helds.clone().for_each(|held| held.begin_change());
        let chained = || targets.iter().filter(|target| target.is_chained());
        for Target { tail, size, added, .. } in chained().filter(|target| target.added > 0) {
            self.store_state(*tail, State { size: size + added, epoch: LogEpoch::NONE });
        }
        if chained().any(Target::tells_log) {
            // The records must count before the log's copies stop counting.
            self.storage.try_fence()?;
        }
        for target in targets.iter().filter(|target| !target.is_chained() || target.tells_log()) {
            let size = match target.is_chained() {
                true => State::unpack(target.first.entry.state.load(&self.storage, Relaxed)).size,
                false => target.size + target.added,
            };
            self.store_state(target.first, State { size, epoch: target.epoch });
        }
        // P7: from here on a crash keeps the records in these targets.
        self.storage.try_fence()?;
        helds.for_each(|held| held.end_change());
        Ok(())
    }

    /// Returns the last entry of a chain, which takes further records.
    pub(super) fn tail_of<'a>(&'a self, first: EntryRef<'a>) -> Result<EntryRef<'a>> {
        match self.next_of(first)? {
            None => Ok(first),
            Some(_) => Ok(*self.chain_of(first)?.last().unwrap_or(&first)),
        }
    }

    /// Makes room in an entry for records, at most as many as one entry holds. Returns whether the entry has already
    /// taken them.
    fn make_room(
        &self,
        held: &Held<'_, M>,
        level: usize,
        index: u64,
        records: &[MovingOf<R>],
    ) -> Result<bool> {
        let needed = records.len();
        if needed == 0 {
            return Ok(false);
        }
        let mut compacted = false;
        loop {
            let first = self.level_entry(level, index)?;
            let has_leaves = self.has_leaves(first)?;
            let tail = if has_leaves { first } else { self.tail_of(first)? };
            let size = self.state(tail)?.size;
            let fits = size + needed <= self.shape.records() && !has_leaves;
            if level < self.levels.count(&self.storage) {
                if fits {
                    return Ok(false);
                }
                self.migrate_down(held, level, index)?;
                continue;
            }
            // No compaction is needed if the entry is empty (its filter may still contain keys), or if the records fit
            // into the runs that the entry has.
            let in_place = size == 0 && tail.id == first.id
                || self.runs_for(size + needed) == self.runs_for(size);
            if fits && (in_place || !self.brings_updates(first, records)) {
                return Ok(false);
            }
            if has_leaves {
                if self.split(held, (level, first), records, &mut compacted)? {
                    return Ok(true);
                }
                continue;
            }
            let worth = if fits { Worth::Early } else { Worth::Full };
            let looked = self.absorb(held, first, records, worth)?;
            if looked == Absorbed::Yes {
                return Ok(true);
            }
            // A compaction that did not pay with the arriving records does not pay without them.
            if looked == Absorbed::Impossible && self.compact(held, first, worth)? {
                continue;
            }
            if fits {
                return Ok(false);
            }
            if self.placement.ranges().is_some() {
                if self.split(held, (level, first), records, &mut compacted)? {
                    return Ok(true);
                }
                continue;
            }
            let grows = !self.brings_updates(first, records);
            match self.extend_or_deepen(held, level, first, grows) {
                // Without space, compact even if little is stale.
                Err(Error::NoSpace { .. }) if self.compact(held, first, Worth::Any)? => {}
                other => other?,
            }
        }
    }

    /// Distributes records to the leaves of an entry, splitting leaves as needed. Returns `false` when it added a level
    /// or made room instead.
    fn split(
        &self,
        held: &Held<'_, M>,
        (level, first): (usize, EntryRef<'_>),
        records: &[MovingOf<R>],
        compacted: &mut bool,
    ) -> Result<bool> {
        match self.scatter(held, (level, first), records) {
            // Without space, compact even if little is stale, but only once: each failed attempt leaves copies that
            // make the copies of the attempt before it stale, so a compaction would always seem worthwhile.
            Err(Error::NoSpace { .. })
                if !std::mem::replace(compacted, true)
                    && self.compact(held, first, Worth::Any)? =>
            {
                Ok(false)
            }
            other => other,
        }
    }

    /// Returns whether many of the records seem to replace records of an entry. If few do, usually less than a fifth of
    /// the entry is stale.
    fn brings_updates(&self, entry: EntryRef<'_>, records: &[MovingOf<R>]) -> bool {
        let known = |records: &[MovingOf<R>]| {
            records.iter().filter(|moving| self.candidates(entry, moving.hash) != 0).count()
        };
        // If the first half has less than half of the required part, the second half is not looked at.
        let (some, others) = records.split_at(records.len() / 2);
        let first = known(some);
        first * UPDATES_PART * 2 >= some.len()
            && (first + known(others)) * UPDATES_PART >= records.len()
    }

    /// Makes room for a full entry of the last level: adds a level, or continues the entry. `grows` is `true` if most
    /// of the records have new keys.
    fn extend_or_deepen(
        &self,
        held: &Held<'_, M>,
        level: usize,
        first: EntryRef<'_>,
        grows: bool,
    ) -> Result<()> {
        if self.add_level_if_due(level, grows)? {
            return Ok(());
        }
        held.begin_change();
        let extended = self.extend(self.tail_of(first)?);
        held.end_change();
        extended
    }
}
