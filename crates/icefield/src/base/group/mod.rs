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

mod generic;
mod isa;
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
pub use isa::{Isa, Kernel};
pub use mask::{BitMask, BitMask64};

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use {avx2::Avx2, avx512::Avx512, sse2::Sse2};

#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
pub use neon::Neon;

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
