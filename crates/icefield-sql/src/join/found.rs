//! The pairs that a lookup has found.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt64Array};
use arrow::compute::{filter, take};
use datafusion::error::Result;

/// Pairs of a position in a batch and a row of the index.
pub struct Found {
    /// The positions.
    pub positions: UInt64Array,
    /// The rows.
    pub rows: UInt64Array,
    /// True if the positions are those of all rows of the batch, in order: each row has one pair.
    is_whole: bool,
}

impl Found {
    /// Returns the pairs of a batch with this number of rows.
    pub fn new(positions: Vec<u64>, rows: Vec<u64>, batch_rows: usize) -> Self {
        let is_whole = positions.len() == batch_rows
            && positions.iter().enumerate().all(|(at, &position)| at as u64 == position);
        Self { positions: positions.into(), rows: rows.into(), is_whole }
    }

    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the pairs in parts of at most this number, so that the columns that are taken for them stay small.
    pub fn parts(self, most: usize) -> Vec<Self> {
        let whole = self.len();
        if whole <= most {
            return vec![self];
        }
        let part = |start: usize| {
            let length = most.min(whole - start);
            let (positions, rows) =
                (self.positions.slice(start, length), self.rows.slice(start, length));
            Self { positions, rows, is_whole: false }
        };
        (0..whole).step_by(most).map(part).collect()
    }

    /// Returns the first `each` pairs of each position, and the others; without those that `is_needless`.
    pub fn first_of_each(self, each: usize, is_needless: impl Fn(u64) -> bool) -> (Self, Self) {
        let mut parts = [const { (Vec::new(), Vec::new()) }; 2];
        let (mut last, mut count) = (None, 0);
        let pairs = std::iter::zip(self.positions.values(), self.rows.values());
        for (&position, &row) in pairs.filter(|&(&position, _)| !is_needless(position)) {
            // The pairs of a position follow one another.
            count = if last == Some(position) { count + 1 } else { 1 };
            last = Some(position);
            let (positions, rows) = &mut parts[usize::from(count > each)];
            positions.push(position);
            rows.push(row);
        }
        let of = |(positions, rows): (Vec<u64>, Vec<u64>)| Self {
            positions: positions.into(),
            rows: rows.into(),
            is_whole: false,
        };
        let [first, rest] = parts;
        (of(first), of(rest))
    }

    /// Returns whether the list of pairs is empty.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the values of a column of the batch, pair by pair.
    ///
    /// # Errors
    /// If Arrow cannot take them.
    pub fn of_probe(&self, column: &ArrayRef) -> Result<ArrayRef> {
        if self.is_whole {
            Ok(Arc::clone(column))
        } else {
            Ok(take(column, &self.positions, None)?)
        }
    }

    /// Keeps the pairs for which `wanted` is true.
    ///
    /// # Errors
    /// If Arrow cannot filter them.
    pub fn keep(&mut self, wanted: &BooleanArray) -> Result<()> {
        if wanted.null_count() == 0 && !wanted.has_false() {
            return Ok(());
        }
        let kept = |column: &UInt64Array| -> Result<UInt64Array> {
            Ok(filter(column, wanted)?.as_primitive().clone())
        };
        (self.positions, self.rows) = (kept(&self.positions)?, kept(&self.rows)?);
        self.is_whole = false;
        Ok(())
    }
}
