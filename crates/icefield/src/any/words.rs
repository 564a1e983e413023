//! Tables of two words, without conversions to bytes.

use super::AnyTable;
use super::erased::Erased;
use super::types::Arguments;
use crate::engine::WriteKind;
use crate::outcome::Occupied;
use crate::table::TryInsert;
use crate::types::{Item, Raw};
use crate::{Error, Result};

/// A table whose keys and values are words of 8 bytes, from [`AnyTable::words`]. The calls do the same as those of
/// [`AnyTable`], without a conversion to bytes and without allocating memory for values.
///
/// A key or value is passed as the integer whose little-endian bytes [`AnyTable`] takes: an `i64` as `value as u64`, an
/// `f64` as its bits.
///
/// ```
/// use icefield::{AnyOptions, AnyTable, Occupied};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("orders.ice");
/// let table = AnyTable::create(&path, "dash-eh", "u64", "i64", &AnyOptions::default())?;
/// let orders = table.words().ok_or("not a table of words")?;
/// orders.put(7, -70_i64 as u64)?;
/// assert_eq!(orders.get(7)?, Some(-70_i64 as u64));
/// assert_eq!(orders.try_insert(7, 0)?, Err(Occupied(-70_i64 as u64)));
/// assert_eq!((orders.insert(7, 71)?, orders.update(7, 72)?), (Some(-70_i64 as u64), Some(71)));
/// assert_eq!((orders.remove(7)?, orders.contains(7)?), (Some(72), false));
///
/// let mut before = [None; 2];
/// orders.put_batch(&[1, 2], &[10, 20])?;
/// orders.get_batch(&[2, 3], |index, value| before[index] = value)?;
/// assert_eq!(before, [Some(20), None]);
/// orders.insert_batch(&[2, 3], &[21, 30], |index, value| before[index] = value)?;
/// orders.update_batch(&[2, 4], &[22, 40], |index, value| before[index] = value)?;
/// assert_eq!(before, [Some(21), None]);
/// orders.try_insert_batch(&[2, 4], &[23, 40], |index, value| before[index] = value)?;
/// assert_eq!(before, [Some(22), None]);
/// orders.remove_batch(&[4, 5], |index, value| before[index] = value)?;
/// assert_eq!(before, [Some(40), None]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct AnyWords<'a> {
    table: &'a dyn Erased,
}

impl AnyTable {
    /// Returns the table's calls on words, or `None` if the keys or the values have another type than `u64`, `i64`,
    /// `f64`, `[u8; 8]`, or a user's [`Word`](crate::Word).
    #[inline]
    #[must_use]
    pub fn words(&self) -> Option<AnyWords<'_>> {
        let are_words = self.key.is_any_word() && self.value.is_any_word();
        are_words.then_some(AnyWords { table: &*self.table })
    }
}

impl AnyWords<'_> {
    /// Returns the value of `key`.
    ///
    /// # Errors
    /// As [`Table::get`](crate::Table::get).
    #[inline]
    pub fn get(self, key: u64) -> Result<Option<u64>> {
        self.table.get(&Raw::Word(key)).map(word)
    }

    /// Returns `true` if `key` is present.
    ///
    /// # Errors
    /// As [`Table::get`](crate::Table::get).
    #[inline]
    pub fn contains(self, key: u64) -> Result<bool> {
        self.table.contains(&Raw::Word(key))
    }

    /// Inserts `key` only if it is absent; otherwise returns the present value.
    ///
    /// # Errors
    /// As [`Table::try_insert`](crate::Table::try_insert).
    #[inline]
    pub fn try_insert(self, key: u64, value: u64) -> Result<TryInsert<u64>> {
        let present = self.write(WriteKind::TryInsert, key, value)?;
        Ok(present.map_or(Ok(()), |value| Err(Occupied(value))))
    }

    /// Inserts `key` or replaces its value; returns the previous value.
    ///
    /// # Errors
    /// As [`Table::insert`](crate::Table::insert).
    #[inline]
    pub fn insert(self, key: u64, value: u64) -> Result<Option<u64>> {
        self.write(WriteKind::Insert, key, value)
    }

    /// Inserts `key` or replaces its value, without returning the previous value.
    ///
    /// # Errors
    /// As [`Table::put`](crate::Table::put).
    #[inline]
    pub fn put(self, key: u64, value: u64) -> Result<()> {
        self.write(WriteKind::Put, key, value).map(drop)
    }

    /// Replaces the value only if `key` is present; returns the previous value.
    ///
    /// # Errors
    /// As [`Table::update`](crate::Table::update).
    #[inline]
    pub fn update(self, key: u64, value: u64) -> Result<Option<u64>> {
        self.write(WriteKind::Update, key, value)
    }

    /// Removes `key`; returns its value.
    ///
    /// # Errors
    /// As [`Table::remove`](crate::Table::remove).
    #[inline]
    pub fn remove(self, key: u64) -> Result<Option<u64>> {
        self.write(WriteKind::Remove, key, Raw::NONE.word())
    }

    /// Runs [`AnyWords::get`] for each key in order, with overlapping memory latencies: calls `found` with the index of
    /// each key and its value.
    ///
    /// # Errors
    /// As [`AnyWords::get`]; `found` has been called only for the keys before the failing one.
    pub fn get_batch(self, keys: &[u64], mut found: impl FnMut(usize, Option<u64>)) -> Result<()> {
        let mut found = |index, value| found(index, word(value));
        self.table.get_batch(keys.len(), &Arguments::Slice(keys), &mut found)
    }

    /// Runs [`AnyWords::try_insert`] for each key and the value at the same position, in order: calls `present` with
    /// the index of each key and the value that it already has. All are durable when the call returns, except in a
    /// relaxed [`SyncMode`](crate::SyncMode).
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if there is not one value for each key, and then no operation runs; otherwise as
    /// [`AnyWords::try_insert`], and the operations before the failing one are durable.
    pub fn try_insert_batch(
        self,
        keys: &[u64],
        values: &[u64],
        present: impl FnMut(usize, Option<u64>),
    ) -> Result<()> {
        self.write_batch(WriteKind::TryInsert, keys, values, present)
    }

    /// Runs [`AnyWords::insert`] for each key and value in order, with the guarantees of
    /// [`AnyWords::try_insert_batch`]: calls `previous` with the index of each key and its previous value.
    ///
    /// # Errors
    /// As [`AnyWords::try_insert_batch`].
    pub fn insert_batch(
        self,
        keys: &[u64],
        values: &[u64],
        previous: impl FnMut(usize, Option<u64>),
    ) -> Result<()> {
        self.write_batch(WriteKind::Insert, keys, values, previous)
    }

    /// Runs [`AnyWords::put`] for each key and value in order, with the guarantees of [`AnyWords::try_insert_batch`].
    ///
    /// # Errors
    /// As [`AnyWords::try_insert_batch`].
    pub fn put_batch(self, keys: &[u64], values: &[u64]) -> Result<()> {
        self.write_batch(WriteKind::Put, keys, values, |_, _| {})
    }

    /// Runs [`AnyWords::update`] for each key and value in order, with the guarantees of
    /// [`AnyWords::try_insert_batch`]: calls `previous` with the index of each key and its previous value.
    ///
    /// # Errors
    /// As [`AnyWords::try_insert_batch`].
    pub fn update_batch(
        self,
        keys: &[u64],
        values: &[u64],
        previous: impl FnMut(usize, Option<u64>),
    ) -> Result<()> {
        self.write_batch(WriteKind::Update, keys, values, previous)
    }

    /// Runs [`AnyWords::remove`] for each key in order, with the guarantees of [`AnyWords::try_insert_batch`]: calls
    /// `removed` with the index of each key and its value.
    ///
    /// # Errors
    /// As [`AnyWords::remove`]; the operations before the failing one are durable.
    pub fn remove_batch(
        self,
        keys: &[u64],
        mut removed: impl FnMut(usize, Option<u64>),
    ) -> Result<()> {
        let (kind, count, keys) = (WriteKind::Remove, keys.len(), Arguments::Slice(keys));
        let mut removed = |index, value| removed(index, word(value));
        self.table.write_batch(kind, count, &keys, &Arguments::None, &mut removed)
    }

    #[inline]
    fn write(self, kind: WriteKind, key: u64, value: u64) -> Result<Option<u64>> {
        self.table.write(kind, &Raw::Word(key), &Raw::Word(value)).map(word)
    }

    fn write_batch(
        self,
        kind: WriteKind,
        keys: &[u64],
        values: &[u64],
        mut answer: impl FnMut(usize, Option<u64>),
    ) -> Result<()> {
        if keys.len() != values.len() {
            let detail = format!("length mismatch: {} keys, {} values", keys.len(), values.len());
            return Err(Error::InvalidOption { option: "values", detail });
        }
        let (count, keys, values) = (keys.len(), Arguments::Slice(keys), Arguments::Slice(values));
        let mut answer = |index, value| answer(index, word(value));
        self.table.write_batch(kind, count, &keys, &values, &mut answer)
    }
}

/// Converts a stored value of a table of words.
#[inline]
fn word(value: Option<Item>) -> Option<u64> {
    value.map(|value| value.raw().word())
}
