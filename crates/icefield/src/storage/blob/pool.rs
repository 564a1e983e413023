//! The allocation state of a class: the chunks that threads allocate from, and those with room.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::base::thread;
use crate::storage::mutex::lock;

/// The largest number of chunks from which contending threads allocate blocks of one class at the same time.
const MAX_STRIPES: usize = 8;

/// The number of retired blobs that share a barrier of the reclaimer. A barrier interrupts all processors that run the
/// process.
pub const RETIRED_TOGETHER: usize = 256;

/// The most bytes of retired blobs that wait with a thread, and of spare blocks that a stripe keeps.
pub(super) const MOST_WAITING_BYTES: usize = 2 << 20;

/// The blocks and the chunk that some threads allocate from. It fills two lines, because processors prefetch lines in
/// pairs.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Stripe {
    spares: Mutex<Spares>,
    /// The number of a chunk plus one, 0 for none.
    pub(super) chunk: AtomicU32,
}

/// Blocks that have become free and that the stripe hands out again (see "Spare blocks" in the description of the store).
#[derive(Default)]
pub(super) struct Spares {
    /// The byte offsets of the blocks. They are neither owned nor free in the state of their chunks.
    blocks: Vec<u64>,
    /// The number of further blocks that the stripe keeps: it has been asked for as many since.
    wanted: usize,
}

impl Spares {
    /// Keeps a block, if the stripe has been asked for enough to need it soon.
    fn keep(&mut self, block: u64) -> bool {
        let keeps = self.wanted > 0;
        if keeps {
            self.wanted -= 1;
            self.blocks.push(block);
        }
        keeps
    }

    /// Takes a block; also returns the one that is next. The stripe keeps at most `most`.
    fn take(&mut self, most: usize) -> Option<(u64, Option<u64>)> {
        if self.wanted + self.blocks.len() < most {
            self.wanted += 1;
        }
        Some((self.blocks.pop()?, self.blocks.last().copied()))
    }
}

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
    pub fn detach(&self, number: u32) -> u16 {
        let _refilling = lock(&self.refill);
        // Relaxed, both: `refill` excludes other writers, and the chunk's lock orders the accesses to its blocks.
        let theirs =
            self.stripes.iter().filter(|stripe| stripe.chunk.load(Ordering::Relaxed) == number + 1);
        theirs.map(|stripe| stripe.chunk.store(0, Ordering::Relaxed)).count() as u16
    }

    pub fn stripe(&self) -> &Stripe {
        // Relaxed: any stripe will do.
        let stripes = self.contended.load(Ordering::Relaxed) + 1;
        &self.stripes[thread::number() % stripes.min(MAX_STRIPES)]
    }

    /// Takes a spare block of a stripe, which keeps at most `most`; also returns the one that is next.
    pub fn take_spare(&self, stripe: &Stripe, most: usize) -> Option<(u64, Option<u64>)> {
        self.lock_or_widen(&stripe.spares).take(most)
    }

    /// Gives a free block to this thread's stripe, if that needs it soon.
    pub fn keep_spare(&self, block: u64) -> bool {
        lock(&self.stripe().spares).keep(block)
    }

    /// Removes and returns the spare blocks of all stripes.
    pub fn take_spares(&self) -> Vec<u64> {
        self.stripes
            .iter()
            .flat_map(|stripe| std::mem::take(&mut *lock(&stripe.spares)).blocks)
            .collect()
    }

    /// Locks what a stripe allocates from. If another thread holds the lock, uses one stripe more from now on.
    pub fn lock_or_widen<'a, T>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        match mutex.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.widen();
                lock(mutex)
            }
        }
    }

    fn widen(&self) {
        // Relaxed, and an increment may be lost: the value only affects speed.
        let contended = self.contended.load(Ordering::Relaxed);
        self.contended.store((contended + 1).min(MAX_STRIPES - 1), Ordering::Relaxed);
    }
}
