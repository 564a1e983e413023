//! The parts of batches that do not depend on the table: results, and mixed batches.

use super::table::{SlotTable, WriteMode, WriteOutcome};
use super::{EpochGuard, LookupKey, PreparedRecord};
use crate::engine::{Mixed, Operations, WriteKind};
use crate::outcome::{Computed, Decision, OnFailure};
use crate::storage::Properties;
use crate::types::{Keep, Raw, Take};
use crate::{Error, Result};

/// In a mixed batch, the number of operations between the prefetch for an operation and the operation itself.
const HINT_DISTANCE: usize = 16;

/// A write, prepared for staging in a window ([`BatchWriter`]).
#[derive(Clone, Copy)]
pub(crate) enum Write {
    Put(WriteMode, PreparedRecord),
    Remove,
}

/// Executes the writes of a batch in windows: the writes of a window are staged, then committed together.
pub(crate) trait BatchWriter {
    /// Executes one write, or a removal if `write` is `None`: in the open window, in a new one, or alone. `answer` is
    /// called with the outcomes of earlier writes, in order, once they are durable.
    fn run(
        &mut self,
        index: usize,
        probe: &LookupKey<'_>,
        write: Option<(WriteMode, &Raw<'_>)>,
        answer: &mut impl FnMut(usize, WriteOutcome) -> Result<()>,
    ) -> Result<()>;

    /// Commits the open window and calls `answer` with its outcomes.
    fn commit(&mut self, answer: &mut impl FnMut(usize, WriteOutcome) -> Result<()>) -> Result<()>;

    /// Returns whether the open window must be committed before a read of a key with this hash: the window has an
    /// operation on the key, holds a lock for which the read would wait, or has been open for long enough.
    fn holds_up(&mut self, hash: u64) -> bool;

    /// Returns the outcome that operation `index` will have after the commit, if it was the last one staged.
    fn staged_answer(&self, index: usize) -> Option<WriteOutcome>;
}

/// The methods that a table implements itself for batches.
pub(crate) trait BatchTable: SlotTable {
    /// The writer of one batch.
    type Writer<'t>: BatchWriter
    where
        Self: 't;

    fn writer(&self) -> Self::Writer<'_>;

    /// Prefetches the memory that a read of a key with this hash will access.
    fn hint_read(&self, hash: u64);

    /// Prefetches the memory that a write of a key with this hash will access.
    fn hint(&self, hash: u64);

    /// Reads `count` keys in order. `found` is called with the value word of each, which is valid during that call. As for
    /// [`Operations::get_batch`], `key` and `found` get numbers below `count` only.
    fn read_batch<'k>(
        &self,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        found: impl FnMut(usize, Option<u64>) -> Result<()>,
    ) -> Result<()>;

    /// Runs `count` writes of one kind in order; if `mode` is `None`, they are removals and `value` is not used.
    /// `answer` is called with the outcome of each, in order, once it is durable.
    fn run_batch<'k, 'v>(
        &self,
        mode: Option<WriteMode>,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        value: impl Fn(usize) -> Raw<'v>,
        answer: impl FnMut(usize, WriteOutcome) -> Result<()>,
    ) -> Result<()>;

    /// Runs one write outside of windows, for a write that no window can stage.
    #[cold]
    fn write_alone(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        write: Write,
    ) -> Result<WriteOutcome> {
        match write {
            Write::Put(mode, record) => self.link(pin, probe, record, mode),
            Write::Remove => {
                let removed = self.remove_probed(pin, probe)?;
                Ok(removed.map_or(WriteOutcome::Absent, WriteOutcome::Replaced))
            }
        }
    }

    /// Returns whether a write of this mode probably needs its key to be written. `is_present`, called only for keys by
    /// reference, guesses whether the key is present. If the guess is wrong, the window leaves the record to
    /// [`BatchTable::write_alone`].
    #[inline]
    fn needs_key(
        &self,
        mode: WriteMode,
        is_present: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        Ok(match mode {
            _ if self.records().keys_are_words() => true,
            WriteMode::TryInsert => true,
            WriteMode::Upsert => !is_present()?,
            WriteMode::Update => false,
        })
    }

    /// Writes the blobs of a record, possibly while the caller holds bucket locks. If the space does not suffice,
    /// releases the locks by calling `unlock_all`, and tries again: without locks, the blob store may call the table to
    /// find blocks that are free.
    fn prepare_beside(
        &self,
        probe: &LookupKey<'_>,
        value: &Raw<'_>,
        needs_key: bool,
        holds_locks: bool,
        unlock_all: impl FnOnce() -> Result<()>,
    ) -> Result<PreparedRecord> {
        let (storage, records) = (self.storage(), self.records());
        records.fits(probe.key, value)?;
        if holds_locks {
            match records.write(storage, probe, value, needs_key) {
                Err(Error::NoSpace { .. }) => unlock_all()?,
                other => return other,
            }
        }
        records.prepare(storage, self, probe, value, needs_key)
    }

    /// Passes the value that a write found to `take`.
    fn value_before<T: Take>(&self, wrote: WriteOutcome, take: T) -> Result<Option<T::Out>> {
        match wrote {
            WriteOutcome::Replaced(word) | WriteOutcome::Occupied(word) => {
                self.take_value(None, word, take).map(Some)
            }
            WriteOutcome::Inserted | WriteOutcome::Absent => Ok(None),
        }
    }

    /// Runs or stages one operation of a mixed batch. Returns whether it failed because its key was occupied or absent.
    fn execute_one<'t, 'a>(
        &'t self,
        writer: &mut Self::Writer<'t>,
        batch: &mut impl Mixed<'a>,
        index: usize,
    ) -> Result<bool> {
        let key = batch.key(index);
        let probe = self.records().hash_key(&key);
        let Some(kind) = batch.kind(index) else {
            let mut read = None;
            if !writer.holds_up(probe.hash) {
                read = self.get_at_once(&probe, batch.take())?;
            }
            let found = match read {
                Some(found) => found,
                None => {
                    writer.commit(&mut |index, wrote| self.fill_in(batch, index, wrote))?;
                    self.get_probed(&probe, batch.take())?
                }
            };
            batch.fill(index, found);
            return Ok(batch.failed(index));
        };
        let value = batch.value(index);
        let write = mode_of(kind).map(|mode| (mode, &value));
        writer.run(index, &probe, write, &mut |index, wrote| self.fill_in(batch, index, wrote))?;
        Ok(match writer.staged_answer(index) {
            Some(wrote) => matches!(wrote, WriteOutcome::Absent | WriteOutcome::Occupied(_)),
            None => batch.failed(index),
        })
    }

    /// Reads a key while the batch has a window open. Other threads may be waiting for locks of the window, so this
    /// read does not wait for locks of other threads: it returns `None` instead.
    fn get_at_once<T: Take>(
        &self,
        probe: &LookupKey<'_>,
        take: T,
    ) -> Result<Option<Option<T::Out>>> {
        let pin = self.records().pin();
        let Some(word) = self.find_word_at_once(&pin, probe)? else { return Ok(None) };
        word.map(|word| self.take_value(None, word, take)).transpose().map(Some)
    }

    fn fill_in<'a>(
        &self,
        batch: &mut impl Mixed<'a>,
        index: usize,
        wrote: WriteOutcome,
    ) -> Result<()> {
        if batch.kind(index).is_some_and(WriteKind::has_result) {
            let before = self.value_before(wrote, batch.take())?;
            batch.fill(index, before);
        }
        Ok(())
    }
}

/// Returns the condition of a write; `None` for a removal.
fn mode_of(kind: WriteKind) -> Option<WriteMode> {
    match kind {
        WriteKind::TryInsert => Some(WriteMode::TryInsert),
        WriteKind::Insert | WriteKind::Put => Some(WriteMode::Upsert),
        WriteKind::Update => Some(WriteMode::Update),
        WriteKind::Remove | WriteKind::Delete => None,
    }
}

/// The operations on keys of every table with slots.
impl<S: BatchTable> Operations for S {
    fn get<T: Take>(&self, key: &Raw<'_>, take: T) -> Result<Option<T::Out>> {
        let probe = self.records().hash_key(key);
        self.get_probed(&probe, take)
    }

    fn contains(&self, key: &Raw<'_>) -> Result<bool> {
        let probe = self.records().hash_key(key);
        Ok(self.find_word(&self.records().pin(), &probe)?.is_some())
    }

    fn write<T: Take + Copy>(
        &self,
        kind: WriteKind,
        key: &Raw<'_>,
        value: &Raw<'_>,
        before: T,
    ) -> Result<Option<T::Out>> {
        let (pin, probe) = (self.records().pin(), self.records().hash_key(key));
        let wrote = match mode_of(kind) {
            Some(mode) => self.write_probed(&pin, &probe, value, mode)?,
            None => match self.remove_probed(&pin, &probe)? {
                Some(word) => WriteOutcome::Replaced(word),
                None => WriteOutcome::Absent,
            },
        };
        if kind.has_result() { self.value_before(wrote, before) } else { Ok(None) }
    }

    /// Calls `decide` without a lock, then applies its decision if the value word has not changed; otherwise starts
    /// again. An unchanged word means an unchanged value, also for references: the pin keeps their blobs from being
    /// reused.
    fn compute<T: Keep>(
        &self,
        key: &Raw<'_>,
        keep: T,
        mut decide: impl FnMut(Option<&T::Out>) -> Decision<T::Out>,
    ) -> Result<Computed<T::Out>> {
        self.storage().check_writable()?;
        let probe = self.records().hash_key(key);
        loop {
            let pin = self.records().pin();
            let before = self.find_word(&pin, &probe)?;
            let owned = before.map(|word| self.take_value(None, word, keep)).transpose()?;
            match decide(owned.as_ref()) {
                Decision::Keep => return Ok(Computed::Kept(owned)),
                Decision::Put(value) => {
                    if self.replace_if(&pin, &probe, before, &T::raw(&value))? {
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

    fn get_batch<'k, T: Take + Copy>(
        &self,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        take: T,
        mut found: impl FnMut(usize, Option<T::Out>),
    ) -> Result<()> {
        self.read_batch(count, key, move |index, word| {
            found(index, word.map(|word| self.take_value(None, word, take)).transpose()?);
            Ok(())
        })
    }

    fn write_batch<'k, 'v, T: Take + Copy>(
        &self,
        kind: WriteKind,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        value: impl Fn(usize) -> Raw<'v>,
        before: T,
        mut answer: impl FnMut(usize, Option<T::Out>),
    ) -> Result<()> {
        self.run_batch(mode_of(kind), count, key, value, move |index, wrote| {
            if kind.has_result() {
                answer(index, self.value_before(wrote, before)?);
            }
            Ok(())
        })
    }

    fn execute<'a>(&self, batch: &mut impl Mixed<'a>, on_failure: OnFailure) -> Result<usize> {
        let (mut writer, count) = (self.writer(), batch.len());
        let (ran, result) = run_mixed(count, on_failure, |index| {
            if index + HINT_DISTANCE < count {
                self.hint(self.records().hash_key(&batch.key(index + HINT_DISTANCE)).hash);
            }
            self.execute_one(&mut writer, batch, index)
        });
        // The operations before a failure are made durable, and their results are filled in.
        let finished = writer.commit(&mut |index, wrote| self.fill_in(batch, index, wrote));
        result.and(finished).map(|()| ran)
    }

    fn prefetch(&self, key: &Raw<'_>) {
        self.hint_read(self.records().hash_key(key).hash);
    }
}

/// Runs the operations of a mixed batch in order. `run_one` returns `true` if an operation failed because its key was
/// occupied or absent. Returns the number of operations that ran, and the error of the next one, if any.
fn run_mixed(
    count: usize,
    on_failure: OnFailure,
    mut run_one: impl FnMut(usize) -> Result<bool>,
) -> (usize, Result<()>) {
    for index in 0..count {
        match run_one(index) {
            Ok(true) if on_failure == OnFailure::Stop => return (index + 1, Ok(())),
            Ok(_) => {}
            Err(error) => return (index, Err(error)),
        }
    }
    (count, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_at_its_end_at_a_failure_or_at_an_error() {
        let fails_at = |at: usize| move |index: usize| Ok(index == at);
        assert!(matches!(run_mixed(5, OnFailure::Stop, fails_at(2)), (3, Ok(()))));
        assert!(matches!(run_mixed(5, OnFailure::Continue, fails_at(2)), (5, Ok(()))));
        let breaks = |index: usize| if index == 4 { Err(crate::Error::ReadOnly) } else { Ok(true) };
        assert!(matches!(run_mixed(5, OnFailure::Continue, breaks), (4, Err(_))));
    }
}
