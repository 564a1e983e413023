//! Operations on a table's files without their mappings: length and space, reservation, and zeros in holes.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::Error;
use crate::storage::io::{Io, error};

/// The unit of `st_blocks`, in bytes.
const BLOCK_BYTES: u64 = 512;

/// Converts the error of opening a region's file. Some errors mean that the file was not made by a table.
pub(super) fn odd_file(path: &Path, errno: Errno) -> Error {
    match errno {
        Errno::LOOP => Error::corrupt(path, 0, "a symbolic link; a table's files are plain ones"),
        Errno::ISDIR | Errno::NXIO => Error::corrupt(path, 0, "not a plain file"),
        errno => error(path, errno, 0),
    }
}

/// Returns the length of a file of a table.
///
/// # Errors
/// The file is not a plain file, or has more than one hard link: a change through another link would change this table.
pub(super) fn file_length(io: &Io, file: &OwnedFd, path: &Path) -> Result<u64, Error> {
    length_and_space(io, file, path).map(|(len, _)| len)
}

/// Returns the length of a file of a table, and the number of bytes that the file system has allocated for it. The
/// errors are those of [`file_length`].
pub(super) fn length_and_space(io: &Io, file: &OwnedFd, path: &Path) -> Result<(u64, u64), Error> {
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

/// Returns the first `bytes` bytes of a file, or fewer if the file is shorter.
pub(super) fn read_head(io: &Io, file: &OwnedFd, bytes: usize) -> Result<Vec<u8>, Errno> {
    let mut head = vec![0; bytes];
    let mut done = 0;
    while done < head.len() {
        match io.read(file.as_fd(), &mut head[done..], done as u64)? {
            0 => break,
            bytes => done += bytes,
        }
    }
    head.truncate(done);
    Ok(head)
}

/// Reserves space from `len` to `target`; where the file system cannot, by writing zeros.
pub(super) fn allocate(io: &Io, file: &OwnedFd, len: u64, target: u64) -> Result<(), Errno> {
    match io.allocate(file.as_fd(), len, target - len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(io, file, len, target),
        answer => answer,
    }
}

/// Writes zeros into the holes of a range, where the file system reports them. No other thread stores to the range
/// meanwhile: a file system that cannot reserve space cannot punch holes either, so only files that were copied have
/// holes, and these are filled before their first use.
pub(super) fn write_into_holes(io: &Io, file: &OwnedFd, range: Range<u64>) -> Result<(), Errno> {
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

pub(super) fn write_zeros(io: &Io, file: &OwnedFd, start: u64, end: u64) -> Result<(), Errno> {
    let zeros = vec![0_u8; (1 << 20).min(end - start) as usize];
    let mut offset = start;
    while offset < end {
        let bytes = (zeros.len() as u64).min(end - offset);
        io.write(file.as_fd(), &zeros[..bytes as usize], offset)?;
        offset += bytes;
    }
    Ok(())
}
