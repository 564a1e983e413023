//! Batches: later operations are prefetched, and writes go through windows.

use std::cell::RefCell;
use std::ops::{ControlFlow, Range};

use super::Plush;
use super::core::{Core, EntryRef};
use super::op::{ModeOf, PlushWriteMode, WroteOf};
use super::window::Window;
use crate::Result;
use crate::base::pipeline::{self, Stages, prefetch_read};
use crate::base::reclaim::Guard;
use crate::key::{Key, Raw, Value};
use crate::record::LookupKey;
use crate::record::engine::WriteMode;
use crate::storage::Medium;
use crate::table::{
    Arg, Occupied, OnFailure, Op, Owned, RecordArg, TryInsert, no_shadows, same_length,
};

/// Distances, in operations: the root entry and filters are prefetched `RING` ahead, the words that lead to the
/// bucket `PEEK` ahead, and the bucket itself one burst ahead. Each stage runs in bursts of `BURST` operations.
const RING: usize = 32;
const PEEK: usize = 16;
const BURST: usize = 8;

/// Reads of a batch that share a pin. Bounds how long freed payload chunks wait for it.
const PINNED: usize = 256;

/// A later operation that is being prefetched.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'t> {
    hash: u64,
    /// `true` if it searches for the key.
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
struct Ring<'t, K: ?Sized, V: ?Sized, M, A, R> {
    core: &'t Core<K, V, M>,
    ahead: A,
    run: R,
}

impl<'t, K, V, M, A, R> Stages for Ring<'t, K, V, M, A, R>
where
    K: Key + ?Sized,
    V: Value + ?Sized,
    M: Medium,
    A: FnMut(usize) -> Ahead<'t>,
    R: FnMut(usize, u64) -> ControlFlow<()>,
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
impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
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

    /// Prefetches the filters of the other levels, and the states of their entries.
    #[inline]
    fn hint_entries(&self, hash: u64) {
        for level in self.levels_below() {
            if let Ok(entry) = self.level_entry(level, self.shape.index(level, hash)) {
                self.prefetch_filter(entry, hash);
                prefetch_read(&entry.entry.state);
            }
        }
    }

    /// Prefetches the newest of some buckets of an entry.
    #[inline]
    fn hint_bucket(&self, entry: EntryRef<'_>, buckets: u16) {
        let newest = buckets.checked_ilog2().map(|newest| newest as usize);
        let newest =
            newest.map(|newest| self.storage.read_unvalidated(|| self.bucket(entry, newest)));
        if let Some(Ok(bucket)) = newest {
            bucket.prefetch();
        }
    }

    /// The first of some levels whose filter contains the key, and the buckets that the filter names.
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
        1..self.top_filters.levels().min(self.level_count()) + 1
    }

    /// The levels whose filters are on the medium only.
    #[inline]
    fn levels_below(&self) -> Range<usize> {
        self.top_filters.levels() + 1..self.level_count() + 1
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
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

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Plush<K, V, M> {
    pub(super) fn read_batch(
        &self,
        keys: &[Arg<'_, K>],
        found: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        same_length(keys.len(), found.len())?;
        let core = &self.core;
        let mut pin = core.pin();
        let ahead = |at: usize| Ahead::new(core.hash_key(keys[at]).hash, true);
        core.in_order(keys.len(), ahead, |at, hash| {
            if at % PINNED == PINNED - 1 {
                pin.iter_mut().for_each(Guard::renew);
            }
            let word = core.find(&LookupKey { hash, key: K::raw(keys[at]) })?;
            found[at] = word.map(|word| self.own_value(word)).transpose()?;
            Ok(ControlFlow::Continue(()))
        })
        .1
    }

    /// Runs writes in order through windows. `operation` returns key, value and mode. `answer` receives the former
    /// value, for modes that look it up, in order, once the write is durable.
    fn write_all<'k, 'v>(
        &self,
        count: usize,
        operation: impl Fn(usize) -> (Arg<'k, K>, Raw<'v>, ModeOf<V>),
        mut answer: impl FnMut(usize, Option<Owned<V>>),
    ) -> Result<()>
    where
        K: 'k,
    {
        let mut answer = |index, wrote: WroteOf<V>| {
            answer(index, wrote.before.map(|word| self.own_value(word)).transpose()?);
            Ok(())
        };
        let mut window = Window::new(&self.core);
        let ahead = |index| {
            let (key, _, mode) = operation(index);
            Ahead::new(self.core.hash_key(key).hash, mode.looks())
        };
        let (_, result) = self.core.in_order(count, ahead, |index, hash| {
            let (key, value, mode) = operation(index);
            let probe = LookupKey { hash, key: K::raw(key) };
            window.run(index, &probe, &value, mode, &mut answer)?;
            Ok(ControlFlow::Continue(()))
        });
        result.and_then(|()| window.commit(&mut answer))
    }

    pub(super) fn upsert_batch(
        &self,
        pairs: &[RecordArg<'_, K, V>],
        mode: WriteMode,
        mut previous: Option<&mut [Option<Owned<V>>]>,
    ) -> Result<()> {
        if let Some(previous) = &previous {
            same_length(pairs.len(), previous.len())?;
        }
        // Without result slots no lookup is needed.
        let mode = if previous.is_none() { PlushWriteMode::Put } else { mode.into() };
        let operation = |at: usize| (pairs[at].0, V::raw(pairs[at].1), mode);
        self.write_all(pairs.len(), operation, |at, before| {
            if let Some(previous) = &mut previous {
                previous[at] = before;
            }
        })
    }

    pub(super) fn try_insert_all(
        &self,
        pairs: &[RecordArg<'_, K, V>],
        outcomes: &mut [TryInsert<V>],
    ) -> Result<()> {
        same_length(pairs.len(), outcomes.len())?;
        let operation = |at: usize| (pairs[at].0, V::raw(pairs[at].1), PlushWriteMode::TryInsert);
        self.write_all(pairs.len(), operation, |at, before| {
            outcomes[at] = before.map_or(Ok(()), |value| Err(Occupied(value)));
        })
    }

    pub(super) fn remove_all(
        &self,
        keys: &[Arg<'_, K>],
        removed: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        same_length(keys.len(), removed.len())?;
        let operation = |at: usize| (keys[at], Raw::Word(0), PlushWriteMode::Remove);
        self.write_all(keys.len(), operation, |at, before| removed[at] = before)
    }

    pub(super) fn execute_all(
        &self,
        ops: &mut [Op<'_, K, V>],
        on_failure: OnFailure,
    ) -> Result<usize> {
        no_shadows(ops)?;
        let mut window = Window::new(&self.core);
        let (count, ops) = (ops.len(), RefCell::new(ops));
        let ahead = |index: usize| {
            let op: &Op<'_, K, V> = &ops.borrow()[index];
            Ahead::new(self.core.hash_key(op.key()).hash, !matches!(op, Op::Put(..)))
        };
        let (ran, result) = self.core.in_order(count, ahead, |index, hash| {
            let failed = self.execute_one(&mut window, *ops.borrow_mut(), index, hash)?;
            let stop = failed && on_failure == OnFailure::Stop;
            Ok(if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        // The operations before a failure are made durable, and their results are filled in.
        let ops = ops.into_inner();
        let finished = window.commit(&mut |index, wrote| self.fill_in(&mut ops[index], wrote));
        result.and(finished).map(|()| ran)
    }

    /// Runs or stages one operation. Returns whether it failed because its key was occupied or absent.
    fn execute_one<'t>(
        &'t self,
        window: &mut Window<'t, K, V, M>,
        ops: &mut [Op<'_, K, V>],
        index: usize,
        hash: u64,
    ) -> Result<bool> {
        let probe = LookupKey { hash, key: K::raw(ops[index].key()) };
        let (value, mode) = match &ops[index] {
            Op::Get(..) => {
                if window.has(&probe) {
                    window.commit(&mut |index, wrote| self.fill_in(&mut ops[index], wrote))?;
                }
                let _pin = self.core.pin();
                let word = self.core.find(&probe)?;
                ops[index].fill(word.map(|word| self.own_value(word)).transpose()?);
                return Ok(ops[index].failed());
            }
            Op::TryInsert(_, value, _) => (V::raw(*value), PlushWriteMode::TryInsert),
            Op::Insert(_, value, _) => (V::raw(*value), PlushWriteMode::Upsert),
            Op::Put(_, value) => (V::raw(*value), PlushWriteMode::Put),
            Op::Update(_, value, _) => (V::raw(*value), PlushWriteMode::Update),
            Op::Remove(..) => (Raw::Word(0), PlushWriteMode::Remove),
            // Rejected before the batch began.
            Op::Shadow(..) => return Ok(false),
        };
        let mut answer = |index: usize, wrote| self.fill_in(&mut ops[index], wrote);
        window.run(index, &probe, &value, mode, &mut answer).map(|done| !done)
    }

    fn fill_in(&self, op: &mut Op<'_, K, V>, wrote: WroteOf<V>) -> Result<()> {
        op.fill(wrote.before.map(|word| self.own_value(word)).transpose()?);
        Ok(())
    }
}
