use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use super::*;
use crate::Error;
use crate::base::parallel::Tasks;

/// Returns the number of this process's threads with a name.
fn threads_named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read(task.unwrap().path().join("comm")).ok());
    names.filter(|found| found.trim_ascii_end() == name.as_bytes()).count()
}

/// Waits until the condition is true, which takes at most seconds on a busy machine.
fn wait_until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "the condition stays false");
        std::thread::yield_now();
    }
}

/// Returns the sum of the numbers below `count`, and of the calls of `at_task`.
fn sum(workers: Workers<'_>, count: usize, at_task: impl Fn(usize) -> usize + Sync) -> usize {
    let tasks = Tasks::new(count);
    let sums = workers.run(workers.threads(), || {
        let mut sum = 0;
        while let Some(task) = tasks.take() {
            sum += task + at_task(task);
        }
        Ok(sum)
    });
    sums.unwrap().into_iter().sum()
}

/// Runs work that waits until `threads` threads take part in it, and returns the number of results.
fn meet(pool: &ThreadPool, threads: usize) -> usize {
    let barrier = Barrier::new(threads);
    let met = pool.workers(threads).run(threads, || {
        barrier.wait();
        Ok(())
    });
    met.unwrap().len()
}

#[test]
fn every_task_is_done_once() {
    for threads in [0, 1, 2, 5] {
        let pool = ThreadPool::new("pool-once");
        for _ in 0..if cfg!(miri) { 3 } else { 200 } {
            assert_eq!(sum(pool.workers(threads), 100, |_| 0), 99 * 50);
        }
    }
}

#[test]
fn all_threads_take_part() {
    let pool = ThreadPool::new("pool-all");
    for threads in [2, 4, 3] {
        assert_eq!(meet(&pool, threads), threads);
    }
}

#[test]
fn an_error_is_returned() {
    let pool = ThreadPool::new("pool-error");
    let failed = pool.workers(3).run(3, || -> Result<()> { Err(Error::Full) });
    assert!(matches!(failed, Err(Error::Full)));
    // The error of a worker alone.
    let (caller, barrier) = (std::thread::current().id(), Barrier::new(2));
    let failed = pool.workers(2).run(2, || {
        barrier.wait();
        if std::thread::current().id() == caller { Ok(()) } else { Err(Error::Full) }
    });
    assert!(matches!(failed, Err(Error::Full)));
}

#[test]
fn panics_reach_the_caller_when_all_have_finished() {
    let pool = ThreadPool::new("pool-panic");
    let caller = std::thread::current().id();
    for on_caller in [true, false] {
        let (barrier, inside) = (Barrier::new(3), AtomicUsize::new(0));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pool.workers(3).run(3, || {
                inside.fetch_add(1, SeqCst);
                barrier.wait();
                if (std::thread::current().id() == caller) == on_caller {
                    inside.fetch_sub(1, SeqCst);
                    std::panic::panic_any(7);
                }
                std::thread::sleep(Duration::from_millis(20));
                inside.fetch_sub(1, SeqCst);
                // A panic takes precedence over an error.
                Err::<(), _>(Error::Full)
            })
        }));
        assert_eq!(inside.load(SeqCst), 0);
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&7));
        assert_eq!(meet(&pool, 3), 3);
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads /proc")]
fn threads_start_when_needed_and_end_with_the_pool() {
    const NAME: &str = "pool-lifetime";
    let pool = ThreadPool::new(NAME);
    assert_eq!(sum(pool.workers(1), 10, |_| 0), 45);
    assert_eq!(pool.workers(8).run(1, || Ok(1)).unwrap(), [1]);
    assert_eq!(threads_named(NAME), 0);
    for _ in 0..3 {
        assert_eq!(meet(&pool, 4), 4);
        assert_eq!(threads_named(NAME), 3);
    }
    assert_eq!(meet(&pool, 2), 2);
    assert_eq!(threads_named(NAME), 3);
    drop(pool);
    // A thread can be joined shortly before the system removes it from the list.
    wait_until(|| threads_named(NAME) == 0);
}

#[test]
fn callers_share_the_workers() {
    let rounds = if cfg!(miri) { 3 } else { 300 };
    let pool = ThreadPool::new("pool-shared");
    std::thread::scope(|scope| {
        for caller in 0..4_usize {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..rounds {
                    let count = (caller * 31 + round) % 50;
                    let expected = count * count.saturating_sub(1) / 2;
                    assert_eq!(sum(pool.workers(3), count, |_| 0), expected);
                }
            });
        }
    });
    let state = pool.shared.lock();
    assert!(state.jobs.is_empty() && state.workers.len() <= 2);
}

/// The only worker is busy with another call. The caller does not wait for it.
#[test]
fn a_caller_does_not_wait_for_a_busy_worker() {
    let pool = ThreadPool::new("pool-busy");
    let (pool, begun, end) = (&pool, Barrier::new(3), Barrier::new(2));
    std::thread::scope(|scope| {
        let first = || {
            let caller = std::thread::current().id();
            let work = || {
                begun.wait();
                if std::thread::current().id() != caller {
                    end.wait();
                }
                Ok(())
            };
            pool.workers(2).run(2, work).unwrap().len()
        };
        let first = scope.spawn(first);
        begun.wait();
        assert_eq!(sum(pool.workers(2), 100, |_| 0), 99 * 50);
        end.wait();
        assert_eq!(first.join().unwrap(), 2);
    });
}

#[test]
fn functions_may_use_the_same_pool() {
    let rounds = if cfg!(miri) { 1 } else { 50 };
    let pool = ThreadPool::new("pool-nested");
    let deepest = |_| 1;
    let deeper = |task| sum(pool.workers(4), task, deepest);
    for _ in 0..rounds {
        // The sum of `n`, and for each task `n` the sum of the numbers below it and its number of tasks.
        let expected: usize = (0..20_usize).map(|n| n + n * n.saturating_sub(1) / 2 + n).sum();
        assert_eq!(sum(pool.workers(4), 20, deeper), expected);
    }
}

/// A forked child has no workers, even if a thread of the parent holds the lock.
#[test]
#[cfg_attr(miri, ignore = "forks")]
fn a_forked_child_works_alone() {
    let [used, unused] = [(); 2].map(|()| ThreadPool::new("pool-forked"));
    assert_eq!(meet(&used, 3), 3);
    let shared = Arc::clone(&used.shared);
    let held = shared.lock();
    let mut used = Some(used);
    // SAFETY: the child uses these pools, starts threads and exits.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let is_correct = catch_unwind(AssertUnwindSafe(|| {
            let used = used.take().unwrap();
            let is_alone = used.workers(3).run(3, || Ok(1)).unwrap() == [1];
            drop(used);
            is_alone && sum(unused.workers(2), 100, |_| 0) == 99 * 50 && meet(&unused, 2) == 2
        }));
        // SAFETY: ends the child without the exit handlers of the test harness.
        unsafe { libc::_exit(i32::from(!is_correct.unwrap_or(false))) };
    }
    drop(held);
    let (mut status, started) = (0, Instant::now());
    // SAFETY: queries a child of this process.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if started.elapsed() > Duration::from_secs(60) {
            // SAFETY: ends the child, which hangs.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
    assert_eq!(meet(&used.unwrap(), 3), 3);
}

/// Data that workers use is alive until the call returns, although the caller finishes first.
#[test]
fn a_call_returns_after_its_workers() {
    let pool = ThreadPool::new("pool-borrow");
    let caller = std::thread::current().id();
    for _ in 0..if cfg!(miri) { 2 } else { 20 } {
        let (barrier, done) = (Barrier::new(2), AtomicBool::new(false));
        let work = || {
            barrier.wait();
            if std::thread::current().id() != caller {
                std::thread::sleep(Duration::from_millis(1));
                done.store(true, SeqCst);
            }
            Ok(())
        };
        pool.workers(2).run(2, work).unwrap();
        assert!(done.load(SeqCst));
    }
}
