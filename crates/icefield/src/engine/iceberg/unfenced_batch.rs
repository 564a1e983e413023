//! Batches of writes on media where a fence costs nothing, such as DRAM. No fence needs to be shared, and the
//! bookkeeping of a window costs more instructions than the rest of an insert. So the operations run one after the
//! other, like single ones, while the ring (`base::pipeline`) prefetches for the following operations.
//!
//! A locked instruction does not overlap with other accesses: it waits for all stores before it and delays the loads
//! after it. So the batch tries the locks of a burst of operations one right after the other, and holds those that are
//! free. An operation whose lock was not free waits for it when it runs, after the batch has released all other locks.

use std::ops::ControlFlow;

use super::Iceberg;
use super::core::Core;
use super::fingerprints::FrontLine;
use super::layout::Phase;
use super::locked::{Inside, Locked};
use crate::base::group::Isa;
use crate::base::pipeline::{Stages, prefetch_write};
use crate::engine::LookupKey;
use crate::engine::slots::EpochGuard;
use crate::engine::slots::batch::{BatchTable, Write};
use crate::engine::slots::table::{SlotTable, WriteMode, WriteOutcome};
use crate::storage::Medium;
use crate::types::{Raw, RecordForm};
use crate::{Error, Result};

/// Number of operations that the rings of batches handle at a time.
pub(super) const BURST: usize = 8;
/// Number of operations after which the gate is left for a moment, which limits the wait of a thread that closes the
/// gate.
const STAY: usize = 4 * BURST;

/// The writes of a batch, compiled for each instruction set.
pub(super) struct Writes<'a, R: RecordForm, M: Medium, F, G, A> {
    pub(super) table: &'a Iceberg<R, M>,
    /// `None` for removals.
    pub(super) mode: Option<WriteMode>,
    pub(super) count: usize,
    pub(super) key: F,
    pub(super) value: G,
    pub(super) answer: A,
}

/// A period inside the gate, for some bursts of operations.
struct Stay<'t, R: RecordForm, M: Medium> {
    core: &'t Core<R, M>,
    inside: Option<Inside<'t>>,
    /// The locks that the batch holds for operations of the burst that have not run yet; `None` if a lock was not free
    /// or not tried.
    held: [Option<FrontLine<'t>>; BURST],
    /// Number of records inserted minus removed during this period.
    growth: i64,
}

impl<'t, R: RecordForm, M: Medium> Stay<'t, R, M> {
    #[inline(always)]
    fn inside(&mut self) -> &Inside<'t> {
        let core = self.core;
        self.inside.get_or_insert_with(|| core.enter())
    }

    /// Tries to take the lock of an operation of the next burst.
    #[inline(always)]
    fn take_lock(&mut self, index: usize, hash: u64) {
        if index.is_multiple_of(STAY) {
            self.leave();
        }
        let core = self.core;
        let shape = self.inside().shape;
        // There are two exceptions. During a doubling, a bucket must be moved before it is locked. In a table with
        // blobs, a write may have to wait for space, which it must not do while it holds locks.
        if !shape.is(Phase::Doubling) && core.records.blobs().is_none() {
            let line = core.buckets.line(&core.storage, shape.front(hash));
            self.held[index % BURST] = line.try_lock().then_some(line);
        }
    }

    /// Returns the lock of an operation. If the batch does not hold it yet, releases all other locks of the batch and
    /// then waits for it.
    #[inline(always)]
    fn lock(&mut self, index: usize, hash: u64) -> Result<Locked<'t, R, M>> {
        let core = self.core;
        if let Some(line) = self.held[index % BURST].take() {
            return Ok(core.locked(self.inside(), line));
        }
        self.unlock_all();
        core.lock(self.inside(), hash)
    }

    /// Releases the locks of operations that have not run yet.
    #[cold]
    fn unlock_all(&mut self) {
        self.held.iter_mut().filter_map(Option::take).for_each(FrontLine::unlock);
    }

    /// Releases the locks, counts the records, and leaves the gate, in this order: `clear` restarts the counter while
    /// no thread is inside.
    #[cold]
    fn leave(&mut self) {
        self.unlock_all();
        if self.growth != 0 {
            self.core.length.add(0, self.growth);
        }
        (self.inside, self.growth) = (None, 0);
    }
}

impl<R: RecordForm, M: Medium> Drop for Stay<'_, R, M> {
    fn drop(&mut self) {
        self.leave();
    }
}

pub(super) struct UnfencedBatch<'r, 't, R: RecordForm, M: Medium, I, F, G, A> {
    writes: Writes<'t, R, M, F, G, A>,
    isa: I,
    pin: &'r EpochGuard<'t>,
    stay: Stay<'t, R, M>,
    failure: &'r mut Result<()>,
}

impl<'r, 't, 'k, 'v, R, M, I, F, G, A> UnfencedBatch<'r, 't, R, M, I, F, G, A>
where
    R: RecordForm,
    M: Medium,
    I: Isa,
    F: Fn(usize) -> Raw<'k>,
    G: Fn(usize) -> Raw<'v>,
    A: FnMut(usize, WriteOutcome) -> Result<()>,
{
    /// Creates the state of a batch. The first failure ends the batch and is stored in `failure`.
    #[inline(always)]
    pub(super) fn new(
        writes: Writes<'t, R, M, F, G, A>,
        isa: I,
        pin: &'r EpochGuard<'t>,
        failure: &'r mut Result<()>,
    ) -> Self {
        let stay = Stay { core: &writes.table.core, inside: None, held: [None; BURST], growth: 0 };
        Self { writes, isa, pin, stay, failure }
    }

    #[inline(always)]
    fn write(&mut self, index: usize, probe: &LookupKey<'_>) -> Result<WriteOutcome> {
        let (table, stay) = (self.writes.table, &mut self.stay);
        table.core.storage.check_writable()?;
        let Some(mode) = self.writes.mode else {
            let removed =
                table.try_remove(self.isa, stay.lock(index, probe.hash)?, self.pin, probe)?;
            stay.growth -= i64::from(removed.is_some());
            return Ok(removed.map_or(WriteOutcome::Absent, WriteOutcome::Replaced));
        };
        let value = (self.writes.value)(index);
        let pin = self.pin;
        let needs_key = table
            .needs_key(mode, || Ok(table.find_word_at_once(pin, probe)?.flatten().is_some()))?;
        let record =
            table.prepare_beside(probe, &value, needs_key, stay.inside.is_some(), || {
                stay.leave();
                Ok(())
            })?;
        if !needs_key && mode == WriteMode::Upsert {
            stay.leave();
            return table.link(pin, probe, record, mode);
        }
        // Not a closure, which would be compiled for the baseline instruction set.
        let wrote = match stay.lock(index, probe.hash) {
            Ok(locked) => table.try_write(self.isa, locked, self.pin, probe, record, mode),
            Err(error) => Err(error),
        };
        match wrote {
            Ok((wrote, crowded)) => {
                table.discard_unlinked(&Ok(wrote), record);
                stay.growth += i64::from(matches!(wrote, WriteOutcome::Inserted));
                if crowded && table.core.is_due_by(probe.hash) {
                    // Leaves the gate first, because the doubling closes the gate and reads the record count.
                    stay.leave();
                    table.core.grow_if_due(probe.hash);
                }
                Ok(wrote)
            }
            // Once this thread has left the gate, a doubling can make room for the record.
            Err(Error::NoSpace { .. }) => {
                stay.leave();
                table.write_alone(self.pin, probe, Write::Put(mode, record))
            }
            Err(error) => {
                let failed = Err(error);
                table.discard_unlinked(&failed, record);
                failed
            }
        }
    }
}

impl<'k, 'v, R, M, I, F, G, A> Stages for UnfencedBatch<'_, '_, R, M, I, F, G, A>
where
    R: RecordForm,
    M: Medium,
    I: Isa,
    F: Fn(usize) -> Raw<'k>,
    G: Fn(usize) -> Raw<'v>,
    A: FnMut(usize, WriteOutcome) -> Result<()>,
{
    /// The index and the hash.
    type Entry = (usize, u64);

    #[inline(always)]
    fn locate(&mut self, index: usize) -> (usize, u64) {
        let core = &self.writes.table.core;
        let hash = core.records.hash_key(&(self.writes.key)(index)).hash;
        core.fetch_line(hash, prefetch_write);
        (index, hash)
    }

    #[inline(always)]
    fn inspect(&mut self, &mut (_, hash): &mut (usize, u64)) {
        let core = &self.writes.table.core;
        if let Some(slot) = core.fetch_all_but_one(self.isa, hash, self.writes.mode) {
            prefetch_write(slot);
        }
    }

    #[inline(always)]
    fn prefetch_record(&mut self, &mut (index, hash): &mut (usize, u64)) {
        self.stay.take_lock(index, hash);
    }

    #[inline(always)]
    fn run(&mut self, index: usize, (_, hash): (usize, u64)) -> ControlFlow<()> {
        let raw = (self.writes.key)(index);
        let probe = LookupKey::new(hash, &raw);
        let wrote = self.write(index, &probe);
        match wrote.and_then(|wrote| (self.writes.answer)(index, wrote)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                *self.failure = Err(error);
                ControlFlow::Break(())
            }
        }
    }
}
