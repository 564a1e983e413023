//! Migrations on disks (not in the paper): a fence is a sync, and the migrations of many root entries share it.
//!
//! A migration has at least four fences, each a sync of every file involved, for 256 records; a batch needs one sync
//! for its log records. So nothing moves until a root entry must move its records. Then other entries that would soon
//! have to move theirs join in: those that a window has locked anyway, and others whose lock is free. They move fewer
//! records than they have room for, which costs some more migrations, but each migration takes only a small part of a
//! sync.

use super::core::Core;
use super::incremental_migration::Next;
use super::root::Relief;
use super::root_lock::Held;
use crate::Result;
use crate::storage::Medium;
use crate::types::RecordForm;

/// Maximum number of root entries that are locked in addition to those of a window, and maximum number that are
/// examined to find them.
const TOGETHER: usize = 32;
const LOOKED_AT: usize = 1024;
/// Number of parts into which a root entry's room is divided. The following constants count in these parts.
const PARTS: usize = 16;
/// When this many parts are used, level 1 must make room for the entry.
const BELOW_DUE: usize = 12;
/// When this many parts are used, level 1 makes room for the entry if it does so for another one.
const BELOW_READY: usize = 4;
/// When this many parts are used, the entry's own records must move to level 1.
const ROOT_DUE: usize = 15;
/// When this many parts are used, the entry's own records move to level 1 if those of another entry do.
const ROOT_READY: usize = 14;

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Makes room in and below root entries that have just received records, if one of them needs it soon. The caller
    /// is pinned, and readers see all records of the entries.
    pub(super) fn step_together(&self, helds: &[&Held<'_, M>]) {
        // Checked first, because not all steps below report a failed sync.
        if self.storage.check_writable().is_err() {
            return;
        }
        if helds.iter().any(|held| self.is_due_below(held.entry)) {
            let is_ready = |entry| self.fills(entry, BELOW_READY) && !self.root.is_relieved(entry);
            self.with_others(helds, is_ready, |all| self.relieve(all));
        }
        if helds.iter().any(|held| self.fills(held.entry, ROOT_DUE)) {
            // A step that fails here fails again when a root entry is full, and the error is reported then.
            let _ = self.with_others(helds, self.leaves_soon(), |all| self.migrate_roots(all));
        }
    }

    /// Like [`Core::step_together`], for entries that are not locked. Those whose lock is not free are left out.
    pub(super) fn step_later(&self, entries: impl Iterator<Item = usize> + Clone) {
        let is_due = |entry| self.fills(entry, ROOT_DUE) || self.is_due_below(entry);
        if entries.clone().any(is_due) {
            let locked = entries.filter_map(|entry| self.root.try_lock(&self.storage, entry));
            let helds: Vec<_> = locked.collect();
            self.step_together(&helds.iter().collect::<Vec<_>>());
        }
    }

    /// Returns whether level 1 must make room for a root entry.
    fn is_due_below(&self, entry: usize) -> bool {
        self.fills(entry, BELOW_DUE) && !self.root.is_relieved(entry)
    }

    /// Empties a full root entry; on disks, also others that are nearly full. If records of the full entry are
    /// departing, only moves these.
    pub(super) fn empty_together(&self, held: &Held<'_, M>) -> Result<()> {
        if self.root.departing(held.entry).is_some() {
            return self.finish_departing(held);
        }
        self.migrate_with_others(held, self.leaves_soon())
    }

    /// Empties a root entry. On disks, also empties other root entries for which `is_time` holds.
    pub(super) fn migrate_with_others(
        &self,
        held: &Held<'_, M>,
        is_time: impl Fn(usize) -> bool,
    ) -> Result<()> {
        if !self.storage.fence_syncs() {
            return self.migrate_root(held);
        }
        let is_time = |entry| entry == held.entry || is_time(entry);
        self.with_others(&[held], is_time, |all| self.migrate_roots(all))
    }

    /// Returns whether at least `parts` parts of a root entry's room are used.
    fn fills(&self, entry: usize, parts: usize) -> bool {
        self.root.size(entry) * PARTS >= self.shape.records() * parts
    }

    /// A predicate for root entries that are nearly full and for whose records level 1 has room.
    fn leaves_soon(&self) -> impl Fn(usize) -> bool {
        |entry| self.fills(entry, ROOT_READY) && self.root.is_relieved(entry)
    }

    /// Calls `work` with root entries for which `is_time` holds: those among the given ones, and others whose lock is
    /// free.
    fn with_others<T>(
        &self,
        helds: &[&Held<'_, M>],
        is_time: impl Fn(usize) -> bool,
        work: impl FnOnce(&[&Held<'_, M>]) -> T,
    ) -> T {
        let (first, entries) = (helds[0].entry, self.root.entries());
        let behind = (1..entries.min(LOOKED_AT)).map(|step| (first + step) % entries);
        let others: Vec<Held<'_, M>> = behind
            .filter(|&entry| is_time(entry))
            .filter_map(|entry| self.root.try_lock(&self.storage, entry))
            .filter(|held| is_time(held.entry))
            .take(TOGETHER)
            .collect();
        let own = helds.iter().copied().filter(|held| is_time(held.entry));
        work(&own.chain(&others).collect::<Vec<_>>())
    }

    /// Runs all migrations that remain below some root entries.
    fn relieve(&self, helds: &[&Held<'_, M>]) {
        let mut left = helds.to_vec();
        while !left.is_empty() {
            let mut migrations = Vec::with_capacity(left.len());
            for &held in &left {
                match self.next_below(held) {
                    Ok(Next::Migrate(underway)) => migrations.push((held, underway)),
                    Ok(Next::Done(relief)) => self.root.note_relief(held.entry, relief),
                    // As in `step_together`, a step that fails here fails again when a root entry is full, and the
                    // error is reported then.
                    Err(_) => self.root.note_relief(held.entry, Relief::Room),
                }
            }
            left = migrations.iter().map(|(held, _)| *held).collect();
            if self.migrate_down_all(&migrations).is_err() {
                left.drain(..).for_each(|held| self.root.note_relief(held.entry, Relief::Room));
            }
        }
    }
}
