//! Random sequences of all calls of a `DlhtSet` against the standard library's set.

use std::collections::BTreeSet;

use icefield::{
    Cursor, DlhtOptions, DlhtSet, DlhtSetLocal, DlhtWordSet, Error, NotShadowed, Threading,
};

use super::shaped;
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

/// Runs one history of about `length` steps, on a set for many threads or for one.
///
/// # Errors
/// Returns the first wrong result.
pub fn set_model(seed: u64, length: usize) -> Result<SetCounts, Failure> {
    let failed = |what: Error| Failure::new(NAME, seed, what.to_string());
    guarded(NAME, seed, || match seed % 3 {
        0 => history(shaped::<DlhtSetLocal<u64>>(seed).build().map_err(failed)?, seed, length),
        _ => history(shaped::<DlhtSet<u64>>(seed).build().map_err(failed)?, seed, length),
    })
}

fn history<M: Threading>(
    set: DlhtWordSet<u64, M>,
    seed: u64,
    length: usize,
) -> Result<SetCounts, Failure> {
    let mut rng = Rng::fork(seed, 1);
    let keys = *rng.pick(&[3, 40, 300, 3000]);
    let counts = SetCounts { histories: 1, ..SetCounts::default() };
    let mut run = Run { set, right: BTreeSet::new(), keys, rng, counts };
    let capacity = run.set.capacity();
    for at in 0..length {
        run.step().map_err(|what| Failure::new(NAME, seed, format!("step {at}: {what}")))?;
    }
    run.scan().map_err(|what| Failure::new(NAME, seed, format!("at the end: {what}")))?;
    run.counts.grown = u64::from(run.set.capacity() > capacity);
    Ok(run.counts)
}

struct Run<M: Threading> {
    set: DlhtWordSet<u64, M>,
    right: BTreeSet<u64>,
    keys: u64,
    rng: Rng,
    counts: SetCounts,
}

fn same<A: PartialEq + std::fmt::Debug>(what: &str, got: A, right: A) -> Result<(), String> {
    if got == right { Ok(()) } else { Err(format!("{what}: got {got:?} instead of {right:?}")) }
}

impl<M: Threading> Run<M> {
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
            6 => self.replace()?,
            7 => self.set.shrink_to_fit(),
            8 => self.set.reserve(self.rng.below(2 * self.keys) as usize),
            9 => self.drain()?,
            10..13 => self.algebra()?,
            13..18 => self.shadow()?,
            18..60 => self.batch()?,
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

    /// Compares all calls that return all keys.
    fn scan(&mut self) -> Result<(), String> {
        self.counts.scans += 1;
        let right: Vec<u64> = self.right.iter().copied().collect();
        same("all keys", sorted(self.set.iter()), right.clone())?;
        same("a snapshot", sorted(self.set.snapshot().iter()), right.clone())?;
        let (page, mut keys, mut next) = (1 + self.rng.below(50) as usize, Vec::new(), None);
        loop {
            let read = self.set.scan(next.unwrap_or(Cursor::START), page);
            keys.extend(read.keys);
            next = read.next;
            if next.is_none() {
                return same("all pages", sorted(keys), right);
            }
        }
    }

    /// Replaces the set by a copy.
    fn replace(&mut self) -> Result<(), String> {
        let copy = self.set.clone();
        same("the copy is equal", copy == self.set, true)?;
        if let Some(&key) = self.right.first() {
            copy.remove(key);
            same("without a key", copy == self.set, false)?;
            copy.insert(key ^ 1);
            let equal = self.right.contains(&(key ^ 1));
            same("with another key", copy == self.set && !equal, false)?;
        }
        let empty = DlhtOptions::<DlhtWordSet<u64, M>>::default().geometry(0, 1).build();
        let old = std::mem::replace(&mut self.set, empty.map_err(|error| error.to_string())?);
        let keys = old.into_iter();
        same("the number of keys", keys.len(), self.right.len())?;
        self.set.extend(keys);
        Ok(())
    }

    fn drain(&mut self) -> Result<(), String> {
        let right = std::mem::take(&mut self.right);
        same("drained", sorted(self.set.drain()), right.into_iter().collect())
    }

    /// Compares the set algebra with another set, which has some of the keys.
    fn algebra(&mut self) -> Result<(), String> {
        let mut other = BTreeSet::new();
        for _ in 0..self.rng.below(2 * self.keys) {
            other.insert(self.key());
        }
        if self.rng.one_in(3) {
            other.extend(&self.right);
        }
        let (a, b) = (&self.set, &other.iter().copied().collect::<DlhtWordSet<u64, M>>());
        let (c, d) = (&self.right, &other);
        same("|", sorted(&(a | b)), (c | d).into_iter().collect())?;
        same("&", sorted(&(a & b)), (c & d).into_iter().collect())?;
        same("^", sorted(&(a ^ b)), (c ^ d).into_iter().collect())?;
        same("-", sorted(&(a - b)), (c - d).into_iter().collect())?;
        same("union", sorted(a.union(b)), c.union(d).copied().collect())?;
        same("intersection", sorted(b.intersection(a)), c.intersection(d).copied().collect())?;
        same("is_subset", a.is_subset(b), c.is_subset(d))?;
        same("is_superset", a.is_superset(b), c.is_superset(d))?;
        same("is_disjoint", a.is_disjoint(b), c.is_disjoint(d))?;
        same("==", a == b, c == d)
    }

    /// Holds a key by a shadow insert during other calls.
    fn shadow(&mut self) -> Result<(), String> {
        let key = self.key();
        let present = self.right.contains(&key);
        let shadow = match self.set.try_insert_shadow(key) {
            Ok(shadow) if !present => shadow,
            Err(NotShadowed::Occupied(())) if present => return Ok(()),
            other => return Err(format!("{other:?} of a key, present: {present}")),
        };
        same("contains", (self.set.contains(key), self.set.remove(key)), (false, false))?;
        let other = self.set.try_insert_shadow(key).err();
        same("another shadow", other, Some(NotShadowed::Shadowed))?;
        let held = matches!(self.set.checked_insert(key), Err(Error::Shadowed));
        let batch = self.set.checked_insert_batch(&[key], &mut [false]);
        same("inserts are refused", (held, batch.is_err()), (true, true))?;
        match self.rng.below(4) {
            0 => self.set.reserve(1000),
            1 => self.set.shrink_to_fit(),
            2 => {
                self.set.clear();
                self.right.clear();
            }
            _ => {}
        }
        let keys: Vec<u64> = self.set.iter().collect();
        same("all keys but the shadow", keys.len(), self.right.len())?;
        if self.rng.one_in(2) {
            shadow.commit();
            self.right.insert(key);
        } else {
            drop(shadow);
        }
        same("after it ended", self.set.contains(key), self.right.contains(&key))
    }
}

fn sorted(keys: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut keys: Vec<u64> = keys.into_iter().collect();
    keys.sort_unstable();
    keys
}
