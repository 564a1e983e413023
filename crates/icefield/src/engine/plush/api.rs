//! The operations on one key and on the table as a whole.

use std::path::Path;

use super::Plush;
use super::op::{ModeOf, PlushWriteMode, WroteOf, mode_of};
use super::pack::Last;
use super::reads::Reads;
use super::words::{RecordOf, first, raw_of};
use crate::base::group::dispatch;
use crate::engine::{Maintenance, Mixed, OnDamage, Operations, Scanned, WriteKind};
use crate::outcome::{Computed, Cursor, Decision, OnFailure};
use crate::report::{BackupReport, CheckReport, SalvageReport, Stats};
use crate::storage::{Committed, Medium, Region};
use crate::types::{CopiedAs, Item, Keep, Raw, RecordForm, Take, Types};
use crate::{Error, Result};

impl<R: RecordForm, M: Medium> Plush<R, M> {
    /// Writes a record whose durability the future reports; see [`Plush::put_async`](crate::Plush::put_async).
    pub(crate) fn put_async(&self, key: &Raw<'_>, value: &Raw<'_>) -> Committed {
        match self.write_with(key, value, PlushWriteMode::PutLater) {
            Ok(_) => self.core.storage.committed(),
            Err(error) => Committed::known(Err(error)),
        }
    }

    /// Does what the helper has been asked for. Returns whether there was anything that could be done.
    pub(crate) fn help(&self) -> bool {
        self.core.help()
    }

    /// Takes the key of a damaged record; `None` if it cannot be read, or is not valid.
    pub(super) fn unverified_key<T: Take>(&self, record: RecordOf<R>, take: T) -> Option<T::Out> {
        let core = &self.core;
        let key = core.payloads()?.key_found(&core.storage, record.reference()).ok()?;
        take.take(raw_of(R::KEY, key)?)
    }

    /// Takes the key of a record that was current at some time since the caller was pinned.
    pub(super) fn take_key<T: Take>(&self, record: RecordOf<R>, take: T) -> Result<T::Out> {
        let (measure, expected) = (self.core.measure, take.type_name());
        if measure.is_inline() {
            let key = measure.key_of(&record.key);
            return take.take(key).ok_or_else(|| self.no_such(expected));
        }
        let payload = self.core.payload_found(record.reference())?;
        raw_of(R::KEY, payload.key)
            .and_then(|key| take.take(key))
            .ok_or_else(|| self.no_such(expected))
    }

    /// Takes the value in the words of a record that was current at some time since the caller was pinned.
    pub(super) fn take_value<T: Take>(&self, words: R::ValueWords, take: T) -> Result<T::Out> {
        let (measure, expected) = (self.core.measure, take.type_name());
        if measure.is_inline() {
            return take.take(measure.value_of(&words)).ok_or_else(|| self.no_such(expected));
        }
        self.take_bytes(self.core.payload_found(first(&words))?.value, take)
    }

    /// Takes the value in the bytes of a payload.
    #[inline(always)]
    pub(super) fn take_bytes<T: Take>(&self, value: &[u8], take: T) -> Result<T::Out> {
        let expected = take.type_name();
        raw_of(R::VALUE, value)
            .and_then(|value| take.take(value))
            .ok_or_else(|| self.no_such(expected))
    }

    /// Returns the key and the value of a record; an error unless they are values of the table's types.
    pub(super) fn valid(&self, record: RecordOf<R>, types: &Types) -> Result<(Item, Item)> {
        let key = self.take_key(record, CopiedAs(types.key))?;
        Ok((key, self.take_value(record.value, CopiedAs(types.value))?))
    }

    #[cold]
    fn no_such(&self, what: &str) -> Error {
        let core = &self.core;
        core.levels.region().fault(&core.storage, 0, format!("a stored word is not a valid {what}"))
    }

    /// Runs one write.
    fn write_with(&self, key: &Raw<'_>, value: &Raw<'_>, mode: ModeOf<R>) -> Result<bool> {
        self.write_and(key, value, mode, |wrote| Ok(wrote.done))
    }

    /// Runs one write and passes its outcome to `take`. The thread is pinned from before the write until `take` has
    /// returned.
    fn write_and<T>(
        &self,
        key: &Raw<'_>,
        value: &Raw<'_>,
        mode: ModeOf<R>,
        take: impl Fn(WroteOf<R>) -> Result<T>,
    ) -> Result<T> {
        let core = &self.core;
        core.storage.check_writable()?;
        let _pass = core.exclusion.enter();
        let probe = core.hash_key(key);
        core.look_ahead(probe.hash, mode.looks());
        let write = || {
            core.make_payload_room()?;
            let _pin = core.pin();
            take(core.write(&probe, value, mode)?)
        };
        core.with_room(probe.hash, || match write() {
            Err(Error::NoSpace { .. }) if mode.removes() => {
                let _pin = core.pin();
                take(core.remove_in_place(&probe, mode)?)
            }
            wrote => wrote,
        })
    }
}

impl<R: RecordForm, M: Medium> Operations for Plush<R, M> {
    fn get<T: Take>(&self, key: &Raw<'_>, take: T) -> Result<Option<T::Out>> {
        let (_pin, probe) = (self.core.pin(), self.core.hash_key(key));
        let Some(words) = self.core.find(&probe)? else { return Ok(None) };
        self.take_value(words, take).map(Some)
    }

    fn contains(&self, key: &Raw<'_>) -> Result<bool> {
        let (_pin, probe) = (self.core.pin(), self.core.hash_key(key));
        Ok(self.core.find(&probe)?.is_some())
    }

    fn write<T: Take + Copy>(
        &self,
        kind: WriteKind,
        key: &Raw<'_>,
        value: &Raw<'_>,
        before: T,
    ) -> Result<Option<T::Out>> {
        self.write_and(key, value, mode_of(kind), |wrote| {
            wrote.before.map(|words| self.take_value(words, before)).transpose()
        })
    }

    /// Calls `decide` without a lock, and then applies its decision if the words of the value are still the same.
    fn compute<T: Keep>(
        &self,
        key: &Raw<'_>,
        keep: T,
        mut decide: impl FnMut(Option<&T::Out>) -> Decision<T::Out>,
    ) -> Result<Computed<T::Out>> {
        self.core.storage.check_writable()?;
        let probe = self.core.hash_key(key);
        loop {
            let pin = self.core.pin();
            let before = self.core.find(&probe)?;
            let owned = before.map(|words| self.take_value(words, keep)).transpose()?;
            // The same words never occur again for another value, so the pin is not needed. If this thread stayed
            // pinned, its write could not reuse the chunks that it frees to make room.
            drop(pin);
            let decision = decide(owned.as_ref());
            let (value, mode) = match &decision {
                Decision::Keep => return Ok(Computed::Kept(owned)),
                Decision::Put(value) => (T::raw(value), PlushWriteMode::PutStill(before)),
                // No write is needed: the key is absent.
                Decision::Remove if before.is_none() => return Ok(Computed::Removed(None)),
                Decision::Remove => (Raw::NONE, PlushWriteMode::RemoveStill(before)),
            };
            if self.write_with(key, &value, mode)? {
                return Ok(match decision {
                    Decision::Put(_) => Computed::Put(owned),
                    _ => Computed::Removed(owned),
                });
            }
        }
    }

    fn get_batch<'k, T: Take + Copy>(
        &self,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        take: T,
        found: impl FnMut(usize, Option<T::Out>),
    ) -> Result<()> {
        dispatch(Reads { table: self, count, key, take, found })
    }

    fn write_batch<'k, 'v, T: Take + Copy>(
        &self,
        kind: WriteKind,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        value: impl Fn(usize) -> Raw<'v>,
        before: T,
        answer: impl FnMut(usize, Option<T::Out>),
    ) -> Result<()> {
        self.write_all(kind, count, key, value, before, answer)
    }

    fn execute<'a>(&self, batch: &mut impl Mixed<'a>, on_failure: OnFailure) -> Result<usize> {
        self.execute_all(batch, on_failure)
    }

    fn prefetch(&self, key: &Raw<'_>) {
        self.core.hint_search(self.core.hash_key(key).hash);
    }
}

impl<R: RecordForm, M: Medium> Maintenance for Plush<R, M> {
    type Medium = M;

    fn storage(&self) -> &M {
        &self.core.storage
    }

    fn superblock(&self) -> &Region {
        &self.core.table
    }

    fn len(&self) -> Result<u64> {
        let changes = self.core.tallies.changes();
        let counted = self.core.count()?;
        self.core.tallies.note_exact(changes, counted);
        Ok(counted)
    }

    fn capacity(&self) -> u64 {
        self.core.capacity()
    }

    fn stats(&self) -> Stats {
        self.stats_now()
    }

    fn scan<K: Take + Copy, V: Take + Copy>(
        &self,
        cursor: Cursor,
        n: usize,
        take: (K, V),
        damaged: &mut OnDamage<'_, K::Out>,
    ) -> Result<Scanned<K::Out, V::Out>> {
        self.scan_page(cursor, n, take, damaged)
    }

    fn clear(&self) -> Result<()> {
        let core = &self.core;
        core.storage.check_writable()?;
        {
            let _structure = core.exclusion.lock(&core.storage);
            let _closed = core.exclusion.close(&core.storage)?;
            let held: Vec<_> = (0..core.root.entries())
                .map(|entry| core.root.lock(&core.storage, entry))
                .collect();
            held.iter().for_each(super::root_lock::Held::begin_change);
            core.clear()?;
            core.give_back_unused()?;
        }
        core.return_space()
    }

    fn reserve(&self, additional: u64) -> Result<()> {
        self.core.storage.check_writable()?;
        self.core.make_room_for(self.core.tallies.estimate().saturating_add(additional))
    }

    fn shrink_to_fit(&self) -> Result<()> {
        let core = &self.core;
        core.storage.check_writable()?;
        {
            let _pass = core.exclusion.enter();
            core.compact_all()?;
            core.collect_all()?;
        }
        {
            let _structure = core.exclusion.lock(&core.storage);
            let _closed = core.exclusion.close(&core.storage)?;
            core.drop_levels()?;
            core.pack(Last::Stays)?;
            core.give_back_unused()?;
        }
        core.return_space()
    }

    fn sync(&self) -> Result<()> {
        self.sync_now()
    }

    fn check_records(&self, types: &Types) -> Result<CheckReport> {
        self.check_all(types)
    }

    fn salvage(&self, path: &Path, types: &Types) -> Result<SalvageReport> {
        self.salvage_to(path, types)
    }

    fn backup(&self, path: &Path) -> Result<BackupReport> {
        self.backup_to(path)
    }
}
