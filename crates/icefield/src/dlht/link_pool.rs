//! The pool of link buckets without a table, for tests that model threads racing for a bucket.

use super::layout::{LINK_BUCKETS, LINKS, Links, Pool};
use super::mode::Shared;
use crate::base::sync::{Lines, Ordering};

/// A pool and some bins, for models of threads that race for a link bucket.
#[derive(Debug)]
pub struct LinkPool {
    pool: Pool,
    bins: Lines,
}

impl LinkPool {
    /// Creates a pool of `singles` link buckets and `pairs` pairs of them, and `bins` bins without link buckets.
    ///
    /// # Errors
    /// Fails if the system has no memory.
    pub fn new(singles: usize, pairs: usize, bins: usize) -> std::io::Result<Self> {
        Ok(Self { pool: Pool::new(singles, pairs)?, bins: Lines::new(bins)? })
    }

    /// Takes an unused bucket or pair: a returned one, otherwise a fresh one.
    pub fn take(&self, double: bool) -> Option<u64> {
        self.pool.take::<Shared>(double)
    }

    /// Returns a bucket or pair from [`LinkPool::take`] to the pool.
    pub fn give_back(&self, number: u64, double: bool) {
        self.pool.give_back::<Shared>(number, double);
    }

    /// Takes the single or the double link bucket from `bin`, and returns it to the pool. As in a table, no two threads
    /// do this at once for one bin.
    pub fn unchain(&self, bin: usize, double: bool) {
        match self.pool.unchain::<Shared>(&self.bins[bin], double) {
            0 => {}
            number => self.pool.give_back::<Shared>(number, double),
        }
    }

    /// Writes a record's key into a bucket. Only the owner of the bucket may do so.
    pub fn write(&self, number: u64, key: u64) {
        // Release (E2), like every key.
        self.pool.bucket(number as usize).0[0].store(key, Ordering::Release);
    }

    /// Chains the single or the double link bucket to `bin`, if `bin` lacks it and the pool is not exhausted.
    pub fn chain(&self, bin: usize, double: bool) {
        self.pool.chain::<Shared>(&self.bins[bin], double);
    }

    /// Returns the numbers of the buckets that `bin` has.
    pub fn buckets_of(&self, bin: usize) -> Vec<u64> {
        // Acquire (E5).
        let links = Links(self.bins[bin].0[LINKS].load(Ordering::Acquire));
        (0..LINK_BUCKETS.len())
            .map(|which| links.bucket(which) as u64)
            .filter(|&number| number != 0)
            .collect()
    }
}
