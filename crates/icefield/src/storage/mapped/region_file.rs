//! One region: a file that grows underneath its mapping. The mapping is extended in place or, where that is not
//! possible, the file is mapped a second time at a larger range.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::param::page_size;

use super::HugePages;
use super::budget::Budget;
use super::directory::{Directory, LOCK_FILE};
use super::holes::Holes;
use super::reservation::{Content, HUGE_PAGE, LEAST_RESERVATION, Reservation, round_up};
use super::room::{self, Refusal};
use crate::Error;
use crate::storage::Region;
use crate::storage::io::{Access, Io, Keeper, Sharing, error, lock};

/// The bound of a region whose table specifies none.
const DEFAULT_BOUND: u64 = 1 << 40;
/// The largest number of new bytes that are mapped, or put into huge pages, at once in a file that is in use: growing
/// must not take much longer because of it.
const MAPPED_AT_ONCE: u64 = 64 << 20;
/// With less free space than this, a file system may fail at a first store to a reserved page.
const NEARLY_FULL: u64 = 1 << 30;

/// The backing of a region's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    Memory,
    /// The file, shared.
    Shared,
    /// The file, shared, on persistent memory.
    SharedSync,
    /// Private copies of the file's pages.
    Private,
}

impl Backing {
    fn sharing(self) -> Sharing {
        match self {
            Self::Memory | Self::Private => Sharing::Private,
            Self::Shared => Sharing::Shared,
            Self::SharedSync => Sharing::SharedSync,
        }
    }
}

/// The properties of the medium that a region depends on.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) io: &'a Io,
    /// The table's directory, for error messages.
    pub(super) path: &'a Path,
    pub(super) directory: Option<&'a Arc<Directory>>,
    pub(super) backing: Backing,
    /// A file's length and a new file's name must be synced before anything relies on them.
    pub(super) syncs_status: bool,
    pub(super) huge_pages: HugePages,
    /// A fence is a sync of pages. Then new pages are not mapped all at once, although that costs less than a fault
    /// for each: they would be written before they hold anything. Huge pages are not used either: each sync would
    /// write all 2 MiB.
    pub(super) syncs_pages: bool,
}

/// An error, and whether it leaves the content of the files unknown.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) poisons: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, poisons: false }
    }
}

type Outcome<T> = Result<T, Failure>;

/// A region and its backing.
#[derive(Debug)]
pub(super) struct RegionFile {
    region: Region,
    path: PathBuf,
    backing: Backing,
    file: Option<OwnedFd>,
    /// All mappings of the region. The last one covers all of it.
    reservations: Mutex<Vec<Arc<Reservation>>>,
    /// Bytes of the file without allocated space when it was opened, according to its status.
    missing: u64,
    /// The file is put into huge pages.
    is_huge: bool,
    /// There may be holes: some bytes were missing, or have been punched since.
    has_holes: AtomicBool,
    /// The holes that this session has punched: they do not count against `max_bytes`.
    holes: Mutex<Holes>,
    /// Held during a growth.
    growing: Mutex<Refusal>,
    /// Keeps the table locked while any of its files is mapped.
    _directory: Option<Arc<Directory>>,
}

impl RegionFile {
    /// Opens or creates the file `name` and maps it.
    pub(super) fn open(setting: &Setting<'_>, name: &'static str, max_bytes: u64) -> Outcome<Self> {
        check_name(name)?;
        let path = setting.path.join(name);
        let file = match setting.directory {
            Some(directory) => open_file(setting, directory, name, &path)?,
            None => None,
        };
        let (len, space) = match &file {
            Some(file) => length_and_space(setting.io, file, &path)?,
            None => (0, 0),
        };
        let most = round_up(max_bytes.clamp(1, DEFAULT_BOUND).max(len), page_size() as u64);
        let content = content(file.as_ref(), setting.backing);
        let wanted = first_bytes(setting.backing, len, most);
        let reservation = Reservation::map(setting.io, content, len, wanted, most)
            .map_err(|errno| no_addresses(&path, errno, wanted))?;
        // SAFETY: the reservation is page-aligned and as long as it reports, `len` bytes of the file lie behind it,
        // and handles keep it alive (`RegionFile::handle`).
        let region = unsafe { Region::new(name, reservation.base(), len, most) };
        let is_huge = setting.huge_pages != HugePages::Never
            && !setting.syncs_pages
            && file.as_ref().is_some_and(|file| setting.io.keeper(file.as_fd()) == Keeper::Memory);
        let directory = setting.directory.cloned();
        let growing = Mutex::default();
        let opened = Self {
            region,
            path,
            backing: setting.backing,
            file,
            reservations: Mutex::new(vec![Arc::new(reservation)]),
            missing: len.saturating_sub(space),
            is_huge,
            has_holes: AtomicBool::new(space < len),
            holes: Mutex::default(),
            growing,
            _directory: directory,
        };
        opened.advise_huge_pages(setting, len);
        // Collapsing would fill holes.
        if setting.huge_pages == HugePages::All && space >= len {
            opened.collapse_from(0);
        }
        Ok(opened)
    }

    /// Returns the region, without keeping its mapping alive.
    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// Returns a region that keeps its mapping alive: the handle for tables.
    pub(super) fn handle(this: &Arc<Self>) -> Region {
        this.region.kept_by(Arc::<Self>::clone(this))
    }

    /// Returns the file of the region; `None` for memory.
    pub(super) fn file(&self) -> Option<&OwnedFd> {
        self.file.as_ref()
    }

    /// Returns the offset of the range in the region, if it lies there.
    pub(super) fn offset_of(&self, start: *const u8, bytes: usize) -> Option<u64> {
        lock(&self.reservations).iter().find_map(|reservation| reservation.offset_of(start, bytes))
    }

    /// Makes at least `bytes` usable. With `exactly`, the length is only rounded up to whole pages.
    pub(super) fn grow(
        &self,
        setting: &Setting<'_>,
        budget: &Budget,
        bytes: u64,
        exactly: bool,
    ) -> Outcome<()> {
        let mut refusal = lock(&self.growing);
        let len = self.region.len();
        if bytes <= len {
            return Ok(());
        }
        let no_space = || Error::NoSpace { path: self.path.clone(), needed_bytes: bytes - len };
        if bytes > self.region.max_bytes() {
            return Err(no_space().into());
        }
        // More than requested, so that growing is rare; if that does not fit, only the bytes requested.
        let generous =
            round_up(bytes, growth_step(bytes, self.is_huge)).min(self.region.max_bytes());
        let exact = round_up(bytes, page_size() as u64).min(self.region.max_bytes());
        let targets = [if exactly { exact } else { generous }, exact, bytes];
        for (at, &target) in targets.iter().enumerate() {
            if targets[..at].contains(&target) || !budget.take(target - len) {
                continue;
            }
            let extended = self
                .show(setting, target)
                .and_then(|()| self.extend(setting, len, target, &mut refusal));
            match extended {
                Ok(()) => {
                    self.region.set_len(target);
                    self.advise_huge_pages(setting, target);
                    if setting.huge_pages == HugePages::All {
                        self.collapse_from(len);
                    }
                    return Ok(());
                }
                Err(failure) => {
                    budget.give(target - len);
                    if !matches!(failure.error, Error::NoSpace { .. }) || target == bytes {
                        return Err(failure);
                    }
                }
            }
        }
        Err(no_space().into())
    }

    /// Returns the reservation that covers all of the region.
    fn newest(&self) -> Arc<Reservation> {
        let reservations = lock(&self.reservations);
        Arc::clone(&reservations[reservations.len() - 1])
    }

    /// Ensures that `target` bytes are mapped: extends the newest mapping, or maps the file a second time.
    fn show(&self, setting: &Setting<'_>, target: u64) -> Outcome<()> {
        let most = self.region.max_bytes();
        let content = content(self.file.as_ref(), self.backing);
        let mut reservations = lock(&self.reservations);
        let newest = Arc::clone(&reservations[reservations.len() - 1]);
        let fault = |errno| Failure::from(no_addresses(&self.path, errno, target));
        match (newest.extend(content, target, most), self.backing) {
            (Ok(()), _) => Ok(()),
            // Only a shared file shows the same bytes in two mappings.
            (Err(Errno::NOMEM), Backing::Shared | Backing::SharedSync) => {
                let wanted = first_bytes(self.backing, target, most);
                let further = Reservation::map(setting.io, content, target, wanted, most);
                let further = further.map_err(fault)?;
                // SAFETY: as in `open`; both mappings show the file, which is shared.
                if !unsafe { self.region.add_mapping(further.base()) } {
                    return Err(fault(Errno::NOMEM));
                }
                reservations.push(Arc::new(further));
                Ok(())
            }
            (Err(errno), _) => Err(fault(errno)),
        }
    }

    /// Backs the addresses from `len` to `target` with zeros.
    fn extend(
        &self,
        setting: &Setting<'_>,
        len: u64,
        target: u64,
        refusal: &mut Refusal,
    ) -> Outcome<()> {
        let fault = |errno| Failure::from(error(&self.path, errno, target - len));
        match (self.backing, &self.file) {
            (Backing::Memory, _) => Ok(()),
            (Backing::Private, _) => {
                let page = page_size() as u64;
                let (from, to) = (round_up(len, page), round_up(target, page));
                if from < to {
                    // SAFETY: the range lies behind the published length, so it is not in use.
                    unsafe { self.newest().map_zeros(from, to) }.map_err(fault)?;
                }
                Ok(())
            }
            (_, None) => Err(fault(Errno::BADF)),
            (_, Some(file)) => {
                self.check_length(setting.io, file, len)?;
                // Checked before any space is taken: taking it is slow, and other users of the file system may need
                // it.
                if refusal.is_certain(file.as_fd(), target - len) {
                    return Err(fault(Errno::NOSPC));
                }
                // A table may be created of huge pages however long that takes; writers of a table in use do not wait
                // for more than `MAPPED_AT_ONCE`.
                if self.is_huge && (len == 0 || target - len <= MAPPED_AT_ONCE) {
                    self.extend_by_huge_pages(setting.io, file, len, target);
                }
                allocate(setting.io, file, len, target)
                    .and_then(|()| self.map_pages(setting, file, len..target))
                    .map_err(|errno| {
                        setting.io.restore_length(file.as_fd(), len);
                        refusal.note(file.as_fd(), target - len, errno);
                        fault(errno)
                    })?;
                self.sync_status(setting, file)
            }
        }
    }

    /// Maps reserved pages. That is cheaper than a fault for each, and where a first store would find no space for the
    /// file's metadata (ext4 splits extents then), it returns an error instead of raising a signal. Two kinds of pages
    /// are left to their first stores, unless the file system is nearly full: those of a long range, and those that a
    /// fence would write before they hold anything.
    fn map_pages(
        &self,
        setting: &Setting<'_>,
        file: &OwnedFd,
        range: Range<u64>,
    ) -> Result<(), Errno> {
        let is_short = range.end - range.start <= MAPPED_AT_ONCE;
        let is_usual = is_short && !setting.syncs_pages;
        if is_usual || room::of_file_system(file.as_fd()).is_some_and(|left| left < NEARLY_FULL) {
            return self.newest().map_pages(range);
        }
        Ok(())
    }

    /// Extends a file by the huge pages that lie wholly between two lengths, where the kernel can. A huge page of
    /// which only the last small page has space costs only its zeroing. One that has space for all 512 small pages is
    /// copied, after that space was found page by page. Failures are ignored here: the usual allocation that follows
    /// reports them.
    fn extend_by_huge_pages(&self, io: &Io, file: &OwnedFd, len: u64, target: u64) {
        let page = page_size() as u64;
        let (start, end) = (round_up(len, HUGE_PAGE), target / HUGE_PAGE * HUGE_PAGE);
        let has_space = |at| io.allocate(file.as_fd(), at + HUGE_PAGE - page, page).is_ok();
        if (start..end).step_by(HUGE_PAGE as usize).all(has_space) {
            self.newest().collapse(start..end);
        }
    }

    /// Fails when the file is shorter than the published length.
    fn check_length(&self, io: &Io, file: &OwnedFd, len: u64) -> Outcome<()> {
        let found = file_length(io, file, &self.path)?;
        if found >= len {
            return Ok(());
        }
        let detail =
            format!("the file was truncated from {len} to {found} bytes while the table was open");
        Err(Failure { error: Error::corrupt(&self.path, found, detail), poisons: true })
    }

    fn sync_status(&self, setting: &Setting<'_>, file: &OwnedFd) -> Outcome<()> {
        if !setting.syncs_status {
            return Ok(());
        }
        setting
            .io
            .sync_data(file.as_fd())
            .map_err(|errno| Failure { error: error(&self.path, errno, 0), poisons: true })
    }

    /// Makes the whole file durable.
    pub(super) fn sync(&self, setting: &Setting<'_>) -> Outcome<()> {
        let Some(file) = &self.file else { return Ok(()) };
        setting
            .io
            .sync_file(file.as_fd())
            .map_err(|errno| Failure { error: error(&self.path, errno, 0), poisons: true })
    }

    /// Makes a mapped range durable.
    pub(super) fn sync_range(&self, range: Range<u64>) -> Result<(), Errno> {
        // All mappings show the pages of the file, so it does not matter which one changed them.
        self.newest().sync(range)
    }

    /// Writes to the file by a system call instead of its mapping.
    pub(super) fn write(&self, io: &Io, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let file = self.file.as_ref().ok_or(Errno::BADF)?;
        io.write(file.as_fd(), bytes, offset)
    }

    /// Returns the number of bytes that count against `max_bytes`.
    pub(super) fn counted_bytes(&self) -> u64 {
        self.region.len() - lock(&self.holes).bytes()
    }

    /// Gives the pages that lie wholly inside the range back to the file system.
    pub(super) fn punch(
        &self,
        setting: &Setting<'_>,
        budget: &Budget,
        offset: u64,
        bytes: u64,
    ) -> Outcome<()> {
        let page = page_size() as u64;
        let end = offset.saturating_add(bytes).min(self.region.len()) / page * page;
        let start = round_up(offset.min(end), page);
        if start >= end {
            return Ok(());
        }
        let fault = |errno| Failure::from(error(&self.path, errno, 0));
        // Relaxed: a thread that stores to the range later has learnt from this thread that it is free.
        self.has_holes.store(true, Ordering::Relaxed);
        let given_back = match (&self.file, self.backing) {
            (Some(file), Backing::Shared | Backing::SharedSync) => {
                let is_hole = match setting.io.punch_hole(file.as_fd(), start, end - start) {
                    // The space stays taken, but the guarantee to the caller holds: the range reads as zeros.
                    Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                        write_zeros(setting.io, file, start, end).map_err(fault)?;
                        false
                    }
                    answer => answer.map(|()| true).map_err(fault)?,
                };
                self.sync_status(setting, file)?;
                is_hole
            }
            _ => {
                // SAFETY: the caller uses nothing in the range.
                unsafe { self.newest().map_zeros(start, end) }.map_err(fault)?;
                true
            }
        };
        if given_back {
            budget.give(lock(&self.holes).add(start..end));
        }
        Ok(())
    }

    /// Reserves space again for a range that may have been punched, or copied with holes.
    pub(super) fn reserve(
        &self,
        setting: &Setting<'_>,
        budget: &Budget,
        offset: u64,
        bytes: u64,
    ) -> Outcome<()> {
        let end = offset.saturating_add(bytes).min(self.region.len());
        // Relaxed: as in `fill`.
        if offset >= end || !self.has_holes.load(Ordering::Relaxed) {
            return Ok(());
        }
        let page = page_size() as u64;
        let taken = self.take_holes(budget, offset / page * page..round_up(end, page))?;
        let filled = self.fill(setting, offset..end, end - offset);
        if filled.is_err() {
            let mut holes = lock(&self.holes);
            taken.into_iter().for_each(|part| budget.give(holes.add(part)));
        }
        filled
    }

    /// Counts the holes in a range of pages against the bound again, and returns them. Holes of former sessions count
    /// already, so that a table over its bound can be opened.
    fn take_holes(&self, budget: &Budget, pages: Range<u64>) -> Outcome<Vec<Range<u64>>> {
        let mut holes = lock(&self.holes);
        let taken = holes.take(&pages);
        let bytes = taken.iter().map(|part| part.end - part.start).sum();
        if bytes == 0 || budget.take(bytes) {
            return Ok(taken);
        }
        for part in taken {
            holes.add(part);
        }
        Err(Error::NoSpace { path: self.path.clone(), needed_bytes: bytes }.into())
    }

    /// Reserves space for the whole file if it was opened with holes. For files that are never punched.
    pub(super) fn fill_holes(&self, setting: &Setting<'_>) -> Outcome<()> {
        self.fill(setting, 0..self.region.len(), self.missing)?;
        // Relaxed: no other thread has the file yet.
        self.has_holes.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Reserves space for a range. An error reports `missing` bytes.
    fn fill(&self, setting: &Setting<'_>, range: Range<u64>, missing: u64) -> Outcome<()> {
        let (Some(file), Backing::Shared | Backing::SharedSync) = (&self.file, self.backing) else {
            return Ok(());
        };
        // Relaxed: this thread has learnt from the one that punched the range that it is free.
        if range.is_empty() || !self.has_holes.load(Ordering::Relaxed) {
            return Ok(());
        }
        if range.end - range.start >= room::MOST_UNASKED {
            // Checked first, so that nothing is taken when space does not suffice: a hostile file can have any length.
            let (len, space) = length_and_space(setting.io, file, &self.path)?;
            let holes = len.saturating_sub(space).min(range.end - range.start);
            if room::of_file_system(file.as_fd()).is_some_and(|left| left < holes) {
                return Err(error(&self.path, Errno::NOSPC, holes).into());
            }
        }
        let filled = match setting.io.allocate(file.as_fd(), range.start, range.end - range.start) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                write_into_holes(setting.io, file, range.clone())
            }
            answer => answer,
        };
        let usable = filled.and_then(|()| self.map_pages(setting, file, range));
        usable.map_err(|errno| error(&self.path, errno, missing).into())
    }

    /// Puts the file into huge pages from byte `len` on, including the huge page that contains that byte.
    fn collapse_from(&self, len: u64) {
        if self.is_huge {
            let range = len / HUGE_PAGE * HUGE_PAGE..self.region.len();
            self.newest().collapse(range);
        }
    }

    fn advise_huge_pages(&self, setting: &Setting<'_>, len: u64) {
        if self.backing != Backing::Private && !setting.syncs_pages {
            self.newest().advise_huge_pages(len);
        }
    }
}

/// Returns how much of a region with `len` bytes and bound `most` is mapped at first, at least [`LEAST_RESERVATION`].
/// A shared file or memory: twice its length, which costs only addresses. Memory, which cannot be mapped a second
/// time: at least a 32nd of `most`, up to 64 MiB. A private mapping: an eighth more than its length.
fn first_bytes(backing: Backing, len: u64, most: u64) -> u64 {
    let (more, least) = match backing {
        Backing::Private => (len / 8, LEAST_RESERVATION),
        Backing::Memory => (len, (most / 32).clamp(LEAST_RESERVATION, 4 * LEAST_RESERVATION)),
        Backing::Shared | Backing::SharedSync => (len, LEAST_RESERVATION),
    };
    len.saturating_add(more).max(least)
}

fn content(file: Option<&OwnedFd>, backing: Backing) -> Content<'_> {
    file.map_or(Content::Zeros, |file| Content::File(file, backing.sharing()))
}

/// Converts the error of a mapping.
fn no_addresses(path: &Path, errno: Errno, bytes: u64) -> Error {
    if errno != Errno::NOMEM {
        return error(path, errno, bytes);
    }
    let why = format!(
        "no {bytes} bytes of address space; close other tables, or raise `ulimit -v` (RLIMIT_AS), vm.max_map_count or \
         vm.overcommit_memory, whichever is reached"
    );
    Error::io(path, std::io::Error::new(std::io::ErrorKind::OutOfMemory, why))
}

/// Refuses names that would leave the directory, be hidden, or be the lock file's.
fn check_name(name: &str) -> Result<(), Error> {
    if !name.is_empty()
        && !name.starts_with('.')
        && !name.contains(['/', '\0'])
        && name != LOCK_FILE
    {
        return Ok(());
    }
    Err(Error::InvalidOption { option: "region", detail: format!("`{name}` is no region's name") })
}

/// Opens the file `name`, creating it if it is missing; for readers, returns `None` instead.
fn open_file(
    setting: &Setting<'_>,
    directory: &Arc<Directory>,
    name: &'static str,
    path: &Path,
) -> Outcome<Option<OwnedFd>> {
    let io = setting.io;
    let access = if setting.backing == Backing::Private { Access::Read } else { Access::Write };
    match io.open_file(directory.file(), OsStr::new(name), access) {
        Ok(file) => return Ok(Some(file)),
        Err(Errno::NOENT) if access == Access::Read => return Ok(None),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(odd_file(path, errno).into()),
    }
    let created = io.open_file(directory.file(), OsStr::new(name), Access::Create);
    let file = created.map_err(|errno| error(path, errno, 0))?;
    if setting.syncs_status {
        let synced = io.sync_directory(directory.file());
        synced.map_err(|errno| Failure { error: error(path, errno, 0), poisons: true })?;
    }
    Ok(Some(file))
}

/// Removes the file of a region, if it exists.
pub(super) fn remove(setting: &Setting<'_>, name: &'static str) -> Outcome<()> {
    check_name(name)?;
    let Some(directory) = setting.directory else { return Ok(()) };
    let path = setting.path.join(name);
    match setting.io.unlink(directory.file(), OsStr::new(name)) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(error(&path, errno, 0).into()),
    }
    if setting.syncs_status {
        let synced = setting.io.sync_directory(directory.file());
        synced.map_err(|errno| Failure { error: error(&path, errno, 0), poisons: true })?;
    }
    Ok(())
}

/// Converts the error of opening a region's file. Some errors mean that the file was not made by a table.
pub(super) fn odd_file(path: &Path, errno: Errno) -> Error {
    match errno {
        Errno::LOOP => Error::corrupt(path, 0, "a symbolic link; a table's files are plain ones"),
        Errno::ISDIR | Errno::NXIO => Error::corrupt(path, 0, "not a plain file"),
        errno => error(path, errno, 0),
    }
}

/// The unit of `st_blocks`, in bytes.
const BLOCK_BYTES: u64 = 512;

/// Returns the length of a file of a table.
///
/// # Errors
/// The file is not a plain file, or has more than one hard link: a change in another directory would change this
/// table.
pub(super) fn file_length(io: &Io, file: &OwnedFd, path: &Path) -> Result<u64, Error> {
    length_and_space(io, file, path).map(|(len, _)| len)
}

/// Returns the length of a file of a table, and the number of bytes that the file system has allocated for it. The
/// errors are those of [`file_length`].
fn length_and_space(io: &Io, file: &OwnedFd, path: &Path) -> Result<(u64, u64), Error> {
    let status = io.status(file.as_fd()).map_err(|errno| error(path, errno, 0))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(Error::corrupt(path, 0, "not a plain file"));
    }
    if status.st_nlink > 1 {
        let detail =
            format!("a file with {} hard links; copy it to have one of its own", status.st_nlink);
        return Err(Error::corrupt(path, 0, detail));
    }
    let len =
        u64::try_from(status.st_size).map_err(|_| Error::corrupt(path, 0, "a negative length"))?;
    let space = u64::try_from(status.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES);
    Ok((len, space))
}

/// Reserves space from `len` to `target`; where the file system cannot, by writing zeros.
pub(super) fn allocate(io: &Io, file: &OwnedFd, len: u64, target: u64) -> Result<(), Errno> {
    match io.allocate(file.as_fd(), len, target - len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(io, file, len, target),
        answer => answer,
    }
}

/// Writes zeros into the holes of a range, where the file system reports them. No other thread stores to the range:
/// where space cannot be reserved it cannot be punched either, so holes exist only in files that were copied, and they
/// are filled before their first use.
fn write_into_holes(io: &Io, file: &OwnedFd, range: Range<u64>) -> Result<(), Errno> {
    let mut at = range.start;
    while at < range.end {
        let hole = match io.next_hole(file.as_fd(), at) {
            Ok(hole) => hole,
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::NXIO) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        if hole >= range.end {
            break;
        }
        let data = match io.next_data(file.as_fd(), hole) {
            Ok(data) => data.min(range.end),
            Err(Errno::NXIO) => range.end,
            Err(errno) => return Err(errno),
        };
        write_zeros(io, file, hole, data)?;
        at = data;
    }
    Ok(())
}

fn write_zeros(io: &Io, file: &OwnedFd, start: u64, end: u64) -> Result<(), Errno> {
    let zeros = vec![0_u8; (1 << 20).min(end - start) as usize];
    let mut offset = start;
    while offset < end {
        let bytes = (zeros.len() as u64).min(end - offset);
        io.write(file.as_fd(), &zeros[..bytes as usize], offset)?;
        offset += bytes;
    }
    Ok(())
}

/// Returns the unit in which a region of this size grows: at most 1/16 of it, to bound waste, and at most 4 MiB, to
/// bound the time of a growth. A region of huge pages grows by whole huge pages as soon as one is at most a quarter of
/// it: pages added in smaller steps are copied when they become a huge page.
fn growth_step(bytes: u64, is_huge: bool) -> u64 {
    let step = (1_u64 << (bytes / 16).max(1).ilog2()).clamp(page_size() as u64, 4 << 20);
    if is_huge && bytes >= 4 * HUGE_PAGE { step.max(HUGE_PAGE) } else { step }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_in_sensible_steps() {
        let page = page_size() as u64;
        assert_eq!(growth_step(1, false), page);
        assert_eq!(growth_step(64 * page, true), 4 * page);
        assert_eq!(growth_step(8 << 20, false), 512 << 10);
        assert_eq!(growth_step(8 << 20, true), 2 << 20);
        assert_eq!(growth_step(1 << 40, true), 4 << 20);
    }
}
