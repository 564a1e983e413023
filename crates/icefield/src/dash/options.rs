//! Creates and opens tables.

use std::marker::PhantomData;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use super::Dash;
use super::blocks::check_blocks;
use super::deferred_free::DeferredFree;
use super::directory::Directory;
use super::kinds::Of;
use super::layout::{ChainBlock, Geometry, Header, Root};
use super::lh::{Expansion, Lh};
use super::segment::{Core, Counts};
use super::still::Still;
use crate::base::hash::{Hash, HashKind};
use crate::base::memory::GrowingArray;
use crate::key::{Form, Key, Value};
use crate::record::Records;
use crate::record::length::Length;
use crate::record::opening::{Common, common_options, impossible, report};
use crate::record::types::{StoredTypes, check_types};
use crate::storage::alloc::Allocator;
use crate::storage::superblock::{self, Identity, ROOT_OFFSET, SessionStart};
use crate::storage::{Durability, Mapped, Medium, Region};
use crate::{Error, Result};

/// Chained buckets are for many equal hashes: a sixteenth of the segments' address space is ample.
const CHAIN_SHARE: u64 = 16;
/// Indices of the superblock parameters that belong to the directory policy.
const POLICY: std::ops::Range<usize> = 6..9;
/// The record count that a clean shutdown writes if it is unknown.
const UNCOUNTED: u64 = superblock::MOST_RECORDS;

type CoreOf<K, V, P, M> = Core<Of<K, V, M, <P as Directory>::Ablation>>;

/// Options for creating or opening a Dash table: a builder, returned by [`Dash::options`].
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
#[derive(Debug)]
pub struct DashOptions<K: ?Sized, V: ?Sized, P: Directory> {
    common: Common,
    geometry: Geometry,
    pub(super) policy: P::Options,
    types: PhantomData<fn(&K, &V, &P)>,
}

impl<K: ?Sized, V: ?Sized, P: Directory> Clone for DashOptions<K, V, P> {
    fn clone(&self) -> Self {
        Self { common: self.common.clone(), ..*self }
    }
}

impl<K: ?Sized, V: ?Sized, P: Directory> Default for DashOptions<K, V, P> {
    fn default() -> Self {
        Self {
            common: Common::default(),
            geometry: Geometry::default(),
            policy: P::Options::default(),
            types: PhantomData,
        }
    }
}

common_options! {
    options: DashOptions,
    policy: P: Directory,
    verify: "Whether reads verify the checksum of each key and value by reference that they give out, and fail with \
        [`Error::Corrupt`] where it is wrong. Default: no; `check` verifies all of them. Words have none.",
    table: Dash,
    public: DashEh,
    name: "Dash",
    unit: "segment",
    disk: "`Disk` is refused: the order of stores within a line matters here.",
    open: "Opens the table at `path`, in constant time whatever its size and however it was left.",
}

impl<K: Key + ?Sized, V: Value + ?Sized, P: Directory> DashOptions<K, V, P> {
    /// Sets the number of stash buckets in each segment of a new table, 2 (the default) to 4. More stash buckets give a
    /// higher load factor.
    ///
    /// ```
    /// let dense = icefield::DashEh::<u64, u64>::options().stash_buckets(4).in_memory()?;
    /// assert!(dense.capacity() > icefield::DashEh::<u64, u64>::in_memory()?.capacity());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    #[must_use]
    pub fn stash_buckets(mut self, buckets: u32) -> Self {
        self.geometry.stash = buckets;
        self
    }

    /// Sets the dimensions of a new table's segments, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn geometry(mut self, geometry: Geometry) -> Self {
        self.geometry = geometry;
        self
    }

    /// Creates a table on a medium.
    ///
    /// # Errors
    /// As [`DashOptions::create`].
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
    pub fn create_on<M: Medium>(self, storage: M) -> Result<Dash<K, V, P, M>> {
        let started = Instant::now();
        self.validate()?;
        let identity = self.identity();
        let storage = storage.claimed()?;
        let table = superblock::create(&storage)?;
        let core = self.core(storage, table.clone(), &identity, 0)?;
        let directory = P::create(&core, self.policy, self.common.capacity)?;
        superblock::seal(&core.storage, &table, &identity)?;
        core.storage.publish_created()?;
        let session = superblock::begin_session(&core.storage, &table)?;
        // A new table has nothing to recover.
        let recovery = report(SessionStart { was_clean: true, ..session }, 0, started);
        Ok(Dash { length: Length::new(0, Some(0)), core, directory, recovery })
    }

    /// Opens the table on a medium.
    ///
    /// # Errors
    /// As [`DashOptions::open`].
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
    pub fn open_on<M: Medium>(self, storage: M) -> Result<Dash<K, V, P, M>> {
        let started = Instant::now();
        let storage = storage.claimed()?;
        let (table, identity) = superblock::read(&storage)?;
        check_types::<K, V>(&storage, &identity, P::DESIGN)?;
        let opened = self.with_identity(&storage, &identity)?;
        let root = table.at::<Root>(ROOT_OFFSET).ok_or_else(|| {
            Error::corrupt(
                storage.path().join(table.name()),
                ROOT_OFFSET,
                "the file ends before the root words",
            )
        })?;
        let generation =
            P::generation_in(root.directory.load(&storage, std::sync::atomic::Ordering::Acquire));
        let core = opened.core(storage, table.clone(), &identity, generation)?;
        if let Some(mending) = &opened.common.mending {
            core.mend_chains(mending)?;
            P::mend(&core, opened.policy, mending)?;
        }
        let chains = core.chain_blocks.used(&core.storage, &core.root()?.chains);
        check_blocks(&core, &core.chains, chains, size_of::<ChainBlock>() as u64)?;
        // This precedes the start of the session: a crash here leaves only work that the next opening repeats.
        let (directory, resolved) = P::open(&core, opened.policy)?;
        let session = superblock::resume_session(&core.storage, &table, &identity)?;
        let records =
            (session.was_clean && session.records != UNCOUNTED).then_some(session.records);
        let recovery = report(session, resolved, started);
        Ok(Dash { length: Length::new(generation, records), core, directory, recovery })
    }

    fn validate(&self) -> Result<()> {
        if P::options(P::params(self.policy)).is_none() {
            return Err(Error::InvalidOption {
                option: "stride, first_array, expansion",
                detail: format!("{:?} is not possible", self.policy),
            });
        }
        if !self.geometry.is_valid() {
            return Err(Error::InvalidOption {
                option: "stash_buckets",
                detail: format!("{:?} is not possible", self.geometry),
            });
        }
        if self.common.capacity > 1 << 40 {
            return Err(Error::InvalidOption {
                option: "capacity",
                detail: format!("{} records are more than 2^40", self.common.capacity),
            });
        }
        Ok(())
    }

    fn identity(&self) -> Identity {
        let Geometry { buckets, slots, stash } = self.geometry;
        let mut identity = self.common.identity::<K, V>(P::DESIGN, [buckets, slots, stash]);
        identity.params[POLICY].copy_from_slice(&P::params(self.policy));
        identity
    }

    /// Returns the options with the values that the table itself determines.
    fn with_identity(mut self, storage: &impl Medium, identity: &Identity) -> Result<Self> {
        let [buckets, slots, stash] = self.common.adopt(storage, identity)?;
        self.geometry = Geometry { buckets, slots, stash };
        let [a, b, c] = [0, 1, 2].map(|place| identity.params[POLICY.start + place]);
        self.policy = P::options([a, b, c]).ok_or_else(|| impossible(storage, "way to grow"))?;
        if self.geometry.is_valid() {
            Ok(self)
        } else {
            Err(impossible(storage, "segment geometry"))
        }
    }

    fn core<M: Medium>(
        &self,
        storage: M,
        table: Region,
        identity: &Identity,
        generation: u64,
    ) -> Result<CoreOf<K, V, P, M>> {
        let limit = self.common.limit();
        let segment_bytes = self.geometry.segment_bytes();
        let most_segments = (limit / segment_bytes).clamp(64, u64::from(u32::MAX - 1));
        let headers = storage.region(
            "headers.ice",
            (most_segments * size_of::<Header>() as u64).next_multiple_of(4096),
        )?;
        let segment_space = (most_segments * segment_bytes).next_multiple_of(4096);
        let segments = storage.region_with_holes("segments.ice", segment_space)?;
        let chains = storage.region("chains.ice", (limit / CHAIN_SHARE).next_multiple_of(4096))?;
        let touched = GrowingArray::new((segments.max_bytes() / segment_bytes) as usize)
            .map_err(|source| Error::io(storage.path(), source))?;
        let still = match storage.check_writable() {
            Err(Error::ReadOnly) => {
                let there = (segments.len() / segment_bytes) as usize;
                Some(
                    Still::new(there, self.geometry)
                        .map_err(|source| Error::io(storage.path(), source))?,
                )
            }
            _ => None,
        };
        let params = self.common.blobs(generation);
        let hash = Hash::new(self.common.hash, identity.hash_seed);
        let records =
            Records::open(&storage, hash, params)?.always_pinned().verifying(self.common.verify);
        let set = (generation & 1) as usize;
        let core = Core {
            geometry: self.geometry,
            records,
            table,
            headers,
            segments,
            chains,
            segment_blocks: Allocator::new(set),
            chain_blocks: Allocator::new(set),
            touched,
            still,
            deferred_free: DeferredFree::default(),
            chained_split: Mutex::new(()),
            counts: Counts::default(),
            storage,
        };
        core.reach()?;
        Ok(core)
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, P: Directory, M: Medium> Drop for Dash<K, V, P, M> {
    /// Ends the session. All acknowledged operations are already durable, so only the record count and the clean mark
    /// are written.
    fn drop(&mut self) {
        if self.core.storage.check_writable().is_ok() {
            let records = self.length.known(self.directory.generation()).unwrap_or(UNCOUNTED);
            // A failure leaves the table unclean; the next opening recovers it.
            let _ = superblock::end_session(&self.core.storage, &self.core.table, records);
        }
        self.core.storage.close();
    }
}

/// Options for the growth of tables with linear hashing:
///
/// ```
/// use icefield::{DashLh, Expansion};
/// let small = DashLh::<u64, u64>::options()
///     .first_array(1) // As small as can be,
///     .stride(4) // growing by arrays of 1, 1, 1, 1, 2, 2, 2, 2, 4 .. segments,
///     .expansion(Expansion::Load { percent: 90 }) // when nine slots of ten are used.
///     .in_memory()?;
/// assert!(small.capacity() < DashLh::<u64, u64>::in_memory()?.capacity());
/// # Ok::<(), icefield::Error>(())
/// ```
impl<K: Key + ?Sized, V: Value + ?Sized> DashOptions<K, V, Lh> {
    /// Sets the number of segments in the first array of a new table, a power of two up to 4096; 64 by default. This is
    /// also the minimum size of the table.
    #[must_use]
    pub fn first_array(mut self, segments: u32) -> Self {
        self.policy.first_array = segments;
        self
    }

    /// Sets the number of arrays of one size before the next ones are twice as large, in a new table: a power of two up
    /// to 64; 8 by default (§5.2). A longer stride wastes less space and needs a longer directory.
    #[must_use]
    pub fn stride(mut self, arrays: u32) -> Self {
        self.policy.stride = arrays;
        self
    }

    /// Sets the condition for a new table to grow.
    #[must_use]
    pub fn expansion(mut self, expansion: Expansion) -> Self {
        self.policy.expansion = expansion;
        self
    }
}
