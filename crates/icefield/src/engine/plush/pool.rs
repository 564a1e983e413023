//! Files of equal blocks: the runs of buckets of one class, or the entries that continue others.

use std::mem::offset_of;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::layout::{ENTRY_BYTES, Entry, Widths, run_buckets};
use crate::storage::alloc::{Allocator, Blocks, Words, reserve_blocks};
use crate::storage::{Cell64, Medium, Region};
use crate::{Error, Result};

/// The most blocks that an allocator hands out at once.
const MAX_CLAIMED: u64 = 32;
/// Bytes that are reserved ahead of the used part of a sparse file.
const RESERVED_AHEAD: u64 = 256 << 10;

/// A file of blocks and its allocator.
pub(super) struct Pool {
    region: Region,
    allocator: Allocator,
    /// Bytes of a block.
    bytes: u64,
    /// Offset of the word in a free block that links to the next one.
    link: u64,
}

impl Pool {
    /// Returns the pool of the runs of a class. `set` is the set of the allocator's words that is valid.
    pub(super) fn of_runs(region: Region, set: usize, class: usize, widths: Widths) -> Self {
        let bytes = widths.bucket_bytes() * run_buckets(class + 1);
        Self { region, allocator: Allocator::new(set), bytes, link: 0 }
    }

    /// Returns the pool of the entries that continue others.
    pub(super) fn of_entries(region: Region, set: usize) -> Self {
        // The link is a word of the filter, because the state of a free entry must remain empty.
        let link = offset_of!(Entry, filter) as u64;
        Self { region, allocator: Allocator::new(set), bytes: ENTRY_BYTES, link }
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    pub(super) fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// Returns the size of a block.
    pub(super) fn block_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of blocks that the file has room for.
    pub(super) fn room(&self) -> u64 {
        self.region.len() / self.bytes
    }

    /// Returns the size of the part of the file that the allocator has handed out.
    pub(super) fn used_bytes(&self, storage: &impl Medium, words: &Words) -> u64 {
        self.allocator.used(storage, words) * self.bytes
    }

    /// Returns the blocks for the allocator.
    pub(super) fn blocks<'a, M>(&'a self, storage: &'a M) -> Linked<'a, M> {
        Linked { storage, pool: self }
    }
}

/// The blocks of a pool. A word of each free block links to the next one.
pub(super) struct Linked<'a, M> {
    storage: &'a M,
    pool: &'a Pool,
}

impl<M: Medium> Linked<'_, M> {
    fn link(&self, block: u32) -> Result<&Cell64> {
        let Pool { region, bytes, link, .. } = self.pool;
        let offset = u64::from(block) * bytes + link;
        region.at(offset).ok_or_else(|| {
            let file = self.storage.path().join(region.name());
            Error::corrupt(file, offset, "the file ends before the block")
        })
    }
}

impl<M: Medium> Blocks for Linked<'_, M> {
    fn next(&self, block: u32) -> Result<u64> {
        Ok(self.link(block)?.load(self.storage, Acquire))
    }

    fn set_next(&self, block: u32, next: u64) -> Result<()> {
        let link = self.link(block)?;
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
