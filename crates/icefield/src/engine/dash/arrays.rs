//! Hybrid expansion (§5.2): maps a segment of linear hashing to its array, and the array to its place in the file.
//!
//! Segments are numbered in the order in which they are made. The first array holds `first` of them; the first `stride`
//! arrays have that size, the next `stride` arrays twice that size, and so on. A directory of some hundred bytes thus
//! indexes terabytes, and a new array adds at most about 1/`stride` of the present size. Both numbers are powers of
//! two, so that a few shifts compute a place.

use super::layout::MAX_DEPTH;

/// Upper limits of `first` and `stride`.
const MAX_FIRST: u32 = 1 << 12;
const MAX_STRIDE: u32 = 64;

/// The two numbers that determine the arrays of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrays {
    first_bits: u32,
    stride_bits: u32,
}

impl Arrays {
    /// The numbers that the paper uses (§6.2).
    pub(super) const DEFAULT: Self = Self { first_bits: 6, stride_bits: 3 };

    /// Returns `None` if the numbers are out of range or not powers of two.
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

    /// Returns the depth of the segments of the first array in a new table.
    pub(super) fn first_bits(self) -> u32 {
        self.first_bits
    }

    /// Returns the number of segments in the first array.
    pub(super) fn first(self) -> u64 {
        1 << self.first_bits
    }

    /// Returns the array of a segment, and the segment's index in it.
    pub(super) fn array_of(self, index: u64) -> (u64, u64) {
        // A unit has the size of the first array. If units are counted from one stride before the first array, the
        // first array of each size begins at a power of two.
        let unit = (index >> self.first_bits) + (1 << self.stride_bits);
        let doublings = unit.ilog2() - self.stride_bits;
        let array = (u64::from(doublings) << self.stride_bits) + (unit >> doublings)
            - (1 << self.stride_bits);
        let within = unit & ((1 << doublings) - 1);
        (array, within << self.first_bits | index & (self.first() - 1))
    }

    /// Returns the number of segments in an array.
    pub(super) fn size(self, array: u64) -> u64 {
        self.first() << (array >> self.stride_bits)
    }

    /// Returns the first segment of an array.
    pub(super) fn start(self, array: u64) -> u64 {
        let stride = 1 << self.stride_bits;
        let (doublings, number) = (array >> self.stride_bits, array & (stride - 1));
        (((stride + number) << doublings) - stride) << self.first_bits
    }

    /// Returns the number of arrays, and thus of directory entries, that hold `segments` segments.
    pub(super) fn arrays_for(self, segments: u64) -> u64 {
        segments.checked_sub(1).map_or(0, |last| self.array_of(last).0 + 1)
    }

    /// Returns the number of entries of the largest directory.
    pub(super) fn most(self) -> u64 {
        self.arrays_for(1 << MAX_DEPTH)
    }

    /// Returns the place of an array in the file of segments, as its directory entry names it. The first array has two
    /// places, which the generations of `clear` use alternately: the old generation stays intact until the new one is
    /// committed. Each other array has one place, because a generation uses it only after the old generation is gone.
    pub(super) fn place(self, array: u64, parity: usize) -> u64 {
        if array == 0 {
            (parity as u64) << self.first_bits
        } else {
            self.start(array) + self.first()
        }
    }

    /// Returns the place of a segment in the file. The arrays are contiguous, so the array of the segment is not
    /// needed.
    #[inline(always)]
    pub(super) fn place_of(self, index: u64, parity: usize) -> u64 {
        let first = self.first();
        if index < first { (parity as u64) << self.first_bits | index } else { index + first }
    }

    /// Returns the segment at a place in the file, or `None` if the place belongs to the other generation.
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
        // The paper assumes segments of 16 KiB.
        let segments = (1_u64 << 40) / (16 << 10);
        let bytes = |stride| Arrays::new(64, stride).map(|arrays| arrays.arrays_for(segments) * 8);
        assert_eq!(bytes(4), Some(584));
        assert_eq!(bytes(8), Some(1096));
        assert!(bytes(4) < Some(1000) && bytes(8) < Some(1100));
        // Our segments have two stash buckets each, so they are a little larger and fewer.
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
