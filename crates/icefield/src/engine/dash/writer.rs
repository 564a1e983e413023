//! Performs the writes of a batch, after the ring (`batch`) has prefetched their buckets: collects the writes of a
//! window, locks and stages them in groups, and commits the window.
//!
//! Each step is done for several operations in a row, which keeps the processor busy. Loads wait for every earlier
//! locked instruction, so a locked instruction between every two operations would serialize the operations.

use super::Dash;
use super::directory::Directory;
use super::kinds::Of;
use super::recover::ensure_recovered;
use super::segment::Target;
use super::window::{Attempt, Hold, WINDOW, Window};
use crate::Result;
use crate::base::recycled::Recycled;
use crate::engine::LookupKey;
use crate::engine::slots::batch::{BatchTable, BatchWriter, Write};
use crate::engine::slots::table::{SlotTable, WriteMode, WriteOutcome};
use crate::engine::slots::{EpochGuard, PreparedRecord};
use crate::storage::Medium;
use crate::types::{Raw, RecordForm};

/// Number of operations whose locks are taken in a row. If one of them ends the window, the locks of the later ones
/// were taken needlessly.
const LOCKED_TOGETHER: usize = 8;

/// A prefetched key of the batch.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'t> {
    pub(super) hash: u64,
    /// The target of the key when its buckets were prefetched.
    pub(super) sighted: Option<Target<'t>>,
}

/// A write that has been collected.
#[derive(Clone, Copy)]
struct Waiting<'t> {
    /// The index in the batch.
    index: usize,
    ahead: Ahead<'t>,
    write: Write,
}

/// The writes of a batch, collected and staged.
pub(crate) struct Writer<'t, R: RecordForm, P: Directory, M: Medium> {
    table: &'t Dash<R, P, M>,
    pin: EpochGuard<'t>,
    window: Window<'t, Of<R, M, P::Ablation>>,
    /// First the staged writes, in the order of staging, then the others.
    waiting: Recycled<Waiting<'t>>,
}

impl<R: RecordForm, P: Directory, M: Medium> Drop for Writer<'_, R, P, M> {
    /// Releases the prepared records of writes that will not run. Only a panic in the conversion of a key or value
    /// leaves any.
    fn drop(&mut self) {
        if !self.waiting.is_empty() {
            self.abort();
        }
    }
}

impl<'t, R: RecordForm, P: Directory, M: Medium> Writer<'t, R, P, M> {
    pub(super) fn new(table: &'t Dash<R, P, M>) -> Self {
        Self {
            table,
            pin: table.core.pin(),
            window: Window::new(&table.core),
            waiting: Recycled::with_capacity(WINDOW),
        }
    }

    /// Returns whether a whole window of writes has been collected.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() == WINDOW
    }

    /// Collects one write. `write` is `None` for a removal.
    #[inline(always)]
    pub(super) fn take_up(
        &mut self,
        index: usize,
        ahead: Ahead<'t>,
        key: &Raw<'_>,
        write: Option<(WriteMode, &Raw<'_>)>,
    ) -> Result<()> {
        let core = &self.table.core;
        core.storage.check_writable()?;
        let probe = LookupKey::new(ahead.hash, key);
        let write = match write {
            Some((mode, value)) => {
                core.records.fits(key, value)?;
                let is_present = || {
                    let is_waiting =
                        self.waiting.iter().any(|other| other.ahead.hash == ahead.hash);
                    let found = self.table.lookup_sighted(&self.pin, &probe, ahead.sighted, |_| ());
                    Ok(is_waiting || found?.is_some())
                };
                let needs_key = self.table.needs_key(mode, is_present)?;
                let (table, records) = (self.table, &core.records);
                Write::Put(mode, records.prepare(&core.storage, table, &probe, value, needs_key)?)
            }
            None => Write::Remove,
        };
        self.waiting.push(Waiting { index, ahead, write });
        Ok(())
    }

    /// Runs the collected writes. `key_of` returns the key of an operation; `answer` gets the results in order, each
    /// once it is durable.
    pub(super) fn run_all<'k>(
        &mut self,
        key_of: &impl Fn(usize) -> Raw<'k>,
        answer: &mut impl FnMut(usize, WriteOutcome) -> Result<()>,
    ) -> Result<()> {
        let mut fresh = false;
        while !self.waiting.is_empty() {
            let attempt = self.stage_all(key_of);
            let ran = self.window.staged.len();
            self.commit(answer).inspect_err(|_| self.abort())?;
            let attempt = attempt.inspect_err(|_| self.abort())?;
            if attempt == Attempt::Stale && !fresh {
                for waiting in self.waiting.iter_mut() {
                    waiting.ahead.sighted = self.table.try_locate(waiting.ahead.hash);
                }
                fresh = true;
            } else if attempt == Attempt::Alone || ran == 0 {
                let raw = key_of(self.waiting[0].index);
                let Waiting { index, ahead, write } = self.waiting.remove(0);
                let probe = LookupKey::new(ahead.hash, &raw);
                self.table
                    .write_alone(&self.pin, &probe, write)
                    .and_then(|wrote| answer(index, wrote))
                    .inspect_err(|_| self.abort())?;
                fresh = false;
            } else {
                fresh = false;
            }
        }
        Ok(())
    }

    /// Stages writes in order until one cannot be staged, and returns the result of the last attempt.
    #[inline]
    fn stage_all<'k>(&mut self, key_of: &impl Fn(usize) -> Raw<'k>) -> Result<Attempt> {
        let Self { table, window, waiting, .. } = self;
        let core = &table.core;
        if let Some(Waiting { ahead: Ahead { sighted: Some(target), .. }, .. }) = waiting.first() {
            ensure_recovered(core, &table.directory, target.located.segment)?;
        }
        for waiting in waiting.chunks(LOCKED_TOGETHER) {
            let mut holds = [Hold::default(); LOCKED_TOGETHER];
            let mut held = 0;
            for Waiting { ahead, .. } in waiting {
                let Some(target) = ahead.sighted else { break };
                if !core.marks.is_ready(target.located.segment) {
                    break;
                }
                let Some(hold) = window.hold_home(target.pair[0]) else { break };
                holds[held] = hold;
                held += 1;
            }
            for (Waiting { index, ahead, write }, hold) in waiting.iter().zip(&holds[..held]) {
                let Some(target) = ahead.sighted else { return Ok(Attempt::Stale) };
                let raw = key_of(*index);
                let probe = LookupKey::new(ahead.hash, &raw);
                let current = || table.directory.is_current(core, ahead.hash, target.located);
                let attempt = window.stage(&probe, target, *hold, current, *write)?;
                if attempt != Attempt::Staged {
                    return Ok(attempt);
                }
            }
            if held < waiting.len() {
                return Ok(Attempt::Later);
            }
        }
        Ok(Attempt::Staged)
    }

    fn stage_one(&mut self, probe: &LookupKey<'_>, write: Write) -> Result<Attempt> {
        let Self { table, window, .. } = self;
        let core = &table.core;
        let located = table.directory.locate(core, probe.hash)?;
        if !core.marks.is_ready(located.segment) {
            if !window.is_empty() {
                return Ok(Attempt::Later);
            }
            if !ensure_recovered(core, &table.directory, located.segment)? {
                return Ok(Attempt::Stale);
            }
        }
        let Some(target) = core.target(located, probe.hash) else { return Ok(Attempt::Stale) };
        let Some(hold) = window.hold_home(target.pair[0]) else { return Ok(Attempt::Later) };
        let current = || table.directory.is_current(core, probe.hash, located);
        window.stage(probe, target, hold, current, write)
    }

    fn prepare(
        &mut self,
        probe: &LookupKey<'_>,
        (mode, value): (WriteMode, &Raw<'_>),
        answer: &mut impl FnMut(usize, WriteOutcome) -> Result<()>,
    ) -> Result<PreparedRecord> {
        let (table, holds_locks) = (self.table, !self.window.is_empty());
        let needs_key = table.needs_key(mode, || {
            let found = table.find_word_at_once(&self.pin, probe)?;
            Ok(self.window.has_staged(probe.hash) || found.flatten().is_some())
        })?;
        table.prepare_beside(probe, value, needs_key, holds_locks, || self.commit(answer))
    }

    /// Releases the prepared records of writes that will not run.
    #[cold]
    fn abort(&mut self) {
        self.waiting.drain(..).for_each(|waiting| self.table.abort(waiting.write));
    }
}

impl<R: RecordForm, P: Directory, M: Medium> BatchWriter for Writer<'_, R, P, M> {
    fn run(
        &mut self,
        index: usize,
        probe: &LookupKey<'_>,
        write: Option<(WriteMode, &Raw<'_>)>,
        answer: &mut impl FnMut(usize, WriteOutcome) -> Result<()>,
    ) -> Result<()> {
        self.table.core.storage.check_writable()?;
        if self.is_full() {
            self.commit(answer)?;
        }
        let write = match write {
            Some(write) => Write::Put(write.0, self.prepare(probe, write, answer)?),
            None => Write::Remove,
        };
        let waiting = Waiting { index, ahead: Ahead { hash: probe.hash, sighted: None }, write };
        for _ in 0..2 {
            let refused = match self.stage_one(probe, write) {
                Ok(Attempt::Staged) => {
                    self.waiting.push(waiting);
                    return Ok(());
                }
                Ok(_) => {
                    // If a conversion in `answer` panics, `drop` releases the record.
                    self.waiting.push(waiting);
                    let committed = self.commit(answer);
                    self.waiting.clear();
                    committed
                }
                Err(error) => Err(error),
            };
            refused.inspect_err(|_| self.table.abort(write))?;
        }
        answer(index, self.table.write_alone(&self.pin, probe, write)?)
    }

    fn commit(&mut self, answer: &mut impl FnMut(usize, WriteOutcome) -> Result<()>) -> Result<()> {
        let Self { table, pin, window, waiting } = self;
        let growth: i64 = window.staged.iter().map(|staged| staged.plan.growth()).sum();
        if growth != 0 {
            // The records are counted before the locks are released. `clear` waits for the locks, so no record is
            // counted after a later `clear` has restarted the counter of this generation's parity.
            table.length.add(window.generation, growth);
        }
        window.commit(pin);
        let mut result = Ok(());
        let removed = window.staged.iter().filter(|staged| staged.plan.growth() < 0);
        removed.for_each(|staged| table.after_removal(pin, staged.hash));
        for (staged, waiting) in window.staged.iter().zip(waiting.iter()) {
            if let Write::Put(_, record) = waiting.write {
                table.discard_unlinked(&Ok(staged.plan.answer()), record);
            }
        }
        // The answers come after all discards, because the conversion of a value in `answer` may panic.
        for (staged, Waiting { index, .. }) in
            window.staged.iter().zip(waiting.drain(..window.staged.len()))
        {
            if result.is_ok() {
                result = answer(index, staged.plan.answer());
            }
        }
        window.staged.clear();
        result
    }

    fn holds_up(&mut self, hash: u64) -> bool {
        self.window.has_staged(hash)
    }

    fn staged_answer(&self, index: usize) -> Option<WriteOutcome> {
        let (last, waiting) = (self.window.staged.last()?, self.waiting.last()?);
        (waiting.index == index).then(|| last.plan.answer())
    }
}

impl<R: RecordForm, P: Directory, M: Medium> Dash<R, P, M> {
    /// Releases the prepared record of a write that will not run.
    #[cold]
    fn abort(&self, write: Write) {
        if let Write::Put(_, record) = write {
            self.core.records.discard_key(record.key);
            self.core.records.discard_value(record.value);
        }
    }
}
