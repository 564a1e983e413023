//! One region: address space reserved once, a file mapped over it, grown underneath.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::param::page_size;

use super::directory::Directory;
use crate::Error;
use crate::pm::Region;
use crate::pm::io::{Access, Io, Sharing, error, lock};

/// Address space for a region whose table named no bound.
const DEFAULT_RESERVATION: u64 = 1 << 40;
/// Below this a smaller reservation is no help: the region would soon be full.
const LEAST_RESERVATION: u64 = 1 << 30;
/// The kernel backs an aligned range of this size by one page table entry, where it can.
const HUGE_PAGE: u64 = 2 << 20;

/// What lies behind a region's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    /// Anonymous memory.
    Memory,
    /// The file, shared.
    Shared,
    /// The file, shared, on persistent memory.
    SharedSync,
    /// Private copies of the file's pages.
    Private,
}

/// What a region needs to know of its medium.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) io: &'a Io,
    /// The table's directory, for error messages.
    pub(super) path: &'a Path,
    pub(super) directory: Option<&'a Arc<Directory>>,
    pub(super) backing: Backing,
    /// Whether a file's length and a new file's name must be synced before anything relies on them.
    pub(super) syncs_status: bool,
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

/// How many bytes all regions of a table together may still take.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    taken: AtomicU64,
}

impl Budget {
    pub(super) fn new(limit: Option<u64>) -> Self {
        Self { limit: limit.unwrap_or(u64::MAX), taken: AtomicU64::new(0) }
    }

    /// Counts what is there already, whatever the limit says.
    pub(super) fn take_unchecked(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    fn take(&self, bytes: u64) -> bool {
        // Relaxed: the count guards nothing but itself.
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            taken.checked_add(bytes).filter(|sum| *sum <= self.limit)
        });
        taken.is_ok()
    }

    fn give(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A run of addresses that belongs to us.
#[derive(Debug)]
struct Reservation {
    base: NonNull<u8>,
    bytes: usize,
    io: Io,
}

// SAFETY: plain address space; who touches it obeys the contracts of `Region`.
unsafe impl Send for Reservation {}
// SAFETY: as above.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `bytes` (a multiple of the page size), aligned for huge pages when it is large enough for them.
    fn new(io: &Io, bytes: u64) -> Result<Self, Errno> {
        let slack = if bytes >= HUGE_PAGE { HUGE_PAGE } else { 0 };
        let bytes = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        let total = bytes.checked_add(slack as usize).ok_or(Errno::NOMEM)?;
        let start = io.reserve_addresses(total)?;
        let skipped = if slack == 0 {
            0
        } else {
            start.addr().get().wrapping_neg() & (HUGE_PAGE as usize - 1)
        };
        // SAFETY: `skipped` is less than the slack, so all three parts lie inside the reservation, on page borders; the
        // two that are given back are in nobody's use.
        unsafe {
            let base = start.add(skipped);
            if skipped > 0 {
                io.unmap(start, skipped);
            }
            if slack as usize > skipped {
                io.unmap(base.add(bytes), slack as usize - skipped);
            }
            Ok(Self { base, bytes, io: io.clone() })
        }
    }

    /// Maps zeros from byte `offset` up to `end`, both on page borders.
    ///
    /// # Safety
    /// Nobody uses that range.
    unsafe fn map_zeros(&self, offset: u64, end: u64) -> Result<(), Errno> {
        debug_assert!(offset < end && end <= self.bytes as u64, "zeros go inside the reservation");
        // SAFETY: inside the reservation; unused by the caller's contract.
        unsafe { self.io.map_zeros(self.base.add(offset as usize), (end - offset) as usize) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: ours; every `Region` over it keeps it alive, so nobody uses it any more.
        unsafe { self.io.unmap(self.base, self.bytes) };
    }
}

/// A region with what lies behind it.
#[derive(Debug)]
pub(super) struct RegionFile {
    region: Region,
    path: PathBuf,
    backing: Backing,
    file: Option<OwnedFd>,
    reservation: Reservation,
    /// One growth at a time.
    growing: Mutex<()>,
    /// Keeps the table locked while anything of it is mapped.
    _directory: Option<Arc<Directory>>,
}

impl RegionFile {
    /// Opens or creates the file `name` and maps it.
    pub(super) fn open(setting: &Setting<'_>, name: &'static str, max_bytes: u64) -> Outcome<Self> {
        let path = setting.path.join(name);
        let file = match setting.directory {
            Some(directory) => open_file(setting, directory, name, &path)?,
            None => None,
        };
        let len = match &file {
            Some(file) => file_length(setting.io, file, &path)?,
            None => 0,
        };
        let wanted = round_up(max_bytes.clamp(1, DEFAULT_RESERVATION).max(len), page_size() as u64);
        let reservation = map_halving(setting, file.as_ref(), wanted, len)
            .map_err(|errno| error(&path, errno, wanted))?;
        // SAFETY: the reservation is page-aligned and as long as it says, `len` bytes of the file lie behind it, and
        // handles keep it alive (`RegionFile::handle`).
        let region = unsafe { Region::new(name, reservation.base, len, reservation.bytes as u64) };
        let directory = setting.directory.cloned();
        let growing = Mutex::new(());
        let opened = Self {
            region,
            path,
            backing: setting.backing,
            file,
            reservation,
            growing,
            _directory: directory,
        };
        opened.advise_huge_pages(len);
        Ok(opened)
    }

    /// The region, without a hold on its mapping.
    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// The region as tables get it.
    pub(super) fn handle(this: &Arc<Self>) -> Region {
        this.region.kept_by(Arc::<Self>::clone(this))
    }

    /// Where in the region the range lies, if it does.
    pub(super) fn offset_of(&self, start: *const u8, bytes: usize) -> Option<u64> {
        let offset = start.addr().checked_sub(self.reservation.base.addr().get())?;
        (offset.checked_add(bytes)? <= self.reservation.bytes).then_some(offset as u64)
    }

    /// Makes at least `bytes` usable.
    pub(super) fn grow(&self, setting: &Setting<'_>, budget: &Budget, bytes: u64) -> Outcome<()> {
        let _one_at_a_time = lock(&self.growing);
        let len = self.region.len();
        if bytes <= len {
            return Ok(());
        }
        let no_space = || Error::NoSpace { path: self.path.clone(), needed_bytes: bytes - len };
        if bytes > self.region.max_bytes() {
            return Err(no_space().into());
        }
        // More than was asked for, so that growing is rare; no more than that when there is no room for more.
        let generous = round_up(bytes, growth_step(bytes)).min(self.region.max_bytes());
        let exact = round_up(bytes, page_size() as u64).min(self.region.max_bytes());
        for target in [generous, exact, bytes] {
            if !budget.take(target - len) {
                continue;
            }
            match self.extend(setting, len, target) {
                Ok(()) => {
                    self.region.set_len(target);
                    self.advise_huge_pages(target);
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

    /// Puts zeros behind the addresses from `len` to `target`.
    fn extend(&self, setting: &Setting<'_>, len: u64, target: u64) -> Outcome<()> {
        let fault = |errno| Failure::from(error(&self.path, errno, target - len));
        match (self.backing, &self.file) {
            (Backing::Memory, _) => Ok(()),
            (Backing::Private, _) => {
                let page = page_size() as u64;
                let (from, to) = (round_up(len, page), round_up(target, page));
                if from < to {
                    // SAFETY: behind the published length nobody uses the range.
                    unsafe { self.reservation.map_zeros(from, to) }.map_err(fault)?;
                }
                Ok(())
            }
            (_, None) => Err(fault(Errno::BADF)),
            (_, Some(file)) => {
                self.check_length(setting.io, file, len)?;
                allocate(setting.io, file, len, target).map_err(|errno| {
                    setting.io.restore_length(file.as_fd(), len);
                    fault(errno)
                })?;
                self.sync_status(setting, file)
            }
        }
    }

    /// Fails when the file is shorter than what is in use.
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
        let page = page_size() as u64;
        let start = range.start / page * page;
        let end = round_up(range.end, page).min(self.reservation.bytes as u64);
        // SAFETY: on page borders inside the reservation.
        unsafe {
            self.reservation
                .io
                .sync_mapping(self.reservation.base.add(start as usize), (end - start) as usize)
        }
    }

    /// Gives the pages wholly inside the range back.
    pub(super) fn punch(&self, setting: &Setting<'_>, offset: u64, bytes: u64) -> Outcome<()> {
        let page = page_size() as u64;
        let end = offset.saturating_add(bytes).min(self.region.len()) / page * page;
        let start = round_up(offset.min(end), page);
        if start >= end {
            return Ok(());
        }
        let fault = |errno| Failure::from(error(&self.path, errno, 0));
        match (&self.file, self.backing) {
            (Some(file), Backing::Shared | Backing::SharedSync) => {
                match setting.io.punch_hole(file.as_fd(), start, end - start) {
                    // The space stays taken, but what the caller relies on holds: the range reads as zeros.
                    Err(Errno::OPNOTSUPP) => {
                        write_zeros(setting.io, file, start, end).map_err(fault)?
                    }
                    answer => answer.map_err(fault)?,
                }
                self.sync_status(setting, file)
            }
            // SAFETY: the caller uses nothing in a range that it gives back.
            _ => unsafe { self.reservation.map_zeros(start, end) }.map_err(fault),
        }
    }

    /// Takes space for a range back that may have been punched.
    pub(super) fn reserve(&self, setting: &Setting<'_>, offset: u64, bytes: u64) -> Outcome<()> {
        let end = offset.saturating_add(bytes).min(self.region.len());
        let (Some(file), Backing::Shared | Backing::SharedSync) = (&self.file, self.backing) else {
            return Ok(());
        };
        if offset >= end {
            return Ok(());
        }
        match setting.io.allocate(file.as_fd(), offset, end - offset) {
            // File systems that cannot reserve cannot punch either.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(error(&self.path, errno, end - offset).into()),
        }
    }

    /// Asks for huge pages as soon as the region fills one: a small table shall not take 2 MiB a region.
    fn advise_huge_pages(&self, len: u64) {
        let end = round_up(len, HUGE_PAGE).min(self.region.max_bytes());
        if len >= HUGE_PAGE && self.backing != Backing::Private {
            // SAFETY: a part of the reservation, mapped by `open`.
            unsafe { self.reservation.io.advise_huge_pages(self.reservation.base, end as usize) };
        }
    }
}

/// The file `name`, created where there is none; `None` where a reader finds none.
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

/// What opening a region's file failed with: some answers mean that no table has put it there.
pub(super) fn odd_file(path: &Path, errno: Errno) -> Error {
    match errno {
        Errno::LOOP => Error::corrupt(path, 0, "a symbolic link; a table's files are plain ones"),
        Errno::ISDIR | Errno::NXIO => Error::corrupt(path, 0, "not a plain file"),
        errno => error(path, errno, 0),
    }
}

/// The length of a file that must be a plain one.
pub(super) fn file_length(io: &Io, file: &OwnedFd, path: &Path) -> Result<u64, Error> {
    let status = io.status(file.as_fd()).map_err(|errno| error(path, errno, 0))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(Error::corrupt(path, 0, "not a plain file"));
    }
    u64::try_from(status.st_size).map_err(|_| Error::corrupt(path, 0, "a negative length"))
}

/// Reserves `wanted` bytes and maps the file (or zeros) over them; half as much, and half of that, while the system has no
/// address space for it.
fn map_halving(
    setting: &Setting<'_>,
    file: Option<&OwnedFd>,
    wanted: u64,
    len: u64,
) -> Result<Reservation, Errno> {
    let page = page_size() as u64;
    let least = round_up(len, page).max(wanted.min(LEAST_RESERVATION));
    let mut bytes = wanted;
    loop {
        match map(setting, file, bytes) {
            Err(Errno::NOMEM | Errno::OVERFLOW) if bytes > least => bytes = (bytes / 2).max(least),
            answer => return answer,
        }
    }
}

fn map(setting: &Setting<'_>, file: Option<&OwnedFd>, bytes: u64) -> Result<Reservation, Errno> {
    let io = setting.io;
    let reservation = Reservation::new(io, bytes)?;
    let (base, bytes) = (reservation.base, reservation.bytes);
    let sharing = match setting.backing {
        Backing::Memory | Backing::Private => Sharing::Private,
        Backing::Shared => Sharing::Shared,
        Backing::SharedSync => Sharing::SharedSync,
    };
    match file {
        // SAFETY: the reservation is new.
        Some(file) => unsafe { io.map_file(base, bytes, file.as_fd(), sharing) }?,
        // SAFETY: as above.
        None => unsafe { io.map_zeros(base, bytes) }?,
    }
    Ok(reservation)
}

/// Reserves space from `len` to `target`; on file systems that cannot, by writing zeros.
pub(super) fn allocate(io: &Io, file: &OwnedFd, len: u64, target: u64) -> Result<(), Errno> {
    match io.allocate(file.as_fd(), len, target - len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(io, file, len, target),
        answer => answer,
    }
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

/// In what units a region of this size grows: 1/16 of it at most, so that little is wasted, and 4 MiB at most, so that no
/// growth takes long.
fn growth_step(bytes: u64) -> u64 {
    (1_u64 << (bytes / 16).max(1).ilog2()).clamp(page_size() as u64, 4 << 20)
}

/// The next multiple of `unit`, a power of two; the last one there is when that overflows.
fn round_up(bytes: u64, unit: u64) -> u64 {
    bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX - (unit - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_in_sensible_steps() {
        let page = page_size() as u64;
        assert_eq!(growth_step(1), page);
        assert_eq!(growth_step(64 * page), 4 * page);
        assert_eq!(growth_step(1 << 40), 4 << 20);
    }

    #[test]
    fn rounds_up_without_overflowing() {
        assert_eq!(round_up(0, 4096), 0);
        assert_eq!(round_up(1, 4096), 4096);
        assert_eq!(round_up(4096, 4096), 4096);
        assert_eq!(round_up(u64::MAX, 4096), u64::MAX - 4095);
    }

    #[test]
    fn a_budget_is_never_overdrawn() {
        let budget = Budget::new(Some(100));
        assert!(budget.take(60));
        assert!(!budget.take(41));
        assert!(budget.take(40));
        assert!(!budget.take(1));
        budget.give(40);
        assert!(budget.take(1));
        assert!(!budget.take(u64::MAX));
    }

    #[test]
    fn large_reservations_are_aligned_for_huge_pages() {
        let io = Io::default();
        for bytes in [4096 * 16, HUGE_PAGE, 3 * HUGE_PAGE + 65536] {
            let reservation = Reservation::new(&io, bytes).unwrap();
            assert_eq!(reservation.bytes as u64, bytes);
            let alignment = if bytes >= HUGE_PAGE { HUGE_PAGE as usize } else { page_size() };
            assert_eq!(reservation.base.addr().get() % alignment, 0);
        }
    }
}
