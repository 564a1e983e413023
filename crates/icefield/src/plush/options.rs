//! Creating and opening tables.

use std::marker::PhantomData;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Instant;

use super::Plush;
use super::core::{Core, Counts};
use super::epoch::LogEpoch;
use super::layout::Widths;
use super::layout::{
    ENTRY_BYTES, JOURNALS, MAX_FIRST_BITS, MAX_LOG_BITS, MAX_LOG_RECORDS, MAX_RECORDS, Phase, Root,
    Shape, journal_bytes,
};
use super::leaves::Leaves;
use super::partition::{Bounds, Partition, Ranges, rank_of};
use super::payload_log::PayloadLog;
use super::recovery_log::RecoveryLogs;
use super::root::RootTable;
use super::salvage::Mended;
use super::top_filters::TopFilters;
use super::words::Measure;
use crate::base::counter::ShardedCounter;
use crate::base::gate::Gate;
use crate::base::hash::{Hash, HashKind};
use crate::key::{Form, Key, Value};
use crate::record::opening::{Common, common_options, impossible, report};
use crate::record::types::{StoredTypes, check_types};
use crate::storage::alloc::Allocator;
use crate::storage::superblock::{self, Identity, ROOT_OFFSET, SessionStart};
use crate::storage::{Durability, Mapped, Medium, Region, SyncMode};
use crate::{Error, Result};

const DESIGN: &str = "plush";
/// The default DRAM limit.
const DRAM_LIMIT: u64 = 256 << 20;
/// The shares of a table's capacity that its root holds: an eighth keeps migrations well filled. Where the recovery
/// logs would then take more than [`LOG_BYTES`], the share is a sixteenth.
const ROOT_SHARES: [u64; 2] = [8, 16];
/// On disks the root of a new table holds the whole capacity, as long as its recovery logs take at most this many
/// bytes. A record that stays in the root needs one sync a batch; one that moves on needs several.
const LOG_BYTES: u64 = 64 << 20;
/// Records that the recovery logs hold for each record of the root, so that a chunk's records have moved on when the
/// chunk is begun anew (§4.2).
const LOG_SHARE: u32 = 2;

/// Options for creating or opening a Plush table: a builder, from [`Plush::options`].
///
/// ```
/// use icefield::{Durability, Plush};
/// let directory = tempfile::tempdir()?;
/// let table = Plush::<u64, u64>::options()
///     .capacity(100_000)
///     .durability(Durability::Process)
///     .create(directory.path().join("orders.ice"))?;
/// assert!(table.capacity() >= 100_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PlushOptions<K: ?Sized, V: ?Sized> {
    common: Common,
    shape: Option<Shape>,
    dram_limit: u64,
    dram_filters: Option<usize>,
    preallocated: usize,
    partition: Partition,
    bounds: Bounds,
    first_epoch: LogEpoch,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> Clone for PlushOptions<K, V> {
    fn clone(&self) -> Self {
        Self { common: self.common.clone(), ..*self }
    }
}

impl<K: ?Sized, V: ?Sized> Default for PlushOptions<K, V> {
    fn default() -> Self {
        Self {
            common: Common { allows_disk: true, ..Common::default() },
            shape: None,
            dram_limit: DRAM_LIMIT,
            dram_filters: None,
            preallocated: 0,
            partition: Partition::Hash,
            bounds: None,
            first_epoch: LogEpoch::FIRST,
            types: PhantomData,
        }
    }
}

common_options! {
    options: PlushOptions,
    verify: "Whether reads verify the checksum of each key and value in the payload log that they give out, and fail with \
        [`Error::Corrupt`] where it is wrong. Default: no; `check` verifies all of them. Keys and values of fixed width \
        have none.",
    table: Plush,
    public: Plush,
    name: "Plush",
    unit: "root",
    disk: "`Disk` syncs once a call, or once for up to 512 records of a batch; see [`sync`](Self::sync).",
    open: "Opens the table at `path`, however it was left: reads its recovery logs, whatever its size (§5.4).",
}

impl<K: Key + ?Sized, V: Value + ?Sized> PlushOptions<K, V> {
    /// Sets the most DRAM that a table's root and filters may take, in bytes; 256 MiB by default.
    ///
    /// The root is sized for [`capacity`](Self::capacity) when the table is created, and keeps its size. It holds an
    /// eighth to a quarter of the capacity, or half as much where its recovery logs would take more than 64 MiB, at
    /// 17 bytes a record of words. Filters use the rest of the limit. On disks the root holds the whole capacity, as
    /// long as its recovery logs, which are written at creation, take at most 64 MiB: until the root is full, puts
    /// cost one sync a call or batch.
    ///
    /// ```
    /// let table = icefield::Plush::<u64, u64>::options().dram_limit(1 << 20).in_memory()?;
    /// assert!(table.stats().dram_bytes <= 1 << 20);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn dram_limit(mut self, bytes: u64) -> Self {
        self.dram_limit = bytes;
        self
    }

    /// Sets when writes on [`Durability::Disk`] are acknowledged; [`SyncMode::Always`] by default.
    ///
    /// The other modes weaken the guarantee of a returned call and of a value that was read: after a crash each key
    /// has one of the values that it has had since the last [`sync`](Plush::sync), or had at that time. Everything
    /// before that sync, and before a completed background sync, is durable. Set anew at each opening. Other media
    /// ignore this option: there every call is durable when it returns.
    ///
    /// ```
    /// use icefield::{Durability, Plush, SyncMode};
    /// let directory = tempfile::tempdir_in(".")?;
    /// let table = Plush::<u64, u64>::options()
    ///     .durability(Durability::Disk)
    ///     .sync(SyncMode::Every(100))
    ///     .create(directory.path().join("clicks.ice"))?;
    /// (0..1000).try_for_each(|key| table.put(key, 1))?;
    /// table.sync()?; // All of them are durable from here on.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn sync(mut self, mode: SyncMode) -> Self {
        self.common.sync = mode;
        self
    }

    /// Sets the number of levels, from the first on, whose filters are in DRAM as well (§6.5). The default is 1 for a
    /// table created with a [`capacity`](Self::capacity) that its level 1 holds, and 2 for others.
    ///
    /// A read then accesses the medium only where a filter contains its key. The filters take a byte and a half for
    /// each record for which the levels have room. Levels for which [`dram_limit`](Self::dram_limit) leaves no room
    /// have none in DRAM. Set anew at each opening, which reads the filters of these levels.
    ///
    /// ```
    /// let with = icefield::Plush::<u64, u64>::options().dram_filters(2).in_memory()?;
    /// let without = icefield::Plush::<u64, u64>::options().dram_filters(0).in_memory()?;
    /// assert!(with.stats().dram_bytes > without.stats().dram_bytes);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn dram_filters(mut self, levels: usize) -> Self {
        self.dram_filters = Some(levels);
        self
    }

    /// Sets the number of levels, from the first on, of which a new table gets all buckets at once (§6.5); 0 by
    /// default. Writes then allocate only below these levels. No space is lost once the levels have been full.
    ///
    /// ```
    /// let table = icefield::Plush::<u64, u64>::options().preallocate(1).in_memory()?;
    /// assert!(table.stats().storage_bytes > icefield::Plush::<u64, u64>::in_memory()?.stats().storage_bytes);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn preallocate(mut self, levels: usize) -> Self {
        self.preallocated = levels;
        self
    }

    /// Sets the property that places the records of a new table next to one another; [`Partition::Hash`] by default.
    #[must_use]
    pub fn partition(mut self, partition: Partition) -> Self {
        self.partition = partition;
        self
    }

    /// Sets the keys between which those of a new, range-partitioned table are expected, mostly evenly; by default
    /// the range of the type, and for bytes that of the first eight.
    ///
    /// Other keys are possible; they belong to the first or the last part of the table. Where keys crowd, as small
    /// numbers do among all `u64`s, or addresses with a common prefix, that part of the table is split by keys. It
    /// costs about the same, but its writers exclude one another.
    ///
    /// ```
    /// use icefield::{Partition, Plush};
    /// let options = Plush::<u64, u64>::options().partition(Partition::Range).key_range(0, 9_999);
    /// let table = options.in_memory()?;
    /// (0..10_000).try_for_each(|key| table.put(key, key))?;
    /// assert_eq!(table.range(9_998, 10)?, [(9_998, 9_998), (9_999, 9_999)]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn key_range(mut self, first: K::Arg<'_>, last: K::Arg<'_>) -> Self {
        let raws = [K::raw(first), K::raw(last)];
        self.bounds = Some(raws.map(|raw| rank_of(K::TYPE, K::FORM, &raw)));
        self
    }

    /// Partitions a new table like another one.
    #[must_use]
    pub(super) fn partitioned_as(mut self, ranges: Option<Ranges>) -> Self {
        self.partition = if ranges.is_some() { Partition::Range } else { Partition::Hash };
        self.bounds = ranges.map(Ranges::bounds);
        self
    }

    /// Sets the first log epoch of a new table's entries, for tests of the counter's wrap-around.
    #[doc(hidden)]
    #[must_use]
    pub fn first_epoch(mut self, bits: u64) -> Self {
        self.first_epoch = LogEpoch::of_bits(bits.max(1));
        self
    }

    /// Sets the sizes of a new table's parts, for tests and measurements.
    #[doc(hidden)]
    #[must_use]
    pub fn shape(mut self, shape: Shape) -> Self {
        self.shape = Some(shape);
        self
    }

    /// Creates a table on a medium.
    ///
    /// # Errors
    /// As [`PlushOptions::create`].
    ///
    /// ```
    /// use icefield::Plush;
    /// use icefield::storage::{Mapped, MappedOptions};
    /// let storage = Mapped::anonymous(MappedOptions::default())?;
    /// let table = Plush::<u64, u64>::options().create_on(storage)?;
    /// table.put(1, 10)?;
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[cfg_attr(not(feature = "unstable-internals"), doc(hidden))]
    pub fn create_on<M: Medium>(self, storage: M) -> Result<Plush<K, V, M>> {
        let started = Instant::now();
        let mut identity = self.common.identity::<K, V>(DESIGN, [0; 3]);
        let measure =
            Measure::inscribe(&mut identity).map_err(|()| impossible(&storage, "width"))?;
        let widths = measure.widths();
        let shape = self.new_shape(widths, storage.fence_syncs())?;
        identity.params[..3].copy_from_slice(&shape.pack().map(u64::from));
        Ranges::inscribe(&mut identity, self.partition, self.bounds);
        let storage = storage.claimed()?;
        let table = superblock::create(&storage)?;
        let core = self.core(storage, table.clone(), &identity, (shape, measure), 0)?;
        core.check_room(self.common.capacity)?;
        core.storage.grow(&core.levels, shape.entries(1) * ENTRY_BYTES)?;
        core.storage.grow(&core.journals, JOURNALS as u64 * journal_bytes(widths))?;
        core.storage.grow(core.logs.region(), shape.log_bytes(widths))?;
        if core.storage.fence_syncs() {
            core.logs.overwrite(&core.storage);
        }
        core.root_words()?.levels.store(&core.storage, 1, Release);
        // Both words are in one line, so that both become durable.
        core.set_phase(Phase::Stable { set: 0 })?;
        (0..core.root.entries()).for_each(|entry| core.root.set_epoch(entry, self.first_epoch));
        core.make_room_for(self.common.capacity)?;
        if !core.storage.fence_syncs() {
            core.populate_for(self.common.capacity);
            core.reserve_buckets(self.common.capacity)?;
        }
        core.preallocate(self.preallocated)?;
        core.tell_together(core.writes_together())?;
        superblock::seal(&core.storage, &table, &identity)?;
        core.storage.publish_created()?;
        let session = superblock::begin_session(&core.storage, &table)?;
        // A new table has nothing to recover.
        let recovery = report(SessionStart { was_clean: true, ..session }, 0, started);
        Ok(Plush { core, recovery })
    }

    /// Opens the table on a medium.
    ///
    /// # Errors
    /// As [`PlushOptions::open`].
    ///
    /// ```
    /// use icefield::Plush;
    /// use icefield::storage::{Mapped, MappedOptions};
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("orders.ice");
    /// drop(Plush::<u64, u64>::create(&path)?);
    /// let storage = Mapped::open(&path, MappedOptions::default())?;
    /// assert!(Plush::<u64, u64>::options().open_on(storage)?.is_empty()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg_attr(not(feature = "unstable-internals"), doc(hidden))]
    pub fn open_on<M: Medium>(mut self, storage: M) -> Result<Plush<K, V, M>> {
        let started = Instant::now();
        let storage = storage.claimed()?;
        let (table, identity) = superblock::read(&storage)?;
        check_types::<K, V>(&storage, &identity, DESIGN)?;
        let shape = Shape::unpack(self.common.adopt(&storage, &identity)?)
            .ok_or_else(|| impossible(&storage, "shape"))?;
        let measure = Measure::of(&identity).map_err(|()| impossible(&storage, "width"))?;
        let root: Option<&Root> = table.at(ROOT_OFFSET);
        let phase = root.and_then(|root| Phase::unpack(root.phase.load(&storage, Acquire)));
        let Some(phase) = phase else {
            let file = storage.path().join(table.name());
            return Err(Error::corrupt(file, ROOT_OFFSET, "the phase word is that of no table"));
        };
        self.check_lengths(&storage, shape, measure.widths())?;
        let core = self.core(storage, table.clone(), &identity, (shape, measure), phase.set())?;
        if let Some(mending) = &self.common.mending {
            core.mend(mending)?;
        }
        // Before the session begins: after a crash in here, the next opening repeats the recovery.
        let resolved = core.recover(phase)?;
        core.tell_together(core.writes_together())?;
        let session = superblock::resume_session(&core.storage, &table, &identity)?;
        let records = match session.was_clean {
            true => session.records,
            // The records of the logs are in the estimate.
            false => core.records_of_levels()?.saturating_add_signed(core.estimate.sum()),
        };
        core.begin_estimate(records);
        if session.was_clean {
            core.note_count(core.changes(), records);
        }
        let recovery = report(session, resolved, started);
        Ok(Plush { core, recovery })
    }

    /// Rejects files that are too short for the shape, before any memory is allocated by the shape.
    fn check_lengths(&self, storage: &impl Medium, shape: Shape, widths: Widths) -> Result<()> {
        let limit = self.common.limit();
        let log_bytes = shape.log_bytes(widths);
        let journal_bytes = JOURNALS as u64 * journal_bytes(widths);
        for (name, max_bytes, bytes) in [
            ("levels.ice", limit, shape.entries(1) * ENTRY_BYTES),
            ("log.ice", log_bytes.next_multiple_of(4096), log_bytes),
            ("journals.ice", journal_bytes.next_multiple_of(4096), journal_bytes),
        ] {
            // The region with holes must be opened as one before any space is filled.
            let region = match name {
                "levels.ice" => storage.region_with_holes(name, max_bytes)?,
                _ => storage.region(name, max_bytes)?,
            };
            if let Some(mending) = &self.common.mending {
                mending.lengthen(storage, &region, bytes)?;
            }
            if region.len() < bytes {
                let detail = format!("{bytes} bytes are expected");
                return Err(Error::corrupt(storage.path().join(name), region.len(), detail));
            }
        }
        Ok(())
    }

    fn new_shape(&self, widths: Widths, is_disk: bool) -> Result<Shape> {
        let shape = self.shape.unwrap_or_else(|| self.planned_shape(widths, is_disk));
        if !shape.is_valid() {
            let detail = format!("{shape:?} is not possible");
            return Err(Error::InvalidOption { option: "shape", detail });
        }
        if self.common.capacity > 1 << 38 {
            let detail = format!("{} records are more than 2^38", self.common.capacity);
            return Err(Error::InvalidOption { option: "capacity", detail });
        }
        Ok(shape)
    }

    fn planned_shape(&self, widths: Widths, is_disk: bool) -> Shape {
        let usual = Shape::default();
        let capacity = self.common.capacity;
        // Half of the bytes, because the number of entries is a power of two.
        let logged = LOG_BYTES / 2 / widths.log_bytes(LOG_SHARE);
        let [share, smaller] = ROOT_SHARES.map(|share| capacity / share);
        let in_root = match is_disk {
            true => capacity.min(logged).max(smaller),
            false => share.min(logged).max(smaller),
        };
        let bits = |entries: u64| entries.max(1).ilog2();
        let wanted = bits((in_root / MAX_RECORDS as u64).next_power_of_two());
        // Slots, fingerprints, and the entry's own line.
        let record_bytes = widths.words() * size_of::<u64>() + 1;
        let entry_bytes = (MAX_RECORDS * record_bytes + 64) as u64;
        let root_bits =
            wanted.max(usual.root_bits).min(bits(self.dram_limit / entry_bytes)).min(20);
        let log_records = |log_bits| {
            let records = u64::from(LOG_SHARE) * MAX_RECORDS as u64;
            (records << (root_bits - log_bits)) / u64::from(usual.log_chunks)
        };
        // A disk writes at one place at a time.
        let fewest = if is_disk { 0 } else { usual.log_bits };
        let fits = |&log_bits: &u32| log_records(log_bits) <= u64::from(MAX_LOG_RECORDS);
        let most = MAX_LOG_BITS.min(root_bits);
        let log_bits = (fewest.min(root_bits)..most).find(fits).unwrap_or(most);
        let log_records = log_records(log_bits).min(MAX_LOG_RECORDS.into()) as u32;
        // Level 1 holds the whole capacity, if it then has few enough entries for each root entry: no record moves
        // twice.
        let in_root = (MAX_RECORDS as u64) << root_bits;
        let first_bits = match is_disk {
            true => usual.first_bits,
            false => (0..=MAX_FIRST_BITS)
                .find(|bits| in_root << bits >= capacity)
                .unwrap_or(usual.first_bits),
        };
        Shape { root_bits, first_bits, log_bits, log_records, ..usual }
    }

    /// The number of levels whose filters are in DRAM: that of the paper's measurements (§6.5), or only the level
    /// that holds the capacity of the table.
    fn levels_on_top(&self, shape: Shape) -> usize {
        self.dram_filters.unwrap_or(if shape.first_bits > 0 { 1 } else { 2 })
    }

    fn core<M: Medium>(
        &self,
        storage: M,
        table: Region,
        identity: &Identity,
        (shape, measure): (Shape, Measure<K, V>),
        set: usize,
    ) -> Result<Core<K, V, M>> {
        let limit = self.common.limit();
        let no_memory = |source| Error::io(storage.path(), source);
        let root = RootTable::new(shape, measure).map_err(no_memory)?;
        let left = self.dram_limit.saturating_sub(root.bytes());
        let log_bytes = shape.log_bytes(measure.widths()).next_multiple_of(4096);
        let journal_bytes = JOURNALS as u64 * journal_bytes(measure.widths());
        let journal_bytes = journal_bytes.next_multiple_of(4096);
        let payloads = if measure.is_inline() {
            None
        } else {
            let chunk_bytes = self.common.blob_chunk_bytes.into();
            Some(PayloadLog::open(&storage, chunk_bytes, limit, self.common.verify)?)
        };
        Ok(Core {
            payloads,
            mended: self.common.mending.clone().map(Mended::new),
            shape,
            measure,
            hash: Hash::new(self.common.hash, identity.hash_seed),
            ranges: Ranges::of(identity).map_err(|()| impossible(&storage, "partition"))?,
            top_filters: TopFilters::new(shape, self.levels_on_top(shape), left)
                .map_err(no_memory)?,
            root,
            leaves: Leaves::new(),
            logs: RecoveryLogs::new(storage.region("log.ice", log_bytes)?, shape, measure),
            table,
            levels: storage.region_with_holes("levels.ice", limit)?,
            chains: storage.region_with_holes("chains.ice", limit)?,
            runs: [
                storage.region_with_holes("buckets-1.ice", limit)?,
                storage.region_with_holes("buckets-2.ice", limit)?,
                storage.region_with_holes("buckets-4.ice", limit)?,
                storage.region_with_holes("buckets-8.ice", limit)?,
            ],
            journals: storage.region("journals.ice", journal_bytes)?,
            run_allocators: std::array::from_fn(|_| Allocator::new(set)),
            chain_allocator: Allocator::new(set),
            level_count: AtomicUsize::new(1),
            growing: Mutex::new(()),
            in_vain: Mutex::new(None),
            journal_locks: std::array::from_fn(|_| Mutex::new(())),
            gate: Gate::default(),
            structure: Mutex::new(()),
            estimate: ShardedCounter::default(),
            exact: [AtomicU64::new(u64::MAX), AtomicU64::new(0)],
            counts: Counts::default(),
            types: PhantomData,
            storage,
        })
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// Returns whether payloads become durable together with their log records.
    fn writes_together(&self) -> bool {
        self.payloads.is_some() && self.storage.fence_syncs()
    }

    fn end_session(&self) -> Result<()> {
        self.storage.check_writable()?;
        self.checkpoint(1)?;
        self.storage.fence_deferred()?;
        self.tell_together(false)?;
        superblock::end_session(&self.storage, &self.table, self.estimate())
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Drop for Plush<K, V, M> {
    /// Ends the session: makes records durable that were put without a log or acknowledged early, then writes the
    /// record count and the clean mark. All other data is durable already.
    fn drop(&mut self) {
        // After a failure the table is unclean, and the next opening recovers it.
        let _ = self.core.end_session();
        self.core.storage.close();
    }
}
