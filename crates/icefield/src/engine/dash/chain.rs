//! Chains: further stash buckets of a segment that a split does not help, or whose split is not due yet (LH).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::kinds::Kinds;
use super::layout::ChainBlock;
use super::segment::{Core, Segment};
use super::stash;
use crate::Result;
use crate::base::version_lock;
use crate::storage::alloc::{Allocator, Claim};
use crate::storage::{Cell64, Medium, Persist, SimHooks};

impl<T: Kinds> Core<T> {
    pub(super) fn chain_block(&self, block: u32) -> Result<&ChainBlock> {
        self.chains.at(&self.storage, block)
    }

    /// Returns the first block of a segment's chain, which must not be empty.
    pub(super) fn chain_head(&self, segment: u32) -> Result<u32> {
        let word = self.header(segment)?.chain.load(&self.storage, Acquire);
        Ok(word.wrapping_sub(1) as u32)
    }

    /// Returns the blocks of a segment's chain. Ends with an error if there are more blocks than were ever allocated,
    /// because then the chain is cyclic.
    ///
    /// Links are read through `read_unvalidated`: a link changes only to add or remove a block that is empty or whose
    /// records are durable elsewhere, so no result depends on whether a link is durable yet.
    pub(super) fn chain(&self, segment: u32) -> impl Iterator<Item = Result<(u32, &ChainBlock)>> {
        let peek =
            |link: &Cell64| self.storage.read_unvalidated(|| link.load(&self.storage, Acquire));
        let mut next = self.header(segment).map(|header| peek(&header.chain));
        let mut left =
            self.root().map_or(0, |words| Allocator::bound(&self.storage, &words.chains));
        std::iter::from_fn(move || match std::mem::replace(&mut next, Ok(0)) {
            Err(error) => Some(Err(error)),
            Ok(0) => None,
            Ok(_) if left == 0 => Some(Err(self.chains.region().fault(
                &self.storage,
                0,
                format!("the chain of segment {segment} is a cycle"),
            ))),
            Ok(word) => {
                left -= 1;
                let block = (word - 1) as u32;
                let found = self.chain_block(block);
                if let Ok(found) = &found {
                    next = Ok(peek(&found.next));
                }
                Some(found.map(|found| (block, found)))
            }
        })
    }

    fn chain_length(&self, segment: u32) -> Result<usize> {
        self.chain(segment).try_fold(0, |count, block| block.map(|_| count + 1))
    }

    /// Frees all buckets of a segment's chain, including those with records.
    pub(super) fn free_chain(&self, id: u32) -> Result<()> {
        let (storage, link) = (&self.storage, &self.header(id)?.chain);
        // The loop is bounded, because a damaged chain may be cyclic.
        for _ in 0..self.chain_length(id)? {
            let Some((block, chained)) = self.chain(id).next().transpose()? else { break };
            let next = chained.next.load(storage, Relaxed);
            self.chains.free(storage, &self.root()?.chains, (block, id), || {
                link.store(storage, next, Release);
                // `link` is durable before the allocator stores a link of its free list in the block's `next`.
                storage.persist(link);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Claims an empty chained bucket whose `next` is the head of the segment's chain. Flushes it without a fence.
    pub(super) fn new_chain_block(&self, segment: u32) -> Result<Claim> {
        let storage = &self.storage;
        let head = self.header(segment)?.chain.load(storage, Relaxed);
        let words = &self.root()?.chains;
        let claim = self.chains.claim(storage, words, segment)?;
        let block = match self.chain_block(claim.block) {
            Ok(block) => block,
            Err(error) => {
                // A damaged list names a block that is not wholly in the file.
                self.chains.abandon(storage, words, claim)?;
                return Err(error);
            }
        };
        version_lock::reset(block.bucket.version_lock(storage));
        stash::reset(storage, &block.bucket, false);
        block.bucket.meta.store(storage, 0, Release);
        block.next.store(storage, head, Release);
        storage.flush_object(block);
        Ok(claim)
    }

    /// Puts an empty bucket at the head of a segment's chain. The caller holds all locks of the segment.
    pub(super) fn extend_chain(&self, segment: Segment<'_>) -> Result<()> {
        let claim = self.new_chain_block(segment.id)?;
        // P7: the empty bucket is durable before the header names it.
        self.storage.fence();
        let header = self.header(segment.id)?;
        header.chain.store(&self.storage, u64::from(claim.block) + 1, Release);
        self.storage.persist(&header.chain);
        self.chains.allocator().commit(&self.storage, &self.root()?.chains, &[claim]);
        Ok(())
    }

    /// Unlinks and frees empty chained buckets.
    pub(super) fn drop_empty_chain(&self, segment: Segment<'_>) -> Result<()> {
        let storage = &self.storage;
        // The loop is bounded, because a damaged chain may be cyclic.
        for _ in 0..self.chain_length(segment.id)? {
            let mut link = &self.header(segment.id)?.chain;
            let mut empty = None;
            for block in self.chain(segment.id) {
                let (number, block) = block?;
                if block.bucket.meta(storage).allocated() == 0 {
                    empty = Some((link, number, block.next.load(storage, Relaxed)));
                    break;
                }
                link = &block.next;
            }
            let Some((link, number, next)) = empty else { return Ok(()) };
            self.chains.free(storage, &self.root()?.chains, (number, segment.id), || {
                link.store(storage, next, Release);
                // As in `free_chain`.
                storage.persist(link);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Returns whether a chained bucket belongs to the chain of segment `owner`.
    pub(super) fn owns_chain_block(&self, owner: u32, block: u32) -> Result<bool> {
        self.chain(owner).try_fold(false, |found, chained| Ok(found || chained?.0 == block))
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::dash::Eh;
    use crate::engine::dash::directory::Directory;
    use crate::engine::dash::options::table_of_words;
    use crate::storage::sim::{Sim, SimOptions};

    type Check = std::result::Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn a_block_that_is_not_wholly_in_the_file_is_abandoned() -> Check {
        let sim = Sim::new(SimOptions::default());
        let table = table_of_words::<Eh, _>(sim.clone())?;
        let core = &table.core;
        let id = table.directory.check(core, &mut |_| {})?[0];
        core.extend_chain(core.segment(id)?)?;
        let (words, partial) = (&core.root()?.chains, core.chains.room() as u32);
        // Its link is in the file.
        core.chains.free(&sim, words, (partial, id), || Ok(()))?;
        for _ in 0..2 {
            let claimed = core.new_chain_block(id);
            assert!(matches!(claimed, Err(crate::Error::Corrupt { .. })), "{claimed:?}");
            assert_eq!(core.chains.free_blocks(&sim, words)?, [partial]);
        }
        Ok(())
    }
}
