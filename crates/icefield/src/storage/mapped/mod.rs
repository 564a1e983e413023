//! The real medium: a directory of mapped files, or anonymous memory.
//!
//! `regions`, `accesses` (words and bytes), `persist` and `lifecycle` implement the roles of [`super::medium`]. The
//! parts that they use:
//!
//! - `directory`: the table's directory, which is created under a hidden name, renamed when complete, locked, and
//!   cleaned up. `creation`: incomplete creations. `lock_file`: the lock and its file.
//! - `region_file`: one region: a file that grows underneath its mapping. `plain_file`: files without a mapping.
//!   `setting`: the properties of the medium that regions depend on.
//! - `reservation`: the addresses of regions.
//! - `budget`: the bound on all regions together; `holes`: the punched ranges of a region, which do not count against
//!   it.
//! - `effort`: the work of a flush and a fence.
//! - `permit`: the word that determines whether this process may change the table.
//! - `dirty`: the ranges that `Durability::Disk` has yet to sync.
//! - `committer`: the thread that syncs for others.
//! - `backup`: copying a directory.
//! - `room`: how much space and memory is available.
//!
//! A load or store of a word costs the plain atomic instruction. A flush on a medium that needs none costs one
//! perfectly predictable branch.
//!
//! # Crashes
//!
//! A region's length is the length of its file. `Regions::grow` extends the file first and publishes the length in
//! memory afterwards, so a crash between the two leaves zero bytes at the end, which the next opening can use. A new
//! directory appears under its path by one rename, after every file in it has been synced (`directory` describes the
//! exception, a table that is created in an empty directory).
//!
//! # Assumptions
//!
//! The table's files belong to this library while the lock is held. If a file is truncated nevertheless, an access to a
//! page behind the new end is a fault: the kernel kills the process (SIGBUS), as for any mapped file. An opening uses
//! the file's length at that moment, so no page behind it is ever accessed. Every growth compares the file's length
//! with the region's; if the file has become shorter, the growth fails and poisons the medium. Accesses between two
//! growths are not covered.
//!
//! Space is reserved before it is published, so a full device is an error from `grow`. `cp` turns reserved space into
//! holes. When such a copy is opened for writing, its space is reserved again: a file has holes if its allocated space
//! is less than its length. Three cases are not covered: holes smaller than the space that the file system counts
//! besides the content (metadata, space behind the end); file systems that cannot reserve; and file systems that write
//! every block to a new place (btrfs, ZFS, or XFS where a backup shares blocks), where a reservation guarantees
//! nothing. On a full device, a store into such a hole is a fault, too.

mod accesses;
mod backup;
mod budget;
mod committer;
mod creation;
mod directory;
mod dirty;
mod effort;
mod holes;
mod lifecycle;
mod lock_file;
mod options;
mod permit;
mod persist;
mod plain_file;
mod region_file;
mod regions;
mod reservation;
mod room;
mod setting;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use super::commit::SyncMode;
use super::durability::Durability;
use super::io::{Io, error};
use super::mutex::lock;
use super::region::Region;
use crate::{Error, Result};
use budget::Budget;
use committer::Committer;
use directory::Directory;
use dirty::Dirty;
use effort::Effort;
use lock_file::Purpose;
use permit::{Permit, Refusal};
use region_file::RegionFile;
use setting::{Backing, Failure, Setting};

pub use options::{HugePages, MappedOptions};

/// A table's directory of mapped region files, or a table in anonymous memory.
#[derive(Debug)]
pub struct Mapped {
    effort: Effort,
    /// True if `effort` is `None`. A separate word, because the shortest loops test it.
    is_free: bool,
    /// Pages of the regions with holes are read one by one.
    reads_singly: AtomicBool,
    /// The memory to assume, for tests.
    memory: Option<u64>,
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
    /// Starts a new table directory that will appear at `path` with
    /// [`publish_created`](super::Medium::publish_created).
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
    /// As for [`Mapped::open`].
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
    /// As for [`Mapped::open`]; [`Error::Unsupported`] for a table in memory.
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
                let detail = format!("a table in memory cannot have durability `{other}`");
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
        let effort =
            if read_only { Effort::None } else { Effort::of(durability, options.skip_flush)? };
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
            reads_singly: AtomicBool::new(false),
            memory: options.memory,
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

    /// Returns whether a file's new length or name must be synced before anything relies on it.
    fn syncs_status(&self) -> bool {
        matches!(self.durability, Durability::Pmem | Durability::Disk) && !self.read_only()
    }

    fn setting(&self) -> Setting<'_> {
        Setting {
            io: &self.io,
            syncs: &*self.dirty,
            path: &self.path,
            directory: self.directory.as_ref(),
            backing: self.backing(),
            syncs_status: self.syncs_status(),
            huge_pages: self.huge_pages,
            syncs_pages: self.effort == Effort::Sync,
        }
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
    fn poison_if<T>(&self, result: Result<T, Failure>) -> Result<T> {
        result.map_err(|failure| {
            if failure.poisons {
                self.permit.poison();
                self.dirty.fail();
            }
            failure.error
        })
    }

    /// Fails in a forked child, whose changes of the files would mix with those of its parent. Does not fail for a
    /// reader, whose pages are private.
    fn refuse_child(&self) -> Result<()> {
        match self.permit.refusal() {
            Some(Refusal::Forked) if !self.read_only() => Err(Error::Forked),
            _ => Ok(()),
        }
    }
}
