//! A table of words: the chain of indexes, and every operation as a walk along it.

use std::sync::{Arc, Mutex, PoisonError};

use super::get::Step;
use super::hasher::Hasher;
use super::header::SlotState;
use super::index::{Entry, Index, Patience, Size};
use super::mode::{Shared, Threading};
use super::plan::Plan;
use super::write::{Outcome, Rule};
use crate::base::group::Native;
use crate::base::reclaim::{Desk, PROTECTED};
use crate::base::sync::{AtomicPtr, Line, Ordering};
use crate::report::Stats;
use crate::{Error, Result};

/// The maximum number of further bins that an insert moves when its bin is full.
const HELP_WHEN_FULL: u64 = 8;
/// The maximum numbers of bins that a write and a read move while the index is in transfer. Meanwhile, a write whose bin
/// has moved accesses both indexes, so a short transfer is worth more than even latencies.
const HELP_OF_WRITES: u64 = 16;
const HELP_OF_READS: u64 = 1;

/// A table from words to words.
pub(super) struct Core<M: Threading> {
    /// The first index of the chain that has unmoved bins: an [`Arc`] as a raw pointer.
    current: AtomicPtr<Index>,
    pub(super) count: M::Count,
    pub(super) plan: Plan,
    /// The hash functions of all generations so far. The current function is the last one, or is about to be added.
    hashers: Mutex<Vec<Hasher>>,
    /// Keeps replaced indexes until no request can reach them.
    reclaimer: M::Reclaimer,
}

impl<M: Threading> Core<M> {
    /// Creates a table that takes `records` before it must grow.
    pub(super) fn new(plan: Plan, records: u64) -> Result<Self> {
        let hasher = Hasher::new(plan.hash, plan.seed);
        let index = plan.index(plan.size_for(records), hasher, Entry::Resize)?;
        Ok(Self {
            current: AtomicPtr::new(Arc::into_raw(Arc::new(index)).cast_mut()),
            count: M::Count::default(),
            plan,
            hashers: Mutex::new(vec![hasher]),
            reclaimer: M::Reclaimer::default(),
        })
    }

    /// Returns a guard. An index that is reached from [`Core::current`] while the guard lives is not freed before the
    /// guard is dropped.
    #[inline(always)]
    pub(super) fn pin(&self) -> M::Guard<'_> {
        M::pin(&self.reclaimer)
    }

    /// Returns the index at which every request begins.
    #[inline(always)]
    pub(super) fn current<'g>(&self, _guard: &'g M::Guard<'_>) -> &'g Index {
        // PROTECTED (E4): pairs with `advance`.
        let current = self.current.load(PROTECTED);
        // SAFETY: the pointer of an `Arc` that the table holds until `advance` retires it. The guard was taken before
        // this load.
        unsafe { &*current }
    }

    /// Like [`Core::current`], for requests that help with a transfer in progress by moving `help` bins.
    #[inline(always)]
    fn current_for<'g>(&self, guard: &'g M::Guard<'_>, help: u64) -> &'g Index {
        let index = self.current(guard);
        if index.is_leaving() {
            self.help_on(index, help);
        }
        index
    }

    /// Like [`Core::current`], for a stretch of `count` reads, which help with a transfer in progress.
    #[inline]
    pub(super) fn current_for_reads<'g>(&self, guard: &'g M::Guard<'_>, count: usize) -> &'g Index {
        self.current_for(guard, HELP_OF_READS * count as u64)
    }

    /// Like [`Core::current_for_reads`], for writes.
    #[inline]
    pub(super) fn current_for_writes<'g>(
        &self,
        guard: &'g M::Guard<'_>,
        count: usize,
    ) -> &'g Index {
        self.current_for(guard, HELP_OF_WRITES * count as u64)
    }

    /// If every bin of the current index has been moved, makes the next index the current one. Repeats along the chain.
    pub(super) fn advance(&self) {
        let guard = self.pin();
        loop {
            let index = self.current(&guard);
            if !index.is_left() {
                return;
            }
            let (Some(next), Some(shared)) = (index.next(), index.share_next()) else { return };
            M::pause();
            // Release (E3): every bin is frozen. For `Entry::Clear` the records disappear at this moment.
            next.open.store(true, Ordering::Release);
            if next.hasher.generation != index.hasher.generation {
                self.remember(next.hasher);
            }
            M::pause();
            let (old, new) =
                (std::ptr::from_ref(index).cast_mut(), Arc::into_raw(shared).cast_mut());
            // SeqCst (E4): new requests find the next index.
            match self.current.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst) {
                // SAFETY: the reference that `current` held.
                Ok(old) => M::retire(&guard, unsafe { Arc::from_raw(old) }),
                // SAFETY: the reference made above, which is still owned here.
                Err(_) => drop(unsafe { Arc::from_raw(new) }),
            }
        }
    }

    fn remember(&self, hasher: Hasher) {
        let mut hashers = self.hashers.lock().unwrap_or_else(PoisonError::into_inner);
        if hashers.iter().all(|known| known.generation != hasher.generation) {
            hashers.push(hasher);
        }
    }

    /// Returns the hash function of a generation, if the table has had it.
    pub(super) fn hasher_of(&self, generation: u16) -> Option<Hasher> {
        let hashers = self.hashers.lock().unwrap_or_else(PoisonError::into_inner);
        hashers.iter().find(|hasher| hasher.generation == generation).copied()
    }

    #[inline(always)]
    pub(super) fn get(&self, key: u64) -> Option<u64> {
        self.get_under(&self.pin(), key)
    }

    #[inline(always)]
    pub(super) fn get_under(&self, guard: &M::Guard<'_>, key: u64) -> Option<u64> {
        let index = self.current_for_reads(guard, 1);
        let line = index.line_of(key);
        let look = Index::look::<M>(Native::default(), line, key);
        if look.is_hit() { Some(look.value) } else { look.complete::<M>(index, line, key) }
    }

    #[inline(always)]
    pub(super) fn store(
        &self,
        key: u64,
        value: u64,
        rule: Rule,
        new: SlotState,
    ) -> Result<Outcome> {
        let guard = self.pin();
        let index = self.current_for_writes(&guard, 1);
        let outcome = self.store_at(index, index.line_of(key), key, value, rule, new)?;
        if outcome == Outcome::Inserted && new == SlotState::Valid {
            M::add(&self.count, 1);
        }
        Ok(outcome)
    }

    /// Performs a write, beginning at bin `line` of `index`, which a guard of the caller protects. Does not change the
    /// count.
    #[inline(always)]
    pub(super) fn store_at(
        &self,
        index: &Index,
        line: &Line,
        key: u64,
        value: u64,
        rule: Rule,
        new: SlotState,
    ) -> Result<Outcome> {
        match index.store::<M>(line, key, value, rule, new) {
            Step::Done(outcome) => Ok(outcome),
            other => self.store_on(index, other, key, value, rule, new),
        }
    }

    /// Continues a write whose bin is full or has left `index`.
    #[inline(never)]
    pub(super) fn store_on(
        &self,
        index: &Index,
        step: Step<Outcome>,
        key: u64,
        value: u64,
        rule: Rule,
        new: SlotState,
    ) -> Result<Outcome> {
        let (mut index, mut step) = (index, step);
        loop {
            index = match step {
                Step::Done(outcome) => return Ok(outcome),
                Step::Moved => self.follow(index)?,
                Step::Full => self.make_room(index, key)?,
            };
            step = index.store::<M>(index.line_of(key), key, value, rule, new);
        }
    }

    pub(super) fn take(&self, key: u64, expected: Option<u64>) -> Outcome {
        let guard = self.pin();
        let index = self.current_for_writes(&guard, 1);
        let outcome = self.take_at(index, index.line_of(key), key, expected);
        if let Outcome::Replaced(_) = outcome {
            M::add(&self.count, -1);
        }
        outcome
    }

    /// Performs a removal, beginning at bin `line` of `index`. Does not change the count.
    #[inline(always)]
    pub(super) fn take_at(
        &self,
        index: &Index,
        line: &Line,
        key: u64,
        expected: Option<u64>,
    ) -> Outcome {
        match index.take::<M>(line, key, expected) {
            Step::Done(outcome) => outcome,
            _ => self.take_on(index, key, expected),
        }
    }

    #[inline(never)]
    fn take_on(&self, index: &Index, key: u64, expected: Option<u64>) -> Outcome {
        let mut index = index;
        // Moving bins may fail for lack of memory, but following records to the next index never does.
        while let Ok(next) = self.follow(index) {
            index = next;
            let line = index.line_of(key);
            if let Step::Done(outcome) = index.take::<M>(line, key, expected) {
                return outcome;
            }
        }
        Outcome::Kept(None)
    }

    /// Ends a shadow insert: sets the state of its slot to `new`. Returns whether `key` had a shadow insert.
    pub(super) fn resolve(&self, key: u64, new: SlotState) -> bool {
        let guard = self.pin();
        let mut index = self.current(&guard);
        loop {
            match index.resolve::<M>(index.line_of(key), key, new) {
                Step::Done(resolved) => {
                    if resolved && new == SlotState::Valid {
                        M::add(&self.count, 1);
                    }
                    return resolved;
                }
                _ => match self.follow(index) {
                    Ok(next) => index = next,
                    Err(_) => return false,
                },
            }
        }
    }

    /// Returns the index to which a writer's bin has moved, after waiting until that index admits writers.
    fn follow<'g>(&self, index: &'g Index) -> Result<&'g Index> {
        let next = index.next().ok_or(Error::Full)?;
        let mut rounds = 0;
        // Acquire (E3): pairs with `advance`.
        while !next.open.load(Ordering::Acquire) {
            let _ = self.help(index, HELP_WHEN_FULL, Patience::Waits);
            self.advance();
            M::wait(rounds);
            rounds += 1;
        }
        Ok(next)
    }

    /// Makes room for `key`, whose bin in `index` is full: moves the bin and a bounded number of others to the next
    /// index.
    fn make_room<'g>(&self, index: &'g Index, key: u64) -> Result<&'g Index> {
        self.successor(index, false)?;
        self.move_one(index, index.bin_of(key))?;
        let _ = self.help(index, HELP_WHEN_FULL, Patience::Waits);
        // Another thread may be moving the bin. The caller retries on this index and waits until the bin has moved.
        Ok(index)
    }

    /// Returns the number of records, which is exact if no other thread writes meanwhile.
    pub(super) fn len(&self) -> u64 {
        u64::try_from(M::sum(&self.count)).unwrap_or(0)
    }

    /// Returns the number of records that fit before the table must grow. An index takes a few more than its capacity, so
    /// it may be that of the records.
    pub(super) fn capacity(&self) -> u64 {
        let guard = self.pin();
        let mut index = self.current(&guard);
        while let Some(next) = index.next() {
            index = next;
        }
        index.size.records.max(self.len())
    }

    pub(super) fn stats(&self) -> Stats {
        let guard = self.pin();
        let index = self.current(&guard);
        let mut bytes = index.bytes();
        let mut newest = index;
        while let Some(next) = newest.next() {
            bytes += next.bytes();
            newest = next;
        }
        Stats {
            len_estimate: self.len(),
            capacity: self.capacity(),
            dram_bytes: bytes,
            details: vec![
                ("bins", newest.len()),
                ("link-buckets", newest.pool.len() as u64),
                ("link-buckets-used", newest.pool.used()),
                ("hash-functions-before", u64::from(newest.hasher.generation)),
                ("transferring", u64::from(index.next().is_some())),
            ],
            ..Stats::default()
        }
    }

    /// Moves all records to an index that takes `records` in total, if that index is larger than the present one.
    pub(super) fn reserve(&self, records: u64) -> Result<()> {
        let size = self.plan.size_for(records);
        if size.bytes() > self.plan.max_bytes && records > self.capacity() {
            return Err(Error::Full);
        }
        // An index may hold more than its capacity. It has room for these records, and is not replaced for them.
        self.resize(|index| (records > index.size.records.max(self.len())).then_some(size))
    }

    /// Moves all records to the smallest index that takes them.
    pub(super) fn shrink(&self) -> Result<()> {
        self.resize(|index| {
            let size = self.plan.size_for(self.len());
            (size.bins < index.len()).then_some(size)
        })
    }

    /// Finishes every transfer in progress; if `wanted` then returns another size, moves all records to an index of
    /// that size.
    fn resize(&self, wanted: impl Fn(&Index) -> Option<Size>) -> Result<()> {
        loop {
            let guard = self.pin();
            let index = self.current(&guard);
            if index.next().is_some() {
                self.finish(index)?;
                continue;
            }
            let Some(size) = wanted(index) else { return Ok(()) };
            if self.make_next(index, size, Entry::Resize)? {
                return self.finish(index);
            }
        }
    }

    /// Removes every record at one moment.
    pub(super) fn clear(&self) -> Result<()> {
        self.replace(Entry::Clear).map(drop)
    }

    /// Replaces the current index by a new one of the same size, for the purpose `entry`. Returns the old index.
    pub(super) fn replace(&self, entry: Entry) -> Result<Arc<Index>> {
        loop {
            let _guard = self.pin();
            let pointer = self.current.load(PROTECTED);
            // SAFETY: as in `current`, which loads it in the same way.
            let index = unsafe { &*pointer };
            if index.next().is_some() {
                self.finish(index)?;
                continue;
            }
            // SAFETY: the pointer comes from an `Arc`, which the guard keeps alive.
            let old = unsafe {
                Arc::increment_strong_count(pointer);
                Arc::from_raw(pointer)
            };
            if self.make_next(index, index.size, entry)? {
                self.finish(index)?;
                return Ok(old);
            }
        }
    }
}

impl<M: Threading> Drop for Core<M> {
    fn drop(&mut self) {
        // Relaxed: no other thread uses the table. SAFETY: the reference that `current` holds; no request can be in
        // progress.
        drop(unsafe { Arc::from_raw(self.current.load(Ordering::Relaxed)) });
    }
}

impl Core<Shared> {
    pub(super) fn desk(&self) -> Desk<'_> {
        self.reclaimer.desk()
    }
}

impl<M: Threading> std::fmt::Debug for Core<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("len", &self.len()).finish_non_exhaustive()
    }
}
