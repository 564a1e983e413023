//! Cache lines of eight words, and large arrays of them: zeroed memory, or loom words in a model.

use super::atomic::AtomicU64;

/// A cache line of eight words.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Line(pub [AtomicU64; 8]);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() == 64);

#[cfg(not(loom))]
mod lines {
    use crate::base::group::Isa;
    use crate::base::memory::{GrowingArray, Zeroable, ZeroedArray};
    use crate::base::sync::line::Line;

    // SAFETY: eight atomic words: zero is a valid value, they need no drop, and their alignment of 64 is below 4096.
    unsafe impl Zeroable for Line {}

    /// An array of lines that starts zeroed, on huge pages where the system provides them.
    pub type Lines = ZeroedArray<Line>;
    /// An array of lines that grows in place: its lines keep their addresses.
    pub type GrowingLines = GrowingArray<Line>;

    impl Line {
        /// Calls [`Isa::find_keys`] on this line.
        #[inline(always)]
        pub fn find_keys(&self, isa: impl Isa, key: u64) -> u32 {
            isa.find_keys(&self.0, key)
        }

        /// Calls [`Isa::find_last_keys`] on this line.
        #[inline(always)]
        pub fn find_last_keys(&self, isa: impl Isa, key: u64) -> u32 {
            isa.find_last_keys(&self.0, key)
        }

        /// Calls [`Isa::find_bytes`] on this line.
        #[inline(always)]
        pub fn find_bytes(&self, isa: impl Isa, byte: u8) -> u64 {
            isa.find_bytes(&self.0, byte)
        }
    }
}

#[cfg(loom)]
mod lines {
    use std::io;
    use std::ops::Deref;

    use crate::base::group::Isa;
    use crate::base::sync::atomic::AtomicU64;
    use crate::base::sync::atomic::Ordering::Relaxed;
    use crate::base::sync::line::Line;

    /// An array of lines that starts zeroed.
    #[derive(Debug)]
    pub struct Lines(Box<[Line]>);

    impl Lines {
        /// Creates `len` zeroed lines.
        ///
        /// # Errors
        /// Never fails.
        pub fn new(len: usize) -> io::Result<Self> {
            let line = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
            Ok(Self((0..len).map(line).collect()))
        }

        /// Drops all but the first `len` lines.
        pub fn shorten(&mut self, len: usize) {
            self.0 = std::mem::take(&mut self.0).into_iter().take(len).collect();
        }
    }

    /// An array of lines that is created with its maximum length.
    pub type GrowingLines = Lines;

    impl Lines {
        /// Does nothing: the array already has its maximum length.
        ///
        /// # Errors
        /// Never fails.
        pub fn extend(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
    }

    impl Deref for Lines {
        type Target = [Line];

        fn deref(&self) -> &[Line] {
            &self.0
        }
    }

    impl Line {
        /// Returns the positions of the even words that equal `key`.
        pub fn find_keys(&self, _: impl Isa, key: u64) -> u32 {
            let equal = |word: usize| u32::from(self.0[word].load(Relaxed) == key) << word;
            equal(0) | equal(2) | equal(4) | equal(6)
        }

        /// Returns the positions of the even words from the third on that equal `key`.
        pub fn find_last_keys(&self, _: impl Isa, key: u64) -> u32 {
            let equal = |word: usize| u32::from(self.0[word].load(Relaxed) == key) << word;
            equal(2) | equal(4) | equal(6)
        }

        /// Returns the positions of the bytes that equal `byte`; the highest bit of the line is not compared.
        pub fn find_bytes(&self, isa: impl Isa, byte: u8) -> u64 {
            let words =
                self.0.each_ref().map(|word| std::sync::atomic::AtomicU64::new(word.load(Relaxed)));
            isa.find_bytes(&words, byte)
        }
    }
}

pub use lines::{GrowingLines, Lines};
