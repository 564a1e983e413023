//! Segments as directory policies find them.

use super::root::hashes_below;

/// The segment that a hash belongs to.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Located {
    pub(super) segment: u32,
    /// The generation that the segment belongs to; its parity selects the record counter.
    pub(super) generation: u64,
    /// A number for the state of the directory in which the segment was found; see [`Directory::is_unchanged`].
    ///
    /// [`Directory::is_unchanged`]: super::directory::Directory::is_unchanged
    pub(super) stamp: u64,
}

/// The same segment in different states of the directory is equal: the table has only grown or shrunk elsewhere.
impl PartialEq for Located {
    fn eq(&self, other: &Self) -> bool {
        (self.segment, self.generation) == (other.segment, other.generation)
    }
}

/// A segment and the hashes that it covers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    pub(super) located: Located,
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Covered {
    /// Builds the range of a segment that covers the hashes which agree with `hash` in the first `depth` bits.
    pub(super) fn new(located: Located, hash: u64, depth: u32) -> Self {
        let below = hashes_below(depth);
        Self { located, first: hash & !below, last: hash | below }
    }

    pub(super) fn contains(self, hash: u64) -> bool {
        (self.first..=self.last).contains(&hash)
    }
}

/// The state of a segment that is not ready, as the directory policy determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The segment is part of the table and only needs recovery.
    Whole,
    /// This call has made the segment, by a split that was due, and has marked it as ready.
    Born,
    /// The segment is not part of the table, either no longer or not yet.
    Elsewhere,
    /// The split that makes the segment is due, and the session only reads: the records are still in the source.
    Due,
}
