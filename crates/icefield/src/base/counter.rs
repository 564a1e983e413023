//! A counter that many threads change at once without fighting over a line.

use std::sync::atomic::{AtomicI64, Ordering};

use super::thread;

/// Threads go to shards by their numbers, so up to this many never share one.
const SHARDS: usize = 32;

/// One line pair: the processors' adjacent-line prefetch would otherwise join neighbours.
#[derive(Default)]
#[repr(align(128))]
struct Shard(AtomicI64);

/// A sum of what threads have added. Adding costs one uncontended atomic; summing reads every shard.
pub struct ShardedCounter {
    shards: Box<[Shard; SHARDS]>,
}

impl Default for ShardedCounter {
    fn default() -> Self {
        Self::new(0)
    }
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
        let counter = Self { shards: Box::new(std::array::from_fn(|_| Shard::default())) };
        // Relaxed: nobody else has it yet.
        counter.shards[0].0.store(start, Ordering::Relaxed);
        counter
    }

    /// Adds `delta`; wraps silently, as 2^63 operations do not happen.
    #[inline]
    pub fn add(&self, delta: i64) {
        // Relaxed: a count orders nothing. The mask keeps the index inside without a branch.
        self.shards[thread::number() & (SHARDS - 1)].0.fetch_add(delta, Ordering::Relaxed);
    }

    /// The sum: exact when nobody adds meanwhile, otherwise a value that mixes old and new shards (it may even be
    /// negative for a moment when one thread adds and another takes away).
    #[must_use]
    pub fn sum(&self) -> i64 {
        // Relaxed: see above; whoever needs exactness has synchronised with the writers already.
        self.shards
            .iter()
            .fold(0_i64, |sum, shard| sum.wrapping_add(shard.0.load(Ordering::Relaxed)))
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
    fn shards_do_not_share_lines() {
        assert_eq!(size_of::<Shard>(), 128);
        assert_eq!(align_of::<Shard>(), 128);
    }
}
