//! The operations on one key, for every table whose slots hold the two words of a record: everything that does not
//! depend on where a record lies.

use super::{EpochGuard, LookupKey, PreparedRecord, Records};
use crate::key::{Data, Key, Raw, Value};
use crate::storage::blob::Owner;
use crate::storage::{Medium, Persist, Properties};
use crate::table::{
    Arg, Computed, DamagedRecord, Decision, Occupied, Owned, SalvageReport, TryInsert,
};
use crate::{Error, Result};

/// The condition under which a write of a key takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// Insert only if absent.
    TryInsert,
    /// Insert or replace.
    Upsert,
    /// Replace only if present.
    Update,
}

/// The outcome of a write. Words of by-reference values are valid while the caller's pin is held.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteOutcome {
    /// The key was absent and is now present.
    Inserted,
    /// The key had this value word. It has another one now, or was removed.
    Replaced(u64),
    /// The key has this value word; nothing was written.
    Occupied(u64),
    /// The key is absent; nothing was written.
    Absent,
}

/// The methods that a table implements itself; every operation on one key is built on them. Each method that changes
/// the table is durable when it returns.
pub(crate) trait Engine<K: Key + ?Sized, V: Value + ?Sized>: Owner + Sized {
    /// The table's medium.
    type Medium: Medium;

    fn storage(&self) -> &Self::Medium;
    fn records(&self) -> &Records<K, V>;

    /// Returns an error for a fault in the region of the slots.
    fn fault_in_slot(&self, detail: String) -> Error;

    /// Prefetches the memory that a single write of a key with this hash will access, if the table profits from it. The
    /// mode is `None` for a removal.
    #[inline(always)]
    fn look_ahead(&self, _hash: u64, _mode: Option<WriteMode>) {}

    /// Returns the value word of a key, without taking a lock. The word is valid while the pin is held.
    fn find_word(&self, pin: &EpochGuard<'_>, probe: &LookupKey<'_>) -> Result<Option<u64>>;

    /// Like [`Engine::find_word`], for a thread that may hold locks: returns `None` if the lookup would have to wait
    /// for another thread's lock.
    #[inline]
    fn find_word_at_once(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
    ) -> Result<Option<Option<u64>>> {
        self.find_word(pin, probe).map(Some)
    }

    /// Links a prepared record, which has its key unless the mode is `Update`.
    fn write_prepared(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        record: PreparedRecord,
        mode: WriteMode,
    ) -> Result<WriteOutcome>;

    /// Replaces the value word of a key if it is still `before`; otherwise returns [`WriteOutcome::Absent`].
    fn compare_and_replace(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        before: u64,
        value: u64,
    ) -> Result<WriteOutcome>;

    /// Removes a key; returns its former value word, which is valid while `pin` is held.
    fn remove_probed(&self, pin: &EpochGuard<'_>, probe: &LookupKey<'_>) -> Result<Option<u64>>;

    /// Removes a key if its value word is still `before`. If `before` is `None`, returns whether the key is still
    /// absent.
    fn remove_still(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        before: Option<u64>,
    ) -> Result<bool>;

    /// Returns the value behind a word, as the user's type.
    #[inline]
    fn own_value(&self, word: u64) -> Result<V::Owned> {
        self.records()
            .own_value(self.storage(), word)?
            .ok_or_else(|| self.fault_in_slot(format!("a stored value is no {}", V::TYPE)))
    }

    /// Returns the key behind a word, as the user's type.
    fn own_key(&self, word: u64) -> Result<K::Owned> {
        self.records()
            .own_key(self.storage(), word)?
            .ok_or_else(|| self.fault_in_slot(format!("a stored key is no {}", K::TYPE)))
    }

    /// Passes a slot's record to `put` if all its checksums fit and `is_home` accepts its hash; otherwise adds it to
    /// the report as damaged.
    fn rescue(
        &self,
        (key, value): (u64, u64),
        place: impl std::fmt::Display,
        report: &mut SalvageReport,
        is_home: impl FnOnce(u64) -> std::result::Result<(), String>,
        put: impl FnOnce(Arg<'_, K>, Arg<'_, V>) -> Result<()>,
    ) -> Result<()> {
        let (records, storage) = (self.records(), self.storage());
        let whole = || {
            let hash = records.verify(storage, key, value).map_err(|error| error.to_string())?;
            is_home(hash)?;
            let owned = self.own_key(key).and_then(|key| Ok((key, self.own_value(value)?)));
            owned.map_err(|error| error.to_string())
        };
        match whole() {
            Ok((key, value)) => put(K::arg(&key), V::arg(&value)),
            Err(reason) => {
                let [key, value] = records.remains(storage, key, value);
                report.damaged(DamagedRecord { key, value, place: place.to_string(), reason });
                Ok(())
            }
        }
    }

    /// Returns a copy of the value of `key`.
    fn get_owned(&self, key: Arg<'_, K>) -> Result<Option<Owned<V>>> {
        let probe = self.records().hash_key(key);
        self.get_probed(&probe)
    }

    #[inline]
    fn get_probed(&self, probe: &LookupKey<'_>) -> Result<Option<Owned<V>>> {
        let pin = self.records().pin();
        match self.find_word(&pin, probe)? {
            Some(word) => self.own_value(word).map(Some),
            None => Ok(None),
        }
    }

    fn get_shown<R>(&self, key: Arg<'_, K>, f: impl FnOnce(&V) -> R) -> Result<Option<R>> {
        let probe = self.records().hash_key(key);
        let pin = self.records().pin();
        let Some(word) = self.find_word(&pin, &probe)? else { return Ok(None) };
        match self.records().show_value(self.storage(), Some(pin), word, f)? {
            Some(shown) => Ok(Some(shown)),
            None => Err(self.fault_in_slot(format!("a stored value is no {}", V::TYPE))),
        }
    }

    fn contains_key(&self, key: Arg<'_, K>) -> Result<bool> {
        let probe = self.records().hash_key(key);
        Ok(self.find_word(&self.records().pin(), &probe)?.is_some())
    }

    /// Writes one record. Blobs are written before any lock is taken. A lookup without locks first finds out which are
    /// needed: a key that is present has been written already.
    #[inline]
    fn write(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        value: Raw<'_>,
        mode: WriteMode,
    ) -> Result<WriteOutcome> {
        self.look_ahead(probe.hash, Some(mode));
        self.storage().check_writable()?;
        let records = self.records();
        records.fits(probe.key, value)?;
        let mut needs_key = true;
        if records.blobs().is_some() {
            let found = self.find_word(pin, probe)?;
            match (mode, found) {
                (WriteMode::TryInsert, Some(word)) => return Ok(WriteOutcome::Occupied(word)),
                (WriteMode::Update, None) => return Ok(WriteOutcome::Absent),
                _ => needs_key = found.is_none(),
            }
        }
        let record = records.prepare(self.storage(), self, probe, value, needs_key)?;
        self.link(pin, probe, record, mode)
    }

    /// Links a prepared record, and frees the blobs that were not linked. The caller holds no lock.
    #[inline]
    fn link(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        mut record: PreparedRecord,
        mode: WriteMode,
    ) -> Result<WriteOutcome> {
        let wrote = if mode == WriteMode::Upsert && self.records().lacks_key(&record) {
            self.link_value(pin, probe, &mut record)
        } else {
            self.write_prepared(pin, probe, record, mode)
        };
        self.discard_unlinked(&wrote, record);
        wrote
    }

    /// Like [`Engine::link`], for a record whose key was found present, and so was not written.
    fn link_value(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        record: &mut PreparedRecord,
    ) -> Result<WriteOutcome> {
        match self.write_prepared(pin, probe, *record, WriteMode::Update)? {
            // Another thread has removed the key.
            WriteOutcome::Absent => {
                self.records().add_key(self.storage(), self, probe, record)?;
                self.write_prepared(pin, probe, *record, WriteMode::Upsert)
            }
            wrote => Ok(wrote),
        }
    }

    /// Frees the blobs that a write did not link.
    #[inline]
    fn discard_unlinked(&self, wrote: &Result<WriteOutcome>, record: PreparedRecord) {
        let inserted = matches!(wrote, Ok(WriteOutcome::Inserted));
        if !inserted {
            self.records().discard_key(record.key);
            if !matches!(wrote, Ok(WriteOutcome::Replaced(_))) {
                self.records().discard_value(record.value);
            }
        }
    }

    fn try_insert_one(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<TryInsert<V>> {
        let (pin, probe) = (self.records().pin(), self.records().hash_key(key));
        Ok(match self.write(&pin, &probe, V::raw(value), WriteMode::TryInsert)? {
            WriteOutcome::Occupied(word) => Err(Occupied(self.own_value(word)?)),
            _ => Ok(()),
        })
    }

    /// Implements `insert` and `update`.
    fn write_one(
        &self,
        key: Arg<'_, K>,
        value: Arg<'_, V>,
        mode: WriteMode,
    ) -> Result<Option<Owned<V>>> {
        let (pin, probe) = (self.records().pin(), self.records().hash_key(key));
        match self.write(&pin, &probe, V::raw(value), mode)? {
            WriteOutcome::Replaced(word) => self.own_value(word).map(Some),
            _ => Ok(None),
        }
    }

    fn put_one(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<()> {
        let (pin, probe) = (self.records().pin(), self.records().hash_key(key));
        self.write(&pin, &probe, V::raw(value), WriteMode::Upsert).map(|_| ())
    }

    fn remove_one(&self, key: Arg<'_, K>) -> Result<Option<Owned<V>>> {
        let (pin, probe) = (self.records().pin(), self.records().hash_key(key));
        match self.remove_probed(&pin, &probe)? {
            Some(word) => self.own_value(word).map(Some),
            None => Ok(None),
        }
    }

    fn delete_one(&self, key: Arg<'_, K>) -> Result<()> {
        let (pin, probe) = (self.records().pin(), self.records().hash_key(key));
        self.remove_probed(&pin, &probe).map(|_| ())
    }

    /// Calls `f` with the value, without a lock, then applies its decision if the value word is still the same. For
    /// words this compares values, for references identity: the pin keeps a reference from being reused.
    fn compute_one(
        &self,
        key: Arg<'_, K>,
        mut f: impl FnMut(Option<&V>) -> Decision<Owned<V>>,
    ) -> Result<Computed<Owned<V>>> {
        self.storage().check_writable()?;
        let probe = self.records().hash_key(key);
        loop {
            let pin = self.records().pin();
            let before = self.find_word(&pin, &probe)?;
            let owned = before.map(|word| self.own_value(word)).transpose()?;
            match self.decide(before, &mut f)? {
                Decision::Keep => return Ok(Computed::Kept(owned)),
                Decision::Put(value) => {
                    if self.replace_if(&pin, &probe, before, <V as Data>::raw(V::arg(&value)))? {
                        return Ok(Computed::Put(owned));
                    }
                }
                Decision::Remove => {
                    if self.remove_still(&pin, &probe, before)? {
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
        let Some(word) = word else { return Ok(f(None)) };
        self.records()
            .show_value(self.storage(), None, word, |value| f(Some(value)))?
            .ok_or_else(|| self.fault_in_slot(format!("a stored value is no {}", V::TYPE)))
    }

    fn replace_if(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        before: Option<u64>,
        value: Raw<'_>,
    ) -> Result<bool> {
        self.records().fits(probe.key, value)?;
        let record =
            self.records().prepare(self.storage(), self, probe, value, before.is_none())?;
        let wrote = match before {
            None => self.write_prepared(pin, probe, record, WriteMode::TryInsert),
            Some(before) => self.compare_and_replace(pin, probe, before, record.value),
        };
        self.discard_unlinked(&wrote, record);
        Ok(matches!(wrote?, WriteOutcome::Inserted | WriteOutcome::Replaced(_)))
    }

    /// Makes the blobs of a prepared record durable before a slot refers to them. Needed where the table's own write
    /// has no fence before its commit point: updates in Dash, every write in IcebergHT.
    #[inline]
    fn persist_prepared(&self) {
        if self.records().blobs().is_some() {
            // The blob is durable before any durable word refers to it.
            self.storage().fence();
        }
    }
}
