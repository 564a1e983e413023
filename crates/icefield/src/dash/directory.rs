//! What a directory policy must do: everything between a hash and a segment. Extendible hashing is [`super::eh::Eh`].

use super::segment::Core;
use crate::Result;
use crate::key::{Key, Value};
use crate::pm::Medium;

/// The segment that a hash belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    pub(super) segment: u32,
    /// Which `clear` the segment came after; its parity selects the record counter.
    pub(super) generation: u64,
}

/// A segment and the hashes that it covers, both ends included.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub(super) located: Located,
    pub(super) first: u64,
    pub(super) last: u64,
}

/// A directory policy. Sealed: its methods speak of types that only this module has.
pub trait Directory: Sized + Send + Sync + 'static {
    /// The design's name in superblocks and on the command line.
    const DESIGN: &'static str;

    /// Lays out an empty table with room for `capacity` records.
    ///
    /// # Errors
    /// No space.
    fn create<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        core: &Core<K, V, M>,
        capacity: u64,
    ) -> Result<Self>;

    /// Takes up what is on the medium, in constant time, and settles interrupted allocations; says how many there were.
    ///
    /// # Errors
    /// The root words are damaged.
    fn open<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        core: &Core<K, V, M>,
    ) -> Result<(Self, u64)>;

    /// The segment of a hash at this moment. Without a lock: re-check with [`Directory::is_current`] after reading
    /// versions or locking. `None` says nothing: ask [`Directory::locate`].
    fn glance<M: Medium>(&self, pm: &M, hash: u64) -> Option<Located>;

    /// [`Directory::glance`] until it says something, or the directory is found to be damaged.
    ///
    /// # Errors
    /// The directory is damaged.
    fn locate<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        hash: u64,
    ) -> Result<Located>;

    /// Whether the hash still belongs there. An entry that is suddenly damaged says no.
    #[inline(always)]
    fn is_current<M: Medium>(&self, pm: &M, hash: u64, located: Located) -> bool {
        self.glance(pm, hash) == Some(located)
    }

    /// The segment of a hash with all that it covers.
    ///
    /// # Errors
    /// As [`Directory::locate`].
    fn range<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        hash: u64,
    ) -> Result<Range>;

    /// Makes room for a record that did not fit: splits the segment, or lengthens its chain. The caller holds no lock.
    ///
    /// # Errors
    /// No space; nothing has changed.
    fn make_room<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        hash: u64,
        located: Located,
    ) -> Result<()>;

    /// Finishes a split that a crash interrupted after its commit point. Called once, before anybody else uses the
    /// segment.
    ///
    /// # Errors
    /// The files are damaged.
    fn finish_split<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        segment: u32,
    ) -> Result<()>;

    /// Makes the table large enough for `records` records in all.
    ///
    /// # Errors
    /// No space; what was gained stays.
    fn reserve<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        records: u64,
    ) -> Result<()>;

    /// Empties the table by one durable store, then waits out writers that still were in its old segments. `retire` is
    /// called with each old segment, locked.
    ///
    /// # Errors
    /// No space; nothing has changed.
    fn clear<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        before: impl FnOnce(u64),
        retire: impl FnMut(super::segment::Segment<'_>) -> Result<()>,
    ) -> Result<()>;

    /// Runs `f` while no segment is being split and none can be.
    ///
    /// # Errors
    /// Whatever `f` says.
    fn without_splits<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T>;

    /// Checks the directory's own invariants, reporting faults; calls `visit` with each segment once.
    ///
    /// # Errors
    /// The files cannot be read.
    fn check<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &self,
        core: &Core<K, V, M>,
        fault: &mut dyn FnMut(String),
    ) -> Result<Vec<u32>>;

    /// Bytes of the directory's regions.
    fn bytes(&self) -> u64;

    /// How many records the present segments are planned to take.
    fn capacity<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(&self, core: &Core<K, V, M>) -> u64;

    /// The first hash past a damaged segment that covers `hash`: as far as the directory can tell without it.
    fn skip(&self, hash: u64) -> Option<u64>;

    /// Which `clear` the present segments came after.
    fn generation(&self) -> u64;

    /// The policy's own numbers for `stats`.
    fn details(&self) -> Vec<(&'static str, u64)>;
}
