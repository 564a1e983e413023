//! The traits [`Table`], [`Collection`] and [`Durable`], and the iterator over any table.

use std::ops::ControlFlow;
use std::path::Path;

use super::op::{Exchanged, Op, Page, TryInsert};
use crate::outcome::{Computed, Cursor, Decision, OnFailure, SCAN_PAGE};
use crate::report::{BackupReport, CheckReport, RecoveryReport, SalvageReport, Stats};
use crate::types::{Arg, Counter, Data, Key, Owned, RecordArg, Value};
use crate::{Error, Result};

/// The number of keys between the prefetch for a key and its lookup in [`Table::get_batch_with`].
const PREFETCH_AHEAD: usize = 16;

/// The operations of a hash table of records, implemented by [`DashEh`](crate::DashEh), [`DashLh`](crate::DashLh),
/// [`Iceberg`](crate::Iceberg), [`Plush`](crate::Plush) and [`Dlht`](crate::Dlht).
///
/// Any number of threads may call a table at once. Every operation on a key is linearizable. On a durable table, the
/// effect of a returned call and the result that it returned survive every crash that the medium covers. The exception
/// is relaxed writes, which Plush offers: they are durable after a sync.
///
/// The types' inherent methods have the same names, so the trait is needed only for generic code.
///
/// Operations on one key:
///
/// ```
/// use icefield::{Computed, DashEh, Decision, Dlht, Occupied, Table};
///
/// fn show(table: &impl Table<Key = u64, Value = u64>) -> icefield::Result<()> {
///     assert_eq!(table.try_insert(1, 10)?, Ok(()));
///     assert_eq!(table.try_insert(1, 11)?, Err(Occupied(10)));
///     assert_eq!(table.insert(1, 12)?, Some(10));
///     table.put(2, 20)?;
///     assert_eq!(table.update(3, 30)?, None, "absent, and stays so");
///
///     assert_eq!(table.get(1)?, Some(12));
///     assert_eq!(table.get_with(2, |value| value / 2)?, Some(10));
///     assert!(!table.contains(3)?);
///
///     let halve = |value: Option<&u64>| value.map_or(Decision::Keep, |value| Decision::Put(value / 2));
///     assert_eq!(table.compute(1, halve)?, Computed::Put(Some(12)));
///     assert_eq!(table.compare_exchange(1, 6, 7)?, Ok(()));
///     assert_eq!(table.fetch_add(1, 5)?, 7);
///
///     assert_eq!(table.remove(1)?, Some(12));
///     table.delete(2)?;
///     assert!(table.is_empty()?);
///     Ok(())
/// }
/// show(&DashEh::<u64, u64>::in_memory()?)?;
/// show(&Dlht::<u64, u64>::new())?;
/// # Ok::<(), icefield::Error>(())
/// ```
///
/// Batches, which overlap memory latencies and share fences:
///
/// ```
/// use icefield::{DashEh, Occupied, OnFailure, Op, Table};
///
/// fn show(table: &impl Table<Key = u64, Value = u64>) -> icefield::Result<()> {
///     let mut outcomes = [Ok(()); 2];
///     table.try_insert_batch(&[(1, 10), (1, 11)], &mut outcomes)?;
///     assert_eq!(outcomes, [Ok(()), Err(Occupied(10))]);
///     table.put_batch(&[(2, 20), (3, 30)])?;
///
///     let mut values = [None; 2];
///     table.insert_batch(&[(3, 31), (4, 40)], &mut values)?;
///     assert_eq!(values, [Some(30), None]);
///     table.update_batch(&[(4, 41), (5, 50)], &mut values)?;
///     assert_eq!(values, [Some(40), None]);
///     table.remove_batch(&[1, 5], &mut values)?;
///     assert_eq!(values, [Some(10), None]);
///     table.get_batch(&[3, 4], &mut values)?;
///     assert_eq!(values, [Some(31), Some(41)]);
///     let mut sum = 0;
///     table.get_batch_with(&[3, 5, 4], |_, value| sum += value.copied().unwrap_or(0))?;
///     assert_eq!(sum, 72);
///
///     let mut ops = [Op::get(2), Op::remove(9), Op::put(9, 90)];
///     assert_eq!(table.execute(&mut ops, OnFailure::Stop)?, 2, "9 is absent");
///     Ok(())
/// }
/// show(&DashEh::<u64, u64>::in_memory()?)?;
/// # Ok::<(), icefield::Error>(())
/// ```
///
/// The table as a whole:
///
/// ```
/// use std::ops::ControlFlow;
///
/// use icefield::{Cursor, DashEh, Table};
///
/// fn show(table: &impl Table<Key = u64, Value = u64>) -> icefield::Result<()> {
///     table.reserve(1000)?;
///     assert!(table.capacity() >= 1000);
///     (0..1000).try_for_each(|key| table.put(key, key))?;
///     table.retain(|key, _| key % 10 == 0)?;
///     assert_eq!((table.len()?, table.stats().len_estimate), (100, 100));
///
///     let mut sum = 0;
///     table.for_each(|_, value| {
///         sum += value;
///         ControlFlow::Continue(())
///     })?;
///     assert_eq!(sum, 49_500);
///     assert_eq!(table.iter().collect::<Result<Vec<_>, _>>()?.len(), 100);
///     let page = table.scan(Cursor::START, 10)?;
///     assert!(page.next.is_some(), "there is more");
///
///     table.clear()?;
///     table.shrink_to_fit()?;
///     assert!(table.scan(Cursor::START, 10)?.records.is_empty());
///     Ok(())
/// }
/// show(&DashEh::<u64, u64>::in_memory()?)?;
/// # Ok::<(), icefield::Error>(())
/// ```
///
/// Generic code:
///
/// ```
/// use icefield::{DashEh, Table};
///
/// fn total(table: &impl Table<Key = u64, Value = u64>, keys: &[u64]) -> icefield::Result<u64> {
///     let mut found = vec![None; keys.len()];
///     table.get_batch(keys, &mut found)?;
///     Ok(found.into_iter().flatten().sum())
/// }
/// let table = DashEh::<u64, u64>::in_memory()?;
/// table.put_batch(&[(1, 10), (2, 20)])?;
/// assert_eq!(total(&table, &[1, 2, 3])?, 30);
/// # Ok::<(), icefield::Error>(())
/// ```
pub trait Table: Send + Sync {
    /// The key type.
    type Key: Key + ?Sized;
    /// The value type.
    type Value: Value + ?Sized;

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a file is damaged.
    fn get(&self, key: Arg<'_, Self::Key>) -> Result<Option<Owned<Self::Value>>> {
        self.get_with(key, Self::Value::own_ref)
    }

    /// Calls `f` with the value of `key` and returns the result, or `None` if the key is absent. `f` may get a copy of
    /// the value. No lock is held while `f` runs, so `f` may call the table.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn get_with<R>(
        &self,
        key: Arg<'_, Self::Key>,
        f: impl FnOnce(&Self::Value) -> R,
    ) -> Result<Option<R>>;

    /// Returns `true` if `key` is present.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn contains(&self, key: Arg<'_, Self::Key>) -> Result<bool> {
        Ok(self.get_with(key, |_| ())?.is_some())
    }

    /// Inserts `key` only if it is absent; otherwise returns the present value.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::Poisoned`], [`Error::KeyTooLong`] and others. The table is
    /// unchanged.
    fn try_insert(
        &self,
        key: Arg<'_, Self::Key>,
        value: Arg<'_, Self::Value>,
    ) -> Result<TryInsert<Self::Value>>;

    /// Inserts `key` or replaces its value; returns the previous value.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn insert(
        &self,
        key: Arg<'_, Self::Key>,
        value: Arg<'_, Self::Value>,
    ) -> Result<Option<Owned<Self::Value>>>;

    /// Inserts `key` or replaces its value, without returning the previous value.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn put(&self, key: Arg<'_, Self::Key>, value: Arg<'_, Self::Value>) -> Result<()>;

    /// Replaces the value only if `key` is present; returns the previous value.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn update(
        &self,
        key: Arg<'_, Self::Key>,
        value: Arg<'_, Self::Value>,
    ) -> Result<Option<Owned<Self::Value>>>;

    /// Removes `key`; returns its value.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Poisoned`], [`Error::Corrupt`].
    fn remove(&self, key: Arg<'_, Self::Key>) -> Result<Option<Owned<Self::Value>>>;

    /// Removes `key`, without returning whether it was present.
    ///
    /// # Errors
    /// As [`Table::remove`].
    fn delete(&self, key: Arg<'_, Self::Key>) -> Result<()>;

    /// Reads, modifies and writes the value of `key` atomically: calls `f` with the present value, then applies its
    /// decision. If another thread changes the value in between, `f` is called again. No lock is held while `f` runs.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn compute(
        &self,
        key: Arg<'_, Self::Key>,
        f: impl FnMut(Option<&Self::Value>) -> Decision<Owned<Self::Value>>,
    ) -> Result<Computed<Owned<Self::Value>>>;

    /// Replaces the value by `new` if it equals `current`. Otherwise `Err` holds the present value, or `None` if the
    /// key is absent. Byte values are compared as a whole.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn compare_exchange(
        &self,
        key: Arg<'_, Self::Key>,
        current: Arg<'_, Self::Value>,
        new: Arg<'_, Self::Value>,
    ) -> Result<Exchanged<Self::Value>> {
        let (current, new) =
            (Self::Value::own(Self::Value::raw(current)), Self::Value::own(Self::Value::raw(new)));
        let computed = self.compute(key, |value| match (value, &current, &new) {
            (Some(value), Some(current), Some(new)) if value.own_ref() == *current => {
                Decision::Put(new.clone())
            }
            _ => Decision::Keep,
        })?;
        Ok(match computed {
            Computed::Put(_) => Ok(()),
            other => Err(other.before()),
        })
    }

    /// Adds `delta` to the value of `key`, wrapping around; returns the value before. An absent key counts as zero.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn fetch_add(&self, key: Arg<'_, Self::Key>, delta: Self::Value) -> Result<Self::Value>
    where
        Self::Value: Counter + Data<Owned = Self::Value>,
    {
        let computed = self.compute(key, |value| {
            Decision::Put(value.copied().unwrap_or(Self::Value::ZERO).wrapping_add(delta))
        })?;
        Ok(computed.before().unwrap_or(Self::Value::ZERO))
    }

    /// Returns the number of records, which is exact when the table is quiescent. The first call after a crash may scan
    /// the table; [`Plush`](crate::Plush) scans it in every call.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn len(&self) -> Result<u64>;

    /// Returns `true` if the table holds no record.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the number of records that fit before the table must grow.
    fn capacity(&self) -> u64;

    /// Returns sizes and counters of the table. Constant time.
    fn stats(&self) -> Stats;

    /// Returns about `n` records from `cursor` on. Weakly consistent: a pass over the whole table returns each key that
    /// is present during the whole pass exactly once, even across splits.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn scan(&self, cursor: Cursor, n: usize) -> Result<Page<Self::Key, Self::Value>>;

    /// Returns an iterator over the records, as consistent as [`Table::scan`].
    fn iter(&self) -> Iter<'_, Self>
    where
        Self: Sized,
    {
        Iter::new(self)
    }

    /// Calls `f` with every record until `f` returns `Break`; as consistent as [`Table::scan`]. No lock is held while
    /// `f` runs.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn for_each(
        &self,
        mut f: impl FnMut(&Owned<Self::Key>, &Owned<Self::Value>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut next = Some(Cursor::START);
        while let Some(cursor) = next {
            let page = self.scan(cursor, SCAN_PAGE)?;
            for (key, value) in &page.records {
                if f(key, value).is_break() {
                    return Ok(());
                }
            }
            next = page.next;
        }
        Ok(())
    }

    /// Removes every record at once: a crash leaves all of them or none.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn clear(&self) -> Result<()>;

    /// Makes room for `additional` more records, so that inserting them causes few splits or none.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; the room that was already made is kept.
    fn reserve(&self, additional: u64) -> Result<()>;

    /// Frees space that the records do not need, as far as the design can. The default implementation does nothing.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Io`]; no record is lost.
    fn shrink_to_fit(&self) -> Result<()> {
        Ok(())
    }

    /// Removes the records for which `f` returns `false`, each by a separate operation; returns the number of removed
    /// records.
    ///
    /// # Errors
    /// As [`Table::remove`].
    fn retain(&self, f: impl FnMut(Arg<'_, Self::Key>, &Self::Value) -> bool) -> Result<usize> {
        retain(self, f)
    }

    /// Runs [`Table::get`] for each key in order, with overlapping memory latencies.
    ///
    /// # Errors
    /// As [`Table::get`]; [`Error::InvalidOption`] if the slices differ in length.
    fn get_batch(
        &self,
        keys: &[Arg<'_, Self::Key>],
        found: &mut [Option<Owned<Self::Value>>],
    ) -> Result<()>;

    /// Calls `f` with the index of each key and its value, in order, with overlapping memory latencies. The value is
    /// `None` if the key is absent; it may be a copy. No lock is held while `f` runs, so `f` may call the table.
    ///
    /// # Errors
    /// As [`Table::get`]; `f` has been called only for the keys before the failing one.
    fn get_batch_with(
        &self,
        keys: &[Arg<'_, Self::Key>],
        mut f: impl FnMut(usize, Option<&Self::Value>),
    ) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            if let Some(later) = keys.get(index + PREFETCH_AHEAD) {
                self.prefetch(*later);
            }
            if self.get_with(*key, |value| f(index, Some(value)))?.is_none() {
                f(index, None);
            }
        }
        Ok(())
    }

    /// Runs [`Table::insert`] for each record in order. All are durable when the call returns; their flushes share
    /// fences. After a crash during the call, any subset of the keys may have been inserted; of the operations on one
    /// key, a prefix survives.
    ///
    /// # Errors
    /// As [`Table::try_insert`]; the operations before the failing one are durable, and their results are filled in.
    fn insert_batch(
        &self,
        records: &[RecordArg<'_, Self::Key, Self::Value>],
        previous: &mut [Option<Owned<Self::Value>>],
    ) -> Result<()>;

    /// Runs [`Table::put`] for each record, with the guarantees of [`Table::insert_batch`].
    ///
    /// # Errors
    /// As [`Table::insert_batch`].
    fn put_batch(&self, records: &[RecordArg<'_, Self::Key, Self::Value>]) -> Result<()>;

    /// Runs [`Table::update`] for each record, with the guarantees of [`Table::insert_batch`].
    ///
    /// # Errors
    /// As [`Table::insert_batch`].
    fn update_batch(
        &self,
        records: &[RecordArg<'_, Self::Key, Self::Value>],
        previous: &mut [Option<Owned<Self::Value>>],
    ) -> Result<()>;

    /// Runs [`Table::try_insert`] for each record, with the guarantees of [`Table::insert_batch`].
    ///
    /// # Errors
    /// As [`Table::insert_batch`].
    fn try_insert_batch(
        &self,
        records: &[RecordArg<'_, Self::Key, Self::Value>],
        outcomes: &mut [TryInsert<Self::Value>],
    ) -> Result<()>;

    /// Runs [`Table::remove`] for each key, with the guarantees of [`Table::insert_batch`].
    ///
    /// # Errors
    /// As [`Table::insert_batch`].
    fn remove_batch(
        &self,
        keys: &[Arg<'_, Self::Key>],
        removed: &mut [Option<Owned<Self::Value>>],
    ) -> Result<()>;

    /// Runs a mixed batch strictly in order; returns the number of operations that ran. These are durable, and their
    /// results are filled in.
    ///
    /// # Errors
    /// As [`Table::insert_batch`]; [`Error::Unsupported`], before any operation runs, if there is an [`Op::Shadow`] and
    /// the table has no shadow inserts; [`Error::InvalidOption`] at an operation that names the shadows of another
    /// table.
    fn execute(
        &self,
        ops: &mut [Op<'_, Self::Key, Self::Value>],
        on_failure: OnFailure,
    ) -> Result<usize>;

    /// Prefetches the memory that a read of `key` will access.
    ///
    /// ```
    /// use icefield::{DashEh, Table};
    /// let table = DashEh::<u64, u64>::in_memory()?;
    /// Table::prefetch(&table, 1); // Its lines are on their way while this thread does something else.
    /// assert_eq!(Table::get(&table, 1)?, None);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    fn prefetch(&self, key: Arg<'_, Self::Key>);

    /// Prefetches `key`, yields to the executor once, then reads the value.
    ///
    /// # Errors
    /// As [`Table::get`].
    ///
    /// ```
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
    /// #     }
    /// # }
    /// use icefield::{DashEh, Table};
    /// async fn sum(table: &impl Table<Key = u64, Value = u64>) -> icefield::Result<Option<u64>> {
    ///     let (one, two) = (table.get_async(1).await?, table.get_async(2).await?);
    ///     Ok(one.zip(two).map(|(one, two)| one + two))
    /// }
    /// let table = DashEh::<u64, u64>::in_memory()?;
    /// table.put_batch(&[(1, 10), (2, 20)])?;
    /// assert_eq!(block_on(sum(&table))?, Some(30));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    fn get_async(
        &self,
        key: Arg<'_, Self::Key>,
    ) -> impl Future<Output = Result<Option<Owned<Self::Value>>>> + Send {
        async move {
            self.prefetch(key);
            YieldOnce(false).await;
            self.get(key)
        }
    }
}

type Record<T> = (Owned<<T as Table>::Key>, Owned<<T as Table>::Value>);

/// An iterator over a table's records, from [`Table::iter`] and the tables' own `iter()`. It reads one page of records
/// at a time, and is as consistent as [`Table::scan`].
///
/// ```
/// let table = icefield::DashEh::<u64, u64>::in_memory()?;
/// table.put_batch(&[(1, 10), (2, 20)])?;
/// let sum: u64 = table.iter().map(|record| record.map(|(_, value)| value)).sum::<icefield::Result<u64>>()?;
/// assert_eq!(sum, 30);
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct Iter<'a, T: Table> {
    table: &'a T,
    page: std::vec::IntoIter<Record<T>>,
    next: Option<Cursor>,
}

impl<'a, T: Table> Iter<'a, T> {
    pub(crate) fn new(table: &'a T) -> Self {
        Self { table, page: Vec::new().into_iter(), next: Some(Cursor::START) }
    }
}

impl<T: Table> Iterator for Iter<'_, T> {
    type Item = Result<Record<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.page.next() {
                return Some(Ok(record));
            }
            match self.table.scan(self.next.take()?, SCAN_PAGE) {
                Ok(page) => (self.page, self.next) = (page.records.into_iter(), page.next),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The operations on a table as a whole that do not depend on the types of its keys and values. Every [`Table`],
/// [`DlhtMap`](crate::DlhtMap) and [`DlhtSet`](crate::DlhtSet) implements them.
///
/// ```
/// use icefield::{Collection, DashEh, DlhtMap, DlhtSet};
///
/// fn empty(tables: &[&dyn Collection]) -> icefield::Result<()> {
///     for table in tables {
///         table.reserve(100)?;
///         assert!(table.capacity() >= 100 && table.stats().capacity >= 100);
///         assert_eq!(table.is_empty()?, table.len()? == 0);
///         table.clear()?;
///         table.shrink_to_fit()?;
///     }
///     Ok(())
/// }
/// let records = DashEh::<u64, u64>::in_memory()?;
/// records.put(1, 10)?;
/// let (words, set) = (DlhtMap::from([("one", 1)]), DlhtSet::from_iter([1_u32]));
/// empty(&[&records, &words, &set])?;
/// assert!(records.is_empty()? && words.is_empty() && set.is_empty());
/// # Ok::<(), icefield::Error>(())
/// ```
pub trait Collection {
    /// Returns the number of records, which is exact when the table is quiescent. The first call after a crash may scan
    /// the table; [`Plush`](crate::Plush) scans it in every call.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn len(&self) -> Result<u64>;

    /// Returns `true` if the table holds no record.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the number of records that fit before the table must grow.
    fn capacity(&self) -> u64;

    /// Returns sizes and counters of the table. Constant time.
    fn stats(&self) -> Stats;

    /// Removes every record at once: a crash leaves all of them or none.
    ///
    /// # Errors
    /// As [`Table::try_insert`].
    fn clear(&self) -> Result<()>;

    /// Makes room for `additional` more records, so that inserting them causes few splits or none.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; the room that was already made is kept.
    fn reserve(&self, additional: u64) -> Result<()>;

    /// Frees space that the records do not need, as far as the design can.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Io`]; no record is lost.
    fn shrink_to_fit(&self) -> Result<()>;
}

impl<T: Table> Collection for T {
    fn len(&self) -> Result<u64> {
        Table::len(self)
    }
    fn capacity(&self) -> u64 {
        Table::capacity(self)
    }
    fn stats(&self) -> Stats {
        Table::stats(self)
    }
    fn clear(&self) -> Result<()> {
        Table::clear(self)
    }
    fn reserve(&self, additional: u64) -> Result<()> {
        Table::reserve(self, additional)
    }
    fn shrink_to_fit(&self) -> Result<()> {
        Table::shrink_to_fit(self)
    }
}

/// Implements [`Table::retain`] with `scan` and `compute`.
pub(crate) fn retain<T: Table + ?Sized>(
    table: &T,
    mut f: impl FnMut(Arg<'_, T::Key>, &T::Value) -> bool,
) -> Result<usize> {
    let mut removed = 0;
    let mut next = Some(Cursor::START);
    while let Some(cursor) = next {
        let page = table.scan(cursor, SCAN_PAGE)?;
        for (key, _) in &page.records {
            let key = T::Key::arg(key);
            let computed = table.compute(key, |value| match value {
                Some(value) if !f(key, value) => Decision::Remove,
                _ => Decision::Keep,
            })?;
            removed += usize::from(matches!(computed, Computed::Removed(_)));
        }
        next = page.next;
    }
    Ok(removed)
}

/// The operations of a table that can live in files, in addition to [`Table`].
///
/// An open table owns its files. No other program may write, truncate or replace them: the table would read foreign
/// bytes as values. A copy of the open files made by other means than [`Durable::backup`] (`cp -r`, `rsync`) opens
/// without an error and may hold wrong values, which [`Durable::check`] finds.
///
/// ```
/// use icefield::{DashEh, Durable};
///
/// /// Copies the table to a path beside it; if it is damaged, copies only the readable records.
/// fn keep(table: &impl Durable) -> icefield::Result<u64> {
///     assert!(table.recovery().generation >= 1, "opened once at least");
///     table.sync()?;
///     let copy = table.path().with_extension("copy");
///     if table.check()?.is_clean() {
///         table.backup(&copy)?;
///         table.len()
///     } else {
///         Ok(table.salvage(&copy)?.records)
///     }
/// }
/// let directory = tempfile::tempdir()?;
/// let table = DashEh::<u64, u64>::create(directory.path().join("orders.ice"))?;
/// table.put(7, 70)?;
/// assert_eq!(keep(&table)?, 1);
/// let copy = DashEh::<u64, u64>::open(directory.path().join("orders.copy"))?;
/// assert_eq!(copy.get(7)?, Some(70));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Durable: Table {
    /// Waits until every earlier operation is durable. Needed only after relaxed writes; any other call is durable when
    /// it returns.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a sync failed.
    fn sync(&self) -> Result<()>;

    /// Checks every invariant and checksum, without changing a record. Call it on a quiescent table.
    ///
    /// # Errors
    /// Fails if the root words, which lead to all parts of the table, cannot be read.
    fn check(&self) -> Result<CheckReport>;

    /// Scans as [`Table::scan`] does, but continues after a damaged record: calls `damaged` with its key, if that can
    /// be read, and the error.
    #[doc(hidden)]
    fn scan_whole(
        &self,
        cursor: Cursor,
        n: usize,
        damaged: &mut dyn FnMut(Option<Owned<Self::Key>>, Error),
    ) -> Result<Page<Self::Key, Self::Value>> {
        let _ = damaged;
        self.scan(cursor, n)
    }

    /// Copies everything that can still be read to a new table at `path`.
    ///
    /// # Errors
    /// Fails if the new table cannot be written.
    fn salvage(&self, path: &Path) -> Result<SalvageReport>;

    /// Copies the table's directory to `path`, where the copy opens as a table. Writers wait during the copy; readers
    /// do not.
    ///
    /// # Errors
    /// Fails if the copy cannot be written; nothing is then left at `path`.
    fn backup(&self, path: &Path) -> Result<BackupReport>;

    /// Returns the table's directory.
    fn path(&self) -> &Path;

    /// Returns a report on the opening of this table: the state that it found and the work of recovery.
    fn recovery(&self) -> RecoveryReport;
}

/// Returns a future that is pending exactly once.
pub(crate) fn yield_once() -> impl Future<Output = ()> + Send {
    YieldOnce(false)
}

struct YieldOnce(bool);

impl Future for YieldOnce {
    type Output = ();

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<()> {
        if self.0 {
            return std::task::Poll::Ready(());
        }
        self.0 = true;
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    }
}
