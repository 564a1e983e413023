//! Creates and opens tables.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;
use std::time::Instant;

use super::Iceberg;
use super::buckets::Buckets;
use super::core::{Core, Counts};
use super::judgement::LastJudgement;
use super::layout::{MAX_DEPTH, Root, SLOT_BYTES, Shape, Yards};
use super::moves::Moves;
use super::overflow::Overflow;
use crate::base::group::WholeLoads;
use crate::base::hash::Hash;
use crate::base::parallel::all_cores;
use crate::engine::Design;
use crate::engine::exclusion::Exclusion;
use crate::engine::length::Length;
use crate::engine::opening::{Common, report};
use crate::engine::slots::Records;
use crate::report::RecoveryReport;
use crate::storage::superblock::{self, Identity, ROOT_OFFSET, SessionStart, impossible};
use crate::storage::{Medium, Region};
use crate::types::{Forms, RecordForm, StoredForm};
use crate::{Error, Result};

/// The overflow yard gets 1/64 of the address space, which is ample: it holds a few records in a million. Only if many
/// keys have equal hashes does it hold more.
const OVERFLOW_SHARE: u64 = 64;
/// Used slots per thousand at which a table doubles (§4).
const MAX_LOAD: u32 = 850;

/// IcebergHT as a design, the third parameter of [`DurableTable`](crate::DurableTable).
///
/// ```
/// use icefield::{DurableTable, Iceberg, IcebergHt};
/// let table: DurableTable<u64, u64, IcebergHt> = Iceberg::in_memory()?;
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct IcebergHt;

/// The options that only IcebergHT has.
#[derive(Clone, Debug)]
pub struct IcebergSettings {
    pub(crate) yards: Yards,
    /// Used slots per thousand at which the table doubles; 0 is refused.
    pub(crate) max_load: u32,
    pub(crate) max_depth: u32,
    pub(crate) expects_misses: bool,
    pub(crate) threads: Option<usize>,
}

impl Default for IcebergSettings {
    fn default() -> Self {
        Self {
            yards: Yards::default(),
            max_load: MAX_LOAD,
            max_depth: MAX_DEPTH,
            expects_misses: false,
            threads: None,
        }
    }
}

impl Design for IcebergHt {
    const NAME: &'static str = "iceberg";
    const TITLE: &'static str = "IcebergHT";
    type Settings = IcebergSettings;
    type Form<K: StoredForm, V: StoredForm> = Forms<K::InSlot, V::InSlot>;
    type Engine<R: RecordForm, M: Medium> = Iceberg<R, M>;

    fn create<R: RecordForm, M: Medium>(
        common: Common,
        settings: IcebergSettings,
        storage: M,
    ) -> Result<(Iceberg<R, M>, RecoveryReport)> {
        Opening { common, settings }.create(storage)
    }

    fn open<R: RecordForm, M: Medium>(
        common: Common,
        settings: IcebergSettings,
        storage: M,
    ) -> Result<(Iceberg<R, M>, RecoveryReport)> {
        Opening { common, settings }.open(storage)
    }
}

/// The common options of a new or opened table, and those of the design.
struct Opening {
    common: Common,
    settings: IcebergSettings,
}

impl Opening {
    fn create<R: RecordForm, M: Medium>(
        self,
        storage: M,
    ) -> Result<(Iceberg<R, M>, RecoveryReport)> {
        let started = Instant::now();
        self.validate()?;
        let identity = self.identity();
        let storage = storage.claimed()?;
        let table = superblock::create(&storage)?;
        let core = self.core::<R, M>(storage, table.clone(), &identity, 0)?;
        let depth = core.depth_for(self.common.capacity);
        if depth > core.max_depth {
            return Err(Error::InvalidOption {
                option: "capacity",
                detail: format!("{} records do not fit into max_bytes", self.common.capacity),
            });
        }
        // Depth 0 counts the first bucket as present. It does not exist yet, so the check is short by one bucket.
        core.check_room(depth, 0)?;
        let shape = Shape::first(depth);
        core.reserve_yards(shape)?;
        core.set_shape(shape)?;
        superblock::seal(&core.storage, &table, &identity)?;
        core.storage.publish_created()?;
        let session = superblock::begin_session(&core.storage, &table)?;
        // A new table has nothing to recover.
        let recovery = report(SessionStart { was_clean: true, ..session }, 0, started);
        Ok((Iceberg { core }, recovery))
    }

    fn open<R: RecordForm, M: Medium>(self, storage: M) -> Result<(Iceberg<R, M>, RecoveryReport)> {
        let started = Instant::now();
        let storage = storage.claimed()?;
        let (table, identity) = superblock::read(&storage)?;
        self.common.types.check(&storage, &identity, IcebergHt::NAME)?;
        let opened = self.with_identity(&storage, &identity)?;
        // A table that is larger than `max_bytes` can be opened, but does not grow.
        let depth = table.at::<Root>(ROOT_OFFSET).and_then(|root| root.stored_shape(&storage));
        let core = opened.core::<R, M>(
            storage,
            table.clone(),
            &identity,
            depth.map_or(0, Shape::extent),
        )?;
        if let (Some(mending), Some(shape)) =
            (&opened.common.mending, core.root()?.stored_shape(&core.storage))
        {
            for (region, bytes) in core.buckets.bytes(shape) {
                mending.lengthen(&core.storage, region, bytes)?;
            }
        }
        let shape = stored_shape(&core)?;
        core.reach(shape)?;
        core.shape.store(shape.word(), Release);
        if core.storage.check_writable().is_ok() {
            // The files may be copies that have holes.
            core.reserve_yards(shape)?;
        }
        let threads = opened.settings.threads.unwrap_or_else(all_cores);
        // This precedes the start of the session: a crash here leaves only work that the next opening repeats.
        let resolved = core.recover(threads)?;
        let session = superblock::resume_session(&core.storage, &table, &identity)?;
        let recovery = report(session, resolved, started);
        Ok((Iceberg { core }, recovery))
    }

    fn validate(&self) -> Result<()> {
        let refuse = |option, detail| Err(Error::InvalidOption { option, detail });
        if !self.settings.yards.is_valid() {
            return refuse("yards", format!("{:?} is not possible", self.settings.yards));
        }
        if self.settings.max_load == 0 {
            return refuse("max_load", "must be above 0 and at most 1".into());
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
        let Yards { front, back } = self.settings.yards;
        self.common.identity(IcebergHt::NAME, [front, back, 0])
    }

    /// Returns the options with the values that the table itself determines.
    fn with_identity(mut self, storage: &impl Medium, identity: &Identity) -> Result<Self> {
        let [front, back, _] = self.common.adopt(storage, identity)?;
        self.settings.yards = Yards { front, back };
        if !self.settings.yards.is_valid() {
            return Err(impossible(storage, "bucket size"));
        }
        self.validate()?;
        Ok(self)
    }

    fn core<R: RecordForm, M: Medium>(
        &self,
        storage: M,
        table: Region,
        identity: &Identity,
        least_depth: u32,
    ) -> Result<Core<R, M>> {
        let limit = self.common.limit();
        let room_for = (limit / (self.settings.yards.slots() * SLOT_BYTES)).ilog2();
        let max_depth = room_for.min(self.settings.max_depth).max(least_depth);
        let buckets = 1_u64 << max_depth;
        let [front, back] = self
            .settings
            .yards
            .bucket_bytes()
            .map(|bytes| (buckets * bytes).next_multiple_of(4096));
        let no_memory = |source| Error::io(storage.path(), source);
        let yards = [
            storage.region_with_holes("front.ice", front)?,
            storage.region_with_holes("back.ice", back)?,
        ];
        let yards =
            Buckets::new(self.settings.yards, yards, buckets as usize).map_err(no_memory)?;
        let overflow_bytes = (limit / OVERFLOW_SHARE).next_multiple_of(4096);
        let overflow =
            Overflow::new(storage.region("overflow.ice", overflow_bytes)?).map_err(no_memory)?;
        let params = self.common.blobs(superblock::last_session(&storage, &table)?);
        Ok(Core {
            records: Records::open(
                &storage,
                Hash::new(self.common.hash, identity.hash_seed),
                params,
            )?
            .verifying(self.common.verify),
            length: Length::new(0, Some(0)),
            table,
            buckets: yards,
            overflow,
            shape: AtomicU64::new(Shape::first(0).word()),
            exclusion: Exclusion::default(),
            moves: Moves::new(buckets).map_err(no_memory)?,
            max_depth,
            max_load: self.settings.max_load,
            whole_loads: WholeLoads::detect(),
            counts: Counts::default(),
            last_judgement: LastJudgement::new(self.settings.expects_misses),
            storage,
        })
    }
}

/// Returns the shape word of an existing table, after checking that the files are long enough for it: all later code
/// relies on it.
fn stored_shape<R: RecordForm, M: Medium>(core: &Core<R, M>) -> Result<Shape> {
    let shape = core.root()?.stored_shape(&core.storage).ok_or_else(|| {
        core.table.fault(&core.storage, ROOT_OFFSET, "the shape word is impossible")
    })?;
    for (region, bytes) in core.buckets.bytes(shape) {
        if region.len() < bytes {
            let detail = format!(
                "the file is shorter than the {bytes} bytes of its {} buckets",
                shape.buckets()
            );
            return Err(region.fault(&core.storage, region.len(), detail));
        }
    }
    Ok(shape)
}

impl<R: RecordForm, M: Medium> Drop for Iceberg<R, M> {
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
