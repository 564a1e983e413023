//! Read-only sessions: segments are read without recovery.
//!
//! Such a session maps the files privately: a store to a page makes the page memory of this process, which the kernel
//! cannot drop. Normal recovery (`recover`) would store locks and overflow metadata to every page. A read-only
//! session has no writers, so readers need no locks. One bit per home bucket, in DRAM, replaces the overflow metadata:
//! a search continues in the stash only if the stash has a record of the same home. Due splits (LH) are not performed:
//! the records stay in the source. A segment in which a crash interrupted a change is recovered as in other sessions
//! before any reader uses it; a crash leaves at most one such segment per thread.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::layout::Geometry;
use crate::base::memory::ZeroedArray;

/// The data about segments that a read-only session keeps in DRAM.
pub(super) struct Still {
    /// A bit per home bucket: set if the stash or the chain holds a record of it.
    overflowed: ZeroedArray<AtomicU64>,
    /// Number of words per segment.
    words: usize,
}

impl Still {
    pub(super) fn new(segments: usize, geometry: Geometry) -> io::Result<Self> {
        let words = (geometry.buckets as usize).div_ceil(64);
        Ok(Self { overflowed: ZeroedArray::new(segments * words)?, words })
    }

    fn word(&self, segment: u32, home: usize) -> Option<&AtomicU64> {
        self.overflowed.get(segment as usize * self.words + home / 64)
    }

    /// Returns whether the stash or the chain may hold a record of a home bucket.
    pub(super) fn overflows(&self, segment: u32, home: usize) -> bool {
        // Relaxed: the mark of the segment publishes the bits (E5).
        self.word(segment, home).is_none_or(|word| word.load(Relaxed) >> (home % 64) & 1 == 1)
    }

    pub(super) fn note(&self, segment: u32, home: usize) {
        if let Some(word) = self.word(segment, home) {
            // Relaxed: as above.
            word.fetch_or(1 << (home % 64), Relaxed);
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.overflowed) as u64
    }
}
