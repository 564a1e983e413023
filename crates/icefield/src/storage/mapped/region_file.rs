//! One region: a file that grows underneath its mapping. The mapping is extended in place or, where that is not
//! possible, the file is mapped a second time at a larger range.

mod space;

use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use rustix::param::page_size;

use super::budget::Budget;
use super::directory::Directory;
use super::holes::Holes;
use super::lock_file::LOCK_FILE;
use super::options::HugePages;
use super::plain_file::{allocate, file_length, length_and_space, odd_file};
use super::reservation::{Content, HUGE_PAGE, LEAST_RESERVATION, Reservation, round_up};
use super::room::{self, Refusal};
use super::setting::{Backing, Failure, Outcome, Setting};
use crate::Error;
use crate::storage::io::{Access, Io, Keeper, error};
use crate::storage::mutex::lock;
use crate::storage::region::Region;

/// The bound of a region whose table specifies none.
const DEFAULT_BOUND: u64 = 1 << 40;
/// The largest number of new bytes that one growth of a file in use maps or puts into huge pages. More would make the
/// growth take much longer.
const MAPPED_AT_ONCE: u64 = 64 << 20;
/// With less free space than this, a file system may fail at a first store to a reserved page.
const NEARLY_FULL: u64 = 1 << 30;

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
    keeps_holes: bool,
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
    /// Opens or creates the file `name` and maps it. Unless the owner keeps holes, they are filled.
    pub(super) fn open(
        setting: &Setting<'_>,
        name: &'static str,
        max_bytes: u64,
        keeps_holes: bool,
    ) -> Outcome<Self> {
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
            keeps_holes,
            has_holes: AtomicBool::new(space < len),
            holes: Mutex::default(),
            growing,
            _directory: directory,
        };
        opened.advise_huge_pages(setting, len);
        // A file with holes is not collapsed, because that would fill them.
        if setting.huge_pages == HugePages::All && space >= len {
            opened.collapse_from(0);
        }
        if !keeps_holes {
            opened.fill_holes(setting)?;
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

    /// Returns the offset of a range in the region; `None` if the range does not lie in it.
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
        // First tries more than requested, so that growing is rare; if that does not fit, tries only the bytes
        // requested.
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
                    let is_full = matches!(failure.error, Error::NoSpace { .. });
                    if failure.poisons || !is_full || target == bytes {
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
                // A new file is extended by huge pages, however long that takes. A file in use gets huge pages only if
                // the growth is at most `MAPPED_AT_ONCE`, because its writers wait.
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

    /// Maps reserved pages, for two reasons: one call is cheaper than a fault for each page, and it returns an error
    /// where a first store would raise a signal because there is no space for the file's metadata (ext4 splits extents
    /// at that store). If the file system is not nearly full, does nothing for a long range, or if fences sync pages: a
    /// sync would write the new pages while they are still empty.
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

    /// Extends a file by the huge pages that lie wholly between the lengths `len` and `target`, where the kernel can.
    /// Allocates only the last small page of each huge page: the kernel then only zeroes the rest of the huge page. If
    /// all 512 small pages were allocated, the kernel would allocate them one by one, and then copy them into the huge
    /// page. Failures are ignored here: the usual allocation that follows reports them.
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
            .syncs
            .sync_alone(&|| setting.io.sync_data(file.as_fd()))
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
        // All mappings show the pages of the file, so it does not matter through which mapping they were changed.
        self.newest().sync(range)
    }

    /// Writes to the file by a system call instead of its mapping.
    pub(super) fn write(&self, io: &Io, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let file = self.file.as_ref().ok_or(Errno::BADF)?;
        io.write(file.as_fd(), bytes, offset)
    }

    /// Puts the file into huge pages from byte `len` on, including the huge page that contains that byte.
    fn collapse_from(&self, len: u64) {
        if self.is_huge {
            let range = len / HUGE_PAGE * HUGE_PAGE..self.region.len();
            self.newest().collapse(range);
        }
    }

    /// Returns whether the owner keeps holes: such a file consists of blocks that are read in any order.
    pub(super) fn keeps_holes(&self) -> bool {
        self.keeps_holes
    }

    fn advise_huge_pages(&self, setting: &Setting<'_>, len: u64) {
        if self.backing != Backing::Private && !setting.syncs_pages {
            self.newest().advise_huge_pages(len);
        }
    }
}

/// Returns how much of a region with `len` bytes and bound `most` is mapped at first, at least [`LEAST_RESERVATION`]. A
/// shared file, or memory, gets twice its length, which costs only addresses. Memory cannot be mapped a second time, so
/// it also gets at least a 32nd of `most`, up to 64 MiB. A private mapping gets an eighth more than its length.
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
    Err(Error::InvalidOption {
        option: "region",
        detail: format!("`{name}` is not a region's name"),
    })
}

/// Opens the file `name`. If it is missing, creates it, or returns `None` for a reader.
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

/// Returns the unit in which a region of this size grows: one page, or at most 1/16 of the size, to bound waste, and at
/// most 4 MiB, to bound the time of a growth. A region of huge pages grows by whole huge pages once it is four huge
/// pages long: pages added in smaller steps are copied when they become a huge page.
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
