//! The size of a table with linear hashing: `N`, `Next` and the generation in one word, and the numbers of segments
//! (§5.1, §5.3).
//!
//! A round splits the segments of one depth in hash order, so that every segment covers a contiguous run of hashes, as
//! in extendible hashing. Scans, cursors and splits therefore work the same way in both. Splitting the run with prefix
//! *p* of *N* bits makes the segment with number 2^*N* + *p*. The *path* of a segment is its prefix with a 1 bit in
//! front, read as a number. The number of a segment is its path without the trailing zeros and without the 1 bit before
//! them. A split appends a 0 to the path of the segment that is split, so this segment keeps its number.

use super::layout::MAX_DEPTH;

/// The size and the generation of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Number of `clear` calls, modulo 2^24.
    pub(super) generation: u64,
    /// `N`: number of bits of a prefix that has not been split in this round.
    pub(super) level: u32,
    /// `Next`: the prefix that is split next.
    pub(super) next: u64,
}

impl Extent {
    const GENERATION_SHIFT: u32 = 40;

    #[inline]
    pub(super) fn pack(self) -> u64 {
        self.generation << Self::GENERATION_SHIFT | u64::from(self.level) << 32 | self.next
    }

    #[inline]
    pub(super) fn unpack(word: u64) -> Self {
        Self {
            generation: word >> Self::GENERATION_SHIFT,
            level: (word >> 32) as u32 & 0xFF,
            next: word & u64::from(u32::MAX),
        }
    }

    /// Returns the extent of a table with `segments` segments. There must be at least one.
    pub(super) fn of(generation: u64, segments: u64) -> Self {
        let level = segments.ilog2();
        Self { generation, level, next: segments - (1 << level) }
    }

    /// Returns whether a table can have this extent; `least` is the level of the smallest table.
    pub(super) fn is_possible(self, least: u32) -> bool {
        (least..MAX_DEPTH).contains(&self.level) && self.next < 1 << self.level
    }

    #[inline(always)]
    pub(super) fn parity(self) -> usize {
        (self.generation & 1) as usize
    }

    /// Returns the number of segments.
    pub(super) fn count(self) -> u64 {
        (1 << self.level) + self.next
    }

    /// Returns the extent with one segment more, or `None` at the maximum.
    pub(super) fn grown(self) -> Option<Self> {
        let grown = Self::of(self.generation, self.count() + 1);
        (grown.level < MAX_DEPTH).then_some(grown)
    }

    /// Returns the extent with one segment less, or `None` if there are at most `least` segments now.
    pub(super) fn shrunk(self, least: u64) -> Option<Self> {
        (self.count() > least).then(|| Self::of(self.generation, self.count() - 1))
    }

    /// Returns the extent after a `clear`, with `segments` empty segments.
    pub(super) fn cleared(self, segments: u64) -> Self {
        Self::of((self.generation + 1) & (u64::MAX >> Self::GENERATION_SHIFT), segments)
    }

    /// Returns the path of the segment of a hash.
    #[inline(always)]
    fn path(self, hash: u64) -> u64 {
        let path = path(hash, self.level);
        if path < self.count() { path_below(hash, self.level) } else { path }
    }

    /// Returns the number of bits in the prefix of the hash's segment.
    #[inline]
    pub(super) fn depth(self, hash: u64) -> u32 {
        self.path(hash).ilog2()
    }

    /// Returns the number of the segment of a hash.
    #[inline(always)]
    pub(super) fn index(self, hash: u64) -> u64 {
        number(self.path(hash))
    }
}

/// Returns the path of the first `depth` bits of a hash.
#[inline(always)]
fn path(hash: u64, depth: u32) -> u64 {
    (1 << 63 | hash >> 1) >> (63 - depth)
}

/// Returns the path of the first `depth + 1` bits of a hash.
#[inline(always)]
fn path_below(hash: u64, depth: u32) -> u64 {
    path(hash, depth + 1)
}

/// Returns the number of the segment at a path.
#[inline(always)]
fn number(path: u64) -> u64 {
    path >> path.trailing_zeros() >> 1
}

/// Returns the segment that segment `index` is split off from. The returned number has fewer bits set than `index`.
pub(super) fn source(index: u64) -> u64 {
    number(index)
}

/// Returns the depth that segment `index` has when it is made. Not for segments of the first array.
pub(super) fn birth_depth(index: u64) -> u32 {
    index.ilog2() + 1
}

/// Returns the first hash of segment `index`.
pub(super) fn pattern(index: u64) -> u64 {
    let path = 2 * index + 1;
    path << path.leading_zeros() << 1
}

/// Returns the segment that a split of segment `index` makes while segment `index` has depth `depth`.
pub(super) fn child(index: u64, depth: u32) -> u64 {
    path(pattern(index), depth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::dash::root::hashes_below;

    #[test]
    fn extents_survive_packing() {
        let mut extent = Extent::of(3, 1);
        for segments in 1..1000 {
            assert_eq!((extent.count(), Extent::unpack(extent.pack())), (segments, extent));
            assert!(extent.is_possible(0));
            extent = extent.grown().unwrap();
        }
        assert_eq!(Extent::of(7, (1 << MAX_DEPTH) - 1).grown(), None);
        assert_eq!(Extent::of((1 << 24) - 1, 5).cleared(4), Extent::of(0, 4));
        assert!(!Extent::unpack(u64::MAX).is_possible(0));
        assert!(!Extent { next: 4, ..Extent::of(0, 4) }.is_possible(0));
    }

    #[test]
    fn every_segment_covers_one_run_of_hashes() {
        let mut extent = Extent::of(0, 1);
        for segments in 1..200_u64 {
            let mut seen = vec![false; segments as usize];
            let (mut hash, mut runs) = (0_u64, 0);
            loop {
                let (index, last) = (extent.index(hash), hash | hashes_below(extent.depth(hash)));
                assert!(!std::mem::replace(&mut seen[index as usize], true));
                assert_eq!((pattern(index), extent.index(last)), (hash, index));
                runs += 1;
                match last.checked_add(1) {
                    Some(next) => hash = next,
                    None => break,
                }
            }
            assert_eq!(runs, segments);
            extent = extent.grown().unwrap();
        }
    }

    #[test]
    fn a_segment_is_split_off_from_its_source() {
        let mut extent = Extent::of(0, 4);
        for index in 4..500 {
            let grown = extent.grown().unwrap();
            let hash = pattern(index);
            assert_eq!((grown.index(hash), extent.index(hash)), (index, source(index)));
            assert_eq!(grown.depth(hash), birth_depth(index));
            assert_eq!(child(source(index), birth_depth(index) - 1), index);
            assert!(source(index).count_ones() < index.count_ones());
            extent = grown;
        }
    }
}
