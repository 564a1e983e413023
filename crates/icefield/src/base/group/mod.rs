//! Groups of fingerprints, and groups of 8-byte keys, compared all at once.
//!
//! A group is built from words, never from memory: raced bytes are loaded as `AtomicU64`s by the caller, and the vector
//! is put together from those (on x86 that is two moves and an unpack; there are no mixed-size atomics in this
//! library). Byte `i` of a group is byte `i % 8`, counted from the least significant, of word `i / 8`.
//!
//! One file per instruction set, all behind [`Isa`]; `generic` is plain integer arithmetic, the one that Miri runs and
//! that the others are tested against. Which one runs is decided in two ways:
//! - `Group::matches` and `Words8::matches` use [`Native`], what the program was compiled for. It needs no decision at
//!   run time, and for 16 bytes nothing on x86 or Arm is better.
//! - [`dispatch`] runs a whole loop compiled for the best set that the processor has: one decision per batch instead of
//!   one per bucket. Inside, `matches_on(isa)` is inlined.

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

/// An instruction set. Having a value of the type is proof that the processor knows it.
pub trait Isa: Copy + Send + Sync + 'static {
    /// Its name, for reports.
    const NAME: &'static str;

    /// Bit `i` says whether byte `i` is `byte`.
    fn match16(self, words: [u64; 2], byte: u8) -> u32;

    /// Bit `i` says whether byte `i` is `byte`.
    fn match32(self, words: [u64; 4], byte: u8) -> u32;

    /// Bit `i` says whether byte `i` is `byte`.
    fn match64(self, words: [u64; 8], byte: u8) -> u64;

    /// Bit `i` says whether word `i` is `key`.
    fn find8(self, words: [u64; 8], key: u64) -> u32;

    /// Bit `2 * i` says whether word `2 * i` of `line` is `key`; the odd bits mean nothing. Other threads may be
    /// storing to the line: each word is read once and whole, after every load that came before and was an acquire, and
    /// before every load that comes after an acquire fence.
    ///
    /// This, [`Isa::has_bits`] and [`Isa::find_bytes`] are the one place where vectors are loaded from raced memory: by instructions that
    /// the compiler does not look into, so that the language's rules for plain loads do not apply, on processors that
    /// load aligned words whole whatever the width of the load. Everywhere else the words are loaded one by one, as
    /// here.
    #[inline(always)]
    fn find_keys(self, line: &[AtomicU64; 8], key: u64) -> u32 {
        // Relaxed: the caller orders the reads and checks what they saw.
        let equal = |word: usize| u32::from(line[word].load(Relaxed) == key) << word;
        equal(0) | equal(2) | equal(4) | equal(6)
    }

    /// Whether each of the words 3 to 7 of `line` has the bit whose number is six bits of `hash`: those from bit 4 on for
    /// word 3, the six above for word 4, and so on. Other threads may be storing to the line: as for [`Isa::find_keys`].
    #[inline(always)]
    fn has_bits(self, line: &[AtomicU64; 8], hash: u64) -> bool {
        // Relaxed: as there.
        let bit = |word: usize| line[word].load(Relaxed) >> (hash >> (6 * word - 14) & 63);
        bit(3) & bit(4) & bit(5) & bit(6) & bit(7) & 1 == 1
    }

    /// Bit `i` says whether byte `i` of `line` is `byte`, but for the highest bit of the line, which is somebody's lock
    /// and not compared. Other threads may be storing to the line: as for [`Isa::find_keys`].
    #[inline(always)]
    fn find_bytes(self, line: &[AtomicU64; 8], byte: u8) -> u64 {
        const LAST: u64 = 1 << 63;
        // Relaxed: as there.
        let words = line.each_ref().map(|word| word.load(Relaxed));
        let last = (words[7] >> 56) as u8 ^ byte;
        self.match64(words, byte) & !LAST | if last & 0x7F == 0 { LAST } else { 0 }
    }
}

/// What the program was compiled for.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub type Native = Sse2;
/// What the program was compiled for.
#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
pub type Native = Neon;
/// What the program was compiled for.
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
            /// The group whose bytes are those of `words`, the least significant first.
            #[inline(always)]
            #[must_use]
            pub const fn from_words(words: [u64; $words]) -> Self {
                Self(words)
            }

            /// The positions that hold `byte`.
            #[inline(always)]
            pub fn matches(self, byte: u8) -> $mask {
                self.matches_on(Native::default(), byte)
            }

            /// The positions that hold `byte`, found with `isa`.
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
    /// The group of `words`.
    #[inline(always)]
    #[must_use]
    pub const fn from_words(words: [u64; 8]) -> Self {
        Self(words)
    }

    /// The positions that hold `key`.
    #[inline(always)]
    pub fn matches(self, key: u64) -> BitMask {
        self.matches_on(Native::default(), key)
    }

    /// The positions that hold `key`, found with `isa`.
    #[inline(always)]
    pub fn matches_on(self, isa: impl Isa, key: u64) -> BitMask {
        BitMask::new(isa.find8(self.0, key))
    }
}

/// Something to be done with whichever instruction set there is: usually the loop over a batch. Implementations mark
/// `run` `#[inline(always)]`, so that it is compiled anew for each set.
pub trait Kernel {
    /// What it gives.
    type Output;

    /// Does it.
    fn run<I: Isa>(self, isa: I) -> Self::Output;
}

/// Runs `kernel` with the best instruction set of this processor. Asking the processor costs a load and a branch after
/// the first time.
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
