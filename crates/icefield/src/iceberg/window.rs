//! Batches of writes (the paper has none): windows of up to 32 operations that share one fence.
//!
//! Each operation of a window locks its front bucket and decides what it will do. Only the first lock of a window is
//! waited for; every other one is tried, and a failure closes the window: a thread never waits while it holds
//! something, so no order of locking is needed. Nothing is stored to a slot before all of them are decided: then come
//! the stores, their flushes, one fence (two when there are blobs, whose own is the first), and then fingerprints and
//! unlocking. A second operation on a key of the window closes it.

use super::Iceberg;
use super::core::{Core, Place};
use super::fingerprints::FrontLine;
use super::layout::{Phase, Shape, Slot};
use crate::base::gate::Pass;
use crate::key::{Key, Raw, Value};
use crate::pm::Medium;
use crate::record::batch::{BatchEngine, BatchWriter, Write};
use crate::record::engine::{Engine, Mode, Wrote};
use crate::record::{Pin, Probe, Unlinked};
use crate::{Error, Result};

/// Operations that share a fence.
const WINDOW: usize = 32;

/// What a window has in mind for a key.
#[derive(Clone, Copy)]
enum Plan<'t> {
    /// Nothing: the answer is known.
    Answer(Wrote),
    /// A record for a claimed slot.
    Insert { place: Place, slot: &'t Slot, record: Unlinked },
    /// Another value word.
    Replace { slot: &'t Slot, before: u64, value: u64 },
    /// The end of a record.
    Remove { place: Place, slot: &'t Slot, key: u64, before: u64 },
}

impl Plan<'_> {
    /// The operation's answer once its window is committed.
    fn answer(&self) -> Wrote {
        match *self {
            Plan::Answer(wrote) => wrote,
            Plan::Insert { .. } => Wrote::Inserted,
            Plan::Replace { before, .. } | Plan::Remove { before, .. } => Wrote::Replaced(before),
        }
    }

    /// How many records there are more once the window is committed.
    fn growth(&self) -> i64 {
        match self {
            Plan::Insert { .. } => 1,
            Plan::Remove { .. } => -1,
            Plan::Answer(_) | Plan::Replace { .. } => 0,
        }
    }
}

/// An operation of the window.
struct Staged<'t> {
    /// Its number in the batch.
    index: usize,
    hash: u64,
    write: Write,
    plan: Plan<'t>,
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
    held: Vec<Held<'t>>,
    /// Reads of a mixed batch that the open window has let pass: other threads' reads of its buckets wait.
    reads: usize,
    /// Inside the gate while anything is held, after `held` so that the locks go first.
    pass: Option<(Pass<'t>, Shape)>,
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Drop for Writer<'_, K, V, M> {
    /// Gives back what was claimed and prepared for operations that will not come to pass: a panic only leads here.
    fn drop(&mut self) {
        for staged in self.staged.drain(..) {
            if let Plan::Insert { place, .. } = staged.plan {
                self.table.core.give_up(place);
            }
            give_up(&self.table.core, staged.write);
        }
    }
}

/// Gives back what was prepared for a write that will not come to pass.
fn give_up<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(core: &Core<K, V, M>, write: Write) {
    if let Write::Put(_, record) = write {
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
            held: Vec::with_capacity(WINDOW),
            reads: 0,
            pass: None,
        }
    }

    /// The place in `held` of a key's front bucket, locked if that needs no waiting, or is the first.
    fn hold(&mut self, shape: Shape, hash: u64) -> Option<usize> {
        let core = &self.table.core;
        let bucket = shape.front(hash);
        if let Some(place) = self.held.iter().position(|held| held.bucket == bucket) {
            return Some(place);
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

    /// Decides what an operation will do, and claims what it needs.
    fn stage(&mut self, index: usize, probe: &Probe<'_>, write: Write) -> Result<Attempt> {
        let core = &self.table.core;
        let shape = match &self.pass {
            Some((_, shape)) => *shape,
            None => {
                let pass = core.gate.enter();
                let shape = core.shape();
                self.pass = Some((pass, shape));
                shape
            }
        };
        if self.staged.iter().any(|staged| staged.hash == probe.hash) {
            return Ok(Attempt::Later);
        }
        if shape.phase == Phase::Doubling {
            // Whoever is moving a bucket waits for no lock that this thread can hold.
            core.make_way(shape, probe.hash)?;
        }
        let Some(held) = self.hold(shape, probe.hash) else { return Ok(Attempt::Later) };
        let plan = match (core.find_locked(shape, probe)?, write) {
            (None, Write::Put(Mode::TryInsert | Mode::Upsert, record)) => {
                let held = &mut self.held[held];
                let place = core.claim(shape, probe, held.taken)?;
                if let Place::Front { slot, .. } = place {
                    held.taken |= 1 << slot;
                }
                Plan::Insert { place, slot: core.slot(place)?, record }
            }
            (None, Write::Remove | Write::Put(Mode::Update, _)) => Plan::Answer(Wrote::Absent),
            (Some(found), Write::Put(Mode::TryInsert, _)) => {
                Plan::Answer(Wrote::Occupied(found.slot.value(&core.pm)))
            }
            (Some(found), Write::Put(_, record)) => {
                let before = found.slot.value(&core.pm);
                Plan::Replace { slot: found.slot, before, value: record.value }
            }
            (Some(found), Write::Remove) => {
                let (key, before) = (found.slot.key(&core.pm), found.slot.value(&core.pm));
                Plan::Remove { place: found.place, slot: found.slot, key, before }
            }
        };
        self.staged.push(Staged { index, hash: probe.hash, write, plan });
        Ok(Attempt::Staged)
    }

    /// Makes all that was staged durable, then visible, and lets go of the locks. One fence, one more when there are
    /// blobs; none when nothing changes.
    fn commit_window(&mut self) {
        let core = &self.table.core;
        let pm = &core.pm;
        if self.staged.iter().any(|staged| !matches!(staged.plan, Plan::Answer(_))) {
            // P1 for the whole window: blobs are durable before a slot refers to them.
            self.table.persist_prepared();
            self.staged.iter().for_each(|staged| self.change(staged));
            // P2 for the whole window, commit point of each operation.
            pm.fence();
            self.staged.iter().for_each(|staged| self.show(staged));
        }
        self.held.clear();
        self.pass = None;
        self.reads = 0;
    }

    /// Stores to the slot of an operation and flushes it.
    fn change(&self, staged: &Staged<'_>) {
        let core = &self.table.core;
        let slot = match staged.plan {
            Plan::Answer(_) => return,
            Plan::Insert { place, slot, record } => {
                core.fill(place, slot, record);
                slot
            }
            Plan::Replace { slot, value, .. } => {
                slot.set_value(&core.pm, value);
                slot
            }
            Plan::Remove { slot, .. } => {
                slot.empty(&core.pm);
                slot
            }
        };
        core.pm.flush_object(slot);
    }

    /// What follows once everything is durable: fingerprints, and blobs that nothing refers to any more.
    fn show(&self, staged: &Staged<'_>) {
        let core = &self.table.core;
        match staged.plan {
            Plan::Answer(_) => {}
            Plan::Insert { place, .. } => core.publish(place, staged.hash),
            Plan::Replace { before, .. } => core.records.retire_value(&self.pin, before),
            Plan::Remove { place, key, before, .. } => {
                core.release(place, staged.hash);
                core.records.retire_key(&self.pin, key);
                core.records.retire_value(&self.pin, before);
            }
        }
    }

    fn prepare(
        &mut self,
        probe: &Probe<'_>,
        value: Raw<'_>,
        answer: &mut impl FnMut(usize, Wrote) -> Result<()>,
    ) -> Result<Unlinked> {
        let (table, holds_locks) = (self.table, self.pass.is_some());
        table.prepare_beside(probe, value, holds_locks, || self.commit(answer))
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
        self.table.core.pm.writable()?;
        if self.staged.len() == WINDOW {
            self.commit(answer)?;
        }
        let write = match write {
            Some((mode, value)) => Write::Put(mode, self.prepare(probe, value, answer)?),
            None => Write::Remove,
        };
        for _ in 0..2 {
            let refused = match self.stage(index, probe, write) {
                Ok(Attempt::Staged) => return Ok(()),
                // What has no room here may find some alone, after a doubling.
                Ok(Attempt::Later) | Err(Error::NoSpace { .. }) => self.commit(answer),
                Err(error) => Err(error),
            };
            refused.inspect_err(|_| give_up(&self.table.core, write))?;
        }
        answer(index, self.table.write_alone(&self.pin, probe, write)?)
    }

    fn commit(&mut self, answer: &mut impl FnMut(usize, Wrote) -> Result<()>) -> Result<()> {
        self.commit_window();
        let core = &self.table.core;
        let (mut growth, mut crowded, mut result) = (0, None, Ok(()));
        for Staged { index, hash, write, plan } in self.staged.drain(..) {
            let wrote = plan.answer();
            growth += plan.growth();
            if let Plan::Insert { place: Place::Back { .. } | Place::Overflow(_), .. } = plan {
                crowded = Some(hash);
            }
            if let Write::Put(_, record) = write {
                self.table.settle(&Ok(wrote), record);
            }
            if result.is_ok() {
                result = answer(index, wrote);
            }
        }
        if growth != 0 {
            core.length.add(0, growth);
        }
        if let Some(hash) = crowded {
            core.grow_if_due(hash);
        }
        result
    }

    fn holds_up(&mut self, hash: u64) -> bool {
        self.reads += 1;
        let held = |shape: Shape| self.held.iter().any(|held| held.bucket == shape.front(hash));
        let open = self.pass.as_ref();
        open.is_some_and(|(_, shape)| held(*shape) || self.reads > WINDOW)
    }

    fn staged_answer(&self, index: usize) -> Option<Wrote> {
        let last = self.staged.last()?;
        (last.index == index).then(|| last.plan.answer())
    }
}
