//! Typed cells: tables access words on a medium only through them.
//!
//! On real media each method is the plain atomic instruction; on the simulated one the access is recorded. A cell is
//! `repr(transparent)` over an atomic, so a `&Cell64` into a mapping stays valid even when other threads or the file
//! system change the bytes beneath it. All other data in a mapping is bulk bytes ([`super::Bytes::write_bytes`]).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::arch::{self, TwoWords};
use super::medium::Words;

pub use super::overlay::Overlay;

macro_rules! durable_cell {
    ($name:ident, $atomic:ident, $word:ident, $load:ident, $store:ident, $bits:literal) => {
        #[doc = concat!("A durable ", $bits, "-bit word on a medium.")]
        #[repr(transparent)]
        pub struct $name($atomic);

        impl $name {
            /// Returns the present value.
            #[inline(always)]
            #[track_caller]
            pub fn load(&self, storage: &impl Words, order: Ordering) -> $word {
                storage.$load(&self.0, order)
            }

            /// Stores `value`; durable once the line is flushed and fenced.
            #[inline(always)]
            #[track_caller]
            pub fn store(&self, storage: &impl Words, value: $word, order: Ordering) {
                storage.$store(&self.0, value, order);
            }
        }
    };
}
durable_cell!(Cell32, AtomicU32, u32, load32, store32, "32");
durable_cell!(Cell64, AtomicU64, u64, load64, store64, "64");

impl Cell64 {
    /// Returns the words of `cells`, for vector loads of several at once. `None` on a medium that observes each load:
    /// the cells must be loaded one by one there.
    #[inline(always)]
    pub(crate) fn direct_words<'a, M: Words, const N: usize>(
        cells: &'a [Self; N],
        _storage: &M,
    ) -> Option<&'a [AtomicU64; N]> {
        if !M::DIRECT_LOADS {
            return None;
        }
        // SAFETY: a `Cell64` is transparent over an `AtomicU64`.
        Some(unsafe { &*std::ptr::from_ref(cells).cast::<[AtomicU64; N]>() })
    }
}

/// Two durable words that lie in one line and can be loaded as one. They are stored one by one: each store changes one
/// word, so a crash between two stores leaves a state that some load could have seen.
#[repr(transparent)]
pub struct Cell128(TwoWords);

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
    pub fn load(&self, storage: &impl Words) -> [u64; 2] {
        storage.load128(&self.0)
    }

    /// Returns one of the words; `WORD` is 0 or 1.
    #[inline(always)]
    #[track_caller]
    pub fn load_word<const WORD: usize>(&self, storage: &impl Words, order: Ordering) -> u64 {
        storage.load64(&self.0.0[WORD], order)
    }

    /// Stores one of the words; durable once the line is flushed and fenced.
    #[inline(always)]
    #[track_caller]
    pub fn store_word<const WORD: usize>(&self, storage: &impl Words, value: u64, order: Ordering) {
        storage.store64(&self.0.0[WORD], value, order);
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
            pub fn load(&self, storage: &impl Words, order: Ordering) -> $word {
                storage.$load(&self.0, order)
            }

            /// Stores `value`. A volatile cell needs no flush.
            #[inline(always)]
            #[track_caller]
            pub fn store(&self, storage: &impl Words, value: $word, order: Ordering) {
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
                storage: &impl Words,
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

// SAFETY: transparent over an atomic integer: every bit pattern is valid, and atomics allow shared mutation.
unsafe impl Overlay for Cell32 {}
// SAFETY: as for `Cell32`.
unsafe impl Overlay for Cell64 {}
// SAFETY: transparent over two atomic integers, aligned to 16.
unsafe impl Overlay for Cell128 {}
// SAFETY: as for `Cell32`.
unsafe impl Overlay for Volatile32 {}
// SAFETY: as for `Cell32`.
unsafe impl Overlay for Volatile64 {}
