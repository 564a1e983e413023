//! Typed cells, the only way in which tables access words on a medium.
//!
//! On real media, each method is the plain atomic instruction; on the simulated medium, the access is recorded. A cell
//! is `repr(transparent)` over an atomic, so a `&Cell64` into a mapping stays valid even when other threads or the file
//! system change the bytes beneath it. All other data in a mapping is bulk bytes ([`super::Bytes::write_bytes`]).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::arch::TwoWords;
use super::medium::Words;
use crate::base::group::WholeLoads;

pub use super::overlay::Overlay;

/// An atomic word that a medium can load and store.
pub trait CellWord {
    /// The word.
    type Word: Copy;

    #[doc(hidden)]
    fn load_on(&self, storage: &impl Words, order: Ordering) -> Self::Word;
    #[doc(hidden)]
    fn store_on(&self, storage: &impl Words, value: Self::Word, order: Ordering);
    #[doc(hidden)]
    fn load_volatile_on(&self, storage: &impl Words, order: Ordering) -> Self::Word;
    #[doc(hidden)]
    fn store_volatile_on(&self, storage: &impl Words, value: Self::Word, order: Ordering);
    #[doc(hidden)]
    fn exchange_volatile_on(
        &self,
        storage: &impl Words,
        words: [Self::Word; 2],
        orders: [Ordering; 2],
    ) -> Result<Self::Word, Self::Word>;
}

impl CellWord for AtomicU32 {
    type Word = u32;

    #[inline(always)]
    #[track_caller]
    fn load_on(&self, storage: &impl Words, order: Ordering) -> u32 {
        storage.load32(self, order)
    }
    #[inline(always)]
    #[track_caller]
    fn store_on(&self, storage: &impl Words, value: u32, order: Ordering) {
        storage.store32(self, value, order);
    }
    #[inline(always)]
    #[track_caller]
    fn load_volatile_on(&self, storage: &impl Words, order: Ordering) -> u32 {
        storage.load_volatile32(self, order)
    }
    #[inline(always)]
    #[track_caller]
    fn store_volatile_on(&self, storage: &impl Words, value: u32, order: Ordering) {
        storage.store_volatile32(self, value, order);
    }
    #[inline(always)]
    #[track_caller]
    fn exchange_volatile_on(
        &self,
        storage: &impl Words,
        [current, new]: [u32; 2],
        [success, failure]: [Ordering; 2],
    ) -> Result<u32, u32> {
        storage.cas_volatile32(self, current, new, success, failure)
    }
}

impl CellWord for AtomicU64 {
    type Word = u64;

    #[inline(always)]
    #[track_caller]
    fn load_on(&self, storage: &impl Words, order: Ordering) -> u64 {
        storage.load64(self, order)
    }
    #[inline(always)]
    #[track_caller]
    fn store_on(&self, storage: &impl Words, value: u64, order: Ordering) {
        storage.store64(self, value, order);
    }
    #[inline(always)]
    #[track_caller]
    fn load_volatile_on(&self, storage: &impl Words, order: Ordering) -> u64 {
        storage.load_volatile64(self, order)
    }
    #[inline(always)]
    #[track_caller]
    fn store_volatile_on(&self, storage: &impl Words, value: u64, order: Ordering) {
        storage.store_volatile64(self, value, order);
    }
    #[inline(always)]
    #[track_caller]
    fn exchange_volatile_on(
        &self,
        storage: &impl Words,
        [current, new]: [u64; 2],
        [success, failure]: [Ordering; 2],
    ) -> Result<u64, u64> {
        storage.cas_volatile64(self, current, new, success, failure)
    }
}

/// A durable word on a medium.
#[repr(transparent)]
pub struct DurableCell<A>(A);

/// A durable word of 32 bits.
pub type Cell32 = DurableCell<AtomicU32>;
/// A durable word of 64 bits.
pub type Cell64 = DurableCell<AtomicU64>;

impl<A: CellWord> DurableCell<A> {
    /// Returns the present value.
    #[inline(always)]
    #[track_caller]
    pub fn load(&self, storage: &impl Words, order: Ordering) -> A::Word {
        self.0.load_on(storage, order)
    }

    /// Stores `value`; durable once the line is flushed and fenced.
    #[inline(always)]
    #[track_caller]
    pub fn store(&self, storage: &impl Words, value: A::Word, order: Ordering) {
        self.0.store_on(storage, value, order);
    }
}

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
/// word, so a crash between two stores leaves a pair that a load could also have returned.
#[repr(transparent)]
pub struct Cell128(TwoWords);

impl Cell128 {
    /// Returns both words, with Acquire ordering. Given the proof, they are as of one moment; otherwise the caller must
    /// exclude writers meanwhile.
    #[inline(always)]
    #[track_caller]
    pub fn load(&self, storage: &impl Words, whole: Option<WholeLoads>) -> [u64; 2] {
        storage.load128(&self.0, whole)
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

/// A word that lives on a medium but means nothing after a crash or a reopening.
#[repr(transparent)]
pub struct VolatileCell<A>(A);

/// A volatile word of 32 bits.
pub type Volatile32 = VolatileCell<AtomicU32>;
/// A volatile word of 64 bits.
pub type Volatile64 = VolatileCell<AtomicU64>;

impl<A: CellWord> VolatileCell<A> {
    /// Returns the present value.
    #[inline(always)]
    #[track_caller]
    pub fn load(&self, storage: &impl Words, order: Ordering) -> A::Word {
        self.0.load_volatile_on(storage, order)
    }

    /// Stores `value`. A volatile cell needs no flush.
    #[inline(always)]
    #[track_caller]
    pub fn store(&self, storage: &impl Words, value: A::Word, order: Ordering) {
        self.0.store_volatile_on(storage, value, order);
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
        current: A::Word,
        new: A::Word,
        success: Ordering,
        failure: Ordering,
    ) -> Result<A::Word, A::Word> {
        self.0.exchange_volatile_on(storage, [current, new], [success, failure])
    }
}

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
