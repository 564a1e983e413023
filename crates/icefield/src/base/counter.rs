//! A counter that many threads change at once without fighting over a line.

use std::sync::atomic::{AtomicI64, Ordering};

use super::sync::PerThread;

/// What one thread has added. One line pair: the processors' adjacent-line prefetch would otherwise join neighbours.
#[derive(Default)]
#[repr(align(128))]
struct Part(AtomicI64);

/// A sum of what threads have added. Adding costs a load and a store of the thread's own, and nothing that other
/// instructions would have to wait for; summing reads every thread's part.
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
    /// A counter that stands at `start`.
    #[must_use]
    pub fn new(start: i64) -> Self {
        Self { start, parts: PerThread::default() }
    }

    /// Adds `delta`; wraps silently, as 2^63 operations do not happen.
    #[inline]
    pub fn add(&self, delta: i64) {
        let part = &self.parts.mine().0;
        // Relaxed, both: nobody else stores to a thread's part, and a count orders nothing.
        part.store(part.load(Ordering::Relaxed).wrapping_add(delta), Ordering::Relaxed);
    }

    /// The sum: exact when nobody adds meanwhile, otherwise a value that mixes old and new parts (it may even be
    /// negative for a moment when one thread adds and another takes away).
    #[must_use]
    pub fn sum(&self) -> i64 {
        // Relaxed: see above; whoever needs exactness has synchronised with the writers already.
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
