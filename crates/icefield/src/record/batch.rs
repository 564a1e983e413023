//! The parts of batches that do not depend on the table: results, and mixed batches.

use super::engine::{Engine, WriteMode, WriteOutcome};
use super::{EpochGuard, LookupKey, PreparedRecord};
use crate::key::{Key, Raw, Value};
use crate::table::{
    Arg, Occupied, OnFailure, Op, Owned, RecordArg, TryInsert, no_shadows, run_mixed, same_length,
};
use crate::{Error, Result};

/// Number of operations of a mixed batch between the prefetch of a key and its operation.
const HINT_DISTANCE: usize = 16;

/// A write that a window can stage.
#[derive(Clone, Copy)]
pub(crate) enum Write {
    Put(WriteMode, PreparedRecord),
    Remove,
}

/// Executes the writes of a batch: up to a window of them are staged, then committed together.
pub(crate) trait BatchWriter {
    /// Executes one write: in the open window, in a new one, or alone. If `write` is `None`, it is a removal. `answer`
    /// is called with the outcomes of earlier writes, in order, once they are durable.
    fn run(
        &mut self,
        index: usize,
        probe: &LookupKey<'_>,
        write: Option<(WriteMode, Raw<'_>)>,
        answer: &mut impl FnMut(usize, WriteOutcome) -> Result<()>,
    ) -> Result<()>;

    /// Commits the open window and calls `answer` with its outcomes.
    fn commit(&mut self, answer: &mut impl FnMut(usize, WriteOutcome) -> Result<()>) -> Result<()>;

    /// Returns whether a read of a key with this hash must wait for the open window to be committed: the window
    /// contains an operation on the key or a lock for which reads wait, or has been open for long enough.
    fn holds_up(&mut self, hash: u64) -> bool;

    /// Returns the future outcome of operation `index` if it was the last one staged.
    fn staged_answer(&self, index: usize) -> Option<WriteOutcome>;
}

/// The methods that a table implements itself for batches.
pub(crate) trait BatchEngine<K: Key + ?Sized, V: Value + ?Sized>: Engine<K, V> {
    /// The writer of one batch.
    type Writer<'t>: BatchWriter
    where
        Self: 't;

    fn writer(&self) -> Self::Writer<'_>;

    /// Prefetches the memory that a write of a key with this hash will access.
    fn hint(&self, hash: u64);

    /// Runs `count` writes of one kind in order. Without a mode they are removals, whose value is ignored. `answer` is
    /// called with the outcome of each, in order, once it is durable.
    fn write_batch<'k, 'v>(
        &self,
        mode: Option<WriteMode>,
        count: usize,
        key: impl Fn(usize) -> Arg<'k, K>,
        value: impl Fn(usize) -> Raw<'v>,
        answer: impl FnMut(usize, WriteOutcome) -> Result<()>,
    ) -> Result<()>
    where
        K: 'k;

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

    /// Returns whether a write of this mode may need its key to be written. `is_present` returns a guess at whether a
    /// key by reference is present. If the guess is wrong, the window leaves the record to
    /// [`BatchEngine::write_alone`].
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

    /// Writes the blobs of a record while bucket locks may be held. The blob store may call the table about old blocks
    /// only when no lock is held; when it has to, `unlock_all` releases the locks first.
    fn prepare_beside(
        &self,
        probe: &LookupKey<'_>,
        value: Raw<'_>,
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

    fn upsert_batch(
        &self,
        records: &[RecordArg<'_, K, V>],
        mode: WriteMode,
        previous: Option<&mut [Option<Owned<V>>]>,
    ) -> Result<()> {
        let mut previous = previous;
        if let Some(previous) = &previous {
            same_length(records.len(), previous.len())?;
        }
        let (key, value) =
            (|index: usize| records[index].0, |index: usize| V::raw(records[index].1));
        self.write_batch(Some(mode), records.len(), key, value, |index, wrote| {
            if let Some(previous) = &mut previous {
                previous[index] = self.value_before(wrote)?;
            }
            Ok(())
        })
    }

    fn try_insert_all(
        &self,
        records: &[RecordArg<'_, K, V>],
        outcomes: &mut [TryInsert<V>],
    ) -> Result<()> {
        same_length(records.len(), outcomes.len())?;
        let (key, value) =
            (|index: usize| records[index].0, |index: usize| V::raw(records[index].1));
        self.write_batch(Some(WriteMode::TryInsert), records.len(), key, value, |index, wrote| {
            outcomes[index] =
                self.value_before(wrote)?.map_or(Ok(()), |value| Err(Occupied(value)));
            Ok(())
        })
    }

    fn remove_all(&self, keys: &[Arg<'_, K>], removed: &mut [Option<Owned<V>>]) -> Result<()> {
        same_length(keys.len(), removed.len())?;
        let (key, value) = (|index: usize| keys[index], |_| Raw::Word(0));
        self.write_batch(None, keys.len(), key, value, |index, wrote| {
            removed[index] = self.value_before(wrote)?;
            Ok(())
        })
    }

    fn value_before(&self, wrote: WriteOutcome) -> Result<Option<Owned<V>>> {
        match wrote {
            WriteOutcome::Replaced(word) | WriteOutcome::Occupied(word) => {
                self.own_value(word).map(Some)
            }
            WriteOutcome::Inserted | WriteOutcome::Absent => Ok(None),
        }
    }

    fn execute_all(&self, ops: &mut [Op<'_, K, V>], on_failure: OnFailure) -> Result<usize> {
        no_shadows(ops)?;
        let mut writer = self.writer();
        let (ran, result) = run_mixed(ops.len(), on_failure, |index| {
            if let Some(ahead) = ops.get(index + HINT_DISTANCE) {
                self.hint(self.records().hash_key(ahead.key()).hash);
            }
            self.execute_one(&mut writer, ops, index)
        });
        // The operations before a failure are made durable, and their results are filled in.
        let finished = writer.commit(&mut |index, wrote| self.fill_in(&mut ops[index], wrote));
        result.and(finished).map(|()| ran)
    }

    /// Runs or stages one operation; returns whether it found its key occupied or absent.
    fn execute_one<'t>(
        &'t self,
        writer: &mut Self::Writer<'t>,
        ops: &mut [Op<'_, K, V>],
        index: usize,
    ) -> Result<bool> {
        let probe = self.records().hash_key(ops[index].key());
        let write = match &ops[index] {
            Op::Get(..) => {
                let mut read = None;
                if !writer.holds_up(probe.hash) {
                    read = self.get_at_once(&probe)?;
                }
                if read.is_none() {
                    writer.commit(&mut |index, wrote| self.fill_in(&mut ops[index], wrote))?;
                }
                if let Op::Get(_, found) = &mut ops[index] {
                    *found = match read {
                        Some(read) => read,
                        None => self.get_probed(&probe)?,
                    };
                }
                return Ok(ops[index].failed());
            }
            Op::TryInsert(_, value, _) => Some((WriteMode::TryInsert, V::raw(*value))),
            Op::Insert(_, value, _) | Op::Put(_, value) => {
                Some((WriteMode::Upsert, V::raw(*value)))
            }
            Op::Update(_, value, _) => Some((WriteMode::Update, V::raw(*value))),
            Op::Remove(..) => None,
            // Such a batch was refused before its first operation.
            Op::Shadow(..) => return Ok(false),
        };
        let mut answer = |index: usize, wrote| self.fill_in(&mut ops[index], wrote);
        writer.run(index, &probe, write, &mut answer)?;
        Ok(match writer.staged_answer(index) {
            Some(wrote) => matches!(wrote, WriteOutcome::Absent | WriteOutcome::Occupied(_)),
            None => ops[index].failed(),
        })
    }

    /// Reads a key while the batch has a window open. Other threads may be waiting for locks of the window, so this
    /// read must not wait for them: it returns `None` instead.
    fn get_at_once(&self, probe: &LookupKey<'_>) -> Result<Option<Option<Owned<V>>>> {
        let pin = self.records().pin();
        let Some(word) = self.find_word_at_once(&pin, probe)? else { return Ok(None) };
        word.map(|word| self.own_value(word)).transpose().map(Some)
    }

    fn fill_in(&self, op: &mut Op<'_, K, V>, wrote: WriteOutcome) -> Result<()> {
        op.fill(self.value_before(wrote)?);
        Ok(())
    }
}
