//! Creates and opens tables.

use std::marker::PhantomData;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;
use std::time::Instant;

use super::Iceberg;
use super::core::{Core, Counts};
use super::layout::{MAX_DEPTH, Root, SLOT_BYTES, Shape, Yards};
use super::moves::Moves;
use super::overflow::Overflow;
use crate::base::gate::Gate;
use crate::base::hash::{Hash, HashKind};
use crate::base::memory::GrowingArray;
use crate::base::parallel::all_cores;
use crate::base::sync::GrowingLines;
use crate::key::{Form, Key, Value};
use crate::record::Records;
use crate::record::length::Length;
use crate::record::opening::{Common, common_options, impossible, report};
use crate::record::types::{StoredTypes, check_types};
use crate::storage::superblock::{self, Identity, ROOT_OFFSET, SessionStart};
use crate::storage::{Cell128, Durability, Mapped, Medium, Region};
use crate::{Error, Result};

const DESIGN: &str = "iceberg";
/// The overflow yard is for some records in a million, and for many equal hashes: this part of the address space is
/// ample.
const OVERFLOW_SHARE: u64 = 64;
/// Used slots per thousand at which a table doubles (§4).
const MAX_LOAD: u32 = 850;

/// Options for creating or opening an IcebergHT table: a builder, returned by [`Iceberg::options`].
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
    common: Common,
    yards: Yards,
    max_load: u32,
    max_depth: u32,
    threads: Option<usize>,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> Clone for IcebergOptions<K, V> {
    fn clone(&self) -> Self {
        Self { common: self.common.clone(), ..*self }
    }
}

impl<K: ?Sized, V: ?Sized> Default for IcebergOptions<K, V> {
    fn default() -> Self {
        Self {
            common: Common::default(),
            yards: Yards::default(),
            max_load: MAX_LOAD,
            max_depth: MAX_DEPTH,
            threads: None,
            types: PhantomData,
        }
    }
}

common_options! {
    options: IcebergOptions,
    verify: "Whether reads verify the checksum of each key and value by reference that they give out, and fail with \
        [`Error::Corrupt`] where it is wrong. Default: no; `check` verifies all of them. Words have none.",
    table: Iceberg,
    public: Iceberg,
    name: "IcebergHT",
    unit: "bucket",
    disk: "`Disk` is refused: the order of stores within a line matters here.",
    open: "Opens the table at `path`, however it was left: reads all of it, on several threads (§6).",
}

impl<K: Key + ?Sized, V: Value + ?Sized> IcebergOptions<K, V> {
    /// Sets the load at which a table doubles, as a part of its slots: above 0, at most 1; 0.85 by default (§4). The
    /// table does not store it: each opening may choose another value. If the number of records is known in advance,
    /// 0.95 is a reasonable value; one read in six then searches the back yard.
    ///
    /// ```
    /// let dense = icefield::Iceberg::<u64, u64>::options().max_load(0.95).capacity(1000).in_memory()?;
    /// assert!(dense.capacity() >= 1000);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn max_load(mut self, part: f64) -> Self {
        // Values out of range become 0, which `validate` refuses.
        self.max_load = if part > 0.0 && part <= 1.0 { (part * 1000.0).ceil() as u32 } else { 0 };
        self
    }

    /// Sets the number of threads that recover a table when it is opened; by default the number of processors.
    ///
    /// ```
    /// use icefield::Iceberg;
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("orders.ice");
    /// drop(Iceberg::<u64, u64>::create(&path)?);
    /// let table = Iceberg::<u64, u64>::options().threads(2).open(&path)?;
    /// println!("{:?}", table.recovery().open_time);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets the address space that the table reserves, as the maximum depth; for tests with many tiny tables.
    #[doc(hidden)]
    #[must_use]
    pub fn max_depth(mut self, depth: u32) -> Self {
        self.max_depth = depth;
        self
    }

    /// Sets the dimensions of a new table's buckets (Table 6), for tests and measurements.
    #[doc(hidden)]
    #[must_use]
    pub fn yards(mut self, yards: Yards) -> Self {
        self.yards = yards;
        self
    }

    /// Creates a table on a medium.
    ///
    /// # Errors
    /// As [`IcebergOptions::create`].
    ///
    /// ```
    /// use icefield::Iceberg;
    /// use icefield::storage::{Mapped, MappedOptions};
    /// let storage = Mapped::anonymous(MappedOptions::default())?;
    /// let table = Iceberg::<u64, u64>::options().create_on(storage)?;
    /// table.put(1, 10)?;
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[cfg_attr(not(feature = "unstable-internals"), doc(hidden))]
    pub fn create_on<M: Medium>(self, storage: M) -> Result<Iceberg<K, V, M>> {
        let started = Instant::now();
        self.validate()?;
        let identity = self.identity();
        let storage = storage.claimed()?;
        let table = superblock::create(&storage)?;
        let core = self.core(storage, table.clone(), &identity, 0)?;
        let depth = core.depth_for(self.common.capacity);
        if depth > core.max_depth {
            return Err(Error::InvalidOption {
                option: "capacity",
                detail: format!("{} records do not fit into max_bytes", self.common.capacity),
            });
        }
        // No bucket exists yet, not even the first.
        core.check_room(depth, 0)?;
        let shape = Shape::first(depth);
        core.reserve_yards(shape)?;
        core.set_shape(shape)?;
        superblock::seal(&core.storage, &table, &identity)?;
        core.storage.publish_created()?;
        let session = superblock::begin_session(&core.storage, &table)?;
        // A new table has nothing to recover.
        let recovery = report(SessionStart { was_clean: true, ..session }, 0, started);
        Ok(Iceberg { core, recovery })
    }

    /// Opens the table on a medium.
    ///
    /// # Errors
    /// As [`IcebergOptions::open`].
    ///
    /// ```
    /// use icefield::Iceberg;
    /// use icefield::storage::{Mapped, MappedOptions};
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("orders.ice");
    /// drop(Iceberg::<u64, u64>::create(&path)?);
    /// let storage = Mapped::open(&path, MappedOptions::default())?;
    /// assert!(Iceberg::<u64, u64>::options().open_on(storage)?.is_empty()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg_attr(not(feature = "unstable-internals"), doc(hidden))]
    pub fn open_on<M: Medium>(self, storage: M) -> Result<Iceberg<K, V, M>> {
        let started = Instant::now();
        let storage = storage.claimed()?;
        let (table, identity) = superblock::read(&storage)?;
        check_types::<K, V>(&storage, &identity, DESIGN)?;
        let opened = self.with_identity(&storage, &identity)?;
        // A table that is larger than `max_bytes` can be opened, but does not grow.
        let depth = table.at::<Root>(ROOT_OFFSET).and_then(|root| root.stored_shape(&storage));
        let core =
            opened.core(storage, table.clone(), &identity, depth.map_or(0, Shape::extent))?;
        if let (Some(mending), Some(shape)) =
            (&opened.common.mending, core.root()?.stored_shape(&core.storage))
        {
            for (region, bytes) in core.yard_bytes(shape) {
                mending.lengthen(&core.storage, region, bytes)?;
            }
        }
        let shape = stored_shape(&core)?;
        core.reach(shape)?;
        core.shape.store(shape.word(), Release);
        if core.storage.check_writable().is_ok() {
            // A copy of the files may have left holes.
            core.reserve_yards(shape)?;
        }
        let threads = opened.threads.unwrap_or_else(all_cores);
        // This precedes the start of the session: a crash here leaves only work that the next opening repeats.
        let resolved = core.recover(threads)?;
        let session = superblock::resume_session(&core.storage, &table, &identity)?;
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
        if self.common.capacity > 1 << 38 {
            return refuse(
                "capacity",
                format!("{} records are more than 2^38", self.common.capacity),
            );
        }
        Ok(())
    }

    fn identity(&self) -> Identity {
        let Yards { front, back } = self.yards;
        self.common.identity::<K, V>(DESIGN, [front, back, 0])
    }

    /// Returns the options with the values that the table itself determines.
    fn with_identity(mut self, storage: &impl Medium, identity: &Identity) -> Result<Self> {
        let [front, back, _] = self.common.adopt(storage, identity)?;
        self.yards = Yards { front, back };
        if !self.yards.is_valid() {
            return Err(impossible(storage, "bucket size"));
        }
        self.validate()?;
        Ok(self)
    }

    fn core<M: Medium>(
        &self,
        storage: M,
        table: Region,
        identity: &Identity,
        least_depth: u32,
    ) -> Result<Core<K, V, M>> {
        let limit = self.common.limit();
        let room_for = (limit / (self.yards.slots() * SLOT_BYTES)).ilog2();
        let max_depth = room_for.min(self.max_depth).max(least_depth);
        let buckets = 1_u64 << max_depth;
        let [front, back] =
            self.yards.bucket_bytes().map(|bytes| (buckets * bytes).next_multiple_of(4096));
        let no_memory = |source| Error::io(storage.path(), source);
        let overflow_bytes = (limit / OVERFLOW_SHARE).next_multiple_of(4096);
        let overflow =
            Overflow::new(storage.region("overflow.ice", overflow_bytes)?).map_err(no_memory)?;
        let params = self.common.blobs(superblock::last_session(&storage, &table)?);
        Ok(Core {
            yards: self.yards,
            records: Records::open(
                &storage,
                Hash::new(self.common.hash, identity.hash_seed),
                params,
            )?
            .verifying(self.common.verify),
            length: Length::new(0, Some(0)),
            table,
            front: storage.region_with_holes("front.ice", front)?,
            back: storage.region_with_holes("back.ice", back)?,
            overflow,
            front_lines: GrowingLines::new(buckets as usize).map_err(no_memory)?,
            back_words: GrowingArray::new(buckets as usize).map_err(no_memory)?,
            rooms: GrowingArray::sparse(buckets as usize).map_err(no_memory)?,
            shape: AtomicU64::new(Shape::first(0).word()),
            gate: Gate::default(),
            structure: Mutex::new(()),
            moves: Moves::new(buckets).map_err(no_memory)?,
            max_depth,
            max_load: self.max_load,
            loads_whole: Cell128::loads_whole(),
            counts: Counts::default(),
            storage,
        })
    }
}

/// Returns the shape word of an existing table, after checking that the files are long enough for it: all later code
/// relies on it.
fn stored_shape<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
    core: &Core<K, V, M>,
) -> Result<Shape> {
    let shape = core.root()?.stored_shape(&core.storage).ok_or_else(|| {
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

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Drop for Iceberg<K, V, M> {
    /// Ends the session. All acknowledged operations are already durable, so only the record count and the clean mark
    /// are written.
    fn drop(&mut self) {
        if self.core.storage.check_writable().is_ok() {
            let records = self.core.length.estimate(0);
            // A failure leaves the table unclean; the next opening recovers it.
            let _ = superblock::end_session(&self.core.storage, &self.core.table, records);
        }
        self.core.storage.close();
    }
}
