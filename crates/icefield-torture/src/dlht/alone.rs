//! The single-threaded DLHT table with the interface of the other tables.

use std::sync::{Mutex, MutexGuard};

use icefield::{
    Computed, Cursor, Decision, DlhtLocal, OnFailure, Op, Page, Result, Stats, Table, TryInsert,
};

use crate::pool::lock;

/// A [`DlhtLocal`] behind a lock. Each call takes the lock and releases it before a reader's closure runs.
#[derive(Debug, Default)]
pub struct Alone(Mutex<DlhtLocal<u64, u64>>);

impl Alone {
    /// Puts `table` behind a lock.
    #[must_use]
    pub fn new(table: DlhtLocal<u64, u64>) -> Self {
        Self(Mutex::new(table))
    }

    /// Locks and returns the table.
    pub fn table(&self) -> MutexGuard<'_, DlhtLocal<u64, u64>> {
        lock(&self.0)
    }

    /// Runs a batch under the lock, so that no other call runs inside it. `equal` states whether its slices have equal
    /// lengths; if not, the result is an error.
    fn batch<A>(&self, equal: bool, call: impl FnOnce(&DlhtLocal<u64, u64>) -> A) -> Result<A> {
        if equal {
            return Ok(call(&self.table()));
        }
        let detail = "one for each operation".to_owned();
        Err(icefield::Error::InvalidOption { option: "results", detail })
    }
}

impl Table for Alone {
    type Key = u64;
    type Value = u64;

    fn get_with<R>(&self, key: u64, f: impl FnOnce(&u64) -> R) -> Result<Option<R>> {
        let found = self.table().get(key);
        Ok(found.as_ref().map(f))
    }
    fn try_insert(&self, key: u64, value: u64) -> Result<TryInsert<u64>> {
        Ok(self.table().try_insert(key, value))
    }
    fn insert(&self, key: u64, value: u64) -> Result<Option<u64>> {
        Ok(self.table().insert(key, value))
    }
    fn put(&self, key: u64, value: u64) -> Result<()> {
        self.table().put(key, value);
        Ok(())
    }
    fn update(&self, key: u64, value: u64) -> Result<Option<u64>> {
        Ok(self.table().update(key, value))
    }
    fn remove(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.table().remove(key))
    }
    fn delete(&self, key: u64) -> Result<()> {
        self.table().delete(key);
        Ok(())
    }
    fn compute(
        &self,
        key: u64,
        f: impl FnMut(Option<&u64>) -> Decision<u64>,
    ) -> Result<Computed<u64>> {
        Ok(self.table().compute(key, f))
    }
    fn len(&self) -> Result<u64> {
        Ok(self.table().len() as u64)
    }
    fn capacity(&self) -> u64 {
        self.table().capacity() as u64
    }
    fn stats(&self) -> Stats {
        self.table().stats()
    }
    fn scan(&self, cursor: Cursor, n: usize) -> Result<Page<u64, u64>> {
        Ok(self.table().scan(cursor, n))
    }
    fn clear(&self) -> Result<()> {
        self.table().clear();
        Ok(())
    }
    fn reserve(&self, additional: u64) -> Result<()> {
        self.table().reserve(additional as usize);
        Ok(())
    }
    fn get_batch(&self, keys: &[u64], found: &mut [Option<u64>]) -> Result<()> {
        self.batch(keys.len() == found.len(), |table| table.get_batch(keys, found))
    }
    fn insert_batch(&self, pairs: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()> {
        self.batch(pairs.len() == previous.len(), |table| table.insert_batch(pairs, previous))
    }
    fn put_batch(&self, pairs: &[(u64, u64)]) -> Result<()> {
        self.batch(true, |table| table.put_batch(pairs))
    }
    fn update_batch(&self, pairs: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()> {
        self.batch(pairs.len() == previous.len(), |table| table.update_batch(pairs, previous))
    }
    fn try_insert_batch(
        &self,
        pairs: &[(u64, u64)],
        outcomes: &mut [TryInsert<u64>],
    ) -> Result<()> {
        self.batch(pairs.len() == outcomes.len(), |table| table.try_insert_batch(pairs, outcomes))
    }
    fn remove_batch(&self, keys: &[u64], removed: &mut [Option<u64>]) -> Result<()> {
        self.batch(keys.len() == removed.len(), |table| table.remove_batch(keys, removed))
    }
    fn execute(&self, ops: &mut [Op<'_, u64, u64>], on_failure: OnFailure) -> Result<usize> {
        self.batch(true, |table| table.execute(ops, on_failure))
    }
    fn prefetch(&self, key: u64) {
        self.table().prefetch(key);
    }
}
