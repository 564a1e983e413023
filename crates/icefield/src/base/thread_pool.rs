//! Threads that wait for work which their callers share with them.
//!
//! Waking a thread that waits takes a quarter of the time of starting and joining one. A pool belongs to an object whose
//! operations are short and use several threads, such as an opened index. It starts threads when an operation needs
//! them, and ends them when it is dropped. Builds and merges, which run rarely, use `parallel::in_parallel` instead.
//!
//! # Protocol
//!
//! One mutex protects the list of jobs. A job is a function and a number of free places. The steps of a call:
//!
//! 1. The caller adds a job with a place for each worker that may help, wakes idle workers, and starts workers if there
//!    are too few.
//! 2. The caller does its own part of the work. Meanwhile, each worker that finds a free place takes it and runs the
//!    function.
//! 3. As soon as the caller or a worker has finished, no task is left, so the job's free places are removed.
//! 4. The caller waits until the workers that have taken a place have finished, and removes the job.
//!
//! I1: a worker runs a function only before step 4 of the function's call has ended, so what the function borrows is
//! alive.
//!
//! A caller waits only for workers that run its function. It does not wait for a worker that has not woken yet, that is
//! busy with another call, or that the system has refused to start. So a function may use the same pool: its call adds a
//! job that is newer than its own. A thread then waits only for threads that run newer jobs than its own, and no cycle
//! of waiting threads is possible.
//!
//! # Forks
//!
//! A forked child has none of the threads, and a thread of the parent may have held the mutex at the moment of the
//! fork. So a child does not touch the state of a pool that its parent has used, and its calls run on one thread. A pool
//! that the parent has not used works in the child as in any process. A child that is forked while a function runs must
//! not return from the function.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use super::sync::{Condvar, JoinHandle, Mutex, MutexGuard, ThreadBuilder};
use crate::Result;

/// A pool of threads. See the module documentation.
pub struct ThreadPool {
    shared: Arc<Shared>,
    /// The id of the process that uses `shared`; 0 before the first use.
    process: AtomicU32,
}

/// A pool, and the number of its threads that an operation may use.
#[derive(Clone, Copy, Debug)]
pub struct Workers<'a> {
    pool: &'a ThreadPool,
    threads: usize,
}

/// The part of a pool that its threads refer to.
struct Shared {
    state: Mutex<State>,
    /// Signalled when a job has free places, and when the pool is dropped.
    wake: Condvar,
    /// Signalled when the last worker of a job has finished.
    finished: Condvar,
    /// The name of the threads.
    name: &'static str,
}

struct State {
    /// The jobs of present calls, the oldest first.
    jobs: Vec<Job>,
    /// The number of all jobs so far, which is the id of the next one.
    count: u64,
    workers: Vec<JoinHandle<()>>,
    /// `true` if the pool is being dropped.
    closed: bool,
}

struct Job {
    id: u64,
    function: &'static (dyn Fn() + Sync),
    /// Number of workers that may still start to run the function.
    places: usize,
    /// Number of workers that run the function.
    running: usize,
}

impl std::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadPool").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl ThreadPool {
    /// Returns a pool without threads. Its threads will have this name.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        let state = State { jobs: Vec::new(), count: 0, workers: Vec::new(), closed: false };
        let (wake, finished) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { state: Mutex::new(state), wake, finished, name });
        Self { shared, process: AtomicU32::new(0) }
    }

    /// Returns the threads for an operation that may use `threads` threads, including the caller's.
    #[must_use]
    pub fn workers(&self, threads: usize) -> Workers<'_> {
        Workers { pool: self, threads }
    }

    /// Returns `false` in a forked child of a process that has used the pool.
    fn claim(&self) -> bool {
        let own = std::process::id();
        // Relaxed: no other data depends on the id. All threads of a process store the same one.
        match self.process.compare_exchange(0, own, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(process) => process == own,
        }
    }
}

impl Workers<'_> {
    /// Returns the number of threads that the operation may use, including the caller's.
    #[inline]
    #[must_use]
    pub fn threads(self) -> usize {
        self.threads
    }

    /// Runs `work` on the calling thread and on at most `threads - 1` others, and returns all results. Fewer threads run
    /// it if the system starts no more, if some are busy with other calls, or if one has finished before they start. So
    /// `work` must take tasks from a `parallel::Tasks` until none is left.
    ///
    /// # Errors
    /// One of the errors that `work` returned.
    ///
    /// # Panics
    /// If `work` panics on any thread, after all of them have finished.
    #[inline]
    pub fn run<T: Send>(
        self,
        threads: usize,
        work: impl Fn() -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let threads = threads.min(self.threads);
        if threads <= 1 || !self.pool.claim() {
            return Ok(vec![work()?]);
        }
        let results = Mutex::new(Vec::with_capacity(threads - 1));
        let function = || {
            // A panic continues in the calling thread, which does not use the data that the function has changed.
            let result = catch_unwind(AssertUnwindSafe(&work));
            results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
        };
        let own = self.pool.shared.run(threads - 1, self.threads - 1, &function, &work);
        let others = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        let others = others.into_iter().map(|it| it.unwrap_or_else(|panic| resume_unwind(panic)));
        // All results are examined before the first error is returned, because there may be a panic among them.
        let results: Vec<Result<T>> = std::iter::once(own).chain(others).collect();
        results.into_iter().collect()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The lock is not held while a function runs, and its holders do not panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `own` on this thread and meanwhile `function` on up to `places` workers. At most `limit` workers are started
    /// in all.
    fn run<R>(
        self: &Arc<Self>,
        places: usize,
        limit: usize,
        function: &(dyn Fn() + Sync),
        own: impl FnOnce() -> R,
    ) -> R {
        // SAFETY: only the lifetime changes. Workers call the function only after `add` and before `_call` has been
        // dropped (I1). Both happen in this call, even if it unwinds, because `add` cannot panic after it has added the
        // job. So the borrow of the function outlives each of its calls.
        let function = unsafe {
            std::mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(function)
        };
        let _call = Call { shared: self, id: self.add(function, places) };
        self.call_workers(places, limit);
        own()
    }

    /// Adds a job (step 1); returns its id.
    fn add(&self, function: &'static (dyn Fn() + Sync), places: usize) -> u64 {
        let mut state = self.lock();
        let id = state.count;
        state.count += 1;
        state.jobs.push(Job { id, function, places, running: 0 });
        id
    }

    /// Wakes workers for `places` places, and starts workers if the jobs have more free places than workers are idle.
    fn call_workers(self: &Arc<Self>, places: usize, limit: usize) {
        let mut state = self.lock();
        let (mut free, mut idle) = (0, state.workers.len());
        for job in &state.jobs {
            free += job.places;
            idle -= job.running;
        }
        for _ in idle..free {
            if state.workers.len() >= limit {
                break;
            }
            let shared = Arc::clone(self);
            let thread = ThreadBuilder::new().name(self.name.to_owned());
            // The system may refuse. Then there are fewer workers, and the next call tries again.
            let Ok(worker) = thread.spawn(move || shared.serve()) else { break };
            state.workers.push(worker);
        }
        drop(state);
        // A worker that does not wait yet looks for a job before it does. So no wake-up is lost.
        for _ in 0..places.min(idle) {
            self.wake.notify_one();
        }
    }

    /// Runs jobs until the pool is dropped.
    fn serve(&self) {
        while let Some((id, function)) = self.take_place() {
            let _run = Run { shared: self, id };
            function();
        }
    }

    /// Waits for a job with a free place and takes the place (step 2). Returns `None` when the pool is dropped.
    fn take_place(&self) -> Option<(u64, &'static (dyn Fn() + Sync))> {
        let mut state = self.lock();
        while !state.closed {
            if let Some(job) = state.jobs.iter_mut().find(|job| job.places > 0) {
                job.places -= 1;
                job.running += 1;
                return Some((job.id, job.function));
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }
}

impl State {
    /// Removes the free places of a job (step 3), and `finished` of the workers that run it. Returns the number of the
    /// others that run it.
    fn close_job(&mut self, id: u64, finished: usize) -> usize {
        let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) else { return 0 };
        job.places = 0;
        job.running -= finished;
        job.running
    }
}

/// A call whose job is in the list. Dropping it performs steps 3 and 4.
struct Call<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        while state.close_job(self.id, 0) > 0 {
            state = self.shared.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.jobs.retain(|job| job.id != self.id);
    }
}

/// A place that a worker has taken. When it is dropped, the worker has finished (step 3).
struct Run<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // The lock is released at the end of this statement.
        let others = self.shared.lock().close_job(self.id, 1);
        if others == 0 {
            // All, because several callers may wait.
            self.shared.finished.notify_all();
        }
    }
}

impl Drop for ThreadPool {
    /// Waits until the threads have ended. They are idle, because calls borrow the pool. For the same reason, this never
    /// runs on a thread of the pool, where it would wait forever: while a worker runs a function, the function's caller
    /// borrows the pool, and the worker's thread-locals are dropped when the drop of the pool has begun elsewhere.
    fn drop(&mut self) {
        if *self.process.get_mut() != std::process::id() {
            // The pool was never used, or this is a forked child. In a child, the threads' references to `shared` keep
            // the handles from being dropped.
            return;
        }
        let mut state = self.shared.lock();
        state.closed = true;
        let workers = std::mem::take(&mut state.workers);
        drop(state);
        self.shared.wake.notify_all();
        for worker in workers {
            // A worker does not panic, because functions catch panics.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests;
