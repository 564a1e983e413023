//! The progress of a doubling: for each bucket of the lower half, whether its records that belong in the upper half
//! have been moved there.

use std::io;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU64};

use crate::base::memory::GrowingArray;

/// Some records of the bucket may belong in the upper half.
pub(super) const UNMOVED: u8 = 0;
/// A thread is moving the bucket's records that belong in the upper half.
pub(super) const IN_FLIGHT: u8 = 1;
/// The records that belong in the upper half have been moved.
pub(super) const MOVED: u8 = 2;

/// The progress of a doubling.
pub(super) struct Moves {
    /// The state of each bucket of the lower half, for the front yard and the back yard.
    pub(super) states: [GrowingArray<AtomicU8>; 2],
    /// Number of buckets of both yards that are not MOVED yet.
    pub(super) left: AtomicU64,
    /// The next bucket that a write moves in addition to the buckets of its key.
    pub(super) next: AtomicU64,
    /// In a session that only reads: number of records that an interrupted step left in two places. `len` counts each
    /// once.
    pub(super) twice: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Yard {
    Front = 0,
    Back = 1,
}

impl Moves {
    /// Creates the states for doublings up to `buckets` buckets.
    pub(super) fn new(buckets: u64) -> io::Result<Self> {
        let states = || GrowingArray::new(buckets as usize / 2);
        Ok(Self {
            states: [states()?, states()?],
            left: AtomicU64::new(0),
            next: AtomicU64::new(0),
            twice: AtomicU64::new(0),
        })
    }

    /// Makes room for a doubling to `buckets` buckets.
    pub(super) fn reach(&self, buckets: usize) -> io::Result<()> {
        self.states.iter().try_for_each(|states| states.extend(buckets / 2))
    }

    /// Sets all buckets of a lower half to UNMOVED, before other threads can see the doubling.
    pub(super) fn start(&self, half: u64) {
        for states in &self.states {
            states[..half as usize].iter().for_each(|state| state.store(UNMOVED, Relaxed));
        }
        self.left.store(2 * half, Relaxed);
        // All stores here are Relaxed: the Release store of the shape word that follows publishes them (E4). When
        // recovery calls this, only the caller can access the table.
        self.next.store(0, Relaxed);
    }
}

/// Sets a bucket back to UNMOVED if its move fails.
pub(super) struct InFlight<'a>(pub(super) &'a AtomicU8);

impl InFlight<'_> {
    pub(super) fn moved(self) {
        // Release (E5): a thread that sees MOVED sees the records at their new places.
        self.0.store(MOVED, Release);
        std::mem::forget(self);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        // Release (E5), as for MOVED: the next thread that takes the bucket sees what has been done so far.
        self.0.store(UNMOVED, Release);
    }
}
