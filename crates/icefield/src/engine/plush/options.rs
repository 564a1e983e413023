//! Creating and opening tables.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;

use super::Plush;
use super::core::Core;
use super::epoch::LogEpoch;
use super::helper::Helper;
use super::journals::{Journals, journals_bytes};
use super::layout::{
    ENTRY_BYTES, Entry, MAX_FIRST_BITS, MAX_LOG_BITS, MAX_LOG_RECORDS, MAX_RECORDS, Phase, Root,
    Shape, Widths, run_buckets,
};
use super::leaf_bounds::Leaves;
use super::levels::Levels;
use super::mended::Mended;
use super::partition::{Bounds, Partition, Ranges};
use super::payload_log::PayloadLog;
use super::placement::Placement;
use super::recovery_log::RecoveryLogs;
use super::requests::Requests;
use super::root::RootTable;
use super::tallies::Tallies;
use super::top_filters::TopFilters;
use super::words::Measure;
use crate::base::hash::Hash;
use crate::engine::Design;
use crate::engine::exclusion::Exclusion;
use crate::engine::opening::{Common, report};
use crate::report::RecoveryReport;
use crate::storage::alloc::Pool;
use crate::storage::superblock::{self, Identity, ROOT_OFFSET, SessionStart, impossible};
use crate::storage::{Medium, Region};
use crate::types::{Forms, RecordForm, StoredForm};
use crate::{Error, Result};

/// The default DRAM limit.
const DRAM_LIMIT: u64 = 256 << 20;
/// The shares of a table's capacity that its root holds: an eighth keeps migrations well filled. Where the recovery
/// logs would then take more than [`LOG_BYTES`], the share is smaller, but at least a sixteenth.
const ROOT_SHARES: [u64; 2] = [8, 16];
/// On disks the root of a new table holds the whole capacity, as long as its recovery logs take at most this many
/// bytes. A record that stays in the root needs one sync a batch; a record that moves on needs several.
const LOG_BYTES: u64 = 64 << 20;
/// The recovery logs hold this many records for each record of the root, so that most records of a chunk have left the
/// root by the time the chunk is begun anew (§4.2).
const LOG_SHARE: u32 = 2;

/// Plush as a design, the third parameter of [`DurableTable`](crate::DurableTable).
///
/// ```
/// use icefield::{DurableTable, Plush, PlushHt};
/// let table: DurableTable<u64, u64, PlushHt> = Plush::in_memory()?;
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct PlushHt;

/// The options that only Plush has.
#[derive(Clone, Debug)]
pub struct PlushSettings {
    pub(crate) shape: Option<Shape>,
    pub(crate) dram_limit: u64,
    pub(crate) dram_filters: Option<usize>,
    pub(crate) preallocated: usize,
    pub(crate) partition: Partition,
    pub(crate) bounds: Bounds,
    pub(crate) first_epoch: LogEpoch,
    pub(crate) helper: Help,
}

/// The kind of helper that a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Help {
    Nobody,
    /// A thread of the table.
    Thread,
    /// The callers of `Plush::help`, for tests.
    Callers,
}

impl Default for PlushSettings {
    fn default() -> Self {
        Self {
            shape: None,
            dram_limit: DRAM_LIMIT,
            dram_filters: None,
            preallocated: 0,
            partition: Partition::Hash,
            bounds: None,
            first_epoch: LogEpoch::FIRST,
            helper: Help::Nobody,
        }
    }
}

impl PlushSettings {
    /// Returns the settings of a new table that is partitioned like another one.
    pub(super) fn partitioned_as(ranges: Option<Ranges>) -> Self {
        let partition = if ranges.is_some() { Partition::Range } else { Partition::Hash };
        Self { partition, bounds: ranges.map(Ranges::bounds), ..Self::default() }
    }
}

impl Design for PlushHt {
    const NAME: &'static str = "plush";
    const TITLE: &'static str = "Plush";
    const ALLOWS_DISK: bool = true;
    type Settings = PlushSettings;
    type Form<K: StoredForm, V: StoredForm> = Forms<K, V>;
    type Engine<R: RecordForm, M: Medium> = Plush<R, M>;

    fn create<R: RecordForm, M: Medium>(
        common: Common,
        settings: PlushSettings,
        storage: M,
    ) -> Result<(Plush<R, M>, RecoveryReport)> {
        Opening { common, settings }.create(storage)
    }

    fn open<R: RecordForm, M: Medium>(
        common: Common,
        settings: PlushSettings,
        storage: M,
    ) -> Result<(Plush<R, M>, RecoveryReport)> {
        Opening { common, settings }.open(storage)
    }
}

/// The common options of a new or opened table, and those of the design.
struct Opening {
    common: Common,
    settings: PlushSettings,
}

impl Opening {
    fn create<R: RecordForm, M: Medium>(self, storage: M) -> Result<(Plush<R, M>, RecoveryReport)> {
        let started = Instant::now();
        let mut identity = self.common.identity(PlushHt::NAME, [0; 3]);
        let measure =
            Measure::<R>::inscribe(&mut identity).map_err(|()| impossible(&storage, "width"))?;
        let widths = measure.widths();
        let shape = self.new_shape(widths, storage.fence_syncs())?;
        identity.params[..3].copy_from_slice(&shape.pack().map(u64::from));
        Ranges::inscribe(&mut identity, self.settings.partition, self.settings.bounds);
        let storage = storage.claimed()?;
        let table = superblock::create(&storage)?;
        let core = self.core::<R, M>(storage, table.clone(), &identity, (shape, measure), 0)?;
        core.check_room(self.common.capacity)?;
        core.storage.grow(core.levels.region(), shape.entries(1) * ENTRY_BYTES)?;
        core.storage.grow(core.journals.region(), journals_bytes(widths))?;
        core.storage.grow(core.logs.region(), shape.log_bytes(widths))?;
        if core.storage.fence_syncs() {
            core.logs.overwrite(&core.storage);
        }
        core.root_words()?.levels.store(&core.storage, 1, Release);
        // The number of levels and the phase are in one line, so this makes both durable.
        core.set_phase(Phase::Stable { set: 0 })?;
        (0..core.root.entries())
            .for_each(|entry| core.root.set_epoch(entry, self.settings.first_epoch));
        core.make_room_for(self.common.capacity)?;
        if !core.storage.fence_syncs() {
            core.populate_for(self.common.capacity);
            core.reserve_buckets(self.common.capacity)?;
        }
        core.preallocate(self.settings.preallocated)?;
        core.tell_together(core.writes_together())?;
        let core = Arc::new(core);
        // Starts before the table is published, so that no table remains if it cannot start.
        let helper = self.helper(&core)?;
        superblock::seal(&core.storage, &table, &identity)?;
        core.storage.publish_created()?;
        let session = superblock::begin_session(&core.storage, &table)?;
        // A new table has nothing to recover.
        let recovery = report(SessionStart { was_clean: true, ..session }, 0, started);
        Ok((Plush { core, helper }, recovery))
    }

    fn open<R: RecordForm, M: Medium>(
        mut self,
        storage: M,
    ) -> Result<(Plush<R, M>, RecoveryReport)> {
        let started = Instant::now();
        let storage = storage.claimed()?;
        let (table, identity) = superblock::read(&storage)?;
        self.common.types.check(&storage, &identity, PlushHt::NAME)?;
        let shape = Shape::unpack(self.common.adopt(&storage, &identity)?)
            .ok_or_else(|| impossible(&storage, "shape"))?;
        let measure = Measure::<R>::of(&identity).map_err(|()| impossible(&storage, "width"))?;
        let root: &Root = superblock::root_words(&storage, &table)?;
        let phase = Phase::unpack(root.phase.load(&storage, Acquire))
            .ok_or_else(|| table.fault(&storage, ROOT_OFFSET, "the phase word is impossible"))?;
        self.check_lengths(&storage, shape, measure.widths())?;
        let core =
            self.core::<R, M>(storage, table.clone(), &identity, (shape, measure), phase.set())?;
        if let Some(mending) = &self.common.mending {
            core.mend(mending)?;
        }
        // Runs before the session begins, so that the next opening repeats the recovery if a crash interrupts it.
        let resolved = core.recover(phase)?;
        core.tell_together(core.writes_together())?;
        let core = Arc::new(core);
        let helper = self.helper(&core)?;
        let session = superblock::resume_session(&core.storage, &table, &identity)?;
        let records = match session.was_clean {
            true => session.records,
            // The balance counts the records that recovery has replayed from the logs.
            false => core.records_of_levels()?.saturating_add_signed(core.tallies.balance()),
        };
        core.tallies.reset(records);
        if session.was_clean {
            core.tallies.note_exact(core.tallies.changes(), records);
        }
        let recovery = report(session, resolved, started);
        Ok((Plush { core, helper }, recovery))
    }

    /// Starts the helper, if the table shall have one.
    fn helper<R: RecordForm, M: Medium>(&self, core: &Arc<Core<R, M>>) -> Result<Option<Helper>> {
        if self.settings.helper == Help::Thread && core.storage.check_writable().is_ok() {
            return Helper::start(core);
        }
        Ok(None)
    }

    /// Rejects files that are too short for the shape, before any memory is allocated according to the shape.
    fn check_lengths(&self, storage: &impl Medium, shape: Shape, widths: Widths) -> Result<()> {
        let limit = self.common.limit();
        let log_bytes = shape.log_bytes(widths);
        let journal_bytes = journals_bytes(widths);
        for (name, max_bytes, bytes) in [
            ("levels.ice", limit, shape.entries(1) * ENTRY_BYTES),
            ("log.ice", log_bytes.next_multiple_of(4096), log_bytes),
            ("journals.ice", journal_bytes.next_multiple_of(4096), journal_bytes),
        ] {
            // `levels.ice` may have holes, which opening it as an ordinary region would fill.
            let region = match name {
                "levels.ice" => storage.region_with_holes(name, max_bytes)?,
                _ => storage.region(name, max_bytes)?,
            };
            if let Some(mending) = &self.common.mending {
                mending.lengthen(storage, &region, bytes)?;
            }
            if region.len() < bytes {
                let detail = format!("the file is shorter than {bytes} bytes");
                return Err(region.fault(storage, region.len(), detail));
            }
        }
        Ok(())
    }

    fn new_shape(&self, widths: Widths, is_disk: bool) -> Result<Shape> {
        let shape = self.settings.shape.unwrap_or_else(|| self.planned_shape(widths, is_disk));
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
        // Half of the bytes, because the number of entries is rounded up to a power of two.
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
            wanted.max(usual.root_bits).min(bits(self.settings.dram_limit / entry_bytes)).min(20);
        let log_records = |log_bits| {
            let records = u64::from(LOG_SHARE) * MAX_RECORDS as u64;
            (records << (root_bits - log_bits)) / u64::from(usual.log_chunks)
        };
        // One log is enough on a disk, which writes at one place at a time.
        let fewest = if is_disk { 0 } else { usual.log_bits };
        let fits = |&log_bits: &u32| log_records(log_bits) <= u64::from(MAX_LOG_RECORDS);
        let most = MAX_LOG_BITS.min(root_bits);
        let log_bits = (fewest.min(root_bits)..most).find(fits).unwrap_or(most);
        let log_records = log_records(log_bits).min(MAX_LOG_RECORDS.into()) as u32;
        // Level 1 holds the whole capacity, so that no record moves twice, unless it would need too many entries for
        // each root entry.
        let in_root = (MAX_RECORDS as u64) << root_bits;
        let first_bits = match is_disk {
            true => usual.first_bits,
            false => (0..=MAX_FIRST_BITS)
                .find(|bits| in_root << bits >= capacity)
                .unwrap_or(usual.first_bits),
        };
        Shape { root_bits, first_bits, log_bits, log_records, ..usual }
    }

    /// The number of levels whose filters are in DRAM, unless an option sets it: two, as in the paper's measurements
    /// (§6.5), or one if level 1 is wider than the root, so that it holds the capacity of the table.
    fn levels_on_top(&self, shape: Shape) -> usize {
        self.settings.dram_filters.unwrap_or(if shape.first_bits > 0 { 1 } else { 2 })
    }

    fn core<R: RecordForm, M: Medium>(
        &self,
        storage: M,
        table: Region,
        identity: &Identity,
        (shape, measure): (Shape, Measure<R>),
        set: usize,
    ) -> Result<Core<R, M>> {
        let limit = self.common.limit();
        let no_memory = |source| Error::io(storage.path(), source);
        let root = RootTable::new(shape, measure, storage.fence_syncs()).map_err(no_memory)?;
        let left = self.settings.dram_limit.saturating_sub(root.bytes());
        let log_bytes = shape.log_bytes(measure.widths()).next_multiple_of(4096);
        let journal_bytes = journals_bytes(measure.widths()).next_multiple_of(4096);
        let payloads = if measure.is_inline() {
            None
        } else {
            let chunk_bytes = self.common.blob_chunk_bytes.into();
            Some(PayloadLog::open(&storage, chunk_bytes, limit, self.common.verify)?)
        };
        // On disks migrations run in groups (`grouped_migration`).
        let is_helped = self.settings.helper != Help::Nobody && !storage.fence_syncs();
        let requests = is_helped.then(|| Arc::new(Requests::new(root.entries())));
        let runs = |class: usize, file| -> Result<Pool> {
            let bytes = measure.widths().bucket_bytes() * run_buckets(class + 1);
            Ok(Pool::new(storage.region_with_holes(file, limit)?, set, bytes, 0))
        };
        // The link is a word of the filter, because the state of a free entry must remain empty.
        let link = offset_of!(Entry, filter) as u64;
        let chains = storage.region_with_holes("chains.ice", limit)?;
        let ranges = Ranges::of(identity).map_err(|()| impossible(&storage, "partition"))?;
        Ok(Core {
            payloads,
            mended: self.common.mending.clone().map(Mended::new),
            shape,
            measure,
            placement: Placement::new(Hash::new(self.common.hash, identity.hash_seed), ranges),
            top_filters: TopFilters::new(shape, self.levels_on_top(shape), left)
                .map_err(no_memory)?,
            root,
            leaves: Leaves::new(),
            logs: RecoveryLogs::new(storage.region("log.ice", log_bytes)?, shape, measure),
            table,
            levels: Levels::new(storage.region_with_holes("levels.ice", limit)?, shape),
            chains: Pool::new(chains, set, ENTRY_BYTES, link),
            runs: [
                runs(0, "buckets-1.ice")?,
                runs(1, "buckets-2.ice")?,
                runs(2, "buckets-4.ice")?,
                runs(3, "buckets-8.ice")?,
            ],
            journals: Journals::new(storage.region("journals.ice", journal_bytes)?, shape, measure),
            exclusion: Exclusion::default(),
            requests,
            tallies: Tallies::new(),
            storage,
        })
        .inspect(|core| core.storage.plan_reads())
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Returns whether payloads become durable together with their log records.
    fn writes_together(&self) -> bool {
        self.payloads.is_some() && self.storage.fence_syncs()
    }

    fn end_session(&self) -> Result<()> {
        self.storage.check_writable()?;
        self.checkpoint_all()?;
        self.storage.fence_deferred()?;
        self.tell_together(false)?;
        superblock::end_session(&self.storage, &self.table, self.tallies.estimate())
    }
}

impl<R: RecordForm, M: Medium> Drop for Plush<R, M> {
    /// Ends the session: makes records durable that were put without a log or acknowledged early, then writes the
    /// record count and the clean mark. All other data is durable already.
    fn drop(&mut self) {
        drop(self.helper.take());
        // After a failure the table is unclean, and the next opening recovers it.
        let _ = self.core.end_session();
        self.core.storage.close();
    }
}

/// Creates a table of words with the default options, for tests.
#[cfg(test)]
pub(super) fn table_of_words<M: Medium>(
    storage: M,
) -> Result<Plush<Forms<crate::types::InWord, crate::types::InWord>, M>> {
    use crate::engine::stored_types::StoredTypes;
    use crate::types::Form;
    let types = StoredTypes::named(("", Form::Word), ("", Form::Word));
    let common = Common { types, ..Common::default() };
    <PlushHt as Design>::create(common, PlushSettings::default(), storage).map(|(table, _)| table)
}
