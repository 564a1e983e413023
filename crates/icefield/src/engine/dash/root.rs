//! The state that every directory policy has: the root word, the directory's files, and a lock for structural changes.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use super::layout::Root;
use crate::storage::{Cell64, Medium, Region};
use crate::{Error, Result};

/// The bit that distinguishes a directory entry for segment 0 from an empty entry.
const PRESENT: u64 = 1 << 63;
/// Percentage of the slots that `capacity` and `reserve` plan to use. Segments split at a much higher load, so at this
/// average load even the fullest of many thousand segments does not split.
const PLANNED_LOAD_PERCENT: u64 = 75;

/// The state that every policy has: the root word, the directory's files, and a lock for structural changes.
///
/// The root word is stored and made durable first, and then mirrored in DRAM. All threads read the mirror, so no thread
/// acts on a directory that a crash could take back. Successive generations use the two directory files alternately.
pub struct Base {
    /// A copy of the durable root word, never ahead of it.
    mirror: AtomicU64,
    regions: [Region; 2],
    /// Held in shared mode by splits, merges and expansions; in exclusive mode by `clear`, `backup` and halvings of the
    /// directory. A thread that performs a due split (linear hashing) need not hold this lock.
    structure: RwLock<()>,
    /// The number of segments requested in this session; automatic shrinking stops at this number.
    floor: AtomicU64,
}

impl Base {
    /// Maps the directory's files. `word` is the present root word, or the first root word of a new table.
    pub(super) fn map<M: Medium>(storage: &M, max_entries: u64, word: u64) -> Result<Self> {
        let max_bytes = max_entries * 8;
        let regions = [
            storage.region("directory-0.ice", max_bytes)?,
            storage.region("directory-1.ice", max_bytes)?,
        ];
        Ok(Self {
            mirror: AtomicU64::new(word),
            regions,
            structure: RwLock::new(()),
            floor: AtomicU64::new(0),
        })
    }

    #[inline(always)]
    pub(super) fn word(&self) -> u64 {
        // Acquire (E4): pairs with the Release in `set_word`; the directory behind the word is complete.
        self.mirror.load(Acquire)
    }

    /// Returns the number of segments below which the table does not shrink automatically.
    pub(super) fn floor(&self) -> u64 {
        // Relaxed: a hint.
        self.floor.load(Relaxed)
    }

    pub(super) fn set_floor(&self, segments: u64) {
        self.floor.store(segments, Relaxed);
    }

    /// Raises the floor to at least `segments` segments and calls `make`. Restores the floor if `make` fails.
    pub(super) fn with_floor(
        &self,
        segments: u64,
        make: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let before = self.floor();
        self.set_floor(before.max(segments));
        // If `make` fails, merges may remove what it added.
        make().inspect_err(|_| self.set_floor(before))
    }

    /// Stores, persists and then publishes a root word.
    pub(super) fn set_word(&self, storage: &impl Medium, root: &Root, word: u64) {
        let cell = &root.directory;
        // Release (E6).
        cell.store(storage, word, Release);
        // P12, commit point of doubling, of expansion and of `clear`.
        storage.persist(cell);
        // Release (E4): pairs with the Acquire in `word`.
        self.mirror.store(word, Release);
    }

    pub(super) fn region(&self, parity: usize) -> &Region {
        &self.regions[parity]
    }

    /// Extends the directory file of generations with this parity to at least `entries` entries.
    pub(super) fn grow<M: Medium>(&self, storage: &M, parity: usize, entries: u64) -> Result<()> {
        storage.grow(&self.regions[parity], entries * 8)
    }

    /// Returns the entries of a range of places.
    pub(super) fn entries<M: Medium>(
        &self,
        storage: &M,
        parity: usize,
        places: Range<u64>,
    ) -> Result<&[Cell64]> {
        let region = &self.regions[parity];
        region.slice_at(places.start * 8, (places.end - places.start) as usize).ok_or_else(|| {
            let detail = format!("the file ends before entry {} of the directory", places.end);
            region.fault(storage, places.start * 8, detail)
        })
    }

    /// Returns the segment that an entry names, or `None` if the entry is empty or outside the file.
    #[inline(always)]
    pub(super) fn entry<M: Medium>(&self, storage: &M, parity: usize, place: u64) -> Option<u32> {
        let cell = self.regions[parity].at::<Cell64>(place * 8)?;
        // Acquire (E4): pairs with the Release of the thread that stored the entry.
        segment_of(cell.load(storage, Acquire))
    }

    #[cold]
    pub(super) fn no_entry<M: Medium>(&self, storage: &M, parity: usize, place: u64) -> Error {
        let region = &self.regions[parity];
        let detail = match region.at::<Cell64>(place * 8) {
            Some(entry) => {
                format!("the directory entry {:#x} is impossible", entry.load(storage, Relaxed))
            }
            None => format!("the file ends before entry {place} of the directory"),
        };
        region.fault(storage, place * 8, detail)
    }

    /// Returns the guard that is held during splits and merges.
    pub(super) fn shared(&self) -> RwLockReadGuard<'_, ()> {
        // A panic leaves a state that a crash could leave as well, and recovery handles it.
        self.structure.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a guard that excludes splits and merges.
    pub(super) fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.structure.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the guard of [`Base::alone`], or `None` if the call would have to wait for it.
    pub(super) fn try_alone(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        match self.structure.try_write() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.regions.iter().map(Region::len).sum()
    }
}

/// Returns the entry that names a segment.
pub(super) fn entry_of(segment: u32) -> u64 {
    PRESENT | u64::from(segment)
}

/// Returns the segment that a directory entry names.
#[inline]
pub(super) fn segment_of(entry: u64) -> Option<u32> {
    (entry >> 32 == PRESENT >> 32).then_some(entry as u32)
}

/// Returns a mask of all hash bits except the upper `depth` bits.
pub(super) fn hashes_below(depth: u32) -> u64 {
    u64::MAX.checked_shr(depth).unwrap_or(0)
}

/// Returns the number of records that a segment is planned to hold.
pub(super) fn planned_records(segment_slots: u64) -> u64 {
    (segment_slots * PLANNED_LOAD_PERCENT / 100).max(1)
}

/// Returns the number of segments that are planned for `records` records.
pub(super) fn planned_segments(segment_slots: u64, records: u64) -> u64 {
    records.div_ceil(planned_records(segment_slots)).max(1)
}
