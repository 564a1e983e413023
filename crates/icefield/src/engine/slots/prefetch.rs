//! Prefetches of records behind references, for the pipelines of batches.

use super::Records;
use crate::storage::Medium;
use crate::storage::blob::BlobRef;
use crate::types::RecordForm;

impl<R: RecordForm> Records<R> {
    /// Prefetches the bytes behind a slot's words, `[key, value]`. Returns `false` if the slot certainly holds another
    /// key. A hint only: the slot may change at any time. For records of two words, does not call `words`. `hint`
    /// prefetches a line.
    #[inline(always)]
    pub(crate) fn prefetch(
        &self,
        storage: &impl Medium,
        hash: u64,
        words: impl FnOnce() -> [u64; 2],
        hint: impl Fn(*const u8),
    ) -> bool {
        let Some(blobs) = self.blobs.as_ref().filter(|_| !Self::IS_WORDS) else { return true };
        let [key, value] = storage.read_unvalidated(words);
        if !self.prefetch_key(storage, hash, key, &hint) {
            return false;
        }
        if !Self::VALUE_IS_WORD {
            blobs.prefetch(storage, BlobRef::from_word(value), &hint);
        }
        true
    }

    /// Does the same as [`Records::prefetch`], but for the key only.
    #[inline(always)]
    pub(crate) fn prefetch_key(
        &self,
        storage: &impl Medium,
        hash: u64,
        key: u64,
        hint: impl Fn(*const u8),
    ) -> bool {
        let Some(blobs) = self.blobs.as_ref().filter(|_| !Self::KEY_IS_WORD) else { return true };
        if (key >> 48) << 48 != Self::tag(hash) {
            return false;
        }
        blobs.prefetch(storage, BlobRef::from_word(key), hint);
        true
    }

    /// Prefetches the state that [`Records::retire_value`] changes when the value `word` is replaced.
    #[inline(always)]
    pub(crate) fn prefetch_retirement(&self, storage: &impl Medium, word: u64) {
        if !Self::VALUE_IS_WORD
            && let Some(blobs) = &self.blobs
        {
            blobs.prefetch_state(storage, BlobRef::from_word(word));
        }
    }

    /// Returns whether keys and values are words, not references.
    #[inline(always)]
    pub(crate) fn are_words(&self) -> bool {
        Self::IS_WORDS
    }
}
