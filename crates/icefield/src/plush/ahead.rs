//! Migrating ahead (past the paper): one entry at a time, while the root entry above still has room, so that no write
//! waits for a whole cascade of migrations.
//!
//! What level 1 holds for a root entry must leave before that entry's next migration, and it is known from the last one
//! on. So each write to the entry, from a quarter of its room on, takes one step: it migrates one entry, the first on the
//! way down below which nothing overflows. The migrations are those that would come anyway, only sooner, and fill as
//! much of each entry as they would.

use super::core::Core;
use super::root::{Held, Relief};
use crate::Result;
use crate::key::{Key, Value};
use crate::pm::Medium;

/// From which part of a root entry's room on its writes take steps.
const BEGIN_PART: usize = 4;

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// Takes one step for a root entry that has just got a record, unless none is left. The caller is pinned.
    #[inline]
    pub(super) fn step_ahead(&self, held: &Held<'_, M>) {
        let begun = self.root.size(held.entry) * BEGIN_PART >= self.shape.records();
        if begun && !self.root.is_relieved(held.entry) {
            self.step_below(held);
        }
    }

    #[cold]
    fn step_below(&self, held: &Held<'_, M>) {
        // What fails here fails again when the root entry is full, and is told then.
        let relief = self.relieve_root(held).unwrap_or(Relief::Room);
        self.root.note_relief(held.entry, relief);
    }

    /// One step for the entries of level 1 below a root entry, if one is left to take.
    fn relieve_root(&self, held: &Held<'_, M>) -> Result<Relief> {
        if self.level_count() == 1 {
            return Ok(Relief::Room);
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
                self.relieve(held, 1, index)?;
                return Ok(Relief::NotYet);
            }
            if size > 0 {
                relief = Relief::Room;
            }
        }
        Ok(relief)
    }

    /// Migrates an entry to the next level, or first one below it in which it would find no room.
    fn relieve(&self, held: &Held<'_, M>, level: usize, index: u64) -> Result<()> {
        let leaving = self.leaving(level, index)?;
        // Entries of the last level make room where they are.
        if level + 1 < self.level_count() {
            let below = index << self.shape.step(level);
            for (place, count) in leaving.counts() {
                let size = self.state(self.level_entry(level + 1, below + place)?)?.size;
                if size + count > self.shape.records() {
                    return self.relieve(held, level + 1, below + place);
                }
            }
        }
        self.move_down(held, level, index, leaving)
    }
}
