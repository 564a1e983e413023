//! Groups of fingerprints, and groups of 8-byte keys, compared all at once.
//!
//! A group is built from words, not from memory: the caller loads raced bytes as `AtomicU64`s, and the vector is
//! assembled from those. (On x86 that takes two moves and an unpack. This library has no mixed-size atomics.) Byte `i`
//! of a group is byte `i % 8`, counted from the least significant, of word `i / 8`.
//!
//! There is one file for each instruction set, all behind [`Isa`]. `generic` is plain integer arithmetic: Miri runs it,
//! and the others are tested against it. The instruction set is selected in two ways:
//! - `Group::matches` and `Words8::matches` use [`Native`], the set that the program was compiled for. This needs no
//!   decision at run time, and for 16 bytes no set on x86 or Arm is better.
//! - [`dispatch`] runs a whole loop compiled for the best set of the processor: one decision per batch instead of one
//!   per bucket. Inside the loop, `matches_on(isa)` is inlined.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

mod generic;
mod mask;
pub mod prefetch;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
mod neon;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod sse2;

pub use generic::Generic;
pub use mask::{BitMask, BitMask64};

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use {avx2::Avx2, avx512::Avx512, sse2::Sse2};

#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
pub use neon::Neon;

/// An instruction set. A value of the type is proof that the processor supports it.
pub trait Isa: Copy + Send + Sync + 'static {
    /// The name of the set, for reports.
    const NAME: &'static str;

    /// Returns a mask: bit `i` is set if byte `i` equals `byte`.
    fn match16(self, words: [u64; 2], byte: u8) -> u32;

    /// Returns a mask: bit `i` is set if byte `i` equals `byte`.
    fn match32(self, words: [u64; 4], byte: u8) -> u32;

    /// Returns a mask: bit `i` is set if byte `i` equals `byte`.
    fn match64(self, words: [u64; 8], byte: u8) -> u64;

    /// Returns a mask: bit `i` is set if word `i` equals `key`.
    fn find8(self, words: [u64; 8], key: u64) -> u32;

    /// Returns a mask: bit `2 * i` is set if word `2 * i` of `line` equals `key`; the odd bits are undefined. Other
    /// threads may be storing to the line. Each word is read once and whole, after every earlier Acquire load, and
    /// before every load that follows an Acquire fence.
    ///
    /// Vectors are loaded from raced memory only by this method, [`Isa::has_bits`] and [`Isa::find_bytes`]. They use
    /// instructions that are opaque to the compiler, so that the language's rules for plain loads do not apply, on
    /// processors that load aligned words whole regardless of the width of the load. All other code loads the words one
    /// by one, like this default implementation.
    #[inline(always)]
    fn find_keys(self, line: &[AtomicU64; 8], key: u64) -> u32 {
        // Relaxed: the caller orders the reads and validates the result.
        let equal = |word: usize| u32::from(line[word].load(Relaxed) == key) << word;
        equal(0) | equal(2) | equal(4) | equal(6)
    }

    /// Returns whether each of the words 3 to 7 of `line` has the bit that `hash` selects by six of its bits: bits 4 to
    /// 9 for word 3, bits 10 to 15 for word 4, and so on. Other threads may be storing to the line, as for
    /// [`Isa::find_keys`].
    #[inline(always)]
    fn has_bits(self, line: &[AtomicU64; 8], hash: u64) -> bool {
        // Relaxed: as in `find_keys`.
        let bit = |word: usize| line[word].load(Relaxed) >> (hash >> (6 * word - 14) & 63);
        bit(3) & bit(4) & bit(5) & bit(6) & bit(7) & 1 == 1
    }

    /// Returns a mask: bit `i` is set if byte `i` of `line` equals `byte`. The highest bit of the line is a lock and is
    /// not compared. Other threads may be storing to the line, as for [`Isa::find_keys`].
    #[inline(always)]
    fn find_bytes(self, line: &[AtomicU64; 8], byte: u8) -> u64 {
        const LAST: u64 = 1 << 63;
        // Relaxed: as in `find_keys`.
        let words = line.each_ref().map(|word| word.load(Relaxed));
        let last = (words[7] >> 56) as u8 ^ byte;
        self.match64(words, byte) & !LAST | if last & 0x7F == 0 { LAST } else { 0 }
    }
}

/// The instruction set that the program was compiled for.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub type Native = Sse2;
/// The instruction set that the program was compiled for.
#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
pub type Native = Neon;
/// The instruction set that the program was compiled for.
#[cfg(not(any(
    all(target_arch = "x86_64", not(miri)),
    all(target_arch = "aarch64", target_endian = "little", not(miri))
)))]
pub type Native = Generic;

macro_rules! group {
    ($name:ident, $words:literal, $bytes:literal, $mask:ident, $match:ident) => {
        #[doc = concat!($bytes, " bytes, usually fingerprints.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name([u64; $words]);

        impl $name {
            /// Creates the group whose bytes are those of `words`, the least significant first.
            #[inline(always)]
            #[must_use]
            pub const fn from_words(words: [u64; $words]) -> Self {
                Self(words)
            }

            /// Returns the positions that hold `byte`.
            #[inline(always)]
            pub fn matches(self, byte: u8) -> $mask {
                self.matches_on(Native::default(), byte)
            }

            /// Returns the positions that hold `byte`, found with `isa`.
            #[inline(always)]
            pub fn matches_on(self, isa: impl Isa, byte: u8) -> $mask {
                $mask::new(isa.$match(self.0, byte))
            }
        }
    };
}
group!(Group16, 2, "16", BitMask, match16);
group!(Group32, 4, "32", BitMask, match32);
group!(Group64, 8, "64", BitMask64, match64);

/// Eight words, one line, usually keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words8([u64; 8]);

impl Words8 {
    /// Creates the group of `words`.
    #[inline(always)]
    #[must_use]
    pub const fn from_words(words: [u64; 8]) -> Self {
        Self(words)
    }

    /// Returns the positions that hold `key`.
    #[inline(always)]
    pub fn matches(self, key: u64) -> BitMask {
        self.matches_on(Native::default(), key)
    }

    /// Returns the positions that hold `key`, found with `isa`.
    #[inline(always)]
    pub fn matches_on(self, isa: impl Isa, key: u64) -> BitMask {
        BitMask::new(isa.find8(self.0, key))
    }
}

/// Code to be run with the best available instruction set, usually the loop over a batch. Implementations mark `run` as
/// `#[inline(always)]`, so that it is compiled for each set.
pub trait Kernel {
    /// The result of [`Kernel::run`].
    type Output;

    /// Runs the code with `isa`.
    fn run<I: Isa>(self, isa: I) -> Self::Output;
}

/// Runs `kernel` with the best instruction set of this processor. After the first call, detection costs a load and a
/// branch.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    if let Some(isa) = Avx512::detect() {
        isa.enter(kernel)
    } else if let Some(isa) = Avx2::detect() {
        isa.enter(kernel)
    } else {
        kernel.run(Native::default())
    }
}

/// Runs `kernel` with the best instruction set of this processor.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
pub fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Native::default())
}

#[cfg(test)]
mod tests;
