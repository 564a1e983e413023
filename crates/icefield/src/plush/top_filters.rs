//! The filters of the first levels once more in DRAM (§6.5): a search asks the medium only where they know the key.
//!
//! They are copies: changed with the medium's, under the same lock and as readers may see those, and read back from the
//! entries when a table is opened. Of an entry without records the copy knows nothing, which the medium's need not say.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::core::{Core, EntryRef};
use super::filter::{self, Image};
use super::layout::{EntryId, FILTER_WORDS, Shape};
use crate::Result;
use crate::base::memory::ZeroedArray;
use crate::base::pipeline::prefetch_read;
use crate::key::{Key, Value};
use crate::pm::Medium;

/// The copies, one level after the other.
pub(super) struct TopFilters {
    words: ZeroedArray<AtomicU64>,
    levels: usize,
    entries: u64,
}

impl TopFilters {
    /// Those of up to `levels` levels, as many as take at most so many bytes.
    pub(super) fn new(shape: Shape, levels: usize, max_bytes: u64) -> io::Result<Self> {
        let bytes = |levels: usize| shape.entries_above(levels + 1) * (FILTER_WORDS * 8) as u64;
        let wanted = levels.min(shape.max_levels());
        let levels =
            (0..=wanted).rev().find(|&levels| bytes(levels) <= max_bytes).unwrap_or_default();
        let entries = shape.entries_above(levels + 1);
        let words = ZeroedArray::new(entries as usize * FILTER_WORDS)?;
        Ok(Self { words, levels, entries })
    }

    /// How many levels have copies.
    pub(super) fn levels(&self) -> usize {
        self.levels
    }

    /// Has all of their memory there before the first record comes.
    pub(super) fn populate(&self) {
        self.words.populate();
    }

    /// Bytes of DRAM.
    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }

    /// The copy of an entry's filter.
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

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// The buckets of an entry that may hold a key, one bit each.
    #[inline]
    #[track_caller]
    pub(super) fn candidates(&self, entry: EntryRef<'_>, hash: u64) -> u16 {
        match self.top_filters.of(entry.id) {
            Some(words) => {
                self.pm.beside();
                // Relaxed (E3): as the medium's.
                filter::candidates_by(hash, |word| words[word].load(Relaxed))
            }
            None => filter::candidates(&self.pm, entry.entry, hash),
        }
    }

    /// Asks for the line of an entry's filter that a search will read.
    #[inline]
    pub(super) fn prefetch_filter(&self, entry: EntryRef<'_>, hash: u64) {
        match self.top_filters.of(entry.id) {
            Some(words) => prefetch_read(&words[filter::line_of(hash)]),
            None => filter::prefetch(entry.entry, hash),
        }
    }

    /// The filter of an entry whose records stay.
    pub(super) fn filter_of(&self, entry: EntryRef<'_>) -> Image {
        match self.top_filters.of(entry.id) {
            // Relaxed: under the lock.
            Some(words) => Image::from_words(|word| words[word].load(Relaxed)),
            None => Image::of(&self.pm, entry.entry),
        }
    }

    /// Stores an entry's filter. Flushed, to be fenced before the records count.
    #[track_caller]
    pub(super) fn store_filter(&self, entry: EntryRef<'_>, image: &Image) {
        image.store(&self.pm, entry.entry);
        if let Some(words) = self.top_filters.of(entry.id) {
            self.pm.beside();
            for (copy, &word) in words.iter().zip(image.words()) {
                // Relaxed (E3): a reader that acts on it looks at the lock word afterwards.
                copy.store(word, Relaxed);
            }
        }
    }

    /// The entry has no records any more: its copy need not lead there. Readers are kept away.
    pub(super) fn forget_filter(&self, entry: EntryRef<'_>) {
        if let Some(words) = self.top_filters.of(entry.id) {
            // Relaxed (E3): as in `store_filter`.
            words.iter().for_each(|copy| copy.store(0, Relaxed));
        }
    }

    /// Reads the copies back: seven lines of each entry that has records, one of each other.
    pub(super) fn load_top_filters(&self) -> Result<()> {
        for level in 1..=self.level_count().min(self.top_filters.levels()) {
            for index in 0..self.shape.entries(level) {
                let entry = self.level_entry(level, index)?;
                let Some(words) = self.top_filters.of(entry.id) else { continue };
                if self.state(entry)?.size == 0 && self.next_of(entry)?.is_none() {
                    continue;
                }
                let image = Image::of(&self.pm, entry.entry);
                for (copy, &word) in words.iter().zip(image.words()) {
                    // Relaxed: the table is being opened, nobody else knows it yet.
                    copy.store(word, Relaxed);
                }
            }
        }
        Ok(())
    }
}
