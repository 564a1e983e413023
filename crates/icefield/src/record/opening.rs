//! Making and opening tables: what the options of every table of two-word records have in common.

use std::sync::Arc;
use std::time::Instant;

use super::mending::Mending;
use super::types::StoredTypes;
use crate::base::hash::{HashKind, Seed, random_seed};
use crate::key::{Key, Value};
use crate::pm::blob::BlobParams;
use crate::pm::superblock::{self, Identity, SessionStart};
use crate::pm::{Durability, FaultPlan, HugePages, MappedOptions, Medium, SyncMode};
use crate::table::RecoveryReport;
use crate::{Error, Result};

/// The superblock parameter that holds the chunk size of the blob store.
const CHUNK_BYTES: usize = 3;

/// Why `table` is not to be had on a disk.
pub(crate) fn refusal_of_disks(table: &str) -> Error {
    Error::Unsupported(format!(
        "{table} needs a medium that keeps the order of stores within a cache line: choose durability pmem, process or \
         auto"
    ))
}

/// The options that every table has.
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
    /// Whether reads verify the checksums of what is stored by reference.
    pub(crate) verify: bool,
    pub(crate) faults: Option<Arc<FaultPlan>>,
    pub(crate) stored_types: StoredTypes,
    /// Whether the design is right on media that reorder the stores within a line.
    pub(crate) allows_disk: bool,
    /// Present when the table is opened for salvage only.
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
    /// The medium's options; `table` names who refuses `Disk`.
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

    /// The same for anonymous memory.
    pub(crate) fn anonymous(&self, table: &str) -> Result<MappedOptions> {
        let durability = match self.durability {
            Durability::PmemForced => Durability::PmemForced,
            _ => Durability::Memory,
        };
        Ok(MappedOptions { durability, ..self.mapped(table)? })
    }

    /// The address space of a table, in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.max_bytes.unwrap_or(1 << 40).clamp(1 << 20, 1 << 44)
    }

    /// What a new table is; the first superblock parameters are the design's own.
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

    /// Takes over what an existing table decides itself, and gives the parameters that are the design's own.
    pub(crate) fn adopt(
        &mut self,
        pm: &impl Medium,
        identity: &Identity,
    ) -> Result<[u32; CHUNK_BYTES]> {
        let narrow = |place: usize| u32::try_from(identity.params[place]).unwrap_or(u32::MAX);
        let chunk_bytes = narrow(CHUNK_BYTES);
        if !chunk_bytes.is_power_of_two() || !(1 << 10..=1 << 30).contains(&chunk_bytes) {
            return Err(impossible(pm, "blob chunk size"));
        }
        self.blob_chunk_bytes = chunk_bytes;
        self.hash =
            HashKind::from_id(identity.hash_id).ok_or_else(|| impossible(pm, "hash function"))?;
        Ok(std::array::from_fn(narrow))
    }

    /// How the table's blob store is opened.
    pub(crate) fn blobs(&self, session: u64) -> BlobParams {
        BlobParams {
            chunk_bytes: self.blob_chunk_bytes,
            max_bytes: self.limit(),
            session,
            ..BlobParams::default()
        }
    }
}

/// A superblock that passes its checksum and still cannot be.
pub(crate) fn impossible(pm: &impl Medium, what: &str) -> Error {
    let detail = format!("the superblock has an impossible {what}");
    Error::corrupt(pm.path().join(superblock::TABLE_REGION), 0, detail)
}

/// What an opening tells afterwards.
pub(crate) fn report(session: SessionStart, resolved: u64, started: Instant) -> RecoveryReport {
    RecoveryReport {
        was_clean: session.was_clean,
        generation: session.generation,
        resolved: resolved + u64::from(session.mended),
        open_time: started.elapsed(),
    }
}

/// Gives options that have a `common: Common` its setters, and the ways to a table that are by `create_on` and
/// `open_on`.
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

            /// When writes are acknowledged, for openings by name.
            #[must_use]
            pub(crate) fn acknowledging(mut self, mode: $crate::pm::SyncMode) -> Self {
                self.common.sync = mode;
                self
            }

            /// No file of the table grows once all of them together have this many bytes; inserts then fail with
            /// [`Error::NoSpace`]. Space that the table has given back since it was opened does not count.
            #[must_use]
            pub fn max_bytes(mut self, bytes: u64) -> Self {
                self.common.max_bytes = Some(bytes);
                self
            }

            /// What of the files is in huge pages, where the kernel can (Linux 6.1 and later, in `tmpfs`; elsewhere
            /// nothing happens): random access then waits for fewer page tables. Default: what they are made with, and
            /// grow by up to 64 MiB at a time, which takes less time than small pages and their first touches do.
            /// `true`, for all: what there is at an opening, too, which takes half a second to two seconds for a
            /// gigabyte, once; later openings, and other processes, find it so. `false`: nothing. Memory without files
            /// always asks for huge pages.
            #[must_use]
            pub fn huge_pages(mut self, huge: impl Into<$crate::pm::HugePages>) -> Self {
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

            /// The hash function of a new table.
            #[doc(hidden)]
            #[must_use]
            pub fn hash(mut self, kind: HashKind) -> Self {
                self.common.hash = kind;
                self
            }

            /// The hash seed of a new table; random by default, which keeps adversaries from choosing colliding keys.
            #[must_use]
            pub fn hash_seed(mut self, seed: [u64; 2]) -> Self {
                self.common.hash_seed = Some($crate::base::hash::Seed(seed));
                self
            }

            /// The chunk size of a new table's blob store, for tests.
            #[doc(hidden)]
            #[must_use]
            pub fn blob_chunk_bytes(mut self, bytes: u32) -> Self {
                self.common.blob_chunk_bytes = bytes;
                self
            }

            /// System calls to fail, for tests.
            #[cfg(any(test, feature = "sim"))]
            #[doc(hidden)]
            #[must_use]
            pub fn faults(mut self, faults: std::sync::Arc<crate::pm::FaultPlan>) -> Self {
                self.common.faults = Some(faults);
                self
            }

            /// The types that a new table shall have in its superblock, for `K` and `V` that stand for any type of a form.
            #[must_use]
            pub(crate) fn stored_types(mut self, key: (&str, Form), value: (&str, Form)) -> Self {
                self.common.stored_types = StoredTypes::named(key, value);
                self
            }

            /// The types of a new table are those of another.
            #[must_use]
            pub(super) fn types_of(mut self, identity: &Identity) -> Self {
                self.common.stored_types = StoredTypes::of(identity);
                self
            }

            /// Makes a table at `path` that survives the end of any process, but a power cut only on persistent memory
            /// or with [`Durability::Disk`].
            ///
            /// There must be nothing at `path`, or an empty directory. The table appears there all at once, complete.
            /// [`Stats::durability`](crate::Stats::durability) says what it survives, and so does a warning through the
            /// `log` crate when [`Durability::Auto`] finds no persistent memory.
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
                let pm = Mapped::create(path, self.common.mapped($name)?)?;
                self.create_on(pm)
            }

            #[doc = $doc_open]
            /// Its changes survive the end of any process, but a power cut only on persistent memory or with
            /// [`Durability::Disk`].
            ///
            /// No other process may write to the files in the directory, truncate or replace them, while the table is open;
            /// nor may this process, but through the table. The lock keeps other openings away, not other programs:
            /// what they write can be read as values, and a truncated file ends the process by SIGBUS. A copy that is
            /// made meanwhile by other means than [`Durable::backup`](crate::Durable::backup) (`cp -r`, `rsync`) opens
            /// without an error and may hold wrong values; `check` finds them.
            ///
            /// # Errors
            /// [`Error::NotFound`], [`Error::Locked`], [`Error::TypeMismatch`], [`Error::FormatVersion`], [`Error::Corrupt`],
            /// [`Error::Io`].
            pub fn open(self, path: impl AsRef<Path>) -> Result<$table<K, V $(, $policy)?>> {
                let pm = Mapped::open(path, self.common.mapped($name)?)?;
                self.open_on(pm)
            }

            /// Opens the table at `path`, or makes one when there is nothing or an empty directory.
            ///
            /// # Errors
            /// As [`open`](Self::open) and [`create`](Self::create).
            pub fn open_or_create(self, path: impl AsRef<Path>) -> Result<$table<K, V $(, $policy)?>> {
                let path = path.as_ref();
                match self.clone().open(path) {
                    Err(Error::NotFound { .. }) => match self.clone().create(path) {
                        Err(exists @ Error::AlreadyExists { .. }) => match self.open(path) {
                            // There is something else at the path.
                            Err(Error::NotFound { .. }) => Err(exists),
                            // Another thread or process was faster.
                            opened => opened,
                        },
                        created => created,
                    },
                    opened => opened,
                }
            }

            /// Opens the table at `path` for reading, beside any number of other readers. Nothing in the directory changes.
            /// What [`open`](Self::open) says of other programs that write to the files holds here, too.
            ///
            /// # Errors
            /// As [`open`](Self::open).
            pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<$table<K, V $(, $policy)?>> {
                let pm = Mapped::open_read_only(path, self.common.mapped($name)?)?;
                self.open_on(pm)
            }

            /// Copies what can still be read of the table at `path` to a new one at `new`, where nothing may be yet. The
            /// files need not open as a table: what is missing of them is made up for in memory, from what the others
            /// say. Nothing at `path` changes. [`SalvageReport`](crate::SalvageReport) lists what was lost.
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
                let pm = Mapped::open_read_only(path, self.common.mapped($name)?)?;
                self.salvage_on(pm, new.as_ref())
            }

            /// [`salvage`](Self::salvage) of what was opened for reading.
            pub(crate) fn salvage_on(mut self, pm: Mapped, new: &Path) -> Result<$crate::SalvageReport> {
                let mending = $crate::record::mending::Mending::default();
                self.common.mending = Some(mending.clone());
                let recorded = $crate::record::mending::recorded(&pm);
                let mut report = self.open_on(pm)?.salvage(new)?;
                report.lost.splice(0..0, mending.take().into_iter().map($crate::error::without_advice));
                let found = report.records + report.damaged.len() as u64;
                if let Some(missing) = recorded.and_then(|recorded| recorded.checked_sub(found))
                    && missing > 0
                {
                    report.lost.push(format!("{missing} records that the table had when it was closed are nowhere"));
                }
                Ok(report)
            }

            /// Makes a table in anonymous memory, gone when it is dropped.
            ///
            /// # Errors
            /// No memory, or [`Error::InvalidOption`].
            pub fn in_memory(self) -> Result<$table<K, V $(, $policy)?>> {
                let pm = Mapped::anonymous(self.common.anonymous($name)?)?;
                self.create_on(pm)
            }
        }
    };
}
pub(crate) use common_options;
