//! Copies a table's directory into a new one, which appears under its path when it is complete.
//!
//! Where the file system can share blocks, the copy costs next to nothing; elsewhere only data outside holes is copied.
//! In both cases, space is reserved for the copy's holes, because a store into a hole could find the device full.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::Mapped;
use super::directory::Directory;
use super::lock_file::LOCK_FILE;
use super::options::MappedOptions;
use super::permit::Permit;
use super::plain_file::{allocate, file_length, odd_file};
use super::region_file::RegionFile;
use crate::storage::cell::Cell64;
use crate::storage::durability::Durability;
use crate::storage::io::{Access, Io, error};
use crate::storage::medium::{Properties, Regions};
use crate::storage::mutex::lock;
use crate::storage::region::Region;
use crate::storage::superblock::TABLE_REGION;
use crate::{Error, Result};

/// The number of bytes copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

impl Mapped {
    /// Copies the table's files into a new table directory at `path` and returns the number of bytes copied. On failure
    /// nothing is left at `path`. The copy holds the present content of the files: the caller ensures that no
    /// thread changes them meanwhile.
    ///
    /// # Errors
    /// [`crate::Error::AlreadyExists`] when anything but an empty directory, or an incomplete creation in one, is at
    /// `path`; [`crate::Error::NoSpace`], [`crate::Error::Io`].
    pub fn backup_to(&self, path: impl AsRef<Path>) -> Result<u64> {
        // Refused in a forked child: the parent may change the files, and the child cannot exclude the parent's
        // writers.
        if let Err(error @ Error::Forked) = self.check_writable() {
            return Err(error);
        }
        let target = Directory::create(&self.io, path.as_ref())?;
        let copied = match &self.directory {
            Some(directory) => self.copy_files(directory, &target, |_| true)?,
            None => self.copy_memory(&target)?,
        };
        target.publish(&self.io)?;
        Ok(copied)
    }

    /// Begins a copy at `path`. It holds the first bytes of the regions in `parts`, and the directory's files that
    /// belong to no region, except the lock file. The copy is removed if it is dropped before it is published.
    pub(super) fn copy_regions(&self, path: &Path, parts: &[(&Region, u64)]) -> Result<Self> {
        let directory = Directory::create(&self.io, path)?;
        // Publishing makes whole files durable; before that, nothing needs to be durable.
        let options = MappedOptions { durability: Durability::Process, ..MappedOptions::default() };
        if let Some(source) = &self.directory {
            self.copy_files(source, &directory, |name| !is_region_name(name))?;
        }
        let copy = Self::over(directory, self.io.clone(), &options, Permit::WRITABLE)?;
        for &(region, bytes) in parts {
            let target = copy.region(region.name(), bytes.max(1))?;
            copy.grow_exactly(&target, bytes)?;
            let (from, to) = (self.file_of(region)?, copy.file_of(&target)?);
            let fault = |errno| error(&path.join(region.name()), errno, bytes);
            match (from.file(), to.file()) {
                (Some(from), Some(to)) => {
                    let is_whole =
                        self.io.status(from.as_fd()).map_err(fault)?.st_size as u64 == bytes;
                    copy_file(&self.io, from, to, bytes, is_whole).map_err(fault)?;
                }
                (None, Some(to)) => drop(self.copy_region(&from, to, bytes).map_err(fault)?),
                (_, None) => return Err(fault(Errno::BADF)),
            }
        }
        Ok(copy)
    }

    fn copy_files(
        &self,
        source: &Arc<Directory>,
        target: &Directory,
        wanted: impl Fn(&OsStr) -> bool,
    ) -> Result<u64> {
        let mut names =
            self.io.names(source.file()).map_err(|errno| error(&self.path, errno, 0))?;
        names.retain(|name| wanted(name));
        names.sort_by_key(|name| name == TABLE_REGION);
        let mut copied = 0;
        for name in names.iter().filter(|name| *name != LOCK_FILE) {
            let path = self.path.join(name);
            let opened = self.io.open_file(source.file(), name, Access::Read);
            let from = opened.map_err(|errno| odd_file(&path, errno))?;
            let bytes = file_length(&self.io, &from, &path)?;
            copied += self
                .copy_into(target, name, bytes, |to| copy_file(&self.io, &from, to, bytes, true))?;
        }
        Ok(copied)
    }

    fn copy_memory(&self, target: &Directory) -> Result<u64> {
        let mut regions = lock(&self.regions).clone();
        regions.sort_by_key(|region| region.region().name() == TABLE_REGION);
        let mut copied = 0;
        for region in &regions {
            let (name, bytes) = (OsStr::new(region.region().name()), region.region().len());
            copied +=
                self.copy_into(target, name, bytes, |to| self.copy_region(region, to, bytes))?;
        }
        Ok(copied)
    }

    /// Creates the file `name` of `bytes` bytes, lets `fill` write it, and makes it durable.
    fn copy_into(
        &self,
        target: &Directory,
        name: &OsStr,
        bytes: u64,
        fill: impl FnOnce(&OwnedFd) -> Result<u64, Errno>,
    ) -> Result<u64> {
        let fault = |errno| error(&target.path().join(name), errno, bytes);
        if name == TABLE_REGION {
            // This file is created last: in a copy that is made in place, its content turns the directory into a table.
            // The names of all other files become durable first.
            self.io.sync_directory(target.file()).map_err(fault)?;
        }
        let to = self.io.open_file(target.file(), name, Access::Create).map_err(fault)?;
        let copied = fill(&to).map_err(fault)?;
        self.io.sync_file(to.as_fd()).map_err(fault)?;
        Ok(copied)
    }

    /// Copies the words of a region that has no file.
    fn copy_region(&self, region: &RegionFile, to: &OwnedFd, bytes: u64) -> Result<u64, Errno> {
        reserve(&self.io, to, bytes)?;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let mut offset = 0;
        let mut copied = 0;
        while offset < bytes {
            let words = ((bytes - offset) / 8).min(CHUNK_BYTES as u64 / 8) as usize;
            let cells = region.region().slice_at::<Cell64>(offset, words).ok_or(Errno::IO)?;
            if words == 0 {
                break;
            }
            chunk.clear();
            // Relaxed: the caller excludes changes meanwhile. Readers may change hints, whose values in the copy do not
            // matter.
            chunk.extend(
                cells.iter().flat_map(|cell| cell.load(self, Ordering::Relaxed).to_le_bytes()),
            );
            if chunk.iter().any(|byte| *byte != 0) {
                self.io.write(to.as_fd(), &chunk, offset)?;
                copied += chunk.len() as u64;
            }
            offset += chunk.len() as u64;
        }
        Ok(copied)
    }
}

/// Copies the first `bytes` bytes of a file. If these are the `whole` file, shares blocks where the file system can.
fn copy_file(io: &Io, from: &OwnedFd, to: &OwnedFd, bytes: u64, whole: bool) -> Result<u64, Errno> {
    // If blocks cannot be shared, the bytes are copied.
    if whole && io.share_blocks(from.as_fd(), to.as_fd()).is_ok() {
        reserve(io, to, bytes)?;
        return Ok(bytes);
    }
    reserve(io, to, bytes)?;
    let mut copied = 0;
    let mut end = 0;
    while let Some((start, next_end)) = next_data(io, from, end, bytes)? {
        copy_range(io, from, to, start, next_end)?;
        copied += next_end - start;
        end = next_end;
    }
    Ok(copied)
}

/// Returns whether a file of a table's directory is one of its regions.
fn is_region_name(name: &OsStr) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "ice")
}

fn reserve(io: &Io, to: &OwnedFd, bytes: u64) -> Result<(), Errno> {
    if bytes == 0 { Ok(()) } else { allocate(io, to, 0, bytes) }
}

/// Returns the next range at or after `offset` that is not in a hole.
fn next_data(
    io: &Io,
    from: &OwnedFd,
    offset: u64,
    bytes: u64,
) -> Result<Option<(u64, u64)>, Errno> {
    if offset >= bytes {
        return Ok(None);
    }
    let start = match io.next_data(from.as_fd(), offset) {
        Ok(start) if start >= bytes => return Ok(None),
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not report holes: all bytes may be data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((offset, bytes))),
        Err(errno) => return Err(errno),
    };
    let end = io.next_hole(from.as_fd(), start)?.min(bytes);
    if end <= start { Err(Errno::IO) } else { Ok(Some((start, end))) }
}

/// Copies the bytes from `start` to `end`, in the kernel where it can.
fn copy_range(io: &Io, from: &OwnedFd, to: &OwnedFd, start: u64, end: u64) -> Result<(), Errno> {
    let mut offset = start;
    while offset < end {
        let bytes = (end - offset).min(CHUNK_BYTES as u64) as usize;
        match io.copy_range(from.as_fd(), to.as_fd(), offset, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(copied) => offset += copied as u64,
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM) => {
                return copy_by_hand(io, from, to, offset, end);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn copy_by_hand(io: &Io, from: &OwnedFd, to: &OwnedFd, start: u64, end: u64) -> Result<(), Errno> {
    let mut buffer = vec![0; CHUNK_BYTES.min((end - start) as usize)];
    let mut offset = start;
    while offset < end {
        let wanted = buffer.len().min((end - offset) as usize);
        let bytes = io.read(from.as_fd(), &mut buffer[..wanted], offset)?;
        if bytes == 0 {
            return Err(Errno::IO);
        }
        io.write(to.as_fd(), &buffer[..bytes], offset)?;
        offset += bytes as u64;
    }
    Ok(())
}
