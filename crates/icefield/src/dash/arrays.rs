//! Hybrid expansion (§5.2): in which array a segment of linear hashing lies, and where that array is.
//!
//! Segments are numbered in the order in which they come to be. The first array holds `first` of them; a `stride` of
//! arrays have that size, the next `stride` twice as much, and so on: a directory of some hundred bytes indexes
//! terabytes, and growth never takes much more than the stride's part of what there is. Both numbers are powers of two,
//! so that a place is a few shifts.

use super::layout::MAX_DEPTH;

/// The longest first array, and the most arrays of one size.
const MAX_FIRST: u32 = 1 << 12;
const MAX_STRIDE: u32 = 64;

/// The shape of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrays {
    first_bits: u32,
    stride_bits: u32,
}

impl Arrays {
    /// What the paper uses (§6.2).
    pub(super) const DEFAULT: Self = Self { first_bits: 6, stride_bits: 3 };

    /// `None`: no such shape.
    pub(super) fn new(first: u64, stride: u64) -> Option<Self> {
        let possible = |number: u64, most: u32| {
            let number = u32::try_from(number).ok()?;
            (number.is_power_of_two() && number <= most).then(|| number.trailing_zeros())
        };
        Some(Self {
            first_bits: possible(first, MAX_FIRST)?,
            stride_bits: possible(stride, MAX_STRIDE)?,
        })
    }

    /// The depth of the segments of the first array in a new table.
    pub(super) fn first_bits(self) -> u32 {
        self.first_bits
    }

    /// Segments in the first array.
    pub(super) fn first(self) -> u64 {
        1 << self.first_bits
    }

    /// The array of a segment, and the segment's place in it.
    pub(super) fn array_of(self, index: u64) -> (u64, u64) {
        // Counted from a stride before the first array, arrays of one size begin at a power of two.
        let unit = (index >> self.first_bits) + (1 << self.stride_bits);
        let doublings = unit.ilog2() - self.stride_bits;
        let array = (u64::from(doublings) << self.stride_bits) + (unit >> doublings)
            - (1 << self.stride_bits);
        let within = unit & ((1 << doublings) - 1);
        (array, within << self.first_bits | index & (self.first() - 1))
    }

    /// Segments in an array.
    pub(super) fn size(self, array: u64) -> u64 {
        self.first() << (array >> self.stride_bits)
    }

    /// The first segment of an array.
    pub(super) fn start(self, array: u64) -> u64 {
        let stride = 1 << self.stride_bits;
        let (doublings, number) = (array >> self.stride_bits, array & (stride - 1));
        (((stride + number) << doublings) - stride) << self.first_bits
    }

    /// How many arrays, and so directory entries, hold so many segments.
    pub(super) fn arrays_for(self, segments: u64) -> u64 {
        segments.checked_sub(1).map_or(0, |last| self.array_of(last).0 + 1)
    }

    /// The entries of the largest directory.
    pub(super) fn most(self) -> u64 {
        self.arrays_for(1 << MAX_DEPTH)
    }

    /// Where an array is in the file of segments, as its directory entry says. The first one has two places, and
    /// generations of `clear` take turns: the old generation is whole until the new one counts. All others have one, for
    /// by then the old one is gone.
    pub(super) fn place(self, array: u64, parity: usize) -> u64 {
        if array == 0 {
            (parity as u64) << self.first_bits
        } else {
            self.start(array) + self.first()
        }
    }

    /// Where a segment is in the file, likewise: arrays are one behind the other, so nobody needs to know which one.
    #[inline(always)]
    pub(super) fn place_of(self, index: u64, parity: usize) -> u64 {
        let first = self.first();
        if index < first { (parity as u64) << self.first_bits | index } else { index + first }
    }

    /// The segment at a place in the file, unless it is of the other generation.
    pub(super) fn index_at(self, place: u64, parity: usize) -> Option<u64> {
        match place >> self.first_bits {
            turn @ (0 | 1) => (turn == parity as u64).then_some(place & (self.first() - 1)),
            _ => Some(place - self.first()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terabyte_has_a_directory_of_about_a_kilobyte() {
        // As the paper counts: segments of 16 KiB.
        let segments = (1_u64 << 40) / (16 << 10);
        let bytes = |stride| Arrays::new(64, stride).map(|arrays| arrays.arrays_for(segments) * 8);
        assert_eq!(bytes(4), Some(584));
        assert_eq!(bytes(8), Some(1096));
        assert!(bytes(4) < Some(1000) && bytes(8) < Some(1100));
        // Ours are a little larger: two stash buckets each, and so are fewer.
        let segments = (1_u64 << 40) / super::super::layout::Geometry::default().segment_bytes();
        let bytes = |stride| Arrays::new(64, stride).map(|arrays| arrays.arrays_for(segments) * 8);
        println!("a terabyte: {:?} and {:?} bytes of directory", bytes(4), bytes(8));
        assert!(bytes(4) < Some(1000) && bytes(8) < Some(1100));
    }

    #[test]
    fn every_segment_has_a_place_of_its_own() {
        for (first, stride) in [(1, 1), (1, 4), (2, 2), (64, 8), (4, 1), (8, 64)] {
            let arrays = Arrays::new(first, stride).unwrap();
            let mut end = 0;
            for array in 0..5 * stride {
                assert_eq!(arrays.start(array), end);
                assert_eq!(arrays.size(array), first << (array / stride));
                for within in 0..arrays.size(array) {
                    assert_eq!(arrays.array_of(end + within), (array, within));
                    for parity in [0, 1] {
                        let place = arrays.place(array, parity) + within;
                        assert_eq!(arrays.place_of(end + within, parity), place);
                        assert_eq!(arrays.index_at(place, parity), Some(end + within));
                        let there = arrays.index_at(place, 1 - parity);
                        assert_eq!(there, (array > 0).then_some(end + within));
                    }
                }
                end += arrays.size(array);
                assert_eq!(arrays.arrays_for(end), array + 1);
            }
        }
    }

    #[test]
    fn odd_shapes_are_refused() {
        for (first, stride) in [(0, 8), (3, 8), (1 << 13, 8), (64, 0), (64, 128), (u64::MAX, 1)] {
            assert_eq!(Arrays::new(first, stride), None);
        }
    }
}
