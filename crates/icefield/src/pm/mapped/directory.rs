//! A table's directory: found or made, locked, published, cleaned up.
//!
//! # Creation
//!
//! A new table grows in a hidden sibling, `.NAME.creating-PID`, and gets its name when it is complete. So a path either
//! holds a whole table or none, whenever the creator dies. Its lock file is locked all the while: a hidden directory
//! whose lock is free belongs to nobody alive, and the next creation under the name removes it.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};

use crate::pm::Durability;
use crate::pm::arch::Instruction;
use crate::pm::io::{Access, Io, error, lock};
use crate::pm::superblock::TABLE_REGION;
use crate::{Error, Result};

/// The file that is locked, with the writer's process id in it.
pub(super) const LOCK_FILE: &str = "lock";
/// How many names are tried for a hidden directory: others may be creating the same table.
const HIDDEN_NAMES: u32 = 100;
/// Names are at most 255 bytes long; the hidden one needs some for itself.
const HIDDEN_NAME_PART: usize = 200;

/// What a directory is open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    /// Reading what no writer changes in place; locks nobody out.
    ReadBeside,
    Write,
}

/// A locked directory. The lock ends with it.
#[derive(Debug)]
pub(super) struct Directory {
    io: Io,
    /// The table's path, also while the directory still has its hidden name.
    path: PathBuf,
    purpose: Purpose,
    file: OwnedFd,
    lock_file: OwnedFd,
    owner: Pid,
    unpublished: Mutex<Option<Hidden>>,
}

/// A directory on its way to being a table.
#[derive(Debug)]
struct Hidden {
    parent: OwnedFd,
    hidden_name: OsString,
    name: OsString,
}

impl Directory {
    /// Makes and locks a hidden directory that will become `path`.
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
            Ok(_) => return Err(Error::AlreadyExists { path }),
        }
        remove_leftovers(io, parent.as_fd(), &name);
        for attempt in 0..HIDDEN_NAMES {
            let hidden_name = hidden_name(&name, attempt);
            match make_hidden(io, parent.as_fd(), &hidden_name) {
                Ok(Some((file, lock_file))) => {
                    let unpublished = Mutex::new(Some(Hidden { parent, hidden_name, name }));
                    let (purpose, owner) = (Purpose::Write, getpid());
                    let io = io.clone();
                    return Ok(Self { io, path, purpose, file, lock_file, owner, unpublished });
                }
                Ok(None) => {}
                Err(errno) => return Err(error(&path, errno, 0)),
            }
        }
        Err(error(&path, Errno::EXIST, 0))
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

    /// Opens and locks this directory again, wherever its path leads by now.
    pub(super) fn reopen(&self, purpose: Purpose) -> Result<Self> {
        let opened = self.io.open_directory_at(self.file(), OsStr::new("."));
        let file = opened.map_err(|errno| error(&self.path, errno, 0))?;
        Self::lock(&self.io, self.path.clone(), file, purpose)
    }

    fn lock(io: &Io, path: PathBuf, file: OwnedFd, purpose: Purpose) -> Result<Self> {
        let not_found = |errno| match errno {
            Errno::NOENT => Error::NotFound { path: path.clone() },
            errno => error(&path, errno, 0),
        };
        // Before the lock file is created: a directory that is no table stays as it is.
        io.status_at(file.as_fd(), OsStr::new(TABLE_REGION)).map_err(not_found)?;
        let lock_file = lock_directory(io, &file, &path, purpose)?;
        let (owner, unpublished) = (getpid(), Mutex::new(None));
        Ok(Self { io: io.clone(), path, purpose, file, lock_file, owner, unpublished })
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

    /// What the directory's file system can keep, given what was asked for.
    pub(super) fn settle_durability(&self, asked: Durability) -> Result<Durability> {
        match asked {
            Durability::Auto if self.grants_sync() => Ok(Durability::Pmem),
            Durability::Auto => Ok(Durability::Process),
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
            Durability::Process | Durability::PmemForced | Durability::Disk => Ok(asked),
        }
    }

    /// Whether files here can be mapped so that a written-back line is durable.
    fn grants_sync(&self) -> bool {
        Instruction::detect().is_some() && self.io.grants_sync(self.lock_file.as_fd())
    }

    /// Gives a complete table its name, for good.
    pub(super) fn publish(&self, io: &Io) -> Result<()> {
        let mut unpublished = lock(&self.unpublished);
        let Some(hidden) = unpublished.as_ref() else { return Ok(()) };
        let fault = |errno| match errno {
            Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR => {
                Error::AlreadyExists { path: self.path.clone() }
            }
            errno => error(&self.path, errno, 0),
        };
        io.sync_directory(self.file()).map_err(fault)?;
        let parent = hidden.parent.as_fd();
        io.rename(parent, &hidden.hidden_name, &hidden.name).map_err(fault)?;
        if let Err(errno) = io.sync_directory(parent) {
            if !io.restore_name(parent, &hidden.name, &hidden.hidden_name) {
                // Now it is the table at its path that must not be removed.
                *unpublished = None;
            }
            return Err(fault(errno));
        }
        *unpublished = None;
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A forked child shares the lock and the directory with its parent, who goes on using them.
        if getpid() != self.owner {
            return;
        }
        if let Some(hidden) = lock(&self.unpublished).take() {
            remove_directory(&self.io, hidden.parent.as_fd(), &hidden.hidden_name, &self.file);
        } else if self.purpose == Purpose::Write {
            // Readers that lock out a later writer shall not be taken for us.
            self.io.restore_length(self.lock_file.as_fd(), 0);
        }
        // Closing the file would do, were it not for children between `fork` and `exec` that hold it open, too.
        self.io.unlock(self.lock_file.as_fd());
    }
}

/// The path without trailing slashes and dots.
fn tidy(path: &Path) -> PathBuf {
    path.components().collect()
}

/// `.NAME.creating-`, what all hidden names of a table begin with.
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

/// Makes and locks a hidden directory; `None` when the name is taken, or was taken from us.
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
        // Somebody who cleans up has found the directory before it was locked.
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
    write_pid(io, &lock_file)?;
    Ok((file, lock_file))
}

/// Removes what creators of `name` left behind when they died. What cannot be removed stays: it harms nobody.
fn remove_leftovers(io: &Io, parent: BorrowedFd<'_>, name: &OsStr) {
    let prefix = hidden_prefix(name);
    let Ok(names) = io.names(parent) else { return };
    for leftover in names.iter().filter(|name| name.as_bytes().starts_with(&prefix)) {
        let Ok(directory) = io.open_directory_at(parent, leftover) else { continue };
        remove_dead(io, parent, leftover, &directory);
    }
}

/// Removes a hidden directory unless its creator lives.
fn remove_dead(io: &Io, parent: BorrowedFd<'_>, leftover: &OsStr, directory: &OwnedFd) {
    match io.open_file(directory.as_fd(), OsStr::new(LOCK_FILE), Access::Write) {
        Ok(lock_file) => {
            // Its creator holds the lock as long as it lives. It may have published and closed the table since the
            // directory was opened here: then the hidden name is gone, and what is open is a table.
            let dead = io.try_lock(lock_file.as_fd(), true).is_ok();
            if dead && is_named(io, parent, leftover, directory) {
                remove_directory(io, parent, leftover, directory);
            }
        }
        // Died, or is, between making the directory and the file; only an empty one goes.
        Err(Errno::NOENT) => io.remove_directory(parent, leftover),
        Err(_) => {}
    }
}

/// Whether `directory` is what `name` stands for.
fn is_named(io: &Io, parent: BorrowedFd<'_>, name: &OsStr, directory: &OwnedFd) -> bool {
    match (io.status_at(parent, name), io.status(directory.as_fd())) {
        (Ok(named), Ok(opened)) => (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino),
        _ => false,
    }
}

/// Removes a directory with the plain files in it.
fn remove_directory(io: &Io, parent: BorrowedFd<'_>, name: &OsStr, directory: &OwnedFd) {
    for file in io.remove_names(directory.as_fd()) {
        io.remove_file(directory.as_fd(), &file);
    }
    io.remove_directory(parent, name);
}

/// Locks a table's directory, or says who has it.
fn lock_directory(io: &Io, directory: &OwnedFd, path: &Path, purpose: Purpose) -> Result<OwnedFd> {
    let lock_path = path.join(LOCK_FILE);
    let access = if purpose == Purpose::Write { Access::WriteOrCreate } else { Access::Read };
    let lock_file = io.open_file(directory.as_fd(), OsStr::new(LOCK_FILE), access).map_err(
        |errno| match errno {
            Errno::NOENT => {
                Error::corrupt(&lock_path, 0, "missing; opening the table for writing restores it")
            }
            Errno::LOOP | Errno::ISDIR | Errno::NXIO => {
                Error::corrupt(&lock_path, 0, "not a plain file")
            }
            errno => error(&lock_path, errno, 0),
        },
    )?;
    if purpose == Purpose::ReadBeside {
        return Ok(lock_file);
    }
    match io.try_lock(lock_file.as_fd(), purpose == Purpose::Write) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(Error::Locked { pid: holder(io, &lock_file) }),
        Err(errno) => return Err(error(&lock_path, errno, 0)),
    }
    if purpose == Purpose::Write {
        let written = io.set_length(lock_file.as_fd(), 0).and_then(|()| write_pid(io, &lock_file));
        written.map_err(|errno| error(&lock_path, errno, 0))?;
    }
    Ok(lock_file)
}

fn write_pid(io: &Io, lock_file: &OwnedFd) -> Result<(), Errno> {
    io.write(lock_file.as_fd(), format!("{}\n", getpid().as_raw_nonzero()).as_bytes(), 0)
}

/// The process that has the lock; 0 when the file does not say, or names one that is dead.
fn holder(io: &Io, lock_file: &OwnedFd) -> u32 {
    let mut text = [0; 16];
    let Ok(bytes) = io.read(lock_file.as_fd(), &mut text, 0) else { return 0 };
    let digits = std::str::from_utf8(&text[..bytes]).unwrap_or_default().trim();
    let number = digits.parse::<i32>().ok().filter(|number| *number > 0);
    let Some(pid) = number.and_then(Pid::from_raw) else { return 0 };
    if test_kill_process(pid) == Err(Errno::SRCH) {
        return 0;
    }
    pid.as_raw_nonzero().get().unsigned_abs()
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
            std::fs::write(scratch.path().join(hidden).join(file), "").unwrap();
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
