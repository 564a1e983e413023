//! Which rows of an index satisfy the predicate of its side of a join, and which keys of the probe side may have a
//! pair.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use arrow::array::{Array, BooleanArray, UInt64Array};
use arrow::buffer::BooleanBuffer;
use datafusion::error::Result;
use icefield::base::hash::{Hash, HashKind};

use super::side::{IndexSide, Taker, booleans};
use crate::index::Index;
use crate::index::columns::place;
use crate::index::ranks::Ranks;

/// The predicate of an index's side of a join.
///
/// It is evaluated for the rows of pairs, until their number is a 16th of the number of rows of the index; then once
/// for all rows of each chunk that has a pair, which costs less because the rows are read in order.
#[derive(Debug)]
pub struct Predicate {
    taker: Taker,
    /// Number of rows for which it was needed.
    needed: AtomicUsize,
    /// The rows of each chunk that satisfy it.
    chunks: Vec<OnceLock<BooleanBuffer>>,
    /// A filter of the keys of these rows, if the index has no ranks; `None` in it if most rows satisfy the predicate.
    keys: OnceLock<Option<KeyFilter>>,
}

impl Predicate {
    /// Returns the predicate of a side; `None` if all rows satisfy it.
    ///
    /// # Errors
    /// If the predicate uses a column that the index does not have.
    pub fn of(side: &IndexSide) -> Result<Option<Self>> {
        let Some(predicate) = &side.predicate else { return Ok(None) };
        let taker = Taker::new(&side.index, std::slice::from_ref(predicate))?;
        let chunks = (0..side.index.columns().chunks()).map(|_| OnceLock::new()).collect();
        Ok(Some(Self { taker, needed: AtomicUsize::new(0), chunks, keys: OnceLock::new() }))
    }

    /// Returns which of the rows satisfy the predicate.
    ///
    /// # Errors
    /// If the predicate fails or the index is damaged.
    pub fn accepts(&self, index: &Index, rows: &[u64]) -> Result<BooleanArray> {
        if !self.pays(index, rows.len()) {
            return booleans(&self.taker.take(index, rows)?[0]);
        }
        let mut accepted = Accepted::new(index, self);
        Ok(BooleanArray::new(bits_of(rows.len(), |at| accepted.has(rows[at]))?, None))
    }

    /// Returns whether it pays to evaluate the predicate for whole chunks, now that it is needed for `rows` more rows.
    pub fn pays(&self, index: &Index, rows: usize) -> bool {
        let before = self.needed.fetch_add(rows, Relaxed);
        (before + rows) as u64 > index.columns().rows() / 16
    }

    /// Returns the rows of a chunk that satisfy the predicate.
    ///
    /// # Errors
    /// As [`accepts`](Self::accepts).
    pub fn of_chunk(&self, index: &Index, chunk: usize) -> Result<&BooleanBuffer> {
        if let Some(bits) = self.chunks[chunk].get() {
            return Ok(bits);
        }
        let (rows, _) = index.columns().extent(chunk);
        let values = booleans(&self.taker.chunk(index, chunk, rows)?[0])?;
        // Partitions that come at the same time all do the work; one result is kept.
        Ok(self.chunks[chunk].get_or_init(|| true_bits(&values)))
    }

    /// Returns which words may have a row that satisfies the predicate; `None` if that is not known (yet).
    ///
    /// # Errors
    /// As [`accepts`](Self::accepts).
    pub fn may_accept(&self, index: &Index, words: &UInt64Array) -> Result<Option<BooleanBuffer>> {
        if !self.pays(index, words.len()) {
            return Ok(None);
        }
        if let Some(ranks) = index.ranks() {
            let mut rows = Rows::new(index, ranks, Some(self));
            let values = words.values();
            let bits = if words.null_count() == 0 {
                bits_of(words.len(), |at| Ok(rows.row(values[at])?.is_some()))
            } else {
                let is_there = |at| Ok(words.is_valid(at) && rows.row(values[at])?.is_some());
                bits_of(words.len(), is_there)
            };
            return bits.map(Some);
        }
        let Some(filter) = self.key_filter(index)? else { return Ok(None) };
        let may_have = |at: usize| words.is_valid(at) && filter.may_have(words.value(at));
        Ok(Some(BooleanBuffer::collect_bool(words.len(), may_have)))
    }

    /// Returns a filter of the keys whose rows satisfy the predicate; `None` if most rows do.
    fn key_filter(&self, index: &Index) -> Result<Option<&KeyFilter>> {
        if let Some(keys) = self.keys.get() {
            return Ok(keys.as_ref());
        }
        let keys = KeyFilter::of(index, self)?;
        Ok(self.keys.get_or_init(|| keys).as_ref())
    }
}

/// Returns the bits of a function that may fail.
fn bits_of(count: usize, mut bit: impl FnMut(usize) -> Result<bool>) -> Result<BooleanBuffer> {
    let mut error = None;
    let bits = BooleanBuffer::collect_bool(count, |at| {
        bit(at).unwrap_or_else(|why| {
            error.get_or_insert(why);
            false
        })
    });
    error.map_or(Ok(bits), Err)
}

/// The rows that satisfy a predicate, chunk by chunk.
struct Accepted<'a> {
    index: &'a Index,
    predicate: &'a Predicate,
    chunks: Vec<Option<&'a BooleanBuffer>>,
}

impl<'a> Accepted<'a> {
    fn new(index: &'a Index, predicate: &'a Predicate) -> Self {
        Self { index, predicate, chunks: vec![None; predicate.chunks.len()] }
    }

    #[inline]
    fn has(&mut self, row: u64) -> Result<bool> {
        let (chunk, at) = place(row);
        if let Some(bits) = self.chunks[chunk] {
            return Ok(bits.value(at));
        }
        let bits = self.predicate.of_chunk(self.index, chunk)?;
        self.chunks[chunk] = Some(bits);
        Ok(bits.value(at))
    }
}

/// The rows of words that satisfy a predicate.
pub struct Rows<'a> {
    ranks: &'a Ranks,
    accepted: Option<Accepted<'a>>,
    /// The word that was looked up last, and its row: rows with the same key often follow one another.
    last: Option<(u64, Option<u64>)>,
}

impl<'a> Rows<'a> {
    /// Returns the rows of an index that satisfy a predicate, if there is one.
    pub fn new(index: &'a Index, ranks: &'a Ranks, predicate: Option<&'a Predicate>) -> Self {
        let accepted = predicate.map(|predicate| Accepted::new(index, predicate));
        Self { ranks, accepted, last: None }
    }

    /// Returns the row of a word.
    ///
    /// # Errors
    /// If the predicate fails or the index is damaged.
    #[inline]
    pub fn row(&mut self, word: u64) -> Result<Option<u64>> {
        if let Some((last, row)) = self.last
            && last == word
        {
            return Ok(row);
        }
        let mut row = self.ranks.row(word)?;
        if let (Some(found), Some(accepted)) = (row, &mut self.accepted)
            && !accepted.has(found)?
        {
            row = None;
        }
        self.last = Some((word, row));
        Ok(row)
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
    /// Returns the filter of the keys whose rows satisfy the predicate; `None` if there are many.
    fn of(index: &Index, predicate: &Predicate) -> Result<Option<Self>> {
        let mut count = 0;
        for chunk in 0..index.columns().chunks() {
            count += predicate.of_chunk(index, chunk)?.count_set_bits() as u64;
        }
        if count > index.columns().rows() / FILTER_ONE_IN {
            return Ok(None);
        }
        let mut filter = Self::with_room(count);
        for chunk in 0..index.columns().chunks() {
            let words = index.words(chunk)?;
            for at in predicate.of_chunk(index, chunk)?.set_indices() {
                if words.is_valid(at) {
                    filter.add(words.value(at));
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

/// Number of keys after which a filter is given up if it has removed few.
const TRIED: usize = 1 << 16;
/// A filter pays if it removes at least one in this number of keys.
const PAYS_ONE_IN: usize = 8;

/// Counts how many keys pass a filter, and gives it up if that are nearly all.
#[derive(Debug, Default)]
pub struct Passed {
    seen: AtomicUsize,
    passed: AtomicUsize,
    is_useless: AtomicBool,
}

impl Passed {
    /// Returns whether the filter removes so few keys that it does not pay.
    pub fn is_useless(&self) -> bool {
        self.is_useless.load(Relaxed)
    }

    /// Returns how many of 1024 keys pass.
    pub fn rate(&self) -> usize {
        let (seen, passed) = (self.seen.load(Relaxed), self.passed.load(Relaxed));
        // Before it has been tried, half of them.
        (passed * 1024 + 512) / (seen + 1)
    }

    /// Counts keys.
    pub fn count(&self, seen: usize, passed: usize) {
        let seen = self.seen.fetch_add(seen, Relaxed) + seen;
        let passed = self.passed.fetch_add(passed, Relaxed) + passed;
        if seen >= TRIED && passed > seen - seen / PAYS_ONE_IN {
            self.is_useless.store(true, Relaxed);
        }
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

    #[test]
    fn useless_filters_are_given_up() {
        let (one, other) = (Passed::default(), Passed::default());
        (0..100).for_each(|_| one.count(1000, 950));
        (0..100).for_each(|_| other.count(1000, 800));
        assert!(one.is_useless() && !other.is_useless());
    }
}
