//! The durable table: one implementation for all designs, generic over the user's types.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::path::Path;

use super::mixed::Ops;
use super::op::{Exchanged, Op, Page, TryInsert, no_shadows, same_length};
use super::traits::{Durable, Iter, Table, retain};
use crate::engine::{Design, Maintenance, OnDamage, Operations, WriteKind};
use crate::outcome::{Computed, Cursor, Decision, Occupied, OnFailure};
use crate::report::{BackupReport, CheckReport, RecoveryReport, SalvageReport, Stats};
use crate::storage::{Mapped, Medium};
use crate::types::{
    Arg, Counter, Data, Ignore, Key, Own, Owned, Raw, RecordArg, Show, Types, Value,
};
use crate::{Error, Result};

/// The stored form of records with keys `K` and values `V` in the design `D`.
pub(super) type FormOf<K, V, D> = <D as Design>::Form<<K as Data>::Stored, <V as Data>::Stored>;
type EngineOf<K, V, D, M> = <D as Design>::Engine<FormOf<K, V, D>, M>;

/// A durable, concurrent hash table of the design `D`, on the medium `M`. Use it as [`DashEh`](crate::DashEh),
/// [`DashLh`](crate::DashLh), [`Iceberg`](crate::Iceberg) or [`Plush`](crate::Plush).
///
/// Any number of threads may call a table at once. Every operation on a key is linearizable, and durable when it
/// returns, unless the table was opened with a relaxed [`SyncMode`](crate::SyncMode). The operations are also those of
/// the traits [`Table`] and [`Durable`], for generic code.
///
/// ```
/// let table = icefield::DashEh::<str, u64>::in_memory()?;
/// assert_eq!(table.insert("answer", 42)?, None);
/// assert_eq!(table.get("answer")?, Some(42));
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct DurableTable<K, V, D, M = Mapped>
where
    K: Key + ?Sized,
    V: Value + ?Sized,
    D: Design,
    M: Medium,
{
    pub(super) engine: EngineOf<K, V, D, M>,
    recovery: RecoveryReport,
    types: PhantomData<fn(&K, &V)>,
}

/// The operations, as documented for [`Table`] and [`Durable`]. Each is durable when it returns, unless the
/// table was opened with a relaxed [`SyncMode`](crate::SyncMode).
impl<K: Key + ?Sized, V: Value + ?Sized, D: Design, M: Medium> DurableTable<K, V, D, M> {
    /// Returns the value of `key`. Takes no lock and writes nothing, except that the first access to a Dash segment in
    /// a session may recover the segment.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a file is damaged.
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// assert_eq!(table.get(1)?, None);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn get(&self, key: Arg<'_, K>) -> Result<Option<Owned<V>>> {
        self.engine.get(&K::raw(key), Own::<V>::NEW)
    }

    /// Calls `f` with the value of `key` and returns the result, or `None` if the key is absent. No lock is held while
    /// `f` runs, so `f` may call the table. If the value is stored by reference, Dash and IcebergHT pass a copy of it
    /// (on the stack if it is short), so a slow `f` delays no reclamation. Plush passes the stored bytes in place,
    /// and while `f` runs, it reuses neither the chunk of these bytes nor any chunk that is freed meanwhile.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// let table = icefield::DashEh::<str, [u8]>::in_memory()?;
    /// table.put("page", b"<html>")?;
    /// assert_eq!(table.get_with("page", |bytes| bytes.len())?, Some(6));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn get_with<R>(&self, key: Arg<'_, K>, f: impl FnOnce(&V) -> R) -> Result<Option<R>> {
        self.engine.get(&K::raw(key), Show::<V, _>::new(f))
    }

    /// Returns `true` if `key` is present.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.put(1, 10)?;
    /// assert!(table.contains(1)?);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn contains(&self, key: Arg<'_, K>) -> Result<bool> {
        self.engine.contains(&K::raw(key))
    }

    /// Inserts `key` only if it is absent; otherwise returns the present value.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::KeyTooLong`],
    /// [`Error::ValueTooLong`], [`Error::Forked`], [`Error::Corrupt`]; the table is
    /// unchanged.
    ///
    /// ```
    /// use icefield::Occupied;
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// assert_eq!(table.try_insert(1, 10)?, Ok(()));
    /// assert_eq!(table.try_insert(1, 20)?, Err(Occupied(10)));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_insert(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<TryInsert<V>> {
        Ok(occupied::<V>(self.write(WriteKind::TryInsert, key, &V::raw(value))?))
    }

    /// Inserts `key` or replaces its value; returns the previous value.
    ///
    /// # Errors
    /// As [`try_insert`](Self::try_insert).
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// assert_eq!(table.insert(1, 10)?, None);
    /// assert_eq!(table.insert(1, 20)?, Some(10));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn insert(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<Option<Owned<V>>> {
        self.write(WriteKind::Insert, key, &V::raw(value))
    }

    /// Inserts `key` or replaces its value. Does not return the previous value, which saves reading it.
    ///
    /// # Errors
    /// As [`try_insert`](Self::try_insert).
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, str>::in_memory()?;
    /// table.put(1, "one")?;
    /// table.put(1, "uno")?;
    /// assert_eq!(table.get(1)?.as_deref(), Some("uno"));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn put(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<()> {
        self.engine.write(WriteKind::Put, &K::raw(key), &V::raw(value), Ignore).map(|_| ())
    }

    /// Replaces the value only if `key` is present; returns the previous value. Costs about one flush and one fence if
    /// key and value are words.
    ///
    /// # Errors
    /// As [`try_insert`](Self::try_insert).
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// assert_eq!(table.update(1, 20)?, None);
    /// assert!(!table.contains(1)?);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn update(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<Option<Owned<V>>> {
        self.write(WriteKind::Update, key, &V::raw(value))
    }

    /// Removes `key`; returns its value.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Forked`], [`Error::Corrupt`].
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.put(1, 10)?;
    /// assert_eq!(table.remove(1)?, Some(10));
    /// assert_eq!(table.remove(1)?, None);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn remove(&self, key: Arg<'_, K>) -> Result<Option<Owned<V>>> {
        self.write(WriteKind::Remove, key, &Raw::NONE)
    }

    /// Removes `key`, without returning whether it was present.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.delete(1)?;
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn delete(&self, key: Arg<'_, K>) -> Result<()> {
        self.engine.write(WriteKind::Delete, &K::raw(key), &Raw::NONE, Ignore).map(|_| ())
    }

    /// Reads, modifies and writes the value of `key` atomically: calls `f` with the present value, then applies
    /// its decision. If another thread changes the value in between, `f` is called again. No lock is held while
    /// `f` runs.
    ///
    /// # Errors
    /// As [`try_insert`](Self::try_insert).
    ///
    /// ```
    /// use icefield::Decision;
    /// let visits = icefield::DashEh::<str, u64>::in_memory()?;
    /// for _ in 0..3 {
    ///     visits.compute("home", |count| Decision::Put(count.copied().unwrap_or(0) + 1))?;
    /// }
    /// assert_eq!(visits.get("home")?, Some(3));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn compute(
        &self,
        key: Arg<'_, K>,
        mut f: impl FnMut(Option<&V>) -> Decision<Owned<V>>,
    ) -> Result<Computed<Owned<V>>> {
        self.engine.compute(&K::raw(key), Own::<V>::NEW, |value| match value {
            None => f(None),
            Some(value) => V::view_owned(value, |value| f(Some(value))),
        })
    }

    /// Replaces the value by `new` if it equals `current`. Otherwise `Err` holds the present value, or `None`
    /// if the key is absent. Byte values are compared as a whole.
    ///
    /// # Errors
    /// As [`try_insert`](Self::try_insert).
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, [u8]>::in_memory()?;
    /// table.put(1, b"draft")?;
    /// assert_eq!(table.compare_exchange(1, b"draft", b"final")?, Ok(()));
    /// assert_eq!(table.compare_exchange(1, b"draft", b"void")?, Err(Some(b"final".to_vec())));
    /// assert_eq!(table.compare_exchange(2, b"draft", b"final")?, Err(None));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn compare_exchange(
        &self,
        key: Arg<'_, K>,
        current: Arg<'_, V>,
        new: Arg<'_, V>,
    ) -> Result<Exchanged<V>> {
        Table::compare_exchange(self, key, current, new)
    }

    /// Adds `delta` to the value of `key`, wrapping around; returns the value before. An absent key counts as
    /// zero.
    ///
    /// # Errors
    /// As [`try_insert`](Self::try_insert).
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// assert_eq!(table.fetch_add(1, 5)?, 0);
    /// assert_eq!(table.fetch_add(1, 5)?, 5);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn fetch_add(&self, key: Arg<'_, K>, delta: V) -> Result<V>
    where
        V: Counter + Data<Owned = V>,
    {
        Table::fetch_add(self, key, delta)
    }

    /// Returns the number of records, which is exact when the table is quiescent. Constant time in IcebergHT, and in
    /// Dash except for the first call after a crash, which counts all records. Plush reads the whole table: its blind
    /// writes do not check whether their keys are present.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.put(1, 10)?;
    /// assert_eq!(table.len()?, 1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn len(&self) -> Result<u64> {
        self.engine.len()
    }

    /// Returns `true` if the table holds no record.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    ///
    /// ```
    /// assert!(icefield::DashEh::<u64, u64>::in_memory()?.is_empty()?);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the number of records that fit before the table must grow.
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::options().capacity(5000).in_memory()?;
    /// assert!(table.capacity() >= 5000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn capacity(&self) -> u64 {
        self.engine.capacity()
    }

    /// Returns sizes and counters of the table. Constant time.
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// println!("{:?}", table.stats());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Returns an iterator over all records. Weakly consistent: it returns each key that is present during the whole
    /// iteration exactly once, even across splits, doublings and migrations. It reads the table in parts of at most a
    /// few hundred records. Each part (in IcebergHT, each record) is a snapshot of one moment.
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.put(1, 10)?;
    /// let records = table.iter().collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(records, [(1, 10)]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn iter(&self) -> Iter<'_, Self> {
        Iter::new(self)
    }

    /// Calls `f` with every record until `f` returns `Break`. The records are as consistent as those of
    /// [`iter`](Self::iter). No lock is held while `f` runs.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.put(1, 10)?;
    /// let mut sum = 0;
    /// table.for_each(|_, value| { sum += value; ControlFlow::Continue(()) })?;
    /// assert_eq!(sum, 10);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn for_each(&self, f: impl FnMut(&Owned<K>, &Owned<V>) -> ControlFlow<()>) -> Result<()> {
        Table::for_each(self, f)
    }

    /// Returns about `n` records from `cursor` on, as consistent as those of [`iter`](Self::iter). Cursors stay valid
    /// when the table grows, shrinks or is reopened.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// use icefield::Cursor;
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.put(1, 10)?;
    /// let page = table.scan(Cursor::START, 100)?;
    /// assert_eq!((page.records, page.next), (vec![(1, 10)], None));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn scan(&self, cursor: Cursor, n: usize) -> Result<Page<K, V>> {
        self.scan_page(cursor, n, &mut |_, error| Err(error))
    }

    /// Removes every record by one durable store: a crash leaves all or none of them. Writers wait meanwhile.
    ///
    /// # Errors
    /// As [`try_insert`](Self::try_insert).
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.put(1, 10)?;
    /// table.clear()?;
    /// assert!(table.is_empty()?);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn clear(&self) -> Result<()> {
        self.engine.clear()
    }

    /// Makes room for `additional` more records, so that the table need not grow when they are inserted.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; the room that was already made is kept.
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.reserve(10_000)?;
    /// assert!(table.capacity() >= 10_000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn reserve(&self, additional: u64) -> Result<()> {
        self.engine.reserve(additional)
    }

    /// Returns unused space to the file system, including capacity that was requested or reserved. Dash merges segments
    /// while the records of two segments fit into one (§4.7). IcebergHT halves the table while each bucket has room for
    /// the records of two buckets (§4). Plush drops stale records and removes levels. Then the space of keys and values
    /// that are stored by reference is compacted. Other threads can use the table meanwhile; writers of IcebergHT and
    /// Plush wait for parts of the work.
    ///
    /// Dash tables that hold few records also shrink automatically, but not below their requested capacity.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Forked`], [`Error::Corrupt`], [`Error::Io`]; [`Error::NoSpace`] if records cannot
    /// be moved for lack of space.
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::options().capacity(100_000).in_memory()?;
    /// table.put(1, 10)?;
    /// table.shrink_to_fit()?;
    /// assert_eq!(table.get(1)?, Some(10));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn shrink_to_fit(&self) -> Result<()> {
        self.engine.shrink_to_fit()
    }

    /// Removes the records for which `f` returns `false`, each by a separate operation; returns the number of
    /// removed records.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.put_batch(&[(1, 10), (2, 20)])?;
    /// assert_eq!(table.retain(|key, _| key == 2)?, 1);
    /// assert_eq!(table.len()?, 1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn retain(&self, f: impl FnMut(Arg<'_, K>, &V) -> bool) -> Result<usize> {
        let storage = self.engine.storage();
        storage.check_writable()?;
        let removed = retain(self, f)?;
        // A sync that failed during this call may concern records that the call has read.
        storage.check_writable().map(|()| removed)
    }

    /// Runs [`get`](Self::get) for each key in order, with overlapping memory latencies.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Error::InvalidOption`] if the slices differ in length.
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.put(1, 10)?;
    /// let mut found = [None; 2];
    /// table.get_batch(&[1, 2], &mut found)?;
    /// assert_eq!(found, [Some(10), None]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn get_batch(&self, keys: &[Arg<'_, K>], found: &mut [Option<Owned<V>>]) -> Result<()> {
        same_length(keys.len(), found.len())?;
        let key = |index: usize| {
            debug_assert!(index < keys.len());
            // SAFETY: `Operations::get_batch` passes only numbers below the number of keys.
            K::raw(*unsafe { keys.get_unchecked(index) })
        };
        self.engine.get_batch(keys.len(), key, Own::<V>::NEW, |index, value| {
            // SAFETY: as above; both slices have the same length.
            *unsafe { found.get_unchecked_mut(index) } = value;
        })
    }

    /// Calls `f` with the index of each key and its value, in order, with overlapping memory latencies. The value is
    /// `None` if the key is absent. No lock is held while `f` runs, so `f` may call the table. Values stored by reference
    /// are passed as in [`get_with`](Self::get_with), but Dash and IcebergHT reuse no space that becomes free during the
    /// call.
    ///
    /// Needs no memory for each value, unlike [`get_batch`](Self::get_batch) for types such as `[u8]`.
    ///
    /// # Errors
    /// As [`get`](Self::get); `f` has been called only for the keys before the failing one.
    ///
    /// ```
    /// let table = icefield::DashEh::<str, [u8]>::in_memory()?;
    /// table.put("page", b"<html>")?;
    /// let mut lengths = [0; 2];
    /// table.get_batch_with(&["page", "none"], |index, bytes| lengths[index] = bytes.map_or(0, <[u8]>::len))?;
    /// assert_eq!(lengths, [6, 0]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn get_batch_with(
        &self,
        keys: &[Arg<'_, K>],
        f: impl FnMut(usize, Option<&V>),
    ) -> Result<()> {
        let (next, f) = (Cell::new(0), RefCell::new(f));
        // The keys are read in order, so this value belongs to the key with index `next`.
        let show = |value: &V| f.borrow_mut()(next.get(), Some(value));
        let key = |index: usize| K::raw(keys[index]);
        self.engine.get_batch(keys.len(), key, Show::<V, _>::new(&show), |index, shown| {
            if shown.is_none() {
                f.borrow_mut()(index, None);
            }
            next.set(index + 1);
        })
    }

    /// Runs [`insert`](Self::insert) for each record in order. The operations share fences, and all of them are durable
    /// when the call returns. Other threads see the operations on one key in order, but may see those on different keys in
    /// another order. After a crash during the call, any subset of the keys may have been inserted; of the operations on
    /// one key, a prefix survives.
    ///
    /// # Errors
    /// As [`try_insert`](Self::try_insert); the operations before the failing one are durable, and their
    /// results are filled in.
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// let mut previous = [None; 2];
    /// table.insert_batch(&[(1, 10), (1, 11)], &mut previous)?;
    /// assert_eq!(previous, [None, Some(10)]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn insert_batch(
        &self,
        records: &[RecordArg<'_, K, V>],
        previous: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        self.write_batch(WriteKind::Insert, records, previous)
    }

    /// Runs [`put`](Self::put) for each record, with the guarantees of [`insert_batch`](Self::insert_batch).
    ///
    /// # Errors
    /// As [`insert_batch`](Self::insert_batch).
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.put_batch(&[(1, 10), (2, 20)])?;
    /// assert_eq!(table.len()?, 2);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn put_batch(&self, records: &[RecordArg<'_, K, V>]) -> Result<()> {
        let (key, value) = arguments::<K, V>(records);
        self.engine.write_batch(WriteKind::Put, records.len(), key, value, Ignore, |_, _| {})
    }

    /// Runs [`update`](Self::update) for each record, with the guarantees of [`insert_batch`](Self::insert_batch).
    ///
    /// # Errors
    /// As [`insert_batch`](Self::insert_batch).
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.put(1, 10)?;
    /// let mut previous = [None; 2];
    /// table.update_batch(&[(1, 11), (2, 20)], &mut previous)?;
    /// assert_eq!(previous, [Some(10), None]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn update_batch(
        &self,
        records: &[RecordArg<'_, K, V>],
        previous: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        self.write_batch(WriteKind::Update, records, previous)
    }

    /// Runs [`try_insert`](Self::try_insert) for each record, with the guarantees of
    /// [`insert_batch`](Self::insert_batch).
    ///
    /// # Errors
    /// As [`insert_batch`](Self::insert_batch).
    ///
    /// ```
    /// use icefield::Occupied;
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// let mut outcomes = [Ok(()), Ok(())];
    /// table.try_insert_batch(&[(1, 10), (1, 11)], &mut outcomes)?;
    /// assert_eq!(outcomes, [Ok(()), Err(Occupied(10))]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn try_insert_batch(
        &self,
        records: &[RecordArg<'_, K, V>],
        outcomes: &mut [TryInsert<V>],
    ) -> Result<()> {
        same_length(records.len(), outcomes.len())?;
        let (key, value) = arguments::<K, V>(records);
        let answer = |index: usize, present| outcomes[index] = occupied::<V>(present);
        let kind = WriteKind::TryInsert;
        self.engine.write_batch(kind, records.len(), key, value, Own::<V>::NEW, answer)
    }

    /// Runs [`remove`](Self::remove) for each key, with the guarantees of [`insert_batch`](Self::insert_batch).
    ///
    /// # Errors
    /// As [`insert_batch`](Self::insert_batch).
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.put(1, 10)?;
    /// let mut removed = [None; 2];
    /// table.remove_batch(&[1, 2], &mut removed)?;
    /// assert_eq!(removed, [Some(10), None]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn remove_batch(
        &self,
        keys: &[Arg<'_, K>],
        removed: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        same_length(keys.len(), removed.len())?;
        let key = |index: usize| K::raw(keys[index]);
        let answer = |index: usize, value| removed[index] = value;
        let (kind, value) = (WriteKind::Remove, |_: usize| Raw::NONE);
        self.engine.write_batch(kind, keys.len(), key, value, Own::<V>::NEW, answer)
    }

    /// Runs a mixed batch strictly in order; returns the number of operations that ran. These are durable, and
    /// their results are filled in.
    ///
    /// # Errors
    /// As [`insert_batch`](Self::insert_batch); [`Error::Unsupported`], before any
    /// operation runs, if there is an [`Op::Shadow`].
    ///
    /// ```
    /// use icefield::{OnFailure, Op};
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// let mut ops = [Op::put(1, 10), Op::get(2), Op::put(3, 30)];
    /// assert_eq!(table.execute(&mut ops, OnFailure::Stop)?, 2);
    /// assert_eq!(table.get(3)?, None);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn execute(&self, ops: &mut [Op<'_, K, V>], on_failure: OnFailure) -> Result<usize> {
        no_shadows(ops)?;
        self.engine.execute(&mut Ops(ops), on_failure)
    }

    /// Prefetches the memory that a read of `key` will access.
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.prefetch(1);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn prefetch(&self, key: Arg<'_, K>) {
        self.engine.prefetch(&K::raw(key));
    }

    /// Prefetches `key`, yields to the executor once, then reads the value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
    /// #     }
    /// # }
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.put(1, 10)?;
    /// assert_eq!(block_on(table.get_async(1))?, Some(10));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn get_async(
        &self,
        key: Arg<'_, K>,
    ) -> impl Future<Output = Result<Option<Owned<V>>>> + Send {
        Table::get_async(self, key)
    }

    /// Waits until every earlier operation is durable. Only Plush needs it: after writes without a log, after
    /// asynchronous writes, and after any write in a relaxed [`SyncMode`](crate::SyncMode). All other operations are
    /// durable when their call returns.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a sync failed.
    ///
    /// ```
    /// icefield::DashEh::<u64, u64>::in_memory()?.sync()?;
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn sync(&self) -> Result<()> {
        self.engine.sync()
    }

    /// Checks every invariant and checksum, changing no record. Call it on a quiescent table.
    ///
    /// # Errors
    /// Fails if the root words, which lead to all parts of the table, cannot be read.
    ///
    /// ```
    /// assert!(icefield::DashEh::<u64, u64>::in_memory()?.check()?.is_clean());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn check(&self) -> Result<CheckReport> {
        self.engine.check(&Types::of::<K, V>())
    }

    /// Copies everything that can still be read to a new table at `path`.
    ///
    /// # Errors
    /// Fails if the new table cannot be written.
    ///
    /// ```
    /// let table = icefield::DashEh::<u64, u64>::in_memory()?;
    /// table.put(1, 10)?;
    /// let directory = tempfile::tempdir()?;
    /// assert_eq!(table.salvage(directory.path().join("rescued.ice"))?.records, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn salvage(&self, path: impl AsRef<Path>) -> Result<SalvageReport> {
        self.engine.salvage(path.as_ref(), &Types::of::<K, V>())
    }

    /// Copies the table's directory to `path`, where the copy opens as a table. Writers wait during the copy;
    /// readers do not.
    ///
    /// # Errors
    /// Fails if the copy cannot be written; nothing is then left at `path`.
    ///
    /// ```
    /// use icefield::DashEh;
    /// let directory = tempfile::tempdir()?;
    /// let table = DashEh::<u64, u64>::create(directory.path().join("orders.ice"))?;
    /// table.put(1, 10)?;
    /// table.backup(directory.path().join("copy.ice"))?;
    /// assert_eq!(DashEh::<u64, u64>::open(directory.path().join("copy.ice"))?.get(1)?, Some(10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<BackupReport> {
        self.engine.backup(path.as_ref())
    }

    /// Returns the path of the table's directory, or an invented name for a table in memory.
    ///
    /// ```
    /// println!("{}", icefield::DashEh::<u64, u64>::in_memory()?.path().display());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn path(&self) -> &Path {
        self.engine.storage().path()
    }

    /// Returns an identifier of the table that does not depend on its path. It does not change, and a backup has the
    /// same one.
    ///
    /// ```
    /// let [one, other] = [(); 2].map(|()| icefield::DashEh::<u64, u64>::in_memory().unwrap());
    /// assert_ne!(one.uuid()?, other.uuid()?);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::NotFound`] or [`Error::FormatVersion`] if both copies of the superblock have been
    /// damaged since the opening.
    pub fn uuid(&self) -> Result<u128> {
        self.engine.uuid()
    }

    /// Returns a report on the opening of this table: the state that it found and the work of recovery.
    ///
    /// ```
    /// assert!(icefield::DashEh::<u64, u64>::in_memory()?.recovery().was_clean);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn recovery(&self) -> RecoveryReport {
        self.recovery.clone()
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, D: Design, M: Medium> DurableTable<K, V, D, M> {
    pub(super) fn new((engine, recovery): (EngineOf<K, V, D, M>, RecoveryReport)) -> Self {
        Self { engine, recovery, types: PhantomData }
    }

    /// Runs a write that returns the previous value.
    fn write(&self, kind: WriteKind, key: Arg<'_, K>, value: &Raw<'_>) -> Result<Option<Owned<V>>> {
        self.engine.write(kind, &K::raw(key), value, Own::<V>::NEW)
    }

    /// Runs a batch of writes that return the previous values.
    fn write_batch(
        &self,
        kind: WriteKind,
        records: &[RecordArg<'_, K, V>],
        previous: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        same_length(records.len(), previous.len())?;
        let (key, value) = arguments::<K, V>(records);
        let answer = |index: usize, value| previous[index] = value;
        self.engine.write_batch(kind, records.len(), key, value, Own::<V>::NEW, answer)
    }

    fn scan_page(
        &self,
        cursor: Cursor,
        n: usize,
        damaged: &mut OnDamage<'_, Owned<K>>,
    ) -> Result<Page<K, V>> {
        let take = (Own::<K>::NEW, Own::<V>::NEW);
        let page = self.engine.scan(cursor, n, take, damaged)?;
        Ok(Page { records: page.records, next: page.next })
    }
}

/// Returns two functions: the first returns the key of a record by its index in the batch, the second its value.
fn arguments<'a, K: Key + ?Sized, V: Value + ?Sized>(
    records: &[RecordArg<'a, K, V>],
) -> (impl Fn(usize) -> Raw<'a>, impl Fn(usize) -> Raw<'a>) {
    (|index: usize| K::raw(records[index].0), |index: usize| V::raw(records[index].1))
}

/// Returns the outcome of a `try_insert`, given the value that it found, if any.
fn occupied<V: Value + ?Sized>(present: Option<Owned<V>>) -> TryInsert<V> {
    present.map_or(Ok(()), |value| Err(Occupied(value)))
}

impl<K: Key + ?Sized, V: Value + ?Sized, D: Design, M: Medium> fmt::Debug
    for DurableTable<K, V, D, M>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(D::NAME).field("path", &self.path()).field("stats", &self.stats()).finish()
    }
}

impl<'a, K: Key + ?Sized, V: Value + ?Sized, D: Design, M: Medium> IntoIterator
    for &'a DurableTable<K, V, D, M>
{
    type Item = Result<(K::Owned, V::Owned)>;
    type IntoIter = Iter<'a, DurableTable<K, V, D, M>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, D: Design, M: Medium> Table for DurableTable<K, V, D, M> {
    type Key = K;
    type Value = V;

    fn get(&self, key: Arg<'_, K>) -> Result<Option<Owned<V>>> {
        self.get(key)
    }
    fn get_with<R>(&self, key: Arg<'_, K>, f: impl FnOnce(&V) -> R) -> Result<Option<R>> {
        self.get_with(key, f)
    }
    fn contains(&self, key: Arg<'_, K>) -> Result<bool> {
        self.contains(key)
    }
    fn try_insert(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<TryInsert<V>> {
        self.try_insert(key, value)
    }
    fn insert(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<Option<Owned<V>>> {
        self.insert(key, value)
    }
    fn put(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<()> {
        self.put(key, value)
    }
    fn update(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<Option<Owned<V>>> {
        self.update(key, value)
    }
    fn remove(&self, key: Arg<'_, K>) -> Result<Option<Owned<V>>> {
        self.remove(key)
    }
    fn delete(&self, key: Arg<'_, K>) -> Result<()> {
        self.delete(key)
    }
    fn compute(
        &self,
        key: Arg<'_, K>,
        f: impl FnMut(Option<&V>) -> Decision<Owned<V>>,
    ) -> Result<Computed<Owned<V>>> {
        self.compute(key, f)
    }
    fn len(&self) -> Result<u64> {
        self.len()
    }
    fn capacity(&self) -> u64 {
        self.capacity()
    }
    fn stats(&self) -> Stats {
        self.stats()
    }
    fn scan(&self, cursor: Cursor, n: usize) -> Result<Page<K, V>> {
        self.scan(cursor, n)
    }
    fn clear(&self) -> Result<()> {
        self.clear()
    }
    fn reserve(&self, additional: u64) -> Result<()> {
        self.reserve(additional)
    }
    fn shrink_to_fit(&self) -> Result<()> {
        self.shrink_to_fit()
    }
    fn retain(&self, f: impl FnMut(Arg<'_, K>, &V) -> bool) -> Result<usize> {
        self.retain(f)
    }
    fn get_batch(&self, keys: &[Arg<'_, K>], found: &mut [Option<Owned<V>>]) -> Result<()> {
        self.get_batch(keys, found)
    }
    fn get_batch_with(&self, keys: &[Arg<'_, K>], f: impl FnMut(usize, Option<&V>)) -> Result<()> {
        self.get_batch_with(keys, f)
    }
    fn insert_batch(
        &self,
        records: &[RecordArg<'_, K, V>],
        previous: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        self.insert_batch(records, previous)
    }
    fn put_batch(&self, records: &[RecordArg<'_, K, V>]) -> Result<()> {
        self.put_batch(records)
    }
    fn update_batch(
        &self,
        records: &[RecordArg<'_, K, V>],
        previous: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        self.update_batch(records, previous)
    }
    fn try_insert_batch(
        &self,
        records: &[RecordArg<'_, K, V>],
        outcomes: &mut [TryInsert<V>],
    ) -> Result<()> {
        self.try_insert_batch(records, outcomes)
    }
    fn remove_batch(&self, keys: &[Arg<'_, K>], removed: &mut [Option<Owned<V>>]) -> Result<()> {
        self.remove_batch(keys, removed)
    }
    fn execute(&self, ops: &mut [Op<'_, K, V>], on_failure: OnFailure) -> Result<usize> {
        self.execute(ops, on_failure)
    }
    fn prefetch(&self, key: Arg<'_, K>) {
        self.prefetch(key);
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, D: Design, M: Medium> Durable
    for DurableTable<K, V, D, M>
{
    fn sync(&self) -> Result<()> {
        self.sync()
    }
    fn check(&self) -> Result<CheckReport> {
        self.check()
    }
    fn scan_whole(
        &self,
        cursor: Cursor,
        n: usize,
        damaged: &mut dyn FnMut(Option<Owned<K>>, Error),
    ) -> Result<Page<K, V>> {
        self.scan_page(cursor, n, &mut |key, error| match error {
            Error::Corrupt { .. } => {
                damaged(key, error);
                Ok(())
            }
            error => Err(error),
        })
    }
    fn salvage(&self, path: &Path) -> Result<SalvageReport> {
        self.salvage(path)
    }
    fn backup(&self, path: &Path) -> Result<BackupReport> {
        self.backup(path)
    }
    fn path(&self) -> &Path {
        self.path()
    }
    fn recovery(&self) -> RecoveryReport {
        self.recovery()
    }
}
