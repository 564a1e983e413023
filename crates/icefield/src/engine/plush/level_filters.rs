//! The filters of entries, on the medium and in DRAM.

use std::sync::atomic::Ordering::Relaxed;

use super::core::Core;
use super::filter::{self, Image};
use super::layout::{EntryId, EntryRef};
use crate::Result;
use crate::base::parallel::{all_cores, each_range};
use crate::base::pipeline::prefetch_read;
use crate::storage::Medium;
use crate::types::RecordForm;

/// Number of entries whose filters a thread loads at a time.
const ENTRIES_AT_A_TIME: usize = 256;
/// Minimum number of entries for each thread.
const ENTRIES_EACH: usize = 8192;

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// The buckets of an entry that may hold a key, one bit each.
    #[inline(always)]
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
    #[inline(always)]
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
        let levels = self.levels.count(&self.storage).min(self.top_filters.levels());
        // The entries of these levels have consecutive numbers.
        let entries = self.shape.entries_above(levels + 1) as usize;
        each_range(all_cores(), entries, (ENTRIES_AT_A_TIME, ENTRIES_EACH), |mut numbers| {
            numbers.try_for_each(|number| self.load_top_filter(EntryId::Level(number as u32)))
        })
    }

    fn load_top_filter(&self, id: EntryId) -> Result<()> {
        let entry = self.entry(id)?;
        let Some(words) = self.top_filters.of(id) else { return Ok(()) };
        if self.state(entry)?.size == 0 && self.next_of(entry)?.is_none() {
            return Ok(());
        }
        let image = Image::of(&self.storage, entry.entry);
        for (copy, &word) in words.iter().zip(image.words()) {
            // Relaxed: other threads read the word after this one was joined.
            copy.store(word, Relaxed);
        }
        Ok(())
    }
}
