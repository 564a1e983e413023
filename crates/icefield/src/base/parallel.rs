//! Work that several threads share in small tasks.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::Result;

/// Runs `work` on this thread and `threads - 1` others, and returns all results, or the first error. If the system
/// creates fewer threads, fewer run, so `work` should take tasks from a [`Tasks`] until none is left.
pub(crate) fn in_parallel<T: Send>(
    threads: usize,
    work: impl Fn() -> Result<T> + Sync,
) -> Result<Vec<T>> {
    if threads <= 1 {
        return Ok(vec![work()?]);
    }
    let results: Vec<Result<T>> = std::thread::scope(|scope| {
        let spawned: Vec<_> = (1..threads)
            .map_while(|_| std::thread::Builder::new().spawn_scoped(scope, &work).ok())
            .collect();
        let mut results = vec![work()];
        for thread in spawned {
            // A panic in `work` continues in the calling thread.
            results.push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    });
    results.into_iter().collect()
}

/// Calls `visit` with ranges of `at_a_time` numbers that together cover `0..count`, on at most `threads` threads, each of
/// which gets at least `each` numbers. Returns the first error; other threads finish their ranges.
pub(crate) fn each_range(
    threads: usize,
    count: usize,
    (at_a_time, each): (usize, usize),
    visit: impl Fn(Range<usize>) -> Result<()> + Sync,
) -> Result<()> {
    let tasks = Tasks::new(count.div_ceil(at_a_time));
    in_parallel(threads_for(threads, count, each), || {
        while let Some(task) = tasks.take() {
            let first = task * at_a_time;
            visit(first..(first + at_a_time).min(count))?;
        }
        Ok(())
    })
    .map(drop)
}

/// Runs both functions, in parallel if `threads` is greater than 1.
pub(crate) fn both<A: Send, B>(
    threads: usize,
    one: impl Fn() -> A + Sync,
    other: impl FnOnce() -> B,
) -> (A, B) {
    std::thread::scope(|scope| {
        let spawn = || std::thread::Builder::new().spawn_scoped(scope, &one).ok();
        let spawned = if threads > 1 { spawn() } else { None };
        let other = other();
        let one = match spawned {
            Some(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            None => one(),
        };
        (one, other)
    })
}

/// Hands out task numbers, each of them once.
pub(crate) struct Tasks {
    next: AtomicUsize,
    count: usize,
}

impl Tasks {
    pub(crate) fn new(count: usize) -> Self {
        Self { next: AtomicUsize::new(0), count }
    }

    pub(crate) fn take(&self) -> Option<usize> {
        // Relaxed: only the number itself matters.
        let next = self.next.fetch_add(1, Relaxed);
        (next < self.count).then_some(next)
    }
}

/// Returns the number of threads that can run in parallel on this machine.
pub(crate) fn all_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns how many of `threads` to use for `work` units of work, so that each thread gets at least `each` units.
pub(crate) fn threads_for(threads: usize, work: usize, each: usize) -> usize {
    threads.min(work / each.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn every_task_is_done_once() {
        for threads in [1, 2, 5] {
            let tasks = Tasks::new(1000);
            let done = in_parallel(threads, || {
                let mut sum = 0;
                while let Some(task) = tasks.take() {
                    sum += task;
                }
                Ok(sum)
            });
            assert_eq!(done.unwrap().iter().sum::<usize>(), 999 * 1000 / 2);
        }
    }

    #[test]
    fn both_are_done() {
        for threads in [1, 2] {
            assert_eq!(both(threads, || 1, || 2), (1, 2));
        }
    }

    #[test]
    fn an_error_is_told() {
        let failed = in_parallel(3, || -> Result<()> { Err(Error::Full) });
        assert!(matches!(failed, Err(Error::Full)));
    }
}
