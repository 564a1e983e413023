//! Allocates and frees blocks. All state is in DRAM, except the map word of a new chunk.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, TryLockError};

use super::block::BlobRef;
use super::chunk::{Chunk, SmallChunk};
use super::class::Extent;
use super::pool::Stripe;
use super::shared::Shared;
use crate::Result;
use crate::storage::Medium;
use crate::storage::mutex::lock;

/// Space that no longer has an owner, but is not available for reuse yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    Block { chunk: u32, block: u32 },
    Run { start: u32, chunks: u32 },
}

impl Shared {
    /// Allocates a block for `content` bytes of content, owned by the caller. Returns the byte offset of the block.
    pub(super) fn allocate<M: Medium>(&self, storage: &M, content: usize) -> Result<u64> {
        let extent = self.classes.extent(content);
        let offset = match extent {
            Extent::Small(class) => {
                let stripe = self.pools[class].stripe();
                match self.take_current(class, stripe) {
                    Some(offset) => offset,
                    None => self.refill(storage, class, stripe)?,
                }
            }
            Extent::Large(chunks) => {
                let start = self.take_chunks(storage, chunks, extent)?;
                *lock(self.chunks.get(start)) = Chunk::Large { chunks, owned: true };
                u64::from(start) * u64::from(self.params.chunk_bytes)
            }
        };
        self.used_bytes.add(self.extent_bytes(extent) as i64);
        Ok(offset)
    }

    /// Takes a free block of the stripe's chunk, if there is one. This is the usual path; it takes only the chunk's
    /// lock.
    fn take_current(&self, class: usize, stripe: &Stripe) -> Option<u64> {
        // Relaxed: the chunk's own state, read under its lock, decides whether the chunk still serves the class.
        let number = stripe.0.load(Ordering::Relaxed).checked_sub(1)?;
        let chunk = self.chunks.get(number);
        let mut chunk = match chunk.try_lock() {
            Ok(chunk) => chunk,
            Err(TryLockError::Poisoned(chunk)) => chunk.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.pools[class].widen();
                chunk.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        self.take_block(number, small_of(&mut chunk, class)?)
    }

    fn take_block(&self, number: u32, chunk: &mut SmallChunk) -> Option<u64> {
        let block = chunk.take()?;
        Some(self.block_offset(number, chunk.class, block))
    }

    /// Takes a block of a chunk, if the chunk serves the class and has a free one.
    pub(super) fn take_of(&self, number: u32, class: usize) -> Option<u64> {
        let mut chunk = lock(self.chunks.get(number));
        self.take_block(number, small_of(&mut chunk, class)?)
    }

    /// Returns the byte at which a block of a chunk begins.
    pub(super) fn block_offset(&self, number: u32, class: usize, block: u32) -> u64 {
        let start = u64::from(number) * u64::from(self.params.chunk_bytes);
        start + u64::from(block) * u64::from(self.classes.size(class))
    }

    /// Assigns a chunk with room to the stripe; returns the byte offset of a block of this chunk, for the caller.
    #[cold]
    fn refill<M: Medium>(&self, storage: &M, class: usize, stripe: &Stripe) -> Result<u64> {
        let pool = &self.pools[class];
        let _refilling = lock(&pool.refill);
        if let Some(offset) = self.take_current(class, stripe) {
            return Ok(offset);
        }
        let (number, offset) = match self.take_listed(class) {
            Some(found) => found,
            None => self.take_new(storage, class)?,
        };
        // Relaxed: the chunk's lock orders the chunk's state, and the lock `refill` excludes other writers.
        let old = stripe.0.load(Ordering::Relaxed);
        stripe.0.store(number + 1, Ordering::Relaxed);
        if let Some(old) = old.checked_sub(1) {
            self.after_change(old, |chunk| chunk.users -= 1);
        }
        pool.grow_hungry();
        Ok(offset)
    }

    /// Takes a block of a listed chunk. Drops list entries that are out of date.
    fn take_listed(&self, class: usize) -> Option<(u32, u64)> {
        loop {
            let number = lock(&self.pools[class].room).pop()?;
            let mut chunk = lock(self.chunks.get(number));
            if let Some(small) = small_of(&mut chunk, class) {
                small.listed = false;
                if let Some(offset) = self.take_block(number, small) {
                    small.users += 1;
                    return Some((number, offset));
                }
            }
        }
    }

    /// Takes a new chunk for the class, and returns its first block.
    fn take_new<M: Medium>(&self, storage: &M, class: usize) -> Result<(u32, u64)> {
        let number = self.take_chunks(storage, 1, Extent::Small(class))?;
        // P1: the chunk's map word is durable before other threads take blocks of the chunk: their fences do not cover
        // this thread's flushes.
        storage.fence();
        storage.check_writable()?;
        let mut small = SmallChunk::vacant(class, self.classes.blocks(class));
        small.users = 1;
        let offset = self.take_block(number, &mut small).unwrap_or_default();
        *lock(self.chunks.get(number)) = Chunk::Small(Box::new(small));
        Ok((number, offset))
    }

    /// Takes a block from its owner. Returns `None` when the store has no owner on record: the block is unexamined or
    /// already retired, or the reference names no block.
    pub(super) fn disown(&self, blob: BlobRef) -> Option<Held> {
        let (number, inside) = self.locate(blob)?;
        let mut chunk = lock(self.chunks.peek(number)?);
        match &mut *chunk {
            Chunk::Unscanned | Chunk::Vacant => None,
            Chunk::Large { chunks, owned } => {
                if inside != 0 || !std::mem::take(owned) {
                    return None;
                }
                self.used_bytes.add(-(self.extent_bytes(Extent::Large(*chunks)) as i64));
                Some(Held::Run { start: number, chunks: *chunks })
            }
            Chunk::Small(small) => {
                let size = self.classes.size(small.class);
                let block = inside / size;
                if !inside.is_multiple_of(size) || !small.owned.remove(block) {
                    return None;
                }
                self.used_bytes.add(-i64::from(size));
                Some(Held::Block { chunk: number, block })
            }
        }
    }

    /// Makes space available for reuse. It has no owner, and no reader can reference it any more.
    pub(super) fn release(&self, held: Held) {
        match held {
            Held::Block { chunk, block } => self.after_change(chunk, |small| {
                let new = small.free.insert(block);
                debug_assert!(new, "a block is released once");
            }),
            Held::Run { start, chunks } => {
                *lock(self.chunks.get(start)) = Chunk::Vacant;
                self.ripen(start, chunks);
            }
        }
    }

    /// Changes a small chunk and then acts on its new state: lists it when it has room and is neither listed nor used
    /// by a stripe, or gives it back when all its blocks are free.
    pub(super) fn after_change(&self, number: u32, change: impl FnOnce(&mut SmallChunk)) {
        let mut chunk = lock(self.chunks.get(number));
        let Chunk::Small(small) = &mut *chunk else { return };
        change(small);
        if small.users > 0 {
            return;
        }
        if small.is_vacant() {
            *chunk = Chunk::Vacant;
            drop(chunk);
            self.ripen(number, 1);
        } else if small.free.len() > 0 && !small.listed && !small.closed {
            small.listed = true;
            let class = small.class;
            drop(chunk);
            lock(&self.pools[class].room).push(number);
        }
    }

    /// Returns the chunk that a reference points into, and the byte in it; `None` outside the region.
    pub(super) fn locate(&self, blob: BlobRef) -> Option<(u32, u32)> {
        let offset = blob.offset().filter(|&offset| offset < self.blobs.len())?;
        let chunk_bytes = u64::from(self.params.chunk_bytes);
        Some((u32::try_from(offset / chunk_bytes).ok()?, (offset % chunk_bytes) as u32))
    }

    pub(super) fn extent_bytes(&self, extent: Extent) -> u64 {
        match extent {
            Extent::Small(class) => u64::from(self.classes.size(class)),
            Extent::Large(chunks) => u64::from(chunks) * u64::from(self.params.chunk_bytes),
        }
    }
}

/// Returns the closure that the reclaimer runs for a retired blob.
pub(super) fn release_later(shared: &Arc<Shared>, held: Held) -> impl FnOnce() + Send + 'static {
    let shared = Arc::clone(shared);
    move || shared.release(held)
}

/// Returns the chunk if it (still) serves `class`.
#[inline]
fn small_of(chunk: &mut Chunk, class: usize) -> Option<&mut SmallChunk> {
    match chunk {
        Chunk::Small(small) if small.class == class => Some(small),
        _ => None,
    }
}
