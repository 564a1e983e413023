//! The unused chunks (the free runs, and the tail that was never used), and access to the words of the map.

use std::collections::{BTreeMap, BTreeSet};

use super::params::BlobParams;
use crate::storage::cell::Cell64;
use crate::storage::region::Region;

/// The largest number of chunks by which the region grows at once, unless one blob or `growth_chunks` requires more. It
/// also bounds the walk of `open`.
pub(super) const MAX_GROWTH_CHUNKS: u32 = 4096;
/// Bytes of the map per chunk.
pub(super) const WORD_BYTES: u64 = size_of::<Cell64>() as u64;
/// For each fresh chunk taken, this many unscanned ones become due for a scan.
pub(super) const SCAN_PER_CHUNK: u32 = 8;

/// Free chunks as maximal runs.
#[derive(Debug, Default)]
pub(super) struct FreeRuns {
    by_start: BTreeMap<u32, u32>,
    by_length: BTreeSet<(u32, u32)>,
    chunks: u32,
}

impl FreeRuns {
    /// Adds a run and joins it with its neighbours. Returns `false` and changes nothing when a part of the run is
    /// already free.
    pub fn put(&mut self, start: u32, length: u32) -> bool {
        let (mut first, mut end) = (start, start + length);
        let before =
            self.by_start.range(..end).next_back().map(|(&start, &length)| (start, length));
        if let Some((near, near_length)) = before {
            if near + near_length > start {
                return false;
            }
            if near + near_length == start {
                self.forget(near, near_length);
                first = near;
            }
        }
        if let Some(&after) = self.by_start.get(&end) {
            self.forget(end, after);
            end += after;
        }
        self.note(first, end - first);
        true
    }

    /// Takes `length` chunks from the shortest run that is long enough.
    pub fn take(&mut self, length: u32) -> Option<u32> {
        let &(run_length, start) = self.by_length.range((length, 0)..).next()?;
        self.forget(start, run_length);
        if run_length > length {
            self.note(start + length, run_length - length);
        }
        Some(start)
    }

    /// Returns the number of free chunks.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Returns all runs, with their lengths.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.by_start.iter().map(|(&start, &length)| (start, length))
    }

    /// Returns the length of the longest run.
    pub fn longest(&self) -> u32 {
        self.by_length.last().map_or(0, |&(length, _)| length)
    }

    /// Returns whether a free run overlaps the chunks.
    pub fn overlaps(&self, start: u32, length: u32) -> bool {
        self.by_start
            // A damaged map may claim any length.
            .range(..start.saturating_add(length))
            .next_back()
            .is_some_and(|(&near, &near_length)| near + near_length > start)
    }

    fn note(&mut self, start: u32, length: u32) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
        self.chunks += length;
    }

    fn forget(&mut self, start: u32, length: u32) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
        self.chunks -= length;
    }
}

/// The unused chunks.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// The chunks found free by the scan, and those given back since. Their words are durably FREE.
    pub runs: FreeRuns,
    /// Chunks from here to `end` were never used.
    pub fresh: u32,
    /// The number of chunks that the regions have room for.
    pub end: u32,
}

/// The word of chunk `number`; `None` beyond the end of the map.
pub(super) fn map_word(map: &Region, number: u32) -> Option<&Cell64> {
    map.at(u64::from(number) * WORD_BYTES)
}

/// The number of chunks that both regions have room for.
pub(super) fn chunks_in(params: &BlobParams, blobs: &Region, map: &Region) -> u32 {
    let chunks = (blobs.len() / u64::from(params.chunk_bytes)).min(map.len() / WORD_BYTES);
    u32::try_from(chunks).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_runs_join_and_split() {
        let mut runs = FreeRuns::default();
        assert!(runs.put(10, 5) && runs.put(20, 2) && runs.put(15, 5));
        assert_eq!(runs.by_start, BTreeMap::from([(10, 12)]));
        assert!(!runs.put(21, 1) && !runs.put(5, 6) && !runs.put(12, 1), "given back twice");
        assert!(runs.overlaps(21, 1) && !runs.overlaps(22, 9) && !runs.overlaps(0, 10));
        assert_eq!((runs.take(13), runs.take(3), runs.chunks()), (None, Some(10), 9));
        assert!(runs.put(30, 3));
        assert_eq!(runs.take(3), Some(30), "the shortest that fits");
        assert_eq!((runs.take(9), runs.take(1)), (Some(13), None));
    }
}
