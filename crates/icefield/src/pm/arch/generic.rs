//! Architectures on which user code cannot write lines back: no persistent memory there, every other medium works.

use std::sync::atomic::{Ordering, fence};

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

/// Orders stores.
#[inline(always)]
pub(crate) fn store_fence() {
    fence(Ordering::SeqCst);
}
