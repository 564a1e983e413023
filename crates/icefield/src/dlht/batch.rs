//! Batches (§3.3): operations in order, one at a time, with the memory latency of the next hundred overlapped.
//!
//! A ring entry is a bin of the index that was current when a stretch of the batch began: it stays valid for as long as
//! the stretch is pinned, and if the bin's records have gone on meanwhile its header says so.

use std::cell::Cell;
use std::ops::ControlFlow;

use super::core::{Core, get_on};
use super::get::Step;
use super::header::SlotState;
use super::index::Index;
use super::mode::Mode;
use super::write::{Outcome, Rule};
use crate::Result;
use crate::base::group::{Isa, Kernel, dispatch};
use crate::base::pipeline::{MAX_RING, prefetch_read, prefetch_write, rolling};
use crate::base::sync::Line;

/// How far ahead bins are asked for, and link buckets.
const RING: usize = MAX_RING;
const STAGE2: usize = 32;
/// Operations between looks at which index is current, and chances for an old one to go. Draining the ring costs a
/// hundredth of what so many take.
pub(super) const STRETCH: usize = 1 << 14;

/// Counts what a stretch inserted and removed, and adds it up at the end, however that comes.
pub(super) struct Tally<'a, M: Mode> {
    pub(super) count: &'a M::Count,
    pub(super) delta: Cell<i64>,
}

impl<M: Mode> Tally<'_, M> {
    pub(super) fn add(&self, delta: i64) {
        self.delta.set(self.delta.get() + delta);
    }
}

impl<M: Mode> Drop for Tally<'_, M> {
    fn drop(&mut self) {
        if self.delta.get() != 0 {
            M::add(self.count, self.delta.get());
        }
    }
}

/// One operation of a batch, when its turn has come.
pub(super) struct Turn<'a, M: Mode> {
    core: &'a Core<M>,
    index: &'a Index,
    line: &'a Line,
    tally: &'a Tally<'a, M>,
    key: u64,
}

impl<M: Mode> Turn<'_, M> {
    #[inline(always)]
    pub(super) fn get(&self) -> Option<u64> {
        match self.index.get::<M>(self.line, self.key) {
            Step::Done(value) => value,
            _ => get_on::<M>(self.index, self.key),
        }
    }

    #[inline(always)]
    pub(super) fn store(&self, value: u64, rule: Rule) -> Result<Outcome> {
        let new = SlotState::Valid;
        let outcome = self.core.store_at(self.index, self.line, self.key, value, rule, new)?;
        self.tally.add(i64::from(outcome == Outcome::Inserted));
        Ok(outcome)
    }

    #[inline(always)]
    pub(super) fn take(&self) -> Outcome {
        let outcome = self.core.take_at(self.index, self.line, self.key, None);
        self.tally.add(-i64::from(matches!(outcome, Outcome::Replaced(_))));
        outcome
    }
}

impl<M: Mode> Core<M> {
    /// Runs operations `0..count` in order until `run` fails or breaks, and tells how many ran.
    #[inline]
    pub(super) fn run_all(
        &self,
        count: usize,
        key: impl Fn(usize) -> u64,
        mut run: impl FnMut(usize, Turn<'_, M>) -> Result<ControlFlow<()>>,
    ) -> Result<usize> {
        let mut ran = 0;
        while ran < count {
            let stretch = STRETCH.min(count - ran);
            let guard = self.pin();
            let index = self.current(&guard);
            let tally = Tally::<M> { count: &self.count, delta: Cell::new(0) };
            let mut end = None;
            let done = rolling(
                stretch,
                RING,
                STAGE2,
                |at| {
                    let key = key(ran + at);
                    let line = index.bin(index.bin_of(key));
                    prefetch_write(line);
                    (line, key)
                },
                |_, (line, _)| peek(index, line),
                |at, (line, key)| {
                    let turn = Turn { core: self, index, line, tally: &tally, key };
                    match run(ran + at, turn) {
                        Ok(ControlFlow::Continue(())) => return ControlFlow::Continue(()),
                        Ok(ControlFlow::Break(())) => end = Some(Ok(())),
                        Err(error) => end = Some(Err(error)),
                    }
                    ControlFlow::Break(())
                },
            );
            ran += done;
            if let Some(end) = end {
                return end.map(|()| ran);
            }
        }
        Ok(ran)
    }

    /// Runs a batch of gets, with the best instructions that the processor has.
    #[inline]
    pub(super) fn get_all(
        &self,
        count: usize,
        key: impl Fn(usize) -> u64,
        found: impl FnMut(usize, Option<u64>),
    ) {
        dispatch(Reads { core: self, count, key, found });
    }

    /// Asks for `key`'s bin.
    #[inline]
    pub(super) fn prefetch(&self, key: u64) {
        let guard = self.pin();
        let index = self.current(&guard);
        prefetch_read(index.bin(index.bin_of(key)));
    }
}

/// Asks for the first link bucket of a bin that has been asked for. Most have none: then it is bucket 0, always cached.
#[inline(always)]
pub(super) fn peek(index: &Index, line: &Line) {
    prefetch_read(index.pool.address(Index::links_of(line).single()));
}

struct Reads<'a, M: Mode, K, F> {
    core: &'a Core<M>,
    count: usize,
    key: K,
    found: F,
}

impl<M: Mode, K: Fn(usize) -> u64, F: FnMut(usize, Option<u64>)> Kernel for Reads<'_, M, K, F> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self, isa: I) {
        let mut ran = 0;
        while ran < self.count {
            let stretch = STRETCH.min(self.count - ran);
            let guard = self.core.pin();
            let index = self.core.current(&guard);
            let key = |at| (self.key)(ran + at);
            rolling(
                stretch,
                RING,
                STAGE2,
                |at| {
                    let line = index.bin(index.bin_of(key(at)));
                    prefetch_read(line);
                    line
                },
                |_, line| peek(index, line),
                |at, line| {
                    let value = match Index::get_quick::<M>(isa, line, key(at)) {
                        Some(answer) => answer,
                        None => get_slowly::<M>(index, line, key(at)),
                    };
                    (self.found)(ran + at, value);
                    ControlFlow::Continue(())
                },
            );
            ran += stretch;
        }
    }
}

/// Apart, so that the loop stays small.
#[inline(never)]
pub(super) fn get_slowly<M: Mode>(index: &Index, line: &Line, key: u64) -> Option<u64> {
    match index.get_slowly::<M>(line, key) {
        Step::Done(value) => value,
        _ => get_on::<M>(index, key),
    }
}
