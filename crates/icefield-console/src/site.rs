//! The hidden directory in which an index or a salvaged table is built. It also holds the files that the command stores
//! with the table.
//!
//! The directory `.NAME.building-XXXXXX`, beside the target, holds the table during the build. The library builds
//! the table in it, then the command writes and syncs its own files. Finally, one rename moves the table to its
//! name, or exchanges it with the index that it replaces. At any moment, there is therefore the old index with its
//! stamp, the new one with its stamp, or none. The building process locks the hidden directory. A process that died
//! leaves an unlocked one. The next build of the same name removes it, unless it contains anything that a build does
//! not create.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use icefield::Error;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::failure::Failure;

/// The name of the table inside the hidden directory.
const TABLE: &str = "table";
/// The number of attempts to create a hidden directory. An attempt fails if another process removes the directory as a
/// leftover before this process has locked it.
const ATTEMPTS: u32 = 100;

/// A hidden directory beside the target; removed on drop with its remaining content.
pub struct Site {
    target: PathBuf,
    parent: PathBuf,
    hidden: TempDir,
    /// Holds the lock.
    _lock: File,
}

impl Site {
    /// Creates the directory for building `target`, and removes leftovers of dead processes. `files` are the names of
    /// the files that the command stores with a table: a leftover with any others is not removed.
    pub fn new(target: &Path, files: &[&str]) -> Result<Self, Failure> {
        let target: PathBuf = target.components().collect();
        let Some(name) = target.file_name() else {
            let target = target.display();
            return Err(Failure::Usage(format!(
                "{target}: does not end in a name; name the directory to create"
            )));
        };
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let mut prefix = OsStr::new(".").to_owned();
        prefix.push(name);
        prefix.push(".building-");
        remove_leftovers(&parent, &prefix, files).map_err(|error| Failure::io(&parent, &error))?;
        for _ in 0..ATTEMPTS {
            let made = tempfile::Builder::new().prefix(&prefix).tempdir_in(&parent);
            let hidden = made.map_err(|error| Failure::io(&parent, &error))?;
            match locked(hidden.path()) {
                Ok(Some(lock)) => return Ok(Self { target, parent, hidden, _lock: lock }),
                Ok(None) => {}
                Err(error) => return Err(Failure::io(hidden.path(), &error)),
            }
        }
        Err(Failure::Problem(format!(
            "{}: another process removes the directories that this command creates there",
            parent.display()
        )))
    }

    /// Returns the path at which to build the table.
    pub fn path(&self) -> PathBuf {
        self.hidden.path().join(TABLE)
    }

    /// Moves the table to the target. Replaces an empty directory there; replaces an index only if `replace` is true.
    pub fn publish(self, replace: bool) -> Result<(), Failure> {
        let rename = |flags| renameat_with(CWD, self.path(), CWD, &self.target, flags);
        match rename(RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) if replace => rename(RenameFlags::EXCHANGE),
            // A plain rename replaces an empty directory and nothing else. Some file systems support only plain
            // renames.
            Err(Errno::EXIST) => rename(RenameFlags::empty()),
            Err(Errno::INVAL | Errno::NOSYS) if !replace || !self.target.exists() => {
                rustix::fs::rename(self.path(), &self.target)
            }
            answer => answer,
        }
        .map_err(|errno| self.fault(errno))?;
        let parent = File::open(&self.parent).and_then(|parent| parent.sync_all());
        parent.map_err(|error| Failure::io(&self.parent, &error))
    }

    fn fault(&self, errno: Errno) -> Failure {
        match errno {
            Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR => {
                Error::AlreadyExists { path: self.target.clone() }.into()
            }
            Errno::INVAL | Errno::NOSYS => Failure::Usage(format!(
                "{}: this file system cannot exchange two directories; remove the old index first",
                self.target.display()
            )),
            errno => Failure::io(&self.target, &errno.into()),
        }
    }
}

/// Locks a directory. Returns `None` if another process has locked or removed it.
fn locked(path: &Path) -> io::Result<Option<File>> {
    let directory = match File::open(path) {
        Ok(directory) => directory,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        // Only a process that holds the lock removes the directory. So if the directory exists now, it remains.
        Ok(()) => Ok(path.exists().then_some(directory)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes the hidden directories of dead processes.
fn remove_leftovers(parent: &Path, prefix: &OsStr, files: &[&str]) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(prefix.as_encoded_bytes());
        if !is_hidden || !entry.file_type()?.is_dir() {
            continue;
        }
        // A directory that cannot be locked or removed remains, which does no harm.
        if let Ok(Some(_lock)) = locked(&entry.path())
            && is_of_build(&entry.path(), files).unwrap_or(false)
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

/// Returns whether a hidden directory holds only what a build creates: a table of plain files, which may be incomplete,
/// or the tables of its parts.
fn is_of_build(hidden: &Path, files: &[&str]) -> io::Result<bool> {
    for table in fs::read_dir(hidden)? {
        let table = table?;
        let name = table.file_name();
        let is_table = name == TABLE || name.as_encoded_bytes().starts_with(b".table.creating-");
        if !is_table || !table.file_type()?.is_dir() || !is_table_of(&table.path(), files, true)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether a directory holds only files of a table, and directories of its parts if `has_parts` is true.
fn is_table_of(directory: &Path, files: &[&str], has_parts: bool) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (name, file_type) = (entry.file_name(), entry.file_type()?);
        let name = name.as_encoded_bytes();
        let is_part = name.starts_with(b"part-") || name.starts_with(b".part-");
        let is_file = name == b"lock"
            || name.ends_with(b".ice")
            || files.iter().any(|known| name == known.as_bytes());
        let is_known = if file_type.is_dir() {
            has_parts && is_part && is_table_of(&entry.path(), files, false)?
        } else {
            file_type.is_file() && is_file
        };
        if !is_known {
            return Ok(false);
        }
    }
    Ok(true)
}
