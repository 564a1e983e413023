//! A batch of the probe side, and its keys in the order in which they are looked up.

use arrow::array::{Array, ArrayRef, BooleanBufferBuilder, RecordBatch, UInt64Array};
use arrow::buffer::BooleanBuffer;

use crate::index::keys::ByPart;

/// Returns the positions of the nulls of a column.
pub fn null_positions(column: &ArrayRef) -> Vec<u64> {
    let nulls = column.logical_nulls();
    let positions =
        nulls.iter().flat_map(|nulls| (!nulls.inner()).set_indices().collect::<Vec<_>>());
    positions.map(|at| at as u64).collect()
}

/// A batch of the probe side.
pub struct Batch {
    /// The rows.
    pub batch: RecordBatch,
    words: UInt64Array,
    /// The positions of the keys to look up: those that are not null and may satisfy the predicate, by parts of the
    /// index; `None` for all.
    positions: Option<Vec<u64>>,
    /// The keys at these positions.
    keys: Option<Vec<u64>>,
    /// Where the keys of each part of the index end.
    ends: Vec<usize>,
    /// The compared expressions of the probe side.
    pub compared: Vec<ArrayRef>,
    /// Number of keys that have been probed.
    pub probed: usize,
    /// The positions of null keys that are still to be paired with rows of the index.
    pub nulls: Vec<u64>,
    /// Number of rows with which the last of them has been paired.
    paired: usize,
    /// The rows that have a match; empty if the join does not return rows by their matches.
    pub matched: BooleanBufferBuilder,
}

impl Batch {
    /// Returns a batch with these words of its keys, for an index with this number of parts. `filter` has the keys that
    /// may satisfy the predicate, if that is known.
    pub fn new(
        batch: RecordBatch,
        words: UInt64Array,
        filter: Option<BooleanBuffer>,
        compared: Vec<ArrayRef>,
        parts: u32,
        is_marked: bool,
    ) -> Self {
        let rows = batch.num_rows();
        let (positions, keys) = match (words.null_count() > 0, filter) {
            (false, None) => (None, None),
            (_, filter) => {
                let wanted = (0..rows as u64).filter(|&at| {
                    let at = at as usize;
                    words.is_valid(at) && filter.as_ref().is_none_or(|filter| filter.value(at))
                });
                let positions: Vec<u64> = wanted.collect();
                let keys: Vec<_> = positions.iter().map(|&at| words.value(at as usize)).collect();
                (Some(positions), Some(keys))
            }
        };
        let (positions, keys, ends) = if parts == 1 {
            let count = keys.as_ref().map_or(rows, Vec::len);
            (positions, keys, vec![count])
        } else {
            let keys = keys.as_deref().unwrap_or_else(|| words.values());
            let ByPart { order, ends } = ByPart::of(keys.iter().map(|&key| Some(key)), parts);
            let ordered = order.iter().map(|&at| keys[at as usize]).collect();
            let position = |at: u64| positions.as_ref().map_or(at, |places| places[at as usize]);
            (Some(order.into_iter().map(position).collect()), Some(ordered), ends)
        };
        let mut matched = BooleanBufferBuilder::new(rows);
        if is_marked {
            matched.append_n(rows, false);
        }
        let (nulls, paired) = (Vec::new(), 0);
        Self { batch, words, positions, keys, ends, compared, probed: 0, nulls, paired, matched }
    }

    /// Returns the next pairs of null keys with these rows, at most this number, as positions and rows.
    pub fn null_pairs(&mut self, rows: &[u64], most: usize) -> (Vec<u64>, Vec<u64>) {
        let (mut positions, mut found) = (Vec::new(), Vec::new());
        while let Some(&position) = self.nulls.last()
            && found.len() < most
        {
            let end = rows.len().min(self.paired + most - found.len());
            found.extend_from_slice(&rows[self.paired..end]);
            positions.resize(found.len(), position);
            self.paired = end;
            if end == rows.len() {
                self.nulls.pop();
                self.paired = 0;
            }
        }
        (positions, found)
    }

    /// Returns the keys to look up.
    pub fn keys(&self) -> &[u64] {
        self.keys.as_deref().unwrap_or_else(|| self.words.values())
    }

    /// Returns the next keys that are in one part of the index, and the part.
    pub fn next_keys(&self) -> (&[u64], usize) {
        let part = self.ends.partition_point(|&end| end <= self.probed);
        (&self.keys()[self.probed..self.ends[part]], part)
    }

    /// Returns the position in the batch of a key of the list.
    pub fn position(&self, key: usize) -> u64 {
        self.positions.as_ref().map_or(key as u64, |positions| positions[key])
    }

    /// Makes positions in the list of keys, counted from `first` on, positions in the batch.
    pub fn place(&self, keys: &mut [u64], first: usize) {
        match &self.positions {
            Some(positions) => {
                keys.iter_mut().for_each(|at| *at = positions[first + *at as usize]);
            }
            None if first > 0 => keys.iter_mut().for_each(|at| *at += first as u64),
            None => {}
        }
    }
}
