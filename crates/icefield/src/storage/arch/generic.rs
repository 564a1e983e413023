//! Architectures on which user code cannot write lines back. Persistent memory is not supported there; every other
//! medium works.

use std::sync::atomic::{Ordering, fence};

use super::two_words::TwoWords;
use crate::base::group::WholeLoads;

/// No write-back instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {}

impl Instruction {
    /// Returns `None`, so that the medium refuses `Durability::Pmem`.
    pub(crate) fn detect() -> Option<Self> {
        None
    }

    /// Returns all write-back instructions of this processor: none.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        Vec::new()
    }

    /// Never called: the type has no values.
    ///
    /// # Safety
    /// None needed.
    #[inline(always)]
    pub(crate) unsafe fn write_back(self, _line: *const u8) {
        match self {}
    }
}

/// Orders stores, by the strongest fence of the language: SeqCst.
#[inline(always)]
pub(crate) fn store_fence() {
    fence(Ordering::SeqCst);
}

/// Never called: no processor here has whole loads.
#[inline(always)]
pub(crate) fn load128(words: &TwoWords, _: WholeLoads) -> [u64; 2] {
    // Acquire: as on the other processors.
    words.0.each_ref().map(|word| word.load(Ordering::Acquire))
}
