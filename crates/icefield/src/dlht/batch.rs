//! Batches (§3.3): operations run in order, one at a time, while the lines of the next 64 are being fetched.
//!
//! A batch runs in stretches of [`STRETCH`] operations. During a stretch, the thread holds one guard and uses the index
//! that was current when the stretch began. A ring entry is a bin of this index and stays valid for the whole stretch.
//! If the bin's records have moved meanwhile, its header shows that.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::ControlFlow;

use super::core::Core;
use super::get::{Step, get_on};
use super::header::{BinState, SlotState};
use super::index::{Bins, Index};
use super::mode::Threading;
use super::write::{Outcome, Rule};
use crate::Result;
use crate::base::group::{Isa, Kernel, dispatch};
use crate::base::pipeline::{
    Stages, prefetch_read, prefetch_write, rolling_in_bursts, rolling_twice_compiled,
    stage_by_stage,
};
use crate::base::sync::Line;

/// Bins are prefetched `RING` operations ahead of their use, and link buckets `STAGE2` operations ahead.
const RING: usize = 64;
const STAGE2: usize = 16;
/// The number of writes that run directly one after the other.
const BURST: usize = 8;
/// The number of operations in a stretch. Between stretches, the batch loads the current index again, and an old index
/// can be reclaimed. Draining the ring takes a hundredth of the time of a stretch.
pub(super) const STRETCH: usize = 1 << 14;

/// Returns how many writes ahead of their use link buckets are prefetched, in a stretch of `count` writes: all of them if
/// the stretch fits into the ring.
#[inline(always)]
fn stage2(count: usize) -> usize {
    if count <= RING { RING } else { STAGE2 }
}

/// Sums the inserts and removals of a stretch, and adds the sum to the table's count when dropped, also during
/// unwinding.
pub(super) struct LenDelta<'a, M: Threading> {
    pub(super) count: &'a M::Count,
    pub(super) delta: Cell<i64>,
}

impl<M: Threading> LenDelta<'_, M> {
    pub(super) fn add(&self, delta: i64) {
        self.delta.set(self.delta.get() + delta);
    }

    /// Adds the sum to the table's count now, for an operation that looks at it.
    fn flush(&self) {
        match self.delta.take() {
            0 => {}
            delta => M::add(self.count, delta),
        }
    }
}

impl<M: Threading> Drop for LenDelta<'_, M> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The operation that a batch is executing.
pub(super) struct BatchOp<'a, M: Threading> {
    core: &'a Core<M>,
    index: &'a Index,
    line: &'a Line,
    tally: &'a LenDelta<'a, M>,
    /// Set when another index has become the current one.
    is_over: &'a Cell<bool>,
    key: u64,
}

impl<M: Threading> BatchOp<'_, M> {
    #[inline(always)]
    pub(super) fn get(&self) -> Option<u64> {
        match self.index.get::<M>(self.line, self.key) {
            Step::Done(value) => value,
            _ => get_on::<M>(self.index, self.key),
        }
    }

    #[inline(always)]
    pub(super) fn store(&self, value: u64, rule: Rule) -> Result<Outcome> {
        let outcome = self.put(value, rule, SlotState::Valid)?;
        self.tally.add(i64::from(outcome == Outcome::Inserted));
        Ok(outcome)
    }

    /// Performs a shadow insert, which is counted when it commits.
    #[inline]
    pub(super) fn shadow(&self, value: u64) -> Result<Outcome> {
        self.put(value, Rule::IfAbsent, SlotState::Shadow)
    }

    #[inline(always)]
    fn put(&self, value: u64, rule: Rule, new: SlotState) -> Result<Outcome> {
        match self.index.store::<M>(self.line, self.key, value, rule, new) {
            Step::Done(outcome) => Ok(outcome),
            other => {
                // A full index chooses its successor by the number of records.
                self.tally.flush();
                let outcome = self.core.store_on(self.index, other, self.key, value, rule, new);
                self.is_over.set(self.index.is_left());
                outcome
            }
        }
    }

    #[inline(always)]
    pub(super) fn take(&self) -> Outcome {
        let outcome = self.core.take_at(self.index, self.line, self.key, None);
        self.tally.add(-i64::from(matches!(outcome, Outcome::Replaced(_))));
        outcome
    }
}

pub(super) trait Operations<M: Threading> {
    /// The key of operation `at`.
    fn key(&self, at: usize) -> u64;

    /// Runs operation `at`. The batch ends if this returns an error or `Break`.
    fn run(&mut self, at: usize, turn: BatchOp<'_, M>) -> Result<ControlFlow<()>>;
}

impl<M, K, R> Operations<M> for (K, R)
where
    M: Threading,
    K: Fn(usize) -> u64,
    R: FnMut(usize, BatchOp<'_, M>) -> Result<()>,
{
    #[inline(always)]
    fn key(&self, at: usize) -> u64 {
        (self.0)(at)
    }

    #[inline(always)]
    fn run(&mut self, at: usize, turn: BatchOp<'_, M>) -> Result<ControlFlow<()>> {
        (self.1)(at, turn).map(ControlFlow::Continue)
    }
}

/// A stretch of a batch of operations.
struct Writes<'a, M: Threading, O> {
    core: &'a Core<M>,
    index: &'a Index,
    bins: Bins<'a>,
    /// True if the records of some bins may be in the next index already.
    is_leaving: bool,
    tally: &'a LenDelta<'a, M>,
    is_over: &'a Cell<bool>,
    start: usize,
    operations: &'a mut O,
    /// The result of the batch, if an operation has ended it early.
    end: &'a mut Option<Result<()>>,
}

impl<'a, M: Threading, O: Operations<M>> Stages for Writes<'a, M, O> {
    type Entry = (&'a Line, u64);

    #[inline(always)]
    fn locate(&mut self, at: usize) -> (&'a Line, u64) {
        let key = self.operations.key(self.start + at);
        let line = self.bins.of(key);
        prefetch_write(line);
        (line, key)
    }

    #[inline(always)]
    fn inspect(&mut self, (line, key): &mut (&'a Line, u64)) {
        self.bins.peek(line);
        if self.is_leaving {
            peek_next(self.index, line, *key);
        }
    }

    #[inline(always)]
    fn run(&mut self, at: usize, (line, key): (&'a Line, u64)) -> ControlFlow<()> {
        let Self { core, index, tally, is_over, .. } = *self;
        let turn = BatchOp { core, index, line, tally, is_over, key };
        match self.operations.run(self.start + at, turn) {
            Ok(ControlFlow::Continue(())) if !is_over.get() => return ControlFlow::Continue(()),
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => *self.end = Some(Ok(())),
            Err(error) => *self.end = Some(Err(error)),
        }
        ControlFlow::Break(())
    }
}

impl<M: Threading> Core<M> {
    /// Runs `count` operations in order, up to the first that returns an error or `Break`. Returns how many ran.
    #[inline]
    pub(super) fn run_all(
        &self,
        count: usize,
        mut operations: impl Operations<M>,
    ) -> Result<usize> {
        let (mut ran, mut end) = (0, None);
        while ran < count && end.is_none() {
            let guard = self.pin();
            let some = STRETCH.min(count - ran);
            let index = self.current_for_writes(&guard, some);
            let tally = LenDelta { count: &self.count, delta: Cell::new(0) };
            let is_over = Cell::new(false);
            let stretch = Writes {
                core: self,
                index,
                bins: index.bins(),
                is_leaving: index.is_leaving(),
                tally: &tally,
                is_over: &is_over,
                start: ran,
                operations: &mut operations,
                end: &mut end,
            };
            ran += rolling_in_bursts::<BURST, _>(some, RING, stage2(some), stretch);
        }
        end.unwrap_or(Ok(())).map(|()| ran)
    }

    /// Runs a batch of gets with the best instruction set of the processor. `key` and `found` get numbers below `count`
    /// only, on which callers rely for memory safety.
    #[inline]
    pub(super) fn get_all(
        &self,
        count: usize,
        key: impl Fn(usize) -> u64,
        found: impl FnMut(usize, Option<u64>),
    ) {
        if count <= RING {
            dispatch(Few(Reads { core: self, count, key, found }));
        } else {
            dispatch(Reads { core: self, count, key, found });
        }
    }

    /// Prefetches the bin of `key`.
    #[inline]
    pub(super) fn prefetch(&self, key: u64) {
        let guard = self.pin();
        let index = self.current(&guard);
        prefetch_read(index.line_of(key));
    }
}

/// Prefetches the first link bucket of a bin that has been prefetched.
#[inline(always)]
pub(super) fn peek(index: &Index, line: &Line) {
    index.bins().peek(line);
}

/// Prefetches the bin of `key` in the next index if its bin here, which has been prefetched, has moved.
#[cold]
#[inline(never)]
fn peek_next(index: &Index, line: &Line, key: u64) {
    if Index::header(line).state() == BinState::DoneTransfer
        && let Some(next) = index.next()
    {
        prefetch_write(next.line_of(key));
    }
}

/// A batch of gets.
struct Reads<'a, M: Threading, K, F> {
    core: &'a Core<M>,
    count: usize,
    key: K,
    found: F,
}

/// A batch of gets that fits into the ring. It is compiled separately, so that its loops take no registers from those of
/// longer batches.
struct Few<R>(R);

/// A stretch of a batch of gets.
struct EpochChunk<'a, M, I, K, F> {
    index: &'a Index,
    bins: Bins<'a>,
    isa: I,
    start: usize,
    key: &'a K,
    found: &'a mut F,
    mode: PhantomData<M>,
}

impl<M: Threading, K: Fn(usize) -> u64, F: FnMut(usize, Option<u64>)> Kernel
    for Reads<'_, M, K, F>
{
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self, isa: I) {
        let mut start = 0;
        while start < self.count {
            let guard = self.core.pin();
            let some = STRETCH.min(self.count - start);
            let index = self.core.current_for_reads(&guard, some);
            let (key, found, mode) = (&self.key, &mut self.found, PhantomData::<M>);
            let bins = index.bins();
            let stretch = EpochChunk { index, bins, isa, start, key, found, mode };
            start += rolling_twice_compiled(some, RING, STAGE2, stretch);
        }
    }
}

impl<M: Threading, K: Fn(usize) -> u64, F: FnMut(usize, Option<u64>)> Kernel
    for Few<Reads<'_, M, K, F>>
{
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self, isa: I) {
        let Reads { core, count, ref key, ref mut found } = self.0;
        let guard = core.pin();
        let index = core.current_for_reads(&guard, count);
        let (bins, mode) = (index.bins(), PhantomData::<M>);
        stage_by_stage(count, EpochChunk { index, bins, isa, start: 0, key, found, mode });
    }
}

impl<'a, M, I, K, F> Stages for EpochChunk<'a, M, I, K, F>
where
    M: Threading,
    I: Isa,
    K: Fn(usize) -> u64,
    F: FnMut(usize, Option<u64>),
{
    type Entry = &'a Line;

    #[inline(always)]
    fn locate(&mut self, at: usize) -> &'a Line {
        let line = self.bins.of((self.key)(self.start + at));
        prefetch_read(line);
        line
    }

    #[inline(always)]
    fn inspect(&mut self, line: &mut &'a Line) {
        self.bins.peek(line);
    }

    #[inline(always)]
    fn run(&mut self, at: usize, line: &'a Line) -> ControlFlow<()> {
        let at = self.start + at;
        let key = (self.key)(at);
        let look = Index::look::<M>(self.isa, line, key);
        if look.is_answer(self.index) {
            (self.found)(at, look.answer());
        } else {
            (self.found)(at, look.complete::<M>(self.index, line, key));
        }
        ControlFlow::Continue(())
    }
}
