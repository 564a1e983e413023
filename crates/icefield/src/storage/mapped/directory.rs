//! A table's directory: its creation or opening, its lock, its publication, and the cleanup after failures.
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
//! is not modified.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use super::creation::{
    Content, HIDDEN_NAMES, content, hidden_name, make_hidden, remove_directory, remove_files,
    remove_leftovers,
};
use super::lock_file::{
    CREATING, LOCK_FILE, Purpose, lock_directory, lock_text, locked, write_lock,
};
use super::plain_file::{file_length, odd_file, read_head};
use crate::storage::arch::Instruction;
use crate::storage::durability::Durability;
use crate::storage::io::{Access, Io, Keeper, error};
use crate::storage::mutex::lock;
use crate::storage::superblock::{self, TABLE_REGION};
use crate::{Error, Result};

/// The largest accepted length of the file [`TABLE_REGION`]. No creation makes a longer one, so a longer file is
/// damaged.
const MOST_TABLE_BYTES: u64 = 1 << 20;

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
            // Another creator made the lock file first, or has failed and removed its files.
            Err(Errno::EXIST | Errno::NOENT) => return Err(Error::AlreadyExists { path }),
            answer => answer.map_err(fault)?,
        };
        match io.try_lock(lock_file.as_fd(), true) {
            Err(Errno::WOULDBLOCK) => return Err(locked(io, &path, &lock_file)),
            answer => answer.map_err(fault)?,
        }
        // From here on, no other creator changes the directory. Before the lock was taken, another creator may have
        // completed its table or removed its files.
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
        // Verified before the lock file is created, so that a directory without a table is not modified.
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

    /// Converts the requested durability into one that the directory's file system provides.
    pub(super) fn settle_durability(&self, asked: Durability) -> Result<Durability> {
        match asked {
            Durability::Auto if self.grants_sync() => Ok(Durability::Pmem),
            Durability::Auto => {
                if self.purpose == Purpose::Write {
                    // The warning has a separate log target, so that programs that print their own warning can filter
                    // it out.
                    log::warn!(
                        target: "icefield::durability",
                        "{}: durability `process`: records survive the end of any process, but not a power cut; choose \
                         `process` to accept that, or `disk` if the table supports it",
                        self.path.display()
                    );
                }
                Ok(Durability::Process)
            }
            Durability::Pmem if self.grants_sync() => Ok(Durability::Pmem),
            Durability::Pmem => Err(Error::Unsupported(format!(
                "{}: the file system does not grant MAP_SYNC, so this is not persistent memory (or not mounted with -o \
                 dax); use durability `auto`, `process` or `disk`",
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
                        "{}: the table is on {kind}; whether it survives a power cut depends on the server",
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

/// Fails unless the directory holds a table's first file with a valid superblock. Changes nothing.
fn verify_table(io: &Io, directory: &OwnedFd, path: &Path) -> Result<()> {
    let table_path = path.join(TABLE_REGION);
    let opened = io.open_file(directory.as_fd(), OsStr::new(TABLE_REGION), Access::Read);
    let table = opened.map_err(|errno| match errno {
        Errno::NOENT => Error::NotFound { path: path.to_owned() },
        errno => odd_file(&table_path, errno),
    })?;
    let bytes = file_length(io, &table, &table_path)?;
    let head = read_head(io, &table, superblock::IDENTITY_BYTES)
        .map_err(|errno| error(&table_path, errno, 0))?;
    superblock::identify(path, &head)?;
    if bytes > MOST_TABLE_BYTES {
        let detail =
            format!("the file has {bytes} bytes, but no table writes more than {MOST_TABLE_BYTES}");
        return Err(Error::corrupt(table_path, MOST_TABLE_BYTES, detail));
    }
    Ok(())
}
