//! Pinned threads, and the clock around them.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this process may use.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    cores: Vec<usize>,
}

impl Machine {
    /// Reads the affinity mask from the system. Without one, threads are not pinned.
    pub fn detect() -> Self {
        let cores = match sched_getaffinity(None) {
            Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
            Err(_) => Vec::new(),
        };
        Self { cores }
    }

    /// Returns the number of threads that can run at once.
    pub fn cores(&self) -> usize {
        self.cores.len().max(1)
    }

    /// Runs `work(thread)` on `threads` pinned threads that start together. Returns the time from the first start
    /// to the last end, and the results in order. Threads may share a core, which is slow.
    pub fn run<R: Send>(
        &self,
        threads: usize,
        work: impl Fn(usize) -> R + Sync,
    ) -> (Duration, Vec<R>) {
        self.run_between(threads, |_| (), work, |_| ())
    }

    /// Does the same as [`Machine::run`], but each thread also does untimed work before and after.
    pub fn run_between<R: Send>(
        &self,
        threads: usize,
        before: impl Fn(usize) + Sync,
        work: impl Fn(usize) -> R + Sync,
        after: impl Fn(usize) + Sync,
    ) -> (Duration, Vec<R>) {
        let start = Barrier::new(threads);
        let (start, work, before, after) = (&start, &work, &before, &after);
        let results: Vec<_> = std::thread::scope(|scope| {
            let spawned: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || {
                        self.pin(thread);
                        before(thread);
                        start.wait();
                        let began = Instant::now();
                        let result = work(thread);
                        let ended = Instant::now();
                        after(thread);
                        (began, ended, result)
                    })
                })
                .collect();
            spawned
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        });
        let began = results.iter().map(|(began, ..)| *began).min();
        let ended = results.iter().map(|(_, ended, _)| *ended).max();
        let time = ended.zip(began).map_or(Duration::ZERO, |(ended, began)| ended - began);
        (time, results.into_iter().map(|(.., result)| result).collect())
    }

    /// Runs `work`, which starts its own threads. They inherit a binding to the cores on which [`Machine::run`] would
    /// pin `threads` threads. Returns the time and the result.
    pub fn run_whole<R: Send>(
        &self,
        threads: usize,
        work: impl FnOnce() -> R + Send,
    ) -> (Duration, R) {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.bind(0..threads);
                let began = Instant::now();
                let result = work();
                (began.elapsed(), result)
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn pin(&self, thread: usize) {
        self.bind(thread..thread + 1);
    }

    /// Binds this thread to the cores of the pinned threads whose numbers are `threads`.
    fn bind(&self, threads: std::ops::Range<usize>) {
        if self.cores.is_empty() {
            return;
        }
        let mut set = CpuSet::new();
        threads.for_each(|thread| set.set(self.cores[thread % self.cores.len()]));
        // Without the binding, the measurement has a little more noise and is still correct.
        let _ = sched_setaffinity(None, &set);
    }
}

/// Returns the part of `0..count` that belongs to `thread` of `threads`.
pub(crate) fn part(count: usize, thread: usize, threads: usize) -> std::ops::Range<usize> {
    count * thread / threads..count * (thread + 1) / threads
}

/// Returns the throughput in million operations per second.
pub(crate) fn mops(operations: usize, time: Duration) -> f64 {
    operations as f64 / time.as_secs_f64().max(1e-9) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once() {
        for (count, threads) in [(10, 3), (2, 4), (0, 2), (1_000, 7)] {
            let parts: Vec<usize> =
                (0..threads).flat_map(|thread| part(count, thread, threads)).collect();
            assert_eq!(parts, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn threads_run_and_answer_in_order() {
        let machine = Machine::detect();
        let (time, results) = machine.run(3, |thread| thread * 2);
        assert_eq!(results, [0, 2, 4]);
        assert!(time > Duration::ZERO);
        let (time, allowed) =
            machine.run_whole(1, || sched_getaffinity(None).map(|set| set.count()));
        assert!(time > Duration::ZERO && allowed.is_ok_and(|cores| cores == 1));
    }
}
