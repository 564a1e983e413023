//! Creating and opening tables: the options that Dash, IcebergHT and Plush have in common.

use std::sync::Arc;
use std::time::Instant;

use super::mending::Mending;
use super::types::StoredTypes;
use crate::base::hash::{HashKind, Seed, random_seed};
use crate::key::{Key, Value};
use crate::storage::blob::BlobParams;
use crate::storage::superblock::{self, Identity, SessionStart};
use crate::storage::{Durability, FaultPlan, HugePages, MappedOptions, Medium, SyncMode};
use crate::table::RecoveryReport;
use crate::{Error, Result};

/// The superblock parameter that holds the chunk size of the blob store.
const CHUNK_BYTES: usize = 3;

/// Returns the error for a table that does not support [`Durability::Disk`].
pub(crate) fn refusal_of_disks(table: &str) -> Error {
    Error::Unsupported(format!(
        "{table} needs a medium that keeps the order of stores within a cache line: choose durability pmem, process or \
         auto"
    ))
}

#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(crate) capacity: u64,
    pub(crate) durability: Durability,
    pub(crate) sync: SyncMode,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) huge_pages: HugePages,
    pub(crate) hash: HashKind,
    pub(crate) hash_seed: Option<Seed>,
    pub(crate) blob_chunk_bytes: u32,
    /// `true` if reads verify the checksums of blobs.
    pub(crate) verify: bool,
    pub(crate) faults: Option<Arc<FaultPlan>>,
    pub(crate) stored_types: StoredTypes,
    /// `true` if the design is correct on media that reorder the stores within a line.
    pub(crate) allows_disk: bool,
    /// Set if the table is opened for salvage only.
    pub(crate) mending: Option<Mending>,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            capacity: 0,
            durability: Durability::Auto,
            sync: SyncMode::Always,
            max_bytes: None,
            huge_pages: HugePages::default(),
            hash: HashKind::Strong,
            hash_seed: None,
            blob_chunk_bytes: BlobParams::default().chunk_bytes,
            verify: false,
            faults: None,
            stored_types: StoredTypes::default(),
            allows_disk: false,
            mending: None,
        }
    }
}

impl Common {
    /// Returns the medium's options. `table` is the name in the error if the design does not support `Disk`.
    pub(crate) fn mapped(&self, table: &str) -> Result<MappedOptions> {
        if self.durability == Durability::Disk && !self.allows_disk {
            return Err(refusal_of_disks(table));
        }
        Ok(MappedOptions {
            durability: self.durability,
            sync: self.sync,
            max_bytes: self.max_bytes,
            huge_pages: self.huge_pages,
            faults: self.faults.clone(),
            ..MappedOptions::default()
        })
    }

    /// Like [`Common::mapped`], for anonymous memory.
    pub(crate) fn anonymous(&self, table: &str) -> Result<MappedOptions> {
        let durability = match self.durability {
            Durability::PmemForced => Durability::PmemForced,
            _ => Durability::Memory,
        };
        Ok(MappedOptions { durability, ..self.mapped(table)? })
    }

    /// Returns the address space that a table may use, in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.max_bytes.unwrap_or(1 << 40).clamp(1 << 20, 1 << 44)
    }

    /// Returns the identity of a new table. The first superblock parameters are specific to the design.
    pub(crate) fn identity<K, V>(&self, design: &str, own: [u32; CHUNK_BYTES]) -> Identity
    where
        K: Key + ?Sized,
        V: Value + ?Sized,
    {
        let mut params = [0; 16];
        params[..CHUNK_BYTES].copy_from_slice(&own.map(u64::from));
        params[CHUNK_BYTES] = self.blob_chunk_bytes.into();
        let mut identity = Identity {
            design: design.into(),
            hash_id: self.hash.id(),
            hash_seed: self.hash_seed.map_or_else(random_seed, |Seed(seed)| seed),
            params,
            uuid: random_seed(),
            ..Identity::default()
        };
        self.stored_types.inscribe::<K, V>(&mut identity);
        identity
    }

    /// Takes over the options that an existing table determines; returns the parameters that are specific to the
    /// design.
    pub(crate) fn adopt(
        &mut self,
        storage: &impl Medium,
        identity: &Identity,
    ) -> Result<[u32; CHUNK_BYTES]> {
        let narrow = |place: usize| u32::try_from(identity.params[place]).unwrap_or(u32::MAX);
        let chunk_bytes = narrow(CHUNK_BYTES);
        if !chunk_bytes.is_power_of_two() || !(1 << 10..=1 << 30).contains(&chunk_bytes) {
            return Err(impossible(storage, "blob chunk size"));
        }
        self.blob_chunk_bytes = chunk_bytes;
        self.hash = HashKind::from_id(identity.hash_id)
            .ok_or_else(|| impossible(storage, "hash function"))?;
        Ok(std::array::from_fn(narrow))
    }

    /// Returns the parameters of the table's blob store.
    pub(crate) fn blobs(&self, session: u64) -> BlobParams {
        BlobParams {
            chunk_bytes: self.blob_chunk_bytes,
            max_bytes: self.limit(),
            session,
            ..BlobParams::default()
        }
    }
}

/// Returns the error for a superblock with a valid checksum and an impossible value.
pub(crate) fn impossible(storage: &impl Medium, what: &str) -> Error {
    let detail = format!("the superblock has an impossible {what}");
    Error::corrupt(storage.path().join(superblock::TABLE_REGION), 0, detail)
}

/// Returns the report of an opening.
pub(crate) fn report(session: SessionStart, resolved: u64, started: Instant) -> RecoveryReport {
    RecoveryReport {
        was_clean: session.was_clean,
        generation: session.generation,
        resolved: resolved + u64::from(session.mended),
        open_time: started.elapsed(),
    }
}

/// Adds the setters to an options type that has a field `common: Common`, and the functions that create and open a
/// table through its `create_on` and `open_on`.
macro_rules! common_options {
    (
        options: $options:ident,
        $(policy: $policy:ident: $bound:ident,)?
        $(verify: $verify:literal,)?
        table: $table:ident,
        public: $public:ident,
        name: $name:literal,
        unit: $unit:literal,
        disk: $doc_disk:literal,
        open: $doc_open:literal,
    ) => {
        impl<K: Key + ?Sized, V: Value + ?Sized $(, $policy: $bound)?> $options<K, V $(, $policy)?> {
            #[doc = concat!("How many records a new table takes before it must grow. Default: one ", $unit, "'s worth.")]
            ///
            /// ```
            #[doc = concat!(" use icefield::{Durability, ", stringify!($public), "};")]
            #[doc = concat!(" let table = ", stringify!($public), "::<u64, u64>::options()")]
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

            #[doc = concat!("What the table survives; see [`Durability`]. ", $doc_disk)]
            #[must_use]
            pub fn durability(mut self, durability: Durability) -> Self {
                self.common.durability = durability;
                self
            }

            /// Sets when writes are acknowledged, for tables that are opened by name.
            #[must_use]
            pub(crate) fn acknowledging(mut self, mode: $crate::storage::SyncMode) -> Self {
                self.common.sync = mode;
                self
            }

            /// Limits the total size of the table's files. When they have this many bytes, none of them grows, and
            /// inserts fail with [`Error::NoSpace`]. Space that the table has freed since it was opened does not count.
            #[must_use]
            pub fn max_bytes(mut self, bytes: u64) -> Self {
                self.common.max_bytes = Some(bytes);
                self
            }

            /// Sets which parts of the files use huge pages. They need kernel support (Linux 6.1 or later, in `tmpfs`)
            /// and have no effect elsewhere. With huge pages, random access causes fewer TLB misses. Default: newly
            /// created files, and growth by up to 64 MiB at a time, which takes less time than small pages and their
            /// first touches. `true`: all files, including existing ones at an opening; converting a gigabyte takes
            /// half a second to two seconds, once, and later openings and other processes profit from it. `false`:
            /// none. Tables in memory always ask for huge pages.
            #[must_use]
            pub fn huge_pages(mut self, huge: impl Into<$crate::storage::HugePages>) -> Self {
                self.common.huge_pages = huge.into();
                self
            }

            $(
                #[doc = $verify]
                ///
                /// ```
                #[doc = concat!(" use icefield::", stringify!($public), ";")]
                #[doc = concat!(" let table = ", stringify!($public), "::<str, [u8]>::options().verify(true).in_memory()?;")]
                /// table.put("page", b"<html>")?;
                /// assert_eq!(table.get("page")?.as_deref(), Some(&b"<html>"[..]));
                /// # Ok::<(), icefield::Error>(())
                /// ```
                #[must_use]
                pub fn verify(mut self, verify: bool) -> Self {
                    self.common.verify = verify;
                    self
                }
            )?

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
                self.common.hash_seed = Some($crate::base::hash::Seed(seed));
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
            pub fn faults(mut self, faults: std::sync::Arc<crate::storage::FaultPlan>) -> Self {
                self.common.faults = Some(faults);
                self
            }

            /// Sets the type names in the superblock of a new table, for `K` and `V` that represent any type of a form.
            #[must_use]
            pub(crate) fn stored_types(mut self, key: (&str, Form), value: (&str, Form)) -> Self {
                self.common.stored_types = StoredTypes::named(key, value);
                self
            }

            /// Gives a new table the types of another table.
            #[must_use]
            pub(super) fn types_of(mut self, identity: &Identity) -> Self {
                self.common.stored_types = StoredTypes::of(identity);
                self
            }

            /// Creates a table at `path`. It survives the end of any process; it survives a power cut only on
            /// persistent memory or with [`Durability::Disk`].
            ///
            /// `path` must not exist, or be an empty directory. The table appears there atomically, when it is
            /// complete. [`Stats::durability`](crate::Stats::durability) reports what the table survives. If
            /// [`Durability::Auto`] finds no persistent memory, a warning is written to the `log` crate.
            ///
            /// ```
            #[doc = concat!(" use icefield::", stringify!($public), ";")]
            /// let directory = tempfile::tempdir()?;
            /// let path = directory.path().join("orders.ice");
            #[doc = concat!(" let options = ", stringify!($public), "::<u64, u64>::options();")]
            /// options.clone().create(&path)?.put(7, 70)?;
            /// assert_eq!(options.clone().open(&path)?.get(7)?, Some(70));
            /// assert_eq!(options.clone().open_or_create(&path)?.len()?, 1);
            /// assert!(options.clone().open_read_only(&path)?.put(8, 80).is_err());
            /// assert!(options.in_memory()?.is_empty()?);
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            ///
            /// # Errors
            /// [`Error::AlreadyExists`], [`Error::NoSpace`], [`Error::Io`], [`Error::InvalidOption`];
            /// [`Error::Unsupported`] for a durability that the file system does not give.
            pub fn create(self, path: impl AsRef<Path>) -> Result<$table<K, V $(, $policy)?>> {
                let storage = Mapped::create(path, self.common.mapped($name)?)?;
                self.create_on(storage)
            }

            #[doc = $doc_open]
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
            pub fn open(self, path: impl AsRef<Path>) -> Result<$table<K, V $(, $policy)?>> {
                let storage = Mapped::open(path, self.common.mapped($name)?)?;
                self.open_on(storage)
            }

            /// Opens the table at `path`, or creates one if there is nothing or an empty directory.
            ///
            /// # Errors
            /// As [`open`](Self::open) and [`create`](Self::create).
            pub fn open_or_create(self, path: impl AsRef<Path>) -> Result<$table<K, V $(, $policy)?>> {
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
            pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<$table<K, V $(, $policy)?>> {
                let storage = Mapped::open_read_only(path, self.common.mapped($name)?)?;
                self.open_on(storage)
            }

            /// Copies everything that can still be read of the table at `path` to a new table at `new`, where nothing
            /// may exist yet. The files need not open as a table: missing parts are reconstructed in memory from the
            /// other files. Nothing at `path` changes. [`SalvageReport`](crate::SalvageReport) lists what was lost.
            ///
            /// ```
            #[doc = concat!(" use icefield::", stringify!($public), ";")]
            /// let directory = tempfile::tempdir()?;
            /// let (path, new) = (directory.path().join("orders.ice"), directory.path().join("new.ice"));
            #[doc = concat!(" ", stringify!($public), "::<u64, u64>::create(&path)?.put(7, 70)?;")]
            #[doc = concat!(" let report = ", stringify!($public), "::<u64, u64>::options().salvage(&path, &new)?;")]
            /// assert_eq!((report.records, report.lost.len()), (1, 0));
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            ///
            /// # Errors
            /// The superblock is damaged in both copies; as [`open_read_only`](Self::open_read_only) and
            /// [`create`](Self::create).
            pub fn salvage(
                self,
                path: impl AsRef<Path>,
                new: impl AsRef<Path>,
            ) -> Result<$crate::SalvageReport> {
                let storage = Mapped::open_read_only(path, self.common.mapped($name)?)?;
                self.salvage_on(storage, new.as_ref())
            }

            /// Implements [`salvage`](Self::salvage) for a medium that was opened for reading.
            pub(crate) fn salvage_on(mut self, storage: Mapped, new: &Path) -> Result<$crate::SalvageReport> {
                let mending = $crate::record::mending::Mending::default();
                self.common.mending = Some(mending.clone());
                let recorded = $crate::record::mending::recorded(&storage);
                let mut report = self.open_on(storage)?.salvage(new)?;
                report.lost.splice(0..0, mending.take().into_iter().map($crate::error::without_advice));
                let found = report.records + report.damaged.len() as u64;
                if let Some(missing) = recorded.and_then(|recorded| recorded.checked_sub(found))
                    && missing > 0
                {
                    report.lost.push(format!("{missing} records that the table had when it was closed are nowhere"));
                }
                Ok(report)
            }

            /// Creates a table in anonymous memory, which is freed when the table is dropped.
            ///
            /// # Errors
            /// The system has no memory, or [`Error::InvalidOption`].
            pub fn in_memory(self) -> Result<$table<K, V $(, $policy)?>> {
                let storage = Mapped::anonymous(self.common.anonymous($name)?)?;
                self.create_on(storage)
            }
        }
    };
}
pub(crate) use common_options;
