//! Lines of simulated regions, and the log entries of their pending stores.

use crate::storage::arch::LINE_BYTES;

/// The index that marks a missing entry.
pub(super) const NONE: u32 = u32::MAX;

/// A cache line of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineId {
    pub(super) region: u8,
    pub(super) line: u32,
}

impl LineId {
    pub(super) fn offset(self) -> usize {
        self.line as usize * LINE_BYTES
    }
}

/// The order of a store relative to the earlier ones to its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreKind {
    /// No order: the compiler may swap the store with its neighbours.
    Relaxed,
    /// Release or stronger: the store comes after every earlier atomic store to the line.
    Release,
    /// Part of a bulk write: unordered until it is persisted.
    Bulk,
}

/// One store that is not certainly persistent yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) value: u64,
    /// Global number of the store.
    pub(super) seq: u64,
    /// The next entry of the line, in program order.
    pub(super) next: u32,
    pub(super) thread: u16,
    /// Byte offset in the line.
    pub(super) offset: u8,
    /// The number of bytes: 1 to 8, inside one aligned 8-byte word.
    pub(super) bytes: u8,
    pub(super) kind: StoreKind,
    /// Stored by `store_copy`: other threads may rely on it before it is durable.
    pub(super) is_copy: bool,
}

impl Entry {
    /// Applies the store to a copy of the line.
    pub(super) fn apply(&self, line: &mut [u8]) {
        let (at, bytes) = (usize::from(self.offset), usize::from(self.bytes));
        line[at..at + bytes].copy_from_slice(&self.value.to_le_bytes()[..bytes]);
    }

    /// Returns the index, among the line's eight words, of the word that the store changes.
    pub(super) fn word(&self) -> usize {
        usize::from(self.offset) / 8
    }

    pub(super) fn overlaps(&self, offset: usize, bytes: usize) -> bool {
        let at = usize::from(self.offset);
        at < offset + bytes && offset < at + usize::from(self.bytes)
    }
}

/// The pending stores of one line, and the cost counter's marks.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) first: u32,
    pub(super) last: u32,
    /// The index of the line in `State::dirty`, if it has entries.
    pub(super) dirty_at: u32,
    pub(super) count: u16,
    /// Written since the last write-back.
    pub(super) unflushed: bool,
    /// The last operations that read and wrote the line.
    pub(super) read_op: u32,
    pub(super) write_op: u32,
}

impl Line {
    pub(super) const CLEAN: Self = Self {
        first: NONE,
        last: NONE,
        dirty_at: NONE,
        count: 0,
        unflushed: false,
        read_op: 0,
        write_op: 0,
    };
}
