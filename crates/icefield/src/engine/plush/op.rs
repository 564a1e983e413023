//! The operations on one key (§5.1 to §5.3).

use super::core::Core;
use super::epoch::LogEpoch;
use super::incremental_migration::Pace;
use super::recovery_log::Place;
use super::root_lock::Held;
use super::seek::Begun;
use super::words::{Record, RecordOf, words_of};
use crate::Result;
use crate::base::group::{Isa, Native};
use crate::engine::LookupKey;
use crate::engine::WriteKind;
use crate::storage::{Medium, SyncMode};
use crate::types::{Raw, RecordForm, WordArray};

/// The operation on a key, and its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlushWriteMode<B> {
    /// Insert or replace; does not look up the key.
    Put,
    /// Like `Put`, but durable only after the next sync.
    PutLater,
    /// Insert or replace.
    Upsert,
    /// Insert only if absent.
    TryInsert,
    /// Replace only if present.
    Update,
    /// Remove; does not look up the key.
    Delete,
    /// Remove if present.
    Remove,
    /// Insert or replace if the words of the present value are these (`None`: the key is absent).
    PutStill(Option<B>),
    /// Remove if the words of the present value are these (`None`: the key is absent).
    RemoveStill(Option<B>),
}

pub(super) type ModeOf<R> = PlushWriteMode<<R as RecordForm>::ValueWords>;
pub(super) type WroteOf<R> = Wrote<<R as RecordForm>::ValueWords>;

impl<B: WordArray> PlushWriteMode<B> {
    /// Returns whether the outcome depends on the present value, or includes it.
    pub(super) fn looks(self) -> bool {
        !matches!(self, Self::Put | Self::PutLater | Self::Delete)
    }

    pub(super) fn removes(self) -> bool {
        matches!(self, Self::Delete | Self::Remove | Self::RemoveStill(_))
    }

    /// Returns whether there is anything to do, given the words of the present value.
    pub(super) fn applies(self, present: Option<B>) -> bool {
        match self {
            Self::Put | Self::PutLater | Self::Upsert | Self::Delete => true,
            Self::TryInsert => present.is_none(),
            Self::Update | Self::Remove => present.is_some(),
            Self::PutStill(before) | Self::RemoveStill(before) => present == before,
        }
    }

    pub(super) fn record<A>(self, key: A, value: B) -> Record<A, B> {
        Record { key, value, dead: self.removes() }
    }
}

/// Returns the mode of a write.
pub(super) fn mode_of<B>(kind: WriteKind) -> PlushWriteMode<B> {
    match kind {
        WriteKind::TryInsert => PlushWriteMode::TryInsert,
        WriteKind::Insert => PlushWriteMode::Upsert,
        WriteKind::Put => PlushWriteMode::Put,
        WriteKind::Update => PlushWriteMode::Update,
        WriteKind::Remove => PlushWriteMode::Remove,
        WriteKind::Delete => PlushWriteMode::Delete,
    }
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrote<B> {
    /// The words of the value that was present; `None` for blind writes as well.
    pub(super) before: Option<B>,
    /// `true` if the mode applied to the present value.
    pub(super) done: bool,
}

/// The outcome of an attempt to write under the lock.
pub(super) enum Attempt<T> {
    Done(T),
    /// The log has no room. A chunk must be prepared while no lock is held.
    LogFull,
    /// The root entry was full and has been emptied.
    Emptied,
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Writes one record, if `mode` applies to the present value. On return, the record is durable, unless `mode` or
    /// the table's sync mode leaves that to the next sync. The caller is pinned.
    pub(super) fn write(
        &self,
        probe: &LookupKey<'_>,
        value: &Raw<'_>,
        mode: ModeOf<R>,
    ) -> Result<WroteOf<R>> {
        self.fits(probe, value)?;
        if self.measure.is_inline() {
            return self.write_words(probe, words_of(value), mode);
        }
        // Checked without the lock first, because a write that does not apply needs no payload.
        let before = if mode.looks() { self.find(probe)? } else { None };
        if !mode.applies(before) {
            return Ok(Wrote { before, done: false });
        }
        let words =
            self.write_payload(probe, if mode.removes() { &Raw::Slice(&[]) } else { value })?;
        let wrote = self.fence_payloads().and_then(|()| self.write_words(probe, words, mode));
        self.finish_payload(words);
        wrote
    }

    /// Adds one record to the log and the root, if `mode` applies to the present value.
    fn write_words(
        &self,
        probe: &LookupKey<'_>,
        value: R::ValueWords,
        mode: ModeOf<R>,
    ) -> Result<WroteOf<R>> {
        let entry = self.root_entry(probe.hash);
        loop {
            self.make_log_ready(self.logs.log_of(entry))?;
            let held = self.hold(probe.hash);
            match self.try_write(&held, probe, value, mode)? {
                Attempt::Done(wrote) => return Ok(wrote),
                Attempt::LogFull | Attempt::Emptied => {}
            }
        }
    }

    fn try_write(
        &self,
        held: &Held<'_, M>,
        probe: &LookupKey<'_>,
        value: R::ValueWords,
        mode: ModeOf<R>,
    ) -> Result<Attempt<WroteOf<R>>> {
        let before = self.present(held, probe, mode)?;
        if !mode.applies(before) {
            return Ok(Attempt::Done(Wrote { before, done: false }));
        }
        let record = mode.record(self.key_words(probe), value);
        // Starts to fetch these lines, which another core may have, while the log record is written.
        self.root.prefetch_push(held.entry, 0);
        Ok(match self.log(held, record)? {
            Attempt::Done(place) => {
                // P2, commit point: from here on a crash keeps the record.
                if let Err(error) = self.commit(mode) {
                    // The record is not durable: it must not become visible.
                    self.logs.finish(place);
                    return Err(error);
                }
                self.admit(held, probe.hash, record, place);
                Attempt::Done(Wrote { before, done: true })
            }
            Attempt::LogFull => Attempt::LogFull,
            Attempt::Emptied => Attempt::Emptied,
        })
    }

    /// Makes payloads durable before a log refers to them. Where fences are syncs, payloads become durable together
    /// with their log records instead, and opening finds the log records whose payload a crash lost.
    pub(super) fn fence_payloads(&self) -> Result<()> {
        if self.payloads().is_some() && !self.storage.fence_syncs() {
            // P0: the payload is durable before a log record refers to it.
            return self.storage.try_fence();
        }
        Ok(())
    }

    /// Makes the log records of this thread durable, or leaves that to the next sync.
    #[inline]
    pub(super) fn commit(&self, mode: ModeOf<R>) -> Result<()> {
        if mode == PlushWriteMode::PutLater || !self.syncs_always() {
            self.storage.fence_later()
        } else {
            self.storage.try_fence()
        }
    }

    /// Returns whether writes are acknowledged only when they are durable.
    #[inline]
    pub(super) fn syncs_always(&self) -> bool {
        self.storage.sync_mode() == SyncMode::Always
    }

    /// The words of a key's value, under the lock, for modes that look them up.
    pub(super) fn present(
        &self,
        held: &Held<'_, M>,
        probe: &LookupKey<'_>,
        mode: ModeOf<R>,
    ) -> Result<Option<R::ValueWords>> {
        if !mode.looks() {
            return Ok(None);
        }
        Ok(self.value_in(self.search(held.entry, probe)?))
    }

    /// Writes a record to the log, if the root entry has room for it. The stores are flushed.
    pub(super) fn log(&self, held: &Held<'_, M>, record: RecordOf<R>) -> Result<Attempt<Place>> {
        // Checked under the lock: the records of a failed sync have left the root entry, but not the log.
        self.storage.check_writable()?;
        let place = match self.place(held, 0)? {
            Attempt::Done(place) => place,
            other => return Ok(other),
        };
        let written = self.logs.write(&self.storage, &place, &record, self.root.epoch(held.entry));
        if let Err(error) = written {
            self.logs.finish(place);
            return Err(error);
        }
        Ok(Attempt::Done(place))
    }

    /// Returns a place in the log for a record of a root entry for which `staged` records are staged.
    #[inline(always)]
    pub(super) fn place(&self, held: &Held<'_, M>, staged: usize) -> Result<Attempt<Place>> {
        if !self.has_room(held, staged)? {
            return Ok(Attempt::Emptied);
        }
        let mut places = self.logs.hand_out(&self.storage, self.logs.log_of(held.entry), 1)?;
        Ok(places.next().map_or(Attempt::LogFull, Attempt::Done))
    }

    /// Returns whether a root entry for which `staged` records are staged has room for another one. A full entry
    /// without staged or unseen records is emptied, but the result is still `false`.
    #[inline(always)]
    pub(super) fn has_room(&self, held: &Held<'_, M>, staged: usize) -> Result<bool> {
        let has_room = self.root.added_size(held.entry) + staged < self.shape.records();
        if !has_room && staged == 0 && !self.root.has_unseen(held.entry) {
            self.empty_together(held)?;
        }
        Ok(has_room)
    }

    /// Writes a record that belongs to no epoch to a place that will not be used.
    pub(super) fn waste(&self, place: Place) {
        let nothing = self.measure.record(true, |_| 0);
        // A failure leaves a hole, as a crash would.
        let _ = self.logs.write(&self.storage, &place, &nothing, LogEpoch::NONE);
        // The record must be durable before the chunk is begun anew (L2). After a failed sync no chunk is begun.
        let _ = self.storage.try_fence();
        self.logs.finish(place);
    }

    /// Makes a logged record visible.
    #[inline]
    pub(super) fn admit(&self, held: &Held<'_, M>, hash: u64, record: RecordOf<R>, place: Place) {
        self.root.note_chunk(held.entry, place.chunk());
        self.root.push(held.entry, hash, record);
        self.note_written(1, if record.dead { -1 } else { 1 });
        self.logs.finish(place);
        self.step_ahead(held, Pace::Parts);
    }

    /// Counts the records written, and updates the estimate of the number of records.
    #[inline]
    pub(super) fn note_written(&self, writes: i64, records: i64) {
        self.tallies.add_writes(writes);
        self.tallies.add_records(records);
    }

    /// Prepares the next chunk of a log, if it is due. The caller holds no lock of a root entry.
    pub(super) fn make_log_ready(&self, log: usize) -> Result<()> {
        let Some(_recycling) = self.logs.lock_recycling(&self.storage, log) else {
            return Ok(());
        };
        if let Some(chunk) = self.logs.oldest(&self.storage, log) {
            // Entries that need the chunk are emptied (§4.2 copies their records to another chunk instead, behind
            // newer ones of the same keys).
            let needs_it =
                |entry| self.logs.log_of(entry) == log && self.root.needs_chunk(entry, chunk);
            for entry in (log..self.root.entries()).step_by(self.logs.count()) {
                if !needs_it(entry) {
                    continue;
                }
                let held = self.root.lock(&self.storage, entry);
                if needs_it(entry) {
                    self.migrate_with_others(&held, needs_it)?;
                }
            }
        }
        self.logs.make_ready(&self.storage, log);
        Ok(())
    }

    /// The words of a key's value, without a lock.
    #[inline]
    pub(super) fn find(&self, probe: &LookupKey<'_>) -> Result<Option<R::ValueWords>> {
        if self.measure.is_inline() {
            let isa = Native::default();
            self.hint_search(probe.hash);
            self.hint_last_level(probe.hash);
            let mut begun = self.begin_apart(probe.hash);
            if let Some(begun) = &mut begun {
                self.hint_records(isa, probe.hash, begun);
            }
            return self.find_begun(isa, probe, &begun);
        }
        Ok(self.value_in(self.lookup(probe)?))
    }

    /// Like [`Core::find`], given the first steps of the search.
    #[inline(always)]
    pub(super) fn find_begun(
        &self,
        isa: impl Isa,
        probe: &LookupKey<'_>,
        begun: &Option<Begun<'_>>,
    ) -> Result<Option<R::ValueWords>> {
        if self.measure.is_inline()
            && let Some(begun) = begun
            && let Some(words) = self.find_prefetched(isa, probe, begun)
        {
            return Ok(words);
        }
        self.find_whole(probe, *begun)
    }

    /// Completes a search that has begun, whatever it meets.
    #[inline(never)]
    fn find_whole(
        &self,
        probe: &LookupKey<'_>,
        begun: Option<Begun<'_>>,
    ) -> Result<Option<R::ValueWords>> {
        Ok(self.value_in(self.lookup_begun(probe, begun)?))
    }

    /// The words of the value in the newest record of a key.
    #[inline]
    pub(super) fn value_in(&self, newest: Option<RecordOf<R>>) -> Option<R::ValueWords> {
        newest.filter(|record| !record.dead).map(|record| record.value)
    }
}
