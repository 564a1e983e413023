//! The single operations (§4.6): each finds its segment, locks two buckets or none, and is durable when it returns.

use super::Dash;
use super::directory::{Directory, Located};
use super::insert::Locked;
use super::layout::Bucket;
use super::record::{Pin, Probe, Unlinked};
use super::segment::{Found, Search, Target};
use crate::Result;
use crate::key::{Data, Key, Raw, Value};
use crate::pm::Medium;
use crate::table::{Arg, Computed, Decision, Occupied, Owned, TryInsert};

/// So often an insert that finds no room makes some. More than the directory can double, and enough for other threads
/// to take the room away now and then; a damaged table would go on for ever.
const MAX_ROUNDS: u32 = 512;

/// What to do with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Insert only if absent.
    TryInsert,
    /// Insert or replace.
    Upsert,
    /// Replace only if present.
    Update,
}

/// What a write found and did. Words of by-reference values are good while the caller's pin lasts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wrote {
    /// The key was absent and is now present.
    Inserted,
    /// The key had this value word, and has another now.
    Replaced(u64),
    /// The key has this value word; nothing was written.
    Occupied(u64),
    /// The key is absent; nothing was written.
    Absent,
}

impl<K: Key + ?Sized, V: Value + ?Sized, P: Directory, M: Medium> Dash<K, V, P, M> {
    /// Where a key belongs at this moment. Decides nothing.
    #[inline(always)]
    pub(super) fn sight(&self, hash: u64) -> Option<Target<'_>> {
        self.core.target(self.directory.glance(&self.core.pm, hash)?, hash)
    }

    /// Finds a key without a lock; `take` sees the value's word under `pin`.
    #[inline]
    pub(super) fn lookup<T>(
        &self,
        pin: &Pin<'_>,
        probe: &Probe<'_>,
        take: impl Fn(u64) -> T,
    ) -> Result<Option<T>> {
        self.lookup_sighted(pin, probe, self.sight(probe.hash), take)
    }

    /// [`Dash::lookup`], first where the key was sighted.
    #[inline]
    pub(super) fn lookup_sighted<T>(
        &self,
        _pin: &Pin<'_>,
        probe: &Probe<'_>,
        sighted: Option<Target<'_>>,
        take: impl Fn(u64) -> T,
    ) -> Result<Option<T>> {
        if let Some(target) = sighted
            && self.core.is_touched(target.located.segment)
            && let Search::Sure(found) = self.search(target, probe, &take)?
        {
            return Ok(found);
        }
        self.lookup_again(probe, take)
    }

    /// The rest of a lookup that met a writer, or a segment that was never touched.
    #[cold]
    fn lookup_again<T>(&self, probe: &Probe<'_>, take: impl Fn(u64) -> T) -> Result<Option<T>> {
        loop {
            let located = self.directory.locate(&self.core, probe.hash)?;
            super::recover::touch(&self.core, &self.directory, located.segment)?;
            let pair = self.core.pair(self.core.segment(located.segment)?, probe.hash);
            let target = Target { located, pair };
            if let Search::Sure(found) = self.search(target, probe, &take)? {
                return Ok(found);
            }
        }
    }

    #[inline(always)]
    fn search<T>(
        &self,
        target: Target<'_>,
        probe: &Probe<'_>,
        take: impl Fn(u64) -> T,
    ) -> Result<Search<Option<T>>> {
        let current = || self.directory.is_current(&self.core.pm, probe.hash, target.located);
        self.core.search(target, probe, current, take)
    }

    /// Locks a key's buckets in the segment that it belongs to.
    #[inline]
    pub(super) fn lock(&self, hash: u64) -> Result<(Located, Locked<'_, K, V, M>)> {
        let core = &self.core;
        loop {
            let located = self.directory.locate(core, hash)?;
            super::recover::touch(core, &self.directory, located.segment)?;
            let locked = Locked::new(core, core.segment(located.segment)?, hash);
            // A split that came before our locks has moved the key; one that comes later waits for them.
            if self.directory.is_current(&core.pm, hash, located) {
                return Ok((located, locked));
            }
        }
    }

    /// The value of `key`, copied out.
    pub(super) fn get_owned(&self, key: Arg<'_, K>) -> Result<Option<Owned<V>>> {
        let probe = self.core.records.probe(key);
        self.get_probed(&probe)
    }

    #[inline]
    pub(super) fn get_probed(&self, probe: &Probe<'_>) -> Result<Option<Owned<V>>> {
        let pin = self.core.pin();
        match self.lookup(&pin, probe, |word| word)? {
            Some(word) => self.core.own_value(word).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn get_shown<R>(
        &self,
        key: Arg<'_, K>,
        f: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>> {
        let core = &self.core;
        let probe = core.records.probe(key);
        let pin = core.pin();
        let Some(word) = self.lookup(&pin, &probe, |word| word)? else { return Ok(None) };
        match V::view(core.records.value(&core.pm, word)?, f) {
            Some(shown) => Ok(Some(shown)),
            None => {
                Err(core.corrupt(&core.segments, 0, format!("a stored value is no {}", V::TYPE)))
            }
        }
    }

    /// Writes one record. A by-reference record is written to the blob store before any lock is taken, unless a look
    /// without locks already tells that it will not be needed.
    #[inline]
    pub(super) fn write(
        &self,
        pin: &Pin<'_>,
        probe: &Probe<'_>,
        value: Raw<'_>,
        mode: Mode,
    ) -> Result<Wrote> {
        let core = &self.core;
        core.pm.writable()?;
        core.records.fits(probe.key, value)?;
        if core.records.blobs().is_some() {
            match (mode, self.lookup(pin, probe, |word| word)?) {
                (Mode::TryInsert, Some(word)) => return Ok(Wrote::Occupied(word)),
                (Mode::Update, None) => return Ok(Wrote::Absent),
                _ => {}
            }
        }
        let record = core.records.prepare(&core.pm, self, probe, value)?;
        let wrote = self.write_prepared(pin, probe, record, mode);
        self.settle(&wrote, record);
        wrote
    }

    /// Gives back what a write did not link.
    #[inline]
    pub(super) fn settle(&self, wrote: &Result<Wrote>, record: Unlinked) {
        let (core, inserted) = (&self.core, matches!(wrote, Ok(Wrote::Inserted)));
        if !inserted {
            core.records.discard_key(record.key);
            if !matches!(wrote, Ok(Wrote::Replaced(_))) {
                core.records.discard_value(record.value);
            }
        }
    }

    /// Links a prepared record, splitting as often as it takes.
    #[inline]
    pub(super) fn write_prepared(
        &self,
        pin: &Pin<'_>,
        probe: &Probe<'_>,
        record: Unlinked,
        mode: Mode,
    ) -> Result<Wrote> {
        for _ in 0..MAX_ROUNDS {
            let (located, mut locked) = self.lock(probe.hash)?;
            match (locked.find(probe)?, mode) {
                (Some(found), Mode::TryInsert) => {
                    return Ok(Wrote::Occupied(found.bucket.record(&self.core.pm, found.slot).1));
                }
                (Some(found), Mode::Upsert | Mode::Update) => {
                    self.core.persist_prepared();
                    let before = locked.replace(&found, record.value);
                    self.core.records.retire_value(pin, before);
                    return Ok(Wrote::Replaced(before));
                }
                (None, Mode::Update) => return Ok(Wrote::Absent),
                (None, Mode::TryInsert | Mode::Upsert) => {
                    // Counted before the fences: a locked instruction behind the last one would hold back the next
                    // operation's loads until that fence is done.
                    self.length.add(located.generation, 1);
                    let inserted = locked.insert(probe.hash, record);
                    if !matches!(inserted, Ok(true)) {
                        self.length.add(located.generation, -1);
                    }
                    if inserted? {
                        return Ok(Wrote::Inserted);
                    }
                }
            }
            drop(locked);
            self.directory.make_room(&self.core, probe.hash, located)?;
        }
        let core = &self.core;
        let detail = format!("no room could be made for a record in {MAX_ROUNDS} splits");
        Err(core.corrupt(&core.segments, 0, detail))
    }

    pub(super) fn try_insert_one(
        &self,
        key: Arg<'_, K>,
        value: Arg<'_, V>,
    ) -> Result<TryInsert<V>> {
        let (pin, probe) = (self.core.pin(), self.core.records.probe(key));
        Ok(match self.write(&pin, &probe, V::raw(value), Mode::TryInsert)? {
            Wrote::Occupied(word) => Err(Occupied(self.core.own_value(word)?)),
            _ => Ok(()),
        })
    }

    /// `insert` and `update`.
    pub(super) fn write_one(
        &self,
        key: Arg<'_, K>,
        value: Arg<'_, V>,
        mode: Mode,
    ) -> Result<Option<Owned<V>>> {
        let (pin, probe) = (self.core.pin(), self.core.records.probe(key));
        match self.write(&pin, &probe, V::raw(value), mode)? {
            Wrote::Replaced(word) => self.core.own_value(word).map(Some),
            _ => Ok(None),
        }
    }

    pub(super) fn put_one(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<()> {
        let (pin, probe) = (self.core.pin(), self.core.records.probe(key));
        self.write(&pin, &probe, V::raw(value), Mode::Upsert).map(|_| ())
    }

    /// Removes a key; its former value word is good while `pin` lasts.
    pub(super) fn remove_probed(&self, pin: &Pin<'_>, probe: &Probe<'_>) -> Result<Option<u64>> {
        self.core.pm.writable()?;
        let (located, mut locked) = self.lock(probe.hash)?;
        let Some(found) = locked.find(probe)? else { return Ok(None) };
        let (_, word) = found.bucket.record(&self.core.pm, found.slot);
        // Before the fence, as in `write_prepared`.
        self.length.add(located.generation, -1);
        locked.remove(&found, probe.hash, pin);
        Ok(Some(word))
    }

    pub(super) fn remove_one(&self, key: Arg<'_, K>) -> Result<Option<Owned<V>>> {
        let (pin, probe) = (self.core.pin(), self.core.records.probe(key));
        match self.remove_probed(&pin, &probe)? {
            Some(word) => self.core.own_value(word).map(Some),
            None => Ok(None),
        }
    }

    /// Shows the value to `f` without a lock, then does what it decided if the value word is still the same; for words
    /// that is equality, for references identity (the pin keeps a reference from being reused).
    pub(super) fn compute_one(
        &self,
        key: Arg<'_, K>,
        mut f: impl FnMut(Option<&V>) -> Decision<Owned<V>>,
    ) -> Result<Computed<Owned<V>>> {
        let core = &self.core;
        core.pm.writable()?;
        let probe = core.records.probe(key);
        loop {
            let pin = core.pin();
            let before = self.lookup(&pin, &probe, |word| word)?;
            let owned = before.map(|word| core.own_value(word)).transpose()?;
            match self.decide(before, &mut f)? {
                Decision::Keep => return Ok(Computed::Kept(owned)),
                Decision::Put(value) => {
                    if self.replace_if(&pin, &probe, before, <V as Data>::raw(V::arg(&value)))? {
                        return Ok(Computed::Put(owned));
                    }
                }
                Decision::Remove => {
                    if self.remove_if(&pin, &probe, before)? {
                        return Ok(Computed::Removed(owned));
                    }
                }
            }
        }
    }

    fn decide(
        &self,
        word: Option<u64>,
        f: &mut impl FnMut(Option<&V>) -> Decision<Owned<V>>,
    ) -> Result<Decision<Owned<V>>> {
        let core = &self.core;
        let Some(word) = word else { return Ok(f(None)) };
        V::view(core.records.value(&core.pm, word)?, |value| f(Some(value))).ok_or_else(|| {
            core.corrupt(&core.segments, 0, format!("a stored value is no {}", V::TYPE))
        })
    }

    fn replace_if(
        &self,
        pin: &Pin<'_>,
        probe: &Probe<'_>,
        before: Option<u64>,
        value: Raw<'_>,
    ) -> Result<bool> {
        let core = &self.core;
        core.records.fits(probe.key, value)?;
        let record = core.records.prepare(&core.pm, self, probe, value)?;
        let wrote = self.replace_prepared(pin, probe, before, record);
        self.settle(&wrote, record);
        Ok(matches!(wrote?, Wrote::Inserted | Wrote::Replaced(_)))
    }

    fn replace_prepared(
        &self,
        pin: &Pin<'_>,
        probe: &Probe<'_>,
        before: Option<u64>,
        record: Unlinked,
    ) -> Result<Wrote> {
        if before.is_none() {
            return self.write_prepared(pin, probe, record, Mode::TryInsert);
        }
        let (_, mut locked) = self.lock(probe.hash)?;
        let Some(found) = self.still(&locked, probe, before)? else { return Ok(Wrote::Absent) };
        self.core.persist_prepared();
        let word = locked.replace(&found, record.value);
        self.core.records.retire_value(pin, word);
        Ok(Wrote::Replaced(word))
    }

    fn remove_if(&self, pin: &Pin<'_>, probe: &Probe<'_>, before: Option<u64>) -> Result<bool> {
        let (located, mut locked) = self.lock(probe.hash)?;
        if before.is_none() {
            return Ok(locked.find(probe)?.is_none());
        }
        let Some(found) = self.still(&locked, probe, before)? else { return Ok(false) };
        self.length.add(located.generation, -1);
        locked.remove(&found, probe.hash, pin);
        Ok(true)
    }

    /// The key's place, if it still has the value word `before`.
    fn still<'a>(
        &self,
        locked: &Locked<'a, K, V, M>,
        probe: &Probe<'_>,
        before: Option<u64>,
    ) -> Result<Option<Found<'a>>> {
        let found = locked.find(probe)?;
        Ok(found.filter(|found| before == Some(found.bucket.record(&self.core.pm, found.slot).1)))
    }

    pub(super) fn contains_key(&self, key: Arg<'_, K>) -> Result<bool> {
        let probe = self.core.records.probe(key);
        Ok(self.lookup(&self.core.pin(), &probe, |_| ())?.is_some())
    }

    pub(super) fn delete_one(&self, key: Arg<'_, K>) -> Result<()> {
        let (pin, probe) = (self.core.pin(), self.core.records.probe(key));
        self.remove_probed(&pin, &probe).map(|_| ())
    }

    pub(super) fn clear_all(&self) -> Result<()> {
        let core = &self.core;
        core.pm.writable()?;
        let pin = core.pin();
        self.directory.clear(
            core,
            |generation| self.length.start(generation),
            |segment| {
                for site in core.sites(segment) {
                    let (_, bucket) = site?;
                    for slot in Bucket::slots_of(bucket.meta(&core.pm).allocated()) {
                        let (key, value) = bucket.record(&core.pm, slot);
                        core.records.retire_key(&pin, key);
                        core.records.retire_value(&pin, value);
                    }
                }
                Ok(())
            },
        )
    }
}
