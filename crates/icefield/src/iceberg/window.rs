//! Batches of writes (the paper has none): windows of up to 32 operations that share one fence.
//!
//! Each operation of a window locks its front bucket and decides what it will do. Only the first lock of a window is
//! waited for; every other one is tried, and a failure closes the window: a thread never waits while it holds
//! something, so no order of locking is needed. A batch of one kind tries them all before its window begins
//! ([`Writer::take_locks`]); those that were free then are held, the others tried again in their turn. Nothing is stored to a slot before all of them are decided: then come
//! the stores, their flushes, one fence (two when there are blobs, whose own is the first), and then fingerprints and
//! unlocking. A second operation on a key of the window closes it.

use super::Iceberg;
use super::core::{Core, Located, Place, Search};
use super::fingerprints::FrontLine;
use super::layout::{Phase, Shape};
use super::locked::Inside;
use crate::base::group::{Isa, Native};
use crate::key::{Key, Raw, Value};
use crate::pm::Medium;
use crate::record::batch::{BatchEngine, BatchWriter, Write};
use crate::record::engine::{Engine, Mode, Wrote};
use crate::record::{Pin, Probe, Unlinked};
use crate::{Error, Result};

/// Operations that share a fence.
pub(super) const WINDOW: usize = 32;

/// What a window has in mind for a key.
#[derive(Clone, Copy)]
enum Plan<'t> {
    /// Nothing: the answer is known.
    Answer(Wrote),
    /// The record for a claimed slot.
    Insert(Located<'t>),
    /// The record's value word for another one.
    Replace { found: Located<'t>, before: u64 },
    /// The end of a record.
    Remove { found: Located<'t>, key: u64, before: u64 },
}

/// An operation of the window.
#[derive(Clone, Copy)]
struct Staged<'t> {
    /// Its number in the batch.
    index: usize,
    hash: u64,
    /// The one with its lock.
    line: FrontLine<'t>,
    /// What a removal has none of.
    record: Option<Unlinked>,
    plan: Plan<'t>,
}

impl Staged<'_> {
    /// Records that it adds.
    fn growth(&self) -> i64 {
        match self.plan {
            Plan::Insert(_) => 1,
            Plan::Remove { .. } => -1,
            Plan::Answer(_) | Plan::Replace { .. } => 0,
        }
    }

    /// The operation's answer once its window is committed.
    fn answer(&self) -> Wrote {
        match self.plan {
            Plan::Answer(wrote) => wrote,
            Plan::Insert(_) => Wrote::Inserted,
            Plan::Replace { before, .. } | Plan::Remove { before, .. } => Wrote::Replaced(before),
        }
    }
}

/// A front bucket that the window holds.
struct Held<'t> {
    bucket: u64,
    line: FrontLine<'t>,
    /// Slots that the window has claimed.
    taken: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.line.unlock();
    }
}

/// Which buckets a window may hold: spares most searches.
#[derive(Clone, Copy, Default)]
struct Marks([u64; 4]);

impl Marks {
    /// Marks a bucket; says whether its mark was there.
    #[inline]
    fn mark(&mut self, bucket: u64) -> bool {
        let (word, bit) = (&mut self.0[bucket as usize / 64 % 4], 1 << (bucket % 64));
        let was = *word & bit != 0;
        *word |= bit;
        was
    }
}

fn record_of(write: Write) -> Option<Unlinked> {
    match write {
        Write::Put(_, record) => Some(record),
        Write::Remove => None,
    }
}

/// What became of an attempt to stage an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// It is in the window.
    Staged,
    /// Not in this window: another thread holds its bucket, or its key is staged already.
    Later,
}

/// The writes of a batch: the open window.
pub(crate) struct Writer<'t, K: Key + ?Sized, V: Value + ?Sized, M: Medium> {
    table: &'t Iceberg<K, V, M>,
    pin: Pin<'t>,
    staged: Vec<Staged<'t>>,
    /// Whether any of them changes anything that is not flushed yet.
    changes: bool,
    /// Whether anything has been flushed that no fence has followed.
    flushed: bool,
    held: Vec<Held<'t>>,
    /// So many operations of the window, the first ones, have their locks already, in their order.
    ahead: usize,
    marks: Marks,
    /// Reads of a mixed batch that the open window has let pass: other threads' reads of its buckets wait.
    reads: usize,
    /// Inside the gate while anything is held, after `held` so that the locks go first.
    inside: Option<Inside<'t>>,
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Drop for Writer<'_, K, V, M> {
    /// Gives back what was claimed and prepared for operations that will not come to pass: a panic only leads here.
    fn drop(&mut self) {
        for staged in self.staged.drain(..) {
            if let Plan::Insert(claimed) = staged.plan {
                self.table.core.give_up(claimed.place);
            }
            give_up(&self.table.core, staged.record);
        }
    }
}

/// Gives back what was prepared for a write that will not come to pass.
fn give_up<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
    core: &Core<K, V, M>,
    record: Option<Unlinked>,
) {
    if let Some(record) = record {
        core.records.discard_key(record.key);
        core.records.discard_value(record.value);
    }
}

impl<'t, K: Key + ?Sized, V: Value + ?Sized, M: Medium> Writer<'t, K, V, M> {
    pub(super) fn new(table: &'t Iceberg<K, V, M>) -> Self {
        Self {
            table,
            pin: table.core.pin(),
            staged: Vec::with_capacity(WINDOW),
            changes: false,
            flushed: false,
            held: Vec::with_capacity(WINDOW),
            ahead: 0,
            marks: Marks::default(),
            reads: 0,
            inside: None,
        }
    }

    /// The place in `held` of the front bucket of a key that the window has not staged, locked if that needs no
    /// waiting, or is the first.
    #[inline]
    fn hold(&mut self, shape: Shape, hash: u64) -> Option<usize> {
        if self.staged.len() < self.ahead {
            return Some(self.staged.len());
        }
        let core = &self.table.core;
        let bucket = shape.front(hash);
        if self.marks.mark(bucket) {
            if self.staged.iter().any(|staged| staged.hash == hash) {
                return None;
            }
            if let Some(place) = self.held.iter().position(|held| held.bucket == bucket) {
                return Some(place);
            }
        }
        let line = core.front_line(bucket);
        if self.held.is_empty() {
            line.lock(&core.pm);
        } else if !line.try_lock() {
            return None;
        }
        self.held.push(Held { bucket, line, taken: 0 });
        Some(self.held.len() - 1)
    }

    /// Takes the locks of the operations of a window that has not begun, the first ones, one right after the other:
    /// nothing overlaps with a locked instruction, so with looks at buckets between them each would be waited for. Up to
    /// a bucket that is locked already, and none during a doubling, when buckets are moved before they are locked.
    #[inline(always)]
    pub(super) fn take_locks(&mut self, hashes: impl Iterator<Item = u64>) {
        let (core, shape) = (&self.table.core, self.shape());
        if !self.held.is_empty() || shape.is(Phase::Doubling) {
            return;
        }
        for hash in hashes {
            let bucket = shape.front(hash);
            let line = core.front_line(bucket);
            if !line.try_lock() {
                break;
            }
            self.marks.mark(bucket);
            self.held.push(Held { bucket, line, taken: 0 });
        }
        self.ahead = self.held.len();
    }

    /// The shape of the table as long as the window is open.
    #[inline]
    fn shape(&mut self) -> Shape {
        let core = &self.table.core;
        self.inside.get_or_insert_with(|| core.enter()).shape
    }

    /// Decides what an operation will do, and claims what it needs.
    #[inline(always)]
    fn stage(
        &mut self,
        isa: impl Isa,
        index: usize,
        probe: &Probe<'_>,
        write: Write,
    ) -> Result<Attempt> {
        let core = &self.table.core;
        let shape = self.shape();
        if shape.is(Phase::Doubling) {
            // Whoever is moving a bucket waits for no lock that this thread can hold.
            core.make_way(shape, probe.hash)?;
        }
        let Some(held) = self.hold(shape, probe.hash) else { return Ok(Attempt::Later) };
        let line = self.held[held].line;
        let plan = match (core.find_locked(isa, shape, line, probe)?, write) {
            (Search::Absent { .. }, Write::Put(Mode::Upsert, record))
                if core.records.lacks_key(&record) =>
            {
                return Ok(Attempt::Later);
            }
            (Search::Absent { room }, Write::Put(Mode::TryInsert | Mode::Upsert, _)) => {
                let held = &mut self.held[held];
                let claimed = core.claim(shape, probe, room & !held.taken)?;
                if let Place::Front(at) = claimed.place {
                    held.taken |= 1 << at.slot();
                }
                Plan::Insert(claimed)
            }
            (Search::Absent { .. }, Write::Remove | Write::Put(Mode::Update, _)) => {
                Plan::Answer(Wrote::Absent)
            }
            (Search::Found(found), Write::Put(Mode::TryInsert, _)) => {
                Plan::Answer(Wrote::Occupied(found.slot.value(&core.pm)))
            }
            (Search::Found(found), Write::Put(..)) => {
                Plan::Replace { found, before: found.slot.value(&core.pm) }
            }
            (Search::Found(found), Write::Remove) => {
                let (key, before) = (found.slot.key(&core.pm), found.slot.value(&core.pm));
                Plan::Remove { found, key, before }
            }
        };
        self.changes |= !matches!(plan, Plan::Answer(_));
        self.staged.push(Staged { index, hash: probe.hash, line, record: record_of(write), plan });
        Ok(Attempt::Staged)
    }

    /// Stores and flushes what the window changes; [`BatchWriter::commit`] follows.
    #[inline]
    pub(super) fn flush(&mut self) {
        if self.changes {
            // P1 for the whole window: blobs are durable before a slot refers to them.
            self.table.persist_prepared();
            self.staged.iter().for_each(|staged| self.change(staged));
            (self.changes, self.flushed) = (false, true);
        }
    }

    /// Makes all that was staged durable, then visible, and lets go of the locks. One fence, one more when there are
    /// blobs; none when nothing changes.
    #[inline]
    fn commit_window(&mut self) {
        self.flush();
        if self.flushed {
            let core = &self.table.core;
            // P2 for the whole window, commit point of each operation.
            core.pm.fence();
            self.staged.iter().for_each(|staged| self.show(staged));
            // Inside the gate: `clear` counts anew while nobody is.
            core.length.add(0, self.staged.iter().map(Staged::growth).sum());
            self.flushed = false;
        }
        self.held.clear();
        self.inside = None;
        (self.ahead, self.marks, self.reads) = (0, Marks::default(), 0);
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
                found.slot.set_value(&core.pm, record.value);
                found.slot
            }
            Plan::Remove { found, .. } => {
                found.slot.empty(&core.pm);
                found.slot
            }
        };
        core.pm.flush_object(slot);
    }

    /// What follows once everything is durable: fingerprints, and blobs that nothing refers to any more.
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

    /// Whether the key is there, or will be; a guess.
    fn is_present(&self, isa: impl Isa, probe: &Probe<'_>) -> Result<bool> {
        if self.staged.iter().any(|staged| staged.hash == probe.hash) {
            return Ok(true);
        }
        let core = &self.table.core;
        let held = self.inside.as_ref().and_then(|inside| {
            let bucket = inside.shape.front(probe.hash);
            self.held.iter().find(|held| held.bucket == bucket).map(|held| (inside.shape, held))
        });
        // A read would wait for a lock that the window has.
        if let Some((shape, held)) = held {
            return Ok(matches!(core.find_locked(isa, shape, held.line, probe)?, Search::Found(_)));
        }
        Ok(self.table.find_word_at_once(&self.pin, probe)?.flatten().is_some())
    }

    fn prepare(
        &mut self,
        isa: impl Isa,
        probe: &Probe<'_>,
        (mode, value): (Mode, Raw<'_>),
        answer: &mut impl FnMut(usize, Wrote) -> Result<()>,
    ) -> Result<Unlinked> {
        let (table, holds_locks) = (self.table, self.inside.is_some());
        let needs_key = table.needs_key(mode, || self.is_present(isa, probe))?;
        table.prepare_beside(probe, value, needs_key, holds_locks, || self.commit(answer))
    }

    /// [`BatchWriter::run`], with `isa`.
    #[inline(always)]
    pub(super) fn run_on(
        &mut self,
        isa: impl Isa,
        index: usize,
        probe: &Probe<'_>,
        write: Option<(Mode, Raw<'_>)>,
        answer: &mut impl FnMut(usize, Wrote) -> Result<()>,
    ) -> Result<()> {
        self.table.core.pm.writable()?;
        if self.staged.len() == WINDOW {
            self.commit(answer)?;
        }
        let write = match write {
            Some(write) => Write::Put(write.0, self.prepare(isa, probe, write, answer)?),
            None => Write::Remove,
        };
        match self.stage(isa, index, probe, write) {
            Ok(Attempt::Staged) => Ok(()),
            refused => self.run_later(refused, index, probe, write, answer),
        }
    }

    /// Runs what the open window could not take: in the next one, or alone.
    #[cold]
    fn run_later(
        &mut self,
        refused: Result<Attempt>,
        index: usize,
        probe: &Probe<'_>,
        write: Write,
        answer: &mut impl FnMut(usize, Wrote) -> Result<()>,
    ) -> Result<()> {
        self.make_room(refused, write, answer)?;
        match self.stage(Native::default(), index, probe, write) {
            Ok(Attempt::Staged) => return Ok(()),
            refused => self.make_room(refused, write, answer)?,
        }
        answer(index, self.table.write_alone(&self.pin, probe, write)?)
    }

    /// Commits the window that has refused a write; gives up what was prepared for that when there is no use in it.
    fn make_room(
        &mut self,
        refused: Result<Attempt>,
        write: Write,
        answer: &mut impl FnMut(usize, Wrote) -> Result<()>,
    ) -> Result<()> {
        let committed = match refused {
            // What has no room here may find some alone, after a doubling.
            Ok(_) | Err(Error::NoSpace { .. }) => self.commit(answer),
            Err(error) => Err(error),
        };
        committed.inspect_err(|_| give_up(&self.table.core, record_of(write)))
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> BatchWriter for Writer<'_, K, V, M> {
    fn run(
        &mut self,
        index: usize,
        probe: &Probe<'_>,
        write: Option<(Mode, Raw<'_>)>,
        answer: &mut impl FnMut(usize, Wrote) -> Result<()>,
    ) -> Result<()> {
        self.run_on(Native::default(), index, probe, write, answer)
    }

    fn commit(&mut self, answer: &mut impl FnMut(usize, Wrote) -> Result<()>) -> Result<()> {
        self.commit_window();
        let core = &self.table.core;
        let (mut crowded, mut result) = (None, Ok(()));
        for staged in self.staged.drain(..) {
            if let Plan::Insert(Located { place: Place::Back(_) | Place::Overflow(_), .. }) =
                staged.plan
            {
                crowded = Some(staged.hash);
            }
            let wrote = staged.answer();
            if let Some(record) = staged.record {
                self.table.settle(&Ok(wrote), record);
            }
            if result.is_ok() {
                result = answer(staged.index, wrote);
            }
        }
        if let Some(hash) = crowded {
            core.grow_if_due(hash);
        }
        result
    }

    fn holds_up(&mut self, hash: u64) -> bool {
        self.reads += 1;
        let held = |shape: Shape| self.held.iter().any(|held| held.bucket == shape.front(hash));
        self.inside.as_ref().is_some_and(|inside| held(inside.shape) || self.reads > WINDOW)
    }

    fn staged_answer(&self, index: usize) -> Option<Wrote> {
        let last = self.staged.last()?;
        (last.index == index).then(|| last.answer())
    }
}
