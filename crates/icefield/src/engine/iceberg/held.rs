//! The state of a window of writes: the front buckets whose locks it holds, and its operations with their outcomes.

use super::fingerprints::FrontLine;
use super::layout::{Slot, fingerprint};
use crate::engine::slots::table::WriteOutcome;
use crate::storage::Medium;

/// Maximum number of operations that share a fence.
pub(super) const WINDOW: usize = 32;

/// The front buckets whose locks a window holds, and the changes of the operations that ran there. One array for each
/// property, because words that are stored one by one and then moved as a whole would stall the processor on every
/// lock.
pub(super) struct Held<'t> {
    pub(super) count: usize,
    /// The first `count` lines are locked.
    lines: [FrontLine<'t>; WINDOW],
    /// For each line, the slots that the window has claimed.
    pub(super) taken: [u64; WINDOW],
    /// The number of operations at the start of the window whose locks were taken before any of them ran. Their lines
    /// are the first ones, in order.
    pub(super) ahead: usize,
    /// The hashes of these operations.
    hashes: [u64; WINDOW],
    /// For each of them, the slot that it has changed in the front yard, if it was executed there.
    changed: [Option<&'t Slot>; WINDOW],
    /// For each of them, the number of that slot if it was empty, or `NO_SLOT`.
    filled: [u8; WINDOW],
    marks: Marks,
}

const NO_SLOT: u8 = u8::MAX;

impl<'t> Held<'t> {
    /// Creates an empty set; `any` is any line.
    pub(super) fn new(any: FrontLine<'t>) -> Self {
        Self {
            count: 0,
            lines: [any; WINDOW],
            taken: [0; WINDOW],
            ahead: 0,
            hashes: [0; WINDOW],
            changed: [None; WINDOW],
            filled: [NO_SLOT; WINDOW],
            marks: Marks::default(),
        }
    }

    /// Adds a bucket whose lock has been taken, and returns its index.
    #[inline(always)]
    pub(super) fn add(&mut self, line: FrontLine<'t>) -> usize {
        let place = self.count;
        self.lines[place] = line;
        self.count += 1;
        place
    }

    /// Adds a bucket whose lock has been taken before the window begins, for an operation with this hash.
    #[inline(always)]
    pub(super) fn add_ahead(&mut self, bucket: u64, line: FrontLine<'t>, hash: u64) {
        self.marks.mark(bucket);
        let place = self.add(line);
        self.hashes[place] = hash;
        self.ahead = self.count;
    }

    #[inline(always)]
    pub(super) fn line(&self, place: usize) -> FrontLine<'t> {
        self.lines[place]
    }

    /// Marks a bucket as held. Returns `false` if it was certainly not held before.
    #[inline]
    pub(super) fn mark(&mut self, bucket: u64) -> bool {
        self.marks.mark(bucket)
    }

    /// Returns the index of a bucket.
    #[inline]
    pub(super) fn position(&self, line: FrontLine<'_>) -> Option<usize> {
        self.lines[..self.count].iter().position(|held| std::ptr::eq(held.0, line.0))
    }

    /// Returns whether one of the operations whose locks were taken before the window began has this hash.
    pub(super) fn has_ahead(&self, hash: u64) -> bool {
        self.hashes[..self.ahead].contains(&hash)
    }

    /// Notes that an operation has replaced the value in a slot of the front yard.
    #[inline(always)]
    pub(super) fn note_change(&mut self, place: usize, slot: &'t Slot) {
        self.changed[place] = Some(slot);
    }

    /// Notes that an operation has filled a slot of the front yard.
    #[inline(always)]
    pub(super) fn note_filled(&mut self, place: usize, number: u32, slot: &'t Slot) {
        self.changed[place] = Some(slot);
        self.filled[place] = number as u8;
        self.taken[place] |= 1 << number;
    }

    /// Flushes the slots that were changed.
    #[inline]
    pub(super) fn flush(&self, storage: &impl Medium) {
        for slot in self.changed[..self.ahead].iter().flatten() {
            storage.flush_object(*slot);
        }
    }

    /// Publishes the records in the slots that were filled, which are durable, and returns their number.
    #[inline]
    pub(super) fn publish(&self) -> i64 {
        let mut count = 0;
        for place in 0..self.ahead.min(WINDOW) {
            let slot = self.filled[place];
            if slot != NO_SLOT {
                self.lines[place].publish(u32::from(slot), fingerprint(self.hashes[place]));
                count += 1;
            }
        }
        count
    }

    /// Releases all locks, and forgets everything.
    #[inline]
    pub(super) fn release_all(&mut self) {
        self.lines[..self.count].iter().for_each(|line| line.unlock());
        (self.count, self.ahead, self.marks) = (0, 0, Marks::default());
        (self.taken, self.changed) = ([0; WINDOW], [None; WINDOW]);
        self.filled = [NO_SLOT; WINDOW];
    }
}

/// A small hash set of the buckets that a window may hold. A bucket that is not in it need not be searched.
#[derive(Clone, Copy, Default)]
struct Marks([u64; 4]);

impl Marks {
    /// Marks a bucket; returns whether it was already marked.
    #[inline]
    fn mark(&mut self, bucket: u64) -> bool {
        let (word, bit) = (&mut self.0[bucket as usize / 64 % 4], 1 << (bucket % 64));
        let was = *word & bit != 0;
        *word |= bit;
        was
    }
}

/// The operations of a window: their indexes in the batch and their outcomes, which are valid once the window is
/// committed.
pub(super) struct Outcomes {
    count: usize,
    indexes: [usize; WINDOW],
    outcomes: [WriteOutcome; WINDOW],
}

impl Outcomes {
    pub(super) fn new() -> Self {
        Self { count: 0, indexes: [0; WINDOW], outcomes: [WriteOutcome::Absent; WINDOW] }
    }

    #[inline(always)]
    pub(super) fn add(&mut self, index: usize, outcome: WriteOutcome) {
        (self.indexes[self.count], self.outcomes[self.count]) = (index, outcome);
        self.count += 1;
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count == WINDOW
    }

    /// Returns the index and the outcome of the last operation.
    pub(super) fn last(&self) -> Option<(usize, WriteOutcome)> {
        let last = self.count.checked_sub(1)?;
        Some((self.indexes[last], self.outcomes[last]))
    }

    /// Removes all operations and returns them in order.
    #[inline]
    pub(super) fn take(&mut self) -> impl Iterator<Item = (usize, WriteOutcome)> {
        let count = std::mem::take(&mut self.count).min(WINDOW);
        self.indexes[..count].iter().copied().zip(self.outcomes[..count].iter().copied())
    }
}
