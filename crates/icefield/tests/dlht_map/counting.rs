//! An allocator that counts its allocations and can refuse them.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use icefield::{AllocError, Allocator, Global};

/// The global allocator with a count of its allocations. It can refuse some of them.
#[derive(Clone, Default)]
pub struct Counting(Arc<Counts>);

#[derive(Default)]
pub struct Counts {
    bytes: AtomicI64,
    blocks: AtomicI64,
    asked: AtomicU64,
    /// Every allocation whose number is a multiple of `refuse_every` is refused; none if it is 0.
    refuse_every: AtomicU64,
}

impl Counting {
    pub fn refusing(every: u64) -> Self {
        let counting = Self::default();
        counting.0.refuse_every.store(every, Ordering::Relaxed);
        counting
    }

    /// Returns the bytes and blocks that are allocated.
    pub fn held(&self) -> (i64, i64) {
        (self.0.bytes.load(Ordering::Relaxed), self.0.blocks.load(Ordering::Relaxed))
    }

    pub fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::Relaxed)
    }
}

// SAFETY: all blocks come from the global allocator, so each clone can free the blocks of the others.
unsafe impl Allocator for Counting {
    fn allocate(&self, layout: std::alloc::Layout) -> Result<NonNull<[u8]>, AllocError> {
        let asked = self.0.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let every = self.0.refuse_every.load(Ordering::Relaxed);
        if every != 0 && asked.is_multiple_of(every) {
            return Err(AllocError);
        }
        let block = Global.allocate(layout)?;
        self.0.bytes.fetch_add(layout.size() as i64, Ordering::Relaxed);
        self.0.blocks.fetch_add(1, Ordering::Relaxed);
        Ok(block)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: std::alloc::Layout) {
        self.0.bytes.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        self.0.blocks.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the caller guarantees what `deallocate` requires.
        unsafe { Global.deallocate(block, layout) };
    }
}
