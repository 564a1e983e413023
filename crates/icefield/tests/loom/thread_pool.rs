//! The thread pool: each task is done once, a call returns after its workers, with their results visible, and no thread
//! waits forever (a model whose threads wait forever is an error).

use icefield::Result;
use icefield::base::sync::{AtomicBool, AtomicU64, Ordering};
use icefield::base::thread_pool::{ThreadPool, Workers};
use loom::sync::Arc;
use loom::thread;

/// The data of a call, which its workers borrow.
struct Borrowed {
    /// `true` when the call has returned.
    is_gone: AtomicBool,
    next: AtomicU64,
    /// Number of times that each task has been done. Each is changed by a load and a store.
    done: [AtomicU64; 2],
}

// All accesses are Relaxed, because the pool must provide the ordering.
impl Borrowed {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { is_gone: AtomicBool::new(false), next: zero(), done: [zero(), zero()] }
    }

    /// Does tasks until none is left. `at_task` is called in each of them.
    fn work(&self, at_task: impl Fn()) -> Result<u64> {
        let mut count = 0;
        assert!(!self.is_gone.load(Ordering::Relaxed), "used after the call");
        while let Some(task) = self.done.get(self.next.fetch_add(1, Ordering::Relaxed) as usize) {
            at_task();
            task.store(task.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            count += 1;
        }
        assert!(!self.is_gone.load(Ordering::Relaxed), "used after the call");
        Ok(count)
    }

    fn check(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
        for task in &self.done {
            assert_eq!(task.load(Ordering::Relaxed), 1);
        }
    }
}

/// Makes a call with two threads, and checks it. The data outlives the call, so that a late worker is detected.
fn call(workers: Workers<'_>, at_task: impl Fn() + Sync) -> Arc<Borrowed> {
    let borrowed = Arc::new(Borrowed::new());
    let counts = workers.run(2, || borrowed.work(&at_task)).unwrap();
    assert_eq!(counts.into_iter().sum::<u64>(), 2);
    borrowed.check();
    borrowed
}

fn explore(preemptions: usize, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 100_000;
    builder.check(model);
}

#[test]
fn a_call_returns_after_its_worker() {
    explore(5, || {
        let pool = ThreadPool::new("model");
        let borrowed = call(pool.workers(2), || ());
        drop(pool);
        drop(borrowed);
    });
}

/// The worker of the first call may be waiting, or about to wait, when the second call begins.
#[test]
fn a_worker_runs_one_call_after_another() {
    explore(4, || {
        let pool = ThreadPool::new("model");
        let borrowed = [(); 2].map(|()| call(pool.workers(2), || ()));
        drop(pool);
        drop(borrowed);
    });
}

/// Lets two threads call a pool with this number of workers.
fn two_callers(workers: usize) {
    let pool = Arc::new(ThreadPool::new("model"));
    let other = Arc::clone(&pool);
    let other = thread::spawn(move || call(other.workers(1 + workers), || ()));
    let borrowed = call(pool.workers(1 + workers), || ());
    let borrowed = [borrowed, other.join().unwrap()];
    drop(pool);
    drop(borrowed);
}

#[test]
fn two_callers_share_a_worker() {
    explore(3, || two_callers(1));
}

/// Both callers may wait for their workers at the same time.
#[test]
fn two_callers_have_two_workers() {
    explore(3, || two_callers(2));
}

#[test]
fn a_function_may_use_the_pool() {
    explore(4, || {
        let pool = ThreadPool::new("model");
        let borrowed = call(pool.workers(2), || drop(call(pool.workers(2), || ())));
        drop(pool);
        drop(borrowed);
    });
}
