//! The options of an index; building and opening.

use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::core::{Core, OnFull, Reopen};
use super::layout::Root;
use super::log;
use super::plan::FilterBits;
use super::plan::Site;
use super::source::{JoinSource, Slices};
use super::view::{Frame, View};
use super::{DESIGN, JoinIndex};
use crate::base::hash::{HashKind, Seed, random_seed};
use crate::base::parallel::all_cores;
use crate::report::RecoveryReport;
use crate::storage::superblock::{self, Identity, SessionEnd};
use crate::storage::{Durability, FaultPlan, HugePages, Mapped, MappedOptions, Medium, Properties};
use crate::types::Word;
use crate::{Error, Result};

/// Number of times that an opening is repeated if a writer merges meanwhile.
const ATTEMPTS: u32 = 100;

/// The generation found by a reader, and the report of the opening.
type Found = (Arc<View<Mapped>>, RecoveryReport);

/// The hash of a byte key, as a [`HashedJoinIndex`](crate::HashedJoinIndex) stores it. It is a separate type so that
/// the index cannot be opened as an index of numbers.
///
/// ```
/// use icefield::{KeyHash, Word};
/// assert_eq!(KeyHash(7).to_word(), 7);
/// assert_ne!(KeyHash::TYPE, u64::TYPE);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(pub u64);

impl Word for KeyHash {
    const TYPE: &'static str = "hash-of-bytes";

    fn to_word(self) -> u64 {
        self.0
    }

    fn from_word(word: u64) -> Option<Self> {
        Some(Self(word))
    }
}

/// Options for building or opening a [`JoinIndex`], from [`JoinIndex::options`].
///
/// ```
/// use icefield::{JoinIndex, OnFull};
/// let directory = tempfile::tempdir()?;
/// let index = JoinIndex::<u64>::options()
///     .threads(2)
///     .filter_bits_per_key(16)
///     .delta_limit(1000)
///     .on_full(OnFull::Refuse)
///     .build(directory.path().join("orders.ice"), &[7, 7, 8], &[0, 1, 2])?;
/// assert_eq!(index.probe_count(&[7, 9])?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Options also apply when an index is opened, except those that were fixed when it was built:
///
/// ```
/// use icefield::{Durability, Error, JoinIndex};
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("orders.ice");
/// let options = JoinIndex::<u64>::options().durability(Durability::Process).max_bytes(1 << 30).huge_pages(true);
/// drop(options.clone().hash_seed([1, 2]).build(&path, &[7, 8], &[0, 1])?);
/// let reader = options.verify(true).open_read_only(&path)?; // Probes report damaged data.
/// assert_eq!(reader.probe_count(&[7])?, 1);
/// assert!(matches!(reader.merge(), Err(Error::ReadOnly)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct JoinOptions<K> {
    durability: Durability,
    max_bytes: Option<u64>,
    huge_pages: HugePages,
    threads: Option<usize>,
    filter_bits: Option<u32>,
    delta_limit: Option<u64>,
    on_full: OnFull,
    verify: bool,
    replace: bool,
    hash: HashKind,
    hash_seed: Option<Seed>,
    faults: Option<Arc<FaultPlan>>,
    /// If the keys are hashes: the caller's hash of fixed bytes, by which an opening recognizes the hash function.
    token: Option<u64>,
    key: PhantomData<fn(&K)>,
}

impl<K> Clone for JoinOptions<K> {
    fn clone(&self) -> Self {
        Self { faults: self.faults.clone(), ..*self }
    }
}

impl<K> Default for JoinOptions<K> {
    fn default() -> Self {
        Self {
            durability: Durability::Auto,
            max_bytes: None,
            huge_pages: HugePages::default(),
            threads: None,
            filter_bits: None,
            delta_limit: None,
            on_full: OnFull::Merge,
            verify: false,
            replace: false,
            hash: HashKind::Strong,
            hash_seed: None,
            faults: None,
            token: None,
            key: PhantomData,
        }
    }
}

impl<K: Word> JoinOptions<K> {
    /// Sets which failures the index survives; see [`Durability`]. With `Disk`, a build syncs twice for each of the
    /// shares, at most 2048, into which it divides the pairs.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Limits the total size of the index's files. When they have this many bytes, none of them grows. A merge needs
    /// room for two generations.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Sets which parts of the files use huge pages. They need kernel support (Linux 6.1 or later, in `tmpfs`) and have
    /// no effect elsewhere. With huge pages, probes cause fewer TLB misses. Default: only files that a build or merge
    /// writes, which is faster with huge pages than with small ones. `true`: all files, including existing ones at an
    /// opening; converting a gigabyte takes half a second to two seconds, once, and later openings and other processes
    /// profit from it. `false`: none.
    #[must_use]
    pub fn huge_pages(mut self, huge: impl Into<HugePages>) -> Self {
        self.huge_pages = huge.into();
        self
    }

    /// Sets the number of threads that a build, a merge or a probe may use, from 1 to 1024 (0 counts as 1, and more as
    /// 1024). Default: all that the machine has. Small operations use fewer.
    ///
    /// Builds, merges and probes of 262,144 keys or more start their threads. All other probes of an index share threads
    /// that are started when probes first need them, wait between probes, and end when the index is dropped: with
    /// `threads(4)` at most three, beside the calling threads. Values of a closure's `thread_local!` live as long. In a forked child, probes use one thread if
    /// the parent has probed the same index with several.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(sensible_threads(threads));
        self
    }

    /// Sets the filter bits for each key of an index that is built: from 2 to 64, or 0 for no filter. The default,
    /// chosen by the cost model, is 11. With more bits, fewer absent keys pass and buckets are shorter, but the file is
    /// longer: each group of 320 / bits records adds a line of 64 bytes.
    #[must_use]
    pub fn filter_bits_per_key(mut self, bits: u32) -> Self {
        self.filter_bits = Some(bits);
        self
    }

    /// Sets the maximum number of changes in the delta store before it must be merged, from 1 to 2^30 - 2 (0 counts as
    /// 1, and more as 2^30 - 2). Default: a quarter of the base's pairs, but at least 1024.
    #[must_use]
    pub fn delta_limit(mut self, changes: u64) -> Self {
        self.delta_limit = Some(changes.max(1));
        self
    }

    /// Sets whether a change merges (the default) or fails when the delta store is full.
    #[must_use]
    pub fn on_full(mut self, on_full: OnFull) -> Self {
        self.on_full = on_full;
        self
    }

    /// Sets whether probes verify the checksum of each block of the file when they read it for the first time. A probe
    /// that reads a damaged block then fails with [`Error::Corrupt`] instead of returning wrong results. Costs a second
    /// hash of each key and a second access to each line that is read.
    #[must_use]
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// Lets a build replace an existing index of the same key type at the path, atomically, by its next generation.
    /// Readers keep the generation that they have opened. Without this, the build fails with [`Error::AlreadyExists`].
    ///
    /// ```
    /// use icefield::{Error, JoinIndex};
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("orders.ice");
    /// drop(JoinIndex::build(&path, &[7_u64, 7], &[0, 1])?);
    /// let again = JoinIndex::build(&path, &[8_u64], &[0]);
    /// assert!(matches!(again, Err(Error::AlreadyExists { .. })));
    /// let index = JoinIndex::options().replace(true).build(&path, &[8_u64], &[0])?;
    /// assert_eq!((index.len(), index.generation()), (1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Sets the hash function of a new index.
    #[doc(hidden)]
    #[must_use]
    pub fn hash(mut self, kind: HashKind) -> Self {
        self.hash = kind;
        self
    }

    /// Sets the hash seed of a new index. It is random by default, which prevents adversaries from choosing colliding
    /// keys.
    #[must_use]
    pub fn hash_seed(mut self, seed: [u64; 2]) -> Self {
        self.hash_seed = Some(Seed(seed));
        self
    }

    /// Sets the system calls that fail, for tests.
    #[cfg(any(test, feature = "sim"))]
    #[doc(hidden)]
    #[must_use]
    pub fn faults(mut self, faults: std::sync::Arc<crate::storage::FaultPlan>) -> Self {
        self.faults = Some(faults);
        self
    }

    /// Builds an index of pairs of key and payload at `path`. It appears there atomically, when it is complete. With
    /// [`replace`](Self::replace), an existing index gets a next generation; if the build fails, the index is
    /// unchanged.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] unless there is a payload for each key; [`Error::NoSpace`], [`Error::Io`];
    /// [`Error::AlreadyExists`] if something is at `path`. With [`replace`](Self::replace), [`Error::Locked`], and
    /// [`Error::TypeMismatch`] for an index with other keys.
    pub fn build(
        &self,
        path: impl AsRef<Path>,
        keys: &[K],
        payloads: &[u64],
    ) -> Result<JoinIndex<K>> {
        let slices = Slices { keys, payloads };
        slices.matched()?;
        self.build_from(path, &slices)
    }

    /// Builds an index as [`build`](Self::build) does, from the pairs of a source, which need not fit into memory.
    ///
    /// ```
    /// use icefield::{JoinIndex, JoinSource, Result};
    /// /// A column, row by row.
    /// struct Column(Vec<u64>);
    /// impl JoinSource for Column {
    ///     fn read(
    ///         &self,
    ///         part: usize,
    ///         parts: usize,
    ///         show: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
    ///     ) -> Result<()> {
    ///         let mine = self.0.iter().zip(0..).skip(part).step_by(parts);
    ///         mine.into_iter().try_for_each(|(&key, row)| show(&[key], &[row]))
    ///     }
    /// }
    /// let (customers, directory) = (Column(vec![7, 9, 7]), tempfile::tempdir()?);
    /// let options = JoinIndex::<u64>::options();
    /// let index = options.build_from(directory.path().join("orders.ice"), &customers)?;
    /// assert_eq!(index.probe_count(&[7])?, 2);
    /// assert_eq!(options.build_in_memory_from(&customers)?.len(), 3);
    /// assert_eq!(options.build_in_memory(&customers.0, &[0, 1, 2])?.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`build`](Self::build), and the errors of the source.
    pub fn build_from(
        &self,
        path: impl AsRef<Path>,
        source: &dyn JoinSource,
    ) -> Result<JoinIndex<K>> {
        let path = path.as_ref();
        if self.replace {
            match self.open(path) {
                Ok(index) => {
                    index.core.rebuild(source, FilterBits::chosen(self.filter_bits)?)?;
                    return Ok(index);
                }
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.build_on_frame(Mapped::create(path, self.mapped())?, source)
    }

    /// Builds an index in anonymous memory, which is freed when the index is dropped.
    ///
    /// # Errors
    /// An error if the system has no memory; [`Error::InvalidOption`].
    pub fn build_in_memory(&self, keys: &[K], payloads: &[u64]) -> Result<JoinIndex<K>> {
        let slices = Slices { keys, payloads };
        slices.matched()?;
        self.build_in_memory_from(&slices)
    }

    /// Builds an index as [`build_in_memory`](Self::build_in_memory) does, from the pairs of a source.
    ///
    /// # Errors
    /// As [`build_in_memory`](Self::build_in_memory), and the errors of the source.
    pub fn build_in_memory_from(&self, source: &dyn JoinSource) -> Result<JoinIndex<K>> {
        let durability = match self.durability {
            Durability::PmemForced => Durability::PmemForced,
            _ => Durability::Memory,
        };
        let storage = Mapped::anonymous(MappedOptions { durability, ..self.mapped() })?;
        self.build_on_frame(storage, source)
    }

    /// Opens the index at `path` in milliseconds, whatever its size, concurrently with any number of other openings. A
    /// handle becomes the writer by its first change. A change through a second handle then fails with
    /// [`Error::Locked`]; that handle continues to read the generation that it has opened.
    ///
    /// While the index is open, its files may be changed only through such handles. Bytes that another program writes
    /// can be read as pairs, and a file that it truncates ends the process by SIGBUS.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::TypeMismatch`], [`Error::FormatVersion`], [`Error::Corrupt`], [`Error::Io`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<JoinIndex<K>> {
        let (view, recovery) = self.find(path.as_ref())?;
        let core = Core::new(view, Some(self.reopen(true)), self.thread_count(), self.on_full);
        Ok(JoinIndex { core, recovery, key: PhantomData })
    }

    /// Opens the index at `path` for reading only.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_read_only(&self, path: impl AsRef<Path>) -> Result<JoinIndex<K>> {
        let (view, recovery) = self.find(path.as_ref())?;
        let core = Core::new(view, Some(self.reopen(false)), self.thread_count(), self.on_full);
        Ok(JoinIndex { core, recovery, key: PhantomData })
    }

    /// Builds an index on a medium that has none.
    #[doc(hidden)]
    pub fn build_on<M: Medium>(
        &self,
        storage: M,
        source: &dyn JoinSource,
    ) -> Result<JoinIndex<K, M>> {
        self.build_on_frame(storage, source)
    }

    /// Opens the index on a medium for reading and writing, and repairs what a crash has left.
    #[doc(hidden)]
    pub fn open_on<M: Medium>(&self, storage: M) -> Result<JoinIndex<K, M>> {
        let started = Instant::now();
        let frame = Arc::new(self.frame(storage.claimed()?)?);
        let (view, region, tail) = View::load(&frame, frame.root()?)?;
        let view = Arc::new(view);
        let mut recovery = report(&view, started)?;
        let core = Core::new(Arc::clone(&view), None, self.thread_count(), self.on_full);
        recovery.resolved = core.begin(view, region, &tail)?;
        recovery.open_time = started.elapsed();
        Ok(JoinIndex { core, recovery, key: PhantomData })
    }

    /// Opens the index on a medium, for reading only. Nothing that a crash has left is repaired.
    #[doc(hidden)]
    pub fn look_on<M: Medium>(&self, storage: M) -> Result<JoinIndex<K, M>> {
        let started = Instant::now();
        let frame = Arc::new(self.frame(storage.claimed()?)?);
        let (view, ..) = View::load(&frame, frame.root()?)?;
        let recovery = report(&view, started)?;
        let core = Core::new(Arc::new(view), None, self.thread_count(), self.on_full);
        Ok(JoinIndex { core, recovery, key: PhantomData })
    }

    /// Returns the same options, for keys that are hashes.
    pub(super) fn with_hash(&self, token: u64) -> JoinOptions<KeyHash> {
        JoinOptions {
            durability: self.durability,
            max_bytes: self.max_bytes,
            huge_pages: self.huge_pages,
            threads: self.threads,
            filter_bits: self.filter_bits,
            delta_limit: self.delta_limit,
            on_full: self.on_full,
            verify: self.verify,
            replace: self.replace,
            hash: self.hash,
            hash_seed: self.hash_seed,
            faults: self.faults.clone(),
            token: Some(token),
            key: PhantomData,
        }
    }

    /// Returns the same options for a new index with the hash functions of the index of `frame`.
    pub(super) fn like<M>(&self, frame: &Frame<M>) -> Self {
        let Identity { hash_id, hash_seed, params, .. } = &frame.identity;
        Self {
            hash: HashKind::from_id(*hash_id).unwrap_or(self.hash),
            hash_seed: Some(Seed(*hash_seed)),
            token: Some(params[0]),
            replace: false,
            ..self.clone()
        }
    }

    pub(super) fn mapped(&self) -> MappedOptions {
        MappedOptions {
            durability: self.durability,
            max_bytes: self.max_bytes,
            huge_pages: self.huge_pages,
            faults: self.faults.clone(),
            ..MappedOptions::default()
        }
    }

    fn limit(&self) -> u64 {
        self.max_bytes.unwrap_or(1 << 40).clamp(1 << 20, 1 << 44)
    }

    fn thread_count(&self) -> usize {
        self.threads.unwrap_or_else(all_cores)
    }

    fn identity(&self) -> Identity {
        Identity {
            design: DESIGN.into(),
            key_type: K::TYPE.into(),
            value_type: <u64 as Word>::TYPE.into(),
            hash_id: self.hash.id(),
            hash_seed: self.hash_seed.map_or_else(random_seed, |Seed(seed)| seed),
            params: std::array::from_fn(|at| if at == 0 { self.token.unwrap_or(0) } else { 0 }),
            uuid: random_seed(),
        }
    }

    /// Returns the frame of an existing index.
    pub(super) fn frame<M: Medium>(&self, storage: M) -> Result<Frame<M>> {
        let (table, identity) = superblock::read(&storage)?;
        let frame =
            Frame::new(storage, table, identity, self.limit(), self.verify, self.delta_limit)?;
        View::check_type(&frame, DESIGN, K::TYPE)?;
        if self.token.is_some_and(|token| token != frame.identity.params[0]) {
            let detail = "not the function that the index was built with".into();
            return Err(Error::InvalidOption { option: "hash", detail });
        }
        Ok(frame)
    }

    fn build_on_frame<M: Medium>(
        &self,
        storage: M,
        source: &dyn JoinSource,
    ) -> Result<JoinIndex<K, M>> {
        const { assert!(K::IS_KEY, "floats cannot be keys: equal values may have different bits") };
        let started = Instant::now();
        let bits = FilterBits::chosen(self.filter_bits)?;
        let storage = storage.claimed()?;
        let table = superblock::create(&storage)?;
        let identity = self.identity();
        let frame =
            Frame::new(storage, table, identity, self.limit(), self.verify, self.delta_limit)?;
        let frame = Arc::new(frame);
        let Frame { storage, table, identity, hash, sums, limit, .. } = &*frame;
        let (uuid, limit, threads) = (identity.uuid, *limit, self.thread_count());
        let site = Site { storage, hash, sums, uuid, generation: 1, bits, threads, limit };
        let root: Root = site.build(source)?;
        // The first fence of `publish` serves as both P3 and P4. Their order does not matter here, because the
        // directory is not an index before P0.
        root.publish(storage, table, sums)?;
        let view = Arc::new(View::fresh(&frame, root)?);
        let region = log::region(storage, root.generation, limit)?;
        let log = view.log(region, &log::Tail { records: 0, stray: 0 })?;
        superblock::begin_session(storage, table)?;
        // P0, commit point of creation: the index exists.
        superblock::seal(storage, table, identity)?;
        storage.publish_created()?;
        let mut recovery = report(&view, started)?;
        recovery.was_clean = true;
        let core = Core::new(view, None, threads, self.on_full);
        core.begin_new(log);
        Ok(JoinIndex { core, recovery, key: PhantomData })
    }

    /// Finds the present generation at `path` for reading, concurrently with a writer.
    fn find(&self, path: &Path) -> Result<Found> {
        let options = MappedOptions { beside_writer: true, ..self.mapped() };
        self.find_on(|| Mapped::open_read_only(path, options.clone()))
    }

    /// Finds the present generation on a medium, which is opened again for each attempt.
    fn find_on(&self, open: impl Fn() -> Result<Mapped>) -> Result<Found> {
        let started = Instant::now();
        let (mut failed, mut attempts) = (None, 0);
        loop {
            let frame = Arc::new(self.frame(open()?)?);
            let root = frame.root()?;
            let loaded = View::load(&frame, root);
            attempts += 1;
            // Files are removed only after the root words name another generation. If the words still name this one,
            // its files existed when they were opened.
            let present = frame.root()?.generation == root.generation;
            match loaded {
                Ok((view, ..)) if present => {
                    let recovery = report(&view, started)?;
                    return Ok((Arc::new(view), recovery));
                }
                Err(error) if failed == Some(root.generation) || attempts > ATTEMPTS => {
                    return Err(error);
                }
                Err(_) => failed = Some(root.generation),
                Ok(_) if attempts > ATTEMPTS => {
                    return Err(Error::Locked { path: frame.storage.path().to_owned(), pid: 0 });
                }
                Ok(_) => {}
            }
        }
    }

    /// Returns the functions that open the directory of an index again.
    fn reopen(&self, changes: bool) -> Reopen<Mapped> {
        let options: Self = self.clone();
        let look = move |frame: &Frame<Mapped>| {
            let (view, _) = options.find_on(|| frame.storage.reopen(&options.mapped(), false))?;
            same_index(&view.frame, frame)?;
            Ok(view)
        };
        let options: Self = self.clone();
        let take_over = move |frame: &Frame<Mapped>| {
            let own = options.frame(frame.storage.reopen(&options.mapped(), true)?)?;
            same_index(&own, frame)?;
            Ok(Arc::new(own))
        };
        let take_over = changes.then(|| Box::new(take_over) as Box<_>);
        Reopen { look: Box::new(look), take_over }
    }
}

/// Maximum number of threads of one operation.
const MOST_THREADS: usize = 1024;

/// Limits a number of threads to the valid range.
pub(super) fn sensible_threads(threads: usize) -> usize {
    threads.clamp(1, MOST_THREADS)
}

/// Returns an error if the directory now holds another index.
fn same_index(found: &Frame<Mapped>, opened: &Frame<Mapped>) -> Result<()> {
    if found.identity.uuid == opened.identity.uuid {
        return Ok(());
    }
    let file = found.storage.path().join(superblock::TABLE_REGION);
    let detail = "another index has replaced the one that was opened; open the index again";
    Err(Error::corrupt(file, 32, detail))
}

/// Returns the report of an opening.
fn report<M: Medium>(view: &View<M>, started: Instant) -> Result<RecoveryReport> {
    let end = superblock::session_end(&view.frame.storage, &view.frame.table)?;
    Ok(RecoveryReport {
        was_clean: matches!(end, SessionEnd::Clean(_)),
        generation: view.root.generation,
        resolved: 0,
        open_time: started.elapsed(),
    })
}
