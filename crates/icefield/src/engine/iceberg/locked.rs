//! A single write under the lock of its key's front bucket.

use super::core::{Core, Located, Place, Search};
use super::fingerprints::FrontLine;
use super::layout::{Phase, Shape, fingerprint};
use crate::Result;
use crate::base::gate::Pass;
use crate::base::group::{Isa, Native};
use crate::engine::LookupKey;
use crate::engine::slots::{EpochGuard, PreparedRecord};
use crate::storage::Medium;
use crate::types::RecordForm;

/// A guard that keeps its thread inside the gate: no step begins meanwhile, although a doubling may end.
pub(super) struct Inside<'a> {
    pub(super) shape: Shape,
    _pass: Pass<'a>,
}

/// A key's front bucket, locked: no other thread adds, removes or changes the key's record meanwhile. Exists only
/// inside the gate.
pub(super) struct Locked<'a, R, M> {
    core: &'a Core<R, M>,
    shape: Shape,
    line: FrontLine<'a>,
}

impl<R, M> Drop for Locked<'_, R, M> {
    #[inline]
    fn drop(&mut self) {
        self.line.unlock();
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Enters the gate.
    #[inline(always)]
    pub(super) fn enter(&self) -> Inside<'_> {
        let pass = self.exclusion.enter();
        Inside { shape: self.shape(), _pass: pass }
    }

    /// Locks a key's front bucket, which stays the same while the caller is inside the gate.
    #[inline(always)]
    pub(super) fn lock(&self, inside: &Inside<'_>, hash: u64) -> Result<Locked<'_, R, M>> {
        let shape = inside.shape;
        if shape.is(Phase::Doubling) {
            self.make_way(shape, hash)?;
        }
        let line = self.buckets.line(&self.storage, shape.front(hash));
        line.lock(&self.storage);
        Ok(Locked { core: self, shape, line })
    }

    /// Returns the same as [`Core::lock`] for a lock that the caller has taken.
    #[inline(always)]
    pub(super) fn locked<'a>(
        &'a self,
        inside: &Inside<'_>,
        line: FrontLine<'a>,
    ) -> Locked<'a, R, M> {
        Locked { core: self, shape: inside.shape, line }
    }
}

impl<'a, R: RecordForm, M: Medium> Locked<'a, R, M> {
    #[inline(always)]
    pub(super) fn search(&self, isa: impl Isa, probe: &LookupKey<'_>) -> Result<Search<'a>> {
        self.core.find_locked(isa, self.shape, self.line, probe)
    }

    /// Returns the slot of the key, if it is present.
    pub(super) fn find(&self, probe: &LookupKey<'_>) -> Result<Option<Located<'a>>> {
        Ok(match self.search(Native::default(), probe)? {
            Search::Found(found) => Some(found),
            Search::Absent { .. } => None,
        })
    }

    /// Inserts a record whose key is absent; `room` is from [`Search::Absent`]. Returns whether the front bucket had no
    /// room for the record; `false` for the side slot. Costs one line, one flush, one fence.
    #[inline(always)]
    pub(super) fn insert(
        &self,
        probe: &LookupKey<'_>,
        record: PreparedRecord,
        room: u64,
    ) -> Result<bool> {
        if room == 0 {
            return self.insert_elsewhere(probe, record);
        }
        let core = self.core;
        let (at, slot) = core.claim_front(self.shape, probe.hash, room)?;
        slot.fill(&core.storage, record.key, record.value);
        // P2, commit point: from here on the record survives a crash.
        core.storage.persist(slot);
        self.line.publish(at.slot(), fingerprint(probe.hash));
        Ok(false)
    }

    #[inline(never)]
    fn insert_elsewhere(&self, probe: &LookupKey<'_>, record: PreparedRecord) -> Result<bool> {
        let core = self.core;
        let claimed = core.claim_elsewhere(self.shape, probe)?;
        core.fill(&claimed, record);
        // P2, commit point.
        core.storage.persist(claimed.slot);
        core.publish(self.line, claimed.place, probe.hash);
        Ok(claimed.place != Place::Side)
    }

    /// Replaces the value word of a record and returns the former one. Costs one line, one flush, one fence.
    #[inline]
    pub(super) fn replace(&self, found: &Located<'_>, value: u64) -> u64 {
        let storage = &self.core.storage;
        let before = found.slot.value(storage);
        found.slot.set_value(storage, value);
        // P2, commit point.
        storage.persist(found.slot);
        before
    }

    /// Removes a record and returns its value word. Costs one line, one flush, one fence.
    #[inline]
    pub(super) fn remove(&self, found: &Located<'_>, hash: u64, pin: &EpochGuard<'_>) -> u64 {
        let core = self.core;
        let (key, value) = (found.slot.key(&core.storage), found.slot.value(&core.storage));
        found.slot.empty(&core.storage);
        // P2, commit point: from here on the removal survives a crash.
        core.storage.persist(found.slot);
        core.release(found.place, hash);
        core.records.retire_key(pin, key);
        core.records.retire_value(pin, value);
        value
    }
}
