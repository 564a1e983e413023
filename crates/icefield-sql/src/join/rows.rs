//! Sets of rows of an index that the partitions of a join share.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use arrow::array::{Array, BooleanArray};
use datafusion::error::Result;

use super::side::{IndexSide, Taker, booleans};
use crate::index::Index;
use crate::index::columns::CHUNK_ROWS;

/// A bit for each row of an index.
#[derive(Debug)]
pub struct RowSet {
    words: Vec<AtomicU64>,
}

impl RowSet {
    /// Returns a set without rows.
    pub fn new(rows: u64) -> Self {
        Self { words: (0..rows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Adds a row.
    pub fn add(&self, row: u64) {
        let (word, bit) = (&self.words[row as usize / 64], 1 << (row % 64));
        // Relaxed: the set is complete when the last partition has ended, which `Shared::is_last` orders. The load
        // spares a locked instruction for rows that are already there.
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Returns whether a row is in the set.
    pub fn has(&self, row: u64) -> bool {
        self.words[row as usize / 64].load(Relaxed) >> (row % 64) & 1 == 1
    }
}

/// The predicate of an index's side of a join.
///
/// It is evaluated for the rows of pairs, until their number is half the number of rows of the index; then once for all
/// rows of the index.
#[derive(Debug)]
pub struct Predicate {
    taker: Taker,
    /// Number of rows for which it was evaluated one by one.
    evaluated: AtomicUsize,
    accepted: OnceLock<RowSet>,
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

    /// Returns which of the rows satisfy the predicate.
    ///
    /// # Errors
    /// If the predicate fails or the index is damaged.
    pub fn accepts(&self, index: &Index, rows: &[u64]) -> Result<BooleanArray> {
        if self.accepted.get().is_none() {
            let before = self.evaluated.fetch_add(rows.len(), Relaxed);
            if (before + rows.len()) as u64 <= index.columns().rows() / 2 {
                return booleans(&self.taker.take(index, rows)?[0]);
            }
        }
        let accepted = self.all(index)?;
        Ok(rows.iter().map(|&row| Some(accepted.has(row))).collect())
    }

    /// Returns all rows that satisfy the predicate.
    ///
    /// # Errors
    /// As [`accepts`](Self::accepts).
    pub fn all(&self, index: &Index) -> Result<&RowSet> {
        if let Some(accepted) = self.accepted.get() {
            return Ok(accepted);
        }
        let set = RowSet::new(index.columns().rows());
        for chunk in 0..index.columns().chunks() {
            let first = (chunk * CHUNK_ROWS) as u64;
            let rows = (index.columns().rows() - first).min(CHUNK_ROWS as u64) as usize;
            let values = booleans(&self.taker.chunk(index, chunk, rows)?[0])?;
            for row in (0..rows).filter(|&row| values.is_valid(row) && values.value(row)) {
                set.add(first + row as u64);
            }
        }
        // Partitions that come at the same time all do the work; one result is kept.
        Ok(self.accepted.get_or_init(|| set))
    }
}

/// The state that the partitions of one execution share.
#[derive(Debug)]
pub struct Shared {
    /// The rows of the index that have a match, if the join needs them.
    pub matched: Option<RowSet>,
    /// The predicate of the index's side.
    pub predicate: Option<Predicate>,
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
            predicate: Predicate::of(side)?,
            running: AtomicUsize::new(partitions),
        })
    }

    /// Ends a partition; returns whether it was the last one.
    pub fn is_last(&self) -> bool {
        // AcqRel: the last one sees the matches of all others.
        self.running.fetch_sub(1, AcqRel) == 1
    }
}
