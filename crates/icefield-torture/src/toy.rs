//! A simple correct table with optional bugs, for tests of the checkers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use icefield::{
    BackupReport, CheckReport, Computed, Cursor, Decision, Durable, Error, Occupied, OnFailure, Op,
    Page, RecoveryReport, Result, SalvageReport, Stats, Table, TryInsert,
};

use crate::place::Place;

/// The bug of the toy table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bug {
    #[default]
    None,
    /// `update` inserts when the key is absent.
    UpdateInserts,
    /// `execute` does not stop after a failure.
    NeverStops,
    /// A scan skips the last record.
    ScanLoses,
    /// `insert` is not atomic: it lets another thread run between its read and its write.
    LostUpdate,
}

/// A map of words behind one lock.
#[derive(Debug, Default)]
pub(crate) struct Toy {
    map: Mutex<BTreeMap<u64, u64>>,
    bug: Bug,
}

impl Toy {
    pub(crate) fn new(bug: Bug) -> Self {
        Self { map: Mutex::default(), bug }
    }

    fn map(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates toy tables.
pub(crate) struct ToyPlace(pub(crate) Bug);

impl Place<Toy> for ToyPlace {
    fn create(&mut self) -> Result<Toy> {
        Ok(Toy::new(self.0))
    }

    fn reopen(&mut self, table: Toy) -> Result<Toy> {
        Ok(table)
    }

    fn check(&self, table: &Toy) -> Result<CheckReport> {
        Durable::check(table)
    }
}

fn same_length(keys: usize, results: usize) -> Result<()> {
    if keys == results {
        return Ok(());
    }
    Err(Error::InvalidOption { option: "results", detail: format!("{keys} and {results}") })
}

impl Table for Toy {
    type Key = u64;
    type Value = u64;

    fn get_with<R>(&self, key: u64, f: impl FnOnce(&u64) -> R) -> Result<Option<R>> {
        let found = self.map().get(&key).copied();
        Ok(found.as_ref().map(f))
    }

    fn try_insert(&self, key: u64, value: u64) -> Result<TryInsert<u64>> {
        let mut map = self.map();
        match map.get(&key) {
            Some(&present) => Ok(Err(Occupied(present))),
            None => {
                map.insert(key, value);
                Ok(Ok(()))
            }
        }
    }

    fn insert(&self, key: u64, value: u64) -> Result<Option<u64>> {
        if self.bug == Bug::LostUpdate {
            let before = self.map().get(&key).copied();
            std::thread::yield_now();
            self.map().insert(key, value);
            return Ok(before);
        }
        Ok(self.map().insert(key, value))
    }

    fn put(&self, key: u64, value: u64) -> Result<()> {
        self.insert(key, value).map(|_| ())
    }

    fn update(&self, key: u64, value: u64) -> Result<Option<u64>> {
        let mut map = self.map();
        if self.bug == Bug::UpdateInserts || map.contains_key(&key) {
            return Ok(map.insert(key, value));
        }
        Ok(None)
    }

    fn remove(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.map().remove(&key))
    }

    fn delete(&self, key: u64) -> Result<()> {
        self.remove(key).map(|_| ())
    }

    fn compute(
        &self,
        key: u64,
        mut f: impl FnMut(Option<&u64>) -> Decision<u64>,
    ) -> Result<Computed<u64>> {
        let mut map = self.map();
        let before = map.get(&key).copied();
        Ok(match f(before.as_ref()) {
            Decision::Keep => Computed::Kept(before),
            Decision::Put(value) => Computed::Put(map.insert(key, value)),
            Decision::Remove => Computed::Removed(map.remove(&key)),
        })
    }

    fn len(&self) -> Result<u64> {
        Ok(self.map().len() as u64)
    }

    fn capacity(&self) -> u64 {
        u64::MAX
    }

    fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        stats.len_estimate = self.map().len() as u64;
        stats
    }

    fn scan(&self, cursor: Cursor, n: usize) -> Result<Page<u64, u64>> {
        let map = self.map();
        // A cursor is the next key plus one, wrapping around: the greatest key comes first, at cursor 0.
        let order = |key: u64| key.wrapping_add(1);
        let mut keys: Vec<u64> =
            map.keys().copied().filter(|&key| order(key) >= cursor.0).collect();
        keys.sort_unstable_by_key(|&key| order(key));
        let mut records: Vec<_> = keys.iter().take(n.max(1)).map(|&key| (key, map[&key])).collect();
        let next = keys.get(records.len()).map(|&key| Cursor(order(key)));
        if self.bug == Bug::ScanLoses && next.is_none() {
            records.pop();
        }
        Ok(Page { records, next })
    }

    fn clear(&self) -> Result<()> {
        self.map().clear();
        Ok(())
    }

    fn reserve(&self, _additional: u64) -> Result<()> {
        Ok(())
    }

    fn get_batch(&self, keys: &[u64], found: &mut [Option<u64>]) -> Result<()> {
        same_length(keys.len(), found.len())?;
        keys.iter()
            .zip(found)
            .try_for_each(|(&key, found)| self.get(key).map(|value| *found = value))
    }

    fn insert_batch(&self, pairs: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()> {
        same_length(pairs.len(), previous.len())?;
        pairs.iter().zip(previous).try_for_each(|(&(key, value), previous)| {
            self.insert(key, value).map(|before| *previous = before)
        })
    }

    fn put_batch(&self, pairs: &[(u64, u64)]) -> Result<()> {
        pairs.iter().try_for_each(|&(key, value)| self.put(key, value))
    }

    fn update_batch(&self, pairs: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()> {
        same_length(pairs.len(), previous.len())?;
        pairs.iter().zip(previous).try_for_each(|(&(key, value), previous)| {
            self.update(key, value).map(|before| *previous = before)
        })
    }

    fn try_insert_batch(
        &self,
        pairs: &[(u64, u64)],
        outcomes: &mut [TryInsert<u64>],
    ) -> Result<()> {
        same_length(pairs.len(), outcomes.len())?;
        pairs.iter().zip(outcomes).try_for_each(|(&(key, value), outcome)| {
            self.try_insert(key, value).map(|tried| *outcome = tried)
        })
    }

    fn remove_batch(&self, keys: &[u64], removed: &mut [Option<u64>]) -> Result<()> {
        same_length(keys.len(), removed.len())?;
        keys.iter()
            .zip(removed)
            .try_for_each(|(&key, removed)| self.remove(key).map(|value| *removed = value))
    }

    fn execute(&self, ops: &mut [Op<'_, u64, u64>], on_failure: OnFailure) -> Result<usize> {
        for (at, op) in ops.iter_mut().enumerate() {
            match op {
                Op::Get(key, found) => *found = self.get(*key)?,
                Op::TryInsert(key, value, outcome) => *outcome = self.try_insert(*key, *value)?,
                Op::Insert(key, value, previous) => *previous = self.insert(*key, *value)?,
                Op::Put(key, value) => self.put(*key, *value)?,
                Op::Update(key, value, previous) => *previous = self.update(*key, *value)?,
                Op::Remove(key, removed) => *removed = self.remove(*key)?,
                Op::Shadow(..) => {
                    return Err(Error::Unsupported("a toy has no shadows".to_owned()));
                }
            }
            if on_failure == OnFailure::Stop && op.failed() && self.bug != Bug::NeverStops {
                return Ok(at + 1);
            }
        }
        Ok(ops.len())
    }

    fn prefetch(&self, _key: u64) {}
}

impl Durable for Toy {
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        report.records = self.len()?;
        Ok(report)
    }

    fn salvage(&self, _path: &Path) -> Result<SalvageReport> {
        Err(Error::Unsupported("a toy has no files".to_owned()))
    }

    fn backup(&self, _path: &Path) -> Result<BackupReport> {
        Err(Error::Unsupported("a toy has no files".to_owned()))
    }

    fn path(&self) -> &Path {
        Path::new("toy")
    }

    fn recovery(&self) -> RecoveryReport {
        RecoveryReport::default()
    }
}
