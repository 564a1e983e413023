//! Sets of positions, the results of comparisons.

macro_rules! bit_mask {
    ($name:ident, $word:ident) => {
        #[doc = concat!("A set of positions below ", stringify!($word), "'s width; iterating gives them lowest first.")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[must_use]
        pub struct $name($word);

        impl $name {
            /// Creates the set of the positions whose bits are set.
            #[inline(always)]
            pub const fn new(bits: $word) -> Self {
                Self(bits)
            }

            /// Returns the positions as bits.
            #[inline(always)]
            #[must_use]
            pub const fn bits(self) -> $word {
                self.0
            }

            /// Returns the positions that are also in `mask`.
            #[inline(always)]
            pub const fn and(self, mask: $word) -> Self {
                Self(self.0 & mask)
            }

            /// Returns the lowest position.
            #[inline(always)]
            #[must_use]
            pub const fn lowest(self) -> Option<usize> {
                if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
            }

            /// Returns whether the set is not empty.
            #[inline(always)]
            #[must_use]
            pub const fn any(self) -> bool {
                self.0 != 0
            }

            /// Returns the number of positions.
            #[inline(always)]
            #[must_use]
            pub const fn count(self) -> usize {
                self.0.count_ones() as usize
            }
        }

        impl Iterator for $name {
            type Item = usize;

            #[inline(always)]
            fn next(&mut self) -> Option<usize> {
                let position = self.lowest()?;
                self.0 &= self.0 - 1;
                Some(position)
            }

            #[inline(always)]
            fn size_hint(&self) -> (usize, Option<usize>) {
                (self.count(), Some(self.count()))
            }
        }

        impl ExactSizeIterator for $name {}
    };
}
bit_mask!(BitMask, u32);
bit_mask!(BitMask64, u64);
