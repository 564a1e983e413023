//! Comparison of all fingerprints of a group, or of all 8-byte keys of a line, at once.
//!
//! A group is 16 bytes, passed as two words: the caller loads raced bytes as `AtomicU64`s, and the vector is built from
//! those. (On x86 that takes two moves and an unpack. One atomic load of all 16 bytes is not possible, because Rust
//! does not allow raced accesses of different sizes.) Byte `i` of a group is byte `i % 8`, counted from the least
//! significant, of word `i / 8`. Whole lines are loaded as vectors by inline assembly ([`Isa::find_keys`]).
//!
//! There is one file for each instruction set, all behind [`Isa`]. `generic` is plain integer arithmetic: Miri runs it,
//! and the others are tested against it. The instruction set is selected in two ways:
//! - [`Native`] is the set that the program was compiled for. It needs no decision at run time, and for 16 bytes no set
//!   on x86 or Arm is better.
//! - [`dispatch`] runs a whole loop compiled for the best set of the processor: one decision per batch instead of one
//!   per bucket.

mod generic;
mod isa;
pub mod prefetch;
mod whole_loads;

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
pub use whole_loads::WholeLoads;

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
