//! The partitioned Bloom filter of an entry (§4.1), bit-sliced: the buckets that may hold a key are the conjunction
//! of six rows of one line. A row has 16 bits, so a line has 32 rows.
//!
//! A hash selects one of the six lines, six of its rows, and a rotation for each of them. A row has one bit for each
//! bucket, starting at the rotation. So a search reads one line and needs no loop over buckets. Because of the
//! rotations, a bucket with many keys of one line sets bits all over the line instead of filling only the bits at one
//! position of each row. With twelve bits for each record, a full entry has a false positive for one absent key in 17,
//! a half full entry for one in 500.

use std::sync::atomic::Ordering::Relaxed;

use super::layout::{Entry, FILTER_WORDS, LINE_WORDS};
use crate::base::pipeline::prefetch_read;
use crate::storage::{Cell64, Medium};

/// Number of rows for each key.
const ROWS: u32 = 6;
/// Spreads a hash over the bits that select rows and rotations.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
const LINES: u64 = (FILTER_WORDS / LINE_WORDS) as u64;

/// A row of a line, and its rotation in bits.
type Row = (usize, u32);

/// One of the rows of a hash in its line. The line and the rows depend on low bits of the hash, because the high bits
/// select the entry.
#[inline(always)]
fn row_of(hash: u64, number: u32) -> Row {
    let bits = hash.wrapping_mul(MIX) >> (10 + 9 * number);
    ((bits & 31) as usize, (bits >> 5 & 15) as u32)
}

/// The first word of the line of a hash.
#[inline(always)]
pub(super) fn line_of(hash: u64) -> usize {
    (((hash & 0xFF) * LINES) >> 8) as usize * LINE_WORDS
}

/// The buckets that may hold a key, one bit each.
#[inline(always)]
#[track_caller]
pub(super) fn candidates(storage: &impl Medium, entry: &Entry, hash: u64) -> u16 {
    // Read without validation: a writer sets the bits of records before the records count. A superfluous bit is
    // harmless, and no bit is cleared while its record counts.
    storage
        .read_unvalidated(|| candidates_by(hash, |word| entry.filter[word].load(storage, Relaxed)))
}

/// Like [`candidates`], for a filter whose words `word` returns.
#[inline(always)]
#[track_caller]
pub(super) fn candidates_by(hash: u64, word: impl Fn(usize) -> u64) -> u16 {
    let line = line_of(hash);
    let mut candidates = u16::MAX;
    // Not a fold: its closure is not always inlined.
    for number in 0..ROWS {
        let (row, turn) = row_of(hash, number);
        let bits = (word(line + row / 4) >> (row % 4 * 16)) as u16;
        candidates &= bits.rotate_right(turn);
    }
    candidates
}

/// Prefetches the line of a hash.
#[inline(always)]
pub(super) fn prefetch(entry: &Entry, hash: u64) {
    prefetch_read(&entry.filter[line_of(hash)]);
}

/// A filter in DRAM before it is stored.
#[derive(Clone, Copy)]
pub(super) struct Image([u64; FILTER_WORDS]);

impl Image {
    /// The filter of an entry without records. Its former filter may still contain keys.
    pub(super) fn empty() -> Self {
        Self([0; FILTER_WORDS])
    }

    /// A filter that contains every key.
    pub(super) fn full() -> Self {
        Self([u64::MAX; FILTER_WORDS])
    }

    /// The present filter of an entry that keeps its records.
    pub(super) fn of(storage: &impl Medium, entry: &Entry) -> Self {
        Self::from_words(|word| entry.filter[word].load(storage, Relaxed))
    }

    /// The filter whose words `word` returns.
    pub(super) fn from_words(word: impl FnMut(usize) -> u64) -> Self {
        Self(std::array::from_fn(word))
    }

    pub(super) fn words(&self) -> &[u64; FILTER_WORDS] {
        &self.0
    }

    /// Adds a key to a bucket.
    pub(super) fn add(&mut self, bucket: usize, hash: u64) {
        let line = line_of(hash);
        for (row, turn) in (0..ROWS).map(|number| row_of(hash, number)) {
            let bit = row * 16 + (turn as usize + bucket) % 16;
            self.0[line + bit / 64] |= 1 << (bit % 64);
        }
    }

    /// Stores the lines that differ. The stores are flushed; a fence must follow before the records count.
    #[track_caller]
    pub(super) fn store(&self, storage: &impl Medium, entry: &Entry) {
        let lines = entry.filter.chunks_exact(LINE_WORDS).zip(self.0.chunks_exact(LINE_WORDS));
        for (cells, words) in lines {
            let pairs = || cells.iter().zip(words);
            let differs =
                |any, (cell, &word): (&Cell64, _)| any | cell.load(storage, Relaxed) ^ word;
            if pairs().fold(0, differs) != 0 {
                // Relaxed (E3): a reader that uses the word validates by the lock word afterwards.
                pairs().for_each(|(cell, &word)| cell.store(storage, word, Relaxed));
            }
        }
        storage.flush_object(&entry.filter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::{Hash, HashKind};

    #[test]
    fn every_key_is_found_and_few_others() {
        let hash = Hash::new(HashKind::Strong, [1, 2]);
        for (keys, share) in [(256, 0.002..0.006), (128, 0.0..0.000_3)] {
            let mut image = Image::empty();
            for key in 0..keys {
                image.add(key as usize / 16, hash.word(key));
            }
            let candidates = |key: u64| candidates_by(hash.word(key), |word| image.words()[word]);
            assert!((0..keys).all(|key| candidates(key) >> (key / 16) & 1 == 1));
            let passed: u32 = (1000..11_000).map(|key| candidates(key).count_ones()).sum();
            let passed = f64::from(passed) / 160_000.0;
            assert!(share.contains(&passed), "{keys} keys: {passed}");
        }
    }
}
