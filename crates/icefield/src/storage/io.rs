//! All system calls of the persistent layer. Each has a name, so that a test can make the Nth of them fail or kill the
//! process there ([`FaultPlan`]).
//!
//! Calls that undo incomplete changes (`remove_*`, `restore_*`, `unlock`) run even where a plan makes everything fail:
//! a plan that disabled them would only show that undoing needs system calls. They still count, and the process can
//! still be killed at them.

#[cfg(any(test, feature = "sim"))]
mod faults;
#[cfg(not(any(test, feature = "sim")))]
mod no_faults;
mod synced;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom, Stat,
};
use rustix::io::retry_on_intr;
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags};

pub use rustix::io::Errno;

use crate::Error;

#[cfg(any(test, feature = "sim"))]
pub use faults::{FaultAction, FaultAt, FaultMode, FaultPlan};
#[cfg(not(any(test, feature = "sim")))]
pub use no_faults::FaultPlan;
pub use synced::Synced;

type Answer<T> = Result<T, Errno>;

/// Converts the error of a system call on `path`. `needed_bytes` is reported when the device is full.
pub(crate) fn error(path: &Path, errno: Errno, needed_bytes: u64) -> Error {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => {
            Error::NoSpace { path: path.to_owned(), needed_bytes }
        }
        Errno::MFILE | Errno::NFILE => {
            let why = format!(
                "{}; close other tables, or raise `ulimit -n` (RLIMIT_NOFILE)",
                io::Error::from(errno)
            );
            Error::io(path, io::Error::other(why))
        }
        errno => Error::io(path, errno),
    }
}

/// Makes system calls. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Io {
    plan: Option<Arc<FaultPlan>>,
}

/// Read and write permission for owner, group and others, restricted by the process's umask.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o777);

impl Io {
    /// Creates the interface, with faults if `plan` is given.
    pub(crate) fn new(plan: Option<Arc<FaultPlan>>) -> Self {
        Self { plan }
    }

    fn enter(&self, site: &'static str) -> Answer<()> {
        self.plan.as_ref().map_or(Ok(()), |plan| plan.enter(site, true))
    }

    /// Like [`Io::enter`], for a call that makes something durable.
    fn enter_sync(&self, site: &'static str, synced: Synced) -> Answer<()> {
        self.plan.as_ref().map_or(Ok(()), |plan| plan.enter_sync(site, synced))
    }

    fn enter_undo(&self, site: &'static str) {
        if let Some(plan) = &self.plan {
            // Undoing continues regardless of the plan (see the module's header).
            let _ = plan.enter(site, false);
        }
    }

    pub(crate) fn open_directory(&self, path: &Path) -> Answer<OwnedFd> {
        self.enter("open_directory")?;
        retry_on_intr(|| {
            rustix::fs::open(
                path,
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )
        })
    }

    /// Opens a directory inside another, not through a symbolic link.
    pub(crate) fn open_directory_at(&self, at: BorrowedFd<'_>, name: &OsStr) -> Answer<OwnedFd> {
        self.enter("open_directory_at")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        retry_on_intr(|| rustix::fs::openat(at, name, flags, Mode::empty()))
    }

    /// Opens a file of a directory, not through a symbolic link.
    pub(crate) fn open_file(
        &self,
        at: BorrowedFd<'_>,
        name: &OsStr,
        access: Access,
    ) -> Answer<OwnedFd> {
        self.enter(match access {
            Access::Read => "open_file_to_read",
            Access::Write => "open_file",
            Access::Create => "create_file",
        })?;
        // NONBLOCK: opening a FIFO or a device at this name must not block.
        let flags = access.flags() | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        retry_on_intr(|| rustix::fs::openat(at, name, flags, FILE_MODE))
    }

    pub(crate) fn make_directory(&self, at: BorrowedFd<'_>, name: &OsStr) -> Answer<()> {
        self.enter("make_directory")?;
        rustix::fs::mkdirat(at, name, DIRECTORY_MODE)
    }

    /// Returns the status of `name`, without following a symbolic link.
    pub(crate) fn status_at(&self, at: BorrowedFd<'_>, name: &OsStr) -> Answer<Stat> {
        self.enter("status_at")?;
        rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    pub(crate) fn status(&self, file: BorrowedFd<'_>) -> Answer<Stat> {
        self.enter("status")?;
        rustix::fs::fstat(file)
    }

    /// Returns the names in a directory, without `.` and `..`.
    pub(crate) fn names(&self, directory: BorrowedFd<'_>) -> Answer<Vec<std::ffi::OsString>> {
        use std::os::unix::ffi::OsStrExt;
        self.enter("names")?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    /// Takes the lock on an open file; fails with `WOULDBLOCK` when a conflicting lock is held.
    pub(crate) fn try_lock(&self, file: BorrowedFd<'_>, exclusive: bool) -> Answer<()> {
        self.enter("try_lock")?;
        let how = if exclusive {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        retry_on_intr(|| rustix::fs::flock(file, how))
    }

    /// Releases the lock, also for processes that inherited the open file.
    pub(crate) fn unlock(&self, file: BorrowedFd<'_>) {
        self.enter_undo("unlock");
        // On failure, the lock ends when the file is closed.
        let _ = rustix::fs::flock(file, FlockOperation::Unlock);
    }

    /// Reads up to `buffer.len()` bytes at `offset`.
    pub(crate) fn read(
        &self,
        file: BorrowedFd<'_>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Answer<usize> {
        self.enter("read")?;
        retry_on_intr(|| rustix::io::pread(file, &mut *buffer, offset))
    }

    /// Writes all of `bytes` at `offset`.
    pub(crate) fn write(&self, file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> Answer<()> {
        self.enter("write")?;
        within_size_limit(offset, bytes.len() as u64)?;
        let mut done = 0;
        while done < bytes.len() {
            let written =
                retry_on_intr(|| rustix::io::pwrite(file, &bytes[done..], offset + done as u64))?;
            if written == 0 {
                return Err(Errno::IO);
            }
            done += written;
        }
        Ok(())
    }

    /// Returns the kind of file system that a file is on.
    pub(crate) fn keeper(&self, file: BorrowedFd<'_>) -> Keeper {
        if self.enter("keeper").is_err() {
            return Keeper::Local;
        }
        rustix::fs::fstatfs(file).map_or(Keeper::Local, |status| Keeper::of(status.f_type))
    }

    /// Undoes an extension of a file after a failure.
    pub(crate) fn restore_length(&self, file: BorrowedFd<'_>, bytes: u64) {
        self.enter_undo("restore_length");
        // If this fails, the longer file holds zeros after its old end, which is harmless.
        let _ = retry_on_intr(|| rustix::fs::ftruncate(file, bytes));
    }

    /// Restores the content of a lock file.
    pub(crate) fn restore_content(&self, file: BorrowedFd<'_>, bytes: &[u8]) {
        self.enter_undo("restore_content");
        // If this fails, the file still contains the id of this process, which only error messages use.
        if within_size_limit(0, bytes.len() as u64).is_ok() {
            let _ = retry_on_intr(|| rustix::io::pwrite(file, bytes, 0));
        }
    }

    /// Reserves space for a range and extends the file over it.
    pub(crate) fn allocate(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Answer<()> {
        self.enter("allocate")?;
        within_size_limit(offset, bytes)?;
        retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes))
    }

    /// Gives a range of a file back to the file system.
    pub(crate) fn punch_hole(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Answer<()> {
        self.enter("punch_hole")?;
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry_on_intr(|| rustix::fs::fallocate(file, how, offset, bytes))
    }

    /// Makes a file's content durable, with the metadata that is needed to read it, such as its length.
    pub(crate) fn sync_data(&self, file: BorrowedFd<'_>) -> Answer<()> {
        self.enter_sync("sync_data", Synced::File(file.as_raw_fd()))?;
        retry_on_intr(|| rustix::fs::fdatasync(file))
    }

    pub(crate) fn sync_file(&self, file: BorrowedFd<'_>) -> Answer<()> {
        self.enter_sync("sync_file", Synced::File(file.as_raw_fd()))?;
        retry_on_intr(|| rustix::fs::fsync(file))
    }

    /// Makes the names in a directory durable.
    pub(crate) fn sync_directory(&self, directory: BorrowedFd<'_>) -> Answer<()> {
        self.enter_sync("sync_directory", Synced::Names)?;
        match retry_on_intr(|| rustix::fs::fsync(directory)) {
            // Some file systems do not support this call on directories and offer no other way.
            Err(Errno::INVAL) => Ok(()),
            answer => answer,
        }
    }

    /// Renames `from` to `to` in the same directory; fails if `to` exists.
    pub(crate) fn rename(&self, at: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> Answer<()> {
        self.enter("rename")?;
        rename_to_free_name(at, from, to)
    }

    /// Undoes a renaming; returns whether that succeeded.
    pub(crate) fn restore_name(&self, at: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> bool {
        self.enter_undo("restore_name");
        rename_to_free_name(at, from, to).is_ok()
    }

    /// Removes a file as a permanent change; may fail under a plan.
    pub(crate) fn unlink(&self, at: BorrowedFd<'_>, name: &OsStr) -> Answer<()> {
        self.enter("unlink")?;
        rustix::fs::unlinkat(at, name, AtFlags::empty())
    }

    /// Removes a file as cleanup.
    pub(crate) fn remove_file(&self, at: BorrowedFd<'_>, name: &OsStr) {
        self.enter_undo("remove_file");
        // A file that remains is removed by the next creation under this name.
        let _ = rustix::fs::unlinkat(at, name, AtFlags::empty());
    }

    /// Removes an empty directory as cleanup.
    pub(crate) fn remove_directory(&self, at: BorrowedFd<'_>, name: &OsStr) {
        self.enter_undo("remove_directory");
        // As for `remove_file`.
        let _ = rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR);
    }

    /// Returns the names in a directory that is about to be removed.
    pub(crate) fn remove_names(&self, directory: BorrowedFd<'_>) -> Vec<std::ffi::OsString> {
        self.enter_undo("remove_names");
        Self::default().names(directory).unwrap_or_default()
    }

    /// Copies a whole file by sharing its blocks.
    pub(crate) fn share_blocks(&self, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Answer<()> {
        self.enter("share_blocks")?;
        rustix::fs::ioctl_ficlone(to, from)
    }

    /// Copies up to `bytes` at `offset` to the same offset of another file. Returns the number of bytes copied.
    pub(crate) fn copy_range(
        &self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
    ) -> Answer<usize> {
        self.enter("copy_range")?;
        within_size_limit(offset, bytes as u64)?;
        retry_on_intr(|| {
            rustix::fs::copy_file_range(
                from,
                Some(&mut offset.clone()),
                to,
                Some(&mut offset.clone()),
                bytes,
            )
        })
    }

    /// Returns the first byte at or after `offset` that is not in a hole; fails with `NXIO` when there is none.
    pub(crate) fn next_data(&self, file: BorrowedFd<'_>, offset: u64) -> Answer<u64> {
        self.enter("next_data")?;
        rustix::fs::seek(file, SeekFrom::Data(offset))
    }

    /// Returns the first hole at or after `offset`; the end of the file counts as one.
    pub(crate) fn next_hole(&self, file: BorrowedFd<'_>, offset: u64) -> Answer<u64> {
        self.enter("next_hole")?;
        rustix::fs::seek(file, SeekFrom::Hole(offset))
    }

    /// Reserves address space that faults on every access.
    pub(crate) fn reserve_addresses(&self, bytes: usize) -> Answer<NonNull<u8>> {
        self.enter("reserve_addresses")?;
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        NonNull::new(base.cast()).ok_or(Errno::NOMEM)
    }

    /// Maps zeros at an address.
    ///
    /// # Safety
    /// The range is page-aligned, and either it belongs to a reservation of the caller and is not in use, or
    /// `placement` is [`Placement::IfFree`].
    pub(crate) unsafe fn map_zeros(
        &self,
        base: NonNull<u8>,
        bytes: usize,
        placement: Placement,
    ) -> Answer<()> {
        self.enter("map_zeros")?;
        // SAFETY: the caller owns the range, so replacing its mapping affects no other code; or nothing is replaced.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                base.as_ptr().cast(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE | placement.flag(),
            )
        }?;
        // SAFETY: the mapping was just made.
        unsafe { is_at(base, mapped, bytes) }
    }

    /// Maps a file, from its byte `start` on, at an address.
    ///
    /// # Safety
    /// As for [`Io::map_zeros`].
    pub(crate) unsafe fn map_file(
        &self,
        base: NonNull<u8>,
        bytes: usize,
        (file, start): (BorrowedFd<'_>, u64),
        sharing: Sharing,
        placement: Placement,
    ) -> Answer<()> {
        self.enter("map_file")?;
        let flags = match sharing {
            Sharing::Shared => MapFlags::SHARED,
            Sharing::SharedSync => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            Sharing::Private => MapFlags::PRIVATE,
        };
        // SAFETY: the caller owns the range, so replacing its mapping affects no other code; or nothing is replaced.
        let mapped = unsafe {
            rustix::mm::mmap(
                base.as_ptr().cast(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags | MapFlags::NORESERVE | placement.flag(),
                file,
                start,
            )
        }?;
        // SAFETY: the mapping was just made.
        unsafe { is_at(base, mapped, bytes) }
    }

    /// Unmaps a range of addresses.
    ///
    /// # Safety
    /// The range is page-aligned, belongs to the caller, and nothing in it is in use.
    pub(crate) unsafe fn unmap(&self, base: NonNull<u8>, bytes: usize) {
        self.enter_undo("unmap");
        // SAFETY: the caller's contract. An error is ignored: the range then stays mapped, and its addresses stay in
        // use.
        let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), bytes) };
    }

    /// Returns whether the file can be mapped so that a written-back line is durable: the property of persistent
    /// memory.
    pub(crate) fn grants_sync(&self, file: BorrowedFd<'_>) -> bool {
        let bytes = rustix::param::page_size();
        if self.enter("grants_sync").is_err() {
            return false;
        }
        let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
        // SAFETY: a new mapping at an address that the kernel chooses. It is unmapped at once and never accessed.
        unsafe {
            let mapped =
                rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, flags, file, 0);
            mapped.is_ok_and(|base| rustix::mm::munmap(base, bytes).is_ok())
        }
    }

    /// Advises the kernel to use huge pages for a range.
    ///
    /// # Safety
    /// The range is page-aligned and mapped by the caller.
    pub(crate) unsafe fn advise_huge_pages(&self, base: NonNull<u8>, bytes: usize) {
        if self.enter("advise_huge_pages").is_ok() {
            // SAFETY: the advice changes no content. It is refused where huge pages are not configured; small pages
            // are used then.
            let _ =
                unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        }
    }

    /// Makes the kernel begin to read exactly the pages of a range, if it is mapped from a file. An access that finds a
    /// page in memory, or on its way there, reads no neighbours of it.
    pub(crate) fn read_pages(&self, start: *const u8, bytes: usize) {
        let page = rustix::param::page_size();
        let skip = start.addr() % page;
        if self.enter("read_pages").is_ok() {
            // SAFETY: the advice changes no content, whatever is mapped there. Without it, reads are only slower.
            let _ = unsafe {
                let first = start.wrapping_sub(skip).cast_mut().cast();
                rustix::mm::madvise(first, (skip + bytes).next_multiple_of(page), Advice::WillNeed)
            };
        }
    }

    /// Maps a page frame for every page of a range, as a store to each page would. Does nothing where the kernel
    /// cannot.
    ///
    /// # Errors
    /// `NOSPC` where a store would raise a signal because the file system has no space although the range is reserved:
    /// the first store to a reserved block can need space for the file's metadata.
    ///
    /// # Safety
    /// The range is page-aligned and mapped by the caller.
    pub(crate) unsafe fn map_pages(&self, base: NonNull<u8>, bytes: usize) -> Answer<()> {
        self.enter("map_pages")?;
        // SAFETY: the call changes no content.
        let mapped = retry_on_intr(|| unsafe {
            rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite)
        });
        match mapped {
            Err(Errno::FAULT) => Err(Errno::NOSPC),
            // Kernels before 5.14 refuse the call; the first store to each page maps it then.
            _ => Ok(()),
        }
    }

    /// Moves the content of a mapped file's range into huge pages, where the kernel can. This also
    /// allocates space for the small pages in the range that have none.
    ///
    /// # Safety
    /// The range is page-aligned and mapped by the caller.
    pub(crate) unsafe fn collapse(&self, base: NonNull<u8>, bytes: usize) {
        const TRIES: u32 = 3;
        for _ in 0..TRIES {
            if self.enter("collapse").is_err() {
                return;
            }
            // SAFETY: the advice moves content, but does not change it. Kernels before 6.1, and most file systems,
            // refuse it.
            let answer = unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_COLLAPSE) };
            // WOULDBLOCK: a page was pinned at the moment; try again.
            if answer == 0 || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock {
                return;
            }
        }
    }

    /// Makes a range of anonymous memory read as zeros in children of this process.
    ///
    /// # Safety
    /// The range is page-aligned, anonymous, private and belongs to the caller.
    pub(crate) unsafe fn wipe_on_fork(&self, base: NonNull<u8>, bytes: usize) -> Answer<()> {
        self.enter("wipe_on_fork")?;
        // SAFETY: nothing changes in this process.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxWipeOnFork) }
    }

    /// Makes a mapped range of a file durable.
    ///
    /// # Safety
    /// The range is page-aligned and mapped by the caller.
    pub(crate) unsafe fn sync_mapping(&self, base: NonNull<u8>, bytes: usize) -> Answer<()> {
        self.enter_sync("sync_mapping", Synced::Mapping { address: base.addr().get(), bytes })?;
        // SAFETY: the content does not change.
        retry_on_intr(|| unsafe {
            rustix::mm::msync(base.as_ptr().cast(), bytes, MsyncFlags::SYNC)
        })
    }
}

/// Fails with `FBIG` beyond the process's file size limit, where the kernel would send a signal that kills the
/// process.
fn within_size_limit(offset: u64, bytes: u64) -> Answer<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    match offset.checked_add(bytes) {
        Some(end) if limit.is_none_or(|limit| end <= limit) => Ok(()),
        _ => Err(Errno::FBIG),
    }
}

/// Checks that a new mapping lies at `base`; otherwise unmaps it and fails with `EXIST`. Kernels before 4.17 treat
/// [`Placement::IfFree`] as a hint and may choose another address.
///
/// # Safety
/// `mapped` is a new mapping of `bytes` bytes.
unsafe fn is_at(base: NonNull<u8>, mapped: *mut std::ffi::c_void, bytes: usize) -> Answer<()> {
    if std::ptr::eq(mapped.cast(), base.as_ptr()) {
        return Ok(());
    }
    // SAFETY: the caller's contract.
    unsafe { rustix::mm::munmap(mapped, bytes) }?;
    Err(Errno::EXIST)
}

fn rename_to_free_name(at: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> Answer<()> {
    match rustix::fs::renameat_with(at, from, at, to, RenameFlags::NOREPLACE) {
        // On file systems without the flag, a check and a plain rename replace the call. If `to` appears in between,
        // the rename replaces it only if it is an empty directory, because `from` is a directory.
        Err(Errno::INVAL | Errno::NOSYS) => {
            match rustix::fs::statat(at, to, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => rustix::fs::renameat(at, from, at, to),
                Err(errno) => Err(errno),
            }
        }
        answer => answer,
    }
}

/// The kind of file system that holds a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// The kernel's own memory (`tmpfs`, `ramfs`, `hugetlbfs`): nothing survives a restart of the system.
    Memory,
    /// Another machine or process: the meaning of a sync depends on it.
    Elsewhere(&'static str),
    /// Any other file system.
    Local,
}

impl Keeper {
    /// Returns the kind by the magic number of the file system.
    fn of(magic: rustix::fs::FsWord) -> Self {
        match magic as u32 {
            0x0102_1994 | 0x8584_58F6 | 0x9584_58F6 => Self::Memory,
            0x6969 => Self::Elsewhere("NFS"),
            0x517B | 0xFF53_4D42 | 0xFE53_4D42 => Self::Elsewhere("SMB"),
            0x6573_5546 => Self::Elsewhere("FUSE"),
            0x0102_1997 => Self::Elsewhere("9P"),
            0x00C3_6400 => Self::Elsewhere("Ceph"),
            0x5346_414F | 0x6B41_4653 => Self::Elsewhere("AFS"),
            0x0BD0_0BD0 => Self::Elsewhere("Lustre"),
            0x0116_1970 => Self::Elsewhere("GFS2"),
            0x7461_636F => Self::Elsewhere("OCFS2"),
            _ => Self::Local,
        }
    }
}

/// The access mode in which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reading; the file exists.
    Read,
    /// Reading and writing; the file exists.
    Write,
    /// Reading and writing; the file must not exist.
    Create,
}

impl Access {
    fn flags(self) -> OFlags {
        match self {
            Self::Read => OFlags::RDONLY,
            Self::Write => OFlags::RDWR,
            Self::Create => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        }
    }
}

/// The treatment of an existing mapping at the addresses of a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The existing mapping is replaced.
    Replace,
    /// The existing mapping stays, and the new one fails with `EXIST`.
    IfFree,
}

impl Placement {
    fn flag(self) -> MapFlags {
        match self {
            Self::Replace => MapFlags::FIXED,
            Self::IfFree => MapFlags::FIXED_NOREPLACE,
        }
    }
}

/// The visibility of stores to a mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Stores reach the file and all its shared mappings.
    Shared,
    /// As `Shared`, and a line is durable once it is written back (persistent memory only).
    SharedSync,
    /// Stores are visible in this mapping only.
    Private,
}
