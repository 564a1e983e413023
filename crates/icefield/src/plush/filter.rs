//! The partitioned Bloom filter of an entry (§4.1), bit-sliced: which buckets may hold a key is the conjunction of four
//! half words of one line.
//!
//! A hash chooses one of the three lines and four of its 32 rows; a row has one bit for each bucket. So a search reads
//! one line, and there is nothing to do bucket by bucket.

use std::sync::atomic::Ordering::Relaxed;

use super::layout::{Entry, FILTER_WORDS};
use crate::base::pipeline::prefetch_read;
use crate::pm::Medium;

/// Rows that a key has.
const ROWS: u32 = 4;
const LINE_WORDS: usize = 8;
const LINES: u64 = (FILTER_WORDS / LINE_WORDS) as u64;

/// The line of a hash, and its rows there. From low bits: the high ones choose the entry.
#[inline]
fn rows(hash: u64) -> (usize, impl Iterator<Item = usize>) {
    let line = (((hash & 0xFFFF) * LINES) >> 16) as usize;
    (line * LINE_WORDS, (0..ROWS).map(move |row| (hash >> (16 + 5 * row) & 31) as usize))
}

/// The buckets that may hold a key, one bit each.
#[inline]
#[track_caller]
pub(super) fn candidates(pm: &impl Medium, entry: &Entry, hash: u64) -> u16 {
    let (line, rows) = rows(hash);
    // A peek: whoever adds records sets bits before the records count. A bit too many decides nothing, and none is
    // taken away while its record counts.
    pm.peek(|| {
        rows.fold(u16::MAX, |candidates, row| {
            let word = entry.filter[line + row / 4].load(pm, Relaxed);
            candidates & (word >> (row % 4 * 16)) as u16
        })
    })
}

/// Whether a filter knows every key.
pub(super) fn is_full(pm: &impl Medium, entry: &Entry) -> bool {
    entry.filter.iter().all(|word| word.load(pm, Relaxed) == u64::MAX)
}

/// Asks for the line of a hash.
pub(super) fn prefetch(entry: &Entry, hash: u64) {
    prefetch_read(&entry.filter[rows(hash).0]);
}

/// A filter in the making.
#[derive(Clone, Copy)]
pub(super) struct Image([u64; FILTER_WORDS]);

impl Image {
    /// That of an entry without records: whatever its filter holds means nothing.
    pub(super) fn empty() -> Self {
        Self([0; FILTER_WORDS])
    }

    /// One that knows every key: of an entry that is continued, so that searches go on there.
    pub(super) fn full() -> Self {
        Self([u64::MAX; FILTER_WORDS])
    }

    /// That of an entry whose records stay.
    pub(super) fn of(pm: &impl Medium, entry: &Entry) -> Self {
        Self(std::array::from_fn(|word| entry.filter[word].load(pm, Relaxed)))
    }

    /// A key comes into a bucket.
    pub(super) fn add(&mut self, bucket: usize, hash: u64) {
        let (line, rows) = rows(hash);
        for row in rows {
            self.0[line + row / 4] |= 1 << (row % 4 * 16 + bucket);
        }
    }

    /// Whether a bucket's key is in the filter.
    #[cfg(test)]
    pub(super) fn has(&self, bucket: usize, hash: u64) -> bool {
        let (line, mut rows) = rows(hash);
        rows.all(|row| self.0[line + row / 4] >> (row % 4 * 16 + bucket) & 1 == 1)
    }

    /// Stores what differs. Flushed, to be fenced before the records count.
    #[track_caller]
    pub(super) fn store(&self, pm: &impl Medium, entry: &Entry) {
        for (cell, &word) in entry.filter.iter().zip(&self.0) {
            if cell.load(pm, Relaxed) != word {
                // Relaxed (E3): a reader that acts on it looks at the lock word afterwards.
                cell.store(pm, word, Relaxed);
            }
        }
        pm.flush_object(&entry.filter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::{Hash, HashKind};

    #[test]
    fn every_key_is_found_and_few_others() {
        let hash = Hash::new(HashKind::Strong, [1, 2]);
        let mut image = Image::empty();
        for key in 0..256 {
            image.add(key as usize / 16, hash.word(key));
        }
        assert!((0..256).all(|key| image.has(key as usize / 16, hash.word(key))));
        let others = 1000..11_000_u64;
        let passed = others.map(|key| (0..16).filter(|&at| image.has(at, hash.word(key))).count());
        let share = passed.sum::<usize>() as f64 / 160_000.0;
        assert!((0.02..0.12).contains(&share), "{share}");
    }
}
