//! The second half of a migration: records arrive in the entries that they belong to, which are given room first.

use std::sync::atomic::Ordering::Relaxed;

use super::{Groups, Migration, MigrationOf, change_without, counted};
use crate::key::{Key, Value};
use crate::plush::compact::{Absorbed, Worth};
use crate::plush::core::{Core, EntryRef};
use crate::plush::epoch::LogEpoch;
use crate::plush::layout::{Shape, State};
use crate::plush::level::{Moving, MovingOf, Provided};
use crate::plush::root::Held;
use crate::pm::Medium;
use crate::{Error, Result};

/// Targets that share their fences. What they write, 30 blocks, stays in the medium's buffer (16 KiB on Optane) until
/// their states follow: with all 16 together their entries were written twice.
const TOGETHER: usize = 8;
/// An entry of the last level is looked through for stale records early when this part of what comes is known to it.
const UPDATES_PART: usize = 4;

/// A group of records: whose migration it belongs to, and for which of the entries there.
type Place = (usize, usize);

impl<R> Groups<R> {
    /// What comes next of an entry's group: as much as the entry holds.
    fn portion(&self, place: usize, shape: Shape) -> &[R] {
        let left = &self.records[self.left[place].clone()];
        &left[..left.len().min(shape.records())]
    }
}

impl<M: Medium, A, B> Migration<'_, M, Moving<A, B>> {
    /// So many records of an entry's group have arrived.
    fn note_arrived(&mut self, place: usize, records: usize) {
        let Groups { records: all, left } = &mut self.groups;
        let start = left[place].start;
        left[place].start += records;
        self.copied += counted(&all[start..start + records]);
    }
}

/// Where a group of records goes.
struct Target<'a> {
    place: Place,
    first: EntryRef<'a>,
    tail: EntryRef<'a>,
    /// Records that the tail has, and that come to it.
    size: usize,
    added: usize,
    /// What the first entry is told.
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

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// Appends groups of records to the entries for which they are. Where that fails, all stay where they are, too.
    pub(super) fn distribute(&self, migrations: &mut [MigrationOf<'_, K, V, M>]) -> Result<()> {
        let distributed = self.distribute_all(migrations);
        let change = |migration: &MigrationOf<'_, K, V, M>| match distributed {
            Ok(()) => migration.dropped,
            // Whoever drops the copies, or what they hide, counts them as less.
            Err(_) => migration.copied,
        };
        self.estimate.add(migrations.iter().map(change).sum());
        distributed
    }

    /// The same, as much of each group at once as an entry holds.
    fn distribute_all(&self, migrations: &mut [MigrationOf<'_, K, V, M>]) -> Result<()> {
        let mut places = Vec::new();
        for (number, migration) in migrations.iter_mut().enumerate() {
            places.extend(self.places_of(migration)?.into_iter().map(|place| (number, place)));
        }
        // A sync costs more than any number of media writes.
        let together = if self.pm.fence_syncs() { places.len() } else { TOGETHER };
        while !places.is_empty() {
            for places in places.chunks(together) {
                self.arrive(migrations, places)?;
            }
            places.retain(|&(number, place)| !migrations[number].groups.left[place].is_empty());
        }
        Ok(())
    }

    /// The entries that get something of a migration, be it an epoch.
    fn places_of(&self, migration: &mut MigrationOf<'_, K, V, M>) -> Result<Vec<usize>> {
        let Migration { level, first, places, groups, epoch, dropped, .. } = migration;
        // What is in the payload log may have been for an entry, dangle now, and be in no group: it has arrived, too.
        let tells_all = epoch.is_some_and(|epoch| {
            epoch.is_round() || groups.left.len() == 1 || self.payloads.is_some()
        });
        let mut places: Vec<usize> =
            places.clone().filter(|&place| tells_all || !groups.left[place].is_empty()).collect();
        if *level == self.level_count() && groups.records.iter().any(|moving| moving.record.dead) {
            for &place in &places {
                *dropped += self.drop_needless(*level, *first + place as u64, groups, place)?;
            }
        }
        if epoch.is_none() {
            places.retain(|&place| !groups.left[place].is_empty());
        }
        Ok(places)
    }

    /// Moves groups, or as much of them as an entry holds, to their entries.
    fn arrive(&self, migrations: &mut [MigrationOf<'_, K, V, M>], places: &[Place]) -> Result<()> {
        for &(number, place) in places {
            let Migration { level, first, .. } = migrations[number];
            self.prefetch_entry(level, first + place as u64);
        }
        // First of all: what leads to further migrations would drive the entries out of the medium's buffer.
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
                // Leaves have taken theirs over already.
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
            migrations[number].note_arrived(place, added);
        }
        Ok(())
    }

    /// Lets entries of the last level that have no space take over what is not stale of what comes to them. Whether any
    /// has.
    fn absorb_in_need(
        &self,
        migrations: &mut [MigrationOf<'_, K, V, M>],
        places: &[Place],
    ) -> Result<bool> {
        let mut any = false;
        for &(number, place) in places {
            let Migration { held, level, first, groups, .. } = &migrations[number];
            let portion = groups.portion(place, self.shape);
            if *level < self.level_count() || portion.is_empty() {
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

    /// Drops records of removed keys that are in no entry of the last level: nothing older lies below. Gives what becomes
    /// of the estimate.
    fn drop_needless(
        &self,
        level: usize,
        index: u64,
        groups: &mut Groups<MovingOf<K, V>>,
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
        let is_needless = |moving: &MovingOf<K, V>| {
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

    /// Writes records behind those of an entry that has room and the runs for them; flushed, they do not count yet.
    fn append(&self, target: &Target<'_>, records: &[MovingOf<K, V>]) -> Result<()> {
        if !records.is_empty() {
            self.write_records(target.tail, target.size, records)?;
            if target.is_chained() {
                self.announce(target.first, target.size, records);
            }
        }
        self.counts.moves.add(records.len() as i64);
        Ok(())
    }

    /// Makes appended records count, which belong to some root entries.
    fn publish<'h>(
        &self,
        helds: impl Iterator<Item = &'h Held<'h, M>> + Clone,
        targets: &[Target<'_>],
        provided: &Provided,
    ) -> Result<()> {
        // P3, P6: the runs, records and filters of these targets.
        self.end_runs(provided, self.pm.try_fence())?;
        helds.clone().for_each(|held| held.begin_change());
        let chained = || targets.iter().filter(|target| target.is_chained());
        for Target { tail, size, added, .. } in chained().filter(|target| target.added > 0) {
            self.store_state(*tail, State { size: size + added, epoch: LogEpoch::NONE });
        }
        if chained().any(Target::tells_log) {
            // The records count before the log's copies do not.
            self.pm.try_fence()?;
        }
        for target in targets.iter().filter(|target| !target.is_chained() || target.tells_log()) {
            let size = match target.is_chained() {
                true => State::unpack(target.first.entry.state.load(&self.pm, Relaxed)).size,
                false => target.size + target.added,
            };
            self.store_state(target.first, State { size, epoch: target.epoch });
        }
        // P7: the records of these targets are below.
        self.pm.try_fence()?;
        helds.for_each(|held| held.end_change());
        Ok(())
    }

    /// The entry of a chain that takes records.
    pub(super) fn tail_of<'a>(&'a self, first: EntryRef<'a>) -> Result<EntryRef<'a>> {
        match self.next_of(first)? {
            None => Ok(first),
            Some(_) => Ok(*self.chain_of(first)?.last().unwrap_or(&first)),
        }
    }

    /// Sees to it that an entry of a level has room for records, which one entry can hold. Whether it has taken them
    /// over already.
    fn make_room(
        &self,
        held: &Held<'_, M>,
        level: usize,
        index: u64,
        records: &[MovingOf<K, V>],
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
            if level < self.level_count() {
                if fits {
                    return Ok(false);
                }
                self.migrate_down(held, level, index)?;
                continue;
            }
            // Nothing to replace, whatever its filter still knows; or no other run is needed.
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
            // What is worthless with more that may be stale is so without.
            if looked == Absorbed::Impossible && self.compact(held, first, worth)? {
                continue;
            }
            if fits {
                return Ok(false);
            }
            if self.ranges.is_some() {
                if self.split(held, (level, first), records, &mut compacted)? {
                    return Ok(true);
                }
                continue;
            }
            let grows = !self.brings_updates(first, records);
            match self.extend_or_deepen(held, level, first, grows) {
                // Better late than never.
                Err(Error::NoSpace { .. }) if self.compact(held, first, Worth::Any)? => {}
                other => other?,
            }
        }
    }

    /// Lets the leaves of an entry take records over, which may split them. Whether they have: else there is another
    /// level, or more room.
    fn split(
        &self,
        held: &Held<'_, M>,
        (level, first): (usize, EntryRef<'_>),
        records: &[MovingOf<K, V>],
        compacted: &mut bool,
    ) -> Result<bool> {
        match self.scatter(held, (level, first), records) {
            // Better late than never, but once: each attempt leaves what it has moved so far, which makes that stale that
            // the one before has.
            Err(Error::NoSpace { .. })
                if !std::mem::replace(compacted, true)
                    && self.compact(held, first, Worth::Any)? =>
            {
                Ok(false)
            }
            other => other,
        }
    }

    /// Whether a good part of some records seems to replace what an entry has. Where few do, a fifth of the
    /// entry can hardly be stale.
    fn brings_updates(&self, entry: EntryRef<'_>, records: &[MovingOf<K, V>]) -> bool {
        let known = |records: &[MovingOf<K, V>]| {
            records.iter().filter(|moving| self.candidates(entry, moving.hash) != 0).count()
        };
        // Half as many among the first half: else it is not worth looking at the others.
        let (some, others) = records.split_at(records.len() / 2);
        let first = known(some);
        first * UPDATES_PART * 2 >= some.len()
            && (first + known(others)) * UPDATES_PART >= records.len()
    }

    /// Makes room where an entry of the last level has none, below it or behind it; `grows` when that is for new keys.
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
