//! Batches of writes (not in the paper): windows of up to 32 operations that share one fence.
//!
//! Each operation of a window locks its front bucket and decides what to do. The window waits only for its first lock.
//! It tries all other locks, and a failure closes the window. So a thread never waits while it holds a lock, and no
//! lock order is needed. A batch of one kind of operation tries the locks before its window begins, up to the first
//! that is not free ([`Writer::take_locks`]); the remaining ones are tried when their operations are staged. After all
//! operations are decided follow the stores, their flushes, one fence, and finally the fingerprints and the unlocking.
//! If there are blobs, another fence precedes the stores. A second operation on a key of the window closes the window.
//!
//! Most writes of most batches put words, and find their key, or room for it, in the front yard, under a lock that was
//! taken before the window began. These store at once ([`Writer::run_in_front_yard`], docs/decisions/0126). This is
//! safe: they need no blobs, readers wait for the lock until the window is durable, and a crash may leave any part of a
//! window that is not.

use super::Iceberg;
use super::core::{Core, Located, Place, Search};
use super::fingerprints::FrontLine;
use super::held::{Held, Outcomes, WINDOW};
use super::layout::{Phase, Shape, fingerprint};
use super::locked::Inside;
use crate::base::group::{Isa, Native};
use crate::engine::LookupKey;
use crate::engine::slots::batch::{BatchTable, BatchWriter, Write};
use crate::engine::slots::table::{SlotTable, WriteMode, WriteOutcome};
use crate::engine::slots::{EpochGuard, PreparedRecord};
use crate::storage::Medium;
use crate::types::{Raw, RecordForm};
use crate::{Error, Result};

/// The change that a window makes for a key.
#[derive(Clone, Copy)]
enum Plan<'t> {
    /// Changes nothing: the answer is known.
    Answer(WriteOutcome),
    /// Fills a claimed slot.
    Insert(Located<'t>),
    /// Replaces the value word of the record.
    Replace { found: Located<'t>, before: u64 },
    /// Removes the record.
    Remove { found: Located<'t>, key: u64, before: u64 },
}

/// An operation of the window whose change is stored by [`Writer::flush`].
#[derive(Clone, Copy)]
struct Staged<'t> {
    hash: u64,
    /// The line with the lock of the key.
    line: FrontLine<'t>,
    /// `None` for a removal.
    record: Option<PreparedRecord>,
    plan: Plan<'t>,
}

impl Staged<'_> {
    /// Returns the change in the number of records.
    fn growth(&self) -> i64 {
        match self.plan {
            Plan::Insert(_) => 1,
            Plan::Remove { .. } => -1,
            Plan::Answer(_) | Plan::Replace { .. } => 0,
        }
    }

    /// Returns the operation's outcome, valid once its window is committed.
    fn outcome(&self) -> WriteOutcome {
        match self.plan {
            Plan::Answer(wrote) => wrote,
            Plan::Insert(_) => WriteOutcome::Inserted,
            Plan::Replace { before, .. } | Plan::Remove { before, .. } => {
                WriteOutcome::Replaced(before)
            }
        }
    }
}

fn record_of(write: Write) -> Option<PreparedRecord> {
    match write {
        Write::Put(_, record) => Some(record),
        Write::Remove => None,
    }
}

/// The result of an attempt to stage an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// The operation is in the window.
    Staged,
    /// The operation is not possible in this window: another thread holds its bucket, its key is staged already, or it
    /// is an insert whose key has not been written.
    Later,
}

/// The writes of a batch and the open window.
pub(crate) struct Writer<'t, R: RecordForm, M: Medium> {
    table: &'t Iceberg<R, M>,
    pin: EpochGuard<'t>,
    staged: Vec<Staged<'t>>,
    /// Of all operations of the window, whether staged or run in the front yard.
    outcomes: Outcomes,
    /// The prepared record of a write that the window has refused, while the window is committed to make room for it.
    refused: Option<PreparedRecord>,
    /// Set if an operation of the window has changes that are not flushed yet.
    changes: bool,
    /// Set if something has been flushed without a fence after it.
    flushed: bool,
    held: Held<'t>,
    /// Reads of a mixed batch since the window opened. Their number is limited, because other threads' reads of the
    /// window's buckets wait until it closes.
    reads: usize,
    /// Set while any lock is held.
    inside: Option<Inside<'t>>,
}

impl<R: RecordForm, M: Medium> Drop for Writer<'_, R, M> {
    /// Completes the operations that were decided, and releases the prepared record of one that was refused. Only a
    /// panic in the conversion of a key or value leaves any.
    fn drop(&mut self) {
        if self.held.count != 0 {
            self.settle();
        }
        abort(&self.table.core, self.refused.take());
    }
}

/// Releases the prepared record of a write that will not run.
fn abort<R: RecordForm, M: Medium>(core: &Core<R, M>, record: Option<PreparedRecord>) {
    if let Some(record) = record {
        core.records.discard_key(record.key);
        core.records.discard_value(record.value);
    }
}

impl<'t, R: RecordForm, M: Medium> Writer<'t, R, M> {
    pub(super) fn new(table: &'t Iceberg<R, M>) -> Self {
        Self {
            table,
            pin: table.core.pin(),
            staged: Vec::new(),
            outcomes: Outcomes::new(),
            refused: None,
            changes: false,
            flushed: false,
            held: Held::new(table.core.buckets.line(&table.core.storage, 0)),
            reads: 0,
            inside: None,
        }
    }

    /// Returns the index in `held` of a key's front bucket. Returns `None` if the key is already staged, or if the lock
    /// is not free. Waits only for the first lock of the window.
    #[inline]
    fn hold(&mut self, shape: Shape, hash: u64) -> Option<usize> {
        let core = &self.table.core;
        let bucket = shape.front(hash);
        let line = core.buckets.line(&core.storage, bucket);
        if self.held.mark(bucket) {
            if self.has(hash) {
                return None;
            }
            if let Some(place) = self.held.position(line) {
                return Some(place);
            }
        }
        if self.held.count == WINDOW {
            // Only after an operation that has failed under its lock.
            return None;
        }
        if self.held.count == 0 {
            line.lock(&core.storage);
        } else if !line.try_lock() {
            return None;
        }
        Some(self.held.add(line))
    }

    /// Returns whether an operation of the window has this hash.
    fn has(&self, hash: u64) -> bool {
        self.held.has_ahead(hash) || self.staged.iter().any(|staged| staged.hash == hash)
    }

    /// Takes the locks of the first operations of a window that has not begun, one right after the other. A locked
    /// instruction does not overlap with other accesses, so a search between two locked instructions would wait for the
    /// first. Stops at the first lock that is not free. Takes no lock during a doubling, because buckets must be moved
    /// before they are locked.
    #[inline(always)]
    pub(super) fn take_locks(&mut self, hashes: &[u64]) {
        let (core, shape) = (&self.table.core, self.shape());
        if self.held.count != 0 || shape.is(Phase::Doubling) {
            return;
        }
        for &hash in hashes {
            let bucket = shape.front(hash);
            let line = core.buckets.line(&core.storage, bucket);
            if !line.try_lock() {
                break;
            }
            self.held.add_ahead(bucket, line, hash);
        }
    }

    /// Enters the gate if necessary, and returns the table's shape at the time of entry. No step begins while the
    /// window is open.
    #[inline]
    fn shape(&mut self) -> Shape {
        let core = &self.table.core;
        self.inside.get_or_insert_with(|| core.enter()).shape
    }

    /// Decides on the plan of an operation and claims what it needs. `place` is the index of its bucket in `held`, if
    /// the window holds that already.
    #[inline(always)]
    fn stage(
        &mut self,
        isa: impl Isa,
        (place, index): (Option<usize>, usize),
        probe: &LookupKey<'_>,
        write: Write,
    ) -> Result<Attempt> {
        let core = &self.table.core;
        let shape = self.shape();
        if shape.is(Phase::Doubling) {
            // No deadlock: a thread that is moving a bucket does not wait for any lock that this thread can hold.
            core.make_way(shape, probe.hash)?;
        }
        let Some(held) = place.or_else(|| self.hold(shape, probe.hash)) else {
            return Ok(Attempt::Later);
        };
        let line = self.held.line(held);
        let plan = match (core.find_locked(isa, shape, line, probe)?, write) {
            (Search::Absent { .. }, Write::Put(WriteMode::Upsert, record))
                if core.records.lacks_key(&record) =>
            {
                return Ok(Attempt::Later);
            }
            (Search::Absent { room }, Write::Put(WriteMode::TryInsert | WriteMode::Upsert, _)) => {
                let taken = &mut self.held.taken[held];
                let claimed = core.claim(shape, probe, room & !*taken)?;
                if let Place::Front(at) = claimed.place {
                    *taken |= 1 << at.slot();
                }
                Plan::Insert(claimed)
            }
            (Search::Absent { .. }, Write::Remove | Write::Put(WriteMode::Update, _)) => {
                Plan::Answer(WriteOutcome::Absent)
            }
            (Search::Found(found), Write::Put(WriteMode::TryInsert, _)) => {
                Plan::Answer(WriteOutcome::Occupied(found.slot.value(&core.storage)))
            }
            (Search::Found(found), Write::Put(..)) => {
                Plan::Replace { found, before: found.slot.value(&core.storage) }
            }
            (Search::Found(found), Write::Remove) => {
                let (key, before) =
                    (found.slot.key(&core.storage), found.slot.value(&core.storage));
                Plan::Remove { found, key, before }
            }
        };
        self.changes |= !matches!(plan, Plan::Answer(_));
        let staged = Staged { hash: probe.hash, line, record: record_of(write), plan };
        self.outcomes.add(index, staged.outcome());
        self.staged.push(staged);
        Ok(Attempt::Staged)
    }

    /// Decides on operation `place` of the window and stores its change, if three conditions hold: `take_locks` has
    /// taken its lock, it puts words, and it concerns only the front yard. Otherwise returns `false` and has stored
    /// nothing. [`Writer::flush`] and [`BatchWriter::commit`] do the rest.
    #[inline(always)]
    pub(super) fn run_in_front_yard(
        &mut self,
        isa: impl Isa,
        (place, index): (usize, usize),
        probe: &LookupKey<'_>,
        write: Option<(WriteMode, &Raw<'_>)>,
    ) -> bool {
        let core = &self.table.core;
        let (Some((mode, value)), Some(inside)) = (write, &self.inside) else { return false };
        if !core.records.are_words() || place >= self.held.ahead || core.is_side(probe) {
            return false;
        }
        let (shape, hash, storage) = (inside.shape, probe.hash, &core.storage);
        let bucket = shape.front(hash);
        let line = self.held.line(place);
        let view = line.view(isa, fingerprint(hash), core.buckets.front_mask());
        let Ok(found) = core.find_in_front(bucket, view.candidates, probe) else { return false };
        let outcome = match (found, mode) {
            (Some((_, slot)), WriteMode::TryInsert) => WriteOutcome::Occupied(slot.value(storage)),
            (Some((_, slot)), WriteMode::Upsert | WriteMode::Update) => {
                let before = slot.value(storage);
                slot.set_value(storage, value.word());
                self.held.note_change(place, slot);
                self.changes = true;
                WriteOutcome::Replaced(before)
            }
            (None, _) if core.may_be_behind(shape, hash) => return false,
            (None, WriteMode::Update) => WriteOutcome::Absent,
            (None, WriteMode::TryInsert | WriteMode::Upsert) => {
                if view.empty == 0 {
                    return false;
                }
                let Ok((at, slot)) = core.claim_front(shape, hash, view.empty) else {
                    return false;
                };
                slot.fill(storage, probe.word, value.word());
                self.held.note_filled(place, at.slot(), slot);
                self.changes = true;
                WriteOutcome::Inserted
            }
        };
        self.outcomes.add(index, outcome);
        true
    }

    /// Stores the changes of the staged operations, and flushes all changes of the window. [`BatchWriter::commit`] must
    /// follow.
    #[inline]
    pub(super) fn flush(&mut self) {
        if self.changes {
            // P1 for the whole window: blobs are durable before a slot refers to them.
            self.table.persist_prepared();
            self.staged.iter().for_each(|staged| self.change(staged));
            self.held.flush(&self.table.core.storage);
            (self.changes, self.flushed) = (false, true);
        }
    }

    /// Makes all operations of the window durable and then visible, and releases the locks. Costs one fence, two if
    /// there are blobs, none if nothing changes.
    #[inline]
    fn commit_window(&mut self) {
        self.flush();
        if self.flushed {
            let core = &self.table.core;
            // P2 for the whole window, commit point of each operation.
            core.storage.fence();
            let inserted = self.held.publish();
            self.staged.iter().for_each(|staged| self.show(staged));
            let growth = self.staged.iter().map(Staged::growth).sum::<i64>() + inserted;
            // Counts before leaving the gate, because `clear` restarts the counter while no thread is inside.
            core.length.add(0, growth);
            self.flushed = false;
        }
        self.held.release_all();
        self.inside = None;
        self.reads = 0;
    }

    /// Commits the window, and discards what its operations have not linked. Returns the hash of a record that found no
    /// room in its front bucket, if any.
    #[inline(always)]
    fn settle(&mut self) -> Option<u64> {
        self.commit_window();
        let mut crowded = None;
        for staged in self.staged.drain(..) {
            if let Plan::Insert(Located { place: Place::Back(_) | Place::Overflow(_), .. }) =
                staged.plan
            {
                crowded = Some(staged.hash);
            }
            if let Some(record) = staged.record {
                self.table.discard_unlinked(&Ok(staged.outcome()), record);
            }
        }
        crowded
    }

    /// Stores to the slot of an operation and flushes it.
    #[inline]
    fn change(&self, staged: &Staged<'_>) {
        let core = &self.table.core;
        let record = staged.record.unwrap_or_default();
        let slot = match &staged.plan {
            Plan::Answer(_) => return,
            Plan::Insert(claimed) => {
                core.fill(claimed, record);
                claimed.slot
            }
            Plan::Replace { found, .. } => {
                found.slot.set_value(&core.storage, record.value);
                found.slot
            }
            Plan::Remove { found, .. } => {
                found.slot.empty(&core.storage);
                found.slot
            }
        };
        core.storage.flush_object(slot);
    }

    /// Completes an operation after the fence: publishes fingerprints and retires unreferenced blobs.
    #[inline]
    fn show(&self, staged: &Staged<'_>) {
        let core = &self.table.core;
        match staged.plan {
            Plan::Answer(_) => {}
            Plan::Insert(claimed) => core.publish(staged.line, claimed.place, staged.hash),
            Plan::Replace { before, .. } => core.records.retire_value(&self.pin, before),
            Plan::Remove { found, key, before } => {
                core.release(found.place, staged.hash);
                core.records.retire_key(&self.pin, key);
                core.records.retire_value(&self.pin, before);
            }
        }
    }

    /// Guesses whether the key is present, or will be once the window is committed.
    fn is_present(&self, isa: impl Isa, probe: &LookupKey<'_>) -> Result<bool> {
        if self.staged.iter().any(|staged| staged.hash == probe.hash) {
            return Ok(true);
        }
        let core = &self.table.core;
        if let Some(inside) = &self.inside {
            let shape = inside.shape;
            let line = core.buckets.line(&core.storage, shape.front(probe.hash));
            // An ordinary read would wait for the lock, which the window itself holds.
            if self.held.position(line).is_some() {
                return Ok(matches!(core.find_locked(isa, shape, line, probe)?, Search::Found(_)));
            }
        }
        Ok(self.table.find_word_at_once(&self.pin, probe)?.flatten().is_some())
    }

    fn prepare(
        &mut self,
        isa: impl Isa,
        probe: &LookupKey<'_>,
        (mode, value): (WriteMode, &Raw<'_>),
        answer: &mut impl FnMut(usize, WriteOutcome) -> Result<()>,
    ) -> Result<PreparedRecord> {
        let (table, holds_locks) = (self.table, self.inside.is_some());
        let needs_key = table.needs_key(mode, || self.is_present(isa, probe))?;
        table.prepare_beside(probe, value, needs_key, holds_locks, || self.commit(answer))
    }

    /// Does the same as [`BatchWriter::run`] with `isa`. `place` is the index of the operation in its window, if
    /// `take_locks` may have taken its lock.
    #[inline(always)]
    pub(super) fn run_on(
        &mut self,
        isa: impl Isa,
        (place, index): (Option<usize>, usize),
        probe: &LookupKey<'_>,
        write: Option<(WriteMode, &Raw<'_>)>,
        answer: &mut impl FnMut(usize, WriteOutcome) -> Result<()>,
    ) -> Result<()> {
        self.table.core.storage.check_writable()?;
        if self.outcomes.is_full() {
            self.commit(answer)?;
        }
        let write = match write {
            Some(write) => Write::Put(write.0, self.prepare(isa, probe, write, answer)?),
            None => Write::Remove,
        };
        // If `prepare` had to release the locks, `hold` takes this one again.
        let place = place.filter(|&place| place < self.held.ahead);
        match self.stage(isa, (place, index), probe, write) {
            Ok(Attempt::Staged) => Ok(()),
            refused => self.run_later(refused, index, probe, write, answer),
        }
    }

    /// Runs a write that the open window has refused: in the next window, or alone.
    #[cold]
    fn run_later(
        &mut self,
        refused: Result<Attempt>,
        index: usize,
        probe: &LookupKey<'_>,
        write: Write,
        answer: &mut impl FnMut(usize, WriteOutcome) -> Result<()>,
    ) -> Result<()> {
        self.make_room(refused, write, answer)?;
        match self.stage(Native::default(), (None, index), probe, write) {
            Ok(Attempt::Staged) => return Ok(()),
            refused => self.make_room(refused, write, answer)?,
        }
        answer(index, self.table.write_alone(&self.pin, probe, write)?)
    }

    /// Commits the window that has refused a write. Releases the prepared record if the write cannot be tried again.
    fn make_room(
        &mut self,
        refused: Result<Attempt>,
        write: Write,
        answer: &mut impl FnMut(usize, WriteOutcome) -> Result<()>,
    ) -> Result<()> {
        self.refused = record_of(write);
        let committed = match refused {
            // Retried in the next window, then by `write_alone`, which may double the table.
            Ok(_) | Err(Error::NoSpace { .. }) => self.commit(answer),
            Err(error) => Err(error),
        };
        self.refused = None;
        committed.inspect_err(|_| abort(&self.table.core, record_of(write)))
    }
}

impl<R: RecordForm, M: Medium> BatchWriter for Writer<'_, R, M> {
    fn run(
        &mut self,
        index: usize,
        probe: &LookupKey<'_>,
        write: Option<(WriteMode, &Raw<'_>)>,
        answer: &mut impl FnMut(usize, WriteOutcome) -> Result<()>,
    ) -> Result<()> {
        self.run_on(Native::default(), (None, index), probe, write, answer)
    }

    fn commit(&mut self, answer: &mut impl FnMut(usize, WriteOutcome) -> Result<()>) -> Result<()> {
        let crowded = self.settle();
        let mut result = Ok(());
        for (index, wrote) in self.outcomes.take() {
            if result.is_ok() {
                result = answer(index, wrote);
            }
        }
        if let Some(hash) = crowded {
            self.table.core.grow_if_due(hash);
        }
        result
    }

    fn holds_up(&mut self, hash: u64) -> bool {
        self.reads += 1;
        let core = &self.table.core;
        self.inside.as_ref().is_some_and(|inside| {
            let line = core.buckets.line(&core.storage, inside.shape.front(hash));
            self.held.position(line).is_some() || self.reads > WINDOW
        })
    }

    fn staged_answer(&self, index: usize) -> Option<WriteOutcome> {
        let (last, wrote) = self.outcomes.last()?;
        (last == index).then_some(wrote)
    }
}
