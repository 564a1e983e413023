//! Batches (§3.3): operations in order, one at a time, with the latencies of bins and of the records behind them
//! overlapped.
//!
//! While one operation runs, the bins of the next 64 are being fetched. When an operation is only 24 ahead, its bin is
//! expected in the cache: the batch peeks at the bin, and prefetches the record of the operation's key. The result of a
//! peek is used only for this hint: when an operation runs, it searches again.

use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::ops::ControlFlow;

use super::memory::RecordAllocator;
use super::record::{Record, find_in, hint_record};
use super::spot::{Bin, Spot};
use super::write::{Put, When};
use super::{DlhtGuard, DlhtRecordMap};
use crate::Result;
use crate::base::group::{Isa, Kernel, Native, dispatch};
use crate::base::pipeline::{Stages, prefetch_read, prefetch_write, rolling, stages};
use crate::base::sync::Line;
use crate::dlht::api::plain;
use crate::dlht::batch::{LenDelta, STRETCH, peek};
use crate::dlht::index::Index;
use crate::dlht::mode::Threading;
use crate::dlht::write::{Outcome, Rule};
use crate::table::same_length;

/// Bins are prefetched `RING` operations ahead of their use, and records `STAGE2` operations ahead.
const RING: usize = 64;
const STAGE2: usize = 24;

/// Prefetches the record of `hash`, or the link bucket that may contain its word.
#[inline(always)]
fn hint<K, V, M: Threading>(isa: impl Isa, index: &Index, line: &Line, hash: u64) {
    match index.get_quick::<M>(isa, line, hash) {
        Some(Some(word)) => hint_record::<K, V>(word),
        Some(None) => {}
        None => peek(index, line),
    }
}

/// Access to the slot of the operation that a batch is executing.
pub(super) struct BatchOp<'a, M: Threading> {
    bin: Bin<'a, M>,
    tally: &'a LenDelta<'a, M>,
}

impl<M: Threading> Spot for BatchOp<'_, M> {
    #[inline(always)]
    fn get(&self) -> Option<u64> {
        self.bin.get()
    }

    #[inline(always)]
    fn store(&self, word: u64, rule: Rule) -> Result<Outcome> {
        let outcome = self.bin.store(word, rule)?;
        self.tally.add(i64::from(outcome == Outcome::Inserted));
        Ok(outcome)
    }

    #[inline(always)]
    fn take(&self, expected: u64) -> Outcome {
        let outcome = self.bin.take(expected);
        self.tally.add(-i64::from(matches!(outcome, Outcome::Replaced(_))));
        outcome
    }
}

/// A batch of gets.
struct Finds<'a, 'g, K, V, S, A: RecordAllocator, M: Threading, Q: ?Sized> {
    map: &'a DlhtRecordMap<K, V, S, A, M>,
    namespace: u16,
    keys: &'a [&'a Q],
    found: &'a mut [Option<&'g V>],
}

/// A stretch of a batch of gets.
struct EpochChunk<'a, 'g, I, K, V, S, A: RecordAllocator, M: Threading, Q: ?Sized> {
    isa: I,
    index: &'a Index,
    map: &'a DlhtRecordMap<K, V, S, A, M>,
    namespace: u16,
    keys: &'a [&'a Q],
    found: &'a mut [Option<&'g V>],
}

impl<'g, K, V, S, A, M, Q> Kernel for Finds<'_, 'g, K, V, S, A, M, Q>
where
    K: Borrow<Q> + Hash + Eq + Send + 'g,
    V: Send,
    S: BuildHasher,
    A: RecordAllocator,
    M: Threading,
    Q: Hash + Eq + ?Sized,
{
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Self { map, namespace, keys, found } = self;
        for (keys, found) in keys.chunks(STRETCH).zip(found.chunks_mut(STRETCH)) {
            let guard = map.core.pin();
            let index = map.core.current_for_reads(&guard, keys.len());
            let stretch = EpochChunk { isa, index, map, namespace, keys, found };
            rolling(keys.len(), RING, STAGE2, stretch);
        }
    }
}

impl<'a, 'g, I, K, V, S, A, M, Q> Stages for EpochChunk<'a, 'g, I, K, V, S, A, M, Q>
where
    I: Isa,
    K: Borrow<Q> + Hash + Eq + Send + 'g,
    V: Send,
    S: BuildHasher,
    A: RecordAllocator,
    M: Threading,
    Q: Hash + Eq + ?Sized,
{
    type Entry = (&'a Line, u64);

    #[inline(always)]
    fn locate(&mut self, at: usize) -> (&'a Line, u64) {
        let hash = self.map.hash_of(self.namespace, self.keys[at]);
        let line = self.index.line_of(hash);
        prefetch_read(line);
        (line, hash)
    }

    #[inline(always)]
    fn inspect(&mut self, (line, hash): &mut (&'a Line, u64)) {
        hint::<K, V, M>(self.isa, self.index, line, *hash);
    }

    #[inline(always)]
    fn run(&mut self, at: usize, (line, hash): (&'a Line, u64)) -> ControlFlow<()> {
        let look = Index::look::<M>(self.isa, line, hash);
        let word = if look.is_answer(self.index) {
            look.answer()
        } else {
            look.complete::<M>(self.index, line, hash)
        };
        // SAFETY: the caller has been pinned for `'g`, since before this word was read.
        self.found[at] = word.and_then(|word| unsafe {
            let record = find_in::<K, V, A, Q>(word, self.namespace, self.keys[at])?;
            Some(&(*record.as_ptr()).value)
        });
        ControlFlow::Continue(())
    }
}

impl<K: Hash + Eq + Send, V: Send, S: BuildHasher, A: RecordAllocator, M: Threading>
    DlhtRecordMap<K, V, S, A, M>
{
    pub(super) fn find_all<'g, Q: Hash + Eq + ?Sized>(
        &self,
        namespace: u16,
        keys: &[&Q],
        found: &mut [Option<&'g V>],
        guard: &'g DlhtGuard<'_>,
    ) where
        K: Borrow<Q> + 'g,
    {
        self.checked(guard);
        plain(same_length(keys.len(), found.len()));
        dispatch(Finds { map: self, namespace, keys, found });
    }

    /// Puts each record if `when` allows it, and passes each outcome to `done`. Records are taken from the iterator
    /// when their bins are prefetched.
    ///
    /// # Errors
    /// Fails if memory runs out for a record: the records before it were put, those after it were not.
    pub(super) fn put_all<'g>(
        &self,
        namespace: u16,
        records: impl IntoIterator<Item = (K, V)>,
        when: When,
        guard: &'g DlhtGuard<'_>,
        mut done: impl FnMut(Put<'g, V>),
    ) -> Result<()>
    where
        K: 'g,
        V: 'g,
    {
        let pinned = self.checked(guard);
        let mut records = records.into_iter().fuse();
        let expected = records.size_hint().0;
        let hinted = RefCell::new(VecDeque::with_capacity(RING.min(expected)));
        let hash = |_| {
            let (key, value) = records.next()?;
            let hash = self.hash_of(namespace, &key);
            hinted.borrow_mut().push_back((key, value));
            Some(hash)
        };
        self.run_all(expected, hash, |_, turn| {
            let record = hinted.borrow_mut().pop_front();
            let Some(record) = record else { return ControlFlow::Continue(()) };
            match self.put_at(&turn, namespace, record, when, pinned) {
                Ok(put) => {
                    done(put);
                    ControlFlow::Continue(())
                }
                Err(refused) => ControlFlow::Break(Err(refused.reason())),
            }
        })
    }

    /// Calls [`DlhtMap::put_all`](crate::DlhtMap::put_all); returns what `answer` returns for each outcome, in order.
    pub(super) fn put_each<'g, T>(
        &self,
        namespace: u16,
        records: impl IntoIterator<Item = (K, V)>,
        when: When,
        guard: &'g DlhtGuard<'_>,
        answer: impl Fn(Put<'g, V>) -> T,
    ) -> Vec<T>
    where
        K: 'g,
        V: 'g,
    {
        let records = records.into_iter();
        let mut answers = Vec::with_capacity(records.size_hint().0);
        let put = |put| answers.push(answer(put));
        plain(self.put_all(namespace, records, when, guard, put));
        answers
    }

    pub(super) fn take_all<'g, Q: Hash + Eq + ?Sized>(
        &self,
        namespace: u16,
        keys: &[&Q],
        removed: &mut [Option<&'g V>],
        guard: &'g DlhtGuard<'_>,
    ) where
        K: Borrow<Q> + 'g,
    {
        let pinned = self.checked(guard);
        plain(same_length(keys.len(), removed.len()));
        let hash = |at: usize| keys.get(at).map(|key| self.hash_of(namespace, *key));
        plain(self.run_all(keys.len(), hash, |at, turn| {
            let taken = self.take_at(&turn, namespace, keys[at], |_| true, pinned);
            removed[at] = taken.map(|record: &'g Record<K, V>| &record.value);
            ControlFlow::Continue(())
        }));
    }

    /// Runs operations in order until `hash` returns `None` or an operation breaks. `hash` is called once for each
    /// operation, in order and ahead of `run`; `count` is an estimate of the number of operations.
    #[inline]
    pub(super) fn run_all(
        &self,
        count: usize,
        mut hash: impl FnMut(usize) -> Option<u64>,
        mut run: impl FnMut(usize, BatchOp<'_, M>) -> ControlFlow<Result<()>>,
    ) -> Result<()> {
        let (core, isa) = (&self.core, Native::default());
        let (mut ran, mut end) = (0, None);
        let mut stretch = STRETCH.min(count.saturating_add(1));
        while end.is_none() {
            let guard = core.pin();
            let index = core.current_for_writes(&guard, stretch.min(STRETCH));
            let tally = LenDelta::<M> { count: &core.count, delta: Cell::new(0) };
            let first = |at| {
                let hash = hash(ran + at)?;
                let line = index.line_of(hash);
                prefetch_write(line);
                Some((line, hash))
            };
            let asked = |_| ();
            let second = |ahead| {
                if let Some((line, hash)) = ahead {
                    hint::<K, V, M>(isa, index, line, hash);
                }
            };
            let run = |at, ahead: Option<(&Line, u64)>| {
                end = match ahead {
                    None => Some(Ok(())),
                    Some((line, hash)) => {
                        let turn =
                            BatchOp { bin: Bin::new(core, index, line, hash), tally: &tally };
                        run(ran + at, turn).break_value()
                    }
                };
                if end.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            rolling(stretch, RING, STAGE2, stages(first, asked, second, run));
            ran += stretch;
            stretch = STRETCH;
        }
        end.unwrap_or(Ok(()))
    }
}
