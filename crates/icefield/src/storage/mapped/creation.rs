//! Incomplete creations of a table: their directories and files, and the removal of those whose creator has died. The
//! header of `directory` describes the steps of a creation.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::process::getpid;

use super::lock_file::{CREATING, LOCK_FILE, pid_in, read_lock, write_lock};
use super::plain_file::read_head;
use crate::Error;
use crate::storage::io::{Access, Io};
use crate::storage::superblock::{self, TABLE_REGION};

/// The number of names tried for a hidden directory. Other processes that create the same table may use some of them.
pub(super) const HIDDEN_NAMES: u32 = 100;
/// The largest number of bytes of the table's name in a hidden name: file names have at most 255 bytes.
const HIDDEN_NAME_PART: usize = 200;
/// Fresh file systems have this directory in their root; a root without other entries counts as empty.
const LOST_AND_FOUND: &str = "lost+found";

/// Returns `.NAME.creating-`, the prefix of all hidden names of a table.
fn hidden_prefix(name: &OsStr) -> Vec<u8> {
    let name = name.as_bytes();
    let mut prefix = b".".to_vec();
    prefix.extend_from_slice(&name[..name.len().min(HIDDEN_NAME_PART)]);
    prefix.extend_from_slice(b".creating-");
    prefix
}

pub(super) fn hidden_name(name: &OsStr, attempt: u32) -> OsString {
    let mut hidden = hidden_prefix(name);
    hidden.extend_from_slice(getpid().as_raw_nonzero().to_string().as_bytes());
    if attempt > 0 {
        hidden.extend_from_slice(format!("-{attempt}").as_bytes());
    }
    OsString::from_vec(hidden)
}

/// Creates and locks a hidden directory; `None` when the name is taken, or when another process removed or locked the
/// directory.
pub(super) fn make_hidden(
    io: &Io,
    parent: BorrowedFd<'_>,
    hidden_name: &OsStr,
) -> Result<Option<(OwnedFd, OwnedFd)>, Errno> {
    match io.make_directory(parent, hidden_name) {
        Err(Errno::EXIST) => return Ok(None),
        answer => answer?,
    }
    match fill_hidden(io, parent, hidden_name) {
        // Another creator removed or locked the directory, as a leftover, before it was locked here.
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
pub(super) fn remove_leftovers(io: &Io, parent: BorrowedFd<'_>, name: &OsStr) {
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
            // A live creator holds the lock. If the lock is free, the creator has died, or it has published and closed
            // the table since the directory was opened here. In the second case the hidden name is gone, and the open
            // directory is a table.
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

/// Returns whether a hidden directory is an incomplete creation: its lock file and its name contain the same process
/// id, and all other files are region files. Also returns `true` if it holds only an empty lock file, because its
/// creator died early.
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
pub(super) enum Content {
    Nothing,
    /// Files of an incomplete creation in place: at least the lock file.
    Creation,
    Other,
}

pub(super) fn content(io: &Io, directory: &OwnedFd) -> Result<Content, Errno> {
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

fn is_plain(io: &Io, file: &OwnedFd) -> Result<bool, Errno> {
    let status = io.status(file.as_fd())?;
    Ok(FileType::from_raw_mode(status.st_mode) == FileType::RegularFile && status.st_nlink == 1)
}

/// Returns whether a table's first file has no magic number yet.
fn is_unsealed(io: &Io, table: &OwnedFd) -> Result<bool, Errno> {
    let head = read_head(io, table, superblock::IDENTITY_BYTES)?;
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
pub(super) fn remove_files(io: &Io, directory: &OwnedFd) {
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
pub(super) fn remove_directory(io: &Io, parent: BorrowedFd<'_>, name: &OsStr, directory: &OwnedFd) {
    for file in io.remove_names(directory.as_fd()) {
        io.remove_file(directory.as_fd(), &file);
    }
    io.remove_directory(parent, name);
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
