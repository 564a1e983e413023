//! The lock file of a table's directory: taking the lock, and the content of the file.
//!
//! The file is never truncated: its text has a fixed length and is overwritten in place.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};

use super::plain_file::{file_length, odd_file};
use crate::storage::io::{Access, Io, error};
use crate::{Error, Result};

/// The file that is locked; it contains the writer's process id.
pub(super) const LOCK_FILE: &str = "lock";
/// A lock file holds one line of this many bytes: a process id or blanks, and possibly [`CREATING`].
const LOCK_BYTES: usize = 20;
/// Lock files up to this length are accepted; no table writes a longer one.
const MOST_LOCK_BYTES: u64 = 32;
/// The mark in the lock file of a directory in which a table is being created in place.
pub(super) const CREATING: &str = "creating";

/// The access for which a directory is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    /// Reading while a writer may be active: no writer changes the table's files in place. Takes no lock.
    ReadBeside,
    Write,
}

/// Locks a table's directory. The error names the process that holds the lock.
pub(super) fn lock_directory(
    io: &Io,
    directory: &OwnedFd,
    path: &Path,
    purpose: Purpose,
) -> Result<OwnedFd> {
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
        let detail = format!("the file has {bytes} bytes, so no table wrote it; move it away");
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

pub(super) fn locked(io: &Io, path: &Path, lock_file: &OwnedFd) -> Error {
    Error::Locked { path: path.to_owned(), pid: holder(io, lock_file) }
}

/// Returns the text of a lock file. It has a fixed length, so that each text replaces the previous one.
pub(super) fn lock_text(pid: Option<Pid>, mark: &str) -> String {
    const MARK: usize = LOCK_BYTES - 11;
    let pid = pid.map(|pid| pid.as_raw_nonzero().to_string()).unwrap_or_default();
    format!("{pid:>10}{mark:>MARK$}\n")
}

pub(super) fn write_lock(io: &Io, lock_file: &OwnedFd, mark: &str) -> Result<(), Errno> {
    io.write(lock_file.as_fd(), lock_text(Some(getpid()), mark).as_bytes(), 0)
}

/// Returns the first line of a lock file; empty when it is not valid UTF-8.
pub(super) fn read_lock(io: &Io, lock_file: &OwnedFd) -> Result<String, Errno> {
    let mut text = [0; MOST_LOCK_BYTES as usize];
    let bytes = io.read(lock_file.as_fd(), &mut text, 0)?;
    let text = std::str::from_utf8(&text[..bytes]).unwrap_or_default();
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

pub(super) fn pid_in(text: &str) -> Option<Pid> {
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
