//! Batches: later operations are prefetched, and writes go through windows.

use std::cell::RefCell;
use std::ops::ControlFlow;

use super::Plush;
use super::core::Core;
use super::op::{WroteOf, mode_of};
use super::reads::{BURST, RING};
use super::seek::Begun;
use super::window::Window;
use crate::Result;
use crate::base::group::Native;
use crate::base::pipeline::{self, Stages};
use crate::engine::{LookupKey, Mixed, WriteKind};
use crate::outcome::OnFailure;
use crate::storage::Medium;
use crate::types::{Raw, RecordForm, Take};

/// A later operation that is being prefetched.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'t> {
    pub(super) hash: u64,
    /// `true` if the operation searches for the key, which a blind write does not.
    looks: bool,
    begun: Option<Begun<'t>>,
}

/// The stages of a batch: prefetching, and running an operation.
struct Ring<'t, R, M, A, W> {
    core: &'t Core<R, M>,
    ahead: A,
    run: W,
}

impl<'t, R, M, A, W> Stages for Ring<'t, R, M, A, W>
where
    R: RecordForm,
    M: Medium,
    A: FnMut(usize) -> (u64, bool),
    W: FnMut(usize, &Ahead<'t>) -> ControlFlow<()>,
{
    type Entry = Ahead<'t>;

    #[inline(always)]
    fn locate(&mut self, index: usize) -> Ahead<'t> {
        let (hash, looks) = (self.ahead)(index);
        Ahead { hash, looks, begun: None }
    }

    #[inline(always)]
    fn prefetch(&mut self, Ahead { hash, looks, .. }: Ahead<'t>) {
        if looks {
            self.core.hint_root(hash);
            self.core.hint_filters(hash);
        } else {
            self.core.root.prefetch_to_write(self.core.root_entry(hash));
        }
    }

    #[inline(always)]
    fn inspect(&mut self, ahead: &mut Ahead<'t>) {
        if ahead.looks {
            ahead.begun = self.core.try_begin_search(ahead.hash);
        } else {
            self.core.root.prefetch_push(self.core.root_entry(ahead.hash), 0);
        }
    }

    #[inline(always)]
    fn follow(&mut self, ahead: &mut Ahead<'t>) {
        if ahead.looks {
            self.core.follow_apart(ahead);
        }
    }

    #[inline(always)]
    fn prefetch_record(&mut self, ahead: &mut Ahead<'t>) {
        if ahead.looks {
            self.core.approach_apart(ahead);
        }
    }

    #[inline(always)]
    fn run(&mut self, index: usize, ahead: Ahead<'t>) -> ControlFlow<()> {
        (self.run)(index, &ahead)
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Calls [`Core::follow`]. Not inlined: batches of blind writes, which need none of it, are 7 % faster without it.
    #[inline(never)]
    fn follow_apart<'t>(&'t self, ahead: &mut Ahead<'t>) {
        self.follow(Native::default(), ahead.hash, &mut ahead.begun);
    }

    /// Calls [`Core::approach`], not inlined either.
    #[inline(never)]
    fn approach_apart<'t>(&'t self, ahead: &mut Ahead<'t>) {
        self.approach(Native::default(), ahead.hash, &mut ahead.begun);
    }

    /// Runs operations in order until one breaks or fails, and prefetches later ones. `ahead` returns the hash of an
    /// operation, and whether it searches for the key. Returns the number of operations that ran, and the error.
    pub(super) fn in_order<'t>(
        &'t self,
        count: usize,
        ahead: impl FnMut(usize) -> (u64, bool),
        mut run: impl FnMut(usize, &Ahead<'t>) -> Result<ControlFlow<()>>,
    ) -> (usize, Result<()>) {
        let mut result = Ok(());
        let run = |index, ahead: &Ahead<'t>| match run(index, ahead) {
            Ok(flow) => flow,
            Err(error) => {
                result = Err(error);
                ControlFlow::Break(())
            }
        };
        let ring = Ring { core: self, ahead, run };
        let ran = pipeline::rolling_in_bursts::<BURST, _>(count, RING, self.peek_distance(), ring);
        // An operation that failed does not count.
        (ran - usize::from(result.is_err()), result)
    }
}

impl<R: RecordForm, M: Medium> Plush<R, M> {
    /// Runs writes in order through windows; see [`Operations::write_batch`](crate::engine::Operations::write_batch).
    pub(super) fn write_all<'k, 'v, T: Take + Copy>(
        &self,
        kind: WriteKind,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        value: impl Fn(usize) -> Raw<'v>,
        before: T,
        mut answer: impl FnMut(usize, Option<T::Out>),
    ) -> Result<()> {
        let mut answer = |index, wrote: WroteOf<R>| {
            if kind.has_result() {
                answer(
                    index,
                    wrote.before.map(|words| self.take_value(words, before)).transpose()?,
                );
            }
            Ok(())
        };
        let mode = mode_of(kind);
        let mut window = Window::new(&self.core);
        let ahead = |index| (self.core.hash_key(&key(index)).hash, mode.looks());
        let (_, result) = self.core.in_order(count, ahead, |index, ahead| {
            let raw = key(index);
            let probe = LookupKey::new(ahead.hash, &raw);
            window.run(index, &probe, &value(index), mode, &mut answer)?;
            Ok(ControlFlow::Continue(()))
        });
        // The operations before a failure are made durable, and answered.
        let finished = window.commit(&mut answer);
        result.and(finished)
    }

    pub(super) fn execute_all<'a>(
        &self,
        batch: &mut impl Mixed<'a>,
        on_failure: OnFailure,
    ) -> Result<usize> {
        let mut window = Window::new(&self.core);
        let (count, batch) = (batch.len(), RefCell::new(batch));
        let ahead = |index: usize| {
            let batch = batch.borrow();
            let looks = batch.kind(index).is_none_or(WriteKind::has_result);
            (self.core.hash_key(&batch.key(index)).hash, looks)
        };
        let (ran, result) = self.core.in_order(count, ahead, |index, ahead| {
            let failed = self.execute_one(&mut window, *batch.borrow_mut(), index, ahead)?;
            let stop = failed && on_failure == OnFailure::Stop;
            Ok(if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        // The operations before a failure are made durable, and their results are filled in.
        let batch = batch.into_inner();
        let finished = window.commit(&mut |index, wrote| self.fill_in(batch, index, wrote));
        result.and(finished).map(|()| ran)
    }

    /// Runs or stages one operation. Returns whether it failed because its key was occupied or absent.
    fn execute_one<'t, 'a>(
        &'t self,
        window: &mut Window<'t, R, M>,
        batch: &mut impl Mixed<'a>,
        index: usize,
        ahead: &Ahead<'_>,
    ) -> Result<bool> {
        let raw = batch.key(index);
        let probe = LookupKey::new(ahead.hash, &raw);
        let Some(kind) = batch.kind(index) else {
            if window.has(&probe) {
                window.commit(&mut |index, wrote| self.fill_in(batch, index, wrote))?;
            }
            let _pin = self.core.pin();
            let found = self.read_begun(Native::default(), &probe, &ahead.begun, batch.take())?;
            batch.fill(index, found);
            return Ok(batch.failed(index));
        };
        let value = batch.value(index);
        let mut answer = |index: usize, wrote| self.fill_in(batch, index, wrote);
        window.run(index, &probe, &value, mode_of(kind), &mut answer).map(|done| !done)
    }

    fn fill_in<'a>(
        &self,
        batch: &mut impl Mixed<'a>,
        index: usize,
        wrote: WroteOf<R>,
    ) -> Result<()> {
        let take = batch.take();
        batch.fill(index, wrote.before.map(|words| self.take_value(words, take)).transpose()?);
        Ok(())
    }
}
