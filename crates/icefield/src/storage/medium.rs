//! The interface of all media: map and grow regions, load and store words, flush lines, fence.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Cell128, CellLine, Committed, LINE_BYTES, Region, SharedBytes, SyncMode, arch, bytes};
use crate::Result;
use crate::base::group::Isa;

/// The events that a table's files survive, and thereby the cost of a fence.
///
/// ```
/// use icefield::{DashEh, Durability};
/// let directory = tempfile::tempdir()?;
/// let options = DashEh::<u64, u64>::options().durability(Durability::Process);
/// let table = options.create(directory.path().join("survives-a-kill.ice"))?;
/// assert_eq!(table.stats().durability, Some(Durability::Process));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// `Pmem` where the kernel grants `MAP_SYNC` on the directory's file system. `Process` elsewhere, with a warning
    /// through the `log` crate when a table is created or opened for writing.
    #[default]
    Auto,
    /// Nothing survives: anonymous memory.
    Memory,
    /// Survives the death of the process at any instruction, but not a power failure: a shared mapping of any file. A
    /// fence costs nothing.
    Process,
    /// Survives a power failure: persistent memory. A fence costs line write-backs and a store fence.
    Pmem,
    /// `Pmem`'s instructions on any file, for tests and measurements on machines without persistent memory. Survives
    /// what the file's own medium survives.
    PmemForced,
    /// Survives a power failure on SSDs and disks: a fence costs an `fdatasync` of the dirty ranges. Refused on file
    /// systems in memory (`tmpfs`, `ramfs`). On file systems of another machine or process (NFS, SMB, FUSE and
    /// others), durability depends on that machine or process; a warning through the `log` crate says so.
    Disk,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Memory => "memory",
            Self::Process => "process",
            Self::Pmem => "pmem",
            Self::PmemForced => "pmem-forced",
            Self::Disk => "disk",
        })
    }
}

impl std::str::FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Ok(match text {
            "auto" => Self::Auto,
            "memory" => Self::Memory,
            "process" => Self::Process,
            "pmem" => Self::Pmem,
            "pmem-forced" => Self::PmemForced,
            "disk" => Self::Disk,
            _ => {
                return Err(format!(
                    "`{text}` is none of auto, memory, process, pmem, pmem-forced, disk"
                ));
            }
        })
    }
}

/// Fails after a failed sync, and in a forked child. A reader stores to private pages only and has nothing to sync.
pub(crate) fn sound(storage: &impl Medium) -> Result<()> {
    match storage.check_writable() {
        Err(crate::Error::ReadOnly) => Ok(()),
        answer => answer,
    }
}

/// Fails after a failed sync. Called before a store over words that the next opening may need, where no fence of the
/// same call comes first. A reader's recovery, which works in private pages, is not stopped.
pub(crate) fn not_poisoned(storage: &impl Medium) -> Result<()> {
    match storage.check_writable() {
        Err(error @ crate::Error::Poisoned) => Err(error),
        _ => Ok(()),
    }
}

/// Fails in a forked child, whose stores would mix with those of its parent. Reads call this before they finish what a
/// crash or a doubling has left undone. On a medium that is open for reading they finish it in private pages.
pub(crate) fn refuse_child(storage: &impl Medium) -> Result<()> {
    match storage.check_writable() {
        Err(error @ crate::Error::Forked) if !storage.is_private() => Err(error),
        _ => Ok(()),
    }
}

/// Keeps implementations of [`Medium`] inside this crate: unsafe code relies on their behaviour.
pub(crate) mod sealed {
    /// Cannot be named outside the crate.
    pub trait Sealed {}
}

/// An opened table directory on some medium. Only [`super::Mapped`] and the simulator, `Sim`, implement it.
///
/// The word calls are for the cells of [`super::cell`]; tables use those. They are `#[track_caller]` so that the
/// simulator can name, skip and reorder each site in the code.
pub trait Medium: sealed::Sealed + Send + Sync + Sized + 'static {
    /// Returns the medium for the exclusive use of one table. References that a table lends into its files are valid
    /// only if its own calls alone change them. So a medium is refused whose regions are in use, or on which another
    /// table is open.
    ///
    /// # Errors
    /// [`crate::Error::InvalidOption`] names the conflict.
    fn claimed(self) -> Result<Self> {
        Ok(self)
    }

    /// Maps the region `name`, creating an empty one when the directory has none, and reserves address space for
    /// `max_bytes`. The same name gives the same region. If the file was copied with holes and is opened for writing,
    /// space for every byte is reserved first, so that no store can meet a full device.
    ///
    /// # Errors
    /// The file cannot be opened, sized or mapped; [`crate::Error::NoSpace`] when its holes cannot be filled.
    fn region(&self, name: &'static str, max_bytes: u64) -> Result<Region>;

    /// Like [`Medium::region`], for an owner that punches: holes stay holes, and the owner calls [`Medium::reserve`]
    /// before it stores to a range that may be a hole.
    ///
    /// # Errors
    /// The file cannot be opened, sized or mapped.
    fn region_with_holes(&self, name: &'static str, max_bytes: u64) -> Result<Region> {
        self.region(name, max_bytes)
    }

    /// Makes at least the first `bytes` of `region` usable; new bytes are zero. The space is reserved before the length
    /// is published, so a later store cannot run out of it. Crash-safe: a crash leaves the old or the new length.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] when the file system or the region's `max_bytes` has no room. Nothing has changed
    /// then.
    fn grow(&self, region: &Region, bytes: u64) -> Result<()>;

    /// Like [`Medium::grow`], for a region whose final length is known: takes only the bytes requested, rounded up to
    /// whole pages.
    ///
    /// # Errors
    /// Those of [`Medium::grow`].
    fn grow_exactly(&self, region: &Region, bytes: u64) -> Result<()>;

    /// Removes a region and its bytes from the table. A missing region is not an error. The next [`Medium::region`] of
    /// that name creates an empty one. Existing handles continue to show the old content. On a medium that is open for
    /// reading nothing is removed, but the next [`Medium::region`] opens the file under that name again.
    ///
    /// # Errors
    /// The system call failed; the region may or may not have been removed.
    fn discard_region(&self, name: &'static str) -> Result<()>;

    /// Gives the pages that lie wholly inside the range back to the file system; they read as zero afterwards.
    ///
    /// # Errors
    /// The system call failed; the range holds what it held.
    fn punch(&self, region: &Region, offset: u64, bytes: u64) -> Result<()>;

    /// Reserves space for a range of `region`'s bytes again, before data is stored to it: the range may have been
    /// punched, or the file copied sparsely. Costs nothing where the region has no holes.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] when the file system has no room.
    fn reserve(&self, region: &Region, offset: u64, bytes: u64) -> Result<()> {
        let _ = (region, offset, bytes);
        Ok(())
    }

    /// Fails unless `bytes` more bytes fit in the medium's files and `dram_bytes` in memory. For calls that would
    /// otherwise use up all space before they fail. The check reserves nothing.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] or [`crate::Error::NoMemory`].
    fn check_room(&self, bytes: u64, dram_bytes: u64) -> Result<()> {
        let _ = (bytes, dram_bytes);
        Ok(())
    }

    /// Fails when this process must not change the table (read-only, poisoned by a failed sync, forked). Every call
    /// that changes a table begins with it; it costs one load.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`], [`crate::Error::Poisoned`] or [`crate::Error::Forked`].
    fn check_writable(&self) -> Result<()>;

    /// Returns whether the regions are private copies of the files, so that stores reach no other process.
    fn is_private(&self) -> bool {
        false
    }

    /// Returns the durability of the files; never `Auto`.
    fn durability(&self) -> Durability;

    /// Returns the table's directory (an invented name for memory and the simulator).
    fn path(&self) -> &Path;

    /// Starts the write-back of every line that overlaps the range. Durable after this thread's next fence. The range
    /// must lie in a region of this medium. For any other range the call may end the process by a fault or a panic,
    /// but has no other effect.
    #[track_caller]
    fn flush(&self, start: *const u8, bytes: usize);

    /// Calls [`Medium::flush`] for a range of a region.
    ///
    /// # Panics
    /// The range lies outside the region.
    #[inline]
    #[track_caller]
    fn flush_range(&self, region: &Region, offset: u64, bytes: u64) {
        let start = region.place(offset, bytes);
        assert!(start.is_some(), "a flush of {bytes} bytes outside {}", region.name());
        if let Some(start) = start {
            self.flush(start.as_ptr(), bytes as usize);
        }
    }

    /// Returns when every line that this thread has flushed is durable. For tables that refuse `Disk`, where a fence
    /// can fail; tables that support it call [`Medium::try_fence`].
    #[track_caller]
    fn fence(&self);

    /// Like [`Medium::fence`], for tables that also support disks, where a fence is a sync. After a failed sync the
    /// system may have written any or none of the flushed pages, and may still write any page later in its state at
    /// that time. So nothing that relies on this fence may be stored any more, and every later fence fails. On other
    /// media it costs as much as [`Medium::fence`].
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`], on `Disk` only; later calls of [`Medium::check_writable`] return it, too.
    #[inline(always)]
    #[track_caller]
    fn try_fence(&self) -> Result<()> {
        self.fence();
        Ok(())
    }

    /// Returns the mode that determines when writes are acknowledged: `Always` wherever a fence costs next to nothing.
    fn sync_mode(&self) -> SyncMode {
        SyncMode::Always
    }

    /// Returns whether a fence costs nothing, so that sharing one gains nothing.
    fn fence_is_free(&self) -> bool {
        false
    }

    /// Returns whether a fence is a sync of files, which takes as long as thousands of operations.
    fn fence_syncs(&self) -> bool {
        false
    }

    /// Executes a fence that may be deferred: the lines that this thread has flushed are durable after any thread's
    /// next [`Medium::fence_deferred`], or earlier. Media whose fences cost next to nothing fence at once.
    ///
    /// # Errors
    /// Those of [`Medium::try_fence`].
    #[inline(always)]
    #[track_caller]
    fn fence_later(&self) -> Result<()> {
        self.try_fence()
    }

    /// Returns when everything is durable that any thread has passed to [`Medium::fence_later`].
    ///
    /// # Errors
    /// Those of [`Medium::try_fence`].
    #[inline(always)]
    #[track_caller]
    fn fence_deferred(&self) -> Result<()> {
        Ok(())
    }

    /// Requests a sync of everything that any thread has passed to [`Medium::fence_later`] so far; the future resolves
    /// when it is durable.
    #[track_caller]
    fn committed(&self) -> Committed {
        Committed::known(self.fence_deferred().and_then(|()| self.check_writable()))
    }

    /// Flushes one object and fences.
    #[inline(always)]
    #[track_caller]
    fn persist<T>(&self, object: &T) {
        self.flush_object(object);
        self.fence();
    }

    /// Like [`Medium::persist`], but with [`Medium::try_fence`].
    ///
    /// # Errors
    /// Those of [`Medium::try_fence`].
    #[inline(always)]
    #[track_caller]
    fn try_persist<T>(&self, object: &T) -> Result<()> {
        self.flush_object(object);
        self.try_fence()
    }

    /// Starts the write-back of the one line that holds the byte, as [`Medium::flush`] does for ranges.
    #[inline(always)]
    #[track_caller]
    fn flush_line(&self, byte: *const u8) {
        self.flush(byte, 1);
    }

    /// Flushes the lines of one object.
    #[inline(always)]
    #[track_caller]
    fn flush_object<T>(&self, object: &T) {
        let start = std::ptr::from_ref(object).cast();
        // An object no larger than its alignment lies in one line.
        if const { size_of::<T>() <= align_of::<T>() && align_of::<T>() <= LINE_BYTES } {
            self.flush_line(start);
        } else {
            self.flush(start, size_of::<T>());
        }
    }

    /// Copies `src` to byte `offset` of `region`, in no order: until a fence any subset of the words may be there.
    ///
    /// # Safety
    /// No other thread reads or writes the range meanwhile, and no reference from [`Medium::read_bytes`] to it exists.
    ///
    /// # Panics
    /// The range lies outside the region.
    #[track_caller]
    unsafe fn write_bytes(&self, region: &Region, offset: u64, src: &[u8]);

    /// Like [`Medium::write_bytes`], for many bytes that have not been accessed since the region grew over them. Where
    /// possible they are written without clearing and mapping their pages first.
    ///
    /// # Safety
    /// As [`Medium::write_bytes`].
    ///
    /// # Panics
    /// As [`Medium::write_bytes`].
    #[track_caller]
    unsafe fn write_new_bytes(&self, region: &Region, offset: u64, src: &[u8]) {
        // SAFETY: the caller's contract.
        unsafe { self.write_bytes(region, offset, src) };
    }

    /// Returns the bytes at `offset`, or `None` when they lie outside the region.
    ///
    /// # Safety
    /// The range was written before by [`Medium::write_bytes`] (or by a former process), that write happens before this
    /// call, and the range is not written again while the reference lives.
    unsafe fn read_bytes<'a>(
        &self,
        region: &'a Region,
        offset: u64,
        bytes: usize,
    ) -> Option<&'a [u8]>;

    /// Returns the bytes at `offset`, a multiple of 8, to be copied out or compared word by word; other threads may
    /// store to them meanwhile. `None` when the bytes, or the word that holds the last one, lie outside the region.
    #[inline(always)]
    #[track_caller]
    fn shared_bytes<'a>(
        &self,
        region: &'a Region,
        offset: u64,
        bytes: usize,
    ) -> Option<SharedBytes<'a>> {
        let words = region.slice_at(offset, bytes.div_ceil(size_of::<u64>()))?;
        Some(SharedBytes::new(words, bytes))
    }

    /// Stores `src` from `offset` on, a multiple of 8, word by word in no order, and zeros in the rest of the last
    /// word: until a fence any subset of the words may be durable. A thread that loads them meanwhile gets a mixture.
    ///
    /// # Panics
    /// The range lies outside the region.
    #[inline]
    #[track_caller]
    fn store_bytes(&self, region: &Region, offset: u64, src: &[u8]) {
        let words = region.slice_at(offset, src.len().div_ceil(size_of::<u64>()));
        let Some(words) = words else { panic!("bytes stored outside {}", region.name()) };
        bytes::store(words, src);
    }

    /// Loads a durable word.
    #[track_caller]
    fn load32(&self, cell: &AtomicU32, order: Ordering) -> u32;
    /// Loads a durable word.
    #[track_caller]
    fn load64(&self, cell: &AtomicU64, order: Ordering) -> u64;
    /// Loads two durable words at once, where the processor can ([`Cell128::loads_whole`]), with Acquire ordering.
    #[inline(always)]
    #[track_caller]
    fn load128(&self, cell: &Cell128) -> [u64; 2] {
        arch::load128(cell)
    }
    /// Compares words 0, 2, 4 and 6 of `line` with `key`. Bit `i` of the result is set if word `i` is equal; odd bits
    /// are undefined.
    #[inline(always)]
    #[track_caller]
    fn find_keys(&self, isa: impl Isa, line: &CellLine, key: u64) -> u32 {
        let _ = isa;
        let equal =
            |word: usize| u32::from(self.load64(&line.0[word], Ordering::Relaxed) == key) << word;
        equal(0) | equal(2) | equal(4) | equal(6)
    }
    /// [`Isa::has_bits`] of `line`.
    #[inline(always)]
    #[track_caller]
    fn has_bits(&self, isa: impl Isa, line: &CellLine, hash: u64) -> bool {
        let words =
            line.0.each_ref().map(|word| AtomicU64::new(self.load64(word, Ordering::Relaxed)));
        isa.has_bits(&words, hash)
    }
    /// Stores a durable word.
    #[track_caller]
    fn store32(&self, cell: &AtomicU32, value: u32, order: Ordering);
    /// Stores a durable word.
    #[track_caller]
    fn store64(&self, cell: &AtomicU64, value: u64, order: Ordering);

    /// Loads a volatile word.
    #[track_caller]
    fn load_volatile32(&self, cell: &AtomicU32, order: Ordering) -> u32;
    /// Loads a volatile word.
    #[track_caller]
    fn load_volatile64(&self, cell: &AtomicU64, order: Ordering) -> u64;
    /// Stores a volatile word.
    #[track_caller]
    fn store_volatile32(&self, cell: &AtomicU32, value: u32, order: Ordering);
    /// Stores a volatile word.
    #[track_caller]
    fn store_volatile64(&self, cell: &AtomicU64, value: u64, order: Ordering);
    /// Weak compare-and-exchange of a volatile word.
    ///
    /// # Errors
    /// The value that the cell held instead.
    #[track_caller]
    fn cas_volatile32(
        &self,
        cell: &AtomicU32,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> std::result::Result<u32, u32>;
    /// Weak compare-and-exchange of a volatile word.
    ///
    /// # Errors
    /// The value that the cell held instead.
    #[track_caller]
    fn cas_volatile64(
        &self,
        cell: &AtomicU64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> std::result::Result<u64, u64>;

    /// Called in every loop that waits for another thread, with the number of rounds so far. Spins first, then yields.
    fn wait(&self, rounds: u32) {
        if rounds < 64 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }

    /// Called before a table reads or changes words in DRAM that threads share beside the medium. Does nothing except
    /// in the simulator, where another thread may run at this point, as at every access to the medium.
    #[inline(always)]
    fn sim_yield_point(&self) {}

    /// Called when an optimistic read has raced with a writer and starts again: nothing depends on the values read so
    /// far. Used by the simulator's detector only.
    #[inline(always)]
    fn forget_reads(&self) {}

    /// Runs `look`, whose loads do not influence the result of a call. They only decide, for example, what to prefetch
    /// or whether to tidy up afterwards. Used by the simulator's detector only.
    #[inline(always)]
    fn read_unvalidated<T>(&self, look: impl FnOnce() -> T) -> T {
        look()
    }

    /// Copies the table's files, in their present state, into a new table directory at `path`, and returns the number
    /// of bytes copied. The caller ensures that no thread changes them meanwhile.
    ///
    /// # Errors
    /// The copy could not be written (nothing is left at `path` then), or the medium has no files.
    fn backup_to(&self, path: &Path) -> Result<u64> {
        let _ = path;
        Err(crate::Error::Unsupported("this medium has no files to copy".into()))
    }

    /// Begins a copy of the table at `path`: a new, unpublished table directory with the first bytes of the regions in
    /// `parts`. The caller completes and publishes it, and keeps those bytes unchanged during the call.
    ///
    /// # Errors
    /// Those of [`Medium::backup_to`].
    fn copy_regions(&self, path: &Path, parts: &[(&Region, u64)]) -> Result<super::Mapped> {
        let _ = (path, parts);
        Err(crate::Error::Unsupported("this medium has no files to copy".into()))
    }

    /// Called once when a new table is complete on the medium. Makes it visible under its path atomically.
    ///
    /// # Errors
    /// The directory could not be synced or renamed; the path then holds no table.
    fn publish_created(&self) -> Result<()>;

    /// Ends the medium's use by a table: called once by the table's `Drop`, after its last store.
    fn close(&self);
}

/// Returns the error for a medium whose `region` is in use elsewhere.
pub(super) fn in_use(region: &Region) -> crate::Error {
    crate::Error::InvalidOption {
        option: "medium",
        detail: format!("its region `{}` is in use; drop the region first", region.name()),
    }
}
