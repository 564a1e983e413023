//! A counter that many threads update concurrently without contending for a cache line.

use std::sync::atomic::{AtomicI64, Ordering};

use super::sync::PerThread;

/// The sum of one thread's additions. It fills two lines, because processors prefetch lines in pairs: two threads with
/// one line each would contend for the pair.
#[derive(Default)]
#[repr(align(128))]
struct Part(AtomicI64);

/// A sum over all threads. Adding costs a load and a store of the thread's own part, and no locked instruction. Summing
/// reads every thread's part.
#[derive(Default)]
pub struct ShardedCounter {
    start: i64,
    parts: PerThread<Part>,
}

impl std::fmt::Debug for ShardedCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ShardedCounter").field(&self.sum()).finish()
    }
}

impl ShardedCounter {
    /// Creates a counter with the value `start`.
    #[must_use]
    pub fn new(start: i64) -> Self {
        Self { start, parts: PerThread::default() }
    }

    /// Adds `delta`. Wraps on overflow; additions of 1 reach it only after 2^63 calls.
    #[inline]
    pub fn add(&self, delta: i64) {
        let part = &self.parts.mine().0;
        // Both relaxed: only this thread stores its part, and no other access is ordered by the count.
        part.store(part.load(Ordering::Relaxed).wrapping_add(delta), Ordering::Relaxed);
    }

    /// Returns the sum. It is exact if no thread adds concurrently; otherwise it mixes old and new parts, and may be
    /// negative for a moment if one thread adds and another subtracts.
    #[must_use]
    pub fn sum(&self) -> i64 {
        // Relaxed: a caller that needs an exact sum has already synchronised with the writers.
        let part = |part: &Part| part.0.load(Ordering::Relaxed);
        self.parts.iter().map(part).fold(self.start, i64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_what_threads_added() {
        let counter = ShardedCounter::new(5);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let counter = &counter;
                scope.spawn(move || {
                    (0..100).for_each(|i| counter.add(if i % 2 == 0 { thread } else { -1 }))
                });
            }
        });
        assert_eq!(counter.sum(), 5 + 50 * (28 - 8));
    }

    #[test]
    fn may_go_below_zero_and_back() {
        let counter = ShardedCounter::default();
        counter.add(-3);
        assert_eq!(counter.sum(), -3);
        counter.add(3);
        assert_eq!(counter.sum(), 0);
    }

    #[test]
    fn parts_do_not_share_lines() {
        assert_eq!(size_of::<Part>(), 128);
        assert_eq!(align_of::<Part>(), 128);
    }
}
