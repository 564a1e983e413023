//! The filters of entries, on the medium and in DRAM.

use std::sync::atomic::Ordering::Relaxed;

use super::core::Core;
use super::filter::{self, Image};
use super::layout::EntryRef;
use crate::Result;
use crate::base::pipeline::prefetch_read;
use crate::storage::Medium;
use crate::types::RecordForm;

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// The buckets of an entry that may hold a key, one bit each.
    #[inline]
    #[track_caller]
    pub(super) fn candidates(&self, entry: EntryRef<'_>, hash: u64) -> u16 {
        match self.top_filters.of(entry.id) {
            Some(words) => {
                self.storage.sim_yield_point();
                // Relaxed (E3): a reader validates by the lock word afterwards.
                filter::candidates_by(hash, |word| words[word].load(Relaxed))
            }
            None => filter::candidates(&self.storage, entry.entry, hash),
        }
    }

    /// Prefetches the line of an entry's filter that a search will read.
    #[inline]
    pub(super) fn prefetch_filter(&self, entry: EntryRef<'_>, hash: u64) {
        match self.top_filters.of(entry.id) {
            Some(words) => prefetch_read(&words[filter::line_of(hash)]),
            None => filter::prefetch(entry.entry, hash),
        }
    }

    /// The filter of an entry. Called under the lock of the root entry.
    pub(super) fn filter_of(&self, entry: EntryRef<'_>) -> Image {
        match self.top_filters.of(entry.id) {
            // Relaxed: under the lock.
            Some(words) => Image::from_words(|word| words[word].load(Relaxed)),
            None => Image::of(&self.storage, entry.entry),
        }
    }

    /// Stores an entry's filter. The stores are flushed; a fence must follow before the records count.
    #[track_caller]
    pub(super) fn store_filter(&self, entry: EntryRef<'_>, image: &Image) {
        image.store(&self.storage, entry.entry);
        if let Some(words) = self.top_filters.of(entry.id) {
            self.storage.sim_yield_point();
            for (copy, &word) in words.iter().zip(image.words()) {
                // Relaxed (E3): a reader that uses the word validates by the lock word afterwards.
                copy.store(word, Relaxed);
            }
        }
    }

    /// Clears the DRAM copy of an entry's filter. The entry has lost all its records. Called while readers wait.
    pub(super) fn forget_filter(&self, entry: EntryRef<'_>) {
        if let Some(words) = self.top_filters.of(entry.id) {
            // Relaxed (E3): as in `store_filter`.
            words.iter().for_each(|copy| copy.store(0, Relaxed));
        }
    }

    /// Reads the filters that DRAM holds copies of: seven lines of each entry with records, one line of each other
    /// entry.
    pub(super) fn load_top_filters(&self) -> Result<()> {
        for level in 1..=self.levels.count(&self.storage).min(self.top_filters.levels()) {
            for index in 0..self.shape.entries(level) {
                let entry = self.level_entry(level, index)?;
                let Some(words) = self.top_filters.of(entry.id) else { continue };
                if self.state(entry)?.size == 0 && self.next_of(entry)?.is_none() {
                    continue;
                }
                let image = Image::of(&self.storage, entry.entry);
                for (copy, &word) in words.iter().zip(image.words()) {
                    // Relaxed: no other thread can access the table yet.
                    copy.store(word, Relaxed);
                }
            }
        }
        Ok(())
    }
}
