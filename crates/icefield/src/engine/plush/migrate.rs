//! Migration (§4.1, §5.1, Listing 2): an entry's records move to the entries below it, all at once, or in parts ahead
//! of time (`incremental_migration`).
//!
//! The data of eight targets share a fence, and so do their states. Where a fence is a sync, those of many root
//! entries share it (`grouped_migration`). A crash in between leaves records twice, above and below: the upper copy
//! hides the lower one, and the next migration merges them.

use std::ops::Range;

use super::core::Core;
use super::epoch::LogEpoch;
use super::layout::{MAX_BUCKETS, State};
use super::moving::{Departing, MovingOf, Underway};
use super::newest::Newest;
use super::payload_log::HINTED_AHEAD;
use super::root_lock::Held;
use super::words::{Record, RecordOf};
use crate::Result;
use crate::storage::{Medium, not_poisoned};
use crate::types::RecordForm;

mod arrive;

/// The number of records for each entry of the next level.
pub(super) type CountsBelow = [usize; MAX_BUCKETS];

/// Records grouped by their entry of the next level, oldest first.
struct Groups<R> {
    records: Vec<R>,
    /// For each entry, the range of its records that have not arrived yet.
    left: Vec<Range<usize>>,
}

/// The records that a level's entry, and those that continue it, have for the next level.
pub(super) struct Leaving<R> {
    groups: Groups<R>,
    /// Change of the estimated number of records when the records that newer ones hide are dropped.
    dropped: i64,
}

impl<R> Leaving<R> {
    pub(super) fn len(&self) -> usize {
        self.groups.records.len()
    }
}

/// Records that move from an entry of the level above, or from a root entry, to entries of `level` from `first` on.
struct Migration<'h, M: Medium, R> {
    held: &'h Held<'h, M>,
    level: usize,
    first: u64,
    /// The entries of the level that are targets, relative to `first`.
    places: Range<usize>,
    groups: Groups<R>,
    /// The log epoch that the targets in level 1 store with their records; `None` in other levels, and if a target does
    /// not get all its records of the epoch yet.
    epoch: Option<LogEpoch>,
    /// `true` if some targets have stored the epoch.
    told: bool,
    /// Change of the estimate if all records arrive, and those that newer ones hide are dropped.
    dropped: i64,
    /// Change of the estimate if the migration fails: the copies that have arrived count as records.
    copied: i64,
}

type MigrationOf<'h, R, M> = Migration<'h, M, MovingOf<R>>;

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Returns the newest record of each key among some records, newest first, and the change of the estimate when
    /// the others are dropped.
    pub(super) fn newest_of<'m>(
        &self,
        newest_first: &'m [MovingOf<R>],
    ) -> Result<(Vec<&'m MovingOf<R>>, i64)> {
        let mut newest = Newest::with_capacity(newest_first.len());
        let mut dropped = 0;
        self.each_newest(&mut newest, newest_first, |moving, is_newest| {
            if !is_newest {
                dropped += change_without(moving.record);
            }
        })?;
        Ok((newest.records, dropped))
    }

    /// Calls `tell` with each record and a flag that is `true` if the record is the newest of its key. A record is not
    /// the newest if its payload was freed, if `newest` holds its key already, or if a record before it has the same
    /// key.
    #[inline(always)]
    pub(super) fn each_newest<'m>(
        &self,
        newest: &mut Newest<'m, R::KeyWords, R::ValueWords>,
        newest_first: &'m [MovingOf<R>],
        mut tell: impl FnMut(&'m MovingOf<R>, bool),
    ) -> Result<()> {
        let hinted = newest_first.iter().skip(HINTED_AHEAD);
        let mut hints = self.payloads().map(|payloads| (payloads, hinted));
        for moving in newest_first {
            // Records with the same hash are compared by the keys in their payloads, which are rarely in the cache.
            if let Some((payloads, hinted)) = &mut hints
                && let Some(ahead) = hinted.next()
                && let Some(known) = newest.likely(ahead.hash)
                && known.record.value != ahead.record.value
            {
                payloads.hint(ahead.record.reference());
                payloads.hint(known.record.reference());
            }
            let is_newest = !self.dangles(moving.record)?
                && newest.add(moving, |a, b| self.same_key(a.record, b.record))?;
            tell(moving, is_newest);
        }
        Ok(())
    }

    /// Updates the estimated number of records when a record is dropped.
    pub(super) fn note_dropped(&self, record: RecordOf<R>) {
        self.tallies.add_records(change_without(record));
    }

    /// Moves the records of a root entry to level 1. Afterwards, readers wait until the entry's lock is released.
    pub(super) fn migrate_root(&self, held: &Held<'_, M>) -> Result<()> {
        self.migrate_roots(&[held])
    }

    /// Moves the records of root entries to level 1. Afterwards, readers wait until the entries' locks are released.
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
                // If only some targets get their records and the epoch, all records stay here. Later records must belong
                // to the next epoch: recovery takes those of this one for arrived in these targets.
                self.root.set_epoch(held.entry, epoch.next());
            }
        }
        self.distribute(&mut migrations)?;
        for held in migrations.iter().map(|migration| migration.held) {
            self.tallies.add_migration();
            held.begin_change();
            self.root.empty(held.entry);
        }
        Ok(())
    }

    /// Moves the `portion` oldest records of a root entry that are not in level 1 yet. Their log records are needed
    /// until all records of the entry have moved.
    pub(super) fn migrate_portion(&self, held: &Held<'_, M>, portion: usize) -> Result<()> {
        let from = self.root.moved(held.entry);
        self.distribute(&mut [self.of_root(held, from..from + portion, 0..1, None)?])?;
        self.root.note_moved(held.entry, from + portion);
        Ok(())
    }

    /// Takes one step of the migration of a root entry's records to level 1, to `targets` entries. The first step sorts
    /// the records by target. The records stay in the root until the last target has received its records. Records that
    /// come to the root entry in between belong to the next epoch.
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
        self.tallies.add_migration();
        held.begin_change();
        root.drop_first(entry, records);
        held.end_change();
        Ok(())
    }

    /// Moves the remaining records that have begun to leave a root entry.
    pub(super) fn finish_departing(&self, held: &Held<'_, M>) -> Result<()> {
        while self.root.departing(held.entry).is_some() {
            self.depart(held, MAX_BUCKETS)?;
        }
        Ok(())
    }

    /// Prepares the migration of some records of a root entry to some entries of level 1. If `epoch` is given, the
    /// targets will store it: they will have all their records up to that epoch.
    fn of_root<'h>(
        &self,
        held: &'h Held<'h, M>,
        records: Range<usize>,
        places: Range<usize>,
        epoch: Option<LogEpoch>,
    ) -> Result<MigrationOf<'h, R, M>> {
        if self.payloads().is_some() {
            // Levels refer to durable payloads only. Payloads of records that were acknowledged early, or written
            // without a log, may not be durable yet.
            self.storage.fence_deferred()?;
        }
        let first = (held.entry as u64) << self.shape.step(0);
        // The entries arrive in the cache while the records are merged.
        places.clone().for_each(|place| self.prefetch_entry(1, first + place as u64));
        self.root.prefetch_records(held.entry, records.clone());
        let moving = |at| self.moving(self.root.record(held.entry, at));
        let newest_first: Vec<_> = records.rev().map(moving).collect();
        let (newest, dropped) = self.newest_of(&newest_first)?;
        let groups = self.group(0, &newest);
        let level = 1;
        Ok(Migration { held, level, first, places, groups, epoch, told: false, dropped, copied: 0 })
    }

    /// Moves the records of a level's entry, and of those that continue it, to the next level.
    pub(super) fn migrate_down(&self, held: &Held<'_, M>, level: usize, index: u64) -> Result<()> {
        self.migrate_down_all(&[(held, Underway { level, index, place: 0 })])
    }

    /// Moves the records of entries of levels, and of those that continue them, to the next level. No two of the
    /// entries may belong to one root entry.
    pub(super) fn migrate_down_all<'h>(&self, all: &[(&'h Held<'h, M>, Underway)]) -> Result<()> {
        let mut migrations = Vec::with_capacity(all.len());
        for &(held, underway) in all {
            let targets = 0..1 << self.shape.step(underway.level);
            migrations.push(self.of_level(held, underway, targets)?);
        }
        self.distribute(&mut migrations)?;
        self.leave_empty(all)
    }

    /// Returns the records that a level's entry, and those that continue it, have for some of the entries below it.
    pub(super) fn leaving(
        &self,
        level: usize,
        index: u64,
        places: Range<usize>,
    ) -> Result<Leaving<MovingOf<R>>> {
        // The entries arrive in the cache while the records are merged.
        for place in places.clone() {
            self.prefetch_entry(level + 1, (index << self.shape.step(level)) + place as u64);
        }
        let entry = self.level_entry(level, index)?;
        let mut newest_first =
            Vec::with_capacity((self.shape.records() * places.len()) >> self.shape.step(level));
        let place = self.shape.place_below(level);
        self.newest_first_where(entry, &mut newest_first, |hash| places.contains(&place(hash)))?;
        let (newest, dropped) = self.newest_of(&newest_first)?;
        Ok(Leaving { groups: self.group(level, &newest), dropped })
    }

    /// Counts the records that a level's entry, and those that continue it, have for each of the entries below it,
    /// stale ones included.
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

    /// Copies the records that a level's entry, and those that continue it, have for some of the entries below it.
    /// The sources keep their records.
    pub(super) fn move_down(
        &self,
        held: &Held<'_, M>,
        underway: Underway,
        places: Range<usize>,
    ) -> Result<()> {
        self.distribute(&mut [self.of_level(held, underway, places)?])
    }

    /// Prepares the migration of a level's entry, and those that continue it, to some of the entries below it.
    fn of_level<'h>(
        &self,
        held: &'h Held<'h, M>,
        Underway { level, index, .. }: Underway,
        places: Range<usize>,
    ) -> Result<MigrationOf<'h, R, M>> {
        let Leaving { groups, dropped } = self.leaving(level, index, places.clone())?;
        let first = index << self.shape.step(level);
        let (level, epoch) = (level + 1, None);
        Ok(Migration { held, level, first, places, groups, epoch, told: false, dropped, copied: 0 })
    }

    /// Empties entries of levels, and those that continue them, after all their records have moved to the next level.
    /// Then readers proceed.
    pub(super) fn leave_empty(&self, all: &[(&Held<'_, M>, Underway)]) -> Result<()> {
        let left = self.leave_chains(all);
        if self.placement.ranges().is_some() {
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
            self.tallies.add_migration();
            chains.push(self.chain_of(self.level_entry(*level, *index)?)?);
            held.begin_change();
        }
        // If all records were stale, no earlier fence has reported a failed sync.
        not_poisoned(&self.storage)?;
        // Oldest first, so that a remaining record never hides a newer one below.
        for nth in 0..chains.iter().map(Vec::len).max().unwrap_or(0) {
            for &entry in chains.iter().filter_map(|chain| chain.get(nth)) {
                let State { epoch, .. } = self.state(entry)?;
                self.store_state(entry, State { size: 0, epoch });
                self.forget_filter(entry);
            }
            // P8: from here on a crash leaves these records below only.
            self.storage.try_fence()?;
        }
        for chain in chains {
            while let Some(next) = self.next_of(chain[0])? {
                self.unchain(chain[0], next)?;
            }
        }
        Ok(())
    }

    /// Groups records by their entry of the next level.
    fn group(&self, level: usize, newest_first: &[&MovingOf<R>]) -> Groups<MovingOf<R>> {
        let place = self.shape.place_below(level);
        let mut left = vec![0..0; 1 << self.shape.step(level)];
        newest_first.iter().for_each(|moving| left[place(moving.hash)].end += 1);
        let mut end = 0;
        for range in &mut left {
            end += range.end;
            *range = end..end;
        }
        // The order comes first, so that each record is copied once.
        let mut order = vec![0_u32; newest_first.len()];
        for (at, moving) in newest_first.iter().enumerate() {
            // Each group is filled from its end.
            let start = &mut left[place(moving.hash)].start;
            *start -= 1;
            order[*start] = at as u32;
        }
        let records = order.into_iter().map(|at| *newest_first[at as usize]).collect();
        Groups { records, left }
    }
}

/// Returns the change of the estimated number of records when a record is dropped.
fn change_without<A, B>(record: Record<A, B>) -> i64 {
    if record.dead { 1 } else { -1 }
}
