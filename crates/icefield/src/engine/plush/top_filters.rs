//! Copies of the first levels' filters in DRAM (§6.5): a search reads an entry of these levels on the medium only if
//! the copy of its filter contains the key.
//!
//! A copy changes together with the filter on the medium, under the same lock and with the same visibility to
//! readers. When a table is opened, the copies are read from the entries. If an entry has no records, its copy is
//! empty, but its filter on the medium may still contain former keys.

use std::io;
use std::sync::atomic::AtomicU64;

use super::layout::{EntryId, FILTER_WORDS, Shape};
use crate::base::memory::ZeroedArray;

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

    /// Returns the copy of an entry's filter; `None` for chained entries, and for entries of levels without copies.
    #[inline(always)]
    pub(super) fn of(&self, id: EntryId) -> Option<&[AtomicU64; FILTER_WORDS]> {
        match id {
            EntryId::Level(number) if u64::from(number) < self.entries => {
                self.words[number as usize * FILTER_WORDS..].first_chunk()
            }
            _ => None,
        }
    }
}
