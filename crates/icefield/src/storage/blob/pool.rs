//! The allocation state of a class: the chunks that threads allocate from, and those with room.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::base::thread;
use crate::storage::mutex::lock;

/// The largest number of chunks from which contending threads allocate blocks of one class at the same time.
const MAX_STRIPES: usize = 8;

/// The chunk that some threads allocate from: its number plus one, 0 for none.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Stripe(pub(super) AtomicU32);

/// The allocation state of one class.
#[derive(Default)]
pub(super) struct Pool {
    stripes: [Stripe; MAX_STRIPES],
    /// The number of stripes in use, less one. Grows on contention, so that a small store keeps few chunks open.
    contended: AtomicUsize,
    /// Chunks that had room when they were listed. These are hints: only a chunk's state, read under its lock, is
    /// exact.
    pub(super) room: Mutex<Vec<u32>>,
    /// Held by the thread that fetches a chunk for a stripe.
    pub(super) refill: Mutex<()>,
    /// The number of unscanned chunks of the class that the hunt should search for room.
    appetite: AtomicU32,
    /// Set when the hunt has passed all chunks.
    hunted_out: AtomicBool,
}

/// The number of chunks of the class that the hunt searches whenever the known ones run out of room.
const HUNT_CHUNKS: u32 = 8;

impl Pool {
    /// Returns a pool that requests a hunt for chunks of former sessions that have room.
    pub fn hungry() -> Self {
        Self { appetite: AtomicU32::new(HUNT_CHUNKS), ..Self::default() }
    }

    /// Returns the number of chunks to search.
    #[inline]
    pub fn appetite(&self) -> u32 {
        // Relaxed, here and below: a hint. The chunks themselves are accessed under locks.
        self.appetite.load(Ordering::Relaxed)
    }

    /// Sets the number of chunks to search.
    pub fn set_appetite(&self, appetite: u32) {
        self.appetite.store(appetite, Ordering::Relaxed);
    }

    /// Ends the hunt: no unscanned chunk of the class is left.
    pub fn end_hunt(&self) {
        self.hunted_out.store(true, Ordering::Relaxed);
        self.set_appetite(0);
    }

    /// Returns whether some listed chunk may have room. Chunks that stripes allocate from are not listed.
    pub fn has_room(&self) -> bool {
        !lock(&self.room).is_empty()
    }

    pub fn grow_hungry(&self) {
        if !self.hunted_out.load(Ordering::Relaxed) && !self.has_room() {
            self.set_appetite(HUNT_CHUNKS);
        }
    }

    /// Detaches a chunk from all stripes that allocate from it, and returns their number.
    pub fn detach(&self, number: u32) -> u32 {
        let _refilling = lock(&self.refill);
        // Relaxed, both: `refill` excludes other writers, and the chunk's lock orders the accesses to its blocks.
        let theirs =
            self.stripes.iter().filter(|stripe| stripe.0.load(Ordering::Relaxed) == number + 1);
        theirs.map(|stripe| stripe.0.store(0, Ordering::Relaxed)).count() as u32
    }

    pub fn stripe(&self) -> &Stripe {
        // Relaxed: any stripe will do.
        let stripes = self.contended.load(Ordering::Relaxed) + 1;
        &self.stripes[thread::number() % stripes.min(MAX_STRIPES)]
    }

    pub fn widen(&self) {
        // Relaxed, and an increment may be lost: the value only affects speed.
        let contended = self.contended.load(Ordering::Relaxed);
        self.contended.store((contended + 1).min(MAX_STRIPES - 1), Ordering::Relaxed);
    }
}
