//! Sets of rows of an index that the partitions of a join share.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::{Arc, OnceLock};

use super::predicate::Predicate;
use super::side::IndexSide;
use crate::index::columns::place;
use crate::index::writer::CHUNK_ROWS;

/// A bit for each row of an index. Chunks take memory when they get their first row.
#[derive(Debug)]
pub struct RowSet {
    chunks: Vec<OnceLock<Box<[AtomicU64]>>>,
}

const CHUNK_WORDS: usize = CHUNK_ROWS / 64;

impl RowSet {
    /// Returns a set without rows of an index with this number of chunks.
    pub fn new(chunks: usize) -> Self {
        Self { chunks: (0..chunks).map(|_| OnceLock::new()).collect() }
    }

    fn chunk(&self, chunk: usize) -> &[AtomicU64] {
        self.chunks[chunk].get_or_init(|| (0..CHUNK_WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Adds a row.
    pub fn add(&self, row: u64) {
        let (chunk, at) = place(row);
        let word = &self.chunk(chunk)[at / 64];
        let bit = 1 << (at % 64);
        // Relaxed: the set is complete when the last partition has ended, which `Shared::is_last` orders. The load
        // spares a locked instruction for rows that are already there.
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Returns whether a row is in the set.
    pub fn has(&self, row: u64) -> bool {
        let (chunk, at) = place(row);
        let chunk = self.chunks[chunk].get();
        chunk.is_some_and(|chunk| chunk[at / 64].load(Relaxed) >> (at % 64) & 1 == 1)
    }
}

/// The state that the partitions of one execution share.
#[derive(Debug)]
pub struct Shared {
    /// The rows of the index that have a match, if the join needs them.
    pub matched: Option<RowSet>,
    /// The predicate of the index's side.
    pub predicate: Option<Arc<Predicate>>,
    /// True if equal keys of a batch are looked up once. They have the same matches then, and usually several.
    pub looks_up_once: bool,
    /// Number of partitions that have not ended.
    running: AtomicUsize,
}

impl Shared {
    /// Returns the state before the first of `partitions` partitions begins. `matched` is an empty set if the join needs
    /// to know which rows of the index have a match.
    pub fn new(
        matched: Option<RowSet>,
        predicate: Option<Arc<Predicate>>,
        looks_up_once: bool,
        partitions: usize,
    ) -> Self {
        Self { matched, predicate, looks_up_once, running: AtomicUsize::new(partitions) }
    }

    /// Returns the state of one partition whose matches no other partition needs.
    pub fn of_one(&self, side: &IndexSide) -> Self {
        let chunks = side.index.columns().chunks();
        Self {
            matched: self.matched.as_ref().map(|_| RowSet::new(chunks)),
            predicate: self.predicate.clone(),
            looks_up_once: self.looks_up_once,
            running: AtomicUsize::new(1),
        }
    }

    /// Returns whether a row of the index is known to have a match.
    pub fn is_matched(&self, row: u64) -> bool {
        self.matched.as_ref().is_some_and(|matched| matched.has(row))
    }

    /// Ends a partition; returns whether it was the last one.
    pub fn is_last(&self) -> bool {
        // AcqRel: the last one sees the matches of all others.
        self.running.fetch_sub(1, AcqRel) == 1
    }
}
