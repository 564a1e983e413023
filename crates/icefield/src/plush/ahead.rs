//! Migrating ahead (past the paper): in steps, while the root entry above still has room, so that no write waits for a
//! whole cascade of migrations, nor single ones for a whole migration.
//!
//! What level 1 holds for a root entry must leave before that entry's next migration, and it is known from the last one
//! on. So each write to the entry, from a quarter of its room on, takes one step: a part of the migration of one entry,
//! the first on the way down below which nothing overflows. The migrations are those that would come anyway, only
//! sooner, and fill as much of each entry as they would. The root entry's own records follow. Where level 1 has one
//! entry for them, they go there a quarter at a time when it holds nothing any more. Where it has several, the root
//! entry's records begin to depart when it is nearly full: a first step puts them in the order of these entries, each
//! later one moves those for the next of them, and the last one makes room for what has come meanwhile.
//!
//! An entry of which a part has left still has all its records, until the last part has: what is there twice is hidden
//! once. Nothing else comes to it or leaves it meanwhile, as the next migration of the root entry takes the steps that
//! are left. A root entry keeps its records likewise. What comes to it while they depart belongs to the next epoch, so an
//! entry of level 1 is told theirs with its part.

use super::core::Core;
use super::migrate::counted;
use super::root::{Held, Relief, Underway};
use crate::Result;
use crate::key::{Key, Value};
use crate::pm::Medium;

/// From which part of a root entry's room on its writes take steps, and which part of it leaves in one.
const PARTS: usize = 4;
/// In how many steps records leave for all entries below.
const STEPS: usize = 8;

/// How much a step may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Little: somebody waits for a single write.
    Parts,
    /// A whole migration: many writes share it.
    Whole,
}

/// What there is to do below a root entry.
pub(super) enum Next {
    /// A migration, to begin with.
    Migrate(Underway),
    /// Nothing, and why.
    Done(Relief),
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// Takes one step for a root entry that has just got a record, unless none is left. The caller is pinned.
    #[inline]
    pub(super) fn step_ahead(&self, held: &Held<'_, M>, pace: Pace) {
        let size = self.root.size(held.entry);
        if size * PARTS < self.shape.records() {
            return;
        }
        if self.pm.fence_syncs() {
            self.step_together(&[held]);
        } else if !self.root.is_relieved(held.entry) {
            self.step_below(held, pace);
        } else if pace == Pace::Parts && self.departure_is_due(held, size) {
            self.step_down(held);
        }
    }

    #[cold]
    fn step_below(&self, held: &Held<'_, M>, pace: Pace) {
        let step = match self.root.underway(held.entry) {
            Some(underway) => self.go_on(held, underway, pace).map(|()| Relief::NotYet),
            None => self.begin_step(held, pace),
        };
        // What fails here fails again when the root entry is full, and is told then.
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

    /// Whether some of a root entry's records can go to level 1: the oldest where there is one entry for them that has
    /// nothing else, those for the next of several entries otherwise, when as few writes are left as there are steps.
    #[inline]
    fn departure_is_due(&self, held: &Held<'_, M>, size: usize) -> bool {
        let room = self.shape.records();
        if self.shape.step(0) > 0 {
            // One step more to begin with.
            return size + (STEPS + 1).min(room / PARTS) >= room
                || self.root.departing(held.entry).is_some();
        }
        (size - self.root.moved(held.entry)) * PARTS >= room && self.root.is_sole(held.entry)
    }

    #[cold]
    fn step_down(&self, held: &Held<'_, M>) {
        let step = match 1 << self.shape.step(0) {
            1 => self.migrate_portion(held, (self.shape.records() / PARTS).max(1)),
            fan_out => self.depart(held, (fan_out / STEPS).max(1)),
        };
        if step.is_err() {
            // As above.
            self.root.note_relief(held.entry, Relief::Room);
        }
    }

    /// The next migration below a root entry, if one is left.
    pub(super) fn next_below(&self, held: &Held<'_, M>) -> Result<Next> {
        if self.level_count() == 1 {
            return Ok(Next::Done(Relief::Room));
        }
        let (step, room) = (self.shape.step(0), self.shape.records());
        let mut relief = Relief::Empty;
        for child in 0..1 << step {
            let index = ((held.entry as u64) << step) + child;
            let first = self.level_entry(1, index)?;
            let size = self.state(first)?.size;
            // From when this was the last level, the entry may be continued, whatever it holds itself.
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

    /// An entry, or the first one below it in which it would find no room, that one's likewise.
    fn deepest_overflowing(&self, mut entry: Underway) -> Result<Underway> {
        while let Some(index) = self.overflowing(entry)? {
            entry = Underway { level: entry.level + 1, index, place: 0 };
        }
        Ok(entry)
    }

    /// The first entry in which one above would find no room. Entries of the last level make room where they are.
    fn overflowing(&self, Underway { level, index, .. }: Underway) -> Result<Option<u64>> {
        if level + 1 == self.level_count() {
            return Ok(None);
        }
        let first = index << self.shape.step(level);
        let counts = self.counts_below(level, index)?;
        for (place, &count) in counts.iter().enumerate().take(1 << self.shape.step(level)) {
            let below = first + place as u64;
            let entry = self.level_entry(level + 1, below)?;
            let size = self.state(entry)?.size;
            let overflows = |count| size + count > self.shape.records();
            // Nothing can leave what is empty: more than fit there, of a continued entry, arrive in portions. Merged,
            // they may be few enough.
            if overflows(count)
                && (size > 0 || self.next_of(entry)?.is_some())
                && overflows(self.leaving(level, index, place..place + 1)?.len())
            {
                return Ok(Some(below));
            }
        }
        Ok(None)
    }

    /// Goes on with the migration of an entry.
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

    /// To how many entries a step moves records: to few at first, to more when the root entry will soon be full.
    fn targets_of_a_step(&self, held: &Held<'_, M>, fan_out: usize, pace: Pace) -> usize {
        let quarters = self.root.size(held.entry) * 4 / self.shape.records();
        match (pace, quarters) {
            (Pace::Parts, 0 | 1) => (fan_out / STEPS).max(1),
            (Pace::Parts, 2) => (fan_out * 2 / STEPS).max(1),
            _ => fan_out,
        }
    }

    /// Gives a migration up that is underway: what it has moved is there twice from now on, and counts so.
    pub(super) fn give_up_underway(&self, held: &Held<'_, M>) -> Result<()> {
        let Some(underway) = self.root.underway(held.entry) else { return Ok(()) };
        let Underway { level, index, place } = underway;
        let (mut moved, place_below) = (Vec::new(), self.shape.place_below(level));
        let first = self.level_entry(level, index)?;
        self.newest_first_where(first, &mut moved, |hash| place_below(hash) < place)?;
        self.root.set_underway(held.entry, None);
        self.estimate.add(counted(&moved));
        Ok(())
    }

    /// Takes all steps that a migration underway has left: nothing may come to its entry before.
    pub(super) fn finish_underway(&self, held: &Held<'_, M>) -> Result<()> {
        while let Some(underway) = self.root.underway(held.entry) {
            self.go_on(held, underway, Pace::Whole)?;
        }
        Ok(())
    }
}
