//! A line of eight durable words: a group's filter and bucket ends, or four records.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Relaxed};

use crate::base::group::Isa;
use crate::storage::cell::Overlay;
use crate::storage::{Cell64, Medium};

/// A line of eight durable words, which vector instructions can search all at once.
#[repr(C, align(64))]
pub(super) struct Line([Cell64; 8]);

// SAFETY: repr(C), cells only; aligned to 64.
unsafe impl Overlay for Line {}

impl Line {
    /// Returns one of the words; `word` is below 8.
    #[inline(always)]
    #[track_caller]
    pub(super) fn load(&self, storage: &impl Medium, word: usize, order: Ordering) -> u64 {
        self.0[word & 7].load(storage, order)
    }

    /// Stores one of the words; durable once the line is flushed and fenced.
    #[inline(always)]
    #[track_caller]
    pub(super) fn store(&self, storage: &impl Medium, word: usize, value: u64, order: Ordering) {
        self.0[word & 7].store(storage, value, order);
    }

    /// Compares words 0, 2, 4 and 6 with `key`. Bit `i` of the result is set if word `i` is equal to `key`; odd bits
    /// are undefined. Each word is loaded at most once.
    #[inline(always)]
    #[track_caller]
    pub(super) fn find_keys(&self, storage: &impl Medium, isa: impl Isa, key: u64) -> u32 {
        // The condition depends only on the type of the medium, so the compiled code contains only one of the two
        // branches.
        if let Some(words) = Cell64::direct_words(&self.0, storage) {
            return isa.find_keys(words, key);
        }
        let equal = |word: usize| u32::from(self.load(storage, word, Relaxed) == key) << word;
        equal(0) | equal(2) | equal(4) | equal(6)
    }

    /// Calls [`Isa::has_bits`] on this line.
    #[inline(always)]
    #[track_caller]
    pub(super) fn has_bits(&self, storage: &impl Medium, isa: impl Isa, hash: u64) -> bool {
        if let Some(words) = Cell64::direct_words(&self.0, storage) {
            return isa.has_bits(words, hash);
        }
        let words = std::array::from_fn(|word| AtomicU64::new(self.load(storage, word, Relaxed)));
        isa.has_bits(&words, hash)
    }
}
