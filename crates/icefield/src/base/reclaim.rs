//! Deferred reclamation: what a reader may still look at is given back only after the reader has left.
//!
//! A thin wrapper over `seize`, which announces readers by a plain store and lets the (rare) reclaiming thread pay for
//! the fence with `membarrier`. One [`Reclaimer`] belongs to one table; nothing is process-wide.
//!
//! The rules of use:
//! 1. A reader pins *before* it loads the reference, offset or index that leads to something which may be retired, and
//!    loads it with [`PROTECTED`] (or stronger). What it reached stays valid until its guard is dropped.
//! 2. A writer makes a thing unreachable for newcomers first, then retires it.
//! 3. No guard lives across user code or an `.await`: a pinned thread holds back everything that is retired meanwhile.

use seize::{Collector, Guard as _, LocalGuard};

use std::sync::atomic::Ordering;

/// The order of loads that lead to things which may be retired. Where `membarrier` is missing, the announcement of a
/// reader is a `SeqCst` store, and only loads of this order are sure to come after it.
pub const PROTECTED: Ordering = Ordering::SeqCst;

/// Retired things wait in batches of at least this many, to share the cost of the barrier.
const BATCH: usize = 32;

/// The reclamation state of one table. Dropping it reclaims whatever is still waiting.
#[derive(Debug)]
pub struct Reclaimer {
    collector: Collector,
}

impl Default for Reclaimer {
    fn default() -> Self {
        Self::new()
    }
}

impl Reclaimer {
    /// A reclaimer with the usual batches.
    #[must_use]
    pub fn new() -> Self {
        Self::with_batch(BATCH)
    }

    /// A reclaimer that tries to reclaim as soon as a thread has retired `things`. Tests use 1; a table that retires few
    /// big things does too.
    #[must_use]
    pub fn with_batch(things: usize) -> Self {
        Self { collector: Collector::new().batch_size(things.max(1)) }
    }

    /// Announces this thread as a reader until the guard is dropped. Guards nest; only the outermost costs a store.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        Guard { inner: self.collector.enter() }
    }
}

/// While this lives, nothing that its thread has reached is reclaimed.
#[must_use = "nothing is protected once the guard is dropped"]
pub struct Guard<'a> {
    inner: LocalGuard<'a>,
}

impl std::fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard")
    }
}

impl Guard<'_> {
    /// Drops what `boxed` points to, once nobody can be looking at it.
    ///
    /// # Safety
    /// `boxed` came from [`Box::into_raw`], is retired once, and no thread that pins from now on can reach it. `T` may be
    /// dropped on any thread.
    #[inline]
    pub unsafe fn retire_box<T: Send>(&self, boxed: *mut T) {
        // SAFETY: the caller's promises are those that seize asks for, and `boxed` is the fitting reclaimer.
        unsafe { self.inner.defer_retire(boxed, seize::reclaim::boxed) };
    }

    /// Runs `reclaim` once every thread that is pinned now has left; at the latest when the reclaimer is dropped. Whatever
    /// it gives back must be unreachable already for threads that pin from now on.
    ///
    /// Costs one allocation. `reclaim` runs on whichever thread leaves last, possibly inside that thread's next `retire`,
    /// and must neither panic nor wait.
    #[inline]
    pub fn retire(&self, reclaim: impl FnOnce() + Send + 'static) {
        // SAFETY: a `'static` closure outlives every reclaimer.
        unsafe { self.retire_borrowing(reclaim) };
    }

    /// [`Guard::retire`] for closures that borrow.
    ///
    /// # Safety
    /// Whatever `reclaim` borrows lives at least as long as the reclaimer, its drop included.
    #[inline]
    pub unsafe fn retire_borrowing<F: FnOnce() + Send>(&self, reclaim: F) {
        let boxed = Box::into_raw(Box::new(reclaim));
        // SAFETY: nobody but the collector knows the box; `run` takes it back exactly once. The caller vouches for what the
        // closure borrows.
        unsafe { self.inner.defer_retire(boxed, run::<F>) };
    }

    /// Hands this thread's waiting things on, even if the batch is not full. They are reclaimed when the threads that are
    /// pinned now (this one too) have left. May do nothing while there are more pinned threads than waiting things.
    pub fn flush(&self) {
        self.inner.flush();
    }
}

/// Takes a retired closure out of its box and runs it.
///
/// # Safety
/// `boxed` came from [`Box::into_raw`] and is passed once.
unsafe fn run<F: FnOnce()>(boxed: *mut F, _: &Collector) {
    // SAFETY: the caller's promise.
    let reclaim = unsafe { Box::from_raw(boxed) };
    reclaim();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicPtr, AtomicUsize};

    use super::*;

    #[test]
    fn nothing_is_reclaimed_under_a_guard() {
        let reclaimed = Arc::new(AtomicUsize::new(0));
        let reclaimer = Reclaimer::with_batch(1);
        let outer = reclaimer.pin();
        for _ in 0..100 {
            let reclaimed = Arc::clone(&reclaimed);
            reclaimer.pin().retire(move || {
                reclaimed.fetch_add(1, Ordering::Relaxed);
            });
        }
        outer.flush();
        assert_eq!(reclaimed.load(Ordering::Relaxed), 0);
        drop(outer);
        assert_eq!(reclaimed.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn dropping_the_reclaimer_reclaims_the_rest() {
        let reclaimed = Arc::new(AtomicUsize::new(0));
        let reclaimer = Reclaimer::new();
        for _ in 0..3 {
            let reclaimed = Arc::clone(&reclaimed);
            reclaimer.pin().retire(move || {
                reclaimed.fetch_add(1, Ordering::Relaxed);
            });
        }
        drop(reclaimer);
        assert_eq!(reclaimed.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn readers_never_see_a_reclaimed_box() {
        const VALID: u64 = 0x5AFE;
        struct Thing(u64);
        impl Drop for Thing {
            fn drop(&mut self) {
                self.0 = 0;
            }
        }
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        let reclaimer = Reclaimer::with_batch(1);
        let current = AtomicPtr::new(Box::into_raw(Box::new(Thing(VALID))));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let _guard = reclaimer.pin();
                        // SAFETY: loaded under a guard, so it is not reclaimed before the guard goes.
                        assert_eq!(unsafe { &*current.load(PROTECTED) }.0, VALID);
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..rounds {
                    let guard = reclaimer.pin();
                    let old = current.swap(Box::into_raw(Box::new(Thing(VALID))), Ordering::SeqCst);
                    // SAFETY: boxed above, unreachable since the swap, retired here only.
                    unsafe { guard.retire_box(old) };
                }
            });
        });
        // SAFETY: boxed above, and the threads are gone.
        drop(unsafe { Box::from_raw(current.load(Ordering::Relaxed)) });
    }
}
