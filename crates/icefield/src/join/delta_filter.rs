//! The filter in front of the delta store.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::layout::share_of;
use crate::base::memory::ZeroedArray;
use crate::{Error, Result};

/// A filter of the keys that may have entries: each key sets two bits of a word. Bits are set before the call that adds
/// the entry returns, and never cleared.
pub(super) struct DeltaFilter {
    words: ZeroedArray<AtomicU64>,
}

impl DeltaFilter {
    /// Returns a filter for this number of entries, with 16 bits each. Untouched pages take no memory.
    pub(super) fn new(entries: u64) -> Result<Self> {
        let words = entries.div_ceil(4).max(1) as usize;
        let words = ZeroedArray::sparse(words)
            .map_err(|_| Error::NoMemory { needed_bytes: words as u64 * 8 })?;
        Ok(Self { words })
    }

    /// Returns the word of a hash.
    #[inline(always)]
    pub(super) fn word(&self, hash: u64) -> &AtomicU64 {
        // In bounds: `share_of` returns less than the number of words.
        &self.words[share_of(hash, self.words.len() as u64) as usize]
    }

    #[inline(always)]
    fn bits(hash: u64) -> u64 {
        1 << (hash & 63) | 1 << (hash >> 6 & 63)
    }

    pub(super) fn set(&self, hash: u64) {
        // Relaxed, and no read-modify-write: only the holder of the delta store's lock sets bits. It sets them before
        // it adds the entry, so a thread that has synchronized with the addition sees the bits as well.
        let word = self.word(hash);
        word.store(word.load(Relaxed) | Self::bits(hash), Relaxed);
    }

    #[inline(always)]
    pub(super) fn may_know(&self, hash: u64) -> bool {
        let bits = Self::bits(hash);
        self.word(hash).load(Relaxed) & bits == bits
    }

    pub(super) fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }
}
