//! One thread or many: the differences between [`Dlht`](super::Dlht) and [`DlhtLocal`](super::DlhtLocal).
//!
//! The algorithms are written once. For many threads, a compare-and-swap is an atomic instruction, requests are
//! announced to the reclaimer, and counts are sharded. For one thread, a compare-and-swap is a load and a store, and
//! the reclaimer and the counts are plain counters.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::exchange::Exchange;
use super::index::Index;
use crate::base::counter::ShardedCounter;
use crate::base::reclaim::{Reclaimer, Section};
use crate::base::sync::{self, AtomicU64, Ordering};

/// The number of threads that may use a table: [`Shared`] or [`Local`].
///
/// ```
/// fn len<M: icefield::Threading>(table: &icefield::DlhtTable<u64, u64, M>) -> usize {
///     table.len()
/// }
/// assert_eq!(len(&icefield::Dlht::new()), 0);
/// ```
pub trait Threading: Synchronization {}

impl<M: Synchronization> Threading for M {}

/// All differences between the modes. This trait cannot be named outside the crate, so it cannot be implemented there.
pub trait Synchronization: Exchange + Sized + 'static {
    /// Keeps old indexes until no thread can be reading them.
    type Reclaimer: Default;
    /// While a guard lives, no index that its holder has reached is freed.
    type Guard<'a>;
    /// A count of records.
    type Count: Default;

    #[doc(hidden)]
    fn pin(reclaimer: &Self::Reclaimer) -> Self::Guard<'_>;
    #[doc(hidden)]
    fn retire(guard: &Self::Guard<'_>, index: Arc<Index>);
    #[doc(hidden)]
    fn add(count: &Self::Count, delta: i64);
    #[doc(hidden)]
    fn sum(count: &Self::Count) -> i64;
    /// A point at which tests may switch to another thread. Does nothing otherwise.
    #[doc(hidden)]
    #[inline(always)]
    fn pause() {}
    /// Waits briefly for another thread. `rounds` is the number of earlier calls during the same wait.
    #[doc(hidden)]
    fn wait(rounds: u32) {
        sync::wait(rounds);
    }
}

/// The mode for any number of threads.
///
/// ```
/// fn for_threads<T: Send + Sync>(table: T) -> T {
///     table
/// }
/// let table = for_threads(icefield::DlhtTable::<u64, u64, icefield::Shared>::new());
/// assert_eq!(table.fetch_add(7, 1), 0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Shared;

impl Exchange for Shared {
    #[inline(always)]
    fn exchange(word: &AtomicU64, old: u64, new: u64) -> bool {
        // Relaxed on failure: the caller searches again.
        word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Synchronization for Shared {
    type Reclaimer = Reclaimer;
    type Guard<'a> = Section<'a>;
    type Count = ShardedCounter;

    #[inline(always)]
    fn pin(reclaimer: &Reclaimer) -> Section<'_> {
        reclaimer.enter()
    }

    fn retire(guard: &Section<'_>, index: Arc<Index>) {
        let mut index = index;
        guard.retire_in_steps(move || Index::dismantle(&mut index));
    }

    #[inline(always)]
    fn add(count: &ShardedCounter, delta: i64) {
        count.add(delta);
    }

    fn sum(count: &ShardedCounter) -> i64 {
        count.sum()
    }
}

/// [`Shared`] with threads scheduled by a test, which may switch between any two steps that another thread can
/// distinguish.
#[cfg(feature = "sim")]
#[derive(Clone, Copy, Debug)]
pub struct Interleaved<T>(std::marker::PhantomData<T>);

/// The scheduler of [`Interleaved`] threads.
#[cfg(feature = "sim")]
pub trait Turns: 'static {
    /// Lets another thread run now, if the schedule requires it.
    fn give_way();
    /// Called for every locked instruction of an operation, and for every update of the record count.
    fn locked() {}
}

#[cfg(feature = "sim")]
impl<T: Turns> Exchange for Interleaved<T> {
    fn exchange(word: &AtomicU64, old: u64, new: u64) -> bool {
        T::give_way();
        T::locked();
        Shared::exchange(word, old, new)
    }
}

#[cfg(feature = "sim")]
impl<T: Turns> Synchronization for Interleaved<T> {
    type Reclaimer = Reclaimer;
    type Guard<'a> = Section<'a>;
    type Count = ShardedCounter;

    fn pin(reclaimer: &Reclaimer) -> Section<'_> {
        T::give_way();
        Shared::pin(reclaimer)
    }

    fn retire(guard: &Section<'_>, index: Arc<Index>) {
        Shared::retire(guard, index);
    }

    fn add(count: &ShardedCounter, delta: i64) {
        T::locked();
        Shared::add(count, delta);
    }

    fn sum(count: &ShardedCounter) -> i64 {
        Shared::sum(count)
    }

    fn pause() {
        T::give_way();
    }

    fn wait(_: u32) {
        T::give_way();
    }
}

/// The mode for one thread.
///
/// ```
/// // The counters of one thread: no atomic instructions.
/// let counts = icefield::DlhtTable::<u64, u64, icefield::Local>::new();
/// assert_eq!((counts.fetch_add(7, 1), counts.fetch_add(7, 1)), (0, 1));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Local;

/// The reclaimer of [`Local`]: old indexes are kept until the outermost call returns.
#[derive(Debug, Default)]
pub struct LocalReclaimer {
    depth: Cell<usize>,
    retired: RefCell<Vec<Arc<Index>>>,
}

/// The guard of a call on a [`Local`] table.
#[derive(Debug)]
pub struct LocalGuard<'a>(&'a LocalReclaimer);

impl Drop for LocalGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.0.depth.get() - 1;
        self.0.depth.set(depth);
        if depth == 0 && !self.0.retired.borrow().is_empty() {
            self.0.retired.take().iter().for_each(|index| index.leave());
        }
    }
}

impl Exchange for Local {
    #[inline(always)]
    fn exchange(word: &AtomicU64, old: u64, new: u64) -> bool {
        // Relaxed: only one thread at a time uses the table.
        let same = word.load(Ordering::Relaxed) == old;
        if same {
            word.store(new, Ordering::Relaxed);
        }
        same
    }
}

impl Synchronization for Local {
    type Reclaimer = LocalReclaimer;
    type Guard<'a> = LocalGuard<'a>;
    type Count = Cell<i64>;

    #[inline(always)]
    fn pin(reclaimer: &LocalReclaimer) -> LocalGuard<'_> {
        reclaimer.depth.set(reclaimer.depth.get() + 1);
        LocalGuard(reclaimer)
    }

    fn retire(guard: &LocalGuard<'_>, index: Arc<Index>) {
        guard.0.retired.borrow_mut().push(index);
    }

    #[inline(always)]
    fn add(count: &Cell<i64>, delta: i64) {
        count.set(count.get().wrapping_add(delta));
    }

    fn sum(count: &Cell<i64>) -> i64 {
        count.get()
    }
}
