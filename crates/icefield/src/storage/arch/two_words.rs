//! The type [`TwoWords`].

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;

use crate::base::group::WholeLoads;

/// Two words in one line, aligned for one load of both.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct TwoWords(pub(crate) [AtomicU64; 2]);

impl TwoWords {
    /// Loads both words with Acquire ordering: as one, given the proof that the processor can.
    #[inline(always)]
    pub(crate) fn load(&self, whole: Option<WholeLoads>) -> [u64; 2] {
        match whole {
            Some(whole) => super::load128(self, whole),
            None => self.0.each_ref().map(|word| word.load(Acquire)),
        }
    }
}
