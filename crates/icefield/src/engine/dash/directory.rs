//! The interface of a directory policy, which maps a hash to a segment, and the functions that all policies share.
//! Extendible hashing is [`super::eh::Eh`], linear hashing [`super::lh::Lh`].

use super::kinds::{Ablation, Kinds};
use super::located::{Covered, Located, Standing};
use super::root::{Base, planned_records};
use super::segment::Core;
use crate::Result;
use crate::engine::mending::Mending;
use crate::engine::slots::EpochGuard;
use crate::storage::Medium;

/// Maximum number of lookups that may return a segment which is not part of the table. Normally each such lookup means
/// that another thread has just merged the segment; a damaged directory would name it forever.
const PATIENCE: u32 = 1 << 8;

/// A directory policy. Sealed: its methods use types that are private to this module.
pub trait Directory: Sized + Send + Sync + 'static {
    /// The design's name in superblocks and on the command line.
    const DESIGN: &'static str;

    /// The techniques that the tables of this policy use.
    type Ablation: Ablation;

    /// The options of a new table, which the superblock stores.
    type Options: Clone + Copy + Default + std::fmt::Debug + Send + Sync;

    /// Returns the options as superblock parameters.
    fn params(options: Self::Options) -> [u64; 3];

    /// Returns the options that superblock parameters encode, or `None` if the parameters are impossible.
    fn options(params: [u64; 3]) -> Option<Self::Options>;

    /// Returns the generation in a root word.
    fn generation_in(root_word: u64) -> u64;

    /// Creates an empty table with room for `capacity` records.
    ///
    /// # Errors
    /// No space.
    fn create<T: Kinds>(core: &Core<T>, options: Self::Options, capacity: u64) -> Result<Self>;

    /// Opens the table on the medium in constant time and resolves interrupted allocations. Returns the directory and
    /// the number of these allocations.
    ///
    /// # Errors
    /// The root words are damaged.
    fn open<T: Kinds>(core: &Core<T>, options: Self::Options) -> Result<(Self, u64)>;

    /// Prepares a damaged table for salvage: replaces missing parts of its files, in private copies of the pages.
    ///
    /// # Errors
    /// The root words cannot be read; no memory.
    fn mend<T: Kinds>(core: &Core<T>, options: Self::Options, mending: &Mending) -> Result<()>;

    /// Returns the present segment of a hash, without a lock. The caller checks the result with
    /// [`Directory::is_current`] after it has read the versions of the buckets or locked the buckets. After `None` the
    /// caller uses [`Directory::locate`].
    fn try_locate<M: Medium>(&self, storage: &M, hash: u64) -> Option<Located>;

    /// Repeats [`Directory::try_locate`] until it returns a segment, or the directory proves to be damaged.
    ///
    /// # Errors
    /// The directory is damaged.
    fn locate<T: Kinds>(&self, core: &Core<T>, hash: u64) -> Result<Located>;

    /// Does the same as [`Directory::locate`], and recovers the segment if this session has not used it. The caller
    /// holds no lock of a segment.
    ///
    /// # Errors
    /// As [`Directory::locate`]; also if the space for a split is lacking.
    #[inline(always)]
    fn ready<T: Kinds>(&self, core: &Core<T>, hash: u64) -> Result<Located> {
        match self.try_locate(&core.storage, hash) {
            Some(located) if core.marks.is_ready(located.segment) => Ok(located),
            _ => self.make_ready(core, hash),
        }
    }

    /// Continues [`Directory::ready`] when the directory changes, is damaged, or names a segment that is not ready, as
    /// every segment is in a session that only reads.
    ///
    /// # Errors
    /// As [`Directory::ready`].
    #[cold]
    fn make_ready<T: Kinds>(&self, core: &Core<T>, hash: u64) -> Result<Located> {
        for _ in 0..PATIENCE {
            let located = self.locate(core, hash)?;
            if core.marks.is_ready(located.segment) {
                return Ok(located);
            }
            if let Some(located) = self.arrive(core, hash, located)? {
                return Ok(located);
            }
        }
        Err(core.headers.fault(
            &core.storage,
            0,
            format!("the segment of hash {hash:#018x} is free"),
        ))
    }

    /// Completes [`Directory::ready`] for a segment that is not ready. Returns `None` if the hash must be looked up
    /// again. In a session that only reads, no segment is marked as ready, so every lookup takes this path.
    ///
    /// # Errors
    /// As [`Directory::ready`].
    fn arrive<T: Kinds>(
        &self,
        core: &Core<T>,
        hash: u64,
        located: Located,
    ) -> Result<Option<Located>>;

    /// In a session that only reads: returns the segments that own chains although the splits that make these segments
    /// are due.
    fn due<T: Kinds>(&self, _core: &Core<T>) -> Vec<u32> {
        Vec::new()
    }

    /// Returns whether the directory is in the state in which the segment was found. Then the hash belongs to the
    /// segment. In linear hashing, the segment may have left the table meanwhile and returned; so the caller must have
    /// read the versions of the buckets, and then have found the segment ready.
    fn is_unchanged(&self, located: Located) -> bool;

    /// Returns whether the hash still belongs to the segment. Returns `false` for a damaged entry.
    #[inline(always)]
    fn is_current<T: Kinds>(&self, core: &Core<T>, hash: u64, located: Located) -> bool {
        self.try_locate(&core.storage, hash) == Some(located)
    }

    /// Returns the range of hashes that `located`, the segment of `hash`, covers; `None` if the hash belongs to another
    /// segment now, or the range changed during the call.
    ///
    /// # Errors
    /// The files are damaged.
    fn covered<T: Kinds>(
        &self,
        core: &Core<T>,
        hash: u64,
        located: Located,
    ) -> Result<Option<Covered>>;

    /// Recovers the segment of a hash if necessary, and returns it with its range. The caller holds no lock of a
    /// segment.
    ///
    /// # Errors
    /// As [`Directory::ready`].
    fn range<T: Kinds>(&self, core: &Core<T>, hash: u64) -> Result<Covered> {
        loop {
            let located = self.ready(core, hash)?;
            if let Some(covered) = self.covered(core, hash, located)? {
                return Ok(covered);
            }
        }
    }

    /// Calls `visit` with the range of each segment, in hash order.
    ///
    /// # Errors
    /// As [`Directory::range`], and the errors of `visit`.
    fn each_range<T: Kinds>(
        &self,
        core: &Core<T>,
        mut visit: impl FnMut(Covered) -> Result<()>,
    ) -> Result<()> {
        let mut next = Some(0_u64);
        while let Some(hash) = next {
            let covered = self.range(core, hash)?;
            visit(covered)?;
            next = covered.last.checked_add(1);
        }
        Ok(())
    }

    /// Makes room for a record that did not fit: splits the segment or lengthens its chain. `records` returns the
    /// approximate number of records in the table. The caller holds no lock.
    ///
    /// # Errors
    /// No space; nothing has changed.
    fn make_room<T: Kinds>(
        &self,
        core: &Core<T>,
        hash: u64,
        located: Located,
        records: impl Fn() -> u64,
    ) -> Result<()>;

    /// Determines the state of a segment that is not ready, and performs the split that makes the segment if that split
    /// is due. `fresh` is false if this session used the segment before the segment left the table; the segment's locks
    /// are then valid. The caller holds the segment's mark, so no other thread uses the segment.
    ///
    /// # Errors
    /// The files are damaged; no space.
    #[inline]
    fn determine_state<T: Kinds>(
        &self,
        core: &Core<T>,
        segment: u32,
        fresh: bool,
    ) -> Result<Standing> {
        let _ = (core, segment, fresh);
        Ok(Standing::Whole)
    }

    /// Makes the hashes that share the first `depth` bits of `pattern` belong to segment `to`, after a committed split
    /// or merge. The change is durable with the caller's next fence. Does nothing if the root word alone determines the
    /// segment.
    ///
    /// # Errors
    /// The files are damaged.
    #[inline]
    fn redirect<T: Kinds>(
        &self,
        core: &Core<T>,
        (pattern, depth): (u64, u32),
        from: u32,
        to: u32,
    ) -> Result<()> {
        let _ = (core, pattern, depth, from, to);
        Ok(())
    }

    /// Returns whether the segment that began at hash `pattern` has been merged into its left neighbour, although the
    /// state of that neighbour is still splitting. Always `false` in extendible hashing, which has a separate state for
    /// this.
    fn is_merged(&self, pattern: u64) -> bool {
        let _ = pattern;
        false
    }

    /// Finishes a merge that a crash interrupted after its commit point. Called during recovery, before any thread uses
    /// the segment.
    ///
    /// # Errors
    /// The files are damaged.
    fn finish_merge<T: Kinds>(&self, core: &Core<T>, segment: u32) -> Result<()> {
        let _ = (core, segment);
        Ok(())
    }

    /// Merges the segment of a hash with a neighbour (linear hashing: the last segment with its source), if the merged
    /// segment would be filled to at most `percent`. Returns whether it merged any. The caller holds no lock.
    ///
    /// # Errors
    /// The files are damaged.
    fn shrink<T: Kinds>(
        &self,
        core: &Core<T>,
        pin: &EpochGuard<'_>,
        hash: u64,
        percent: u64,
    ) -> Result<bool>;

    /// Applies [`Directory::shrink`] to the whole table as far as possible, and shortens the directory.
    ///
    /// # Errors
    /// The files are damaged.
    fn shrink_all<T: Kinds>(
        &self,
        core: &Core<T>,
        pin: &EpochGuard<'_>,
        percent: u64,
    ) -> Result<()>;

    /// Returns to the file system the freed space that no operation can access any more.
    ///
    /// # Errors
    /// The system call failed; the table is unaffected.
    fn give_back<T: Kinds>(&self, core: &Core<T>) -> Result<()>;

    /// Makes the table large enough for `records` records in total.
    ///
    /// # Errors
    /// No space. This is checked before anything is added; if space runs out later, the segments added until then stay.
    fn reserve<T: Kinds>(&self, core: &Core<T>, records: u64) -> Result<()>;

    /// Empties the table by one durable store, then waits for writers that are still in its old segments. Calls
    /// `before` with the new generation before that store, and `retire` with each old segment while its locks are held.
    ///
    /// # Errors
    /// No space; nothing has changed.
    fn clear<T: Kinds>(
        &self,
        core: &Core<T>,
        pin: &EpochGuard<'_>,
        before: impl FnOnce(u64),
        retire: impl FnMut(super::segment::Segment<'_>) -> Result<()>,
    ) -> Result<()>;

    /// Runs `f` and excludes splits, merges and expansions meanwhile. Splits that are already due (linear hashing) are
    /// not excluded.
    ///
    /// # Errors
    /// The errors of `f`.
    fn without_splits<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let _alone = self.base().alone();
        f()
    }

    /// Checks the directory's invariants and reports faults. Returns each segment once.
    ///
    /// # Errors
    /// The files cannot be read.
    fn check<T: Kinds>(&self, core: &Core<T>, fault: &mut dyn FnMut(String)) -> Result<Vec<u32>>;

    /// Returns the number of segments that have space on the medium.
    fn segments<T: Kinds>(&self, core: &Core<T>) -> u64;

    /// Returns the segments that have space and are not in use, and an upper bound of all segment numbers.
    ///
    /// # Errors
    /// The files are damaged.
    fn spare<T: Kinds>(&self, core: &Core<T>) -> Result<(Vec<u32>, u64)>;

    /// Returns the number of records that the present segments are planned to hold.
    fn capacity<T: Kinds>(&self, core: &Core<T>) -> u64 {
        self.segments(core) * planned_records(core.geometry.segment_slots())
    }

    /// Returns the first hash past a damaged segment that covers `hash`, as far as the directory determines it.
    fn skip(&self, hash: u64) -> Option<u64>;

    /// Returns the state that every policy has.
    fn base(&self) -> &Base;

    /// Returns the present generation: the number of `clear` calls so far.
    #[inline]
    fn generation(&self) -> u64 {
        Self::generation_in(self.base().word())
    }

    /// Returns the policy's values for `stats`.
    fn details(&self) -> Vec<(&'static str, u64)>;
}
