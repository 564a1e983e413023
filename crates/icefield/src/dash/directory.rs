//! What a directory policy must do, everything between a hash and a segment; and what every policy does it with.
//! Extendible hashing is [`super::eh::Eh`], linear hashing [`super::lh::Lh`].

use super::kinds::{Ablation, Kinds};
use super::recover::touch;
use super::root::{Base, hashes_below, planned_records};
use super::segment::Core;
use crate::Result;
use crate::pm::Medium;
use crate::record::Pin;
use crate::record::mending::Mending;

/// So often a segment that turns out to be no part of the table is looked up anew: each time somebody else has just
/// merged it. A damaged directory would name it for ever.
const PATIENCE: u32 = 1 << 8;

/// The segment that a hash belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    pub(super) segment: u32,
    /// Which `clear` the segment came after; its parity selects the record counter.
    pub(super) generation: u64,
}

/// A segment and the hashes that it covers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    pub(super) located: Located,
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Covered {
    /// A segment that covers the hashes which agree with `hash` in the first `depth` bits.
    pub(super) fn new(located: Located, hash: u64, depth: u32) -> Self {
        let below = hashes_below(depth);
        Self { located, first: hash & !below, last: hash | below }
    }

    pub(super) fn contains(self, hash: u64) -> bool {
        (self.first..=self.last).contains(&hash)
    }
}

/// What a policy knows of a segment that nobody has used yet in this session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is what it was when the last session ended.
    Whole,
    /// It has been made right now, by a split that was due; it is marked as ready.
    Born,
    /// It is no part of the table, any more or yet.
    Elsewhere,
    /// The split that makes it is due, and the session only reads: its records are where they were.
    Due,
}

/// A directory policy. Sealed: its methods speak of types that only this module has.
pub trait Directory: Sized + Send + Sync + 'static {
    /// The design's name in superblocks and on the command line.
    const DESIGN: &'static str;

    /// What its tables do without.
    type Ablation: Ablation;

    /// What a new table is told, and remembers.
    type Options: Clone + Copy + Default + std::fmt::Debug + Send + Sync;

    /// The options as superblock parameters.
    fn params(options: Self::Options) -> [u64; 3];

    /// The options that superblock parameters stand for, if they are possible.
    fn options(params: [u64; 3]) -> Option<Self::Options>;

    /// The generation in a root word.
    fn generation_in(root_word: u64) -> u64;

    /// Lays out an empty table with room for `capacity` records.
    ///
    /// # Errors
    /// No space.
    fn create<T: Kinds>(core: &Core<T>, options: Self::Options, capacity: u64) -> Result<Self>;

    /// Takes up what is on the medium, in constant time, and settles interrupted allocations; says how many there were.
    ///
    /// # Errors
    /// The root words are damaged.
    fn open<T: Kinds>(core: &Core<T>, options: Self::Options) -> Result<(Self, u64)>;

    /// Makes up for what is missing of the files of a table that is opened for salvage, in private copies of their
    /// pages.
    ///
    /// # Errors
    /// The root words cannot be read; no memory.
    fn mend<T: Kinds>(core: &Core<T>, options: Self::Options, mending: &Mending) -> Result<()>;

    /// The segment of a hash at this moment. Without a lock: re-check with [`Directory::is_current`] after reading
    /// versions or locking. `None` says nothing: ask [`Directory::locate`].
    fn glance<M: Medium>(&self, pm: &M, hash: u64) -> Option<Located>;

    /// [`Directory::glance`] until it says something, or the directory is found to be damaged.
    ///
    /// # Errors
    /// The directory is damaged.
    fn locate<T: Kinds>(&self, core: &Core<T>, hash: u64) -> Result<Located>;

    /// [`Directory::locate`], ready to be used in this session. The caller holds no lock of a segment.
    ///
    /// # Errors
    /// As [`Directory::locate`]; no space for what a split needs.
    #[inline]
    fn ready<T: Kinds>(&self, core: &Core<T>, hash: u64) -> Result<Located> {
        for _ in 0..PATIENCE {
            let located = self.locate(core, hash)?;
            if core.is_touched(located.segment) {
                return Ok(located);
            }
            if let Some(located) = self.arrive(core, hash, located)? {
                return Ok(located);
            }
        }
        Err(core.corrupt(&core.headers, 0, format!("the segment of hash {hash:#018x} is free")))
    }

    /// [`Directory::ready`] of a segment that is not: `None` where another one has to be looked up. In a session that
    /// only reads no segment counts as touched, so all come this way.
    ///
    /// # Errors
    /// As [`Directory::ready`].
    #[cold]
    fn arrive<T: Kinds>(
        &self,
        core: &Core<T>,
        hash: u64,
        located: Located,
    ) -> Result<Option<Located>> {
        let ready = touch(core, self, located.segment)?;
        // What a session that only reads settles may lead the hash elsewhere, and no later look would tell.
        let is_there = core.still.is_none() || self.is_current(core, hash, located);
        Ok((ready && is_there).then_some(located))
    }

    /// The segments whose splits are due and not made, and that have chains of their own.
    fn due<T: Kinds>(&self, _core: &Core<T>) -> Vec<u32> {
        Vec::new()
    }

    /// Whether the hash still belongs there. An entry that is suddenly damaged says no.
    #[inline(always)]
    fn is_current<T: Kinds>(&self, core: &Core<T>, hash: u64, located: Located) -> bool {
        self.glance(&core.pm, hash) == Some(located)
    }

    /// What the segment of a hash covers; `None` when that was changing meanwhile.
    ///
    /// # Errors
    /// The files are damaged.
    fn covered<T: Kinds>(
        &self,
        core: &Core<T>,
        hash: u64,
        located: Located,
    ) -> Result<Option<Covered>>;

    /// The segment of a hash, ready to be used, with all that it covers. The caller holds no lock of a segment.
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

    /// Calls `visit` with the range of each segment, in the order of the hashes.
    ///
    /// # Errors
    /// As [`Directory::range`], and what `visit` says.
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

    /// Makes room for a record that did not fit: splits the segment, or lengthens its chain. `records`: about how many
    /// the table has. The caller holds no lock.
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

    /// Finds out about a segment that nobody has used yet in this session (or again since it was given up: then it is
    /// not `fresh`, and its locks are in order), and makes it if a split is due. Called once, before anybody else uses
    /// the segment.
    ///
    /// # Errors
    /// The files are damaged; no space.
    #[inline]
    fn settle<T: Kinds>(&self, core: &Core<T>, segment: u32, fresh: bool) -> Result<Standing> {
        let _ = (core, segment, fresh);
        Ok(Standing::Whole)
    }

    /// A split has been committed: the hashes `pattern..` (`depth` bits) belong to the segment `to` from now on.
    /// Durable by the caller's next fence. Nothing to do where the root word decides.
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

    /// Whether the hashes `pattern..` have been merged into the segment to their left, which still says that it is
    /// being split. Extendible hashing has a state of its own for that.
    fn is_merged(&self, pattern: u64) -> bool {
        let _ = pattern;
        false
    }

    /// Finishes a merge that a crash interrupted after its commit point. Called once, before anybody else uses the
    /// segment.
    ///
    /// # Errors
    /// The files are damaged.
    fn finish_merge<T: Kinds>(&self, core: &Core<T>, segment: u32) -> Result<()> {
        let _ = (core, segment);
        Ok(())
    }

    /// Merges segments about the one of a hash, if they hold so little that they would fill one to `percent` at most.
    /// Says whether it did. The caller holds no lock.
    ///
    /// # Errors
    /// The files are damaged.
    fn shrink<T: Kinds>(
        &self,
        core: &Core<T>,
        pin: &Pin<'_>,
        hash: u64,
        percent: u64,
    ) -> Result<bool>;

    /// [`Directory::shrink`] everywhere, as far as it goes, and a shorter directory.
    ///
    /// # Errors
    /// The files are damaged.
    fn shrink_all<T: Kinds>(&self, core: &Core<T>, pin: &Pin<'_>, percent: u64) -> Result<()>;

    /// Gives freed space back to the file system as far as nobody can be on the way there any more.
    ///
    /// # Errors
    /// The system call failed; the table is as good as before.
    fn give_back<T: Kinds>(&self, core: &Core<T>) -> Result<()>;

    /// Makes the table large enough for `records` records in all.
    ///
    /// # Errors
    /// No space: found out before any is taken, unless it goes meanwhile. What was gained then stays.
    fn reserve<T: Kinds>(&self, core: &Core<T>, records: u64) -> Result<()>;

    /// Empties the table by one durable store, then waits out writers that still were in its old segments. `retire` is
    /// called with each old segment, locked.
    ///
    /// # Errors
    /// No space; nothing has changed.
    fn clear<T: Kinds>(
        &self,
        core: &Core<T>,
        pin: &Pin<'_>,
        before: impl FnOnce(u64),
        retire: impl FnMut(super::segment::Segment<'_>) -> Result<()>,
    ) -> Result<()>;

    /// Runs `f` while no segment is being split and none can be.
    ///
    /// # Errors
    /// Whatever `f` says.
    fn without_splits<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let _alone = self.base().alone();
        f()
    }

    /// Checks the directory's own invariants, reporting faults; gives each segment once.
    ///
    /// # Errors
    /// The files cannot be read.
    fn check<T: Kinds>(&self, core: &Core<T>, fault: &mut dyn FnMut(String)) -> Result<Vec<u32>>;

    /// How many segments have space on the medium.
    fn segments<T: Kinds>(&self, core: &Core<T>) -> u64;

    /// The segments that have a place and are not in use, and the number that all segments lie below.
    ///
    /// # Errors
    /// The files are damaged.
    fn spare<T: Kinds>(&self, core: &Core<T>) -> Result<(Vec<u32>, u64)>;

    /// How many records the present segments are planned to take.
    fn capacity<T: Kinds>(&self, core: &Core<T>) -> u64 {
        self.segments(core) * planned_records(core.geometry.segment_slots())
    }

    /// The first hash past a damaged segment that covers `hash`: as far as the directory can tell without it.
    fn skip(&self, hash: u64) -> Option<u64>;

    /// What every policy has.
    fn base(&self) -> &Base;

    /// Which `clear` the present segments came after.
    #[inline]
    fn generation(&self) -> u64 {
        Self::generation_in(self.base().word())
    }

    /// The policy's own numbers for `stats`.
    fn details(&self) -> Vec<(&'static str, u64)>;
}
