//! Batches: later operations are prefetched, and writes go through windows.

use std::cell::RefCell;
use std::ops::{ControlFlow, Range};

use super::Plush;
use super::core::Core;
use super::layout::EntryRef;
use super::op::{WroteOf, mode_of};
use super::window::Window;
use crate::Result;
use crate::base::pipeline::{self, Stages, prefetch_read};
use crate::base::reclaim::Guard;
use crate::engine::{LookupKey, Mixed, WriteKind};
use crate::outcome::OnFailure;
use crate::storage::Medium;
use crate::types::{Raw, RecordForm, Take};

/// Distances, in operations: the root entry and filters are prefetched `RING` ahead, the words that lead to the
/// bucket `PEEK` ahead, and the bucket itself one burst ahead. Each stage runs in bursts of `BURST` operations.
const RING: usize = 32;
const PEEK: usize = 16;
const BURST: usize = 8;

/// Number of reads of a batch that share a pin. Bounds how long freed payload chunks wait for the end of a pin.
const PINNED: usize = 256;

/// A later operation that is being prefetched.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'t> {
    hash: u64,
    /// `true` if the operation searches for the key, which a blind write does not.
    looks: bool,
    /// The first entry whose filter contains the key, and the buckets that the filter names.
    likely: Option<(EntryRef<'t>, u16)>,
}

impl Ahead<'_> {
    pub(super) fn new(hash: u64, looks: bool) -> Self {
        Self { hash, looks, likely: None }
    }
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
    A: FnMut(usize) -> Ahead<'t>,
    W: FnMut(usize, u64) -> ControlFlow<()>,
{
    type Entry = Ahead<'t>;

    #[inline(always)]
    fn locate(&mut self, index: usize) -> Ahead<'t> {
        (self.ahead)(index)
    }

    #[inline(always)]
    fn prefetch(&mut self, Ahead { hash, looks, .. }: Ahead<'t>) {
        if looks {
            self.core.hint_search(hash);
        } else {
            self.core.root.prefetch_to_write(self.core.root_entry(hash));
        }
    }

    #[inline(always)]
    fn inspect(&mut self, ahead: &mut Ahead<'t>) {
        if !ahead.looks {
            self.core.root.prefetch_push(self.core.root_entry(ahead.hash), 0);
            return;
        }
        ahead.likely = self.core.likely(ahead.hash, self.core.levels_on_top());
        match ahead.likely {
            Some((entry, _)) => prefetch_read(&entry.entry.state),
            None => self.core.hint_entries(ahead.hash),
        }
    }

    #[inline(always)]
    fn prefetch_record(&mut self, Ahead { hash, looks, likely }: Ahead<'t>) {
        if looks {
            let likely = likely.or_else(|| self.core.likely(hash, self.core.levels_below()));
            likely.inspect(|&(entry, buckets)| self.core.hint_bucket(entry, buckets));
        }
    }

    #[inline(always)]
    fn run(&mut self, index: usize, ahead: Ahead<'t>) -> ControlFlow<()> {
        (self.run)(index, ahead.hash)
    }
}

/// Prefetching for later searches, stage by stage. The loads here do not affect any result.
impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Prefetches the root entry with its fingerprints, and the filters in DRAM.
    #[inline]
    pub(super) fn hint_search(&self, hash: u64) {
        self.root.prefetch(self.root_entry(hash));
        self.root.prefetch_fingerprints(self.root_entry(hash));
        for level in self.levels_on_top() {
            if let Ok(entry) = self.level_entry(level, self.shape.index(level, hash)) {
                self.prefetch_filter(entry, hash);
            }
        }
    }

    /// Prefetches the filters that are on the medium only, and the states of their entries.
    #[inline]
    fn hint_entries(&self, hash: u64) {
        for level in self.levels_below() {
            if let Ok(entry) = self.level_entry(level, self.shape.index(level, hash)) {
                self.prefetch_filter(entry, hash);
                prefetch_read(&entry.entry.state);
            }
        }
    }

    /// Prefetches the newest of the given buckets of an entry.
    #[inline]
    fn hint_bucket(&self, entry: EntryRef<'_>, buckets: u16) {
        let newest = buckets.checked_ilog2().map(|newest| newest as usize);
        let newest =
            newest.map(|newest| self.storage.read_unvalidated(|| self.bucket(entry, newest)));
        if let Some(Ok(bucket)) = newest {
            bucket.prefetch();
        }
    }

    /// Returns the entry of the first of `levels` whose filter contains the key, and the buckets that the filter names.
    #[inline]
    fn likely(&self, hash: u64, mut levels: Range<usize>) -> Option<(EntryRef<'_>, u16)> {
        levels.find_map(|level| {
            let entry = self.level_entry(level, self.shape.index(level, hash)).ok()?;
            let buckets = self.storage.read_unvalidated(|| self.candidates(entry, hash));
            (buckets != 0).then_some((entry, buckets))
        })
    }

    /// The levels whose filters are in DRAM.
    #[inline]
    fn levels_on_top(&self) -> Range<usize> {
        1..self.top_filters.levels().min(self.levels.count(&self.storage)) + 1
    }

    /// The levels whose filters are on the medium only.
    #[inline]
    fn levels_below(&self) -> Range<usize> {
        self.top_filters.levels() + 1..self.levels.count(&self.storage) + 1
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Runs operations in order until one breaks or fails, and prefetches later ones, whose hashes `ahead` returns.
    /// Returns the number of operations that ran, and the error.
    pub(super) fn in_order<'t>(
        &'t self,
        count: usize,
        ahead: impl FnMut(usize) -> Ahead<'t>,
        mut run: impl FnMut(usize, u64) -> Result<ControlFlow<()>>,
    ) -> (usize, Result<()>) {
        let mut result = Ok(());
        let run = |index, hash| match run(index, hash) {
            Ok(flow) => flow,
            Err(error) => {
                result = Err(error);
                ControlFlow::Break(())
            }
        };
        let ring = Ring { core: self, ahead, run };
        let ran = pipeline::rolling_in_bursts::<BURST, _>(count, RING, PEEK, ring);
        // An operation that failed does not count.
        (ran - usize::from(result.is_err()), result)
    }
}

impl<R: RecordForm, M: Medium> Plush<R, M> {
    pub(super) fn read_batch<'k, T: Take + Copy>(
        &self,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        take: T,
        mut found: impl FnMut(usize, Option<T::Out>),
    ) -> Result<()> {
        let core = &self.core;
        let mut pin = core.pin();
        let ahead = |at: usize| Ahead::new(core.hash_key(&key(at)).hash, true);
        core.in_order(count, ahead, |at, hash| {
            if at % PINNED == PINNED - 1 {
                pin.iter_mut().for_each(Guard::renew);
            }
            let words = core.find(&LookupKey::new(hash, &key(at)))?;
            found(at, words.map(|words| self.take_value(words, take)).transpose()?);
            Ok(ControlFlow::Continue(()))
        })
        .1
    }

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
        let ahead = |index| Ahead::new(self.core.hash_key(&key(index)).hash, mode.looks());
        let (_, result) = self.core.in_order(count, ahead, |index, hash| {
            let raw = key(index);
            let probe = LookupKey::new(hash, &raw);
            window.run(index, &probe, &value(index), mode, &mut answer)?;
            Ok(ControlFlow::Continue(()))
        });
        result.and_then(|()| window.commit(&mut answer))
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
            Ahead::new(self.core.hash_key(&batch.key(index)).hash, looks)
        };
        let (ran, result) = self.core.in_order(count, ahead, |index, hash| {
            let failed = self.execute_one(&mut window, *batch.borrow_mut(), index, hash)?;
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
        hash: u64,
    ) -> Result<bool> {
        let raw = batch.key(index);
        let probe = LookupKey::new(hash, &raw);
        let Some(kind) = batch.kind(index) else {
            if window.has(&probe) {
                window.commit(&mut |index, wrote| self.fill_in(batch, index, wrote))?;
            }
            let _pin = self.core.pin();
            let words = self.core.find(&probe)?;
            let take = batch.take();
            batch.fill(index, words.map(|words| self.take_value(words, take)).transpose()?);
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
