//! A segment that nobody can reach yet: claimed or renewed, filled, made durable, adopted by the table or given back.

use std::sync::atomic::Ordering::{Acquire, Release};

use super::blocks::{ChainBlocks, SegmentBlocks};
use super::bucket::Guard;
use super::kinds::Kinds;
use super::layout::{Bucket, ChainBlock, Link};
use super::recover::Mark;
use super::segment::{Core, Segment};
use super::stash;
use crate::Result;
use crate::base::version_lock;
use crate::pm::Medium;
use crate::pm::alloc::Claim;

/// A new segment that nobody can reach yet, all its buckets locked.
pub(super) struct NewSegment<'a, M: Medium> {
    pub(super) segment: Segment<'a>,
    /// `None` for a segment that has a place of its own, and so a chain of its own from the start.
    claim: Option<Claim>,
    /// The right to a segment that the allocator gave.
    _mark: Option<Mark<'a>>,
    guards: Vec<Guard<'a, M>>,
    chain_claims: Vec<Claim>,
}

impl<T: Kinds> Core<T> {
    /// Claims a segment and empties it; nothing of that is durable yet.
    pub(super) fn new_segment(&self, tag: u32) -> Result<NewSegment<'_, T::Medium>> {
        let blocks = SegmentBlocks(self);
        let claim = self.segment_blocks.claim(&self.pm, &self.root()?.segments, &blocks, tag)?;
        let segment = match self.segment(claim.block) {
            Ok(segment) => segment,
            Err(error) => {
                self.segment_blocks.abandon(&self.pm, &self.root()?.segments, &blocks, claim)?;
                return Err(error);
            }
        };
        let mark = match self.touched.get(claim.block as usize) {
            Some(state) => Mark::take(&self.pm, state)?,
            None => None,
        };
        let reserved = self.reserve_segment(claim.block);
        let emptied = match (mark, reserved) {
            (Some(mark), Ok(())) => self.emptied(segment, mark.is_fresh(), Some(mark)),
            (None, Ok(())) => Err(self.in_use(claim.block)),
            (_, Err(error)) => Err(error),
        };
        match emptied {
            Ok(new) => Ok(NewSegment { claim: Some(claim), ..new }),
            Err(error) => {
                self.segment_blocks.abandon(&self.pm, &self.root()?.segments, &blocks, claim)?;
                Err(error)
            }
        }
    }

    /// Takes a segment that has a place of its own and empties it. Its chain is its own by `birth`: what an interrupted
    /// split left there is freed.
    pub(super) fn renew_segment(
        &self,
        id: u32,
        fresh: bool,
        birth: u64,
    ) -> Result<NewSegment<'_, T::Medium>> {
        let (pm, header) = (&self.pm, self.header(id)?);
        if header.birth.load(pm, Acquire) == birth {
            self.free_chain(id)?;
        } else {
            header.chain.store(pm, 0, Release);
            // Release, P19: no chain, then birth, then perhaps a chain of its own. All are in one line, in this order.
            header.birth.store(pm, birth, Release);
        }
        self.emptied(self.segment(id)?, fresh, None)
    }

    /// Locks a segment that is nobody's and strikes out what it holds; nothing of that is durable yet.
    fn emptied<'a>(
        &'a self,
        segment: Segment<'a>,
        fresh: bool,
        mark: Option<Mark<'a>>,
    ) -> Result<NewSegment<'a, T::Medium>> {
        if fresh {
            // Locks from before this session mean nothing.
            segment
                .buckets
                .iter()
                .for_each(|bucket| version_lock::reset(bucket.version_lock(&self.pm)));
        }
        let guards = self.shut(segment);
        for bucket in segment.buckets {
            stash::reset(&self.pm, bucket);
            bucket.meta.store(&self.pm, 0, Release);
        }
        Ok(NewSegment { segment, claim: None, _mark: mark, guards, chain_claims: Vec::new() })
    }

    /// A chained bucket of a new segment that has room.
    pub(super) fn chained_room(&self, new: &mut NewSegment<'_, T::Medium>) -> Result<&ChainBlock> {
        let (pm, mask) = (&self.pm, self.geometry.slot_mask());
        if let Some((_, block)) = self.chain(new.segment.id).next().transpose()?
            && Bucket::free_slot(block.bucket.meta(pm).allocated(), mask).is_some()
        {
            return Ok(block);
        }
        if new.claim.is_none() {
            self.extend_chain(new.segment)?;
            return self.chain_block(self.chain_head(new.segment.id)?);
        }
        let claim = self.new_chain_block(new.segment.id)?;
        let block = self.chain_block(claim.block)?;
        self.header(new.segment.id)?.chain.store(pm, u64::from(claim.block) + 1, Release);
        new.chain_claims.push(claim);
        Ok(block)
    }

    #[cold]
    fn in_use(&self, id: u32) -> crate::Error {
        let offset = u64::from(id) * self.geometry.segment_bytes();
        self.corrupt(&self.segments, offset, format!("segment {id} is free and in use"))
    }

    /// Makes sure that there is space behind a segment, which may have been given back.
    pub(super) fn reserve_segment(&self, id: u32) -> Result<()> {
        let bytes = self.geometry.segment_bytes();
        self.pm.reserve(&self.segments, u64::from(id) * bytes, bytes)
    }

    /// Writes the header and makes the whole segment durable; then anybody may reach it.
    pub(super) fn complete(
        &self,
        new: &NewSegment<'_, T::Medium>,
        link: Link,
        pattern: u64,
    ) -> Result<()> {
        let header = self.header(new.segment.id)?;
        header.pattern.store(&self.pm, pattern, Release);
        header.link.store(&self.pm, link.pack(), Release);
        self.pm.flush_object(header);
        for bucket in new.segment.buckets {
            self.pm.flush_object(bucket);
        }
        // P6: all of it is durable before any durable word names it.
        self.pm.fence();
        Ok(())
    }

    /// Gives an unused new segment back.
    pub(super) fn abandon(&self, new: NewSegment<'_, T::Medium>) -> Result<()> {
        let Some(claim) = new.claim else { return Ok(()) };
        let root = self.root()?;
        self.header(new.segment.id)?.chain.store(&self.pm, 0, Release);
        for claim in new.chain_claims {
            self.chain_blocks.abandon(&self.pm, &root.chains, &ChainBlocks(self), claim)?;
        }
        drop(new.guards);
        self.segment_blocks.abandon(&self.pm, &root.segments, &SegmentBlocks(self), claim)
    }

    /// The new segment is linked, durably: its blocks have an owner.
    pub(super) fn adopt(&self, new: NewSegment<'_, T::Medium>) -> Result<()> {
        let root = self.root()?;
        self.chain_blocks.commit(&self.pm, &root.chains, &new.chain_claims);
        self.segment_blocks.commit(&self.pm, &root.segments, new.claim.as_slice());
        Ok(())
    }
}

impl<M: Medium> NewSegment<'_, M> {
    /// Lets others at the new segment, once it is complete.
    pub(super) fn unlock(&mut self) {
        self.guards.clear();
    }
}
