//! Making and opening tables.

use std::marker::PhantomData;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::Dash;
use super::directory::Directory;
use super::layout::{ChainBlock, Geometry, Header, Root};
use super::segment::{Core, Counts};
use crate::base::hash::{Hash, HashKind, random_seed};
use crate::base::memory::ZeroedArray;
use crate::key::{Form, Key, Value};
use crate::pm::alloc::Allocator;
use crate::pm::blob::BlobParams;
use crate::pm::superblock::{self, Identity, ROOT_OFFSET, SessionStart};
use crate::pm::{Durability, FaultPlan, Mapped, MappedOptions, Medium, Region};
use crate::record::Records;
use crate::record::length::Length;
use crate::record::types::{StoredTypes, check_types};
use crate::table::RecoveryReport;
use crate::{Error, Result};

/// Chained buckets are for crowds of equal hashes: a sixteenth of the segments' address space is plenty.
const CHAIN_SHARE: u64 = 16;
/// What a clean shutdown writes when nobody has counted the records.
const UNCOUNTED: u64 = u64::MAX;

/// How a Dash table is made or opened: a builder, from [`Dash::options`].
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
pub struct DashOptions<K: ?Sized, V: ?Sized, P> {
    capacity: u64,
    durability: Durability,
    max_bytes: Option<u64>,
    geometry: Geometry,
    hash: HashKind,
    hash_seed: Option<[u64; 2]>,
    blob_chunk_bytes: u32,
    faults: Option<Arc<FaultPlan>>,
    stored_types: StoredTypes,
    types: PhantomData<fn(&K, &V, &P)>,
}

impl<K: ?Sized, V: ?Sized, P> Clone for DashOptions<K, V, P> {
    fn clone(&self) -> Self {
        Self { faults: self.faults.clone(), stored_types: self.stored_types.clone(), ..*self }
    }
}

impl<K: ?Sized, V: ?Sized, P> Default for DashOptions<K, V, P> {
    fn default() -> Self {
        Self {
            capacity: 0,
            durability: Durability::Auto,
            max_bytes: None,
            geometry: Geometry::default(),
            hash: HashKind::Strong,
            hash_seed: None,
            blob_chunk_bytes: BlobParams::default().chunk_bytes,
            faults: None,
            stored_types: StoredTypes::default(),
            types: PhantomData,
        }
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, P: Directory> DashOptions<K, V, P> {
    /// How many records a new table takes before it must grow. Default: one segment's worth.
    #[must_use]
    pub fn capacity(mut self, records: u64) -> Self {
        self.capacity = records;
        self
    }

    /// What the table survives; see [`Durability`]. `Disk` is refused: Dash relies on the order of stores within a
    /// line.
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

    /// Stash buckets in each segment of a new table, 2 (the default) to 4: more give a higher load factor.
    #[must_use]
    pub fn stash_buckets(mut self, buckets: u32) -> Self {
        self.geometry.stash = buckets;
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

    /// The shape of a new table's segments, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn geometry(mut self, geometry: Geometry) -> Self {
        self.geometry = geometry;
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
                "Dash needs a medium that keeps the order of stores within a cache line: choose durability pmem, process or auto".into(),
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
    pub fn create(self, path: impl AsRef<Path>) -> Result<Dash<K, V, P>> {
        let pm = Mapped::create(path, self.mapped()?)?;
        self.create_on(pm)
    }

    /// Opens the table at `path`, in constant time whatever its size and however it was left.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Locked`], [`Error::TypeMismatch`], [`Error::FormatVersion`], [`Error::Corrupt`],
    /// [`Error::Io`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Dash<K, V, P>> {
        let pm = Mapped::open(path, self.mapped()?)?;
        self.open_on(pm)
    }

    /// Opens the table at `path`, or makes one when nothing is there.
    ///
    /// # Errors
    /// As [`DashOptions::open`] and [`DashOptions::create`].
    pub fn open_or_create(self, path: impl AsRef<Path>) -> Result<Dash<K, V, P>> {
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
    /// As [`DashOptions::open`].
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Dash<K, V, P>> {
        let pm = Mapped::open_read_only(path, self.mapped()?)?;
        self.open_on(pm)
    }

    /// Makes a table in anonymous memory, gone when it is dropped.
    ///
    /// # Errors
    /// No memory, or [`Error::InvalidOption`].
    pub fn in_memory(self) -> Result<Dash<K, V, P>> {
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
    /// As [`DashOptions::create`].
    pub fn create_on<M: Medium>(self, pm: M) -> Result<Dash<K, V, P, M>> {
        let started = Instant::now();
        self.validate()?;
        let identity = self.identity();
        let table = superblock::create(&pm)?;
        let core = self.core(pm, table.clone(), &identity, 0)?;
        let directory = P::create(&core, self.capacity)?;
        superblock::seal(&core.pm, &table, &identity)?;
        core.pm.publish_created()?;
        let session = superblock::begin_session(&core.pm, &table)?;
        // A new table has nothing to recover.
        let recovery = report(SessionStart { was_clean: true, ..session }, 0, started);
        Ok(Dash { length: Length::new(0, Some(0)), core, directory, recovery })
    }

    /// Opens the table on a medium.
    ///
    /// # Errors
    /// As [`DashOptions::open`].
    pub fn open_on<M: Medium>(self, pm: M) -> Result<Dash<K, V, P, M>> {
        let started = Instant::now();
        let (table, identity) = superblock::read(&pm)?;
        check_types::<K, V>(&pm, &identity, P::DESIGN)?;
        let opened = self.with_identity(&pm, &identity)?;
        let root = table.at::<Root>(ROOT_OFFSET).ok_or_else(|| {
            Error::corrupt(
                pm.path().join(table.name()),
                ROOT_OFFSET,
                "the file ends before the root words",
            )
        })?;
        let generation = super::layout::RootWord::unpack(
            root.directory.load(&pm, std::sync::atomic::Ordering::Acquire),
        )
        .generation;
        let core = opened.core(pm, table.clone(), &identity, generation)?;
        check_counts(&core, root)?;
        // Before the session begins: a crash in here changes nothing that the next opening would not settle again.
        let (directory, resolved) = P::open(&core)?;
        let session = superblock::begin_session(&core.pm, &table)?;
        let records =
            (session.was_clean && session.records != UNCOUNTED).then_some(session.records);
        let recovery = report(session, resolved, started);
        Ok(Dash { length: Length::new(generation, records), core, directory, recovery })
    }

    fn validate(&self) -> Result<()> {
        if !self.geometry.is_valid() {
            return Err(Error::InvalidOption {
                option: "stash_buckets",
                detail: format!("{:?} is not possible", self.geometry),
            });
        }
        if self.capacity > 1 << 40 {
            return Err(Error::InvalidOption {
                option: "capacity",
                detail: format!("{} records are more than 2^40", self.capacity),
            });
        }
        Ok(())
    }

    fn identity(&self) -> Identity {
        let mut params = [0; 16];
        params[..4].copy_from_slice(&[
            self.geometry.buckets.into(),
            self.geometry.slots.into(),
            self.geometry.stash.into(),
            self.blob_chunk_bytes.into(),
        ]);
        let mut identity = Identity {
            design: P::DESIGN.into(),
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
        let [buckets, slots, stash, chunk_bytes] =
            [0, 1, 2, 3].map(|place| narrow(identity.params[place]));
        self.geometry = Geometry { buckets, slots, stash };
        self.blob_chunk_bytes = chunk_bytes;
        if !self.geometry.is_valid() {
            return Err(refuse("segment geometry"));
        }
        if !chunk_bytes.is_power_of_two() || !(1 << 10..=1 << 30).contains(&chunk_bytes) {
            return Err(refuse("blob chunk size"));
        }
        self.hash = HashKind::from_id(identity.hash_id).ok_or_else(|| refuse("hash function"))?;
        Ok(self)
    }

    fn core<M: Medium>(
        &self,
        pm: M,
        table: Region,
        identity: &Identity,
        generation: u64,
    ) -> Result<Core<K, V, M>> {
        let limit = self.max_bytes.unwrap_or(1 << 40).clamp(1 << 20, 1 << 44);
        let segment_bytes = self.geometry.segment_bytes();
        let most_segments = (limit / segment_bytes).clamp(64, u64::from(u32::MAX - 1));
        let headers = pm.region(
            "headers.ice",
            (most_segments * size_of::<Header>() as u64).next_multiple_of(4096),
        )?;
        let segments =
            pm.region("segments.ice", (most_segments * segment_bytes).next_multiple_of(4096))?;
        let chains = pm.region("chains.ice", (limit / CHAIN_SHARE).next_multiple_of(4096))?;
        let touched = ZeroedArray::new((segments.max_bytes() / segment_bytes) as usize)
            .map_err(|source| Error::io(pm.path(), source))?;
        let params = BlobParams {
            chunk_bytes: self.blob_chunk_bytes,
            max_bytes: limit,
            session: generation,
            ..BlobParams::default()
        };
        let records = Records::open(&pm, Hash::new(self.hash, identity.hash_seed), params)?;
        let set = (generation & 1) as usize;
        Ok(Core {
            geometry: self.geometry,
            records,
            table,
            headers,
            segments,
            chains,
            segment_blocks: Allocator::new(set),
            chain_blocks: Allocator::new(set),
            touched,
            chained_split: Mutex::new(()),
            counts: Counts::default(),
            pm,
        })
    }
}

/// The counts of blocks in use must fit the files: everything later computes and allocates by them.
fn check_counts<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
    core: &Core<K, V, M>,
    root: &Root,
) -> Result<()> {
    let segments = core.segment_blocks.used(&core.pm, &root.segments);
    let chains = core.chain_blocks.used(&core.pm, &root.chains);
    let fits = [
        (segments, &core.headers, size_of::<Header>() as u64),
        (segments, &core.segments, core.geometry.segment_bytes()),
        (chains, &core.chains, size_of::<ChainBlock>() as u64),
    ];
    for (count, region, block_bytes) in fits {
        if count > region.len() / block_bytes {
            let detail = format!("{count} blocks of {block_bytes} bytes should be here");
            return Err(core.corrupt(region, region.len(), detail));
        }
    }
    Ok(())
}

fn report(session: SessionStart, resolved: u64, started: Instant) -> RecoveryReport {
    RecoveryReport {
        was_clean: session.was_clean,
        generation: session.generation,
        resolved,
        open_time: started.elapsed(),
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, P: Directory, M: Medium> Drop for Dash<K, V, P, M> {
    /// Ends the session: all that operations acknowledged is durable already, so only the record count and the clean
    /// mark are written.
    fn drop(&mut self) {
        if self.core.pm.writable().is_ok() {
            let records = self.length.known(self.directory.generation()).unwrap_or(UNCOUNTED);
            // A failure leaves the table unclean, which the next opening copes with.
            let _ = superblock::end_session(&self.core.pm, &self.core.table, records);
        }
        self.core.pm.close();
    }
}
