//! The common trait [`Table`], whose calls return errors where the inherent calls panic.

use super::DlhtTable;
use super::mode::Threading;
use crate::Result;
use crate::outcome::{Computed, Cursor, Decision, Occupied, OnFailure};
use crate::report::Stats;
use crate::table::{Op, Page, Table, TryInsert};
use crate::types::Word;

impl<K: Word, V: Word, M: Threading> Table for DlhtTable<K, V, M>
where
    Self: Send + Sync,
{
    // `get`, `try_insert`, `insert` and `put` are always inlined. In one measured loop, inlined inserts were 1.7 times
    // as fast as inserts out of line; in another loop, both were equally fast (decision 0091).
    type Key = K;
    type Value = V;

    #[inline(always)]
    fn get(&self, key: K) -> Result<Option<V>> {
        Ok(self.get_one(key))
    }
    fn get_with<R>(&self, key: K, f: impl FnOnce(&V) -> R) -> Result<Option<R>> {
        Ok(self.get_with(key, f))
    }
    #[inline]
    fn contains(&self, key: K) -> Result<bool> {
        Ok(self.contains(key))
    }
    #[inline(always)]
    fn try_insert(&self, key: K, value: V) -> Result<std::result::Result<(), Occupied<V>>> {
        self.try_insert_one(key, value)
    }
    #[inline(always)]
    fn insert(&self, key: K, value: V) -> Result<Option<V>> {
        self.insert_one(key, value)
    }
    #[inline(always)]
    fn put(&self, key: K, value: V) -> Result<()> {
        self.insert_one(key, value).map(drop)
    }
    #[inline]
    fn update(&self, key: K, value: V) -> Result<Option<V>> {
        self.update_one(key, value)
    }
    #[inline]
    fn remove(&self, key: K) -> Result<Option<V>> {
        Ok(self.remove_one(key))
    }
    #[inline]
    fn delete(&self, key: K) -> Result<()> {
        self.remove_one(key);
        Ok(())
    }
    fn compute(&self, key: K, f: impl FnMut(Option<&V>) -> Decision<V>) -> Result<Computed<V>> {
        self.compute_one(key, f)
    }
    fn len(&self) -> Result<u64> {
        Ok(self.core.len())
    }
    fn capacity(&self) -> u64 {
        self.core.capacity()
    }
    fn stats(&self) -> Stats {
        self.core.stats()
    }
    fn scan(&self, cursor: Cursor, n: usize) -> Result<Page<K, V>> {
        self.page(cursor, n)
    }
    fn clear(&self) -> Result<()> {
        self.core.clear()
    }
    fn reserve(&self, additional: u64) -> Result<()> {
        self.core.reserve(self.core.len().saturating_add(additional))
    }
    fn shrink_to_fit(&self) -> Result<()> {
        self.core.shrink()
    }
    fn get_batch(&self, keys: &[K], found: &mut [Option<V>]) -> Result<()> {
        self.get_all(keys, found)
    }
    fn insert_batch(&self, records: &[(K, V)], previous: &mut [Option<V>]) -> Result<()> {
        self.insert_all(records, previous)
    }
    fn put_batch(&self, records: &[(K, V)]) -> Result<()> {
        self.put_all(records)
    }
    fn update_batch(&self, records: &[(K, V)], previous: &mut [Option<V>]) -> Result<()> {
        self.update_all(records, previous)
    }
    fn try_insert_batch(&self, records: &[(K, V)], outcomes: &mut [TryInsert<V>]) -> Result<()> {
        self.try_insert_all(records, outcomes)
    }
    fn remove_batch(&self, keys: &[K], removed: &mut [Option<V>]) -> Result<()> {
        self.remove_all(keys, removed)
    }
    fn execute(&self, ops: &mut [Op<'_, K, V>], on_failure: OnFailure) -> Result<usize> {
        self.execute_all(ops, on_failure)
    }
    fn prefetch(&self, key: K) {
        self.prefetch(key);
    }
}
