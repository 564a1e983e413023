//! Migration (§4.1, §5.1, Listing 2): an entry's records move on to the entries below it, all at once, or ahead of time
//! part by part (`ahead`).
//!
//! The data of eight targets share a fence, and so do their states; where a fence is a sync, those of many root entries
//! (`together`). What a crash leaves in between is there twice, above and below: the upper copy hides the lower one, and
//! the next migration merges them.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::compact::{Absorbed, Worth};
use super::core::{Core, EntryRef};
use super::epoch::LogEpoch;
use super::layout::{MAX_BUCKETS, Shape, State};
use super::level::{Moving, MovingOf, Provided};
use super::newest::Newest;
use super::root::{Departing, Held, Underway};
use super::words::{Record, RecordOf};
use crate::key::{Key, Value};
use crate::pm::{Medium, not_poisoned};
use crate::{Error, Result};

/// Targets that share their fences. What they write, 30 blocks, stays in the medium's buffer (16 KiB on Optane) until
/// their states follow: with all 16 together their entries were written twice.
const TOGETHER: usize = 8;
/// An entry of the last level is looked through for stale records early when this part of what comes is known to it.
const UPDATES_PART: usize = 4;

/// How many records are for each entry of the next level.
pub(super) type CountsBelow = [usize; MAX_BUCKETS];

/// Records by the entries of the next level to which they belong, oldest first.
struct Groups<R> {
    records: Vec<R>,
    /// Where the records of each entry are that have not arrived yet.
    left: Vec<Range<usize>>,
}

impl<R> Groups<R> {
    /// What comes next of an entry's group: as much as the entry holds.
    fn portion(&self, place: usize, shape: Shape) -> &[R] {
        let left = &self.records[self.left[place].clone()];
        &left[..left.len().min(shape.records())]
    }
}

/// What an entry of a level, and those that continue it, have for the next level.
pub(super) struct Leaving<R> {
    groups: Groups<R>,
    /// What becomes of the estimate when the records that newer ones hide are gone.
    dropped: i64,
}

impl<R> Leaving<R> {
    /// How many records these are.
    pub(super) fn len(&self) -> usize {
        self.groups.records.len()
    }
}

/// Records on their way from below a root entry, or from itself, to the entries of a level from `first` on.
struct Migration<'h, M: Medium, R> {
    held: &'h Held<'h, M>,
    level: usize,
    first: u64,
    /// To which of the entries there.
    places: Range<usize>,
    groups: Groups<R>,
    /// What level 1 is told that it has all of, then.
    epoch: Option<LogEpoch>,
    /// What becomes of the estimate when all have arrived: those are gone that newer ones hide.
    dropped: i64,
    /// What the copies that have arrived add to the estimate when the others cannot follow.
    copied: i64,
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

/// A migration of records of `K -> V`.
type MigrationOf<'h, K, V, M> = Migration<'h, M, MovingOf<K, V>>;

/// A group of records: whose migration it belongs to, and for which of the entries there.
type Place = (usize, usize);

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
    /// The newest record of each key of some records, newest first, and what becomes of the estimate when the others
    /// are dropped.
    pub(super) fn newest_of(
        &self,
        newest_first: impl ExactSizeIterator<Item = MovingOf<K, V>>,
    ) -> Result<(Vec<MovingOf<K, V>>, i64)> {
        let mut newest = Newest::with_capacity(newest_first.len());
        let mut dropped = 0;
        for moving in newest_first {
            if !self.is_newest(&mut newest, moving)? {
                dropped += change_without(moving.record);
            }
        }
        Ok((newest.records, dropped))
    }

    /// Whether a record is the newest of its key, given all that are newer.
    #[inline(always)]
    pub(super) fn is_newest(
        &self,
        newest: &mut Newest<K::Words, V::Words>,
        moving: MovingOf<K, V>,
    ) -> Result<bool> {
        Ok(!self.dangles(moving.record)?
            && newest.add(moving, |a, b| self.same_key(a.record, b.record))?)
    }

    /// Keeps the estimate of how many records there are.
    pub(super) fn note_dropped(&self, record: RecordOf<K, V>) {
        self.estimate.add(change_without(record));
    }

    /// Moves the records of a root entry to level 1. Readers wait until its lock is let go.
    pub(super) fn migrate_root(&self, held: &Held<'_, M>) -> Result<()> {
        self.migrate_roots(&[held])
    }

    /// Moves the records of root entries to level 1. Readers wait until their locks are let go.
    pub(super) fn migrate_roots<'h>(&self, all: &[&'h Held<'h, M>]) -> Result<()> {
        let mut migrations = Vec::with_capacity(all.len());
        for &held in all {
            self.finish_underway(held)?;
            self.finish_departing(held)?;
            let (moved, size) = (self.root.moved(held.entry), self.root.size(held.entry));
            if size > 0 {
                let places = 0..1 << self.shape.step(0);
                let epoch = self.root.epoch(held.entry);
                migrations.push(self.of_root(held, moved..size, places, Some(epoch))?);
            }
        }
        self.distribute(&mut migrations)?;
        for held in migrations.iter().map(|migration| migration.held) {
            self.counts.migrations.add(1);
            held.begin_change();
            let epoch = self.root.epoch(held.entry);
            self.root.empty(held.entry);
            self.root.set_epoch(held.entry, epoch.next());
        }
        Ok(())
    }

    /// Moves so many of the oldest records of a root entry to level 1 that are not there yet, for all but the log: that
    /// counts them as arrived when all of the entry have.
    pub(super) fn migrate_portion(&self, held: &Held<'_, M>, portion: usize) -> Result<()> {
        let from = self.root.moved(held.entry);
        self.distribute(&mut [self.of_root(held, from..from + portion, 0..1, None)?])?;
        self.root.note_moved(held.entry, from + portion);
        Ok(())
    }

    /// A step of the migration of a root entry's records to the entries of level 1, of which a step reaches so many. The
    /// first one puts the records in their order. They stay in the root until the last of the entries has its own; what
    /// comes meanwhile belongs to the next epoch.
    pub(super) fn depart(&self, held: &Held<'_, M>, targets: usize) -> Result<()> {
        self.finish_underway(held)?;
        let (root, entry) = (&self.root, held.entry);
        let (place_below, fan_out) = (self.shape.place_below(0), 1 << self.shape.step(0));
        let place_of = |record| place_below(self.hash_of(record));
        let Some(Departing { records, place }) = root.departing(entry) else {
            held.begin_change();
            root.sort(entry, place_of);
            held.end_change();
            root.set_epoch(entry, root.epoch(entry).next());
            root.set_departing(entry, Some(Departing { records: root.size(entry), place: 0 }));
            return Ok(());
        };
        let (first, end) = (root.moved(entry), fan_out.min(place + targets));
        let is_behind = |&at: &usize| place_of(root.record(entry, at)) >= end;
        let moved = (first..records).find(is_behind).unwrap_or(records);
        let epoch = root.epoch(entry).previous();
        self.distribute(&mut [self.of_root(held, first..moved, place..end, Some(epoch))?])?;
        if end < fan_out {
            root.note_moved(entry, moved);
            root.set_departing(entry, Some(Departing { records, place: end }));
            return Ok(());
        }
        self.counts.migrations.add(1);
        held.begin_change();
        root.drop_first(entry, records);
        held.end_change();
        Ok(())
    }

    /// Moves what is left of the records that have begun to leave a root entry.
    pub(super) fn finish_departing(&self, held: &Held<'_, M>) -> Result<()> {
        while self.root.departing(held.entry).is_some() {
            self.depart(held, MAX_BUCKETS)?;
        }
        Ok(())
    }

    /// Records of a root entry on their way to some entries of level 1, which are told up to which epoch they have all
    /// of them.
    fn of_root<'h>(
        &self,
        held: &'h Held<'h, M>,
        records: Range<usize>,
        places: Range<usize>,
        epoch: Option<LogEpoch>,
    ) -> Result<MigrationOf<'h, K, V, M>> {
        if self.payloads().is_some() {
            // Payloads whose records were acknowledged before, too, before a level refers to them.
            self.pm.settle()?;
        }
        let first = (held.entry as u64) << self.shape.step(0);
        // They arrive from the medium while the records are merged.
        places.clone().for_each(|place| self.prefetch_entry(1, first + place as u64));
        let newest_first = records.rev().map(|at| self.moving(self.root.record(held.entry, at)));
        let (records, dropped) = self.newest_of(newest_first)?;
        let groups = self.group(0, records);
        Ok(Migration { held, level: 1, first, places, groups, epoch, dropped, copied: 0 })
    }

    /// Moves the records of a level's entry, and of those that continue it, to the next level.
    pub(super) fn migrate_down(&self, held: &Held<'_, M>, level: usize, index: u64) -> Result<()> {
        self.migrate_down_all(&[(held, Underway { level, index, place: 0 })])
    }

    /// Moves the records of levels' entries, and of those that continue them, to the next level; no two of one root
    /// entry.
    pub(super) fn migrate_down_all<'h>(&self, all: &[(&'h Held<'h, M>, Underway)]) -> Result<()> {
        let mut migrations = Vec::with_capacity(all.len());
        for &(held, underway) in all {
            let targets = 0..1 << self.shape.step(underway.level);
            migrations.push(self.of_level(held, underway, targets)?);
        }
        self.distribute(&mut migrations)?;
        self.leave_empty(all)
    }

    /// What a level's entry, and those that continue it, have for some of the entries below it.
    pub(super) fn leaving(
        &self,
        level: usize,
        index: u64,
        places: Range<usize>,
    ) -> Result<Leaving<MovingOf<K, V>>> {
        // They arrive from the medium while the records are merged.
        for place in places.clone() {
            self.prefetch_entry(level + 1, (index << self.shape.step(level)) + place as u64);
        }
        let entry = self.level_entry(level, index)?;
        let mut newest_first =
            Vec::with_capacity((self.shape.records() * places.len()) >> self.shape.step(level));
        let place = self.shape.place_below(level);
        self.newest_first_where(entry, &mut newest_first, |hash| places.contains(&place(hash)))?;
        let (newest, dropped) = self.newest_of(newest_first.into_iter())?;
        Ok(Leaving { groups: self.group(level, newest), dropped })
    }

    /// How many records a level's entry, and those that continue it, have for each of the entries below it, stale ones
    /// included.
    pub(super) fn counts_below(&self, level: usize, index: u64) -> Result<CountsBelow> {
        let mut counts = CountsBelow::default();
        let entry = self.level_entry(level, index)?;
        let place = self.shape.place_below(level);
        self.newest_first_where(entry, &mut Vec::new(), |hash| {
            counts[place(hash)] += 1;
            false
        })?;
        Ok(counts)
    }

    /// Moves what a level's entry, and those that continue it, have for some of the entries below it. They keep their
    /// copies.
    pub(super) fn move_down(
        &self,
        held: &Held<'_, M>,
        underway: Underway,
        places: Range<usize>,
    ) -> Result<()> {
        self.distribute(&mut [self.of_level(held, underway, places)?])
    }

    /// What a level's entry, and those that continue it, have for some of the entries below it, on its way there.
    fn of_level<'h>(
        &self,
        held: &'h Held<'h, M>,
        Underway { level, index, .. }: Underway,
        places: Range<usize>,
    ) -> Result<MigrationOf<'h, K, V, M>> {
        let Leaving { groups, dropped } = self.leaving(level, index, places.clone())?;
        let first = index << self.shape.step(level);
        let (level, epoch) = (level + 1, None);
        Ok(Migration { held, level, first, places, groups, epoch, dropped, copied: 0 })
    }

    /// Empties levels' entries, and what continues them, all of whose records are in the next level. Readers are let in
    /// again.
    pub(super) fn leave_empty(&self, all: &[(&Held<'_, M>, Underway)]) -> Result<()> {
        let left = self.leave_chains(all);
        if self.ranges.is_some() {
            for (_, Underway { level, index, .. }) in all {
                self.leaves.forget(self.level_entry(*level, *index)?.id);
            }
        }
        all.iter().for_each(|(held, _)| held.end_change());
        left
    }

    fn leave_chains(&self, all: &[(&Held<'_, M>, Underway)]) -> Result<()> {
        let mut chains = Vec::with_capacity(all.len());
        for (held, Underway { level, index, .. }) in all {
            self.counts.migrations.add(1);
            chains.push(self.chain_of(self.level_entry(*level, *index)?)?);
            held.begin_change();
        }
        // Where all records were stale, no fence came before.
        not_poisoned(&self.pm)?;
        // Oldest first: what is still there hides no newer record below.
        for nth in 0..chains.iter().map(Vec::len).max().unwrap_or(0) {
            for &entry in chains.iter().filter_map(|chain| chain.get(nth)) {
                let State { epoch, .. } = self.state(entry)?;
                self.store_state(entry, State { size: 0, epoch });
                self.forget_filter(entry);
            }
            // P8: the records are below only.
            self.pm.try_fence()?;
        }
        for chain in chains {
            while let Some(next) = self.next_of(chain[0])? {
                self.unchain(chain[0], next)?;
            }
        }
        Ok(())
    }

    /// Records by the entries of the next level to which they belong.
    fn group(&self, level: usize, newest_first: Vec<MovingOf<K, V>>) -> Groups<MovingOf<K, V>> {
        let place = self.shape.place_below(level);
        let mut left = vec![0..0; 1 << self.shape.step(level)];
        newest_first.iter().for_each(|moving| left[place(moving.hash)].end += 1);
        let mut end = 0;
        for range in &mut left {
            end += range.end;
            *range = end..end;
        }
        // In any order at first, for their room.
        let mut records = newest_first.clone();
        for moving in newest_first {
            // From the last one on.
            let start = &mut left[place(moving.hash)].start;
            *start -= 1;
            records[*start] = moving;
        }
        Groups { records, left }
    }

    /// Appends groups of records to the entries for which they are. Where that fails, all stay where they are, too.
    fn distribute(&self, migrations: &mut [MigrationOf<'_, K, V, M>]) -> Result<()> {
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

/// What some records are in the estimate of how many there are.
pub(super) fn counted<A, B>(records: &[Moving<A, B>]) -> i64 {
    records.iter().map(|moving| if moving.record.dead { -1 } else { 1 }).sum()
}

/// What becomes of the estimate of how many records there are when one is no more.
fn change_without<A, B>(record: Record<A, B>) -> i64 {
    if record.dead { 1 } else { -1 }
}
