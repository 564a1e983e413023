//! A walk over the records of an index that no other thread changes, with memory for one bin.

use std::ops::Range;

use super::get::Picture;
use super::header::BinState;
use super::index::Index;

/// The state of a walk over a range of bins. All of them are frozen, or the caller has exclusive access to the table.
#[derive(Debug)]
pub(super) struct Walk {
    bins: Range<u64>,
    moved: bool,
    picture: Picture,
    /// The position of the next record in `picture`.
    at: usize,
}

impl Walk {
    /// Begins a walk over the records that have not moved to the next index.
    pub(super) fn of(bins: Range<u64>) -> Self {
        Self { bins, moved: false, picture: Picture::default(), at: 0 }
    }

    /// Begins a walk over all records that the index had before they were moved.
    pub(super) fn before_move(index: &Index) -> Self {
        Self { moved: true, ..Self::of(0..index.len()) }
    }

    /// Returns the words of the next record. `index` is the same in each call.
    pub(super) fn next(&mut self, index: &Index) -> Option<(u64, u64)> {
        loop {
            if let Some(&record) = self.picture.records().get(self.at) {
                self.at += 1;
                return Some(record);
            }
            let (bin, picture) = next_bin(index, self.bins.clone(), self.moved)?;
            (self.picture, self.at, self.bins.start) = (picture, 0, bin + 1);
        }
    }
}

/// Returns the first bin in `bins` that has records, and its records. Skips records that have moved to the next index,
/// unless `moved`. The conditions are those of a [`Walk`].
pub(super) fn next_bin(index: &Index, bins: Range<u64>, moved: bool) -> Option<(u64, Picture)> {
    let mut bin = bins.start;
    while bin < bins.end {
        if let Some(next) = index.untouched_until(bin) {
            bin = next;
            continue;
        }
        let line = index.bin(bin);
        let header = Index::header(line);
        if header.valid() != 0 && (moved || header.state() != BinState::DoneTransfer) {
            return Some((bin, index.read_all(line, header)));
        }
        bin += 1;
    }
    None
}
