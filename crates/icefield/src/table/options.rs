//! Creating and opening tables.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
#[cfg(any(test, feature = "sim"))]
use std::sync::Arc;

use super::durable::{DurableTable, FormOf};
use super::salvage::salvage;
use crate::base::hash::{HashKind, Seed};
use crate::engine::Design;
use crate::engine::opening::Common;
use crate::engine::stored_types::StoredTypes;
use crate::report::SalvageReport;
#[cfg(any(test, feature = "sim"))]
use crate::storage::FaultPlan;
use crate::storage::{Durability, HugePages, Mapped, MappedOptions, Medium};
use crate::types::{Key, Types, Value};
use crate::{Error, Result};

/// Options for creating or opening a table: a builder, returned by [`DurableTable::options`]. Each design adds options.
///
/// ```
/// use icefield::{DashEh, Durability};
/// let directory = tempfile::tempdir()?;
/// let table = DashEh::<u64, u64>::options()
///     .capacity(100_000)
///     .durability(Durability::Process)
///     .create(directory.path().join("orders.ice"))?;
/// assert!(table.capacity() >= 100_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TableOptions<K: ?Sized, V: ?Sized, D: Design> {
    pub(super) common: Common,
    pub(super) settings: D::Settings,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized, D: Design> Clone for TableOptions<K, V, D> {
    fn clone(&self) -> Self {
        Self { common: self.common.clone(), settings: self.settings.clone(), types: PhantomData }
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, D: Design> Default for TableOptions<K, V, D> {
    fn default() -> Self {
        let () = K::USABLE;
        let types = StoredTypes::of(&Types::of::<K, V>());
        Self {
            common: Common { types, ..Common::default() },
            settings: D::Settings::default(),
            types: PhantomData,
        }
    }
}

impl<K: ?Sized, V: ?Sized, D: Design> fmt::Debug for TableOptions<K, V, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableOptions")
            .field("design", &D::NAME)
            .field("common", &self.common)
            .field("settings", &self.settings)
            .finish()
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, D: Design> TableOptions<K, V, D> {
    /// Sets the number of records that a new table takes before it must grow; by default the capacity of the smallest
    /// table.
    ///
    /// ```
    /// use icefield::{Durability, DashEh};
    /// let table = DashEh::<u64, u64>::options()
    ///     .capacity(10_000)
    ///     .durability(Durability::Process) // A killed process loses nothing; a power cut may.
    ///     .max_bytes(1 << 30)
    ///     .huge_pages(true)
    ///     .hash_seed([1, 2]) // The same table each time, for tests.
    ///     .in_memory()?;
    /// assert!(table.capacity() >= 10_000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn capacity(mut self, records: u64) -> Self {
        self.common.capacity = records;
        self
    }

    /// Sets the medium, which determines what the table survives; [`Durability::Auto`] by default. Dash and IcebergHT
    /// refuse [`Durability::Disk`], because they need the order of stores within a cache line. On disks, Plush syncs
    /// once per call, or once for up to 512 records of a batch; see [`Plush::sync`](crate::Plush::sync).
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.common.durability = durability;
        self
    }

    /// Limits the total size of the table's files. When they have this many bytes, none of them grows, and
    /// inserts fail with [`Error::NoSpace`]. Space that the table has freed since it was opened does not count.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.common.max_bytes = Some(bytes);
        self
    }

    /// Sets which parts of the files use huge pages. They need kernel support (Linux 6.1 or later, in `tmpfs`) and have
    /// no effect elsewhere. With huge pages, random access causes fewer TLB misses. By default, new files use them, and
    /// so does each growth of a file by at most 64 MiB: creating huge pages takes less time than creating small pages
    /// and handling their page faults. With `true`, all files use them, and an opening converts existing files: this
    /// takes half a second to two seconds per gigabyte, once, and later openings and other processes benefit. With
    /// `false`, no file uses them. Tables in memory always request huge pages.
    #[must_use]
    pub fn huge_pages(mut self, huge: impl Into<HugePages>) -> Self {
        self.common.huge_pages = huge.into();
        self
    }

    /// Sets whether reads verify the checksum of each key and value by reference that they return, and fail with
    /// [`Error::Corrupt`] if it is wrong. Default: no; [`check`](DurableTable::check) verifies all of them. Words have
    /// no checksum, and neither have other keys and values of fixed width in Plush.
    ///
    /// ```
    /// use icefield::DashEh;
    /// let table = DashEh::<str, [u8]>::options().verify(true).in_memory()?;
    /// table.put("page", b"<html>")?;
    /// assert_eq!(table.get("page")?.as_deref(), Some(&b"<html>"[..]));
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn verify(mut self, verify: bool) -> Self {
        self.common.verify = verify;
        self
    }

    /// Sets the hash function of a new table.
    #[doc(hidden)]
    #[must_use]
    pub fn hash(mut self, kind: HashKind) -> Self {
        self.common.hash = kind;
        self
    }

    /// Sets the hash seed of a new table. It is random by default, which prevents adversaries from choosing
    /// colliding keys.
    #[must_use]
    pub fn hash_seed(mut self, seed: [u64; 2]) -> Self {
        self.common.hash_seed = Some(Seed(seed));
        self
    }

    /// Sets the chunk size of a new table's blob store, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn blob_chunk_bytes(mut self, bytes: u32) -> Self {
        self.common.blob_chunk_bytes = bytes;
        self
    }

    /// Sets the system calls that fail, for tests.
    #[cfg(any(test, feature = "sim"))]
    #[doc(hidden)]
    #[must_use]
    pub fn faults(mut self, faults: Arc<FaultPlan>) -> Self {
        self.common.faults = Some(faults);
        self
    }

    /// Sets the memory that is assumed instead of what the system reports as left, for tests.
    #[cfg(any(test, feature = "sim"))]
    #[doc(hidden)]
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.common.memory = Some(bytes);
        self
    }

    /// Creates a table on a medium.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    ///
    /// ```
    /// use icefield::DashEh;
    /// use icefield::storage::{Mapped, MappedOptions};
    /// let storage = Mapped::anonymous(MappedOptions::default())?;
    /// let table = DashEh::<u64, u64>::options().create_on(storage)?;
    /// table.put(1, 10)?;
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[cfg_attr(not(feature = "unstable-internals"), doc(hidden))]
    pub fn create_on<M: Medium>(self, storage: M) -> Result<DurableTable<K, V, D, M>> {
        D::create(self.common, self.settings, storage).map(DurableTable::new)
    }

    /// Opens the table on a medium.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// ```
    /// use icefield::DashEh;
    /// use icefield::storage::{Mapped, MappedOptions};
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("orders.ice");
    /// drop(DashEh::<u64, u64>::create(&path)?);
    /// let storage = Mapped::open(&path, MappedOptions::default())?;
    /// assert!(DashEh::<u64, u64>::options().open_on(storage)?.is_empty()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg_attr(not(feature = "unstable-internals"), doc(hidden))]
    pub fn open_on<M: Medium>(self, storage: M) -> Result<DurableTable<K, V, D, M>> {
        D::open(self.common, self.settings, storage).map(DurableTable::new)
    }

    /// Creates a table at `path`. It survives the end of any process; it survives a power cut only on
    /// persistent memory or with [`Durability::Disk`].
    ///
    /// Nothing but an empty directory may exist at `path`. The table appears there atomically, when it is
    /// complete. [`Stats::durability`](crate::Stats::durability) reports what the table survives. If
    /// [`Durability::Auto`] finds no persistent memory, a warning is written to the `log` crate.
    ///
    /// ```
    /// use icefield::DashEh;
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("orders.ice");
    /// let options = DashEh::<u64, u64>::options();
    /// options.clone().create(&path)?.put(7, 70)?;
    /// assert_eq!(options.clone().open(&path)?.get(7)?, Some(70));
    /// assert_eq!(options.clone().open_or_create(&path)?.len()?, 1);
    /// assert!(options.clone().open_read_only(&path)?.put(8, 80).is_err());
    /// assert!(options.in_memory()?.is_empty()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::NoSpace`], [`Error::Io`], [`Error::InvalidOption`]; [`Error::Unsupported`]
    /// for a durability that the file system does not provide.
    pub fn create(self, path: impl AsRef<Path>) -> Result<DurableTable<K, V, D>> {
        let storage = Mapped::create(path, self.mapped()?)?;
        self.create_on(storage)
    }

    /// Opens the table at `path`, whether it was closed or its process crashed. Dash opens in constant time whatever
    /// its size, Plush by reading its recovery logs (§5.4), IcebergHT by reading the whole table on several threads
    /// (§6).
    ///
    /// Changes survive the end of any process; they survive a power cut only on persistent memory or with
    /// [`Durability::Disk`].
    ///
    /// While the table is open, no other process may write, truncate or replace its files, and this process may
    /// do so only through the table. The lock keeps out other openings, not other programs: bytes that they
    /// write can be read as values, and a truncated file ends the process by SIGBUS. A copy of the open files
    /// made by other means than [`Durable::backup`](crate::Durable::backup) (`cp -r`, `rsync`) opens without an
    /// error and may hold wrong values; `check` finds them.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Locked`], [`Error::TypeMismatch`], [`Error::FormatVersion`], [`Error::Corrupt`],
    /// [`Error::Io`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<DurableTable<K, V, D>> {
        let storage = Mapped::open(path, self.mapped()?)?;
        self.open_on(storage)
    }

    /// Opens the table at `path`, or creates one if `path` does not exist or is an empty directory.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(self, path: impl AsRef<Path>) -> Result<DurableTable<K, V, D>> {
        let path = path.as_ref();
        match self.clone().open(path) {
            Err(Error::NotFound { .. }) => match self.clone().create(path) {
                Err(exists @ Error::AlreadyExists { .. }) => match self.open(path) {
                    // Something other than a table is at the path.
                    Err(Error::NotFound { .. }) => Err(exists),
                    // Another thread or process has created the table.
                    opened => opened,
                },
                created => created,
            },
            opened => opened,
        }
    }

    /// Opens the table at `path` for reading, concurrently with any number of other readers. Nothing in the
    /// directory changes. The restrictions of [`open`](Self::open) on other programs apply.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<DurableTable<K, V, D>> {
        let storage = Mapped::open_read_only(path, self.mapped()?)?;
        self.open_on(storage)
    }

    /// Copies everything that can still be read of the table at `path` to a new table at `new`, where nothing
    /// but an empty directory may exist. The files need not open as a table: missing parts are reconstructed in
    /// memory from the other files. Nothing at `path` changes. The [`SalvageReport`] lists the lost parts.
    ///
    /// ```
    /// use icefield::DashEh;
    /// let directory = tempfile::tempdir()?;
    /// let (path, new) = (directory.path().join("orders.ice"), directory.path().join("new.ice"));
    /// DashEh::<u64, u64>::create(&path)?.put(7, 70)?;
    /// let report = DashEh::<u64, u64>::options().salvage(&path, &new)?;
    /// assert_eq!((report.records, report.lost.len()), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if both copies of the superblock are damaged, and as [`open_read_only`](Self::open_read_only) and
    /// [`create`](Self::create) do.
    pub fn salvage(self, path: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<SalvageReport> {
        let storage = Mapped::open_read_only(path, self.mapped()?)?;
        let types = Types::of::<K, V>();
        salvage::<D, FormOf<K, V, D>>(self.common, self.settings, storage, new.as_ref(), &types)
    }

    fn mapped(&self) -> Result<MappedOptions> {
        self.common.mapped(D::TITLE, D::ALLOWS_DISK)
    }

    /// Creates a table in anonymous memory, which is freed when the table is dropped.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], or another error if the system is out of memory.
    pub fn in_memory(self) -> Result<DurableTable<K, V, D>> {
        let storage = Mapped::anonymous(self.common.anonymous(D::TITLE, D::ALLOWS_DISK)?)?;
        self.create_on(storage)
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, D: Design> DurableTable<K, V, D, Mapped> {
    /// Returns a builder for tables of this type.
    #[must_use]
    pub fn options() -> TableOptions<K, V, D> {
        TableOptions::default()
    }

    /// Makes a table at `path` with the default options; see [`TableOptions::create`].
    ///
    /// # Errors
    /// As [`TableOptions::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().create(path)
    }

    /// Opens the table at `path`; see [`TableOptions::open`].
    ///
    /// ```
    /// use icefield::DashEh;
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("orders.ice");
    /// let orders = DashEh::<u64, u64>::create(&path)?;
    /// orders.insert(7, 70)?;
    /// drop(orders); // A crash instead would do as well.
    /// let again = DashEh::<u64, u64>::open(&path)?;
    /// assert_eq!(again.get(7)?, Some(70));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// No other program may write to its files while it is open.
    ///
    /// # Errors
    /// As [`TableOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Opens the table at `path`, or makes one; see [`TableOptions::open_or_create`].
    ///
    /// ```
    /// use icefield::{Error, DashEh};
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("orders.ice");
    /// DashEh::<u64, u64>::open_or_create(&path)?.put(7, 70)?;
    /// let reader = DashEh::<u64, u64>::open_read_only(&path)?;
    /// assert_eq!(reader.get(7)?, Some(70));
    /// assert!(matches!(reader.put(8, 80), Err(Error::ReadOnly)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// No other program may write to its files while it is open.
    ///
    /// # Errors
    /// As [`TableOptions::open_or_create`].
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open_or_create(path)
    }

    /// Opens the table at `path` for reading; see [`TableOptions::open_read_only`].
    ///
    /// No other program may write to its files while it is open.
    ///
    /// # Errors
    /// As [`TableOptions::open_read_only`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open_read_only(path)
    }

    /// Makes a table in anonymous memory; see [`TableOptions::in_memory`].
    ///
    /// # Errors
    /// As [`TableOptions::in_memory`].
    pub fn in_memory() -> Result<Self> {
        Self::options().in_memory()
    }
}
