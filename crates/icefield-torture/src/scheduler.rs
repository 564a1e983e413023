//! A scheduler for deterministic interleavings: one thread runs at a time, and passes the turn to another at moments
//! drawn from a seed.
//!
//! On few processors, real threads rarely overlap inside operations of a microsecond, and the operating system
//! decides when. Here the seed determines a fine interleaving. A thread that is suspended while it holds an operating
//! system lock could block all others forever. Therefore a waiting thread takes the turn itself after a timeout;
//! then two threads run at once, which is allowed.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::rng::{Rng, mix};

/// Time without a hand-over after which a waiting thread takes the turn.
const STALL: Duration = Duration::from_micros(500);
/// Number of checks of the turn before a waiting thread parks.
const SPINS: u32 = 200;
/// Maximum ticks from the start of an operation to its hand-over. The shortest operations take about as many, so that
/// few operations run without interruption.
const TICKS_IN_OPERATION: u64 = 3;
/// Maximum ticks to each further hand-over, for long operations and those that wait for a lock.
const TICKS_AFTERWARDS: u64 = 100;
/// The value of `holder` while no thread holds the turn.
const NOBODY: usize = usize::MAX;

thread_local! {
    /// The scheduler under which this thread runs.
    static MINE: RefCell<Option<Mine>> = const { RefCell::new(None) };
}

/// A thread's own state under a scheduler.
struct Mine {
    scheduler: Arc<Scheduler>,
    me: usize,
    rng: Rng,
    /// Ticks until the next hand-over.
    left: u64,
}

/// The shared state of the threads that take turns.
#[derive(Debug)]
pub struct Scheduler {
    holder: AtomicUsize,
    /// A bit for each thread that has not finished.
    running: AtomicU64,
    /// Number of hand-overs.
    passes: AtomicU64,
    /// Number of times that a waiting thread took the turn after the timeout.
    stalls: AtomicU64,
    seed: u64,
    threads: Vec<OnceLock<Thread>>,
    /// Operations that each thread has started.
    begun: Vec<AtomicU64>,
}

impl Scheduler {
    /// Creates a scheduler for `threads` threads (at most 64). `seed` determines the first turn and all others.
    #[must_use]
    pub fn new(seed: u64, threads: usize) -> Arc<Self> {
        assert!((1..=64).contains(&threads), "{threads} threads cannot share a scheduler");
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

    /// Runs `work` as thread number `me`, in turns with the other threads.
    pub fn take_turns(self: &Arc<Self>, me: usize, work: impl FnOnce()) {
        // `set` cannot fail: a scheduler runs each thread number only once.
        let _ = self.threads[me].set(std::thread::current());
        let mine =
            Mine { scheduler: Arc::clone(self), me, rng: Rng::fork(self.seed, me as u64), left: 1 };
        MINE.with(|place| *place.borrow_mut() = Some(mine));
        self.await_turn(me);
        let _leave = Leave { scheduler: self, me };
        work();
    }

    /// Returns how often a waiting thread took the turn after the timeout.
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

    /// Selects a running thread other than `me`, or `me` if there is none. Mostly it is the thread that has started
    /// the fewest operations, so that no thread is left to finish alone.
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
            // `park_timeout` may return immediately, because of the `unpark` of an earlier hand-over: the thread saw
            // that it was the holder, and continued, before that `unpark` arrived.
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

/// Ends a thread's participation, also when the thread panics.
struct Leave<'a> {
    scheduler: &'a Scheduler,
    me: usize,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        MINE.with(|mine| mine.borrow_mut().take());
        self.scheduler.running.fetch_and(!(1 << self.me), Ordering::AcqRel);
        if self.scheduler.holder.load(Ordering::Acquire) == self.me {
            let next = self.scheduler.next(self.me);
            self.scheduler.hand_to(if next == self.me { NOBODY } else { next });
        }
    }
}

/// Marks the start of an operation of the calling thread, which then hands over after a few [`tick`]s.
pub fn begin() {
    MINE.with(|mine| {
        if let Some(mine) = &mut *mine.borrow_mut() {
            mine.left = 1 + mine.rng.below(TICKS_IN_OPERATION);
            mine.scheduler.begun[mine.me].fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Counts one step of an operation and hands over to another thread if that is due. Without a scheduler, yields the
/// processor.
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

/// Hands over to another thread. Without a scheduler, yields the processor.
pub fn pass() {
    let mine =
        MINE.with(|mine| mine.borrow().as_ref().map(|mine| (Arc::clone(&mine.scheduler), mine.me)));
    match mine {
        Some((scheduler, me)) => scheduler.pass(me),
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
        let (scheduler, order) = (Scheduler::new(seed, 3), Arc::new(Mutex::new(Vec::new())));
        let (shared, log) = (Arc::clone(&scheduler), Arc::clone(&order));
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
        if scheduler.stalls() == 0 { order } else { Vec::new() }
    }

    #[test]
    fn threads_interleave_as_the_seed_says() {
        // On a busy machine a thread may time out; the order then differs from that of the seed.
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
        let (scheduler, shared) = (Scheduler::new(1, 2), Arc::new(Mutex::new(0)));
        let (turns, counter) = (Arc::clone(&scheduler), Arc::clone(&shared));
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
