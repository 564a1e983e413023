//! Allocates and frees blocks. All state is in DRAM, except the map word of a new chunk.

use super::block::{BlobRef, UNIT_BYTES};
use super::chunk::{Chunk, SmallChunk};
use super::class::Extent;
use super::pool::{MOST_WAITING_BYTES, RETIRED_TOGETHER, Stripe};
use super::shared::Shared;
use crate::Result;
use crate::base::group::prefetch::prefetch_write;
use crate::base::reclaim::Reclaim;
use crate::storage::Medium;
use crate::storage::mutex::lock;
use std::sync::atomic::Ordering;

/// The largest number of lines of a block that are prefetched before the block is written. The processor fetches the
/// rest without a hint.
const WRITTEN_LINES: u64 = 16;

/// Space that no longer has an owner, but is not available for reuse yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    /// A block of a class, at a byte offset.
    Block {
        class: usize,
        offset: u64,
    },
    Run {
        start: u32,
        chunks: u32,
    },
}

impl Held {
    const RUN: u64 = 1 << 63;
    const CLASS_SHIFT: u32 = 48;

    /// Returns the word under which the reclaimer knows the space. Offsets are below 2^48 units; there are fewer than
    /// 2^15 classes, and a run has fewer than 2^31 chunks.
    pub(super) fn word(self) -> u64 {
        match self {
            Self::Block { class, offset } => {
                ((class as u64) << Self::CLASS_SHIFT) | (offset / UNIT_BYTES)
            }
            Self::Run { start, chunks } => Self::RUN | u64::from(chunks) << 32 | u64::from(start),
        }
    }

    fn of_word(word: u64) -> Self {
        let rest = word & !Self::RUN;
        if word != rest {
            return Self::Run { start: rest as u32, chunks: (rest >> 32) as u32 };
        }
        let units = rest & ((1 << Self::CLASS_SHIFT) - 1);
        Self::Block { class: (rest >> Self::CLASS_SHIFT) as usize, offset: units * UNIT_BYTES }
    }
}

impl Shared {
    /// Allocates a block for `content` bytes of content, owned by the caller. Returns the byte offset of the block.
    pub(super) fn allocate<M: Medium>(&self, storage: &M, content: usize) -> Result<u64> {
        let extent = self.classes.extent(content);
        let offset = match extent {
            Extent::Small(class) => {
                let stripe = self.pools[class].stripe();
                let found =
                    self.take_spare(class, stripe).or_else(|| self.take_current(class, stripe));
                match found {
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

    /// Takes a spare block of the stripe, if there is one, and prefetches what the thread writes for the next one.
    fn take_spare(&self, class: usize, stripe: &Stripe) -> Option<u64> {
        let size = self.classes.size(class);
        let most = RETIRED_TOGETHER.min(MOST_WAITING_BYTES / size as usize);
        loop {
            let (offset, next) = self.pools[class].take_spare(stripe, most)?;
            if let Some(next) = next {
                let (number, inside) = self.place_of(next);
                self.chunks.prefetch(number, inside / size);
                self.blobs.prefetch(next, u64::from(size), WRITTEN_LINES, prefetch_write);
            }
            let (number, inside) = self.place_of(offset);
            let mut chunk = lock(self.chunks.get(number));
            match small_of(&mut chunk, class) {
                Some(small) if !small.closed => {
                    small.own(inside / size);
                    return Some(offset);
                }
                // The chunk is being emptied.
                _ => {
                    drop(chunk);
                    self.free_block(class, offset);
                }
            }
        }
    }

    /// Makes a block free in its chunk.
    fn free_block(&self, class: usize, offset: u64) {
        let (number, inside) = self.place_of(offset);
        self.after_change(number, |small| small.free(inside / self.classes.size(class)));
    }

    /// Makes the spare blocks of all stripes free in their chunks, so that chunks without owned blocks are given back.
    pub(super) fn free_spares(&self) {
        for (class, pool) in self.pools.iter().enumerate() {
            pool.take_spares().into_iter().for_each(|offset| self.free_block(class, offset));
        }
    }

    /// Takes a free block of the stripe's chunk, if there is one. Takes only the chunk's lock.
    fn take_current(&self, class: usize, stripe: &Stripe) -> Option<u64> {
        // Relaxed: the chunk's own state, read under its lock, decides whether the chunk still serves the class.
        let number = stripe.chunk.load(Ordering::Relaxed).checked_sub(1)?;
        let chunk = self.chunks.get(number);
        let mut chunk = self.pools[class].lock_or_widen(chunk);
        self.take_block(number, small_of(&mut chunk, class)?)
    }

    fn take_block(&self, number: u32, chunk: &mut SmallChunk) -> Option<u64> {
        let block = chunk.take()?;
        Some(self.block_offset(number, chunk.class(), block))
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
        let old = stripe.chunk.load(Ordering::Relaxed);
        stripe.chunk.store(number + 1, Ordering::Relaxed);
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
        self.chunks.set_small(number, small);
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
                let class = small.class();
                let size = self.classes.size(class);
                let block = inside / size;
                if !inside.is_multiple_of(size) || !small.disown(block) {
                    return None;
                }
                self.used_bytes.add(-i64::from(size));
                Some(Held::Block { class, offset: self.block_offset(number, class, block) })
            }
        }
    }

    /// Makes space available for reuse. It has no owner, and no reader can reference it any more.
    pub(super) fn release(&self, held: Held) {
        match held {
            Held::Block { class, offset } => {
                if !self.pools[class].keep_spare(offset) {
                    self.free_block(class, offset);
                }
            }
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
        } else if small.free_count() > 0 && !small.listed && !small.closed {
            small.listed = true;
            let class = small.class();
            drop(chunk);
            lock(&self.pools[class].room).push(number);
        }
    }

    /// Returns the chunk that a reference points into, and the byte in it; `None` outside the region.
    pub(super) fn locate(&self, blob: BlobRef) -> Option<(u32, u32)> {
        let offset = blob.offset().filter(|&offset| offset < self.blobs.len())?;
        let (_, inside) = self.place_of(offset);
        Some((u32::try_from(offset / u64::from(self.params.chunk_bytes)).ok()?, inside))
    }

    /// Returns the chunk that contains a byte of an allocated block, and the byte in it.
    #[inline]
    fn place_of(&self, offset: u64) -> (u32, u32) {
        let chunk_bytes = u64::from(self.params.chunk_bytes);
        let number = offset >> chunk_bytes.trailing_zeros();
        (number as u32, (offset & (chunk_bytes - 1)) as u32)
    }

    pub(super) fn extent_bytes(&self, extent: Extent) -> u64 {
        match extent {
            Extent::Small(class) => u64::from(self.classes.size(class)),
            Extent::Large(chunks) => u64::from(chunks) * u64::from(self.params.chunk_bytes),
        }
    }
}

impl Reclaim for Shared {
    fn reclaim(&self, word: u64) {
        self.release(Held::of_word(word));
    }
}

/// Returns the chunk if it (still) serves `class`.
#[inline]
fn small_of(chunk: &mut Chunk, class: usize) -> Option<&mut SmallChunk> {
    match chunk {
        Chunk::Small(small) if small.class() == class => Some(small),
        _ => None,
    }
}
