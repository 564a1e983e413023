//! The operations on one key, for every table whose slots hold the two words of a record: everything that does not
//! depend on where a record lies.

use super::{EpochGuard, LookupKey, PreparedRecord, Records};
use crate::report::{DamagedRecord, SalvageReport};
use crate::storage::blob::Owner;
use crate::storage::{Medium, Persist, Properties};
use crate::types::{CopiedAs, Item, Raw, RecordForm, Take, Types};
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
pub(crate) trait SlotTable: Owner + Sized {
    /// The form of the table's records.
    type Form: RecordForm;
    /// The table's medium.
    type Medium: Medium;

    fn storage(&self) -> &Self::Medium;
    fn records(&self) -> &Records<Self::Form>;

    /// Returns an error for a fault in the region of the slots.
    fn fault_in_slot(&self, detail: String) -> Error;

    /// Prefetches the memory that a single write of a key with this hash will access, if the table profits from it. The
    /// mode is `None` for a removal.
    #[inline(always)]
    fn look_ahead(&self, _hash: u64, _mode: Option<WriteMode>) {}

    /// Returns the value word of a key, without taking a lock. The word is valid while the pin is held.
    fn find_word(&self, pin: &EpochGuard<'_>, probe: &LookupKey<'_>) -> Result<Option<u64>>;

    /// Like [`SlotTable::find_word`], for a thread that may hold locks: returns `None` if the lookup would have to wait
    /// for another thread's lock.
    #[inline]
    fn find_word_at_once(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
    ) -> Result<Option<Option<u64>>> {
        self.find_word(pin, probe).map(Some)
    }

    /// Stores a prepared record to a slot. Unless the mode is `Update`, the record's key must have been written.
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

    /// Removes a key if its value word is still `before`; returns whether the key was removed. If `before` is `None`,
    /// only returns whether the key is still absent.
    fn remove_still(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        before: Option<u64>,
    ) -> Result<bool>;

    /// Passes the value behind a word to `take`. If `pin` is given, it is dropped before `take` is called.
    #[inline]
    fn take_value<T: Take>(
        &self,
        pin: Option<EpochGuard<'_>>,
        word: u64,
        take: T,
    ) -> Result<T::Out> {
        let expected = take.type_name();
        self.records()
            .take_value(self.storage(), pin, word, take)?
            .ok_or_else(|| self.fault_in_slot(format!("a stored value is not a valid {expected}")))
    }

    /// Passes the key behind a word to `take`.
    fn take_key<T: Take>(&self, word: u64, take: T) -> Result<T::Out> {
        let expected = take.type_name();
        self.records()
            .take_key(self.storage(), word, take)?
            .ok_or_else(|| self.fault_in_slot(format!("a stored key is not a valid {expected}")))
    }

    /// Passes the value of a key to `take`; returns `None` if the key is absent.
    #[inline]
    fn get_probed<T: Take>(&self, probe: &LookupKey<'_>, take: T) -> Result<Option<T::Out>> {
        let pin = self.records().pin();
        match self.find_word(&pin, probe)? {
            Some(word) => self.take_value(Some(pin), word, take).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the key's hash, the key and the value of a slot. Returns an error if one of them is invalid for its
    /// type.
    fn valid(&self, (key, value): (u64, u64), types: &Types) -> Result<(u64, Item, Item)> {
        let key = self.take_key(key, CopiedAs(types.key))?;
        let value = self.take_value(None, value, CopiedAs(types.value))?;
        Ok((self.records().hash_key(&key.raw()).hash, key, value))
    }

    /// Passes a slot's record to `put` if all its checksums fit, `is_home` accepts its hash, and its key and value are
    /// valid; otherwise adds it to the report as damaged.
    fn rescue(
        &self,
        (key, value): (u64, u64),
        types: &Types,
        place: impl std::fmt::Display,
        report: &mut SalvageReport,
        is_home: impl FnOnce(u64) -> std::result::Result<(), String>,
        put: impl FnOnce(&Raw<'_>, &Raw<'_>) -> Result<()>,
    ) -> Result<()> {
        let (records, storage) = (self.records(), self.storage());
        let whole = || {
            let hash = records.verify(storage, key, value).map_err(|error| error.to_string())?;
            is_home(hash)?;
            self.valid((key, value), types).map_err(|error| error.to_string())
        };
        match whole() {
            Ok((_, key, value)) => put(&key.raw(), &value.raw()),
            Err(reason) => {
                let [key, value] = records.remains(storage, key, value);
                report.damaged(DamagedRecord { key, value, place: place.to_string(), reason });
                Ok(())
            }
        }
    }

    /// Writes one record. Blobs are written before any lock is taken. A lookup without locks first finds out which
    /// blobs are needed: the blob of a present key exists already.
    #[inline]
    fn write_probed(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        value: &Raw<'_>,
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
                (_, None) => {}
                (_, Some(word)) => {
                    needs_key = false;
                    records.prefetch_retirement(self.storage(), word);
                }
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
        if self.records().are_words() {
            // There is nothing to free, so the compiler can leave the result in place. To copy the result, the
            // processor would load it in other widths than it was stored in, which waits for the fence
            // (docs/decisions/0125).
            return self.write_prepared(pin, probe, record, mode);
        }
        let wrote = if mode == WriteMode::Upsert && self.records().lacks_key(&record) {
            self.link_value(pin, probe, &mut record)
        } else {
            self.write_prepared(pin, probe, record, mode)
        };
        self.discard_unlinked(&wrote, record);
        wrote
    }

    /// Like [`SlotTable::link`], for a record whose key was not written because a lookup had found it present.
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

    fn replace_if(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        before: Option<u64>,
        value: &Raw<'_>,
    ) -> Result<bool> {
        if before.is_none() {
            // `compare_and_replace` does this itself.
            self.look_ahead(probe.hash, Some(WriteMode::TryInsert));
        }
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
            // After this fence, the caller may store a word that refers to the blobs.
            self.storage().fence();
        }
    }
}
