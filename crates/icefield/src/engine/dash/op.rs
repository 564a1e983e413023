//! The single operations (§4.6): each finds its segment, locks two buckets, one or none, and is durable when it
//! returns.

use super::Dash;
use super::directory::Directory;
use super::insert::Locked;
use super::kinds::{Ablation, Of};
use super::layout::Bucket;
use super::located::Located;
use super::merge::{self, FITTED_PERCENT, MERGED_PERCENT};
use super::search::Search;
use super::segment::{Found, Target};
use super::still::Still;
use crate::engine::LookupKey;
use crate::engine::slots::table::{SlotTable, WriteMode, WriteOutcome};
use crate::engine::slots::{EpochGuard, PreparedRecord, Records};
use crate::storage::Medium;
use crate::types::RecordForm;
use crate::{Error, Result};

/// Maximum number of times that an insert makes room. The limit ends the loop on a damaged table. It exceeds the number
/// of times that a directory can double, because other threads may fill the new room first.
const MAX_ROUNDS: u32 = 512;

type LockedKey<'a, R, P, M> = Locked<'a, Of<R, M, <P as Directory>::Ablation>>;

impl<R: RecordForm, P: Directory, M: Medium> Dash<R, P, M> {
    /// Returns the present target of a key. The target is only a hint: a split may move the key at any time.
    #[inline(always)]
    pub(super) fn try_locate(&self, hash: u64) -> Option<Target<'_>> {
        self.core.target(self.directory.try_locate(&self.core.storage, hash)?, hash)
    }

    /// Finds a key without a lock. `take` receives the value word while `pin` is held.
    #[inline]
    pub(super) fn lookup<T>(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        take: impl Fn(u64) -> T,
    ) -> Result<Option<T>> {
        self.lookup_sighted(pin, probe, self.try_locate(probe.hash), take)
    }

    /// Does the same as [`Dash::lookup`], starting at the target `sighted`.
    #[inline]
    pub(super) fn lookup_sighted<T>(
        &self,
        _pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        sighted: Option<Target<'_>>,
        take: impl Fn(u64) -> T,
    ) -> Result<Option<T>> {
        if !P::Ablation::PARTS.optimistic {
            return self.lookup_locked(probe, take);
        }
        if let Some(target) = sighted
            && self.core.marks.is_ready(target.located.segment)
            && let Search::Sure(found) = self.search(target, probe, &take)?
        {
            return Ok(found);
        }
        self.lookup_again(probe, take)
    }

    /// Repeats a lookup after a writer intervened or the segment was not ready.
    #[cold]
    fn lookup_again<T>(&self, probe: &LookupKey<'_>, take: impl Fn(u64) -> T) -> Result<Option<T>> {
        if let Some(still) = &self.core.still {
            return self.lookup_still(still, probe, take);
        }
        loop {
            let located = self.directory.ready(&self.core, probe.hash)?;
            let pair = self.core.pair(self.core.segment(located.segment)?, probe.hash);
            let target = Target { located, pair };
            if let Search::Sure(found) = self.search(target, probe, &take)? {
                return Ok(found);
            }
        }
    }

    /// Looks up a key in a session that only reads.
    fn lookup_still<T>(
        &self,
        still: &Still,
        probe: &LookupKey<'_>,
        take: impl Fn(u64) -> T,
    ) -> Result<Option<T>> {
        let core = &self.core;
        let located = self.directory.ready(core, probe.hash)?;
        let found = core.find_still(still, core.segment(located.segment)?, probe)?;
        Ok(found.map(|found| take(found.bucket.record(&core.storage, found.slot).1)))
    }

    /// Looks up a key in a table whose searches take locks (see `Parts::optimistic`): those of both buckets, or, in a
    /// table without probing, only that of the home bucket.
    fn lookup_locked<T>(
        &self,
        probe: &LookupKey<'_>,
        take: impl Fn(u64) -> T,
    ) -> Result<Option<T>> {
        let core = &self.core;
        if let Some(still) = &core.still {
            return self.lookup_still(still, probe, take);
        }
        let value = |found: Found<'_>| take(found.bucket.record(&core.storage, found.slot).1);
        if P::Ablation::PARTS.probing {
            self.look_ahead(probe.hash, None);
            let (_, mut locked) = self.lock(probe.hash)?;
            // This lock is not needed, but the paper's searches with locks take it, and are measured so.
            locked.lock_probing();
            return Ok(locked.find(probe)?.map(value));
        }
        loop {
            let located = self.directory.ready(core, probe.hash)?;
            let pair = core.pair(core.segment(located.segment)?, probe.hash);
            let _guard = pair[0].lock(&core.storage);
            if self.directory.is_current(core, probe.hash, located) {
                return Ok(core.find_locked(located.segment, pair, probe)?.map(value));
            }
        }
    }

    #[inline(always)]
    fn search<T>(
        &self,
        target: Target<'_>,
        probe: &LookupKey<'_>,
        take: impl Fn(u64) -> T,
    ) -> Result<Search<Option<T>>> {
        let current = || self.directory.is_current(&self.core, probe.hash, target.located);
        self.core.search(target, probe, current, take)
    }

    /// Locks a key's buckets in its segment.
    #[inline(always)]
    pub(super) fn lock(&self, hash: u64) -> Result<(Located, LockedKey<'_, R, P, M>)> {
        let core = &self.core;
        loop {
            let located = self.directory.ready(core, hash)?;
            let locked = Locked::new(core, core.segment(located.segment)?, hash);
            // A split before this thread took the locks may have moved the key; a later split waits for the locks.
            if self.directory.is_current(core, hash, located) {
                return Ok((located, locked));
            }
        }
    }

    /// Returns the key's slot, if the value word is still `before`.
    fn still<'a>(
        &self,
        locked: &LockedKey<'a, R, P, M>,
        probe: &LookupKey<'_>,
        before: u64,
    ) -> Result<Option<Found<'a>>> {
        let found = locked.find(probe)?;
        Ok(found.filter(|found| before == found.bucket.record(&self.core.storage, found.slot).1))
    }

    pub(super) fn clear_all(&self) -> Result<()> {
        let core = &self.core;
        core.storage.check_writable()?;
        let pin = core.pin();
        self.directory.clear(
            core,
            &pin,
            |generation| self.length.start(generation),
            |segment| {
                for site in core.sites(segment) {
                    let (_, bucket) = site?;
                    for slot in Bucket::slots_of(bucket.meta(&core.storage).allocated()) {
                        let (key, value) = bucket.record(&core.storage, slot);
                        core.records.retire_key(&pin, key);
                        core.records.retire_value(&pin, value);
                    }
                }
                Ok(())
            },
        )?;
        drop(pin);
        self.directory.give_back(core)
    }

    /// Merges segments after a removal if few records are left in them. The caller holds no lock. Only some home
    /// buckets trigger this, as samples of their segment.
    #[inline]
    pub(super) fn after_removal(&self, pin: &EpochGuard<'_>, hash: u64) {
        if merge::is_looked_at(self.core.geometry.home(hash)) {
            // Reads buckets without their locks; no result depends on these reads.
            self.core.storage.read_unvalidated(|| self.shrink_about(pin, hash));
        }
    }

    #[cold]
    fn shrink_about(&self, pin: &EpochGuard<'_>, hash: u64) {
        let core = &self.core;
        let Some(Target { pair, .. }) = self.try_locate(hash) else { return };
        let records = pair.iter().map(|bucket| bucket.meta(&core.storage).count()).sum();
        if merge::is_sparse(core.geometry, records) {
            // An error here does not affect the removal.
            let shrunk = self.directory.shrink(core, pin, hash, MERGED_PERCENT);
            if shrunk.is_ok_and(|shrunk| shrunk) {
                let _ = self.directory.give_back(core);
            }
        }
    }

    /// Implements `shrink_to_fit`.
    pub(super) fn shrink_all(&self) -> Result<()> {
        let core = &self.core;
        core.storage.check_writable()?;
        self.directory.shrink_all(core, &core.pin(), FITTED_PERCENT)?;
        // Freed space is returned once other operations have left it, which is usually soon.
        let mut rounds = 0;
        self.directory.give_back(core)?;
        while !core.deferred_free.is_empty() && core.storage.wait_patiently(rounds) {
            core.pin().defer(|| {});
            self.directory.give_back(core)?;
            rounds += 1;
        }
        core.records.compact(&core.storage, self)
    }
}

impl<R: RecordForm, P: Directory, M: Medium> SlotTable for Dash<R, P, M> {
    type Form = R;
    type Medium = M;

    #[inline]
    fn storage(&self) -> &M {
        &self.core.storage
    }

    #[inline]
    fn records(&self) -> &Records<R> {
        &self.core.records
    }

    #[cold]
    fn fault_in_slot(&self, detail: String) -> Error {
        self.core.segments.fault(&self.core.storage, 0, detail)
    }

    /// Fetches all lines of both buckets. The processor can do this while the fence of the caller's previous write is
    /// pending (docs/decisions/0125). A write accesses the first lines of both buckets and one record line in one of
    /// them; the medium reads a whole bucket as one block, whichever of its lines are requested.
    ///
    /// Does nothing if records are references: a write begins with a lookup then, and often ends there. `Locked::new`
    /// fetches the lines of these tables.
    #[inline(never)]
    fn look_ahead(&self, hash: u64, _mode: Option<WriteMode>) {
        if self.core.records.are_words()
            && let Some(target) = self.core.storage.read_unvalidated(|| self.try_locate(hash))
        {
            target.pair.into_iter().for_each(Bucket::fetch_for_write);
        }
    }

    #[inline]
    fn find_word(&self, pin: &EpochGuard<'_>, probe: &LookupKey<'_>) -> Result<Option<u64>> {
        self.lookup(pin, probe, |word| word)
    }

    /// Returns `None` if the lookup would have to wait or to recover a segment: recovery may perform a due split of a
    /// segment that the caller has locked.
    #[inline]
    fn find_word_at_once(
        &self,
        _pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
    ) -> Result<Option<Option<u64>>> {
        Ok(match self.try_locate(probe.hash) {
            Some(target)
                if P::Ablation::PARTS.optimistic
                    && self.core.marks.is_ready(target.located.segment) =>
            {
                match self.search(target, probe, |word| word)? {
                    Search::Sure(found) => Some(found),
                    Search::Again => None,
                }
            }
            _ => None,
        })
    }

    /// Writes a prepared record to the table, making room as often as needed.
    #[inline]
    fn write_prepared(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        record: PreparedRecord,
        mode: WriteMode,
    ) -> Result<WriteOutcome> {
        for _ in 0..MAX_ROUNDS {
            let (located, mut locked) = self.lock(probe.hash)?;
            match (locked.find(probe)?, mode) {
                (Some(found), WriteMode::TryInsert) => {
                    return Ok(WriteOutcome::Occupied(
                        found.bucket.record(&self.core.storage, found.slot).1,
                    ));
                }
                (Some(found), WriteMode::Upsert | WriteMode::Update) => {
                    self.persist_prepared();
                    let before = locked.replace(&found, record.value);
                    self.core.records.retire_value(pin, before);
                    return Ok(WriteOutcome::Replaced(before));
                }
                (None, WriteMode::Update) => return Ok(WriteOutcome::Absent),
                (None, WriteMode::TryInsert | WriteMode::Upsert) => {
                    // The record is counted before the fences: a locked instruction after the last fence would delay
                    // the next operation's loads until the fence completes.
                    self.length.add(located.generation, 1);
                    let inserted = locked.insert(probe.hash, record);
                    if !matches!(inserted, Ok(true)) {
                        self.length.add(located.generation, -1);
                    }
                    if inserted? {
                        return Ok(WriteOutcome::Inserted);
                    }
                }
            }
            drop(locked);
            let records = || self.length.estimate(located.generation);
            self.directory.make_room(&self.core, probe.hash, located, records)?;
        }
        let core = &self.core;
        let detail = format!("{MAX_ROUNDS} splits made no room for a record");
        Err(core.segments.fault(&core.storage, 0, detail))
    }

    fn compare_and_replace(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        before: u64,
        value: u64,
    ) -> Result<WriteOutcome> {
        self.look_ahead(probe.hash, None);
        let (_, mut locked) = self.lock(probe.hash)?;
        let Some(found) = self.still(&locked, probe, before)? else {
            return Ok(WriteOutcome::Absent);
        };
        self.persist_prepared();
        let word = locked.replace(&found, value);
        self.core.records.retire_value(pin, word);
        Ok(WriteOutcome::Replaced(word))
    }

    fn remove_probed(&self, pin: &EpochGuard<'_>, probe: &LookupKey<'_>) -> Result<Option<u64>> {
        self.look_ahead(probe.hash, None);
        self.core.storage.check_writable()?;
        let (located, mut locked) = self.lock(probe.hash)?;
        let Some(found) = locked.find(probe)? else { return Ok(None) };
        let (_, word) = found.bucket.record(&self.core.storage, found.slot);
        // The removal is counted before the fence, as in `write_prepared`.
        self.length.add(located.generation, -1);
        locked.remove(&found, probe.hash, pin);
        drop(locked);
        self.after_removal(pin, probe.hash);
        Ok(Some(word))
    }

    fn remove_still(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        before: Option<u64>,
    ) -> Result<bool> {
        self.look_ahead(probe.hash, None);
        let (located, mut locked) = self.lock(probe.hash)?;
        let Some(before) = before else { return Ok(locked.find(probe)?.is_none()) };
        let Some(found) = self.still(&locked, probe, before)? else { return Ok(false) };
        self.length.add(located.generation, -1);
        locked.remove(&found, probe.hash, pin);
        drop(locked);
        self.after_removal(pin, probe.hash);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::{Acquire, Release};

    use super::*;
    use crate::base::hash::Seed;
    use crate::engine::dash::layout::{Geometry, Link};
    use crate::engine::dash::options::DashSettings;
    use crate::engine::dash::{Eh, Lh};
    use crate::engine::opening::Common;
    use crate::engine::{Design, Operations, WriteKind};
    use crate::storage::Mapped;
    use crate::types::{Forms, Ignore, InWord, Raw};

    type Check = std::result::Result<(), Box<dyn std::error::Error>>;

    /// Damages the link word or the chain of a segment before a `clear`.
    fn clears_all<P: Directory>(damages_link: bool) -> Check {
        let geometry = Geometry { buckets: 4, slots: 7, stash: 2 };
        for damaged in 0..8 {
            let common =
                Common { capacity: 1000, hash_seed: Some(Seed([1, 2])), ..Common::default() };
            let settings = DashSettings { geometry, ..DashSettings::default() };
            let storage = Mapped::anonymous(common.anonymous(P::TITLE, P::ALLOWS_DISK)?)?;
            let (table, _) =
                <P as Design>::create::<Forms<InWord, InWord>, Mapped>(common, settings, storage)?;
            let core = &table.core;
            let put = |key| table.write(WriteKind::Put, &Raw::Word(key), &Raw::Word(key), Ignore);
            for key in 0..1000 {
                put(key)?;
            }
            let ids = table.directory.check(core, &mut |_| {})?;
            let header = core.header(ids[damaged])?;
            if damages_link {
                let link = core.link(ids[damaged])?;
                let deeper = Link { depth: link.depth + 1, ..link };
                header.link.store(&core.storage, deeper.pack(), Release);
                table.clear_all()?;
            } else {
                // A chained block that does not exist.
                assert_eq!(header.chain.load(&core.storage, Acquire), 0);
                header.chain.store(&core.storage, 1 << 30, Release);
                let cleared = table.clear_all();
                assert!(matches!(cleared, Err(crate::Error::Corrupt { .. })), "{cleared:?}");
            }
            for round in 0..2 {
                for key in 1000..4000 {
                    put(key)?;
                }
                let mut faults = Vec::new();
                let ids = table.directory.check(core, &mut |fault| faults.push(fault))?;
                assert!(faults.is_empty(), "segment {damaged}: {faults:?}");
                let mut records = 0;
                for id in ids {
                    records += core.count(core.segment(id)?)?;
                }
                assert_eq!(records, 3000, "segment {damaged}, round {round}");
                table.clear_all()?;
            }
        }
        Ok(())
    }

    #[test]
    fn a_damaged_segment_does_not_keep_others_from_being_cleared() -> Check {
        clears_all::<Eh>(false)?;
        clears_all::<Lh>(false)
    }

    /// Otherwise the allocator hands out a segment that still counts as one in use, and every split fails.
    #[test]
    fn a_segment_that_does_not_fit_its_entries_is_cleared() -> Check {
        clears_all::<Eh>(true)
    }
}
