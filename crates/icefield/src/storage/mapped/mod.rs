//! The real medium: a directory of mapped files, or anonymous memory.
//!
//! - `directory`: the table's directory: created under a hidden name and renamed when complete, locked, cleaned up.
//! - `region_file`: one region: a file that grows underneath its mapping.
//! - `reservation`: the addresses of regions.
//! - `budget`: the bound on all regions together; `holes`: the punched ranges of a region, which do not count against
//!   it.
//! - `permit`: the word that determines whether this process may change the table.
//! - `dirty`: the ranges that `Durability::Disk` has yet to sync.
//! - `committer`: the thread that syncs for others.
//! - `backup`: copying a directory.
//! - `room`: how much space and memory is available.
//!
//! A word call costs the plain atomic instruction. A flush on a medium that needs none costs one perfectly predictable
//! branch.
//!
//! # Crashes
//!
//! A region's length is the length of its file. [`Mapped::grow`] extends the file first and publishes the length in
//! memory afterwards, so a crash between the two leaves zero bytes at the end, which the next opening can use. A new
//! directory appears under its path by one rename, after every file in it has been synced (`directory` describes the
//! exception, a table that is created in an empty directory).
//!
//! # Assumptions
//!
//! The table's files belong to this library while the lock is held. If a file is truncated nevertheless, accesses to
//! the pages behind the new end fault: the kernel then kills the process (SIGBUS), as for any mapped file. An opening
//! uses the length that it finds, so that nothing behind it is ever accessed. Every growth compares the lengths; if
//! the file has become shorter, the growth fails and poisons the medium. Accesses between two growths are not covered.
//!
//! Space is reserved before it is published, so a full device is an error from `grow`. The space of a table that was
//! copied with holes (`cp` makes them of reserved space) is reserved again when it is opened for writing: a file with
//! less space than length has holes. Three cases are not covered: holes smaller than what the file system counts
//! besides (metadata, space behind the end); file systems that cannot reserve; and those that write every block to a
//! new place (btrfs, ZFS, or XFS where a backup shares blocks), where a reservation guarantees nothing. A store into
//! such a hole on a full device faults likewise.

mod backup;
mod budget;
mod committer;
mod directory;
mod dirty;
mod holes;
mod permit;
mod region_file;
mod reservation;
mod room;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::sync::{Arc, Mutex};

use super::arch::{self, Instruction};
use super::io::{Errno, FaultPlan, Io, Keeper, error, lock};
use super::{CellLine, Committed, Durability, Medium, Region, SyncMode};
use crate::base::group::Isa;
use crate::{Error, Result};
use budget::Budget;
use committer::Committer;
use directory::{Directory, Purpose};
use dirty::Dirty;
use permit::{Permit, Refusal};
use region_file::{Backing, RegionFile, Setting};

/// Options for opening a [`Mapped`].
#[derive(Clone, Debug, Default)]
pub struct MappedOptions {
    /// The events that the files must survive.
    pub durability: Durability,
    /// Determines when writes are acknowledged, on [`Durability::Disk`].
    pub sync: SyncMode,
    /// The largest number of bytes of all regions together; `None`: only the file system limits them.
    pub max_bytes: Option<u64>,
    /// Makes system calls fail, for tests.
    pub faults: Option<Arc<FaultPlan>>,
    /// The processor's caches are in the persistence domain (eADR, global persistent flush): `Pmem` and `PmemForced`
    /// then write no lines back and only fence.
    pub skip_flush: bool,
    /// The parts of the files that are put into huge pages.
    pub huge_pages: HugePages,
    /// [`Mapped::open_read_only`] neither waits for a writer nor locks one out: for tables that are never changed in
    /// place, and whose readers verify which data they may use.
    pub beside_writer: bool,
}

/// The parts of a table's files that are put into huge pages, where the kernel can do that: Linux 6.1 and later, in
/// `tmpfs`, and not where a fence is a sync. For anonymous memory huge pages are always requested.
///
/// ```
/// use icefield::{DashEh, HugePages};
/// let table = DashEh::<u64, u64>::options().huge_pages(HugePages::Never).in_memory()?;
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// None.
    Never,
    /// Whole huge pages with which files are created and by which they grow: that takes less time than small pages and
    /// their first accesses do. At most 64 MiB at a time in a file that is in use, because its writers wait for it.
    #[default]
    Growth,
    /// As `Growth`, and at an opening all present content. That takes half a second for a gigabyte, and several times
    /// as long where memory is fragmented or in use; later openings, and other processes, benefit from it.
    All,
}

impl From<bool> for HugePages {
    /// `true`: [`HugePages::All`]; `false`: [`HugePages::Never`].
    fn from(all: bool) -> Self {
        if all { Self::All } else { Self::Never }
    }
}

/// The work of a flush and a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    /// Flush and fence: nothing. The store itself suffices.
    None,
    /// Flush: write lines back. Fence: a store fence.
    Lines(Instruction),
    /// Flush: nothing. Fence: a store fence.
    FenceOnly,
    /// Flush: record the range. Fence: sync the recorded ranges.
    Sync,
}

/// A table's directory of mapped region files, or a table in anonymous memory.
#[derive(Debug)]
pub struct Mapped {
    effort: Effort,
    /// True if `effort` is `None`. A separate word, because the shortest loops test it.
    is_free: bool,
    huge_pages: HugePages,
    permit: Permit,
    durability: Durability,
    /// The path that the table has, or will have once published; an invented one for memory.
    path: PathBuf,
    /// `None` for memory.
    directory: Option<Arc<Directory>>,
    io: Io,
    budget: Budget,
    sync: SyncMode,
    dirty: Arc<Dirty>,
    committer: Committer,
    regions: Mutex<Vec<Arc<RegionFile>>>,
}

impl Mapped {
    /// Starts a new table directory that will appear at `path` with [`Medium::publish_created`].
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] when anything but an empty directory, or an incomplete creation in one, is at `path`;
    /// [`Error::Unsupported`] when the medium does not provide the durability; [`Error::Io`], [`Error::NoSpace`].
    pub fn create(path: impl AsRef<Path>, options: MappedOptions) -> Result<Self> {
        let io = Io::new(options.faults.clone());
        let directory = Directory::create(&io, path.as_ref())?;
        Self::over(directory, io, &options, Permit::WRITABLE)
    }

    /// Opens the table directory at `path` for reading and writing. No other opening may exist meanwhile.
    ///
    /// # Errors
    /// [`Error::NotFound`] unless `path` is a table directory; [`Error::Locked`], [`Error::Unsupported`],
    /// [`Error::Io`].
    pub fn open(path: impl AsRef<Path>, options: MappedOptions) -> Result<Self> {
        let io = Io::new(options.faults.clone());
        let directory = Directory::open(&io, path.as_ref(), Purpose::Write)?;
        Self::over(directory, io, &options, Permit::WRITABLE)
    }

    /// Opens the table directory at `path` for reading. Other readers may have it open; a writer may not, unless
    /// [`MappedOptions::beside_writer`] is set. Stores go to private copies of the pages; nothing in the directory
    /// changes.
    ///
    /// # Errors
    /// Those of [`Mapped::open`].
    pub fn open_read_only(path: impl AsRef<Path>, options: MappedOptions) -> Result<Self> {
        let io = Io::new(options.faults.clone());
        let purpose = if options.beside_writer { Purpose::ReadBeside } else { Purpose::Read };
        let directory = Directory::open(&io, path.as_ref(), purpose)?;
        Self::over(directory, io, &options, Permit::READ_ONLY)
    }

    /// Opens the directory of this table again, even if its path leads elsewhere by now: for writing, or for reading
    /// without a lock.
    ///
    /// # Errors
    /// Those of [`Mapped::open`]; [`Error::Unsupported`] for a table in memory.
    pub(crate) fn reopen(&self, options: &MappedOptions, writes: bool) -> Result<Self> {
        let Some(directory) = &self.directory else {
            return Err(Error::Unsupported("a table in memory has one handle only".into()));
        };
        let (purpose, permit) = match writes {
            true => (Purpose::Write, Permit::WRITABLE),
            false => (Purpose::ReadBeside, Permit::READ_ONLY),
        };
        Self::over(directory.reopen(purpose)?, self.io.clone(), options, permit)
    }

    /// Creates a table in anonymous memory, with [`Durability::Memory`] (the meaning of `Auto` here). With
    /// [`Durability::PmemForced`] it executes write-backs and fences, which measures the instructions of persistent
    /// memory at the speed of DRAM.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for other durabilities, [`Error::Io`].
    pub fn anonymous(options: MappedOptions) -> Result<Self> {
        let durability = match options.durability {
            Durability::Auto | Durability::Memory => Durability::Memory,
            Durability::PmemForced => Durability::PmemForced,
            other => {
                let detail = format!("anonymous memory cannot be `{other}`");
                return Err(Error::InvalidOption { option: "durability", detail });
            }
        };
        let io = Io::new(options.faults.clone());
        let path = PathBuf::from("(memory)");
        Self::assemble(path, None, durability, io, &options, Permit::WRITABLE)
    }

    fn over(directory: Directory, io: Io, options: &MappedOptions, permit: u32) -> Result<Self> {
        let durability = directory.settle_durability(options.durability)?;
        let path = directory.path().to_owned();
        Self::assemble(path, Some(Arc::new(directory)), durability, io, options, permit)
    }

    fn assemble(
        path: PathBuf,
        directory: Option<Arc<Directory>>,
        durability: Durability,
        io: Io,
        options: &MappedOptions,
        permit: u32,
    ) -> Result<Self> {
        let read_only = permit == Permit::READ_ONLY;
        let effort = if read_only { Effort::None } else { effort(durability, options.skip_flush)? };
        let permit = Permit::new(&io, permit).map_err(|errno| error(&path, errno, 0))?;
        let budget = Budget::new(options.max_bytes);
        let sync = if effort == Effort::Sync { options.sync } else { SyncMode::Always };
        let (dirty, regions) = (Arc::<Dirty>::default(), Mutex::default());
        let committer = Committer::new(Arc::clone(&dirty), sync);
        if let SyncMode::Every(_) = sync {
            committer.start().map_err(|source| Error::io(&path, source))?;
        }
        Ok(Self {
            effort,
            is_free: effort == Effort::None,
            huge_pages: options.huge_pages,
            permit,
            durability,
            path,
            directory,
            io,
            budget,
            sync,
            dirty,
            committer,
            regions,
        })
    }

    fn read_only(&self) -> bool {
        self.directory.as_ref().is_some_and(|directory| directory.purpose() != Purpose::Write)
    }

    fn backing(&self) -> Backing {
        match &self.directory {
            None => Backing::Memory,
            Some(_) if self.read_only() => Backing::Private,
            Some(_) if self.durability == Durability::Pmem => Backing::SharedSync,
            Some(_) => Backing::Shared,
        }
    }

    /// Returns whether a changed file status must be synced before anything relies on it.
    fn syncs_status(&self) -> bool {
        matches!(self.durability, Durability::Pmem | Durability::Disk) && !self.read_only()
    }

    fn setting(&self) -> Setting<'_> {
        Setting {
            io: &self.io,
            path: &self.path,
            directory: self.directory.as_ref(),
            backing: self.backing(),
            syncs_status: self.syncs_status(),
            huge_pages: self.huge_pages,
            syncs_pages: self.effort == Effort::Sync,
        }
    }

    /// Returns the region `name`. Runs `prepare` on its file when that is mapped for the first time.
    fn map_region(
        &self,
        name: &'static str,
        max_bytes: u64,
        prepare: impl FnOnce(&RegionFile, &Setting<'_>) -> Result<(), region_file::Failure>,
    ) -> Result<Region> {
        let mut regions = lock(&self.regions);
        if let Some(file) = regions.iter().find(|file| file.region().name() == name) {
            return Ok(RegionFile::handle(file));
        }
        self.refuse_child()?;
        let file = self.poison_if(RegionFile::open(&self.setting(), name, max_bytes))?;
        self.poison_if(prepare(&file, &self.setting()))?;
        let file = Arc::new(file);
        self.budget.take_unchecked(file.region().len());
        let region = RegionFile::handle(&file);
        regions.push(file);
        Ok(region)
    }

    fn file_of(&self, region: &Region) -> Result<Arc<RegionFile>> {
        let regions = lock(&self.regions);
        let file = regions.iter().find(|file| file.region().base() == region.base());
        file.cloned().ok_or_else(|| Error::InvalidOption {
            option: "region",
            detail: format!("`{}` belongs to another medium", region.name()),
        })
    }

    /// Poisons the medium if `result` reports that a sync failed or that a file was truncated.
    fn poison_if<T>(&self, result: Result<T, region_file::Failure>) -> Result<T> {
        result.map_err(|failure| {
            if failure.poisons {
                self.permit.poison();
            }
            failure.error
        })
    }

    /// Writes by a system call; returns whether that succeeded. Not used on persistent memory, where a store's page
    /// fault makes the file's blocks durable.
    fn written_by_call(&self, region: &Region, offset: u64, src: &[u8]) -> bool {
        let inside = offset.checked_add(src.len() as u64).is_some_and(|end| end <= region.len());
        let write = |file: Arc<RegionFile>| file.write(&self.io, offset, src).is_ok();
        inside && self.backing() == Backing::Shared && self.file_of(region).is_ok_and(write)
    }

    /// Fails in a forked child, whose changes of the files would mix with those of its parent. A reader's pages are
    /// private.
    fn refuse_child(&self) -> Result<()> {
        match self.permit.refusal() {
            Some(Refusal::Forked) if !self.read_only() => Err(Error::Forked),
            _ => Ok(()),
        }
    }

    /// Records a range that the next fence of this thread has to sync.
    #[cold]
    fn note_dirty(&self, start: *const u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let regions = lock(&self.regions);
        let found = regions.iter().find_map(|file| Some((file, file.offset_of(start, bytes)?)));
        if let Some((file, offset)) = found {
            self.dirty.note(file, offset..offset + bytes as u64);
        }
    }

    /// Syncs the ranges that this thread has recorded.
    #[cold]
    fn sync_dirty(&self) -> Result<()> {
        self.synced(self.dirty.sync_own())
    }

    /// Poisons the medium if the sync failed. Fails if any sync has ever failed: nothing may be changed then.
    fn synced(&self, answer: Result<(), Errno>) -> Result<()> {
        if answer.is_err() {
            self.permit.poison();
        }
        match self.permit.refusal() {
            Some(Refusal::Poisoned) => Err(Error::Poisoned),
            _ => Ok(()),
        }
    }
}

/// Returns the work of flushes and fences for `durability`.
fn effort(durability: Durability, skip_flush: bool) -> Result<Effort> {
    Ok(match durability {
        Durability::Auto | Durability::Memory | Durability::Process => Effort::None,
        Durability::Disk => Effort::Sync,
        Durability::Pmem | Durability::PmemForced if skip_flush => Effort::FenceOnly,
        Durability::Pmem | Durability::PmemForced => {
            Effort::Lines(Instruction::detect().ok_or_else(|| {
                Error::Unsupported(
                    "this processor cannot write cache lines back; use durability `process`".into(),
                )
            })?)
        }
    })
}

impl crate::storage::medium::sealed::Sealed for Mapped {}

impl Medium for Mapped {
    fn claimed(self) -> Result<Self> {
        let purpose = self.directory.as_ref().map(|directory| directory.purpose());
        if purpose == Some(Purpose::ReadBeside) {
            return Err(Error::InvalidOption {
                option: "beside_writer",
                detail: "this table changes its files in place; open it without".into(),
            });
        }
        if let Some(file) = lock(&self.regions).iter().find(|file| file.region().is_shared()) {
            return Err(super::medium::in_use(file.region()));
        }
        Ok(self)
    }

    fn region(&self, name: &'static str, max_bytes: u64) -> Result<Region> {
        self.map_region(name, max_bytes, RegionFile::fill_holes)
    }

    fn region_with_holes(&self, name: &'static str, max_bytes: u64) -> Result<Region> {
        self.map_region(name, max_bytes, |_, _| Ok(()))
    }

    fn grow(&self, region: &Region, bytes: u64) -> Result<()> {
        if bytes <= region.len() {
            return Ok(());
        }
        self.refuse_child()?;
        let file = self.file_of(region)?;
        self.poison_if(file.grow(&self.setting(), &self.budget, bytes, false))
    }

    fn grow_exactly(&self, region: &Region, bytes: u64) -> Result<()> {
        if bytes <= region.len() {
            return Ok(());
        }
        self.refuse_child()?;
        let file = self.file_of(region)?;
        self.poison_if(file.grow(&self.setting(), &self.budget, bytes, true))
    }

    fn discard_region(&self, name: &'static str) -> Result<()> {
        self.refuse_child()?;
        let mut regions = lock(&self.regions);
        if let Some(at) = regions.iter().position(|file| file.region().name() == name) {
            // Handles keep the mapping, and with it the file's bytes.
            let file = regions.swap_remove(at);
            self.budget.give(file.counted_bytes());
        }
        if self.read_only() {
            return Ok(());
        }
        self.poison_if(region_file::remove(&self.setting(), name))
    }

    fn punch(&self, region: &Region, offset: u64, bytes: u64) -> Result<()> {
        self.refuse_child()?;
        let file = self.file_of(region)?;
        self.poison_if(file.punch(&self.setting(), &self.budget, offset, bytes))
    }

    fn reserve(&self, region: &Region, offset: u64, bytes: u64) -> Result<()> {
        self.refuse_child()?;
        let file = self.file_of(region)?;
        self.poison_if(file.reserve(&self.setting(), &self.budget, offset, bytes))
    }

    fn check_room(&self, bytes: u64, dram_bytes: u64) -> Result<()> {
        let no_space = || Error::NoSpace { path: self.path.clone(), needed_bytes: bytes };
        if bytes > self.budget.left() {
            return Err(no_space());
        }
        let mut memory = dram_bytes;
        match &self.directory {
            // A reader grows in its private pages.
            Some(_) if self.read_only() => memory = memory.saturating_add(bytes),
            Some(directory) => {
                let left = room::of_file_system(directory.file()).unwrap_or(u64::MAX);
                if bytes > left || bytes > room::of_a_file() {
                    return Err(no_space());
                }
                if self.io.keeper(directory.file()) == Keeper::Memory {
                    memory = memory.saturating_add(bytes);
                }
            }
            None => memory = memory.saturating_add(bytes),
        }
        if memory < room::ALWAYS_THERE {
            return Ok(());
        }
        match room::of_memory() {
            Some(left) if memory > left => Err(Error::NoMemory { needed_bytes: memory }),
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn check_writable(&self) -> Result<()> {
        if self.permit.granted() {
            return Ok(());
        }
        match self.permit.refusal() {
            None => Ok(()),
            Some(Refusal::ReadOnly) => Err(Error::ReadOnly),
            Some(Refusal::Poisoned) => Err(Error::Poisoned),
            Some(Refusal::Forked) => Err(Error::Forked),
        }
    }

    fn is_private(&self) -> bool {
        self.backing() == Backing::Private
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn path(&self) -> &Path {
        &self.path
    }

    #[inline(always)]
    fn flush(&self, start: *const u8, bytes: usize) {
        match self.effort {
            Effort::None | Effort::FenceOnly => {}
            Effort::Lines(instruction) => arch::flush_range(instruction, start, bytes),
            Effort::Sync => self.note_dirty(start, bytes),
        }
    }

    #[inline(always)]
    fn flush_line(&self, byte: *const u8) {
        if self.is_free {
            return;
        }
        match self.effort {
            Effort::None | Effort::FenceOnly => {}
            Effort::Lines(instruction) => arch::flush_line(instruction, byte),
            Effort::Sync => self.note_dirty(byte, 1),
        }
    }

    #[inline(always)]
    fn fence(&self) {
        // A failure has poisoned the medium.
        let _ = self.try_fence();
    }

    #[inline(always)]
    fn try_fence(&self) -> Result<()> {
        // SeqCst: a killed process leaves all its stores so far, so it suffices that the compiler keeps the order of
        // stores.
        compiler_fence(Ordering::SeqCst);
        if self.is_free {
            return Ok(());
        }
        match self.effort {
            Effort::None => Ok(()),
            Effort::Lines(_) | Effort::FenceOnly => {
                arch::store_fence();
                Ok(())
            }
            Effort::Sync => self.sync_dirty(),
        }
    }

    fn sync_mode(&self) -> SyncMode {
        self.sync
    }

    fn fence_is_free(&self) -> bool {
        self.is_free
    }

    fn fence_syncs(&self) -> bool {
        self.effort == Effort::Sync
    }

    #[inline]
    fn fence_later(&self) -> Result<()> {
        if self.effort != Effort::Sync {
            return self.try_fence();
        }
        self.synced(self.dirty.leave_own())
    }

    #[inline]
    fn fence_deferred(&self) -> Result<()> {
        if self.effort != Effort::Sync {
            return Ok(());
        }
        self.synced(self.dirty.fence_deferred())
    }

    fn committed(&self) -> Committed {
        match self.check_writable() {
            // On a read-only medium no fence can be pending.
            Ok(()) | Err(Error::ReadOnly) => {}
            // Forked: the syncing thread is the parent's. Poisoned: it makes no further syncs.
            refused => return Committed::known(refused),
        }
        if self.effort != Effort::Sync {
            return Committed::known(Ok(()));
        }
        if let Err(error) = self.check_writable() {
            return Committed::known(Err(error));
        }
        if self.committer.start().is_err() || self.committer.is_current() {
            // Either no thread can be started, or this is the syncing thread, in a waker: sync on this thread.
            return Committed::known(self.fence_deferred());
        }
        match self.dirty.ask() {
            Some((group, ticket)) => Committed::by(group, ticket),
            None => Committed::known(Ok(())),
        }
    }

    #[inline(always)]
    unsafe fn write_bytes(&self, region: &Region, offset: u64, src: &[u8]) {
        let target = region.place(offset, src.len() as u64);
        assert!(target.is_some(), "a write of {} bytes outside {}", src.len(), region.name());
        if let Some(target) = target {
            // SAFETY: in bounds, as just asserted; the caller guarantees exclusive access to the range.
            unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), target.as_ptr(), src.len()) };
        }
    }

    unsafe fn write_new_bytes(&self, region: &Region, offset: u64, src: &[u8]) {
        if !self.written_by_call(region, offset, src) {
            // SAFETY: the caller's contract.
            unsafe { self.write_bytes(region, offset, src) };
        }
    }

    #[inline(always)]
    unsafe fn read_bytes<'a>(
        &self,
        region: &'a Region,
        offset: u64,
        bytes: usize,
    ) -> Option<&'a [u8]> {
        let start = region.place(offset, bytes as u64)?;
        // SAFETY: in bounds, as just checked; the caller guarantees that the range is not written while the reference
        // lives.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes) })
    }

    #[inline(always)]
    fn load32(&self, cell: &AtomicU32, order: Ordering) -> u32 {
        cell.load(order)
    }

    #[inline(always)]
    fn load64(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        cell.load(order)
    }

    #[inline(always)]
    fn find_keys(&self, isa: impl Isa, line: &CellLine, key: u64) -> u32 {
        isa.find_keys(&line.0, key)
    }

    #[inline(always)]
    fn has_bits(&self, isa: impl Isa, line: &CellLine, hash: u64) -> bool {
        isa.has_bits(&line.0, hash)
    }

    #[inline(always)]
    fn store32(&self, cell: &AtomicU32, value: u32, order: Ordering) {
        cell.store(value, order);
    }

    #[inline(always)]
    fn store64(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        cell.store(value, order);
    }

    #[inline(always)]
    fn load_volatile32(&self, cell: &AtomicU32, order: Ordering) -> u32 {
        cell.load(order)
    }

    #[inline(always)]
    fn load_volatile64(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        cell.load(order)
    }

    #[inline(always)]
    fn store_volatile32(&self, cell: &AtomicU32, value: u32, order: Ordering) {
        cell.store(value, order);
    }

    #[inline(always)]
    fn store_volatile64(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        cell.store(value, order);
    }

    #[inline(always)]
    fn cas_volatile32(
        &self,
        cell: &AtomicU32,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> std::result::Result<u32, u32> {
        cell.compare_exchange_weak(current, new, success, failure)
    }

    #[inline(always)]
    fn cas_volatile64(
        &self,
        cell: &AtomicU64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> std::result::Result<u64, u64> {
        cell.compare_exchange_weak(current, new, success, failure)
    }

    fn backup_to(&self, path: &Path) -> Result<u64> {
        Self::backup_to(self, path)
    }

    fn copy_regions(&self, path: &Path, parts: &[(&Region, u64)]) -> Result<Self> {
        Self::copy_regions(self, path, parts)
    }

    fn publish_created(&self) -> Result<()> {
        self.refuse_child()?;
        let Some(directory) = &self.directory else { return Ok(()) };
        let regions = lock(&self.regions);
        for file in regions.iter() {
            self.poison_if(file.sync(&self.setting()))?;
        }
        directory.publish(&self.io)
    }

    fn close(&self) {
        if self.effort == Effort::Sync && self.check_writable().is_ok() {
            // The error is handled below.
            let _ = self.synced(self.dirty.sync_all());
        }
        self.fence();
        if self.permit.refusal() == Some(Refusal::Poisoned) {
            self.dirty.fail();
        }
    }
}
