//! A pool of permanent threads, for scenarios with a hundred thousand tiny concurrent histories: starting threads for
//! each history would take too long.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::failure::panic_text;

/// The work of the pool's threads; the argument is the thread's index.
pub type Job = Arc<dyn Fn(usize) + Send + Sync>;

/// A pool of threads that run the same job at the same time.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Incremented for each job; threads wait for it to change.
    round: AtomicU64,
    job: Mutex<Option<Job>>,
    /// Threads that have reached the start barrier.
    ready: AtomicUsize,
    finished: AtomicUsize,
    panics: Mutex<Vec<String>>,
    ending: AtomicBool,
}

/// Locks a mutex whose data remains valid if a thread panics while holding it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `done` returns true. Spins first, because the pauses between jobs are short.
fn wait_until(done: impl Fn() -> bool) {
    for round in 0_u32.. {
        if done() {
            return;
        }
        match round {
            0..50 => std::hint::spin_loop(),
            50..5000 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

impl Shared {
    fn work(&self, index: usize, threads: usize) {
        let mut round = 0;
        loop {
            wait_until(|| self.round.load(Ordering::Acquire) != round);
            round += 1;
            if self.ending.load(Ordering::Acquire) {
                return;
            }
            let job = lock(&self.job).clone();
            self.ready.fetch_add(1, Ordering::AcqRel);
            wait_until(|| self.ready.load(Ordering::Acquire) == threads);
            if let Some(job) = job
                && let Err(payload) = catch_unwind(AssertUnwindSafe(|| job(index)))
            {
                lock(&self.panics).push(panic_text(payload.as_ref()));
            }
            self.finished.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Pool {
    /// Starts a pool of `threads` threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let spawn = |index| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.work(index, threads))
        };
        let threads = (0..threads).map(spawn).collect();
        Self { shared, threads }
    }

    /// Returns the number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Runs `job` on every thread, with a common start, and waits for all of them.
    ///
    /// # Errors
    /// Returns the messages of threads that panicked.
    pub fn run(&self, job: Job) -> Result<(), String> {
        let shared = &self.shared;
        *lock(&shared.job) = Some(job);
        shared.ready.store(0, Ordering::Release);
        shared.finished.store(0, Ordering::Release);
        shared.round.fetch_add(1, Ordering::AcqRel);
        wait_until(|| shared.finished.load(Ordering::Acquire) == self.threads.len());
        lock(&shared.job).take();
        let panics = std::mem::take(&mut *lock(&shared.panics));
        if panics.is_empty() { Ok(()) } else { Err(format!("panicked: {}", panics.join("; "))) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Release);
        self.shared.round.fetch_add(1, Ordering::AcqRel);
        for thread in self.threads.drain(..) {
            // `run` has reported a panicking job, and a thread has no other reason to end early.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_runs_every_job_once() {
        let pool = Pool::new(3);
        let sum = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            let sum = Arc::clone(&sum);
            let job: Job = Arc::new(move |index| {
                sum.fetch_add(index + 1, Ordering::Relaxed);
            });
            assert_eq!(pool.run(job), Ok(()));
        }
        assert_eq!(sum.load(Ordering::Relaxed), 600);
    }

    #[test]
    fn a_panic_is_reported_and_the_pool_goes_on() {
        let pool = Pool::new(2);
        let result = pool.run(Arc::new(|index| assert!(index == 0, "planted")));
        assert!(result.is_err_and(|what| what.contains("planted")));
        assert_eq!(pool.run(Arc::new(|_| ())), Ok(()));
    }
}
