//! Random sequences of all calls of a `DlhtSet` against the standard library's set.

use std::collections::BTreeSet;

use icefield::DlhtSet;

use crate::failure::{Failure, guarded};
use crate::model::NAME;
use crate::rng::Rng;

/// Results of histories of sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetCounts {
    /// Histories run.
    pub histories: u64,
    /// Single operations, including those in batches.
    pub operations: u64,
    /// Complete passes, compared key by key.
    pub scans: u64,
    /// Sets that grew.
    pub grown: u64,
}

impl SetCounts {
    /// Adds the results of another history.
    pub fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.operations += other.operations;
        self.scans += other.scans;
        self.grown += other.grown;
    }
}

/// Runs one history of about `length` steps.
///
/// # Errors
/// Returns the first wrong result.
pub fn set_model(seed: u64, length: usize) -> Result<SetCounts, Failure> {
    guarded(NAME, seed, || {
        let mut rng = Rng::fork(seed, 1);
        let keys = *rng.pick(&[3, 40, 300, 3000]);
        let counts = SetCounts { histories: 1, ..SetCounts::default() };
        let mut run = Run { set: DlhtSet::new(), right: BTreeSet::new(), keys, rng, counts };
        let capacity = run.set.capacity();
        for at in 0..length {
            run.step().map_err(|what| Failure::new(NAME, seed, format!("step {at}: {what}")))?;
        }
        run.scan().map_err(|what| Failure::new(NAME, seed, format!("at the end: {what}")))?;
        run.counts.grown = u64::from(run.set.capacity() > capacity);
        Ok(run.counts)
    })
}

struct Run {
    set: DlhtSet<u64>,
    right: BTreeSet<u64>,
    keys: u64,
    rng: Rng,
    counts: SetCounts,
}

fn same<A: PartialEq + std::fmt::Debug>(what: &str, got: A, right: A) -> Result<(), String> {
    if got == right { Ok(()) } else { Err(format!("{what}: got {got:?} instead of {right:?}")) }
}

impl Run {
    fn key(&mut self) -> u64 {
        match self.rng.below(self.keys) {
            1 => u64::MAX,
            key => key.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        }
    }

    fn step(&mut self) -> Result<(), String> {
        match self.rng.below(200) {
            0 => {
                self.set.clear();
                self.right.clear();
            }
            1..6 => self.scan()?,
            6 => {
                self.set = self.set.iter().collect();
            }
            7 => self.set.shrink_to_fit(),
            8 => self.set.reserve(self.rng.below(2 * self.keys) as usize),
            9..60 => self.batch()?,
            _ => self.one()?,
        }
        let empty = self.right.is_empty();
        same("is_empty", self.set.is_empty(), empty)?;
        same("len", self.set.len(), self.right.len())
    }

    fn one(&mut self) -> Result<(), String> {
        self.counts.operations += 1;
        let key = self.key();
        match self.rng.below(5) {
            0 | 1 => same("insert", self.set.insert(key), self.right.insert(key)),
            2 => same("remove", self.set.remove(key), self.right.remove(&key)),
            3 => {
                self.set.prefetch(key);
                Ok(())
            }
            _ => same("contains", self.set.contains(key), self.right.contains(&key)),
        }
    }

    fn batch(&mut self) -> Result<(), String> {
        let count = *self.rng.pick(&[0, 1, 5, 40, 200]);
        let keys: Vec<u64> = (0..count).map(|_| self.key()).collect();
        self.counts.operations += keys.len() as u64;
        let mut answers = vec![false; keys.len()];
        let right: Vec<bool> = match self.rng.below(4) {
            0 | 1 => {
                self.set.insert_batch(&keys, &mut answers);
                keys.iter().map(|&key| self.right.insert(key)).collect()
            }
            2 => {
                self.set.remove_batch(&keys, &mut answers);
                keys.iter().map(|key| self.right.remove(key)).collect()
            }
            _ => {
                self.set.contains_batch(&keys, &mut answers);
                keys.iter().map(|key| self.right.contains(key)).collect()
            }
        };
        same("a batch", answers, right)
    }

    fn scan(&mut self) -> Result<(), String> {
        self.counts.scans += 1;
        let mut keys: Vec<u64> = self.set.iter().collect();
        keys.sort_unstable();
        same("all keys", keys, self.right.iter().copied().collect())
    }
}
