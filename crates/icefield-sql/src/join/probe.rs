//! A batch of the probe side, and its keys in the order in which they are looked up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use arrow::array::{Array, ArrayRef, BooleanBufferBuilder, RecordBatch, UInt64Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take;
use datafusion::common::NullEquality;
use datafusion::error::Result;

use crate::index::keys::{ByPart, equal};

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
    /// Number of parts of the index.
    parts: u32,
    /// The compared expressions of the probe side.
    pub compared: Vec<ArrayRef>,
    /// Number of keys that have been probed.
    pub probed: usize,
    /// The positions of null keys that are still to be paired with rows of the index.
    pub nulls: Vec<u64>,
    /// Number of rows with which the last of them has been paired.
    paired: usize,
    /// Positions whose keys are not looked up, because another position has the same word; and that position.
    pub repeated: Vec<(u64, u64)>,
    /// The rows that have a match; empty if the join does not return rows by their matches.
    pub matched: BooleanBufferBuilder,
}

impl Batch {
    /// Returns a batch with these words of its keys, for an index with this number of parts. `filter` has the keys that
    /// may satisfy the predicate, if that is known. `is_marked` is true if the join returns rows by their matches.
    pub fn new(
        batch: RecordBatch,
        words: UInt64Array,
        filter: Option<BooleanBuffer>,
        compared: Vec<ArrayRef>,
        parts: u32,
        is_marked: bool,
    ) -> Self {
        let rows = batch.num_rows();
        let mut matched = BooleanBufferBuilder::new(rows);
        if is_marked {
            matched.append_n(rows, false);
        }
        let has_all = words.null_count() == 0 && filter.is_none();
        let mut new = Self {
            batch,
            words,
            parts,
            positions: None,
            keys: None,
            ends: vec![rows],
            compared,
            probed: 0,
            nulls: Vec::new(),
            paired: 0,
            repeated: Vec::new(),
            matched,
        };
        if !has_all || parts > 1 {
            let is_wanted = |&at: &u64| {
                let at = at as usize;
                new.words.is_valid(at) && filter.as_ref().is_none_or(|filter| filter.value(at))
            };
            let wanted = (0..rows as u64).filter(is_wanted).collect();
            new.look_up(wanted);
        }
        new
    }

    /// Makes the keys at these positions those that are looked up.
    pub fn look_up(&mut self, positions: Vec<u64>) {
        let word = |&at: &u64| self.words.value(at as usize);
        let (positions, ends) = if self.parts == 1 {
            let count = positions.len();
            (positions, vec![count])
        } else {
            let ByPart { order, ends } =
                ByPart::of(positions.iter().map(|at| Some(word(at))), self.parts);
            (order.into_iter().map(|at| positions[at as usize]).collect(), ends)
        };
        self.keys = Some(positions.iter().map(word).collect());
        (self.positions, self.ends, self.probed) = (Some(positions), ends, 0);
    }

    /// Looks up only the first of the keys that have the same word, and of the null keys.
    pub fn look_up_once(&mut self) {
        let mut first_of: HashMap<u64, u64> = HashMap::with_capacity(self.keys().len());
        let mut firsts = Vec::new();
        let mut repeated = Vec::new();
        for (at, &key) in self.keys().iter().enumerate() {
            let position = self.position(at);
            match first_of.entry(key) {
                Entry::Occupied(first) => repeated.push((position, *first.get())),
                Entry::Vacant(first) => {
                    first.insert(position);
                    firsts.push(position);
                }
            }
        }
        if !repeated.is_empty() {
            self.look_up(firsts);
        }
        if let Some((&first, others)) = self.nulls.split_first() {
            repeated.extend(others.iter().map(|&position| (position, first)));
            self.nulls.truncate(1);
        }
        self.repeated = repeated;
    }

    /// Gives keys that were not looked up the matches of those with the same word, if they are equal; looks up the
    /// others.
    ///
    /// # Errors
    /// If Arrow cannot compare them.
    pub fn settle_repeated(&mut self, nulls: NullEquality) -> Result<()> {
        let repeated = std::mem::take(&mut self.repeated);
        let (positions, firsts): (Vec<u64>, Vec<u64>) = repeated.iter().copied().unzip();
        let (positions, firsts) = (UInt64Array::from(positions), UInt64Array::from(firsts));
        let mut differ = vec![false; repeated.len()];
        for column in &self.compared {
            let [one, other] = [&positions, &firsts].map(|rows| take(column, rows, None));
            let are_equal = equal(&one?, &other?, nulls)?;
            for (differ, is_equal) in std::iter::zip(&mut differ, &are_equal) {
                *differ |= is_equal != Some(true);
            }
        }
        let mut others = Vec::new();
        for ((position, first), differs) in std::iter::zip(repeated, differ) {
            if differs && self.words.is_null(position as usize) {
                self.nulls.push(position);
            } else if differs {
                others.push(position);
            } else if !self.matched.is_empty() && self.matched.get_bit(first as usize) {
                self.matched.set_bit(position as usize, true);
            }
        }
        self.look_up(others);
        Ok(())
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
