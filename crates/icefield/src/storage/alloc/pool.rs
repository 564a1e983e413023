//! Files of equal blocks.

use std::sync::atomic::Ordering::{Acquire, Release};

use super::{Allocator, Blocks, Claim, Words, reserve_blocks};
use crate::Result;
use crate::storage::cell::Overlay;
use crate::storage::{Cell64, Medium, Region};

/// The most blocks that an allocator hands out at once.
const MAX_CLAIMED: u64 = 32;
/// Bytes that are reserved ahead of the used part of a file with holes.
const RESERVED_AHEAD: u64 = 256 << 10;

/// A file of blocks and its allocator.
pub(crate) struct Pool {
    region: Region,
    allocator: Allocator,
    /// Bytes of a block.
    bytes: u64,
    /// Offset of the word in a free block that links to the next one.
    link: u64,
}

impl Pool {
    /// Returns a file of blocks of `bytes` bytes. The word at offset `link` of a free block links it to the next one.
    /// `set` is the index of the valid set of the allocator's words.
    pub(crate) fn new(region: Region, set: usize, bytes: u64, link: u64) -> Self {
        Self { region, allocator: Allocator::new(set), bytes, link }
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// Returns a block.
    #[inline]
    pub(crate) fn at<T: Overlay>(&self, storage: &impl Medium, block: u32) -> Result<&T> {
        self.region.get(storage, u64::from(block) * self.bytes, "the block")
    }

    /// Returns the size of a block.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of blocks that the file has room for.
    pub(crate) fn room(&self) -> u64 {
        self.region.len() / self.bytes
    }

    /// Returns the number of blocks that the allocator has handed out.
    pub(crate) fn used(&self, storage: &impl Medium, words: &Words) -> u64 {
        self.allocator.used(storage, words)
    }

    /// Returns the size of the part of the file that the allocator has handed out.
    pub(crate) fn used_bytes(&self, storage: &impl Medium, words: &Words) -> u64 {
        self.used(storage, words) * self.bytes
    }

    /// Returns an error if the file is shorter than the part that the allocator has handed out: later code relies on
    /// its length.
    pub(crate) fn check_used(&self, storage: &impl Medium, words: &Words) -> Result<()> {
        check_length(storage, &self.region, self.used(storage, words), self.bytes)
    }

    /// Calls [`Allocator::free_blocks`].
    pub(crate) fn free_blocks(&self, storage: &impl Medium, words: &Words) -> Result<Vec<u32>> {
        self.allocator.free_blocks(storage, words, &self.blocks(storage))
    }

    /// Calls [`Allocator::claim`].
    pub(crate) fn claim(&self, storage: &impl Medium, words: &Words, tag: u32) -> Result<Claim> {
        self.allocator.claim(storage, words, &self.blocks(storage), tag)
    }

    /// Calls [`Allocator::abandon`].
    pub(crate) fn abandon(&self, storage: &impl Medium, words: &Words, claim: Claim) -> Result<()> {
        self.allocator.abandon(storage, words, &self.blocks(storage), claim)
    }

    /// Calls [`Allocator::free`].
    pub(crate) fn free(
        &self,
        storage: &impl Medium,
        words: &Words,
        owned: (u32, u32),
        unlink: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.allocator.free(storage, words, &self.blocks(storage), owned, unlink)
    }

    /// Calls [`Allocator::recover`].
    pub(crate) fn recover(
        &self,
        storage: &impl Medium,
        words: &Words,
        is_owned: impl FnMut(u32, u32) -> Result<bool>,
    ) -> Result<u64> {
        self.allocator.recover(storage, words, &self.blocks(storage), is_owned)
    }

    /// Returns the [`Blocks`] that the allocator's functions take.
    pub(crate) fn blocks<'a, M>(&'a self, storage: &'a M) -> Linked<'a, M> {
        Linked { storage, pool: self }
    }
}

/// Returns an error if a file has no room for `count` blocks of `bytes` bytes.
pub(crate) fn check_length(
    storage: &impl Medium,
    region: &Region,
    count: u64,
    bytes: u64,
) -> Result<()> {
    if count > region.len() / bytes {
        let detail = format!("the file is shorter than its {count} blocks of {bytes} bytes");
        return Err(region.fault(storage, region.len(), detail));
    }
    Ok(())
}

/// The blocks of a pool.
pub(crate) struct Linked<'a, M> {
    storage: &'a M,
    pool: &'a Pool,
}

impl<M: Medium> Linked<'_, M> {
    fn link(&self, block: u32) -> Result<&Cell64> {
        let Pool { region, bytes, link, .. } = self.pool;
        region.get(self.storage, u64::from(block) * bytes + link, "the block")
    }
}

impl<M: Medium> Blocks for Linked<'_, M> {
    fn find(&self, block: u32) -> Result<()> {
        self.link(block).map(drop)
    }

    fn next(&self, block: u32) -> Result<u64> {
        // Acquire: pairs with the Release in `set_next`, as for the allocator's words.
        Ok(self.link(block)?.load(self.storage, Acquire))
    }

    fn set_next(&self, block: u32, next: u64) -> Result<()> {
        let link = self.link(block)?;
        // Release: keeps the order of the stores to one line, as for the allocator's words.
        link.store(self.storage, next, Release);
        self.storage.flush_object(link);
        Ok(())
    }

    fn reserve(&self, count: u64) -> Result<()> {
        let Pool { region, bytes, .. } = self.pool;
        reserve_blocks(self.storage, region, count, *bytes)?;
        // Reserves again the space that a shrunken table gave back, and some bytes more, because each reservation is a
        // system call in a file with holes.
        let from = count.saturating_sub(MAX_CLAIMED) * bytes;
        self.storage.reserve(region, from, (count * bytes - from) + RESERVED_AHEAD)
    }
}
