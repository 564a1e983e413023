//! The single operations (§3.2, §5.1): each locks its front bucket or nothing, and is durable when it returns.

use super::Iceberg;
use super::core::{Located, Search};
use super::layout::Phase;
use super::locked::Locked;
use crate::base::group::{Isa, Native};
use crate::engine::LookupKey;
use crate::engine::slots::table::{SlotTable, WriteMode, WriteOutcome};
use crate::engine::slots::{EpochGuard, PreparedRecord, Records};
use crate::storage::Medium;
use crate::types::RecordForm;
use crate::{Error, Result};

impl<R: RecordForm, M: Medium> Iceberg<R, M> {
    /// Returns the key's slot, if the value word is still `before`.
    fn still<'a>(
        &self,
        locked: &Locked<'a, R, M>,
        probe: &LookupKey<'_>,
        before: u64,
    ) -> Result<Option<Located<'a>>> {
        let found = locked.find(probe)?;
        Ok(found.filter(|found| before == found.slot.value(&self.core.storage)))
    }

    /// Writes a prepared record to the table. The second result is whether a new record found no room in its front
    /// bucket. The caller counts the record before it leaves the gate.
    #[inline(always)]
    pub(super) fn try_write(
        &self,
        isa: impl Isa,
        locked: Locked<'_, R, M>,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        record: PreparedRecord,
        mode: WriteMode,
    ) -> Result<(WriteOutcome, bool)> {
        let core = &self.core;
        Ok(match (locked.search(isa, probe)?, mode) {
            (Search::Found(found), WriteMode::TryInsert) => {
                (WriteOutcome::Occupied(found.slot.value(&core.storage)), false)
            }
            (Search::Found(found), WriteMode::Upsert | WriteMode::Update) => {
                self.persist_prepared();
                let before = locked.replace(&found, record.value);
                core.records.retire_value(pin, before);
                (WriteOutcome::Replaced(before), false)
            }
            (Search::Absent { .. }, WriteMode::Update) => (WriteOutcome::Absent, false),
            (Search::Absent { room }, WriteMode::TryInsert | WriteMode::Upsert) => {
                // P1: blobs are durable before a slot refers to them.
                self.persist_prepared();
                let crowded = locked.insert(probe, record, room)?;
                (WriteOutcome::Inserted, crowded)
            }
        })
    }

    /// Removes a key and returns its former value word, which is valid while `pin` is held. The caller counts the
    /// removal before it leaves the gate.
    #[inline(always)]
    pub(super) fn try_remove(
        &self,
        isa: impl Isa,
        locked: Locked<'_, R, M>,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
    ) -> Result<Option<u64>> {
        Ok(match locked.search(isa, probe)? {
            Search::Found(found) => Some(locked.remove(&found, probe.hash, pin)),
            Search::Absent { .. } => None,
        })
    }
}

impl<R: RecordForm, M: Medium> SlotTable for Iceberg<R, M> {
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
        self.core.buckets.front().fault(&self.core.storage, 0, detail)
    }

    /// Issues all prefetches together, with few instructions and stores. The processor can then run them while the
    /// fence of the caller's previous write is pending, as long as its queues have room for the instructions in
    /// between.
    #[inline(never)]
    fn look_ahead(&self, hash: u64, mode: Option<WriteMode>) {
        self.core.fetch_for_write(Native::default(), hash, mode);
    }

    #[inline]
    fn find_word(&self, pin: &EpochGuard<'_>, probe: &LookupKey<'_>) -> Result<Option<u64>> {
        self.core.lookup(pin, probe)
    }

    /// Does not wait: the writer that holds the key's front bucket may itself wait for a bucket that the caller holds.
    #[inline]
    fn find_word_at_once(
        &self,
        _: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
    ) -> Result<Option<Option<u64>>> {
        let found = self.core.lookup_quickly(Native::default(), probe);
        if found.is_none() {
            self.core.storage.forget_reads();
        }
        Ok(found)
    }

    #[inline]
    fn write_prepared(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        record: PreparedRecord,
        mode: WriteMode,
    ) -> Result<WriteOutcome> {
        let core = &self.core;
        loop {
            let inside = core.enter();
            let locked = core.lock(&inside, probe.hash)?;
            let result = self.try_write(Native::default(), locked, pin, probe, record, mode);
            if let Ok((WriteOutcome::Inserted, _)) = result {
                core.length.add(0, 1);
            }
            drop(inside);
            match result {
                Ok((wrote, crowded)) => {
                    if crowded {
                        core.grow_if_due(probe.hash);
                    }
                    return Ok(wrote);
                }
                // Every slot that the record could use is taken, and the overflow yard cannot grow.
                Err(error @ Error::NoSpace { .. }) => {
                    if !core.grow_in_need() {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn compare_and_replace(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        before: u64,
        value: u64,
    ) -> Result<WriteOutcome> {
        let inside = self.core.enter();
        let locked = self.core.lock(&inside, probe.hash)?;
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
        let inside = self.core.enter();
        let locked = self.core.lock(&inside, probe.hash)?;
        let removed = self.try_remove(Native::default(), locked, pin, probe)?;
        if removed.is_some() {
            self.core.length.add(0, -1);
        }
        Ok(removed)
    }

    fn remove_still(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        before: Option<u64>,
    ) -> Result<bool> {
        let inside = self.core.enter();
        let locked = self.core.lock(&inside, probe.hash)?;
        let Some(before) = before else { return Ok(locked.find(probe)?.is_none()) };
        let Some(found) = self.still(&locked, probe, before)? else { return Ok(false) };
        self.core.length.add(0, -1);
        locked.remove(&found, probe.hash, pin);
        Ok(true)
    }
}

impl<R: RecordForm, M: Medium> Iceberg<R, M> {
    /// Empties the table by one durable store, then empties every slot. Writers wait; reads find nothing after the
    /// store.
    pub(super) fn clear_all(&self) -> Result<()> {
        let core = &self.core;
        core.storage.check_writable()?;
        let pin = core.pin();
        let _structure = core.exclusion.lock(&core.storage);
        let _closed = core.exclusion.close(&core.storage)?;
        let shape = core.shape();
        // P7, commit point: from here on the table is empty after a crash.
        core.set_shape(shape.then(shape.depth(), Phase::Clearing))?;
        core.length.start(0);
        core.wipe(shape, |key, value| {
            core.records.retire_key(&pin, key);
            core.records.retire_value(&pin, value);
        })?;
        // P9: all slots are durably empty (P8), so they may be filled again.
        let shape = core.shape();
        core.set_shape(shape.then(shape.depth(), Phase::Stable))
    }
}
