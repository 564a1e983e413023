//! Lookup of a key without a lock (§5.1).

use std::hint::select_unpredictable;

use super::buckets::Lead;
use super::core::{Core, place_of};
use super::fingerprints::{FrontLine, candidates_back};
use super::layout::{EMPTY_KEY, Phase, SIDE_KEY, Shape, Slot, fingerprint};
use crate::Result;
use crate::base::group::{Isa, Native, WholeLoads};
use crate::base::pipeline::prefetch_second_level;
use crate::engine::LookupKey;
use crate::engine::slots::EpochGuard;
use crate::storage::Medium;
use crate::types::RecordForm;

/// What an earlier search of the fingerprints has found for a key. The references stay valid whatever happens to the
/// table, because yards are never unmapped, and the arrays in DRAM grow in place.
#[derive(Clone, Copy)]
pub(super) struct Candidates<'a> {
    /// The table's shape at the time.
    pub(super) shape: Shape,
    /// The key's front bucket.
    pub(super) line: FrontLine<'a>,
    pub(super) lead: Lead<'a>,
    /// The slots of the bucket that may hold the key, one bit for each.
    pub(super) found: u64,
    /// The first two of them; twice the same if there is only one, and a slot of any bucket if there is none.
    pub(super) slots: [&'a Slot; 2],
}

impl Candidates<'_> {
    /// Returns whether a search that finds the slots of the mask `found` has found the same as the earlier one, and no
    /// others than `slots`.
    #[inline(always)]
    fn are_still_all(&self, found: u64) -> bool {
        let others = found & found.wrapping_sub(1);
        (found ^ self.found) | (others & others.wrapping_sub(1)) == 0
    }

    /// Loads the slot that holds `key`, if one of the two does, otherwise the second one.
    #[inline(always)]
    fn load(&self, storage: &impl Medium, whole: WholeLoads, key: u64) -> [u64; 2] {
        let [likely, other] = self.slots;
        let load = || {
            let is_likely = likely.key(storage) == key;
            select_unpredictable(is_likely, likely, other).load(storage, Some(whole))
        };
        // The lock of the key's bucket, which is checked at the end, does not protect a slot of another bucket. Outside
        // the simulator both ways are the same.
        if self.found == 0 { storage.read_unvalidated(load) } else { load() }
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Returns the value word of a key, without a lock. The word is valid while the pin is held.
    #[inline]
    pub(super) fn lookup(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
    ) -> Result<Option<u64>> {
        self.hint_page(probe.hash);
        self.lookup_on(Native::default(), pin, probe)
    }

    /// Prefetches a slot of a hash's front bucket. The slot with the key is known only when the fingerprints have been
    /// compared, but it is most probably in the same page, so the translation of its address begins now.
    #[inline(always)]
    fn hint_page(&self, hash: u64) {
        if let Some(slot) = self.buckets.front_at(self.shape().front(hash), 0) {
            prefetch_second_level(slot);
        }
    }

    /// Computes [`Core::lookup`] with `isa`.
    #[inline(always)]
    pub(super) fn lookup_on(
        &self,
        isa: impl Isa,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
    ) -> Result<Option<u64>> {
        match self.lookup_quickly(isa, probe) {
            Some(found) => Ok(found),
            None => self.lookup_slowly(pin, probe),
        }
    }

    /// Returns the proof that slots are loaded as one, without a test if `isa` implies it.
    #[inline(always)]
    fn whole_loads(&self, isa: impl Isa) -> Option<WholeLoads> {
        isa.whole_loads().or(self.whole_loads)
    }

    /// Handles the common cases in a few instructions and without waiting: the shape is stable, the front bucket is not
    /// locked, and the key is in one of its buckets or its overflow list is empty. Most misses read only the line of the
    /// front bucket and its mark (`Buckets::leads_behind`). `None` means that [`Core::lookup_slowly`] must decide.
    #[inline(always)]
    pub(super) fn lookup_quickly(
        &self,
        isa: impl Isa,
        probe: &LookupKey<'_>,
    ) -> Option<Option<u64>> {
        let shape = self.shape();
        if !shape.is(Phase::Stable) || self.whole_loads(isa).is_none() || self.is_side(probe) {
            return None;
        }
        let bucket = shape.front(probe.hash);
        let mut found = self.search_front(isa, bucket, probe, Self::read_own).ok()?;
        if found.is_none() {
            if self.buckets.leads_behind(&self.storage, shape, probe.hash) {
                found = self.search_back(shape.back(probe.hash), probe).ok()?;
            }
            if found.is_none() && !self.overflow.is_empty(probe.hash) {
                return None;
            }
        }
        self.storage.sim_yield_point();
        // The last checks, as in `lookup_slowly`.
        let is_last =
            !self.buckets.line(&self.storage, bucket).is_locked() && self.shape() == shape;
        is_last.then_some(found)
    }

    /// Returns the value word of a key if the key is in one of the two slots, which the caller may have guessed. While
    /// the shape is stable, a key is in at most one slot (I2, I4), so the search needs no fingerprint. `shape` is the
    /// table's shape at any earlier moment: shapes do not repeat, so it was the shape ever since if it still is. `None`
    /// means that [`Core::lookup_on`] must decide; the result is always `None` if keys are not words.
    #[inline(always)]
    pub(super) fn lookup_in(
        &self,
        isa: impl Isa,
        shape: Shape,
        slots: [&Slot; 2],
        hash: u64,
        key: u64,
    ) -> Option<u64> {
        if !self.records.keys_are_words() || key == EMPTY_KEY || !shape.is(Phase::Stable) {
            return None;
        }
        let whole = self.whole_loads(isa)?;
        let [likely, other] = slots;
        let is_likely = self.storage.read_unvalidated(|| likely.key(&self.storage)) == key;
        let slot = if is_likely { likely } else { other };
        if self.storage.read_unvalidated(|| slot.key(&self.storage)) != key {
            return None;
        }
        let [now, value] = slot.load(&self.storage, Some(whole));
        self.storage.sim_yield_point();
        // The last checks, as in `lookup_slowly`: only the holder of this line's lock changes a slot with this key.
        let line = self.buckets.line(&self.storage, shape.front(hash));
        if now == key && !line.is_locked() && self.shape() == shape {
            return Some(value);
        }
        self.storage.forget_reads();
        None
    }

    /// Returns the value word of a key, `Some(None)` if the key is absent, from candidates that an earlier search of the
    /// fingerprints has found. No branch depends on whether the front bucket has the key. `None` means that
    /// [`Core::lookup_on`] must decide; the result is always `None` if keys are not words. `mask` is that of the slots of a
    /// front bucket.
    ///
    /// As in `lookup_in`, a hit needs no fingerprint. A miss needs the fingerprints as they are now, and that they lead
    /// to no other slots than the candidates.
    #[inline(always)]
    pub(super) fn answer_from(
        &self,
        isa: impl Isa,
        candidates: &Candidates<'_>,
        mask: u64,
        hash: u64,
        key: u64,
    ) -> Option<Option<u64>> {
        let Candidates { shape, line, lead, .. } = candidates;
        if !self.records.keys_are_words() || key == EMPTY_KEY || !shape.is(Phase::Stable) {
            return None;
        }
        let whole = self.whole_loads(isa)?;
        self.storage.sim_yield_point();
        let found = line.candidates_on(isa, fingerprint(hash), mask);
        let [now, value] = candidates.load(&self.storage, whole, key);
        // A slot of another bucket proves nothing.
        let is_present = (now == key) & (candidates.found != 0);
        let is_absent = candidates.are_still_all(found)
            & (lead.difference(&self.storage) != 0)
            & self.overflow.is_empty(hash);
        self.storage.sim_yield_point();
        // The last checks, as in `lookup_slowly`: only the holder of this line's lock changes a slot with this key.
        if (is_present | is_absent) & !line.is_locked() & (self.shape() == *shape) {
            return Some(select_unpredictable(is_present, Some(value), None));
        }
        self.storage.forget_reads();
        None
    }

    /// Computes [`Core::lookup`] in all cases.
    #[inline(never)]
    fn lookup_slowly(&self, _pin: &EpochGuard<'_>, probe: &LookupKey<'_>) -> Result<Option<u64>> {
        self.storage.forget_reads();
        loop {
            let shape = self.shape();
            if shape.is(Phase::Clearing) {
                return Ok(None);
            }
            let line = self.buckets.line(&self.storage, shape.front(probe.hash));
            let found = if self.whole_loads.is_some() {
                let found = self.search(shape, probe);
                // A writer sets the lock bit before it changes a slot. If the bit is clear, the loaded words are
                // durable. This holds for misses as well.
                self.wait_unlocked(line);
                found
            } else {
                line.lock(&self.storage);
                let found = self.search(shape, probe);
                line.unlock();
                found
            };
            // Hits, misses and errors alike are valid only if no step intervened.
            if self.shape() == shape {
                return found;
            }
            self.storage.forget_reads();
        }
    }

    /// Waits until the lock bit of a front bucket is clear.
    #[inline(always)]
    pub(super) fn wait_unlocked(&self, line: FrontLine<'_>) {
        self.storage.sim_yield_point();
        let mut rounds = 0;
        while line.is_locked() {
            self.storage.wait(rounds);
            rounds = rounds.saturating_add(1);
        }
    }

    /// Searches all places of the key, the old one first if a doubling or halving may be moving the key.
    #[inline(always)]
    fn search(&self, shape: Shape, probe: &LookupKey<'_>) -> Result<Option<u64>> {
        let isa = Native::default();
        if self.is_side(probe) {
            let [key, value] = self.root()?.side.load(&self.storage, self.whole_loads);
            return Ok((key == SIDE_KEY).then_some(value));
        }
        let bucket = shape.front(probe.hash);
        if let Some(source) = shape.front_before(probe.hash)
            && let Some(value) = self.search_front(isa, source, probe, Self::read_shared)?
        {
            return Ok(Some(value));
        }
        if let Some(value) = self.search_front(isa, bucket, probe, Self::read_own)? {
            return Ok(Some(value));
        }
        let buckets = shape.back(probe.hash);
        if !shape.is(Phase::Stable)
            && let Some(value) = self.search_back(shape.back_before(probe.hash), probe)?
        {
            return Ok(Some(value));
        }
        if let Some(value) = self.search_back(buckets, probe)? {
            return Ok(Some(value));
        }
        if self.overflow.is_empty(probe.hash) {
            return Ok(None);
        }
        self.overflow.find(probe.hash, |_, slot| self.read_shared(slot, probe))
    }

    #[inline(always)]
    fn search_front(
        &self,
        isa: impl Isa,
        bucket: u64,
        probe: &LookupKey<'_>,
        read: impl Fn(&Self, &Slot, &LookupKey<'_>) -> Result<Option<u64>>,
    ) -> Result<Option<u64>> {
        let line = self.buckets.line(&self.storage, bucket);
        let fingerprint = fingerprint(probe.hash);
        let mut candidates = line.candidates_on(isa, fingerprint, self.buckets.front_mask());
        while candidates != 0 {
            let slot =
                self.buckets.front_slot(&self.storage, bucket, candidates.trailing_zeros())?;
            if let Some(value) = read(self, slot, probe)? {
                return Ok(Some(value));
            }
            candidates &= candidates - 1;
        }
        Ok(None)
    }

    /// Returns the value word of a slot that changes only under the key's own lock, if the slot holds the key.
    #[inline(always)]
    fn read_own(&self, slot: &Slot, probe: &LookupKey<'_>) -> Result<Option<u64>> {
        let [key, value] = slot.load(&self.storage, self.whole_loads);
        Ok(self.holds(key, probe)?.then_some(value))
    }

    #[inline(always)]
    fn search_back(&self, buckets: [u64; 2], probe: &LookupKey<'_>) -> Result<Option<u64>> {
        let words = buckets.map(|bucket| self.buckets.back_word(&self.storage, bucket).load());
        let mut candidates = candidates_back(words, fingerprint(probe.hash));
        while candidates != 0 {
            let (which, slot) = place_of(candidates);
            let slot = self.buckets.back_slot(&self.storage, buckets[which], slot)?;
            if let Some(value) = self.read_shared(slot, probe)? {
                return Ok(Some(value));
            }
            candidates &= candidates - 1;
        }
        Ok(None)
    }

    /// Returns the value word of a slot, if it holds the key. The holder of another key's lock, or a move, may be
    /// changing the slot. Words that are not durable yet do not affect the result: they belong to another key, or the
    /// key is in another place as well.
    #[inline(always)]
    fn read_shared(&self, slot: &Slot, probe: &LookupKey<'_>) -> Result<Option<u64>> {
        let key = self.storage.read_unvalidated(|| slot.key(&self.storage));
        if key == EMPTY_KEY || !self.records.matches(&self.storage, key, probe)? {
            return Ok(None);
        }
        let [now, value] = slot.load(&self.storage, self.whole_loads);
        Ok((now == key).then_some(value))
    }
}
