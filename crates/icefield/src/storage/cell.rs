//! Typed cells: tables access words on a medium only through them.
//!
//! On real media each method is the plain atomic instruction; on the simulated one the access is recorded. A cell is
//! `repr(transparent)` over an atomic, so a `&Cell64` into a mapping stays valid even when other threads or the file
//! system change the bytes beneath it. All other data in a mapping is bulk bytes ([`super::Medium::write_bytes`]).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Medium, arch};
use crate::base::group::Isa;

macro_rules! durable_cell {
    ($name:ident, $atomic:ident, $word:ident, $load:ident, $store:ident, $bits:literal) => {
        #[doc = concat!("A durable ", $bits, "-bit word on a medium.")]
        #[repr(transparent)]
        pub struct $name($atomic);

        impl $name {
            /// Returns the present value.
            #[inline(always)]
            #[track_caller]
            pub fn load(&self, storage: &impl Medium, order: Ordering) -> $word {
                storage.$load(&self.0, order)
            }

            /// Stores `value`; durable once the line is flushed and fenced.
            #[inline(always)]
            #[track_caller]
            pub fn store(&self, storage: &impl Medium, value: $word, order: Ordering) {
                storage.$store(&self.0, value, order);
            }
        }
    };
}
durable_cell!(Cell32, AtomicU32, u32, load32, store32, "32");
durable_cell!(Cell64, AtomicU64, u64, load64, store64, "64");

/// Two durable words that lie in one line and can be loaded as one. They are stored one by one: each store changes one
/// word, so a crash between two stores leaves a state that some load could have seen.
#[repr(C, align(16))]
pub struct Cell128(pub(super) [AtomicU64; 2]);

impl Cell128 {
    /// Returns whether this processor loads both words at once. Where it does not, [`Cell128::load`] is two loads, and
    /// the caller must exclude writers meanwhile.
    #[must_use]
    pub fn loads_whole() -> bool {
        arch::loads_whole()
    }

    /// Returns both words, as of one moment, with Acquire ordering.
    #[inline(always)]
    #[track_caller]
    pub fn load(&self, storage: &impl Medium) -> [u64; 2] {
        storage.load128(self)
    }

    /// Returns one of the words; `WORD` is 0 or 1.
    #[inline(always)]
    #[track_caller]
    pub fn load_word<const WORD: usize>(&self, storage: &impl Medium, order: Ordering) -> u64 {
        storage.load64(&self.0[WORD], order)
    }

    /// Stores one of the words; durable once the line is flushed and fenced.
    #[inline(always)]
    #[track_caller]
    pub fn store_word<const WORD: usize>(
        &self,
        storage: &impl Medium,
        value: u64,
        order: Ordering,
    ) {
        storage.store64(&self.0[WORD], value, order);
    }
}

/// A line of eight durable words, which can be searched for a key all at once.
#[repr(C, align(64))]
pub struct CellLine(pub(super) [AtomicU64; 8]);

impl CellLine {
    /// Returns one of the words; `word` is below 8.
    #[inline(always)]
    #[track_caller]
    pub fn load(&self, storage: &impl Medium, word: usize, order: Ordering) -> u64 {
        storage.load64(&self.0[word & 7], order)
    }

    /// Stores one of the words; durable once the line is flushed and fenced.
    #[inline(always)]
    #[track_caller]
    pub fn store(&self, storage: &impl Medium, word: usize, value: u64, order: Ordering) {
        storage.store64(&self.0[word & 7], value, order);
    }

    /// Compares words 0, 2, 4 and 6 with `key`. Bit `i` of the result is set if word `i` is equal; odd bits are
    /// undefined. Each word is loaded once.
    #[inline(always)]
    #[track_caller]
    pub fn find_keys(&self, storage: &impl Medium, isa: impl Isa, key: u64) -> u32 {
        storage.find_keys(isa, self, key)
    }

    /// [`Isa::has_bits`] of this line.
    #[inline(always)]
    #[track_caller]
    pub fn has_bits(&self, storage: &impl Medium, isa: impl Isa, hash: u64) -> bool {
        storage.has_bits(isa, self, hash)
    }
}

macro_rules! volatile_cell {
    ($name:ident, $atomic:ident, $word:ident, $load:ident, $store:ident, $cas:ident, $bits:literal) => {
        #[doc = concat!("A ", $bits, "-bit word that lives on a medium but means nothing after a crash or a reopening.")]
        #[repr(transparent)]
        pub struct $name($atomic);

        impl $name {
            /// Returns the present value.
            #[inline(always)]
            #[track_caller]
            pub fn load(&self, storage: &impl Medium, order: Ordering) -> $word {
                storage.$load(&self.0, order)
            }

            /// Stores `value`. A volatile cell needs no flush.
            #[inline(always)]
            #[track_caller]
            pub fn store(&self, storage: &impl Medium, value: $word, order: Ordering) {
                storage.$store(&self.0, value, order);
            }

            /// Replaces `current` by `new`. `Err` holds the present value.
            ///
            /// # Errors
            /// The cell held another value (or the weak exchange failed spuriously).
            #[inline(always)]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                storage: &impl Medium,
                current: $word,
                new: $word,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$word, $word> {
                storage.$cas(&self.0, current, new, success, failure)
            }
        }
    };
}
volatile_cell!(Volatile32, AtomicU32, u32, load_volatile32, store_volatile32, cas_volatile32, "32");
volatile_cell!(Volatile64, AtomicU64, u64, load_volatile64, store_volatile64, cas_volatile64, "64");

/// A type whose bytes all belong to cells (or are padding that is never accessed), so that it may be laid over any
/// bytes of a mapping.
///
/// # Safety
/// The type is `repr(C)` or `repr(transparent)`, holds only cells, arrays of them, and other `Overlay` types, and has
/// no alignment above 64.
pub unsafe trait Overlay: Sized {}

// SAFETY: transparent over an atomic integer: every bit pattern is valid, and atomics allow shared mutation.
unsafe impl Overlay for Cell32 {}
// SAFETY: as for `Cell32`.
unsafe impl Overlay for Cell64 {}
// SAFETY: as for `Cell32`, two of them; aligned to 16.
unsafe impl Overlay for Cell128 {}
// SAFETY: as for `Cell32`, eight of them; aligned to 64.
unsafe impl Overlay for CellLine {}
// SAFETY: as for `Cell32`.
unsafe impl Overlay for Volatile32 {}
// SAFETY: as for `Cell32`.
unsafe impl Overlay for Volatile64 {}
// SAFETY: an array of overlays has no other bytes.
unsafe impl<T: Overlay, const N: usize> Overlay for [T; N] {}
