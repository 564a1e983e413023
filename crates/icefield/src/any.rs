//! Tables whose design and types are read from the superblock at run time. Keys and values are bytes.

mod designs;
mod erased;
mod options;
mod types;
mod words;

use std::fmt;
use std::path::Path;

use designs::Opened;
use erased::{Answer, Erased};
pub use options::AnyOptions;
use types::{Arguments, DataType, KEY, VALUE};
pub use words::AnyWords;

use crate::engine::WriteKind;
use crate::error::without_advice;
use crate::outcome::{Cursor, Occupied};
use crate::report::{BackupReport, CheckReport, RecoveryReport, SalvageReport, Stats};
use crate::table::TryInsert;
use crate::types::{Form, Item, Raw, Types};
use crate::{Error, Result};

/// One page of records, from [`AnyTable::scan`].
///
/// ```
/// use icefield::{AnyOptions, AnyTable, Cursor};
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("t.ice");
/// let table = AnyTable::create(path, "dash-eh", "str", "str", &AnyOptions::default())?;
/// table.put(b"one", b"eins")?;
/// let page = table.scan(Cursor::START, 10)?;
/// assert_eq!(page.records, [(b"one".to_vec(), b"eins".to_vec())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnyPage {
    /// The records, each a key and a value, in the order of the table's structure.
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
    /// Records whose key or value cannot be read, or is not valid for the table's types.
    pub damaged: Vec<AnyDamage>,
    /// The cursor of the next page; `None` after the last one.
    pub next: Option<Cursor>,
}

/// A record that cannot be read, or whose key or value is not valid for the table's types. With [`AnyOptions::verify`],
/// also a record with a wrong checksum.
///
/// ```
/// use icefield::{AnyOptions, AnyTable, Cursor};
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("t.ice");
/// let table = AnyTable::create(path, "dash-eh", "str", "str", &AnyOptions::default())?;
/// table.put(b"one", b"eins")?;
/// for damage in table.scan(Cursor::START, 10)?.damaged {
///     println!("{:?}: {}", damage.key, damage.detail);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnyDamage {
    /// The key, if it is readable and valid.
    pub key: Option<Vec<u8>>,
    /// The fault.
    pub detail: String,
}

/// A table of any design and any types, for programs that learn the types at run time, such as the command line tool.
/// The methods do the same as those of [`Table`](crate::Table) and [`Durable`](crate::Durable), and return the same
/// errors. Each type has one representation in bytes:
///
/// | type | bytes |
/// |---|---|
/// | `u8` .. `u64`, `i8` .. `i64`, `u128` | the integer's own width, little-endian |
/// | `f32`, `f64` | the bits, little-endian |
/// | `bool`, `char` | 1 byte, 0 or 1; the 4 bytes of the scalar value, little-endian |
/// | `[u8; N]` | the N bytes |
/// | `bytes`, `str` | any number of bytes; for `str`, valid UTF-8 |
/// | a user's [`Word`](crate::Word) | the 8 bytes of its word, little-endian |
///
/// Bytes of another length, and bytes that represent no value (a `bool` of 2), cause [`Error::InvalidOption`].
///
/// ```
/// # fn main() -> icefield::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("orders.ice");
/// use icefield::{AnyOptions, AnyTable};
/// let table = AnyTable::create(&path, "dash-eh", "u64", "str", &AnyOptions::default())?;
/// table.put(&7_u64.to_le_bytes(), b"seven")?;
/// drop(table);
///
/// let table = AnyTable::open_read_only(&path)?;
/// assert_eq!((table.design(), table.key_type(), table.value_type()), ("dash-eh", "u64", "str"));
/// assert_eq!(table.get(&7_u64.to_le_bytes())?, Some(b"seven".to_vec()));
/// assert!(table.words().is_none(), "a `str` is not a word of 8 bytes");
/// # Ok(())
/// # }
/// ```
pub struct AnyTable {
    table: Box<dyn Erased>,
    recovery: RecoveryReport,
    design: &'static str,
    key: DataType,
    value: DataType,
}

impl From<Opened> for AnyTable {
    fn from(Opened { table, recovery, design, key, value }: Opened) -> Self {
        Self { table, recovery, design, key, value }
    }
}

/// Operations on records, one by one and in batches:
///
/// ```
/// use icefield::{AnyOptions, AnyTable, Occupied};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("words.ice");
/// let words = AnyTable::create(&path, "plush", "str", "bytes", &AnyOptions::default())?;
/// assert_eq!(words.try_insert(b"one", b"1")?, Ok(()));
/// assert_eq!(words.try_insert(b"one", b"I")?, Err(Occupied(b"1".to_vec())));
/// assert_eq!(words.insert(b"one", b"I")?, Some(b"1".to_vec()));
/// assert_eq!(words.update(b"two", b"II")?, None);
/// assert!(words.contains(b"one")? && !words.contains(b"two")?);
/// assert_eq!(words.remove(b"one")?, Some(b"I".to_vec()));
///
/// words.put_batch(&[(b"two", b"2"), (b"six", b"6")])?;
/// words.insert_batch(&[(b"ten", b"10")])?;
/// assert_eq!(words.get_batch(&[b"six", b"one"])?, [Some(b"6".to_vec()), None]);
/// assert_eq!(words.remove_batch(&[b"six"])?, [Some(b"6".to_vec())]);
/// assert_eq!(words.len()?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The table as a whole:
///
/// ```
/// use icefield::{AnyOptions, AnyTable, Cursor};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("words.ice");
/// drop(AnyTable::create(&path, "dash-lh", "str", "str", &AnyOptions::default())?);
/// let words = AnyTable::open(&path)?;
/// assert!(words.recovery().was_clean && words.is_empty()?);
/// words.reserve(10_000)?;
/// assert!(words.capacity() >= 10_000);
/// words.put(b"one", b"eins")?;
/// words.sync()?;
/// assert_eq!(words.stats().len_estimate, 1);
///
/// assert!(words.check()?.is_clean());
/// let beside = |name| words.path().with_file_name(name);
/// assert!(words.backup(beside("copy.ice"))?.bytes > 0);
/// assert_eq!(AnyTable::open(beside("copy.ice"))?.uuid()?, words.uuid()?);
/// assert_eq!(words.salvage(beside("rescued.ice"))?.records, 1);
/// words.clear()?;
/// words.shrink_to_fit()?;
/// assert!(words.scan(Cursor::START, 10)?.records.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl AnyTable {
    /// The names of the designs that can be created and opened.
    pub const DESIGNS: &'static [&'static str] = designs::NAMES;

    /// Creates a table at `path`, where nothing but an empty directory may exist. The documentation of [`AnyTable`]
    /// lists the names of the types.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if the design or a type does not exist; otherwise the errors of the design's own
    /// `create`.
    #[inline]
    pub fn create(
        path: impl AsRef<Path>,
        design: &str,
        key_type: &str,
        value_type: &str,
        options: &AnyOptions,
    ) -> Result<Self> {
        let (key, value) = (DataType::new(KEY, key_type)?, DataType::new(VALUE, value_type)?);
        let known = designs::Known::named(design).ok_or_else(|| Error::InvalidOption {
            option: "design",
            detail: format!(
                "`{design}` is not a design on disk; choose one of {}",
                Self::DESIGNS.join(", ")
            ),
        })?;
        known.create(path.as_ref(), key, value, options).map(Self::from)
    }

    /// Opens the table at `path` for reading and writing.
    ///
    /// While it is open, no other program may write to its files. A copy of the open files made by other means than
    /// [`AnyTable::backup`] opens without an error and may hold wrong values, which [`AnyTable::check`] finds.
    ///
    /// # Errors
    /// As the design's own `open`, except that tables of any types are accepted.
    #[inline]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &AnyOptions::default())
    }

    /// Opens the table as [`AnyTable::open`] does, with options, for example another durability than
    /// [`Durability::Auto`](crate::Durability::Auto) or a limit on the table's size.
    ///
    /// # Errors
    /// As [`AnyTable::open`]; [`Error::Unsupported`] if [`Durability::Disk`](crate::Durability::Disk) is requested and
    /// the design does not support it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in(".")?;
    /// # let path = dir.path().join("clicks.ice");
    /// use icefield::{AnyOptions, AnyTable, Durability, SyncMode};
    /// let options = AnyOptions {
    ///     durability: Durability::Disk,
    ///     sync: SyncMode::Every(100),
    ///     ..AnyOptions::default()
    /// };
    /// drop(AnyTable::create(&path, "plush", "u64", "u64", &options)?);
    /// let table = AnyTable::open_with(&path, &options)?;
    /// table.put(&[1; 8], &[2; 8])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn open_with(path: impl AsRef<Path>, options: &AnyOptions) -> Result<Self> {
        designs::open(path.as_ref(), false, options).map(Self::from)
    }

    /// Opens the table at `path` for reading. Nothing in its directory is modified. While it is open, no other program
    /// may write to its files.
    ///
    /// # Errors
    /// As [`AnyTable::open`].
    #[inline]
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_read_only_with(path, &AnyOptions::default())
    }

    /// Opens the table as [`AnyTable::open_read_only`] does, with options, for example to verify checksums on reads.
    ///
    /// ```
    /// use icefield::{AnyOptions, AnyTable};
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("t.ice");
    /// let options = AnyOptions { verify: true, ..AnyOptions::default() };
    /// AnyTable::create(&path, "dash-eh", "u64", "str", &options)?.put(&[7; 8], b"seven")?;
    /// let table = AnyTable::open_read_only_with(&path, &options)?;
    /// assert_eq!(table.get(&[7; 8])?.as_deref(), Some(&b"seven"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`AnyTable::open`].
    #[inline]
    pub fn open_read_only_with(path: impl AsRef<Path>, options: &AnyOptions) -> Result<Self> {
        designs::open(path.as_ref(), true, options).map(Self::from)
    }

    /// Copies everything that can still be read of the table at `path` to a new table at `new`, where nothing but an
    /// empty directory may exist. The files need not open as a table: missing parts are reconstructed in memory from
    /// the other files. Nothing at `path` changes.
    ///
    /// ```
    /// use icefield::{AnyOptions, AnyTable};
    /// # let directory = tempfile::tempdir()?;
    /// # let (path, new) = (directory.path().join("t.ice"), directory.path().join("new.ice"));
    /// let table = AnyTable::create(&path, "dash-eh", "u64", "u64", &AnyOptions::default())?;
    /// table.put(&[1; 8], &[2; 8])?;
    /// drop(table);
    /// std::fs::remove_file(path.join("directory-0.ice"))?;
    /// assert!(AnyTable::open(&path).is_err());
    /// let report = AnyTable::salvage_files(&path, &new)?;
    /// assert_eq!(report.records, 1);
    /// assert!(!report.lost.is_empty(), "what was missing, in words");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if both copies of the superblock are damaged, if the design cannot be opened by name, or if the
    /// new table cannot be created.
    #[inline]
    pub fn salvage_files(path: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<SalvageReport> {
        designs::salvage_files(path.as_ref(), new.as_ref())
    }

    /// Returns the design's name.
    #[must_use]
    pub fn design(&self) -> &'static str {
        self.design
    }

    /// Returns the name of the key type.
    #[must_use]
    pub fn key_type(&self) -> &str {
        self.key.name()
    }

    /// Returns the name of the value type.
    #[must_use]
    pub fn value_type(&self) -> &str {
        self.value.name()
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if the bytes are not a valid key; otherwise the errors of
    /// [`Table::get`](crate::Table::get).
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.key.check(KEY, key)?;
        self.value_out(self.table.get(&self.key.raw(key))?)
    }

    /// Calls `f` with the value of `key` and returns the result, or `None` if the key is absent. Unlike
    /// [`AnyTable::get`], it allocates no memory for values of up to 512 bytes. No lock is held while `f` runs, so `f`
    /// may call the table.
    ///
    /// ```
    /// use icefield::{AnyOptions, AnyTable};
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pages.ice");
    /// let pages = AnyTable::create(&path, "iceberg", "str", "bytes", &AnyOptions::default())?;
    /// pages.put(b"home", b"<html>")?;
    /// assert_eq!(pages.get_with(b"home", |bytes| bytes.len())?, Some(6));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`AnyTable::get`].
    pub fn get_with<T>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        self.key.check(KEY, key)?;
        let key = self.key.raw(key);
        if self.value.form() == Form::Word {
            let Some(value) = self.table.get(&key)? else { return Ok(None) };
            let shown = self.value.show(&value.raw(), f);
            return shown.map(Some).ok_or_else(|| self.no_such_value());
        }
        let (mut f, mut shown) = (Some(f), None);
        self.table.visit(&key, &mut |value| {
            if let Some(f) = f.take() {
                shown = Some(self.value.show(value, f));
            }
        })?;
        match shown {
            None => Ok(None),
            Some(Some(shown)) => Ok(Some(shown)),
            Some(None) => Err(self.no_such_value()),
        }
    }

    /// Returns `true` if `key` is present.
    ///
    /// # Errors
    /// As [`AnyTable::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        self.key.check(KEY, key)?;
        self.table.contains(&self.key.raw(key))
    }

    /// Inserts `key` only if it is absent; otherwise returns the present value.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if the bytes are not a valid key or value; otherwise the errors of
    /// [`Table::try_insert`](crate::Table::try_insert).
    pub fn try_insert(&self, key: &[u8], value: &[u8]) -> Result<TryInsert<[u8]>> {
        let present = self.write(WriteKind::TryInsert, key, value)?;
        Ok(present.map_or(Ok(()), |value| Err(Occupied(value))))
    }

    /// Inserts `key` or replaces its value; returns the previous value.
    ///
    /// # Errors
    /// As [`AnyTable::try_insert`].
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        self.write(WriteKind::Insert, key, value)
    }

    /// Inserts `key` or replaces its value, without returning the previous value.
    ///
    /// # Errors
    /// As [`AnyTable::try_insert`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(WriteKind::Put, key, value).map(|_| ())
    }

    /// Replaces the value only if `key` is present; returns the previous value.
    ///
    /// # Errors
    /// As [`AnyTable::try_insert`].
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        self.write(WriteKind::Update, key, value)
    }

    /// Removes `key`; returns its value.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if the bytes are not a valid key; otherwise the errors of
    /// [`Table::remove`](crate::Table::remove).
    pub fn remove(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.key.check(KEY, key)?;
        let key = self.key.raw(key);
        self.value_out(self.table.write(WriteKind::Remove, &key, &Raw::NONE)?)
    }

    /// Returns the number of records.
    ///
    /// # Errors
    /// As [`Table::len`](crate::Table::len).
    pub fn len(&self) -> Result<u64> {
        self.table.len()
    }

    /// Returns `true` if the table holds no record.
    ///
    /// # Errors
    /// As [`Table::len`](crate::Table::len).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the number of records that fit before the table must grow.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.table.capacity()
    }

    /// Returns sizes and counters of the table, in constant time.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.table.stats()
    }

    /// Returns about `n` records from `cursor` on. The damaged records that the scan finds are listed separately.
    ///
    /// # Errors
    /// As [`Table::scan`](crate::Table::scan).
    pub fn scan(&self, cursor: Cursor, n: usize) -> Result<AnyPage> {
        let mut damaged = Vec::new();
        let (stored, next) =
            self.table.scan(cursor, n, &self.kinds(), &mut |key, error| match error {
                Error::Corrupt { .. } => {
                    let key = key.map(|key| self.key.bytes(key));
                    damaged.push(AnyDamage { key, detail: without_advice(error) });
                    Ok(())
                }
                error => Err(error),
            })?;
        let bytes = |(key, value)| (self.key.bytes(key), self.value.bytes(value));
        let records = stored.into_iter().map(bytes).collect();
        Ok(AnyPage { records, damaged, next })
    }

    /// Removes every record at once: a crash leaves all of them or none.
    ///
    /// # Errors
    /// As [`Table::clear`](crate::Table::clear).
    pub fn clear(&self) -> Result<()> {
        self.table.clear()
    }

    /// Makes room for `additional` more records.
    ///
    /// # Errors
    /// As [`Table::reserve`](crate::Table::reserve).
    pub fn reserve(&self, additional: u64) -> Result<()> {
        self.table.reserve(additional)
    }

    /// Frees space that the records do not need, as far as the design can.
    ///
    /// # Errors
    /// As [`Table::shrink_to_fit`](crate::Table::shrink_to_fit).
    pub fn shrink_to_fit(&self) -> Result<()> {
        self.table.shrink_to_fit()
    }

    /// Runs [`AnyTable::get`] for each key, with overlapping memory latencies.
    ///
    /// # Errors
    /// As [`AnyTable::get`].
    pub fn get_batch(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let stored = self.key.arguments_of(KEY, keys)?;
        self.answers(keys.len(), |found| self.table.get_batch(keys.len(), &stored, found))
    }

    /// Runs [`AnyTable::get_with`] for each key in order, with overlapping memory latencies: calls `f` with the index
    /// of each key and its value. For an absent key, the value is `None`.
    ///
    /// ```
    /// use icefield::{AnyOptions, AnyTable};
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pages.ice");
    /// let pages = AnyTable::create(&path, "iceberg", "str", "bytes", &AnyOptions::default())?;
    /// pages.put(b"home", b"<html>")?;
    /// let mut lengths = [None; 2];
    /// pages.get_batch_with(&[b"home", b"help"], |index, page| lengths[index] = page.map(<[u8]>::len))?;
    /// assert_eq!(lengths, [Some(6), None]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`AnyTable::get`]; `f` has been called only for the keys before the failing one.
    pub fn get_batch_with(
        &self,
        keys: &[&[u8]],
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let (stored, mut shown) = (self.key.arguments_of(KEY, keys)?, Ok(()));
        self.table.visit_batch(keys.len(), &stored, &mut |index, value| match value {
            _ if shown.is_err() => {}
            None => f(index, None),
            Some(value) => {
                let show = self.value.show(value, |bytes| f(index, Some(bytes)));
                shown = show.ok_or_else(|| self.no_such_value());
            }
        })?;
        shown
    }

    /// Runs [`AnyTable::insert`] for each record in order. All are durable when the call returns, except in a relaxed
    /// [`SyncMode`](crate::SyncMode). Nothing is inserted if any record has bytes that are not a valid key or value.
    ///
    /// # Errors
    /// As [`AnyTable::insert`]; the operations before the failing one are durable.
    pub fn insert_batch(&self, records: &[(&[u8], &[u8])]) -> Result<Vec<Option<Vec<u8>>>> {
        self.answers(records.len(), |before| self.write_batch(WriteKind::Insert, records, before))
    }

    /// Runs [`AnyTable::put`] for each record, with the guarantees of [`AnyTable::insert_batch`].
    ///
    /// # Errors
    /// As [`AnyTable::insert_batch`].
    pub fn put_batch(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.write_batch(WriteKind::Put, records, &mut |_, _| {})
    }

    /// Runs [`AnyTable::remove`] for each key, with the guarantees of [`AnyTable::insert_batch`].
    ///
    /// # Errors
    /// As [`AnyTable::remove`]; the operations before the failing one are durable.
    pub fn remove_batch(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let stored = self.key.arguments_of(KEY, keys)?;
        self.answers(keys.len(), |removed| {
            let (kind, count) = (WriteKind::Remove, keys.len());
            self.table.write_batch(kind, count, &stored, &Arguments::None, removed)
        })
    }

    /// Returns when every earlier operation is durable.
    ///
    /// # Errors
    /// As [`Durable::sync`](crate::Durable::sync).
    pub fn sync(&self) -> Result<()> {
        self.table.sync()
    }

    /// Checks every invariant and checksum, without changing a record.
    ///
    /// # Errors
    /// As [`Durable::check`](crate::Durable::check).
    pub fn check(&self) -> Result<CheckReport> {
        self.table.check(&self.kinds())
    }

    /// Copies everything that can still be read to a new table at `path`.
    ///
    /// # Errors
    /// As [`Durable::salvage`](crate::Durable::salvage).
    pub fn salvage(&self, path: impl AsRef<Path>) -> Result<SalvageReport> {
        self.table.salvage(path.as_ref(), &self.kinds())
    }

    /// Copies the table's directory to `path`, where the copy opens as a table.
    ///
    /// # Errors
    /// As [`Durable::backup`](crate::Durable::backup).
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<BackupReport> {
        self.table.backup(path.as_ref())
    }

    /// Returns the table's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.table.path()
    }

    /// Returns an identifier of the table that does not depend on its path. It does not change, and a backup has the
    /// same one.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::NotFound`] or [`Error::FormatVersion`] if both copies of the superblock have been
    /// damaged since the opening.
    pub fn uuid(&self) -> Result<u128> {
        self.table.uuid()
    }

    /// Returns the recovery report of the table's opening.
    #[must_use]
    pub fn recovery(&self) -> RecoveryReport {
        self.recovery.clone()
    }

    fn write(&self, kind: WriteKind, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        self.key.check(KEY, key)?;
        self.value.check(VALUE, value)?;
        self.value_out(self.table.write(kind, &self.key.raw(key), &self.value.raw(value))?)
    }

    fn write_batch(
        &self,
        kind: WriteKind,
        records: &[(&[u8], &[u8])],
        before: Answer<'_>,
    ) -> Result<()> {
        let keys = self.key.arguments(KEY, records.iter().map(|record| record.0))?;
        let values = self.value.arguments(VALUE, records.iter().map(|record| record.1))?;
        self.table.write_batch(kind, records.len(), &keys, &values, before)
    }

    /// Returns the results of a batch of `count` operations.
    fn answers(
        &self,
        count: usize,
        run: impl FnOnce(Answer<'_>) -> Result<()>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut answers: Vec<_> = (0..count).map(|_| Ok(None)).collect();
        run(&mut |index, value| answers[index] = self.value_out(value))?;
        answers.into_iter().collect()
    }

    fn kinds(&self) -> Types {
        Types { key: self.key.kind(), value: self.value.kind() }
    }

    /// Converts a stored value to the user's bytes.
    fn value_out(&self, value: Option<Item>) -> Result<Option<Vec<u8>>> {
        let Some(value) = value else { return Ok(None) };
        self.value.decode(value).map(Some).ok_or_else(|| self.no_such_value())
    }

    #[cold]
    fn no_such_value(&self) -> Error {
        Error::corrupt(
            self.path(),
            0,
            format!("the stored value is not a valid {}", self.value.name()),
        )
    }
}

impl fmt::Debug for AnyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "AnyTable({}<{}, {}> at {})",
            self.design,
            self.key.name(),
            self.value.name(),
            self.path().display()
        )
    }
}
