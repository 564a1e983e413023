//! What every directory policy has: the root word, the directory's files, a lock over changes of structure.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use super::kinds::Kinds;
use super::segment::Core;
use crate::pm::{Cell64, Medium, Region};
use crate::{Error, Result};

/// Marks a directory entry that has been stored.
const PRESENT: u64 = 1 << 63;
/// The part of the slots that `capacity` and `reserve` plan to use: far enough below the load at which segments split
/// that the fullest of many thousands does not.
const PLANNED_LOAD_PERCENT: u64 = 75;

/// What every policy has: the root word, the directory's files, a lock over changes of structure.
///
/// The root word is stored and made durable first, and mirrored in DRAM afterwards; everybody reads the mirror, so
/// nobody acts on a directory that a crash could take back. Two files take turns, one per generation of `clear`.
pub struct Base {
    /// A copy of the durable root word, never ahead of it.
    mirror: AtomicU64,
    regions: [Region; 2],
    /// Splits and expansions hold it shared, `clear` and `backup` alone.
    structure: RwLock<()>,
    /// So many segments were asked for in this session: a table does not become smaller by itself.
    floor: AtomicU64,
}

impl Base {
    /// Maps the directory's files. `word`: what the root word is, or shall be.
    pub(super) fn map<M: Medium>(pm: &M, max_entries: u64, word: u64) -> Result<Self> {
        let max_bytes = max_entries * 8;
        let regions =
            [pm.region("directory-0.ice", max_bytes)?, pm.region("directory-1.ice", max_bytes)?];
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

    /// How many segments the table keeps until it is told to shrink.
    pub(super) fn floor(&self) -> u64 {
        // Relaxed: a hint.
        self.floor.load(Relaxed)
    }

    pub(super) fn set_floor(&self, segments: u64) {
        self.floor.store(segments, Relaxed);
    }

    /// Keeps at least so many segments, if there is room for them.
    pub(super) fn with_floor(
        &self,
        segments: u64,
        make: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let before = self.floor();
        self.set_floor(before.max(segments));
        // What was made goes again by merges, as what was never reserved.
        make().inspect_err(|_| self.set_floor(before))
    }

    /// Stores, persists and then publishes a root word.
    pub(super) fn set_word<T: Kinds>(&self, core: &Core<T>, word: u64) -> Result<()> {
        let cell = &core.root()?.directory;
        // Release (E6).
        cell.store(&core.pm, word, Release);
        // P12, commit point of doubling, of expansion and of `clear`.
        core.pm.persist(cell);
        // Release (E4): pairs with the Acquire in `word`.
        self.mirror.store(word, Release);
        Ok(())
    }

    /// A file of the directory.
    pub(super) fn region(&self, parity: usize) -> &Region {
        &self.regions[parity]
    }

    /// Makes so many entries of a file usable.
    pub(super) fn grow<M: Medium>(&self, pm: &M, parity: usize, entries: u64) -> Result<()> {
        pm.grow(&self.regions[parity], entries * 8)
    }

    /// The entries of a range of places.
    pub(super) fn entries<M: Medium>(
        &self,
        pm: &M,
        parity: usize,
        places: Range<u64>,
    ) -> Result<&[Cell64]> {
        let region = &self.regions[parity];
        region.slice_at(places.start * 8, (places.end - places.start) as usize).ok_or_else(|| {
            let detail = format!("the file ends before entry {} of the directory", places.end);
            Error::corrupt(pm.path().join(region.name()), places.start * 8, detail)
        })
    }

    /// The segment that an entry names; `None`: it names none, or is not there.
    #[inline(always)]
    pub(super) fn entry<M: Medium>(&self, pm: &M, parity: usize, place: u64) -> Option<u32> {
        let cell = self.regions[parity].at::<Cell64>(place * 8)?;
        // Acquire (E4): pairs with the Release of whoever stored the entry.
        segment_of(cell.load(pm, Acquire))
    }

    #[cold]
    pub(super) fn no_entry<M: Medium>(&self, pm: &M, parity: usize, place: u64) -> Error {
        let region = &self.regions[parity];
        let detail = match region.at::<Cell64>(place * 8) {
            Some(entry) => format!("directory entry {:#x}", entry.load(pm, Relaxed)),
            None => format!("the file ends before entry {place} of the directory"),
        };
        Error::corrupt(pm.path().join(region.name()), place * 8, detail)
    }

    /// Held while segments are split.
    pub(super) fn shared(&self) -> RwLockReadGuard<'_, ()> {
        // A panic cannot have left anything half done that a crash could not: recovery handles it.
        self.structure.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held while no segment may be split.
    pub(super) fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.structure.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// [`Base::alone`] if nobody is in the way.
    pub(super) fn try_alone(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        match self.structure.try_write() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Bytes of the directory's files.
    pub(super) fn bytes(&self) -> u64 {
        self.regions.iter().map(Region::len).sum()
    }
}

/// The entry that names a segment.
pub(super) fn entry_of(segment: u32) -> u64 {
    PRESENT | u64::from(segment)
}

/// The segment that a directory entry names.
#[inline]
pub(super) fn segment_of(entry: u64) -> Option<u32> {
    (entry >> 32 == PRESENT >> 32).then_some(entry as u32)
}

/// All hash bits below the first `depth`.
pub(super) fn hashes_below(depth: u32) -> u64 {
    u64::MAX.checked_shr(depth).unwrap_or(0)
}

/// How many records a segment is planned to take.
pub(super) fn planned_records(segment_slots: u64) -> u64 {
    (segment_slots * PLANNED_LOAD_PERCENT / 100).max(1)
}

/// How many segments `records` records are planned to take.
pub(super) fn planned_segments(segment_slots: u64, records: u64) -> u64 {
    records.div_ceil(planned_records(segment_slots)).max(1)
}
