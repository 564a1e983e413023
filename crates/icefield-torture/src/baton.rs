//! Threads that take turns: one runs at a time, and whoever runs hands over at moments drawn from a seed.
//!
//! Real threads on few processors hardly meet inside operations of a microsecond, and the system decides when; here
//! every history is interleaved finely, as its seed says. A thread that is stopped while it holds a lock of the system
//! would stop all others for ever, so one that has waited in vain takes the baton by itself; then two run at once, as
//! threads may.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::rng::{Rng, mix};

/// How long nobody may have handed over before a waiting thread goes on all the same.
const STALL: Duration = Duration::from_micros(500);
/// Looks at the baton before going to sleep.
const SPINS: u32 = 200;
/// An operation hands over within so many ticks: about what the shortest ones take, so that hardly one runs alone.
const TICKS_IN_OPERATION: u64 = 3;
/// And again within so many: long operations, and those that wait for a lock.
const TICKS_AFTERWARDS: u64 = 100;
/// Nobody has the baton.
const NOBODY: usize = usize::MAX;

thread_local! {
    /// The baton that this thread runs under.
    static MINE: RefCell<Option<Mine>> = const { RefCell::new(None) };
}

/// A thread's part in a baton.
struct Mine {
    baton: Arc<Baton>,
    me: usize,
    rng: Rng,
    /// Ticks until it hands over.
    left: u64,
}

/// Whose turn it is.
#[derive(Debug)]
pub struct Baton {
    holder: AtomicUsize,
    /// One bit for each thread that still runs.
    running: AtomicU64,
    /// Times that the baton was handed over.
    passes: AtomicU64,
    /// Times that it was taken because nobody handed it over.
    stalls: AtomicU64,
    seed: u64,
    threads: Vec<OnceLock<Thread>>,
    /// Operations that each thread has begun.
    begun: Vec<AtomicU64>,
}

impl Baton {
    /// A baton for `threads` threads (at most 64); the first turn and all others follow from `seed`.
    #[must_use]
    pub fn new(seed: u64, threads: usize) -> Arc<Self> {
        assert!((1..=64).contains(&threads), "{threads} threads cannot share a baton");
        Arc::new(Self {
            holder: AtomicUsize::new(mix(seed) as usize % threads),
            running: AtomicU64::new(u64::MAX >> (64 - threads)),
            passes: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            seed,
            threads: (0..threads).map(|_| OnceLock::new()).collect(),
            begun: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Runs `work` as thread number `me`, in turns with the others.
    pub fn take_turns(self: &Arc<Self>, me: usize, work: impl FnOnce()) {
        // Set once: a baton serves one round of threads.
        let _ = self.threads[me].set(std::thread::current());
        let mine =
            Mine { baton: Arc::clone(self), me, rng: Rng::fork(self.seed, me as u64), left: 1 };
        MINE.with(|place| *place.borrow_mut() = Some(mine));
        self.await_turn(me);
        let _leave = Leave { baton: self, me };
        work();
    }

    /// Times that a waiting thread went on because nobody handed over.
    #[must_use]
    pub fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }

    fn pass(&self, me: usize) {
        if self.holder.load(Ordering::Acquire) == me {
            let next = self.next(me);
            if next == me {
                return;
            }
            self.hand_to(next);
        }
        self.await_turn(me);
    }

    /// A running thread but `me`, or `me` if there is none: mostly the one that has begun the fewest operations, so
    /// that none is left to end alone.
    fn next(&self, me: usize) -> usize {
        let running = self.running.load(Ordering::Acquire) & !(1 << me);
        let others = || (0..self.threads.len()).filter(move |other| running & (1 << other) != 0);
        let draw = mix(self.seed ^ self.passes.load(Ordering::Relaxed));
        let tie = |other: usize| mix(draw ^ other as u64);
        let next = if draw.is_multiple_of(4) {
            others().min_by_key(|&other| tie(other))
        } else {
            others().min_by_key(|&other| (self.begun[other].load(Ordering::Relaxed), tie(other)))
        };
        next.unwrap_or(me)
    }

    fn hand_to(&self, next: usize) {
        self.passes.fetch_add(1, Ordering::Relaxed);
        // Release: the next thread sees everything that this one did.
        self.holder.store(next, Ordering::Release);
        if let Some(thread) = self.threads.get(next).and_then(OnceLock::get) {
            thread.unpark();
        }
    }

    fn await_turn(&self, me: usize) {
        for _ in 0..SPINS {
            if self.holder.load(Ordering::Acquire) == me {
                return;
            }
            std::hint::spin_loop();
        }
        let mut passes = self.passes.load(Ordering::Relaxed);
        let mut since = Instant::now();
        loop {
            // May return at once for a baton that was seen before it was handed over.
            std::thread::park_timeout(STALL);
            if self.holder.load(Ordering::Acquire) == me {
                return;
            }
            let now = self.passes.load(Ordering::Relaxed);
            if now != passes {
                (passes, since) = (now, Instant::now());
            } else if since.elapsed() >= STALL {
                self.stalls.fetch_add(1, Ordering::Relaxed);
                self.hand_to(me);
                return;
            }
        }
    }
}

/// Ends a thread's turns, also when it panics.
struct Leave<'a> {
    baton: &'a Baton,
    me: usize,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        MINE.with(|mine| mine.borrow_mut().take());
        self.baton.running.fetch_and(!(1 << self.me), Ordering::AcqRel);
        if self.baton.holder.load(Ordering::Acquire) == self.me {
            let next = self.baton.next(self.me);
            self.baton.hand_to(if next == self.me { NOBODY } else { next });
        }
    }
}

/// Begins an operation of the calling thread: it will hand over after a few of its [`tick`]s.
pub fn begin() {
    MINE.with(|mine| {
        if let Some(mine) = &mut *mine.borrow_mut() {
            mine.left = 1 + mine.rng.below(TICKS_IN_OPERATION);
            mine.baton.begun[mine.me].fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Counts one step of an operation, and hands over when the time has come. Without a baton it gives up the processor.
pub fn tick() {
    let due = MINE.with(|mine| match &mut *mine.borrow_mut() {
        None => true,
        Some(mine) => {
            mine.left = mine.left.saturating_sub(1);
            if mine.left == 0 {
                mine.left = 1 + mine.rng.below(TICKS_AFTERWARDS);
                return true;
            }
            false
        }
    });
    if due {
        pass();
    }
}

/// Hands over to another thread, where the calling thread runs under a baton; else gives up the processor.
pub fn pass() {
    let mine =
        MINE.with(|mine| mine.borrow().as_ref().map(|mine| (Arc::clone(&mine.baton), mine.me)));
    match mine {
        Some((baton, me)) => baton.pass(me),
        None => std::thread::yield_now(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::pool::{Pool, lock};

    fn interleaving(seed: u64) -> Vec<usize> {
        let pool = Pool::new(3);
        let (baton, order) = (Baton::new(seed, 3), Arc::new(Mutex::new(Vec::new())));
        let (shared, log) = (Arc::clone(&baton), Arc::clone(&order));
        let turns = move |me| {
            shared.take_turns(me, || {
                for _ in 0..20 {
                    lock(&log).push(me);
                    pass();
                }
            });
        };
        assert_eq!(pool.run(Arc::new(turns)), Ok(()));
        let order = lock(&order).clone();
        assert_eq!(order.len(), 60);
        if baton.stalls() == 0 { order } else { Vec::new() }
    }

    #[test]
    fn threads_interleave_as_the_seed_says() {
        // A busy machine may stall a thread, and then the order is not the seed's.
        let undisturbed =
            |seed| (0..50).map(|_| interleaving(seed)).find(|order| !order.is_empty());
        let (one, other) = (undisturbed(1), undisturbed(1));
        assert_eq!(one, other);
        let switches = one.map(|order| order.windows(2).filter(|pair| pair[0] != pair[1]).count());
        assert!(switches.is_none_or(|switches| switches > 30), "{switches:?}");
    }

    #[test]
    fn a_stopped_lock_holder_does_not_stop_the_others_for_ever() {
        let pool = Pool::new(2);
        let (baton, shared) = (Baton::new(1, 2), Arc::new(Mutex::new(0)));
        let (turns, counter) = (Arc::clone(&baton), Arc::clone(&shared));
        let work = move |me| {
            turns.take_turns(me, || {
                for _ in 0..5 {
                    let mut held = lock(&counter);
                    pass();
                    *held += 1;
                }
            });
        };
        assert_eq!(pool.run(Arc::new(work)), Ok(()));
        assert_eq!(*lock(&shared), 10);
    }
}
