//! Sets of rows of an index that the partitions of a join share.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, BooleanArray};
use arrow::buffer::BooleanBuffer;
use datafusion::error::Result;
use icefield::base::hash::{Hash, HashKind};

use super::side::{IndexSide, Taker, booleans};
use crate::index::Index;
use crate::index::columns::CHUNK_ROWS;

/// A bit for each row of an index. Chunks take memory when they get their first row.
#[derive(Debug)]
pub struct RowSet {
    chunks: Vec<OnceLock<Box<[AtomicU64]>>>,
}

const CHUNK_WORDS: usize = CHUNK_ROWS / 64;

impl RowSet {
    /// Returns a set without rows.
    pub fn new(rows: u64) -> Self {
        let chunks = rows.div_ceil(CHUNK_ROWS as u64);
        Self { chunks: (0..chunks).map(|_| OnceLock::new()).collect() }
    }

    fn chunk(&self, chunk: usize) -> &[AtomicU64] {
        self.chunks[chunk].get_or_init(|| (0..CHUNK_WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Adds a row.
    pub fn add(&self, row: u64) {
        let row = row as usize;
        let word = &self.chunk(row / CHUNK_ROWS)[row % CHUNK_ROWS / 64];
        let bit = 1 << (row % 64);
        // Relaxed: the set is complete when the last partition has ended, which `Shared::is_last` orders. The load
        // spares a locked instruction for rows that are already there.
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Adds the rows of a chunk whose bits are set. Nothing else may have added rows of this chunk.
    fn add_chunk(&self, chunk: usize, bits: &BooleanBuffer) {
        if bits.has_true() {
            for (word, bits) in self.chunk(chunk).iter().zip(bits.bit_chunks().iter_padded()) {
                word.store(bits, Relaxed);
            }
        }
    }

    /// Returns whether a row is in the set.
    pub fn has(&self, row: u64) -> bool {
        let row = row as usize;
        let chunk = self.chunks[row / CHUNK_ROWS].get();
        chunk.is_some_and(|chunk| chunk[row % CHUNK_ROWS / 64].load(Relaxed) >> (row % 64) & 1 == 1)
    }

    fn len(&self) -> u64 {
        let words = self.chunks.iter().filter_map(OnceLock::get).flatten();
        words.map(|word| u64::from(word.load(Relaxed).count_ones())).sum()
    }
}

/// The predicate of an index's side of a join.
///
/// It is evaluated for the rows of pairs, until their number is a 16th of the number of rows of the index; then once
/// for all rows of the index, which costs less because the rows are read in order.
#[derive(Debug)]
pub struct Predicate {
    taker: Taker,
    /// Number of rows for which it was evaluated one by one.
    evaluated: AtomicUsize,
    accepted: OnceLock<Accepted>,
}

/// The rows of an index that satisfy a predicate.
#[derive(Debug)]
pub struct Accepted {
    /// The rows.
    pub rows: RowSet,
    /// A filter of their keys, if most rows do not satisfy the predicate.
    pub keys: Option<KeyFilter>,
}

impl Predicate {
    /// Returns the predicate of a side; `None` if all rows satisfy it.
    ///
    /// # Errors
    /// If the predicate uses a column that the index does not have.
    pub fn of(side: &IndexSide) -> Result<Option<Self>> {
        let Some(predicate) = &side.predicate else { return Ok(None) };
        let taker = Taker::new(&side.index, std::slice::from_ref(predicate))?;
        Ok(Some(Self { taker, evaluated: AtomicUsize::new(0), accepted: OnceLock::new() }))
    }

    /// Returns a filter of the keys whose rows may satisfy the predicate; `None` if there is none (yet).
    pub fn key_filter(&self) -> Option<&KeyFilter> {
        self.accepted.get()?.keys.as_ref()
    }

    /// Returns which of the rows satisfy the predicate.
    ///
    /// # Errors
    /// If the predicate fails or the index is damaged.
    pub fn accepts(&self, index: &Index, rows: &[u64]) -> Result<BooleanArray> {
        if self.accepted.get().is_none() {
            let before = self.evaluated.fetch_add(rows.len(), Relaxed);
            if (before + rows.len()) as u64 <= index.columns().rows() / 16 {
                return booleans(&self.taker.take(index, rows)?[0]);
            }
        }
        let accepted = self.all(index)?;
        let bits = BooleanBuffer::collect_bool(rows.len(), |at| accepted.rows.has(rows[at]));
        Ok(BooleanArray::new(bits, None))
    }

    /// Returns all rows that satisfy the predicate.
    ///
    /// # Errors
    /// As [`accepts`](Self::accepts).
    pub fn all(&self, index: &Index) -> Result<&Accepted> {
        if let Some(accepted) = self.accepted.get() {
            return Ok(accepted);
        }
        let set = RowSet::new(index.columns().rows());
        for chunk in 0..index.columns().chunks() {
            let first = chunk * CHUNK_ROWS;
            let rows = (index.columns().rows() - first as u64).min(CHUNK_ROWS as u64) as usize;
            let values = booleans(&self.taker.chunk(index, chunk, rows)?[0])?;
            set.add_chunk(chunk, &true_bits(&values));
        }
        let keys = KeyFilter::of(index, &set)?;
        // Partitions that come at the same time all do the work; one result is kept.
        Ok(self.accepted.get_or_init(|| Accepted { rows: set, keys }))
    }
}

/// Returns the bits of the values that are true, and not null.
fn true_bits(values: &BooleanArray) -> BooleanBuffer {
    match values.nulls() {
        Some(nulls) => values.values() & nulls.inner(),
        None => values.values().clone(),
    }
}

/// A filter of words of keys: a blocked Bloom filter with blocks of 64 bits, of which a word sets four.
///
/// Where few rows of an index satisfy the predicate, most keys of the probe side have no pair, and their lookups would
/// find rows that are removed again. The filter is small enough for a cache.
#[derive(Debug)]
pub struct KeyFilter {
    blocks: Vec<u64>,
    hash: Hash,
}

/// Least number of bits of the filter for each word. Then 0.5 % of other words pass.
const FILTER_BITS: u64 = 16;
/// The filter pays if at most one in this number of rows satisfies the predicate.
const FILTER_ONE_IN: u64 = 4;

impl KeyFilter {
    /// Returns the filter of the keys of these rows; `None` if there are many.
    fn of(index: &Index, rows: &RowSet) -> Result<Option<Self>> {
        let count = rows.len();
        if count > index.columns().rows() / FILTER_ONE_IN {
            return Ok(None);
        }
        let mut filter = Self::with_room(count);
        for chunk in 0..index.columns().chunks() {
            let first = (chunk * CHUNK_ROWS) as u64;
            for (at, word) in index.words(chunk)?.iter().enumerate() {
                if let Some(word) = word
                    && rows.has(first + at as u64)
                {
                    filter.add(word);
                }
            }
        }
        Ok(Some(filter))
    }

    /// Returns an empty filter for this number of words.
    fn with_room(words: u64) -> Self {
        let blocks = (words * FILTER_BITS / 64).next_power_of_two();
        Self { blocks: vec![0; blocks as usize], hash: Hash::new(HashKind::Strong, [5, 7]) }
    }

    fn add(&mut self, word: u64) {
        let (block, bits) = self.place(word);
        self.blocks[block] |= bits;
    }

    /// Returns the block of a word, and its bits there.
    fn place(&self, word: u64) -> (usize, u64) {
        let hash = self.hash.word(word);
        let bit = |shift: u32| 1_u64 << (hash >> shift & 63);
        let bits = bit(0) | bit(6) | bit(12) | bit(18);
        ((hash >> 24) as usize & (self.blocks.len() - 1), bits)
    }

    /// Returns `false` if no row with this word satisfies the predicate.
    pub fn may_have(&self, word: u64) -> bool {
        let (block, bits) = self.place(word);
        self.blocks[block] & bits == bits
    }
}

/// The state that the partitions of one execution share.
#[derive(Debug)]
pub struct Shared {
    /// The rows of the index that have a match, if the join needs them.
    pub matched: Option<RowSet>,
    /// The predicate of the index's side.
    pub predicate: Option<Arc<Predicate>>,
    /// Number of partitions that have not ended.
    running: AtomicUsize,
}

impl Shared {
    /// Returns the state before the first of `partitions` partitions begins.
    ///
    /// # Errors
    /// As [`Predicate::of`].
    pub fn new(side: &IndexSide, needs_matched: bool, partitions: usize) -> Result<Self> {
        Ok(Self {
            matched: needs_matched.then(|| RowSet::new(side.index.columns().rows())),
            predicate: Predicate::of(side)?.map(Arc::new),
            running: AtomicUsize::new(partitions),
        })
    }

    /// Returns the state of one partition whose matches no other partition needs.
    pub fn of_one(&self, side: &IndexSide) -> Self {
        let rows = side.index.columns().rows();
        Self {
            matched: self.matched.as_ref().map(|_| RowSet::new(rows)),
            predicate: self.predicate.clone(),
            running: AtomicUsize::new(1),
        }
    }

    /// Ends a partition; returns whether it was the last one.
    pub fn is_last(&self) -> bool {
        // AcqRel: the last one sees the matches of all others.
        self.running.fetch_sub(1, AcqRel) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_other_words_pass_the_filter() {
        // The number of words for which the filter has no bits to spare.
        let words = 4096;
        let mut filter = KeyFilter::with_room(words);
        (0..words).for_each(|word| filter.add(word));
        assert!((0..words).all(|word| filter.may_have(word)));
        let others = words..words + 1_000_000;
        let passed = others.filter(|&word| filter.may_have(word)).count();
        println!("{passed} of a million other words pass");
        assert!(passed < 7000, "{passed}");
    }
}
