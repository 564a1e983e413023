//! The public interface: inherent methods, which return plain values, and the common trait [`Table`], whose methods
//! return results.
//!
//! An in-memory table that may grow refuses almost no call, so a [`crate::Result`] around every value would burden
//! callers for little benefit. The methods of the trait return the few possible refusals as errors: a full table of
//! fixed size, a key held by a shadow insert, no memory left. In these cases the inherent methods of the same names
//! panic, like the collections of the standard library.

use std::fmt;
use std::ops::ControlFlow;

use super::mode::Threading;
use super::options::DlhtOptions;
use super::shadow::{Shadow, Shadows};
use super::snapshot::Snapshot;
use super::{DlhtIter, DlhtTable};
use crate::Result;
use crate::outcome::{Computed, Cursor, Decision, Occupied, OnFailure, SCAN_PAGE};
use crate::report::Stats;
use crate::table::{NotShadowed, Op, Page, Table, TryInsert, yield_once};
use crate::types::{Counter, Word};

/// Returns the value, or panics with the reason of the refusal.
#[inline(always)]
#[track_caller]
pub(super) fn plain<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => refuse(&error),
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn refuse(error: &crate::Error) -> ! {
    panic!("{error}")
}

impl<K: Word, V: Word, M: Threading> Default for DlhtTable<K, V, M> {
    fn default() -> Self {
        Self::new()
    }
}

/// Operations, with the semantics of [`Table`].
///
/// # Panics
/// Calls that insert panic if the table is full and may not grow, if a shadow insert holds the key, or if the system
/// has no memory. Calls that create or resize a table, [`DlhtTable::clear`] and [`DlhtTable::snapshot`] panic if the
/// system has no memory. [`DlhtTable::try_snapshot`], [`DlhtTable::try_shrink_to_fit`] and the calls of the same names
/// in [`Table`] return errors instead. Batches also panic if their slices differ in length, or if an [`Op::Shadow`]
/// names the shadows of another table.
impl<K: Word, V: Word, M: Threading> DlhtTable<K, V, M> {
    /// Creates an empty table that grows as needed.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert!(table.is_empty());
    /// ```
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Creates an empty table that takes `records` records before it must grow.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::with_capacity(1000);
    /// assert!(table.capacity() >= 1000);
    /// ```
    pub fn with_capacity(records: u64) -> Self {
        plain(Self::options().capacity(records).build())
    }

    /// Returns a builder for tables of this type.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::options().capacity(1000).fixed_size().build()?;
    /// assert!(table.capacity() >= 1000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn options() -> DlhtOptions<K, V, M> {
        DlhtOptions::default()
    }

    /// Returns the value of `key` (§3.2.1). Never waits and stores no shared data; usually reads one cache line.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// assert_eq!((table.get(1), table.get(2)), (Some(10), None));
    /// ```
    #[inline]
    pub fn get(&self, key: K) -> Option<V> {
        self.get_one(key)
    }

    /// Passes the value of `key` to `f` and returns the result of `f`, which may call the table.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// assert_eq!(table.get_with(1, |value| value + 1), Some(11));
    /// ```
    #[inline]
    pub fn get_with<R>(&self, key: K, f: impl FnOnce(&V) -> R) -> Option<R> {
        self.get_one(key).map(|value| f(&value))
    }

    /// Returns whether `key` is present.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// assert!(table.contains(1));
    /// ```
    #[inline]
    pub fn contains(&self, key: K) -> bool {
        self.core.get(key.to_word()).is_some()
    }

    /// Inserts `key` if it is absent; otherwise returns the present value (§3.2.2). Lock-free.
    ///
    /// ```
    /// use icefield::Occupied;
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.try_insert(1, 10), Ok(()));
    /// assert_eq!(table.try_insert(1, 20), Err(Occupied(10)));
    /// ```
    #[inline(always)]
    pub fn try_insert(&self, key: K, value: V) -> TryInsert<V> {
        plain(self.try_insert_one(key, value))
    }

    /// Inserts `key` or replaces its value; returns the previous value.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.insert(1, 10), None);
    /// assert_eq!(table.insert(1, 20), Some(10));
    /// ```
    #[inline(always)]
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        plain(self.insert_one(key, value))
    }

    /// Inserts `key` or replaces its value, without returning the previous value.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.put(1, 10);
    /// assert_eq!(table.get(1), Some(10));
    /// ```
    #[inline(always)]
    pub fn put(&self, key: K, value: V) {
        plain(self.insert_one(key, value));
    }

    /// Replaces the value if `key` is present; returns the previous one (§3.2.4, the paper's Put).
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!(table.update(1, 10), None);
    /// assert!(table.is_empty());
    /// ```
    #[inline]
    pub fn update(&self, key: K, value: V) -> Option<V> {
        plain(self.update_one(key, value))
    }

    /// Removes `key`; returns the value that it had (§3.2.3). Its slot can be reused at once.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// assert_eq!(table.remove(1), Some(10));
    /// assert_eq!(table.remove(1), None);
    /// ```
    #[inline]
    pub fn remove(&self, key: K) -> Option<V> {
        self.remove_one(key)
    }

    /// Removes `key`, without returning the value that it had.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// table.delete(1);
    /// assert!(table.is_empty());
    /// ```
    #[inline]
    pub fn delete(&self, key: K) {
        self.remove_one(key);
    }

    /// Performs an atomic read-modify-write: passes the present value to `f` and executes its decision. If another
    /// thread changes the key meanwhile, `f` is called again. No lock is held while `f` runs: it may call the table.
    ///
    /// ```
    /// use icefield::{Computed, Decision};
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let doubled = table.compute(1, |value| Decision::Put(value.map_or(1, |value| value * 2)));
    /// assert_eq!(doubled, Computed::Put(None));
    /// ```
    pub fn compute(&self, key: K, f: impl FnMut(Option<&V>) -> Decision<V>) -> Computed<V> {
        plain(self.compute_one(key, f))
    }

    /// Replaces the value by `new` if it is `current`; otherwise returns the present value as `Err`.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// assert_eq!(table.compare_exchange(1, 10, 11), Ok(()));
    /// assert_eq!(table.compare_exchange(1, 10, 12), Err(Some(11)));
    /// ```
    pub fn compare_exchange(
        &self,
        key: K,
        current: V,
        new: V,
    ) -> std::result::Result<(), Option<V>> {
        let computed = self.compute(key, |value| match value {
            Some(value) if *value == current => Decision::Put(new),
            _ => Decision::Keep,
        });
        match computed {
            Computed::Put(_) => Ok(()),
            other => Err(other.before()),
        }
    }

    /// Adds `delta` to the value of `key`, wrapping around; an absent key counts as zero. Returns the previous value.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// assert_eq!((table.fetch_add(1, 5), table.fetch_add(1, 5)), (0, 5));
    /// ```
    pub fn fetch_add(&self, key: K, delta: V) -> V
    where
        V: Counter,
    {
        let computed = self.compute(key, |value| {
            Decision::Put(value.copied().unwrap_or(V::ZERO).wrapping_add(delta))
        });
        computed.before().unwrap_or(V::ZERO)
    }

    /// Returns the number of records, in constant time. The number is exact if no other thread writes meanwhile.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// assert_eq!(table.len(), 1);
    /// ```
    #[inline]
    pub fn len(&self) -> u64 {
        self.core.len()
    }

    /// Returns whether the table is empty. The answer is exact if no other thread writes meanwhile.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many records fit before the table must grow.
    pub fn capacity(&self) -> u64 {
        self.core.capacity()
    }

    /// Returns statistics of the table.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::with_capacity(100_000);
    /// (0..100_000).for_each(|key| table.put(key, key));
    /// let stats = table.stats();
    /// assert!(stats.len_estimate <= stats.capacity);
    /// assert!(stats.dram_bytes / stats.len_estimate < 64, "bytes of the index for each record");
    /// ```
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Returns an iterator over the records (§3.4.4). It is weakly consistent: it returns every key that is present
    /// during the whole iteration exactly once, also across a resize.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// assert_eq!(table.iter().collect::<Vec<_>>(), [(1, 10)]);
    /// ```
    pub fn iter(&self) -> DlhtIter<'_, K, V, M> {
        DlhtIter { table: self, page: Vec::new().into_iter(), next: Some(Cursor::START) }
    }

    /// Calls `f` for each record of [`DlhtTable::iter`], until `f` returns `Break`. No lock is held while `f` runs.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// let mut sum = 0;
    /// table.for_each(|_, value| {
    ///     sum += value;
    ///     ControlFlow::Continue(())
    /// });
    /// assert_eq!(sum, 10);
    /// ```
    pub fn for_each(&self, mut f: impl FnMut(&K, &V) -> ControlFlow<()>) {
        for (key, value) in self.iter() {
            if f(&key, &value).is_break() {
                return;
            }
        }
    }

    /// Returns about `n` records from `cursor` on, like [`DlhtTable::iter`], and the cursor of the next page. Cursors
    /// survive every resize. If the table has changed its hash function since the cursor was returned, the page holds
    /// all remaining records.
    ///
    /// ```
    /// use icefield::Cursor;
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// let page = table.scan(Cursor::START, 100);
    /// assert_eq!((page.records, page.next), (vec![(1, 10)], None));
    /// ```
    pub fn scan(&self, cursor: Cursor, n: usize) -> Page<K, V> {
        plain(self.page(cursor, n))
    }

    /// Returns a strong snapshot: all records at one moment. Reads do not wait for it. Writers wait until all records
    /// have been moved to a new index; the old index is the snapshot.
    ///
    /// ```
    /// let table = icefield::Dlht::from_iter([(1_u64, 10_u64)]);
    /// let snapshot = table.snapshot();
    /// table.insert(2, 20);
    /// assert_eq!(snapshot.iter().count(), 1);
    /// ```
    pub fn snapshot(&self) -> Snapshot<K, V> {
        plain(self.try_snapshot())
    }

    /// Like [`DlhtTable::snapshot`], but returns an error if memory runs out.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the records are unchanged.
    ///
    /// ```
    /// let table = icefield::Dlht::from_iter([(1_u64, 10_u64)]);
    /// assert_eq!(table.try_snapshot()?.iter().count(), 1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_snapshot(&self) -> Result<Snapshot<K, V>> {
        Snapshot::take(&self.core)
    }

    /// Removes all records at one moment.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// table.clear();
    /// assert!(table.is_empty());
    /// ```
    pub fn clear(&self) {
        plain(self.core.clear());
    }

    /// Makes room for `additional` more records. If that needs a larger index, returns when all records have been moved
    /// there.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.reserve(1000);
    /// assert!(table.capacity() >= 1000);
    /// ```
    pub fn reserve(&self, additional: u64) {
        plain(self.core.reserve(self.len().saturating_add(additional)));
    }

    /// Moves all records to the smallest index that takes them.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::with_capacity(100_000);
    /// table.shrink_to_fit();
    /// assert!(table.capacity() < 1000);
    /// ```
    pub fn shrink_to_fit(&self) {
        plain(self.try_shrink_to_fit());
    }

    /// Like [`DlhtTable::shrink_to_fit`], but returns an error if memory runs out.
    ///
    /// # Errors
    /// Returns [`Error::NoMemory`](crate::Error::NoMemory); the records are unchanged.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::with_capacity(100_000);
    /// table.try_shrink_to_fit()?;
    /// assert!(table.capacity() < 1000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_shrink_to_fit(&self) -> Result<()> {
        self.core.shrink()
    }

    /// Removes the records for which `f` returns `false`, each by a separate operation; returns how many it removed.
    ///
    /// ```
    /// let table = icefield::Dlht::from_iter((0..10_u64).map(|key| (key, key)));
    /// assert_eq!(table.retain(|key, _| key % 2 == 0), 5);
    /// assert_eq!(table.len(), 5);
    /// ```
    pub fn retain(&self, mut f: impl FnMut(K, &V) -> bool) -> usize {
        let mut removed = 0;
        for (key, _) in self.iter() {
            let computed = self.compute(key, |value| match value {
                Some(value) if !f(key, value) => Decision::Remove,
                _ => Decision::Keep,
            });
            removed += usize::from(matches!(computed, Computed::Removed(_)));
        }
        removed
    }

    /// Inserts `key` as a shadow, visible only to its holder (§3.2.2): reads, updates and removals find the key absent,
    /// and other inserts of it are refused.
    ///
    /// ```
    /// use icefield::{Dlht, Error, NotShadowed, Table};
    /// let table = Dlht::<u64, u64>::new();
    /// let shadow = table.try_insert_shadow(1, 10)?;
    /// assert!(matches!(Table::insert(&table, 1, 11), Err(Error::Shadowed)));
    /// shadow.commit();
    /// assert_eq!(table.try_insert_shadow(1, 12).err(), Some(NotShadowed::Occupied(10)));
    /// # Ok::<(), NotShadowed<u64>>(())
    /// ```
    pub fn try_insert_shadow(
        &self,
        key: K,
        value: V,
    ) -> std::result::Result<Shadow<'_, K, V, M>, NotShadowed<V>> {
        plain(Shadow::insert(self, key, value))
    }

    /// Returns a holder for the shadow inserts of batches ([`Op::shadow`], §3.2.2) until they commit or abort.
    ///
    /// ```
    /// use icefield::{OnFailure, Op};
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let shadows = table.shadows();
    /// let mut ops = [Op::shadow(1, 10, &shadows), Op::shadow(2, 20, &shadows)];
    /// table.execute(&mut ops, OnFailure::Stop);
    /// // Both keys are ours, if nothing failed, and nobody else sees them.
    /// assert!(ops.iter().all(|op| !op.failed()) && table.is_empty());
    /// shadows.commit();
    /// assert_eq!((table.get(1), table.get(2)), (Some(10), Some(20)));
    /// ```
    pub fn shadows(&self) -> Shadows<'_, K, V, M> {
        Shadows::of(self)
    }

    /// Calls [`DlhtTable::get`] for each key in order, with memory latencies overlapped (§3.3). This is the fast way to
    /// read.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.insert(1, 10);
    /// let mut found = [None; 2];
    /// table.get_batch(&[1, 2], &mut found);
    /// assert_eq!(found, [Some(10), None]);
    /// ```
    pub fn get_batch(&self, keys: &[K], found: &mut [Option<V>]) {
        plain(self.get_all(keys, found));
    }

    /// Calls [`DlhtTable::insert`] for each record in order.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let mut previous = [None; 2];
    /// table.insert_batch(&[(1, 10), (1, 11)], &mut previous);
    /// assert_eq!(previous, [None, Some(10)]);
    /// ```
    pub fn insert_batch(&self, records: &[(K, V)], previous: &mut [Option<V>]) {
        plain(self.insert_all(records, previous));
    }

    /// Calls [`DlhtTable::put`] for each record in order.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.put_batch(&[(1, 10), (2, 20)]);
    /// assert_eq!(table.len(), 2);
    /// ```
    pub fn put_batch(&self, records: &[(K, V)]) {
        plain(self.put_all(records));
    }

    /// Calls [`DlhtTable::update`] for each record in order.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.put(1, 10);
    /// let mut previous = [None; 2];
    /// table.update_batch(&[(1, 11), (2, 20)], &mut previous);
    /// assert_eq!(previous, [Some(10), None]);
    /// ```
    pub fn update_batch(&self, records: &[(K, V)], previous: &mut [Option<V>]) {
        plain(self.update_all(records, previous));
    }

    /// Calls [`DlhtTable::try_insert`] for each record in order.
    ///
    /// ```
    /// use icefield::Occupied;
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let mut outcomes = [Ok(()), Ok(())];
    /// table.try_insert_batch(&[(1, 10), (1, 11)], &mut outcomes);
    /// assert_eq!(outcomes, [Ok(()), Err(Occupied(10))]);
    /// ```
    pub fn try_insert_batch(&self, records: &[(K, V)], outcomes: &mut [TryInsert<V>]) {
        plain(self.try_insert_all(records, outcomes));
    }

    /// Calls [`DlhtTable::remove`] for each key in order.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.put(1, 10);
    /// let mut removed = [None; 2];
    /// table.remove_batch(&[1, 2], &mut removed);
    /// assert_eq!(removed, [Some(10), None]);
    /// ```
    pub fn remove_batch(&self, keys: &[K], removed: &mut [Option<V>]) {
        plain(self.remove_all(keys, removed));
    }

    /// Runs a mixed batch strictly in order and returns how many operations ran. Each operation that ran holds its
    /// result. The batch's shadow inserts are held by their [`Shadows`].
    ///
    /// ```
    /// use icefield::{OnFailure, Op};
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// let mut ops = [Op::put(1, 10), Op::get(2), Op::put(3, 30)];
    /// assert_eq!(table.execute(&mut ops, OnFailure::Stop), 2);
    /// assert_eq!(table.get(3), None);
    /// ```
    pub fn execute(&self, ops: &mut [Op<'_, K, V>], on_failure: OnFailure) -> usize {
        plain(self.execute_all(ops, on_failure))
    }

    /// Prefetches the bin of `key`, for an operation that follows soon.
    ///
    /// ```
    /// let table = icefield::Dlht::<u64, u64>::from_iter([(1, 10)]);
    /// table.prefetch(1);
    /// // Other work, while the line is loaded.
    /// assert_eq!(table.get(1), Some(10));
    /// ```
    #[inline]
    pub fn prefetch(&self, key: K) {
        self.core.prefetch(key.to_word());
    }

    /// Prefetches the bin of `key`, yields to the executor once, then returns the value.
    ///
    /// ```
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
    /// #     }
    /// # }
    /// let table = icefield::Dlht::<u64, u64>::new();
    /// table.put(1, 10);
    /// assert_eq!(block_on(table.get_async(1)), Some(10));
    /// ```
    pub async fn get_async(&self, key: K) -> Option<V> {
        self.prefetch(key);
        yield_once().await;
        self.get(key)
    }

    fn page(&self, cursor: Cursor, n: usize) -> Result<Page<K, V>> {
        let mut words = Vec::new();
        let next = self.core.scan(cursor.0, n, &mut words)?;
        let typed = |(key, value)| Some((K::from_word(key)?, V::from_word(value)?));
        let records = words.into_iter().filter_map(typed).collect();
        Ok(Page { records, next: next.map(Cursor) })
    }
}

impl<K: Word, V: Word, M: Threading> fmt::Debug for DlhtTable<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Word, V: Word, M: Threading> FromIterator<(K, V)> for DlhtTable<K, V, M> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(records: I) -> Self {
        let records = records.into_iter();
        let mut table = Self::with_capacity(records.size_hint().0 as u64);
        table.extend(records);
        table
    }
}

impl<K: Word, V: Word, M: Threading> Extend<(K, V)> for DlhtTable<K, V, M> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, records: I) {
        let mut records = records.into_iter();
        loop {
            let some: Vec<_> = records.by_ref().take(SCAN_PAGE).collect();
            if some.is_empty() {
                return;
            }
            self.put_batch(&some);
        }
    }
}

impl<'a, K: Word, V: Word, M: Threading> IntoIterator for &'a DlhtTable<K, V, M> {
    type Item = (K, V);
    type IntoIter = DlhtIter<'a, K, V, M>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Word, V: Word, M: Threading> Iterator for DlhtIter<'_, K, V, M> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            if let Some(record) = self.page.next() {
                return Some(record);
            }
            let page = self.table.scan(self.next.take()?, SCAN_PAGE);
            (self.page, self.next) = (page.records.into_iter(), page.next);
        }
    }
}

impl<K: Word, V: Word, M: Threading> fmt::Debug for DlhtIter<'_, K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlhtIter").field("next", &self.next).finish_non_exhaustive()
    }
}

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
        Ok(self.len())
    }
    fn capacity(&self) -> u64 {
        self.capacity()
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
        self.core.reserve(self.len().saturating_add(additional))
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
