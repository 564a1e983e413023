//! Migrating ahead (not in the paper): migrations run in steps while the root entry above still has room, so that no
//! write waits for a whole cascade of migrations, and single writes do not even wait for a whole migration.
//!
//! Before a root entry migrates, level 1 must have room for its records. The records that must leave level 1 for that
//! are known since the root entry's last migration. So each write to the root entry takes one step, once a quarter of
//! its room is used. A step is a part of the migration of one entry: on the way down from level 1, the first entry
//! whose records overflow no entry of the next level. These migrations would run later anyway, and would move the same
//! records then. After these migrations the records of the root entry itself move. If they have one target in level 1,
//! they move there a quarter at a time when level 1 has no other records. If they have several targets, they begin to
//! depart when the root entry is nearly full: the first step sorts them by target, each later step moves those for the
//! next targets, and the last one removes them from the root entry. Where a helper takes these steps (`helper`), writes
//! begin later.
//!
//! An entry keeps all its records until the last part of them has moved; until then the upper copy of a record hides
//! the lower one. In between no other records come to the entry or leave it, because the next migration of the root
//! entry first takes the remaining steps. A root entry keeps its records in the same way. Records that come to it
//! during a departure belong to the next epoch, and each target in level 1 stores the epoch of the departing records
//! together with its part.

use super::core::Core;
use super::moving::{Underway, counted};
use super::root::Relief;
use super::root_lock::Held;
use crate::Result;
use crate::storage::Medium;
use crate::types::RecordForm;

/// The parts into which a root entry's room is divided. Writes to the entry take steps once one part is used. If the
/// entry has one target in level 1, a step moves one part.
const PARTS: usize = 4;
/// The same where a helper takes the steps, if it is not late.
const HELPED_PARTS: usize = 2;
/// Number of steps of a migration to several entries. Fewer if the root entry fills up before a migration below it
/// ends.
const STEPS: usize = 8;

/// The size of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// A part of a migration: a single write waits for it.
    Parts,
    /// A whole migration: many writes share it.
    Whole,
}

/// The next work below a root entry.
pub(super) enum Next {
    /// The migration that comes first.
    Migrate(Underway),
    /// No migration is left. The relief is the state of level 1.
    Done(Relief),
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Takes one step, if one is left, for a root entry that has just received a record. The caller is pinned.
    #[inline]
    pub(super) fn step_ahead(&self, held: &Held<'_, M>, pace: Pace) {
        let size = self.root.size(held.entry);
        if size * PARTS < self.shape.records() {
            return;
        }
        if self.storage.fence_syncs() {
            self.step_together(&[held]);
            return;
        }
        if let Some(requests) = &self.requests {
            self.ask_helper(requests, held.entry, size);
            if size * HELPED_PARTS < self.shape.records() {
                return;
            }
        }
        if !self.takes_step(held, pace) && pace == Pace::Parts && self.departure_is_due(held, size)
        {
            self.step_down(held);
        }
    }

    /// Takes one step below a root entry. Returns `false` if no step was left.
    #[inline]
    pub(super) fn takes_step(&self, held: &Held<'_, M>, pace: Pace) -> bool {
        let is_left = !self.root.is_relieved(held.entry);
        if is_left {
            self.step_below(held, pace);
        }
        is_left
    }

    #[cold]
    fn step_below(&self, held: &Held<'_, M>, pace: Pace) {
        let step = match self.root.underway(held.entry) {
            Some(underway) => self.go_on(held, underway, pace).map(|()| Relief::NotYet),
            None => self.begin_step(held, pace),
        };
        // A step that fails here fails again when the root entry is full, and the error is reported then.
        self.root.note_relief(held.entry, step.unwrap_or(Relief::Room));
    }

    fn begin_step(&self, held: &Held<'_, M>, pace: Pace) -> Result<Relief> {
        Ok(match self.next_below(held)? {
            Next::Done(relief) => relief,
            Next::Migrate(all) => {
                self.root.set_underway(held.entry, Some(all));
                if pace == Pace::Whole {
                    self.finish_underway(held)?;
                }
                Relief::NotYet
            }
        })
    }

    /// Returns whether some of a root entry's records can move to level 1. With one target these are the oldest
    /// records; they can move while level 1 has no other records of the entry. With several targets these are the
    /// records for the next target; they can move once the entry has room for only about one write per step.
    #[inline]
    fn departure_is_due(&self, held: &Held<'_, M>, size: usize) -> bool {
        let room = self.shape.records();
        // Besides `STEPS` steps for the targets, there is one for the sort.
        let is_last_time = size + (STEPS + 1).min(room / PARTS) >= room;
        if self.shape.step(0) > 0 {
            return is_last_time || self.root.departing(held.entry).is_some();
        }
        (self.requests.is_none() || is_last_time)
            && (size - self.root.moved(held.entry)) * PARTS >= room
            && self.root.is_sole(held.entry)
    }

    #[cold]
    fn step_down(&self, held: &Held<'_, M>) {
        let step = match 1 << self.shape.step(0) {
            1 => self.migrate_portion(held, (self.shape.records() / PARTS).max(1)),
            fan_out => self.depart(held, (fan_out / STEPS).max(1)),
        };
        if step.is_err() {
            // As in `step_below`.
            self.root.note_relief(held.entry, Relief::Room);
        }
    }

    /// The next migration below a root entry, if one is left.
    pub(super) fn next_below(&self, held: &Held<'_, M>) -> Result<Next> {
        if self.levels.count(&self.storage) == 1 {
            return Ok(Next::Done(Relief::Room));
        }
        let (step, room) = (self.shape.step(0), self.shape.records());
        let mut relief = Relief::Empty;
        for child in 0..1 << step {
            let index = ((held.entry as u64) << step) + child;
            let first = self.level_entry(1, index)?;
            let size = self.state(first)?.size;
            // An entry that was continued while level 1 was the last level may still be continued, however few records
            // it has.
            let is_continued = self.next_of(first)?.is_some();
            if is_continued || size + (room >> step) > room {
                let level_1 = Underway { level: 1, index, place: 0 };
                return self.deepest_overflowing(level_1).map(Next::Migrate);
            }
            if size > 0 {
                relief = Relief::Room;
            }
        }
        Ok(Next::Done(relief))
    }

    /// Goes down from an entry: as long as the records of the entry reached would overflow an entry of the next level,
    /// continues with the first such entry. Returns the last entry reached.
    fn deepest_overflowing(&self, mut entry: Underway) -> Result<Underway> {
        while let Some(index) = self.overflowing(entry)? {
            entry = Underway { level: entry.level + 1, index, place: 0 };
        }
        Ok(entry)
    }

    /// The first entry of the next level that the records of an entry would overflow. `None` if the next level is the
    /// last one, whose entries make room for themselves.
    fn overflowing(&self, Underway { level, index, .. }: Underway) -> Result<Option<u64>> {
        if level + 1 == self.levels.count(&self.storage) {
            return Ok(None);
        }
        let first = index << self.shape.step(level);
        let counts = self.counts_below(level, index)?;
        for (place, &count) in counts.iter().enumerate().take(1 << self.shape.step(level)) {
            let below = first + place as u64;
            let entry = self.level_entry(level + 1, below)?;
            let size = self.state(entry)?.size;
            let overflows = |count| size + count > self.shape.records();
            // An empty entry has no records that could leave first. If a continued entry above has more records for it
            // than fit, they arrive in portions. `leaving` merges the records before the second count, because stale
            // ones do not arrive.
            if overflows(count)
                && (size > 0 || self.next_of(entry)?.is_some())
                && overflows(self.leaving(level, index, place..place + 1)?.len())
            {
                return Ok(Some(below));
            }
        }
        Ok(None)
    }

    /// Continues the migration of an entry.
    fn go_on(&self, held: &Held<'_, M>, underway: Underway, pace: Pace) -> Result<()> {
        let fan_out = 1 << self.shape.step(underway.level);
        let place = underway.place;
        let end = fan_out.min(place + self.targets_of_a_step(held, fan_out, pace));
        self.move_down(held, underway, place..end)?;
        let rest = if end < fan_out {
            Some(Underway { place: end, ..underway })
        } else {
            self.leave_empty(&[(held, underway)])?;
            None
        };
        self.root.set_underway(held.entry, rest);
        Ok(())
    }

    /// The number of targets to which a step moves records: few at first, more when the root entry is nearly full.
    fn targets_of_a_step(&self, held: &Held<'_, M>, fan_out: usize, pace: Pace) -> usize {
        let quarters = self.root.size(held.entry) * 4 / self.shape.records();
        match (pace, quarters) {
            (Pace::Parts, 0 | 1) => (fan_out / STEPS).max(1),
            (Pace::Parts, 2) => (fan_out * 2 / STEPS).max(1),
            _ => fan_out,
        }
    }

    /// Abandons a migration that is underway. From here on, the estimate counts the copies that it has made as records.
    pub(super) fn give_up_underway(&self, held: &Held<'_, M>) -> Result<()> {
        let Some(underway) = self.root.underway(held.entry) else { return Ok(()) };
        let Underway { level, index, place } = underway;
        let (mut moved, place_below) = (Vec::new(), self.shape.place_below(level));
        let first = self.level_entry(level, index)?;
        self.newest_first_where(first, &mut moved, |hash| place_below(hash) < place)?;
        self.root.set_underway(held.entry, None);
        self.tallies.add_records(counted(&moved));
        Ok(())
    }

    /// Takes all remaining steps of a migration that is underway. Called before other records come to its entry.
    pub(super) fn finish_underway(&self, held: &Held<'_, M>) -> Result<()> {
        while let Some(underway) = self.root.underway(held.entry) {
            self.go_on(held, underway, Pace::Whole)?;
        }
        Ok(())
    }
}
