//! Work that several threads take bit by bit.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::Result;

/// Runs `work` on this thread and `threads - 1` others, and gives what each gave; the first error, if any failed. Where
/// no more threads can be made, there are fewer: so `work` takes its tasks from a [`Tasks`] until there are none.
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
            // A panic of the caller's own code goes on where it called.
            results.push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    });
    results.into_iter().collect()
}

/// Does both, side by side if there may be `threads` of them.
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

/// Numbers of tasks, each given out once.
pub(crate) struct Tasks {
    next: AtomicUsize,
    count: usize,
}

impl Tasks {
    pub(crate) fn new(count: usize) -> Self {
        Self { next: AtomicUsize::new(0), count }
    }

    pub(crate) fn take(&self) -> Option<usize> {
        // Relaxed: the number is all there is to it.
        let next = self.next.fetch_add(1, Relaxed);
        (next < self.count).then_some(next)
    }
}

/// How many threads the machine has cores for.
pub(crate) fn all_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Threads for so much work: no more than have `each` of it to do.
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
