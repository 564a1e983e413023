//! Writes where there is no space: removals in place, and room for others out of stale records.
//!
//! A removal must go through when nothing can grow, as only removals make room. It needs no record of its own: a record
//! becomes a removal when its bit says so, in the entry of a level and, for the root, in the record of the log. All
//! records of the key get the bit, the oldest first and durably, so that a crash shows the key as it was, or gone, and
//! copies that a migration has left above or below say the same.
//!
//! A write that finds no space has its root entry's part of the levels compacted, then payload chunks collected, then
//! all levels compacted. If all of that was in vain, it is not tried again before a part of the records has changed.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::core::{Core, EntryRef, lock};
use super::op::{ModeOf, Wrote, WroteOf};
use super::root::Held;
use super::words::RecordOf;
use crate::Result;
use crate::key::{Key, Value};
use crate::pm::Medium;
use crate::record::Probe;

/// An attempt in vain is repeated when so many records have changed, or one of so many.
const FEW_CHANGES: u64 = 64;
const CHANGES_PART: u64 = 64;

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// Makes room for a record of a hash. Says whether there is reason to try again. The caller holds no lock.
    #[cold]
    pub(super) fn make_room_in_need(&self, hash: u64) -> Result<bool> {
        let mut in_vain = lock(&self.pm, &self.in_vain);
        let changes = self.changes();
        let enough = (self.estimate() / CHANGES_PART).max(FEW_CHANGES);
        if in_vain.is_some_and(|before| changes.wrapping_sub(before) < enough) {
            return Ok(false);
        }
        let compacted = {
            let _pin = self.pin();
            self.compact_below(&self.hold(hash))?
        };
        let room = match self.payloads() {
            None => compacted || self.compact_all()?,
            // What is missing may be chunks: those are empty when all entries have lost what led into them.
            Some(_) => {
                self.collect_in_need()?
                    || self.compact_all()? && self.collect_in_need()?
                    || compacted
            }
        };
        *in_vain = (!room).then_some(changes);
        Ok(room)
    }

    /// Removes a key without any space, unless `mode` says that there is nothing to do. The caller is pinned and holds
    /// no lock.
    #[cold]
    pub(super) fn remove_in_place(&self, probe: &Probe<'_>, mode: ModeOf<V>) -> Result<WroteOf<V>> {
        let held = self.hold(probe.hash);
        let newest = self.search(held.entry, probe)?;
        let before = newest.filter(|record| !record.dead).map(|record| record.value);
        let told = before.filter(|_| mode.looks());
        if before.is_none() || !mode.applies(told) {
            return Ok(Wrote { before: told, done: !mode.looks() });
        }
        // A batch goes on after a call whose sync failed.
        self.pm.writable()?;
        // Readers wait: a crash may still show them the key.
        held.begin_change();
        let marked = self.mark_levels(probe).and_then(|levels| {
            let root = self.mark_root(&held, probe)?;
            Ok(levels + root)
        });
        held.end_change();
        // Each counts as one less when it goes, and shall count as one more.
        self.note_written(1, -2 * marked?);
        self.pm.writable()?;
        Ok(Wrote { before: told, done: true })
    }

    /// Marks a key's records in the levels. How many there were.
    fn mark_levels(&self, probe: &Probe<'_>) -> Result<i64> {
        let mut marked = 0;
        for level in (1..=self.level_count()).rev() {
            let first = self.level_entry(level, self.shape.index(level, probe.hash))?;
            for entry in self.chain_of(first)? {
                let found = self.mark_entry(entry, probe)?;
                if found > 0 {
                    // P16: those of older records before those of newer ones.
                    self.pm.try_fence()?;
                    marked += found;
                }
            }
        }
        Ok(marked)
    }

    fn mark_entry(&self, entry: EntryRef<'_>, probe: &Probe<'_>) -> Result<i64> {
        let mut marked = 0;
        if self.candidates(entry, probe.hash) == 0 {
            return Ok(0);
        }
        for at in 0..self.state(entry)?.size {
            let record = self.record(entry, at)?;
            if !record.dead && self.holds(record, probe)? {
                let cell = &entry.entry.dead[at / 64];
                // Release (E7): the next holder of the lock finds it (E1).
                cell.store(&self.pm, cell.load(&self.pm, Relaxed) | 1 << (at % 64), Release);
                self.pm.flush_object(cell);
                marked += 1;
            }
        }
        Ok(marked)
    }

    /// Marks a key's records in the log, and then in the root. How many there were in the root.
    fn mark_root(&self, held: &Held<'_, M>, probe: &Probe<'_>) -> Result<i64> {
        let entry = held.entry;
        let mut found: Vec<(usize, RecordOf<K, V>)> = Vec::new();
        for at in 0..self.root.size(entry) {
            let record = self.root.record(entry, at);
            if !record.dead && self.holds(record, probe)? {
                found.push((at, record));
            }
        }
        if found.is_empty() {
            return Ok(0);
        }
        let epoch = self.root.epoch(entry);
        // Departing records were logged in the epoch before.
        let former = self.root.departing(entry).map(|_| epoch.previous());
        self.logs.mark_dead(&self.pm, self.logs.log_of(entry), |record, of| {
            (of == epoch || Some(of) == former)
                && found
                    .iter()
                    .any(|(_, known)| known.key == record.key && known.value == record.value)
        })?;
        // P16, commit point: a crash finds the key removed. It takes away the records that no log has.
        self.pm.try_fence()?;
        found.iter().for_each(|&(at, _)| self.root.mark_dead(entry, at));
        Ok(found.len() as i64)
    }
}
