//! The public interface, and its implementation.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use super::op::{ModeOf, PlushWriteMode, WroteOf};
use super::options::PlushOptions;
use super::pack::Last;
use super::words::{RecordOf, first, raw_of};
use super::{Plush, RecoveryReport};
use crate::key::{Data, Key, Raw, Value};
use crate::record::LookupKey;
use crate::record::engine::WriteMode;
use crate::record::face::public_face;
use crate::storage::{Committed, Mapped, Medium};
use crate::table::{
    Arg, BackupReport, CheckReport, Computed, Counter, Cursor, Decision, Durable, Occupied,
    OnFailure, Op, Owned, Page, RecordArg, SalvageReport, Stats, Table, TryInsert,
};
use crate::{Error, Result};

public_face! {
    table: Plush,
    public: Plush,
    design: "plush",
    options: PlushOptions,
    get: "The value of `key` (§5.2). Takes no lock and writes nothing; a filter line for each level, and a bucket \
        where that says so.",
    try_insert: "Inserts `key` only if it is absent; else gives the present value. Looks the key up under the lock of \
        its root entry.",
    remove: "Removes `key`; gives the value it had (§5.3). Looks the key up first; [`delete`](Self::delete) does not.",
    len: "How many records there are: exact when quiescent. Reads the whole table: blind writes do not know \
        whether their keys were there.",
    capacity: "How many records fit before the table needs another level.",
    iter: "All records, weakly consistent: every key that is present throughout is seen exactly once, also across \
        migrations. Reads one entry of the last level, with what lies above it, at a time.",
    scan: "About `n` records from `cursor` on, as [`iter`](Self::iter) sees them. Cursors survive new levels and \
        reopening.",
    clear: "Removes every record by one durable store: a crash leaves all or none of them. Others wait while the \
        directory is emptied.",
    reserve: "Makes room for `additional` more records, adding levels ahead.",
    insert_batch: "[`insert`](Self::insert) of each record in order; durable when it returns. After a crash inside it \
        any subset of the keys may have been inserted, per key a prefix.",
    sync: "Makes durable what was put without a log, by [`put_async`](Self::put_async) or in a relaxed \
        [`SyncMode`](crate::SyncMode); everything else is durable when its call returns.",
    check: "Checks every invariant and checksum, changing nothing. Call it on a quiescent table.",
}

/// The value that is written for a removal.
const NOTHING: Raw<'_> = Raw::Word(0);

impl<B> From<WriteMode> for PlushWriteMode<B> {
    fn from(mode: WriteMode) -> Self {
        match mode {
            WriteMode::TryInsert => Self::TryInsert,
            WriteMode::Upsert => Self::Upsert,
            WriteMode::Update => Self::Update,
        }
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Plush<K, V, M> {
    /// Drops stale records in the levels and in the payload log, and gives their space back to the file system: the
    /// files keep their lengths but take less of the disk. Writers of an entry wait while it is compacted, and all
    /// writers wait while blocks move to the front of their files. Readers are not blocked.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`], [`crate::Error::Forked`], [`crate::Error::Corrupt`]; [`crate::Error::NoSpace`]
    /// when the records of a payload chunk cannot be moved for lack of space.
    ///
    /// ```
    /// let table = icefield::Plush::<u64, u64>::in_memory()?;
    /// table.put(1, 10)?;
    /// table.shrink_to_fit()?;
    /// assert_eq!(table.get(1)?, Some(10));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn shrink_to_fit(&self) -> Result<()> {
        self.shrink()
    }

    /// Does a [`put`](Self::put) without waiting for a sync: the future resolves when the record is durable. Reads
    /// see the record at once. After an earlier crash each key has one of the values written since, or the one it
    /// had. Batches of many callers share a sync, which a background thread of the table runs. The write itself
    /// happens in the call, before the future is polled. About once in some hundred calls it waits for a sync all the
    /// same, because its part of the table is full.
    ///
    /// Where a write to the medium costs next to nothing, the future is ready at once.
    ///
    /// # Errors
    /// The future's: as [`try_insert`](Self::try_insert); [`crate::Error::Poisoned`] when the sync failed.
    ///
    /// ```
    /// # fn block_on<F: std::future::Future>(future: F) -> F::Output {
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     let mut future = std::pin::pin!(future);
    /// #     loop {
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output }
    /// #     }
    /// # }
    /// let table = icefield::Plush::<u64, u64>::in_memory()?;
    /// block_on(async {
    ///     let (one, two) = (table.put_async(1, 10), table.put_async(2, 20));
    ///     one.await?; // Durable, both by one sync.
    ///     two.await?;
    ///     table.committed().await // Whatever else was put before.
    /// })?;
    /// assert_eq!(table.get(2)?, Some(20));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn put_async(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Committed {
        match self.write_with(key, V::raw(value), PlushWriteMode::PutLater) {
            Ok(_) => self.core.storage.committed(),
            Err(error) => Committed::known(Err(error)),
        }
    }

    /// Returns a future that resolves when everything is durable that was acknowledged before this call, in whatever
    /// [`SyncMode`](crate::SyncMode): the form of [`sync`](Self::sync) for callers that must not block. Requests a
    /// sync, which a background thread of the table runs; callers share it. Records that were put without a log
    /// become durable by a [`checkpoint`](Self::checkpoint) only.
    ///
    /// See [`Committed`] for an example.
    ///
    /// # Errors
    /// The future's: [`crate::Error::Poisoned`] when the sync failed.
    pub fn committed(&self) -> Committed {
        self.core.storage.committed()
    }

    /// The key of a damaged record; `None` if it cannot be read, or is not a valid `K`.
    pub(super) fn unverified_key(&self, record: RecordOf<K, V>) -> Option<K::Owned> {
        let core = &self.core;
        let key = core.payloads()?.key_found(&core.storage, record.reference()).ok()?;
        raw_of(K::FORM, key).and_then(K::own)
    }

    /// The key of a record that was current at some time since the caller was pinned.
    pub(super) fn own_key(&self, record: RecordOf<K, V>) -> Result<K::Owned> {
        let measure = self.core.measure;
        if measure.is_inline() {
            return K::own(measure.key_of(&record.key)).ok_or_else(|| self.no_such(K::TYPE));
        }
        let payload = self.core.payload_found(record.reference())?;
        raw_of(K::FORM, payload.key).and_then(K::own).ok_or_else(|| self.no_such(K::TYPE))
    }

    /// Calls `f` with the value in the words of a record that was current at some time since the caller was pinned.
    pub(super) fn view_value<R>(
        &self,
        words: V::Words,
        f: impl FnOnce(Raw<'_>) -> Option<R>,
    ) -> Result<R> {
        let measure = self.core.measure;
        if measure.is_inline() {
            return f(measure.value_of(&words)).ok_or_else(|| self.no_such(V::TYPE));
        }
        let payload = self.core.payload_found(first(&words))?;
        raw_of(V::FORM, payload.value).and_then(f).ok_or_else(|| self.no_such(V::TYPE))
    }

    /// The value in the words of a record that was current at some time since the caller was pinned.
    pub(super) fn own_value(&self, words: V::Words) -> Result<V::Owned> {
        self.view_value(words, V::own)
    }

    #[cold]
    fn no_such(&self, what: &str) -> crate::Error {
        let core = &self.core;
        core.corrupt(&core.levels, 0, format!("a stored word is no {what}"))
    }

    /// Options for a table with the same types as another one.
    pub(super) fn options_like(
        identity: &crate::storage::superblock::Identity,
    ) -> PlushOptions<K, V> {
        PlushOptions::default().types_of(identity)
    }

    fn get_owned(&self, key: Arg<'_, K>) -> Result<Option<Owned<V>>> {
        let (_pin, probe) = (self.core.pin(), self.core.hash_key(key));
        self.core.find(&probe)?.map(|word| self.own_value(word)).transpose()
    }

    fn get_shown<R>(&self, key: Arg<'_, K>, f: impl FnOnce(&V) -> R) -> Result<Option<R>> {
        let (_pin, probe) = (self.core.pin(), self.core.hash_key(key));
        let Some(word) = self.core.find(&probe)? else { return Ok(None) };
        self.view_value(word, |raw| V::view(raw, f)).map(Some)
    }

    fn contains_key(&self, key: Arg<'_, K>) -> Result<bool> {
        let (_pin, probe) = (self.core.pin(), self.core.hash_key(key));
        Ok(self.core.find(&probe)?.is_some())
    }

    /// Runs one write. Returns the former value, for modes that look it up, and whether anything was written.
    fn write_with(
        &self,
        key: Arg<'_, K>,
        value: Raw<'_>,
        mode: ModeOf<V>,
    ) -> Result<(Option<Owned<V>>, bool)> {
        let core = &self.core;
        core.storage.check_writable()?;
        let _pass = core.gate.enter();
        let probe = core.hash_key(key);
        core.with_room(probe.hash, || match self.write_probed(&probe, &value, mode) {
            Err(Error::NoSpace { .. }) if mode.removes() => {
                let _pin = core.pin();
                self.told(core.remove_in_place(&probe, mode)?)
            }
            wrote => wrote,
        })
    }

    /// Converts the outcome of a write. The caller has been pinned since before the write.
    fn told(&self, wrote: WroteOf<V>) -> Result<(Option<Owned<V>>, bool)> {
        Ok((wrote.before.map(|word| self.own_value(word)).transpose()?, wrote.done))
    }

    fn write_probed(
        &self,
        probe: &LookupKey<'_>,
        value: &Raw<'_>,
        mode: ModeOf<V>,
    ) -> Result<(Option<Owned<V>>, bool)> {
        let core = &self.core;
        core.make_payload_room()?;
        let _pin = core.pin();
        self.told(core.write(probe, value, mode)?)
    }

    fn try_insert_one(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<TryInsert<V>> {
        let (before, _) = self.write_with(key, V::raw(value), PlushWriteMode::TryInsert)?;
        Ok(before.map_or(Ok(()), |value| Err(Occupied(value))))
    }

    fn write_one(
        &self,
        key: Arg<'_, K>,
        value: Arg<'_, V>,
        mode: WriteMode,
    ) -> Result<Option<Owned<V>>> {
        Ok(self.write_with(key, V::raw(value), mode.into())?.0)
    }

    fn put_one(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<()> {
        self.write_with(key, V::raw(value), PlushWriteMode::Put).map(|_| ())
    }

    fn remove_one(&self, key: Arg<'_, K>) -> Result<Option<Owned<V>>> {
        Ok(self.write_with(key, NOTHING, PlushWriteMode::Remove)?.0)
    }

    fn delete_one(&self, key: Arg<'_, K>) -> Result<()> {
        self.write_with(key, NOTHING, PlushWriteMode::Delete).map(|_| ())
    }

    /// Calls `f` with the value, without a lock, and then applies its decision if the words of the value are still
    /// the same.
    fn compute_one(
        &self,
        key: Arg<'_, K>,
        mut f: impl FnMut(Option<&V>) -> Decision<Owned<V>>,
    ) -> Result<Computed<Owned<V>>> {
        self.core.storage.check_writable()?;
        let probe = self.core.hash_key(key);
        loop {
            let pin = self.core.pin();
            let before = self.core.find(&probe)?;
            let owned = before.map(|word| self.own_value(word)).transpose()?;
            let decision = match before {
                None => f(None),
                Some(word) => self.view_value(word, |raw| V::view(raw, |value| f(Some(value))))?,
            };
            let (value, mode) = match &decision {
                Decision::Keep => return Ok(Computed::Kept(owned)),
                Decision::Put(value) => {
                    (<V as Data>::raw(V::arg(value)), PlushWriteMode::PutStill(before))
                }
                // No write is needed: the key is absent.
                Decision::Remove if before.is_none() => return Ok(Computed::Removed(None)),
                Decision::Remove => (NOTHING, PlushWriteMode::RemoveStill(before)),
            };
            // The same word never occurs again for another value, so the pin is not needed. It would keep a write
            // that makes room from reusing chunks that pinned readers may access.
            drop(pin);
            let done = self.write_with(key, value, mode)?.1;
            if done {
                return Ok(match decision {
                    Decision::Put(_) => Computed::Put(owned),
                    _ => Computed::Removed(owned),
                });
            }
        }
    }

    fn count(&self) -> Result<u64> {
        let changes = self.core.changes();
        let counted = self.core.count()?;
        self.core.note_count(changes, counted);
        Ok(counted)
    }

    fn room(&self) -> u64 {
        self.core.capacity()
    }

    fn make_room_for(&self, additional: u64) -> Result<()> {
        self.core.storage.check_writable()?;
        self.core.make_room_for(self.core.estimate().saturating_add(additional))
    }

    fn shrink(&self) -> Result<()> {
        let core = &self.core;
        core.storage.check_writable()?;
        {
            let _pass = core.gate.enter();
            core.compact_all()?;
            core.collect_all()?;
        }
        {
            let _structure = super::core::lock(&core.storage, &core.structure);
            let _closed = core.close_gate()?;
            core.drop_levels()?;
            core.pack(Last::Stays)?;
            core.give_back_unused()?;
        }
        core.return_space()
    }

    fn prefetch_key(&self, key: Arg<'_, K>) {
        self.core.hint_search(self.core.hash_key(key).hash);
    }

    fn clear_all(&self) -> Result<()> {
        let core = &self.core;
        core.storage.check_writable()?;
        {
            let _structure = super::core::lock(&core.storage, &core.structure);
            let _closed = core.close_gate()?;
            let held: Vec<_> = (0..core.root.entries())
                .map(|entry| core.root.lock(&core.storage, entry))
                .collect();
            held.iter().for_each(super::root::Held::begin_change);
            core.clear()?;
            core.give_back_unused()?;
        }
        core.return_space()
    }
}
