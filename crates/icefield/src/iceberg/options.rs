//! Making and opening tables.

use std::marker::PhantomData;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::Iceberg;
use super::core::{Core, Counts};
use super::grow::Moves;
use super::layout::{MAX_DEPTH, Phase, Root, SLOT_BYTES, Shape, Yards};
use super::overflow::Overflow;
use crate::base::gate::Gate;
use crate::base::hash::{Hash, HashKind, random_seed};
use crate::base::memory::ZeroedArray;
use crate::base::sync::Lines;
use crate::key::{Form, Key, Value};
use crate::pm::blob::BlobParams;
use crate::pm::superblock::{self, Identity, ROOT_OFFSET, SessionStart};
use crate::pm::{Cell128, Durability, FaultPlan, Mapped, MappedOptions, Medium, Region};
use crate::record::Records;
use crate::record::length::Length;
use crate::record::types::{StoredTypes, check_types};
use crate::table::RecoveryReport;
use crate::{Error, Result};

/// The design's name.
const DESIGN: &str = "iceberg";
/// The overflow yard is for some records in a million, and for crowds of equal hashes: a part of the address space is
/// plenty.
const OVERFLOW_SHARE: u64 = 64;
/// A table doubles when so many of a thousand slots are used (§4).
const MAX_LOAD: u32 = 850;

/// How an IcebergHT table is made or opened: a builder, from [`Iceberg::options`].
///
/// ```
/// use icefield::{Iceberg, Durability};
/// let directory = tempfile::tempdir()?;
/// let table = Iceberg::<u64, u64>::options()
///     .capacity(100_000)
///     .durability(Durability::Process)
///     .create(directory.path().join("orders.ice"))?;
/// assert!(table.capacity() >= 100_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct IcebergOptions<K: ?Sized, V: ?Sized> {
    capacity: u64,
    durability: Durability,
    max_bytes: Option<u64>,
    yards: Yards,
    max_load: u32,
    max_depth: u32,
    threads: Option<usize>,
    hash: HashKind,
    hash_seed: Option<[u64; 2]>,
    blob_chunk_bytes: u32,
    faults: Option<Arc<FaultPlan>>,
    stored_types: StoredTypes,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> Clone for IcebergOptions<K, V> {
    fn clone(&self) -> Self {
        Self { faults: self.faults.clone(), stored_types: self.stored_types.clone(), ..*self }
    }
}

impl<K: ?Sized, V: ?Sized> Default for IcebergOptions<K, V> {
    fn default() -> Self {
        Self {
            capacity: 0,
            durability: Durability::Auto,
            max_bytes: None,
            yards: Yards::default(),
            max_load: MAX_LOAD,
            max_depth: MAX_DEPTH,
            threads: None,
            hash: HashKind::Strong,
            hash_seed: None,
            blob_chunk_bytes: BlobParams::default().chunk_bytes,
            faults: None,
            stored_types: StoredTypes::default(),
            types: PhantomData,
        }
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> IcebergOptions<K, V> {
    /// How many records a new table takes before it must grow. Default: one bucket's worth.
    #[must_use]
    pub fn capacity(mut self, records: u64) -> Self {
        self.capacity = records;
        self
    }

    /// What the table survives; see [`Durability`]. `Disk` is refused: IcebergHT relies on the order of stores within
    /// a line.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// No file of the table grows once all of them together have this many bytes; inserts then fail with
    /// [`Error::NoSpace`].
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// The part of its slots that a table uses before it doubles: above 0, at most 1; 0.85 by default (§4). Not kept in
    /// the table: each opening may choose anew. Tables that are told how many records to expect may well be filled to
    /// 0.95, at which one read in six looks into the back yard.
    ///
    /// ```
    /// let dense = icefield::Iceberg::<u64, u64>::options().max_load(0.95).capacity(1000).in_memory()?;
    /// assert!(dense.capacity() >= 1000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn max_load(mut self, part: f64) -> Self {
        // Out of range becomes 0, which `validate` refuses.
        self.max_load = if part > 0.0 && part <= 1.0 { (part * 1000.0).ceil() as u32 } else { 0 };
        self
    }

    /// How many threads recover a table when it is opened; as many as the machine has by default.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// The address space that the table reserves, in buckets, as a power of two; for tests of many tiny tables.
    #[doc(hidden)]
    #[must_use]
    pub fn max_depth(mut self, depth: u32) -> Self {
        self.max_depth = depth;
        self
    }

    /// The hash function of a new table.
    #[doc(hidden)]
    #[must_use]
    pub fn hash(mut self, kind: HashKind) -> Self {
        self.hash = kind;
        self
    }

    /// The hash seed of a new table; random by default, which keeps adversaries from choosing colliding keys.
    #[must_use]
    pub fn hash_seed(mut self, seed: [u64; 2]) -> Self {
        self.hash_seed = Some(seed);
        self
    }

    /// How large a new table's buckets are (Table 6), for tests and measurements.
    #[doc(hidden)]
    #[must_use]
    pub fn yards(mut self, yards: Yards) -> Self {
        self.yards = yards;
        self
    }

    /// The chunk size of a new table's blob store, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn blob_chunk_bytes(mut self, bytes: u32) -> Self {
        self.blob_chunk_bytes = bytes;
        self
    }

    /// System calls to fail, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn faults(mut self, faults: Arc<FaultPlan>) -> Self {
        self.faults = Some(faults);
        self
    }

    /// The types that a new table shall have in its superblock, for `K` and `V` that stand for any type of a form.
    #[must_use]
    pub(crate) fn stored_types(mut self, key: (&str, Form), value: (&str, Form)) -> Self {
        self.stored_types = StoredTypes::named(key, value);
        self
    }

    /// The types of a new table are those of another.
    #[must_use]
    pub(super) fn types_of(mut self, identity: &Identity) -> Self {
        self.stored_types = StoredTypes::of(identity);
        self
    }

    fn mapped(&self) -> Result<MappedOptions> {
        if self.durability == Durability::Disk {
            return Err(Error::Unsupported(
                "IcebergHT needs a medium that keeps the order of stores within a cache line: choose durability pmem, process or auto".into(),
            ));
        }
        Ok(MappedOptions {
            durability: self.durability,
            max_bytes: self.max_bytes,
            faults: self.faults.clone(),
            ..MappedOptions::default()
        })
    }

    /// Makes a table at `path`, where nothing may be yet. It appears there all at once, complete.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::NoSpace`], [`Error::Io`], [`Error::InvalidOption`].
    pub fn create(self, path: impl AsRef<Path>) -> Result<Iceberg<K, V>> {
        let pm = Mapped::create(path, self.mapped()?)?;
        self.create_on(pm)
    }

    /// Opens the table at `path`, however it was left: reads all of it, on several threads (§6).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Locked`], [`Error::TypeMismatch`], [`Error::FormatVersion`], [`Error::Corrupt`],
    /// [`Error::Io`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Iceberg<K, V>> {
        let pm = Mapped::open(path, self.mapped()?)?;
        self.open_on(pm)
    }

    /// Opens the table at `path`, or makes one when nothing is there.
    ///
    /// # Errors
    /// As [`IcebergOptions::open`] and [`IcebergOptions::create`].
    pub fn open_or_create(self, path: impl AsRef<Path>) -> Result<Iceberg<K, V>> {
        let path = path.as_ref();
        match self.clone().open(path) {
            Err(Error::NotFound { .. }) if !path.exists() => match self.clone().create(path) {
                // Somebody else was faster.
                Err(Error::AlreadyExists { .. }) => self.open(path),
                created => created,
            },
            opened => opened,
        }
    }

    /// Opens the table at `path` for reading, beside any number of other readers. Nothing in the directory changes.
    ///
    /// # Errors
    /// As [`IcebergOptions::open`].
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Iceberg<K, V>> {
        let pm = Mapped::open_read_only(path, self.mapped()?)?;
        self.open_on(pm)
    }

    /// Makes a table in anonymous memory, gone when it is dropped.
    ///
    /// # Errors
    /// No memory, or [`Error::InvalidOption`].
    pub fn in_memory(self) -> Result<Iceberg<K, V>> {
        let durability = match self.durability {
            Durability::PmemForced => Durability::PmemForced,
            _ => Durability::Memory,
        };
        let pm = Mapped::anonymous(MappedOptions { durability, ..self.mapped()? })?;
        self.create_on(pm)
    }

    /// Makes a table on a medium.
    ///
    /// # Errors
    /// As [`IcebergOptions::create`].
    pub fn create_on<M: Medium>(self, pm: M) -> Result<Iceberg<K, V, M>> {
        let started = Instant::now();
        self.validate()?;
        let identity = self.identity();
        let table = superblock::create(&pm)?;
        let core = self.core(pm, table.clone(), &identity, 0)?;
        let shape = Shape { depth: self.planned_depth(), phase: Phase::Stable, step: 0 };
        if shape.depth > core.max_depth {
            return Err(Error::InvalidOption {
                option: "capacity",
                detail: format!("{} records do not fit into max_bytes", self.capacity),
            });
        }
        core.reserve_yards(shape)?;
        core.set_shape(shape)?;
        superblock::seal(&core.pm, &table, &identity)?;
        core.pm.publish_created()?;
        let session = superblock::begin_session(&core.pm, &table)?;
        // A new table has nothing to recover.
        let recovery = report(SessionStart { was_clean: true, ..session }, 0, started);
        Ok(Iceberg { core, recovery })
    }

    /// Opens the table on a medium.
    ///
    /// # Errors
    /// As [`IcebergOptions::open`].
    pub fn open_on<M: Medium>(self, pm: M) -> Result<Iceberg<K, V, M>> {
        let started = Instant::now();
        let (table, identity) = superblock::read(&pm)?;
        check_types::<K, V>(&pm, &identity, DESIGN)?;
        let opened = self.with_identity(&pm, &identity)?;
        // A table that is larger than `max_bytes` opens all the same; it does not grow.
        let depth = table.at::<Root>(ROOT_OFFSET).and_then(|root| root.stored_shape(&pm));
        let core = opened.core(pm, table.clone(), &identity, depth.map_or(0, Shape::extent))?;
        let shape = stored_shape(&core)?;
        core.shape.store(shape.pack(), Release);
        if core.pm.writable().is_ok() {
            // Somebody may have copied the files with holes.
            core.reserve_yards(shape)?;
        }
        let threads = opened.threads.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        });
        // Before the session begins: a crash in here changes nothing that the next opening would not settle again.
        let resolved = core.recover(threads)?;
        let session = superblock::begin_session(&core.pm, &table)?;
        let recovery = report(session, resolved, started);
        Ok(Iceberg { core, recovery })
    }

    fn validate(&self) -> Result<()> {
        let refuse = |option, detail| Err(Error::InvalidOption { option, detail });
        if !self.yards.is_valid() {
            return refuse("yards", format!("{:?} is not possible", self.yards));
        }
        if self.max_load == 0 {
            return refuse("max_load", "a part above 0 and at most 1 is wanted".into());
        }
        if self.capacity > 1 << 38 {
            return refuse("capacity", format!("{} records are more than 2^38", self.capacity));
        }
        Ok(())
    }

    /// The depth at which a new table takes `capacity` records before it doubles.
    fn planned_depth(&self) -> u32 {
        let taken =
            |depth: u32| u128::from(self.yards.slots() << depth) * u128::from(self.max_load) / 1000;
        (0..MAX_DEPTH).find(|&depth| taken(depth) >= u128::from(self.capacity)).unwrap_or(MAX_DEPTH)
    }

    fn identity(&self) -> Identity {
        let mut params = [0; 16];
        params[0] = self.yards.front.into();
        params[1] = self.yards.back.into();
        params[3] = self.blob_chunk_bytes.into();
        let mut identity = Identity {
            design: DESIGN.into(),
            hash_id: self.hash.id(),
            hash_seed: self.hash_seed.unwrap_or_else(random_seed),
            params,
            uuid: random_seed(),
            ..Identity::default()
        };
        self.stored_types.inscribe::<K, V>(&mut identity);
        identity
    }

    /// The options with everything that the table itself decides.
    fn with_identity(mut self, pm: &impl Medium, identity: &Identity) -> Result<Self> {
        let refuse = |what: &str| {
            Error::corrupt(
                pm.path().join(superblock::TABLE_REGION),
                0,
                format!("the superblock has an impossible {what}"),
            )
        };
        let narrow = |word: u64| u32::try_from(word).unwrap_or(u32::MAX);
        let [front, back, _, chunk_bytes] =
            [0, 1, 2, 3].map(|place| narrow(identity.params[place]));
        self.yards = Yards { front, back };
        self.blob_chunk_bytes = chunk_bytes;
        if !self.yards.is_valid() {
            return Err(refuse("bucket size"));
        }
        if !chunk_bytes.is_power_of_two() || !(1 << 10..=1 << 30).contains(&chunk_bytes) {
            return Err(refuse("blob chunk size"));
        }
        self.hash = HashKind::from_id(identity.hash_id).ok_or_else(|| refuse("hash function"))?;
        self.validate()?;
        Ok(self)
    }

    fn core<M: Medium>(
        &self,
        pm: M,
        table: Region,
        identity: &Identity,
        least_depth: u32,
    ) -> Result<Core<K, V, M>> {
        let limit = self.max_bytes.unwrap_or(1 << 40).clamp(1 << 20, 1 << 44);
        let room_for = (limit / (self.yards.slots() * SLOT_BYTES)).ilog2();
        let max_depth = room_for.min(self.max_depth).max(least_depth);
        let buckets = 1_u64 << max_depth;
        let [front, back] =
            self.yards.bucket_bytes().map(|bytes| (buckets * bytes).next_multiple_of(4096));
        let no_memory = |source| Error::io(pm.path(), source);
        let overflow_bytes = (limit / OVERFLOW_SHARE).next_multiple_of(4096);
        let overflow =
            Overflow::new(pm.region("overflow.ice", overflow_bytes)?).map_err(no_memory)?;
        let params = BlobParams {
            chunk_bytes: self.blob_chunk_bytes,
            max_bytes: limit,
            session: identity.uuid[0],
            ..BlobParams::default()
        };
        Ok(Core {
            yards: self.yards,
            records: Records::open(&pm, Hash::new(self.hash, identity.hash_seed), params)?,
            length: Length::new(0, Some(0)),
            table,
            front: pm.region_with_holes("front.ice", front)?,
            back: pm.region_with_holes("back.ice", back)?,
            overflow,
            front_lines: Lines::new(buckets as usize).map_err(no_memory)?,
            back_words: ZeroedArray::new(buckets as usize).map_err(no_memory)?,
            shape: AtomicU64::new(0),
            gate: Gate::default(),
            structure: Mutex::new(()),
            moves: Moves::new(buckets).map_err(no_memory)?,
            max_depth,
            max_load: self.max_load,
            loads_whole: Cell128::loads_whole(),
            counts: Counts::default(),
            pm,
        })
    }
}

/// The shape word of an existing table; everything later computes by it, so the files must be long enough.
fn stored_shape<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
    core: &Core<K, V, M>,
) -> Result<Shape> {
    let shape = core.root()?.stored_shape(&core.pm).ok_or_else(|| {
        core.corrupt(&core.table, ROOT_OFFSET, "the shape word is that of no table")
    })?;
    for (region, bytes) in core.yard_bytes(shape) {
        if region.len() < bytes {
            let detail = format!("{} buckets take {bytes} bytes", shape.buckets());
            return Err(core.corrupt(region, region.len(), detail));
        }
    }
    Ok(shape)
}

fn report(session: SessionStart, resolved: u64, started: Instant) -> RecoveryReport {
    RecoveryReport {
        was_clean: session.was_clean,
        generation: session.generation,
        resolved,
        open_time: started.elapsed(),
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Drop for Iceberg<K, V, M> {
    /// Ends the session: all that operations acknowledged is durable already, so only the record count and the clean
    /// mark are written.
    fn drop(&mut self) {
        if self.core.pm.writable().is_ok() {
            let records = self.core.length.estimate(0);
            // A failure leaves the table unclean, which the next opening copes with.
            let _ = superblock::end_session(&self.core.pm, &self.core.table, records);
        }
        self.core.pm.close();
    }
}
