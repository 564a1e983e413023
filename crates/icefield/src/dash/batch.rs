//! Batches: windows of up to 32 operations that share two fences.
//!
//! Each operation of a window locks its two buckets and decides what it will do. Only the first lock of a window is waited for; every
//! other one is tried, and a failure closes the window: a thread never waits while it holds something, so no order of locking is
//! needed. New records are written to slots that are still free; one fence makes them all durable; then every touched bucket
//! gets its changes under its changing bit, and a second fence makes these durable before anybody may read them.
//!
//! What a window cannot do closes it and is done the single way: a displacement, a split, a record for the chain. A second operation on a
//! key of the window closes it, too.

use std::ops::ControlFlow;

use super::Dash;
use super::directory::Directory;
use super::insert::choose;
use super::op::{Mode, Wrote};
use super::record::{Pin, Probe, Unlinked};
use super::window::{Attempt, Plan, WINDOW, Window, Write};
use crate::base::pipeline;
use crate::key::{Key, Raw, Value};
use crate::pm::Medium;
use crate::table::{Arg, Occupied, OnFailure, Op, Owned, RecordArg, TryInsert, same_length};
use crate::{Error, Result};

/// How far ahead the ring fetches buckets, and when it looks into them to fetch records.
const RING: usize = 48;
const PEEK: usize = 16;

impl<K: Key + ?Sized, V: Value + ?Sized, P: Directory, M: Medium> Dash<K, V, P, M> {
    /// Reads keys in order, fetching what lies ahead.
    pub(super) fn read_batch(
        &self,
        keys: &[Arg<'_, K>],
        found: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        same_length(keys.len(), found.len())?;
        let pin = self.core.pin();
        let mut failure = Ok(());
        pipeline::rolling(
            keys.len(),
            RING,
            PEEK,
            |index| {
                let hash = self.core.records.probe(keys[index]).hash;
                self.directory.prefetch(&self.core, hash, false);
                hash
            },
            |_, &hash| self.peek(hash),
            |index, hash| {
                let probe = Probe { hash, key: K::raw(keys[index]) };
                let value = self.lookup(&pin, &probe, |word| word);
                match value.and_then(|word| word.map(|word| self.core.own_value(word)).transpose())
                {
                    Ok(value) => {
                        found[index] = value;
                        ControlFlow::Continue(())
                    }
                    Err(error) => {
                        failure = Err(error);
                        ControlFlow::Break(())
                    }
                }
            },
        );
        failure
    }

    /// Looks for the fingerprint and fetches the line of the slot that will be read. Decides nothing.
    #[inline]
    fn peek(&self, hash: u64) {
        let core = &self.core;
        let Ok(located) = self.directory.locate(core, hash) else { return };
        let Ok(segment) = core.segment(located.segment) else { return };
        let (home, probing) = core.pair(segment, hash);
        for bucket in [home, probing] {
            let candidates = bucket.candidates(&core.pm, hash);
            if candidates != 0 {
                let slot = candidates.trailing_zeros() as usize;
                pipeline::prefetch_read(&raw const bucket.slots[slot]);
                return;
            }
        }
    }

    /// Looks for the slot that a new record would take and fetches its line. Decides nothing.
    #[inline]
    fn peek_room(&self, hash: u64) {
        let core = &self.core;
        let Ok(located) = self.directory.locate(core, hash) else { return };
        let Ok(segment) = core.segment(located.segment) else { return };
        let (home, probing) = core.pair(segment, hash);
        let metas = [home, probing].map(|bucket| bucket.meta(&core.pm).allocated());
        if let Some((which, slot)) = choose(metas, core.geometry.slot_mask()) {
            pipeline::prefetch_write(&raw const [home, probing][which].slots[slot]);
        }
    }

    /// Runs `count` writes in order through windows. `operation` gives the key and what to do (nothing: remove); `answer` gets
    /// what became of each, in order, once it is durable.
    fn write_batch<'k, 'v>(
        &self,
        count: usize,
        operation: impl Fn(usize) -> (Arg<'k, K>, Option<(Mode, Raw<'v>)>),
        mut answer: impl FnMut(usize, Wrote) -> Result<()>,
    ) -> Result<()>
    where
        K: 'k,
    {
        let mut batch = Batch::new(self);
        let mut failure = Ok(());
        pipeline::rolling(
            count,
            RING,
            PEEK,
            |index| {
                let hash = self.core.records.probe(operation(index).0).hash;
                self.directory.prefetch(&self.core, hash, true);
                hash
            },
            |_, &hash| self.peek_room(hash),
            |index, hash| {
                let (key, write) = operation(index);
                match batch.run(index, Probe { hash, key: K::raw(key) }, write, &mut answer) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        failure = Err(error);
                        ControlFlow::Break(())
                    }
                }
            },
        );
        // What came before a failure is made durable and answered.
        let flushed = batch.flush(&mut answer);
        failure.and(flushed)
    }

    pub(super) fn upsert_batch(
        &self,
        pairs: &[RecordArg<'_, K, V>],
        mode: Mode,
        previous: Option<&mut [Option<Owned<V>>]>,
    ) -> Result<()> {
        let mut previous = previous;
        if let Some(previous) = &previous {
            same_length(pairs.len(), previous.len())?;
        }
        let operation = |index: usize| (pairs[index].0, Some((mode, V::raw(pairs[index].1))));
        self.write_batch(pairs.len(), operation, |index, wrote| {
            if let Some(previous) = &mut previous {
                previous[index] = self.value_before(wrote)?;
            }
            Ok(())
        })
    }

    pub(super) fn try_insert_all(
        &self,
        pairs: &[RecordArg<'_, K, V>],
        outcomes: &mut [TryInsert<V>],
    ) -> Result<()> {
        same_length(pairs.len(), outcomes.len())?;
        let operation =
            |index: usize| (pairs[index].0, Some((Mode::TryInsert, V::raw(pairs[index].1))));
        self.write_batch(pairs.len(), operation, |index, wrote| {
            outcomes[index] =
                self.value_before(wrote)?.map_or(Ok(()), |value| Err(Occupied(value)));
            Ok(())
        })
    }

    pub(super) fn remove_all(
        &self,
        keys: &[Arg<'_, K>],
        removed: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        same_length(keys.len(), removed.len())?;
        self.write_batch(
            keys.len(),
            |index| (keys[index], None),
            |index, wrote| {
                removed[index] = self.value_before(wrote)?;
                Ok(())
            },
        )
    }

    fn value_before(&self, wrote: Wrote) -> Result<Option<Owned<V>>> {
        match wrote {
            Wrote::Replaced(word) | Wrote::Occupied(word) => self.core.own_value(word).map(Some),
            Wrote::Inserted | Wrote::Absent => Ok(None),
        }
    }

    /// A mixed batch.
    pub(super) fn execute_all(
        &self,
        ops: &mut [Op<'_, K, V>],
        on_failure: OnFailure,
    ) -> Result<usize> {
        let mut batch = Batch::new(self);
        let mut ran = 0;
        let mut result = Ok(());
        while ran < ops.len() {
            if let Some(ahead) = ops.get(ran + PEEK) {
                self.directory.prefetch(
                    &self.core,
                    self.core.records.probe(ahead.key()).hash,
                    true,
                );
            }
            match self.execute_one(&mut batch, ops, ran) {
                Ok(failed) => {
                    ran += 1;
                    if failed && on_failure == OnFailure::Stop {
                        break;
                    }
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        // What came before a failure is made durable and filled in.
        let flushed = batch.flush(&mut |index, wrote| self.fill_in(&mut ops[index], wrote));
        result.and(flushed).map(|()| ran)
    }

    /// Runs or stages one operation; says whether it found its key occupied or absent.
    fn execute_one<'t>(
        &'t self,
        batch: &mut Batch<'t, K, V, P, M>,
        ops: &mut [Op<'_, K, V>],
        index: usize,
    ) -> Result<bool> {
        let probe = self.core.records.probe(ops[index].key());
        let write = match &ops[index] {
            Op::Get(..) => {
                if batch.has_staged(probe.hash) {
                    batch.flush(&mut |index, wrote| self.fill_in(&mut ops[index], wrote))?;
                }
                if let Op::Get(_, found) = &mut ops[index] {
                    *found = self.get_probed(&probe)?;
                }
                return Ok(ops[index].failed());
            }
            Op::TryInsert(_, value, _) => Some((Mode::TryInsert, V::raw(*value))),
            Op::Insert(_, value, _) | Op::Put(_, value) => Some((Mode::Upsert, V::raw(*value))),
            Op::Update(_, value, _) => Some((Mode::Update, V::raw(*value))),
            Op::Remove(..) => None,
        };
        batch.run(index, probe, write, &mut |index, wrote| self.fill_in(&mut ops[index], wrote))?;
        Ok(match batch.staged_answer(index) {
            Some(wrote) => matches!(wrote, Wrote::Absent | Wrote::Occupied(_)),
            None => ops[index].failed(),
        })
    }

    fn fill_in(&self, op: &mut Op<'_, K, V>, wrote: Wrote) -> Result<()> {
        let before = self.value_before(wrote)?;
        match op {
            Op::Get(_, found)
            | Op::Insert(_, _, found)
            | Op::Update(_, _, found)
            | Op::Remove(_, found) => *found = before,
            Op::TryInsert(_, _, outcome) => {
                *outcome = before.map_or(Ok(()), |value| Err(Occupied(value)))
            }
            Op::Put(..) => {}
        }
        Ok(())
    }
}

/// A batch on its way: a window and what is waiting for its answer.
struct Batch<'t, K: Key + ?Sized, V: Value + ?Sized, P: Directory, M: Medium> {
    table: &'t Dash<K, V, P, M>,
    pin: Pin<'t>,
    window: Window<'t, K, V, M>,
    /// Index and prepared record of each staged operation.
    waiting: Vec<(usize, Option<Unlinked>)>,
}

impl<'t, K: Key + ?Sized, V: Value + ?Sized, P: Directory, M: Medium> Batch<'t, K, V, P, M> {
    fn new(table: &'t Dash<K, V, P, M>) -> Self {
        Self {
            table,
            pin: table.core.pin(),
            window: Window::new(&table.core),
            waiting: Vec::with_capacity(WINDOW),
        }
    }

    /// Runs one operation: in the open window, in a new one, or alone.
    fn run(
        &mut self,
        index: usize,
        probe: Probe<'_>,
        write: Option<(Mode, Raw<'_>)>,
        answer: &mut impl FnMut(usize, Wrote) -> Result<()>,
    ) -> Result<()> {
        self.table.core.pm.writable()?;
        if self.waiting.len() == WINDOW {
            self.flush(answer)?;
        }
        let record = write.map(|(_, value)| self.prepare(&probe, value, answer)).transpose()?;
        let write = match (write, record) {
            (Some((mode, _)), Some(record)) => Write::Put(mode, record),
            _ => Write::Remove,
        };
        for attempt in 0..2 {
            match self.try_stage(&probe, write) {
                Ok(Attempt::Staged) => {
                    self.waiting.push((index, record));
                    return Ok(());
                }
                Ok(Attempt::Refused) if attempt == 0 => self.flush(answer)?,
                Ok(Attempt::Refused) => {}
                Err(error) => {
                    self.table.settle(&Err(Error::Full), record.unwrap_or_default());
                    return Err(error);
                }
            }
        }
        self.flush(answer)?;
        let wrote = self.table.write_alone(&self.pin, &probe, write);
        if let Some(record) = record {
            self.table.settle(&wrote, record);
        }
        answer(index, wrote?)
    }

    /// Writes what a record needs beyond its slot. Only with no lock held may the blob store ask the table about old blocks.
    fn prepare(
        &mut self,
        probe: &Probe<'_>,
        value: Raw<'_>,
        answer: &mut impl FnMut(usize, Wrote) -> Result<()>,
    ) -> Result<Unlinked> {
        let core = &self.table.core;
        core.records.fits(probe.key, value)?;
        if !self.window.is_empty() {
            match core.records.write(&core.pm, probe, value) {
                Err(Error::NoSpace { .. }) => self.flush(answer)?,
                other => return other,
            }
        }
        core.records.prepare(&core.pm, self.table, probe, value)
    }

    fn try_stage(&mut self, probe: &Probe<'_>, write: Write) -> Result<Attempt> {
        let (table, core) = (self.table, &self.table.core);
        let located = table.directory.locate(core, probe.hash)?;
        if !core.is_touched(located.segment) {
            if !self.window.is_empty() {
                return Ok(Attempt::Refused);
            }
            super::recover::touch(core, &table.directory, located.segment)?;
        }
        let current = || table.directory.is_current(core, probe.hash, located);
        self.window.stage((located, core.segment(located.segment)?), current, probe, write)
    }

    /// Commits the window and gives out its answers.
    fn flush(&mut self, answer: &mut impl FnMut(usize, Wrote) -> Result<()>) -> Result<()> {
        let mut answers = [(Wrote::Absent, 0, 0); WINDOW];
        for (staged, place) in self.window.staged.iter().zip(&mut answers) {
            let records = match staged.plan {
                Plan::Insert { .. } => 1,
                Plan::Remove { .. } => -1,
                Plan::Answer(_) | Plan::Replace { .. } => 0,
            };
            *place = (staged.plan.answer(), staged.generation, records);
        }
        self.window.commit(&self.pin);
        let mut result = Ok(());
        for ((index, record), (wrote, generation, records)) in self.waiting.drain(..).zip(answers) {
            if records != 0 {
                self.table.length.add(generation, records);
            }
            if let Some(record) = record {
                self.table.settle(&Ok(wrote), record);
            }
            result = result.and_then(|()| answer(index, wrote));
        }
        result
    }

    /// Whether an operation on a key with this hash waits for the window to close.
    fn has_staged(&self, hash: u64) -> bool {
        self.window.staged.iter().any(|staged| staged.hash == hash)
    }

    /// What will be the answer of an operation that was staged last.
    fn staged_answer(&self, index: usize) -> Option<Wrote> {
        let (last, _) = self.waiting.last()?;
        (*last == index)
            .then(|| self.window.staged.last().map(|staged| staged.plan.answer()))
            .flatten()
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, P: Directory, M: Medium> Dash<K, V, P, M> {
    /// The single way, for what no window can do.
    fn write_alone(&self, pin: &Pin<'_>, probe: &Probe<'_>, write: Write) -> Result<Wrote> {
        match write {
            Write::Put(mode, record) => self.write_prepared(pin, probe, record, mode),
            Write::Remove => {
                Ok(self.remove_probed(pin, probe)?.map_or(Wrote::Absent, Wrote::Replaced))
            }
        }
    }
}
