//! Migrations on disks (past the paper): where a fence is a sync, those of many root entries share it.
//!
//! A migration has four fences at least, each a sync of every file that it concerns, for 256 records; a batch needs one
//! sync for its log records. So nothing moves until a root entry has to let something go, and then what others would
//! soon have to, too: those of the window that are locked anyway, and others that are free at the moment. They take
//! part with less than they hold room for, which costs some more migrations, but each a small part of a sync.

use super::ahead::Next;
use super::core::Core;
use super::root::{Held, Relief};
use crate::Result;
use crate::key::{Key, Value};
use crate::pm::Medium;

/// Root entries that are locked for it besides those of a window, and how many are looked at for them.
const TOGETHER: usize = 32;
const LOOKED_AT: usize = 1024;
/// Of how many parts of a root entry's room: from when on level 1 is to have room for it, and from when on it makes some
/// if others have to.
const PARTS: usize = 16;
const BELOW_DUE: usize = 12;
const BELOW_READY: usize = 4;
/// The same of its own records.
const ROOT_DUE: usize = 15;
const ROOT_READY: usize = 14;

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// Makes room below root entries that have just got records, and in them, if one needs it soon. The caller is
    /// pinned.
    pub(super) fn step_together(&self, helds: &[&Held<'_, M>]) {
        // Not all of what follows reports a failed sync.
        if self.pm.writable().is_err() {
            return;
        }
        let is_relieved = |entry| self.root.is_relieved(entry);
        if helds.iter().any(|held| self.fills(held.entry, BELOW_DUE) && !is_relieved(held.entry)) {
            let is_ready = |entry| self.fills(entry, BELOW_READY) && !is_relieved(entry);
            self.with_others(helds, is_ready, |all| self.relieve(all));
        }
        if helds.iter().any(|held| self.fills(held.entry, ROOT_DUE)) {
            // What fails here fails again when a root entry is full, and is told then.
            let _ = self.with_others(helds, self.leaves_soon(), |all| self.migrate_roots(all));
        }
    }

    /// Makes room in a full root entry, and others that soon will be.
    pub(super) fn empty_together(&self, held: &Held<'_, M>) -> Result<()> {
        if self.root.departing(held.entry).is_some() {
            return self.finish_departing(held);
        }
        self.migrate_with_others(held, self.leaves_soon())
    }

    /// Empties a root entry, and others for which it is time, too.
    pub(super) fn migrate_with_others(
        &self,
        held: &Held<'_, M>,
        is_time: impl Fn(usize) -> bool,
    ) -> Result<()> {
        if !self.pm.fence_syncs() {
            return self.migrate_root(held);
        }
        let is_time = |entry| entry == held.entry || is_time(entry);
        self.with_others(&[held], is_time, |all| self.migrate_roots(all))
    }

    /// Whether so many parts of a root entry's room are taken.
    fn fills(&self, entry: usize, parts: usize) -> bool {
        self.root.size(entry) * PARTS >= self.shape.records() * parts
    }

    /// Whether a root entry is nearly full, and level 1 has room for what it holds.
    fn leaves_soon(&self) -> impl Fn(usize) -> bool {
        |entry| self.fills(entry, ROOT_READY) && self.root.is_relieved(entry)
    }

    /// Does something with those of some root entries for which it is time, and with others, as far as nobody has them.
    fn with_others<R>(
        &self,
        helds: &[&Held<'_, M>],
        is_time: impl Fn(usize) -> bool,
        work: impl FnOnce(&[&Held<'_, M>]) -> R,
    ) -> R {
        let (first, entries) = (helds[0].entry, self.root.entries());
        let behind = (1..entries.min(LOOKED_AT)).map(|step| (first + step) % entries);
        let others: Vec<Held<'_, M>> = behind
            .filter(|&entry| is_time(entry))
            .filter_map(|entry| self.root.try_lock(&self.pm, entry))
            .filter(|held| is_time(held.entry))
            .take(TOGETHER)
            .collect();
        let own = helds.iter().copied().filter(|held| is_time(held.entry));
        work(&own.chain(&others).collect::<Vec<_>>())
    }

    /// Takes all steps that are left below some root entries.
    fn relieve(&self, helds: &[&Held<'_, M>]) {
        let mut left = helds.to_vec();
        while !left.is_empty() {
            let mut migrations = Vec::with_capacity(left.len());
            for &held in &left {
                match self.next_below(held) {
                    Ok(Next::Migrate(underway)) => migrations.push((held, underway)),
                    Ok(Next::Done(relief)) => self.root.note_relief(held.entry, relief),
                    // As with the root's own.
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
