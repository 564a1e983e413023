//! The one vocabulary of all media: map and grow regions, load and store words, flush lines, fence.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Cell128, CellLine, Committed, LINE_BYTES, Region, SharedBytes, SyncMode, arch, bytes};
use crate::Result;
use crate::base::group::Isa;

/// What a table's files survive, and what a fence costs for it.
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
    /// through the `log` crate when a table is made or opened for writing.
    #[default]
    Auto,
    /// Nothing survives: anonymous memory.
    Memory,
    /// Survives the death of the process at any instruction, but no power cut: a shared mapping of any file. A fence
    /// costs nothing.
    Process,
    /// Survives a power cut: persistent memory. A fence costs line write-backs and a store fence.
    Pmem,
    /// `Pmem`'s instructions on whatever file is there, for tests and measurements on machines without persistent
    /// memory. Survives what the file's own medium survives.
    PmemForced,
    /// Survives a power cut on SSDs and disks: a fence costs an `fdatasync` of the dirty ranges. Refused on file systems
    /// in memory (`tmpfs`, `ramfs`); on those of another machine or process (NFS, SMB, FUSE and others) a warning through
    /// the `log` crate says that it depends on them.
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

/// Fails when a sync failed, and in a forked child. A reader stores to private pages and has nothing to sync.
pub(crate) fn sound(pm: &impl Medium) -> Result<()> {
    match pm.writable() {
        Err(crate::Error::ReadOnly) => Ok(()),
        answer => answer,
    }
}

/// Fails after a failed sync. Called before a store over words that the next opening may need, where no fence of the same
/// call comes first. A reader's recovery in private pages is not stopped.
pub(crate) fn not_poisoned(pm: &impl Medium) -> Result<()> {
    match pm.writable() {
        Err(error @ crate::Error::Poisoned) => Err(error),
        _ => Ok(()),
    }
}

/// Fails in a forked child, whose stores would meet those of its parent. Reads call this before they finish what a crash
/// or a doubling has left; on a medium that is open for reading they finish it in private pages.
pub(crate) fn refuse_child(pm: &impl Medium) -> Result<()> {
    match pm.writable() {
        Err(error @ crate::Error::Forked) if !pm.is_private() => Err(error),
        _ => Ok(()),
    }
}

/// Keeps [`Medium`] to this crate: unsafe code relies on what its calls do.
pub(crate) mod sealed {
    /// Not nameable outside.
    pub trait Sealed {}
}

/// An opened table directory on some medium. Implemented by [`super::Mapped`] and by `Sim`, the simulator, only.
///
/// The word calls are for the cells of [`super::cell`]; tables use those. They take `#[track_caller]` so that the
/// simulator can name, skip and reorder each site in the code.
pub trait Medium: sealed::Sealed + Send + Sync + Sized + 'static {
    /// The medium for one table alone. What a table lends from its files may change only by its own calls: a medium is
    /// refused whose regions are in use, or on which another table is open.
    ///
    /// # Errors
    /// [`crate::Error::InvalidOption`] names what is in the way.
    fn claimed(self) -> Result<Self> {
        Ok(self)
    }

    /// Maps the region `name`, creating an empty one when the directory has none, and reserves address space for
    /// `max_bytes`. The same name gives the same region. A file that somebody copied with holes, opened for writing,
    /// has space behind every byte afterwards: no store meets a full device.
    ///
    /// # Errors
    /// The file cannot be opened, sized or mapped; [`crate::Error::NoSpace`] when its holes cannot be filled.
    fn region(&self, name: &'static str, max_bytes: u64) -> Result<Region>;

    /// [`Medium::region`] for an owner that punches: holes stay holes, and the owner calls [`Medium::reserve`] before
    /// it stores to what may be one.
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
    /// [`crate::Error::NoSpace`] when the file system or the region's `max_bytes` has no room; nothing has changed
    /// then.
    fn grow(&self, region: &Region, bytes: u64) -> Result<()>;

    /// As [`Medium::grow`], for a region whose length is known: takes no more than the bytes asked for, and what fills
    /// their last page.
    ///
    /// # Errors
    /// As [`Medium::grow`].
    fn grow_exactly(&self, region: &Region, bytes: u64) -> Result<()>;

    /// Takes a region out of the table, with its bytes; none of that name is no error. The next [`Medium::region`] of
    /// the name makes an empty one. Who still has the old one goes on seeing what it held. On a medium that is open for
    /// reading nothing is taken away, but the next call looks anew at what there is under the name.
    ///
    /// # Errors
    /// The system call failed; the region may be there or not.
    fn discard_region(&self, name: &'static str) -> Result<()>;

    /// Gives the pages that lie wholly inside the range back to the file system; they read as zero afterwards.
    ///
    /// # Errors
    /// The system call failed; the range holds what it held.
    fn punch(&self, region: &Region, offset: u64, bytes: u64) -> Result<()>;

    /// Makes sure that there is space behind a range of `region`'s bytes again, before something is stored to it: it
    /// may have been punched, or the file copied sparsely. Costs nothing where the region has no holes.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] when the file system has no room.
    fn reserve(&self, region: &Region, offset: u64, bytes: u64) -> Result<()> {
        let _ = (region, offset, bytes);
        Ok(())
    }

    /// Fails when there is no room for `bytes` more bytes in the medium's files and `dram_bytes` in memory, before any of it
    /// is taken: for calls that would otherwise take all there is before they fail. Room that is there may be gone later.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] or [`crate::Error::NoMemory`].
    fn check_room(&self, bytes: u64, dram_bytes: u64) -> Result<()> {
        let _ = (bytes, dram_bytes);
        Ok(())
    }

    /// Fails when this process may not change the table (read-only, poisoned by a failed sync, forked). Every call that
    /// changes a table begins with it; it costs one load.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`], [`crate::Error::Poisoned`] or [`crate::Error::Forked`].
    fn writable(&self) -> Result<()>;

    /// Whether the regions are private copies of the files, so that stores reach no other process.
    fn is_private(&self) -> bool {
        false
    }

    /// What the files survive; never `Auto`.
    fn durability(&self) -> Durability;

    /// The table's directory (a made-up name for memory and the simulator).
    fn path(&self) -> &Path;

    /// Starts the write-back of every line that overlaps the range. Durable after this thread's next fence. The range lies
    /// in a region of this medium; another one may end the process by a fault or a panic, and does nothing else.
    #[track_caller]
    fn flush(&self, start: *const u8, bytes: usize);

    /// [`Medium::flush`] of a range of a region.
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

    /// Returns when every line that this thread has flushed is durable. For tables that refuse `Disk`, where it cannot
    /// fail; others call [`Medium::try_fence`].
    #[track_caller]
    fn fence(&self);

    /// [`Medium::fence`] for tables that live on disks, too, where it is a sync. After a failed one the system may
    /// write any of the pages as they are then, or later, and none of what was flushed: nothing that relies on this
    /// fence may be stored any more, and no later fence succeeds. Elsewhere it costs what the other one does.
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`], on `Disk` only; later calls of [`Medium::writable`] say so, too.
    #[inline(always)]
    #[track_caller]
    fn try_fence(&self) -> Result<()> {
        self.fence();
        Ok(())
    }

    /// When writes shall be acknowledged. `Always` wherever a fence costs next to nothing.
    fn sync_mode(&self) -> SyncMode {
        SyncMode::Always
    }

    /// Whether a fence costs nothing: then there is nothing to gain from sharing one.
    fn fence_is_free(&self) -> bool {
        false
    }

    /// Whether a fence is a sync of files, which takes as long as thousands of operations.
    fn fence_syncs(&self) -> bool {
        false
    }

    /// A fence that may come later: what this thread has flushed is durable after any thread's next
    /// [`Medium::settle`], and may be so earlier. Media whose fences cost next to nothing fence at once.
    ///
    /// # Errors
    /// As [`Medium::try_fence`].
    #[inline(always)]
    #[track_caller]
    fn fence_later(&self) -> Result<()> {
        self.try_fence()
    }

    /// Returns when everything is durable that any thread has fenced later.
    ///
    /// # Errors
    /// As [`Medium::try_fence`].
    #[inline(always)]
    #[track_caller]
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Resolves when everything is durable that any thread has fenced later so far; asks for it, too.
    #[track_caller]
    fn committed(&self) -> Committed {
        Committed::known(self.settle().and_then(|()| self.writable()))
    }

    /// Flushes one object and fences.
    #[inline(always)]
    #[track_caller]
    fn persist<T>(&self, object: &T) {
        self.flush_object(object);
        self.fence();
    }

    /// [`Medium::persist`] by [`Medium::try_fence`].
    ///
    /// # Errors
    /// As there.
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
        // No larger than its alignment: it lies in one line.
        if const { size_of::<T>() <= align_of::<T>() && align_of::<T>() <= LINE_BYTES } {
            self.flush_line(start);
        } else {
            self.flush(start, size_of::<T>());
        }
    }

    /// Copies `src` to byte `offset` of `region`, in no order: until a fence any subset of the words may be there.
    ///
    /// # Safety
    /// No other thread reads or writes the range meanwhile, and nobody holds a reference from [`Medium::read_bytes`] to
    /// it.
    ///
    /// # Panics
    /// The range lies outside the region.
    #[track_caller]
    unsafe fn write_bytes(&self, region: &Region, offset: u64, src: &[u8]);

    /// As [`Medium::write_bytes`], for many bytes that nobody has touched since the region grew over them: where there
    /// is a way to write them without clearing and mapping their pages first, that is taken.
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

    /// The bytes at `offset`, or `None` when they lie outside the region.
    ///
    /// # Safety
    /// The range was written before by [`Medium::write_bytes`] (or by a former process), that write happens before this
    /// call, and nobody writes the range again while the reference lives.
    unsafe fn read_bytes<'a>(
        &self,
        region: &'a Region,
        offset: u64,
        bytes: usize,
    ) -> Option<&'a [u8]>;

    /// The bytes at `offset`, a multiple of 8, to be copied out or compared word by word, whoever stores to them
    /// meanwhile; `None` when they, or the last one's word, lie outside the region.
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
    /// word: until a fence any subset of the words may be there. Whoever loads them meanwhile gets a mixture.
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
    /// Loads two durable words at once, where the processor can ([`Cell128::loads_whole`]); of order Acquire.
    #[inline(always)]
    #[track_caller]
    fn load128(&self, cell: &Cell128) -> [u64; 2] {
        arch::load128(cell)
    }
    /// Bit `2 * i` says whether word `2 * i` of `line` is `key`; the odd bits mean nothing.
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
    /// What the cell held instead.
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
    /// What the cell held instead.
    #[track_caller]
    fn cas_volatile64(
        &self,
        cell: &AtomicU64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> std::result::Result<u64, u64>;

    /// Called in every loop that waits for another thread, with the number of rounds so far: spins, then yields.
    fn wait(&self, rounds: u32) {
        if rounds < 64 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }

    /// Called before a table looks at, or changes, words in DRAM that threads share beside the medium. Only the
    /// simulator listens: another thread may run in between, as everywhere else.
    #[inline(always)]
    fn beside(&self) {}

    /// Called when an optimistic read turns out to have raced with a writer and begins again: nothing is built on what
    /// it has read so far. Only the simulator's detector listens.
    #[inline(always)]
    fn forget_reads(&self) {}

    /// Runs `look`, whose loads decide nothing that a call answers: what to ask for ahead of time, or whether to tidy
    /// up afterwards. Only the simulator's detector listens.
    #[inline(always)]
    fn peek<T>(&self, look: impl FnOnce() -> T) -> T {
        look()
    }

    /// Copies the table's files, as they are, into a new table directory at `path`; tells how many bytes that were. The
    /// caller sees to it that nobody changes them meanwhile.
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
    /// As [`Medium::backup_to`].
    fn copy_regions(&self, path: &Path, parts: &[(&Region, u64)]) -> Result<super::Mapped> {
        let _ = (path, parts);
        Err(crate::Error::Unsupported("this medium has no files to copy".into()))
    }

    /// Called once when a new table is complete on the medium: makes it findable under its path, all at once.
    ///
    /// # Errors
    /// The directory could not be synced or renamed; the path holds no table then.
    fn publish_created(&self) -> Result<()>;

    /// Ends the medium's use by a table: called once by the table's `Drop`, after its last store.
    fn close(&self);
}

/// The refusal of a medium on which somebody else has `region`.
pub(super) fn in_use(region: &Region) -> crate::Error {
    crate::Error::InvalidOption {
        option: "medium",
        detail: format!("its region `{}` is in use; drop the region first", region.name()),
    }
}
