//! A table's directory: created or opened, locked, published, cleaned up.
//!
//! # Creation
//!
//! A new table is built in a hidden sibling directory, `.NAME.creating-PID`, which is renamed when the table is
//! complete. So a path holds either a complete table or none, at whatever moment the creator dies. The creator holds
//! the lock of the hidden directory. If that lock is free and the directory holds only files that a creation makes,
//! its creator has died, and the next creation under the name removes the directory.
//!
//! An empty directory at the path (a mount point, a volume of a container) cannot be replaced by a rename. There the
//! table is created in place, and becomes complete with the seal of its superblock: before the seal no opening finds a
//! table. The lock file contains `creating` until then; the next creation removes the files that a dead creator left
//! beside such a lock file.
//!
//! # Opening
//!
//! The superblock is read and verified before anything is created, locked or changed: a directory that holds no table
//! is not modified. The lock file is never truncated: its text has a fixed length and is overwritten in place.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};

use super::region_file::{file_length, odd_file};
use crate::storage::Durability;
use crate::storage::arch::Instruction;
use crate::storage::io::{Access, Io, Keeper, error, lock};
use crate::storage::superblock::{self, TABLE_REGION};
use crate::{Error, Result};

/// The file that is locked; it contains the writer's process id.
pub(super) const LOCK_FILE: &str = "lock";
/// The number of names tried for a hidden directory: other processes may be creating the same table.
const HIDDEN_NAMES: u32 = 100;
/// File names have at most 255 bytes; this many of a hidden name come from the table's name.
const HIDDEN_NAME_PART: usize = 200;
/// Fresh file systems have this directory in their root; a root without other entries counts as empty.
const LOST_AND_FOUND: &str = "lost+found";
/// Above the longest table file that a creation makes on any machine. A longer file is damaged.
const MOST_TABLE_BYTES: u64 = 1 << 20;
/// A lock file holds one line of this many bytes: a process id or blanks, and possibly [`CREATING`].
const LOCK_BYTES: usize = 20;
/// Lock files up to this length are accepted; no table writes a longer one.
const MOST_LOCK_BYTES: u64 = 32;
/// The mark in the lock file of a directory in which a table is being created in place.
const CREATING: &str = "creating";

/// The access for which a directory is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    /// Reading a table whose files no writer changes in place; takes no lock.
    ReadBeside,
    Write,
}

/// A locked directory. Dropping it releases the lock.
#[derive(Debug)]
pub(super) struct Directory {
    io: Io,
    /// The table's path, even while the directory still has its hidden name.
    path: PathBuf,
    purpose: Purpose,
    file: OwnedFd,
    lock_file: OwnedFd,
    owner: Pid,
    unpublished: Mutex<Option<Unpublished>>,
}

/// A directory whose table is not complete yet.
#[derive(Debug)]
enum Unpublished {
    /// Beside the table's path.
    Hidden { parent: OwnedFd, hidden_name: OsString, name: OsString },
    /// At the table's path, which was an empty directory.
    InPlace,
}

impl Directory {
    /// Creates and locks a hidden directory that will become `path`; if `path` is an empty directory, locks that
    /// instead.
    pub(super) fn create(io: &Io, path: &Path) -> Result<Self> {
        let path = tidy(path);
        let Some(name) = path.file_name().map(OsStr::to_owned) else {
            let detail = format!("`{}` does not end in a name", path.display());
            return Err(Error::InvalidOption { option: "path", detail });
        };
        let parent_path = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let parent =
            io.open_directory(&parent_path).map_err(|errno| error(&parent_path, errno, 0))?;
        match io.status_at(parent.as_fd(), &name) {
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(error(&path, errno, 0)),
            Ok(_) => return Self::create_in_place(io, path),
        }
        remove_leftovers(io, parent.as_fd(), &name);
        for attempt in 0..HIDDEN_NAMES {
            let hidden_name = hidden_name(&name, attempt);
            match make_hidden(io, parent.as_fd(), &hidden_name) {
                Ok(Some((file, lock_file))) => {
                    let hidden = Unpublished::Hidden { parent, hidden_name, name };
                    return Ok(Self::locked(
                        io,
                        path,
                        Purpose::Write,
                        file,
                        lock_file,
                        Some(hidden),
                    ));
                }
                Ok(None) => {}
                Err(errno) => return Err(error(&path, errno, 0)),
            }
        }
        Err(error(&path, Errno::EXIST, 0))
    }

    /// Takes over an empty directory, or one that a dead creator left incomplete.
    fn create_in_place(io: &Io, path: PathBuf) -> Result<Self> {
        let file = match io.open_directory(&path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return Err(Error::AlreadyExists { path });
            }
            answer => answer.map_err(|errno| error(&path, errno, 0))?,
        };
        let fault = |errno| error(&path.join(LOCK_FILE), errno, 0);
        let lock_file = match content(io, &file).map_err(|errno| error(&path, errno, 0))? {
            Content::Nothing => io.open_file(file.as_fd(), OsStr::new(LOCK_FILE), Access::Create),
            Content::Creation => io.open_file(file.as_fd(), OsStr::new(LOCK_FILE), Access::Write),
            Content::Other => return Err(Error::AlreadyExists { path }),
        };
        let lock_file = match lock_file {
            // Another creator was faster, or has given up meanwhile.
            Err(Errno::EXIST | Errno::NOENT) => return Err(Error::AlreadyExists { path }),
            answer => answer.map_err(fault)?,
        };
        match io.try_lock(lock_file.as_fd(), true) {
            Err(Errno::WOULDBLOCK) => return Err(locked(io, &path, &lock_file)),
            answer => answer.map_err(fault)?,
        }
        // From here on no other creator changes the directory; one may have completed its table, or removed its files,
        // before.
        let is_ours = io.status(lock_file.as_fd()).map_err(fault)?.st_nlink == 1;
        let found = content(io, &file).map_err(|errno| error(&path, errno, 0))?;
        if !is_ours || found != Content::Creation {
            return Err(Error::AlreadyExists { path });
        }
        write_lock(io, &lock_file, CREATING).map_err(fault)?;
        remove_files(io, &file);
        let unpublished = Some(Unpublished::InPlace);
        Ok(Self::locked(io, path, Purpose::Write, file, lock_file, unpublished))
    }

    fn locked(
        io: &Io,
        path: PathBuf,
        purpose: Purpose,
        file: OwnedFd,
        lock_file: OwnedFd,
        unpublished: Option<Unpublished>,
    ) -> Self {
        let (owner, unpublished) = (getpid(), Mutex::new(unpublished));
        Self { io: io.clone(), path, purpose, file, lock_file, owner, unpublished }
    }

    /// Opens and locks the directory of a table.
    pub(super) fn open(io: &Io, path: &Path, purpose: Purpose) -> Result<Self> {
        let path = tidy(path);
        let not_found = |errno| match errno {
            Errno::NOENT | Errno::NOTDIR => Error::NotFound { path: path.clone() },
            errno => error(&path, errno, 0),
        };
        let file = io.open_directory(&path).map_err(not_found)?;
        Self::lock(io, path, file, purpose)
    }

    /// Opens and locks this directory again, even if its path leads elsewhere by now.
    pub(super) fn reopen(&self, purpose: Purpose) -> Result<Self> {
        let opened = self.io.open_directory_at(self.file(), OsStr::new("."));
        let file = opened.map_err(|errno| error(&self.path, errno, 0))?;
        Self::lock(&self.io, self.path.clone(), file, purpose)
    }

    fn lock(io: &Io, path: PathBuf, file: OwnedFd, purpose: Purpose) -> Result<Self> {
        // Before the lock file is created: a directory without a table is not modified.
        verify_table(io, &file, &path)?;
        let lock_file = lock_directory(io, &file, &path, purpose)?;
        Ok(Self::locked(io, path, purpose, file, lock_file, None))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn purpose(&self) -> Purpose {
        self.purpose
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Resolves the durability requested to one that the directory's file system provides.
    pub(super) fn settle_durability(&self, asked: Durability) -> Result<Durability> {
        match asked {
            Durability::Auto if self.grants_sync() => Ok(Durability::Pmem),
            Durability::Auto => {
                if self.purpose == Purpose::Write {
                    // A separate log target: programs that print this themselves can filter it out.
                    log::warn!(
                        target: "icefield::durability",
                        "{}: durability `process`: what is stored survives the end of any process, but no power cut; \
                         choose `process` to accept that, or `disk` where the table offers it",
                        self.path.display()
                    );
                }
                Ok(Durability::Process)
            }
            Durability::Pmem if self.grants_sync() => Ok(Durability::Pmem),
            Durability::Pmem => Err(Error::Unsupported(format!(
                "{}: the file system grants no MAP_SYNC, so this is no persistent memory (or not mounted with -o dax); \
                 use durability `auto`, `process` or `disk`",
                self.path.display()
            ))),
            Durability::Memory => {
                let detail =
                    "a table in a directory is not in `memory`; use `in_memory()`".to_owned();
                Err(Error::InvalidOption { option: "durability", detail })
            }
            Durability::Disk => match self.io.keeper(self.file()) {
                Keeper::Memory => Err(Error::Unsupported(format!(
                    "{}: the file system is in memory (tmpfs or ramfs), where no sync survives a power cut; use \
                     durability `process`, or a directory on a disk",
                    self.path.display()
                ))),
                Keeper::Elsewhere(kind) => {
                    log::warn!(
                        "{}: on {kind}: what a power cut leaves depends on the server behind it",
                        self.path.display()
                    );
                    Ok(Durability::Disk)
                }
                Keeper::Local => Ok(Durability::Disk),
            },
            Durability::Process | Durability::PmemForced => Ok(asked),
        }
    }

    /// Returns whether files here can be mapped so that a written-back line is durable.
    fn grants_sync(&self) -> bool {
        Instruction::detect().is_some() && self.io.grants_sync(self.lock_file.as_fd())
    }

    /// Makes a complete table visible under its path, permanently.
    pub(super) fn publish(&self, io: &Io) -> Result<()> {
        let mut unpublished = lock(&self.unpublished);
        let Some(way) = unpublished.as_ref() else { return Ok(()) };
        let fault = |errno| match errno {
            Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR => {
                Error::AlreadyExists { path: self.path.clone() }
            }
            errno => error(&self.path, errno, 0),
        };
        io.sync_directory(self.file()).map_err(fault)?;
        match way {
            Unpublished::InPlace => write_lock(io, &self.lock_file, "").map_err(fault)?,
            Unpublished::Hidden { parent, hidden_name, name } => {
                let parent = parent.as_fd();
                io.rename(parent, hidden_name, name).map_err(fault)?;
                if let Err(errno) = io.sync_directory(parent) {
                    if !io.restore_name(parent, name, hidden_name) {
                        // The table now stays at its path, so the drop must not remove it.
                        *unpublished = None;
                    }
                    return Err(fault(errno));
                }
            }
        }
        *unpublished = None;
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A forked child shares the lock and the directory with its parent, which still uses them.
        if getpid() != self.owner {
            return;
        }
        match lock(&self.unpublished).take() {
            Some(Unpublished::Hidden { parent, hidden_name, .. }) => {
                remove_directory(&self.io, parent.as_fd(), &hidden_name, &self.file);
            }
            Some(Unpublished::InPlace) => {
                remove_files(&self.io, &self.file);
                self.io.remove_file(self.file(), OsStr::new(LOCK_FILE));
            }
            // Removes the process id: when readers lock out a later writer, its error must not name this process.
            None if self.purpose == Purpose::Write => {
                self.io.restore_content(self.lock_file.as_fd(), lock_text(None, "").as_bytes());
            }
            None => {}
        }
        // Closing the file does not suffice: a child between `fork` and `exec` may still hold it open.
        self.io.unlock(self.lock_file.as_fd());
    }
}

/// Removes trailing slashes and dots.
fn tidy(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Returns `.NAME.creating-`, the prefix of all hidden names of a table.
fn hidden_prefix(name: &OsStr) -> Vec<u8> {
    let name = name.as_bytes();
    let mut prefix = b".".to_vec();
    prefix.extend_from_slice(&name[..name.len().min(HIDDEN_NAME_PART)]);
    prefix.extend_from_slice(b".creating-");
    prefix
}

fn hidden_name(name: &OsStr, attempt: u32) -> OsString {
    let mut hidden = hidden_prefix(name);
    hidden.extend_from_slice(getpid().as_raw_nonzero().to_string().as_bytes());
    if attempt > 0 {
        hidden.extend_from_slice(format!("-{attempt}").as_bytes());
    }
    OsString::from_vec(hidden)
}

/// Creates and locks a hidden directory; `None` when the name is taken, or when another process removed the directory.
fn make_hidden(
    io: &Io,
    parent: BorrowedFd<'_>,
    hidden_name: &OsStr,
) -> Result<Option<(OwnedFd, OwnedFd)>, Errno> {
    match io.make_directory(parent, hidden_name) {
        Err(Errno::EXIST) => return Ok(None),
        answer => answer?,
    }
    match fill_hidden(io, parent, hidden_name) {
        // Another creator's cleanup found the directory before it was locked.
        Err(Errno::NOENT | Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => {
            if let Ok(directory) = Io::default().open_directory_at(parent, hidden_name) {
                remove_directory(io, parent, hidden_name, &directory);
            }
            Err(errno)
        }
        Ok(files) => Ok(Some(files)),
    }
}

fn fill_hidden(
    io: &Io,
    parent: BorrowedFd<'_>,
    hidden_name: &OsStr,
) -> Result<(OwnedFd, OwnedFd), Errno> {
    let file = io.open_directory_at(parent, hidden_name)?;
    let lock_file = io.open_file(file.as_fd(), OsStr::new(LOCK_FILE), Access::Create)?;
    io.try_lock(lock_file.as_fd(), true)?;
    if io.status(lock_file.as_fd())?.st_nlink == 0 {
        return Err(Errno::NOENT);
    }
    write_lock(io, &lock_file, "")?;
    Ok((file, lock_file))
}

/// Removes the directories that dead creators of `name` left behind. Those that cannot be removed are harmless.
fn remove_leftovers(io: &Io, parent: BorrowedFd<'_>, name: &OsStr) {
    let prefix = hidden_prefix(name);
    let Ok(names) = io.names(parent) else { return };
    for leftover in names.iter().filter(|name| name.as_bytes().starts_with(&prefix)) {
        let Ok(directory) = io.open_directory_at(parent, leftover) else { continue };
        remove_dead(io, parent, leftover, &directory);
    }
}

/// Removes a hidden directory, unless its creator is alive or it holds files that no creation makes.
fn remove_dead(io: &Io, parent: BorrowedFd<'_>, leftover: &OsStr, directory: &OwnedFd) {
    match io.open_file(directory.as_fd(), OsStr::new(LOCK_FILE), Access::Write) {
        Ok(lock_file) => {
            // A live creator holds the lock. It may have published and closed the table since the directory was opened
            // here; then the hidden name is gone, and the open directory is a table.
            let dead = io.try_lock(lock_file.as_fd(), true).is_ok();
            if dead
                && is_named(io, parent, leftover, directory)
                && is_of_creator(io, leftover, directory, &lock_file)
            {
                remove_directory(io, parent, leftover, directory);
            }
        }
        // The creator has not made the lock file, and may have died. Only an empty directory is removed.
        Err(Errno::NOENT) => io.remove_directory(parent, leftover),
        Err(_) => {}
    }
}

/// Returns whether a hidden directory holds a lock file of the process in its name and, besides, only region files.
fn is_of_creator(io: &Io, hidden_name: &OsStr, directory: &OwnedFd, lock_file: &OwnedFd) -> bool {
    let Ok(text) = read_lock(io, lock_file) else { return false };
    let named = hidden_name.to_str().and_then(|name| name.rsplit(".creating-").next());
    let named = named.and_then(|process| process.split('-').next()?.parse::<i32>().ok());
    match (pid_in(&text), named) {
        (Some(pid), Some(named)) if pid.as_raw_nonzero().get() == named => {
            holds_regions_only(io, directory).unwrap_or(false)
        }
        // The creator died before it wrote its process id.
        _ => is_empty_lock_alone(io, directory, lock_file).unwrap_or(false),
    }
}

/// The content of a directory in which a table is to be created.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Nothing,
    /// Files of an incomplete creation in place: at least the lock file.
    Creation,
    Other,
}

fn content(io: &Io, directory: &OwnedFd) -> Result<Content, Errno> {
    let names = io.names(directory.as_fd())?;
    if names.iter().all(|name| name == LOST_AND_FOUND) {
        return Ok(Content::Nothing);
    }
    let lock_file = match io.open_file(directory.as_fd(), OsStr::new(LOCK_FILE), Access::Read) {
        Ok(lock_file) if is_plain(io, &lock_file)? => lock_file,
        _ => return Ok(Content::Other),
    };
    if is_empty_lock_alone(io, directory, &lock_file)? {
        return Ok(Content::Creation);
    }
    let is_marked = read_lock(io, &lock_file)?.trim_end().ends_with(CREATING);
    let is_table = match io.open_file(directory.as_fd(), OsStr::new(TABLE_REGION), Access::Read) {
        Ok(table) => !is_unsealed(io, &table)?,
        Err(Errno::NOENT) => false,
        Err(_) => true,
    };
    match is_marked && !is_table && holds_regions_only(io, directory)? {
        true => Ok(Content::Creation),
        false => Ok(Content::Other),
    }
}

/// Returns whether a table's first file has no magic number yet.
fn is_unsealed(io: &Io, table: &OwnedFd) -> Result<bool, Errno> {
    let head = read_head(io, table)?;
    Ok(matches!(superblock::identify(Path::new(""), &head), Err(Error::NotFound { .. })))
}

/// Returns whether the directory holds only plain files with names of regions, besides the lock file.
fn holds_regions_only(io: &Io, directory: &OwnedFd) -> Result<bool, Errno> {
    for name in io.names(directory.as_fd())? {
        let is_known = name == LOCK_FILE || name.as_bytes().ends_with(b".ice");
        let is_ours = is_known && {
            let mode = io.status_at(directory.as_fd(), &name)?.st_mode;
            FileType::from_raw_mode(mode) == FileType::RegularFile
        };
        if !is_ours && name != LOST_AND_FOUND {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether a directory holds an empty lock file and no other entry.
fn is_empty_lock_alone(io: &Io, directory: &OwnedFd, lock_file: &OwnedFd) -> Result<bool, Errno> {
    let names = io.names(directory.as_fd())?;
    let is_alone = names.iter().all(|name| name == LOCK_FILE || name == LOST_AND_FOUND);
    Ok(is_alone && io.status(lock_file.as_fd())?.st_size == 0)
}

/// Removes the region files of a directory in which a table is being created in place.
fn remove_files(io: &Io, directory: &OwnedFd) {
    for name in io.remove_names(directory.as_fd()) {
        if name != LOCK_FILE && name != LOST_AND_FOUND {
            io.remove_file(directory.as_fd(), &name);
        }
    }
}

/// Returns whether `name` in `parent` is the open `directory`.
fn is_named(io: &Io, parent: BorrowedFd<'_>, name: &OsStr, directory: &OwnedFd) -> bool {
    match (io.status_at(parent, name), io.status(directory.as_fd())) {
        (Ok(named), Ok(opened)) => (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino),
        _ => false,
    }
}

/// Removes a directory and the plain files in it.
fn remove_directory(io: &Io, parent: BorrowedFd<'_>, name: &OsStr, directory: &OwnedFd) {
    for file in io.remove_names(directory.as_fd()) {
        io.remove_file(directory.as_fd(), &file);
    }
    io.remove_directory(parent, name);
}

/// Fails unless the directory holds a table's first file with a valid superblock. Changes nothing.
fn verify_table(io: &Io, directory: &OwnedFd, path: &Path) -> Result<()> {
    let table_path = path.join(TABLE_REGION);
    let opened = io.open_file(directory.as_fd(), OsStr::new(TABLE_REGION), Access::Read);
    let table = opened.map_err(|errno| match errno {
        Errno::NOENT => Error::NotFound { path: path.to_owned() },
        errno => odd_file(&table_path, errno),
    })?;
    let bytes = file_length(io, &table, &table_path)?;
    let head = read_head(io, &table).map_err(|errno| error(&table_path, errno, 0))?;
    superblock::identify(path, &head)?;
    if bytes > MOST_TABLE_BYTES {
        let detail = format!("{bytes} bytes; no table's are more than {MOST_TABLE_BYTES}");
        return Err(Error::corrupt(table_path, MOST_TABLE_BYTES, detail));
    }
    Ok(())
}

/// Returns the first bytes of a table's first file: those of an identity, or fewer if the file is shorter.
fn read_head(io: &Io, table: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let mut head = vec![0; superblock::IDENTITY_BYTES];
    let mut done = 0;
    while done < head.len() {
        match io.read(table.as_fd(), &mut head[done..], done as u64)? {
            0 => break,
            bytes => done += bytes,
        }
    }
    head.truncate(done);
    Ok(head)
}

/// Locks a table's directory. The error names the process that holds the lock.
fn lock_directory(io: &Io, directory: &OwnedFd, path: &Path, purpose: Purpose) -> Result<OwnedFd> {
    let lock_path = path.join(LOCK_FILE);
    let open = |access| io.open_file(directory.as_fd(), OsStr::new(LOCK_FILE), access);
    let opened = match purpose {
        Purpose::Read | Purpose::ReadBeside => open(Access::Read),
        Purpose::Write => match open(Access::Write) {
            Err(Errno::NOENT) => match open(Access::Create) {
                // Another opening has created it meanwhile.
                Err(Errno::EXIST) => open(Access::Write),
                answer => answer,
            },
            answer => answer,
        },
    };
    let lock_file = opened.map_err(|errno| match errno {
        Errno::NOENT => {
            Error::corrupt(&lock_path, 0, "missing; opening the table for writing restores it")
        }
        errno => odd_file(&lock_path, errno),
    })?;
    let bytes = file_length(io, &lock_file, &lock_path)?;
    if bytes > MOST_LOCK_BYTES {
        let detail = format!("{bytes} bytes, which no table wrote; move the file away");
        return Err(Error::corrupt(&lock_path, 0, detail));
    }
    if purpose == Purpose::ReadBeside {
        return Ok(lock_file);
    }
    match io.try_lock(lock_file.as_fd(), purpose == Purpose::Write) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(locked(io, path, &lock_file)),
        Err(errno) => return Err(error(&lock_path, errno, 0)),
    }
    if purpose == Purpose::Write {
        write_lock(io, &lock_file, "").map_err(|errno| error(&lock_path, errno, 0))?;
    }
    Ok(lock_file)
}

fn locked(io: &Io, path: &Path, lock_file: &OwnedFd) -> Error {
    Error::Locked { path: path.to_owned(), pid: holder(io, lock_file) }
}

fn is_plain(io: &Io, file: &OwnedFd) -> Result<bool, Errno> {
    let status = io.status(file.as_fd())?;
    Ok(FileType::from_raw_mode(status.st_mode) == FileType::RegularFile && status.st_nlink == 1)
}

/// Returns the text of a lock file. It has a fixed length, so that each text replaces the previous one.
fn lock_text(pid: Option<Pid>, mark: &str) -> String {
    const MARK: usize = LOCK_BYTES - 11;
    let pid = pid.map(|pid| pid.as_raw_nonzero().to_string()).unwrap_or_default();
    format!("{pid:>10}{mark:>MARK$}\n")
}

fn write_lock(io: &Io, lock_file: &OwnedFd, mark: &str) -> Result<(), Errno> {
    io.write(lock_file.as_fd(), lock_text(Some(getpid()), mark).as_bytes(), 0)
}

/// Returns the first line of a lock file; empty when it is not valid UTF-8.
fn read_lock(io: &Io, lock_file: &OwnedFd) -> Result<String, Errno> {
    let mut text = [0; MOST_LOCK_BYTES as usize];
    let bytes = io.read(lock_file.as_fd(), &mut text, 0)?;
    let text = std::str::from_utf8(&text[..bytes]).unwrap_or_default();
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn pid_in(text: &str) -> Option<Pid> {
    let number = text.split_whitespace().next()?.parse::<i32>().ok()?;
    if number > 0 { Pid::from_raw(number) } else { None }
}

/// Returns the process that holds the lock; 0 when the file names none, or a dead one.
fn holder(io: &Io, lock_file: &OwnedFd) -> u32 {
    let Ok(text) = read_lock(io, lock_file) else { return 0 };
    match pid_in(&text) {
        Some(pid) if test_kill_process(pid) != Err(Errno::SRCH) => {
            pid.as_raw_nonzero().get().unsigned_abs()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_was_published_meanwhile_is_no_leftover() {
        let io = Io::default();
        let scratch = tempfile::tempdir().unwrap();
        let parent = io.open_directory(scratch.path()).unwrap();
        let hidden = OsStr::new(".t.creating-1");
        let table = scratch.path().join("t");
        std::fs::create_dir(scratch.path().join(hidden)).unwrap();
        for file in [LOCK_FILE, TABLE_REGION] {
            std::fs::write(scratch.path().join(hidden).join(file), "1\n").unwrap();
        }
        let directory = io.open_directory_at(parent.as_fd(), hidden).unwrap();
        std::fs::rename(scratch.path().join(hidden), &table).unwrap();
        remove_dead(&io, parent.as_fd(), hidden, &directory);
        assert!(table.join(TABLE_REGION).exists());
        std::fs::rename(&table, scratch.path().join(hidden)).unwrap();
        remove_dead(&io, parent.as_fd(), hidden, &directory);
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
