//! The rows of the index that a join emits when the probe side has ended: those with or without a match.

use arrow::buffer::BooleanBuffer;
use datafusion::error::Result;

use super::kind::{Join, Rows};
use super::rows::Shared;
use crate::index::Index;
use crate::index::keys::part_of;
use crate::index::writer::CHUNK_ROWS;

/// These rows, as far as they are still to be emitted by one partition.
pub struct Rest {
    /// The first of them, as its chunk and its place there.
    next: Option<(usize, usize)>,
    /// Which parts of the keys are this partition's, if they are distributed.
    owned: Vec<bool>,
    /// A chunk of the index, and which of its rows are in these parts.
    owned_rows: Option<(usize, BooleanBuffer)>,
}

impl Rest {
    /// Returns no rows. The keys are distributed in this number of parts; 0 if they are not.
    pub fn new(parts: usize) -> Self {
        Self { next: None, owned: vec![false; parts], owned_rows: None }
    }

    /// Makes a part of the keys one of this partition's.
    pub fn own(&mut self, part: u32) {
        if let Some(owned) = self.owned.get_mut(part as usize) {
            *owned = true;
        }
    }

    /// Begins with the first row.
    pub fn begin(&mut self) {
        self.next = Some((0, 0));
    }

    /// Returns whether some are left.
    pub fn has_some(&self) -> bool {
        self.next.is_some()
    }

    /// Returns the next rows, at most `most` of one chunk, and perhaps none; `None` after the last chunk.
    ///
    /// # Errors
    /// If the index is damaged, or the predicate fails.
    pub fn next(&mut self, join: &Join, shared: &Shared, most: usize) -> Result<Option<Vec<u64>>> {
        let Some((chunk, start)) = self.next.take() else { return Ok(None) };
        let index = &join.side.index;
        if chunk == index.columns().chunks() {
            return Ok(None);
        }
        if !self.find_owned(index, chunk)? {
            self.next = Some((chunk + 1, 0));
            return Ok(Some(Vec::new()));
        }
        let (rows, _) = index.columns().extent(chunk);
        let end = rows.min(start + most);
        self.next = Some(if end < rows { (chunk, end) } else { (chunk + 1, 0) });
        let accepted = shared.predicate.as_ref();
        let accepted = accepted.map(|predicate| predicate.of_chunk(index, chunk)).transpose()?;
        let is_accepted = |at: &usize| accepted.is_none_or(|accepted| accepted.value(*at));
        let is_owned =
            |at: &usize| self.owned_rows.as_ref().is_none_or(|(_, rows)| rows.value(*at));
        let chosen = (start..end).filter(is_accepted).filter(is_owned);
        let chosen = chosen.map(|at| (chunk * CHUNK_ROWS + at) as u64);
        Ok(Some(match join.index_rows() {
            Rows::None => Vec::new(),
            Rows::Matched => chosen.filter(|&row| shared.is_matched(row)).collect(),
            Rows::Unmatched => chosen.filter(|&row| !shared.is_matched(row)).collect(),
            Rows::Marked => chosen.collect(),
        }))
    }

    /// Determines which rows of a chunk are in the parts of this partition. Returns `false` if none are.
    fn find_owned(&mut self, index: &Index, chunk: usize) -> Result<bool> {
        let is_known = self.owned_rows.as_ref().is_some_and(|(known, _)| *known == chunk);
        if self.owned.is_empty() || is_known {
            return Ok(true);
        }
        // A part of the keys is within one part of the index, if their numbers are multiples.
        let (of_index, parts) = (index.parts().len(), self.owned.len());
        if parts.is_multiple_of(of_index) {
            let (_, part) = index.columns().extent(chunk);
            let of_part = parts / of_index;
            let owned = &self.owned[part as usize * of_part..][..of_part];
            if !owned.contains(&true) {
                return Ok(false);
            }
        }
        let words = index.words(chunk)?;
        let owned = words.iter().map(|word| self.owned[part_of(word, parts as u32) as usize]);
        self.owned_rows = Some((chunk, owned.collect()));
        Ok(true)
    }
}
