//! Architectures on which user code cannot write lines back: no persistent memory there, every other medium works.

use std::sync::atomic::{Ordering, fence};

use crate::pm::Cell128;

/// How this processor writes a line back: it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {}

impl Instruction {
    /// `None`: the medium then refuses `Durability::Pmem`.
    pub(crate) fn detect() -> Option<Self> {
        None
    }

    /// Every write-back that this processor has: none.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        Vec::new()
    }

    /// Never called: there is no value to call it on.
    ///
    /// # Safety
    /// None needed.
    #[inline(always)]
    pub(crate) unsafe fn write_back(self, _line: *const u8) {
        match self {}
    }
}

/// Orders stores: SeqCst, for no cheaper fence is named that does.
#[inline(always)]
pub(crate) fn store_fence() {
    fence(Ordering::SeqCst);
}

/// Whether [`load128`] is one load: nobody promises it.
pub(crate) fn loads_whole() -> bool {
    false
}

/// Loads both words, one after the other; of order Acquire.
#[inline(always)]
pub(crate) fn load128(cell: &Cell128) -> [u64; 2] {
    cell.0.each_ref().map(|word| word.load(Ordering::Acquire))
}
