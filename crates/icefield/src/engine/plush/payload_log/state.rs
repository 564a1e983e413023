//! The use of the chunks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Number of free chunks that are reserved for the collection. Without one, the collection could not move any record if
/// the medium is full.
pub(in crate::engine::plush) const SPARE: usize = 1;

/// The use of the chunks.
#[derive(Default)]
pub(super) struct Space {
    /// Free chunks; a former session may have given their space back. The lowest is taken first (Y5).
    pub(super) whole: BTreeSet<u32>,
    /// Free chunks whose space was given back, or is known to be missing.
    pub(super) punched: BTreeSet<u32>,
    /// Full chunks. Of a run, which is several consecutive chunks, only the first is listed.
    pub(super) full: BTreeSet<u32>,
    /// Number of chunks of each run of more than one.
    pub(super) runs: BTreeMap<u32, u32>,
    /// Number of chunks of the region.
    pub(super) chunks: u32,
    /// Number of chunks that are not free.
    pub(super) used: u64,
}

/// The usage of the log.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine::plush) struct Usage {
    /// Chunks that are not free.
    pub(in crate::engine::plush) chunks: u64,
    /// Bytes and records written by this session.
    pub(in crate::engine::plush) bytes: u64,
    pub(in crate::engine::plush) records: u64,
}

/// The purpose of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine::plush) enum Purpose {
    /// A change of the table.
    Write,
    /// A move, so that the record's chunk can be freed. May take the last free chunk.
    Move,
}

impl Space {
    /// The length of the run that begins with a chunk.
    pub(super) fn run(&self, chunk: u32) -> u32 {
        self.runs.get(&chunk).copied().unwrap_or(1)
    }

    /// Notes that free chunks have no space.
    pub(super) fn note_punched(&mut self, chunks: impl Iterator<Item = u32>) {
        for chunk in chunks {
            self.whole.remove(&chunk);
            self.punched.insert(chunk);
        }
    }

    pub(super) fn free_chunks(&self) -> usize {
        self.whole.len() + self.punched.len()
    }

    /// The first of `run` consecutive free chunks, if `spare` other chunks remain free. Prefers chunks with space.
    pub(super) fn run_of_free(&self, run: u32, spare: usize) -> Option<u32> {
        if self.free_chunks() < run as usize + spare {
            return None;
        }
        let spared: Vec<u32> = self.whole.iter().rev().take(spare).copied().collect();
        let may_go = |chunk: &&u32| !spared.contains(*chunk);
        first_run(self.whole.iter().filter(may_go), run)
            .or_else(|| first_run(self.whole.union(&self.punched).filter(may_go), run))
    }

    /// The chunk that remains free for the collection when others are taken: one with space, if possible.
    pub(super) fn spare_beside(&self, taken: &Range<u32>) -> Option<u32> {
        let stays = |chunk: &&u32| !taken.contains(*chunk);
        self.whole.iter().rev().find(stays).or_else(|| self.punched.iter().find(stays)).copied()
    }
}

/// The first of `run` consecutive chunks among chunks in ascending order.
fn first_run<'a>(chunks: impl Iterator<Item = &'a u32>, run: u32) -> Option<u32> {
    let (mut start, mut len) = (0, 0);
    for &chunk in chunks {
        (start, len) = if len > 0 && chunk == start + len { (start, len + 1) } else { (chunk, 1) };
        if len == run {
            return Some(start);
        }
    }
    None
}
