//! Object-safe access to typed tables, with bytes as keys and values.

use std::path::Path;

use super::types::word_of;
use crate::key::{Data, Form, Key, Raw, Value, Word};
use crate::table::{
    BackupReport, CheckReport, Cursor, Durable, Occupied, RecoveryReport, SalvageReport, Stats,
    Table, TryInsert,
};
use crate::{Arg, Error, Owned, Result};

/// Represents any type that is stored as a word. Its empty name matches all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AnyWord(u64);

impl Word for AnyWord {
    const TYPE: &'static str = "";
    fn to_word(self) -> u64 {
        self.0
    }
    fn from_word(word: u64) -> Option<Self> {
        Some(Self(word))
    }
}

/// Represents any type that is stored as bytes, of fixed or variable length. Its empty name matches all of them.
#[repr(transparent)]
pub(super) struct AnyBytes([u8]);

impl Data for AnyBytes {
    type Arg<'a> = &'a [u8];
    type Owned = Vec<u8>;
    const TYPE: &'static str = "";
    const FORM: Form = Form::Variable;
    /// As many as the widest type needs.
    type Words = [u64; 8];

    fn raw<'a>(arg: Self::Arg<'a>) -> Raw<'a> {
        Raw::Slice(arg)
    }
    fn arg(owned: &Vec<u8>) -> &[u8] {
        owned
    }
    fn view<R>(raw: Raw<'_>, f: impl FnOnce(&Self) -> R) -> Option<R> {
        let bytes: *const [u8] = raw.bytes();
        // SAFETY: `AnyBytes` is a transparent wrapper of `[u8]`, so the pointers have the same metadata and the bytes
        // the same validity; `raw` outlives the call of `f`.
        Some(f(unsafe { &*(bytes as *const Self) }))
    }
    fn own_ref(&self) -> Vec<u8> {
        self.0.to_vec()
    }
    fn own(raw: Raw<'_>) -> Option<Vec<u8>> {
        Some(raw.bytes().to_vec())
    }
    fn own_vec(bytes: Vec<u8>) -> Option<Vec<u8>> {
        Some(bytes)
    }
}

impl Key for AnyBytes {}
impl Value for AnyBytes {}

/// Implemented by [`AnyWord`] and [`AnyBytes`]: converts between a table's types and bytes (8 for a word).
pub(super) trait Untyped: Data {
    fn from_bytes(bytes: &[u8]) -> Arg<'_, Self>;
    fn into_bytes(owned: Owned<Self>) -> Vec<u8>;
}

impl Untyped for AnyWord {
    fn from_bytes(bytes: &[u8]) -> Self {
        Self(word_of(bytes))
    }
    fn into_bytes(owned: Self) -> Vec<u8> {
        owned.0.to_le_bytes().to_vec()
    }
}

impl Untyped for AnyBytes {
    fn from_bytes(bytes: &[u8]) -> &[u8] {
        bytes
    }
    fn into_bytes(owned: Vec<u8>) -> Vec<u8> {
        owned
    }
}

pub(super) type Bytes = Vec<u8>;
/// A page of records, and the cursor of the next page.
pub(super) type Part = (Vec<(Bytes, Bytes)>, Option<Cursor>);
/// The callback for a damaged record: takes its key, if that can be read, and the error.
pub(super) type OnDamage<'a> = dyn FnMut(Option<Bytes>, Error) + 'a;
/// Records as arguments of a `T`.
type RecordArgs<'a, T> = Vec<(Arg<'a, <T as Table>::Key>, Arg<'a, <T as Table>::Value>)>;

/// [`Table`] and [`Durable`] with bytes as keys and values. A word has 8 bytes as a result, and at most 8 as an
/// argument.
pub(super) trait Erased: Send + Sync {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;
    fn contains(&self, key: &[u8]) -> Result<bool>;
    fn try_insert(&self, key: &[u8], value: &[u8]) -> Result<TryInsert<[u8]>>;
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<Option<Bytes>>;
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    fn update(&self, key: &[u8], value: &[u8]) -> Result<Option<Bytes>>;
    fn remove(&self, key: &[u8]) -> Result<Option<Bytes>>;
    fn len(&self) -> Result<u64>;
    fn capacity(&self) -> u64;
    fn stats(&self) -> Stats;
    fn scan(&self, cursor: Cursor, n: usize, damaged: &mut OnDamage<'_>) -> Result<Part>;
    fn clear(&self) -> Result<()>;
    fn reserve(&self, additional: u64) -> Result<()>;
    fn shrink_to_fit(&self) -> Result<()>;
    fn get_batch(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>>;
    fn insert_batch(&self, records: &[(&[u8], &[u8])]) -> Result<Vec<Option<Bytes>>>;
    fn put_batch(&self, records: &[(&[u8], &[u8])]) -> Result<()>;
    fn remove_batch(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>>;
    fn sync(&self) -> Result<()>;
    fn check(&self) -> Result<CheckReport>;
    fn salvage(&self, path: &Path) -> Result<SalvageReport>;
    fn backup(&self, path: &Path) -> Result<BackupReport>;
    fn path(&self) -> &Path;
    fn recovery(&self) -> RecoveryReport;
}

impl<T: Durable> Erased for T
where
    T::Key: Untyped,
    T::Value: Untyped,
{
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(Table::get(self, T::Key::from_bytes(key))?.map(T::Value::into_bytes))
    }
    fn contains(&self, key: &[u8]) -> Result<bool> {
        Table::contains(self, T::Key::from_bytes(key))
    }
    fn try_insert(&self, key: &[u8], value: &[u8]) -> Result<TryInsert<[u8]>> {
        let outcome =
            Table::try_insert(self, T::Key::from_bytes(key), T::Value::from_bytes(value))?;
        Ok(outcome.map_err(|present| Occupied(T::Value::into_bytes(present.0))))
    }
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<Option<Bytes>> {
        let previous = Table::insert(self, T::Key::from_bytes(key), T::Value::from_bytes(value))?;
        Ok(previous.map(T::Value::into_bytes))
    }
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Table::put(self, T::Key::from_bytes(key), T::Value::from_bytes(value))
    }
    fn update(&self, key: &[u8], value: &[u8]) -> Result<Option<Bytes>> {
        let previous = Table::update(self, T::Key::from_bytes(key), T::Value::from_bytes(value))?;
        Ok(previous.map(T::Value::into_bytes))
    }
    fn remove(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(Table::remove(self, T::Key::from_bytes(key))?.map(T::Value::into_bytes))
    }
    fn len(&self) -> Result<u64> {
        Table::len(self)
    }
    fn capacity(&self) -> u64 {
        Table::capacity(self)
    }
    fn stats(&self) -> Stats {
        Table::stats(self)
    }
    fn scan(&self, cursor: Cursor, n: usize, damaged: &mut OnDamage<'_>) -> Result<Part> {
        let page = Durable::scan_whole(self, cursor, n, &mut |key, error| {
            damaged(key.map(T::Key::into_bytes), error);
        })?;
        let records = page.records.into_iter();
        Ok((
            records
                .map(|(key, value)| (T::Key::into_bytes(key), T::Value::into_bytes(value)))
                .collect(),
            page.next,
        ))
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
    fn get_batch(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let keys = keys_of::<T>(keys);
        let mut found = vec![None; keys.len()];
        Table::get_batch(self, &keys, &mut found)?;
        Ok(found_bytes::<T>(found))
    }
    fn insert_batch(&self, records: &[(&[u8], &[u8])]) -> Result<Vec<Option<Bytes>>> {
        let records = records_of::<T>(records);
        let mut previous = vec![None; records.len()];
        Table::insert_batch(self, &records, &mut previous)?;
        Ok(found_bytes::<T>(previous))
    }
    fn put_batch(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        Table::put_batch(self, &records_of::<T>(records))
    }
    fn remove_batch(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let keys = keys_of::<T>(keys);
        let mut removed = vec![None; keys.len()];
        Table::remove_batch(self, &keys, &mut removed)?;
        Ok(found_bytes::<T>(removed))
    }
    fn sync(&self) -> Result<()> {
        Durable::sync(self)
    }
    fn check(&self) -> Result<CheckReport> {
        Durable::check(self)
    }
    fn salvage(&self, path: &Path) -> Result<SalvageReport> {
        Durable::salvage(self, path)
    }
    fn backup(&self, path: &Path) -> Result<BackupReport> {
        Durable::backup(self, path)
    }
    fn path(&self) -> &Path {
        Durable::path(self)
    }
    fn recovery(&self) -> RecoveryReport {
        Durable::recovery(self)
    }
}

fn keys_of<'a, T: Table>(keys: &[&'a [u8]]) -> Vec<Arg<'a, T::Key>>
where
    T::Key: Untyped,
{
    keys.iter().map(|key| T::Key::from_bytes(key)).collect()
}

fn records_of<'a, T: Table>(records: &[(&'a [u8], &'a [u8])]) -> RecordArgs<'a, T>
where
    T::Key: Untyped,
    T::Value: Untyped,
{
    records
        .iter()
        .map(|(key, value)| (T::Key::from_bytes(key), T::Value::from_bytes(value)))
        .collect()
}

fn found_bytes<T: Table>(found: Vec<Option<Owned<T::Value>>>) -> Vec<Option<Bytes>>
where
    T::Value: Untyped,
{
    found.into_iter().map(|value| value.map(T::Value::into_bytes)).collect()
}
