//! Writes without free space: removals in place, and other writes, which get room when stale records are dropped.
//!
//! A removal must succeed when no file can grow, because only removals make room. It needs no new record: a bit turns a
//! record into a removal. The bit is in the entry of a level or, for records of the root, in the log record. All
//! records of the key get the bit, so the copies that a migration has left above or below agree. The bits become
//! durable oldest record first, so a crash leaves the key as it was, or removed.
//!
//! A write that finds no space is tried again after each of three attempts to make room, the cheap ones first. The
//! first gives back the space of free payload chunks, which levels may need; if there is none, it compacts the write's
//! part of the levels and collects some payload chunks; if that frees nothing, it compacts all levels. The second
//! compacts all levels. The third gives back the space of the chunks that were collected. If the attempts fail, they
//! are not repeated before a part of the records has changed.
//!
//! To move a payload out of a chunk, the collection writes a new record of the payload's key. The root may have no room
//! for that record, and the levels no room for the records of the root. Then the references to the payload are changed
//! instead, in the levels, the log and the root.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::core::Core;
use super::layout::EntryRef;
use super::log_record::FLAG;
use super::op::{ModeOf, Wrote, WroteOf};
use super::root_lock::Held;
use super::words::RecordOf;
use crate::engine::LookupKey;
use crate::storage::{Medium, not_poisoned};
use crate::types::RecordForm;
use crate::{Error, Result};

/// A failed attempt is repeated when `FEW_CHANGES` records have changed, or one in `CHANGES_PART` if that is more.
const FEW_CHANGES: u64 = 64;
const CHANGES_PART: u64 = 64;

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Runs `write`, which writes a record with a hash. As long as `write` finds no space and room can be made, runs it
    /// again. The caller holds no lock and is not pinned.
    #[inline(always)]
    pub(super) fn with_room<T>(
        &self,
        hash: u64,
        mut write: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        // No loop, so that the compiler can leave the first result in place: a copy of it would wait for the fence
        // (docs/decisions/0125).
        let wrote = write();
        if matches!(wrote, Err(Error::NoSpace { .. })) {
            return self.write_again(hash, wrote, write);
        }
        wrote
    }

    /// Continues [`Core::with_room`] after a first attempt that lacked space.
    #[cold]
    fn write_again<T>(
        &self,
        hash: u64,
        mut wrote: Result<T>,
        mut write: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut attempt = 0;
        while matches!(wrote, Err(Error::NoSpace { .. }))
            && self.make_room_in_need(hash, attempt)?
        {
            attempt += 1;
            wrote = write();
        }
        wrote
    }

    /// Makes the next attempt to make room for a record with a hash. Returns whether the write should be tried again.
    /// The caller holds no lock and is not pinned.
    #[cold]
    pub(super) fn make_room_in_need(&self, hash: u64, attempt: u32) -> Result<bool> {
        let mut in_vain = self.tallies.lock_in_vain(&self.storage);
        let changes = self.tallies.changes();
        let enough = (self.tallies.estimate() / CHANGES_PART).max(FEW_CHANGES);
        if in_vain.is_some_and(|before| changes.wrapping_sub(before) < enough) {
            return Ok(false);
        }
        let room = match attempt {
            0 => self.lend_space()? || self.make_room_below(hash)? || self.make_room_anywhere()?,
            // The first attempt may only have dropped copies that the failed write had left in the levels.
            1 => self.make_room_anywhere()?,
            // Gives back the space of chunks that were collected, once their readers have left.
            2 => self.lend_space()?,
            _ => false,
        };
        *in_vain = (!room).then_some(changes);
        Ok(room)
    }

    /// Drops stale records below the root entry of a hash and collects some payload chunks. Returns whether it dropped
    /// or freed anything.
    fn make_room_below(&self, hash: u64) -> Result<bool> {
        let compacted = {
            let _pin = self.pin();
            self.compact_below(&self.hold(hash))?
        };
        Ok(self.collect_in_need()? || compacted)
    }

    /// Drops stale records in all levels and collects payload chunks. Returns whether it dropped or freed anything.
    fn make_room_anywhere(&self) -> Result<bool> {
        let compacted = self.compact_all()?;
        Ok(self.collect_in_need()? || compacted)
    }

    /// Removes a key without using any space, if `mode` applies to the present value. The caller is pinned and holds
    /// no lock.
    #[cold]
    pub(super) fn remove_in_place(
        &self,
        probe: &LookupKey<'_>,
        mode: ModeOf<R>,
    ) -> Result<WroteOf<R>> {
        let held = self.hold(probe.hash);
        let newest = self.search(held.entry, probe)?;
        let before = newest.filter(|record| !record.dead).map(|record| record.value);
        let told = before.filter(|_| mode.looks());
        if before.is_none() || !mode.applies(told) {
            return Ok(Wrote { before: told, done: !mode.looks() });
        }
        // Checked here, because a batch continues after a call whose sync failed.
        self.storage.check_writable()?;
        // Readers wait until the marks are durable: a crash before that may leave the key.
        held.begin_change();
        let marked = self.mark_levels(&held, probe).and_then(|levels| {
            let root = self.mark_root(&held, probe)?;
            Ok(levels + root)
        });
        held.end_change();
        // Each marked record now counts -1 instead of 1 in the estimate. When it is dropped, 1 is added.
        self.note_written(1, -2 * marked?);
        self.storage.check_writable()?;
        Ok(Wrote { before: told, done: true })
    }

    /// Marks a key's records in the levels as removals. Returns the number of those that the estimate counts: of a
    /// record that a migration underway has copied, only the copy counts.
    fn mark_levels(&self, held: &Held<'_, M>, probe: &LookupKey<'_>) -> Result<i64> {
        let underway = self.root.underway(held.entry);
        let mut marked = 0;
        for level in (1..=self.levels.count(&self.storage)).rev() {
            let index = self.shape.index(level, probe.hash);
            let is_copied = underway.is_some_and(|underway| {
                (underway.level, underway.index) == (level, index)
                    && self.shape.place_below(level)(probe.hash) < underway.place
            });
            let first = self.level_entry(level, index)?;
            for entry in self.chain_of(first)? {
                let found = self.mark_entry(entry, probe)?;
                if found > 0 {
                    // P16: the marks of older records are durable before newer records are marked.
                    self.storage.try_fence()?;
                    marked += if is_copied { 0 } else { found };
                }
            }
        }
        Ok(marked)
    }

    fn mark_entry(&self, entry: EntryRef<'_>, probe: &LookupKey<'_>) -> Result<i64> {
        let mut marked = 0;
        if self.candidates(entry, probe.hash) == 0 {
            return Ok(0);
        }
        for at in 0..self.state(entry)?.size {
            let record = self.record(entry, at)?;
            if !record.dead && self.holds(record, probe)? {
                let cell = &entry.entry.dead[at / 64];
                // Release (E7): published to the next holder of the lock by the lock word (E1).
                cell.store(
                    &self.storage,
                    cell.load(&self.storage, Relaxed) | 1 << (at % 64),
                    Release,
                );
                self.storage.flush_object(cell);
                marked += 1;
            }
        }
        Ok(marked)
    }

    /// Makes the records that refer to a payload refer to its copy instead. Needs no space. Returns `false` when the
    /// log's records cannot be changed.
    pub(super) fn redirect(
        &self,
        held: &Held<'_, M>,
        probe: &LookupKey<'_>,
        record: RecordOf<R>,
        copy: u64,
    ) -> Result<bool> {
        let entry = held.entry;
        if (record.reference() ^ copy) & FLAG != 0 || self.root.has_unlogged(entry) {
            return Ok(false);
        }
        not_poisoned(&self.storage)?;
        if self.storage.fence_syncs() {
            // P22: the copy is durable before anything refers to it. Where a fence is not a sync, it is durable already
            // (P0).
            self.storage.try_fence()?;
        }
        let in_root: Vec<usize> = (0..self.root.size(entry))
            .filter(|&at| self.root.record(entry, at).reference() == record.reference())
            .collect();
        if !in_root.is_empty() {
            // Recovery replays the records of later epochs.
            let arrived = self.arrived(probe.hash)?;
            self.logs.redirect(
                &self.storage,
                self.logs.log_of(entry),
                |logged, of| of.is_after(arrived) && logged.reference() == record.reference(),
                copy,
            )?;
            in_root.into_iter().for_each(|at| self.root.redirect(entry, at, copy));
        }
        for level in 1..=self.levels.count(&self.storage) {
            let first = self.level_entry(level, self.shape.index(level, probe.hash))?;
            for entry in self.chain_of(first)? {
                for at in 0..self.state(entry)?.size {
                    // Copies that a migration has made are changed as well, because the migration may drop the
                    // originals.
                    if self.record(entry, at)?.reference() == record.reference() {
                        let (bucket, slot) = self.slot_of(at);
                        let cell = &self.bucket(entry, bucket)?.rests(slot..slot + 1)[0];
                        // Release (E3): the copy was written before.
                        cell.store(&self.storage, copy, Release);
                        self.storage.flush_object(cell);
                    }
                }
            }
        }
        // P23: from here on no record refers to the former payload, also after a crash.
        self.storage.try_fence()?;
        Ok(true)
    }

    /// Marks a key's records as removals in the log, and then in the root. Returns their number in the root, without
    /// those that have copies in level 1.
    fn mark_root(&self, held: &Held<'_, M>, probe: &LookupKey<'_>) -> Result<i64> {
        let entry = held.entry;
        let mut found: Vec<(usize, RecordOf<R>)> = Vec::new();
        for at in 0..self.root.size(entry) {
            let record = self.root.record(entry, at);
            if !record.dead && self.holds(record, probe)? {
                found.push((at, record));
            }
        }
        if found.is_empty() {
            return Ok(0);
        }
        // Recovery replays the records of later epochs.
        let arrived = self.arrived(probe.hash)?;
        self.logs.mark_dead(&self.storage, self.logs.log_of(entry), |record, of| {
            let is_same =
                |known: &RecordOf<R>| (known.key, known.value) == (record.key, record.value);
            !record.dead && of.is_after(arrived) && found.iter().any(|(_, known)| is_same(known))
        })?;
        // P16, commit point: the key is removed. Records that are in no log need no durable mark, because a crash drops
        // them.
        self.storage.try_fence()?;
        found.iter().for_each(|&(at, _)| self.root.mark_dead(entry, at));
        let moved = self.root.moved(entry);
        Ok(found.iter().filter(|&&(at, _)| at >= moved).count() as i64)
    }
}
