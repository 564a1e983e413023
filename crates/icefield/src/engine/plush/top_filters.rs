//! Copies of the first levels' filters in DRAM (§6.5): a search accesses the medium only where they contain the key.
//!
//! A copy changes together with the filter on the medium, under the same lock and with the same visibility to
//! readers. When a table is opened, the copies are read from the entries. The copy of an entry without records is
//! empty; the filter on the medium need not be.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::core::{Core, EntryRef};
use super::filter::{self, Image};
use super::layout::{EntryId, FILTER_WORDS, Shape};
use crate::Result;
use crate::base::memory::ZeroedArray;
use crate::base::pipeline::prefetch_read;
use crate::storage::Medium;
use crate::types::RecordForm;

/// The copies, one level after the other.
pub(super) struct TopFilters {
    words: ZeroedArray<AtomicU64>,
    levels: usize,
    entries: u64,
}

impl TopFilters {
    /// Creates copies for at most `levels` levels: as many as fit into `max_bytes`.
    pub(super) fn new(shape: Shape, levels: usize, max_bytes: u64) -> io::Result<Self> {
        let bytes = |levels: usize| shape.entries_above(levels + 1) * (FILTER_WORDS * 8) as u64;
        let wanted = levels.min(shape.max_levels());
        let levels =
            (0..=wanted).rev().find(|&levels| bytes(levels) <= max_bytes).unwrap_or_default();
        let entries = shape.entries_above(levels + 1);
        let words = ZeroedArray::new(entries as usize * FILTER_WORDS)?;
        Ok(Self { words, levels, entries })
    }

    /// Number of levels with copies.
    pub(super) fn levels(&self) -> usize {
        self.levels
    }

    /// Touches all memory, so that the first writes do not wait for pages.
    pub(super) fn populate(&self) {
        self.words.populate();
    }

    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }

    /// The copy of an entry's filter, if it has one.
    #[inline]
    fn of(&self, id: EntryId) -> Option<&[AtomicU64; FILTER_WORDS]> {
        match id {
            EntryId::Level(number) if u64::from(number) < self.entries => {
                self.words[number as usize * FILTER_WORDS..].first_chunk()
            }
            _ => None,
        }
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// The buckets of an entry that may hold a key, one bit each.
    #[inline]
    #[track_caller]
    pub(super) fn candidates(&self, entry: EntryRef<'_>, hash: u64) -> u16 {
        match self.top_filters.of(entry.id) {
            Some(words) => {
                self.storage.sim_yield_point();
                // Relaxed (E3): as on the medium.
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

    /// The filter of an entry, under the lock of its root entry.
    pub(super) fn filter_of(&self, entry: EntryRef<'_>) -> Image {
        match self.top_filters.of(entry.id) {
            // Relaxed: under the lock.
            Some(words) => Image::from_words(|word| words[word].load(Relaxed)),
            None => Image::of(&self.storage, entry.entry),
        }
    }

    /// Stores an entry's filter. Flushed; a fence must follow before the records count.
    #[track_caller]
    pub(super) fn store_filter(&self, entry: EntryRef<'_>, image: &Image) {
        image.store(&self.storage, entry.entry);
        if let Some(words) = self.top_filters.of(entry.id) {
            self.storage.sim_yield_point();
            for (copy, &word) in words.iter().zip(image.words()) {
                // Relaxed (E3): a reader that uses it validates by the lock word afterwards.
                copy.store(word, Relaxed);
            }
        }
    }

    /// Clears the copy of an entry that has no records any more. Readers wait.
    pub(super) fn forget_filter(&self, entry: EntryRef<'_>) {
        if let Some(words) = self.top_filters.of(entry.id) {
            // Relaxed (E3): as in `store_filter`.
            words.iter().for_each(|copy| copy.store(0, Relaxed));
        }
    }

    /// Reads the copies from the medium: seven lines of each entry with records, one of each other entry.
    pub(super) fn load_top_filters(&self) -> Result<()> {
        for level in 1..=self.level_count().min(self.top_filters.levels()) {
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
