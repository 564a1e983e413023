//! A segment that other threads cannot reach yet: it is claimed or renewed, filled, made durable, and then adopted by
//! the table or returned to the allocator.

use std::sync::atomic::Ordering::{Acquire, Release};

use super::blocks::SegmentBlocks;
use super::bucket::Guard;
use super::kinds::Kinds;
use super::layout::{Bucket, ChainBlock, Link};
use super::marks::Mark;
use super::segment::{Core, Segment};
use super::stash;
use crate::Result;
use crate::base::version_lock;
use crate::storage::alloc::Claim;
use crate::storage::{Medium, Persist, Regions};

/// A new segment that other threads cannot reach yet, with all its buckets locked.
pub(super) struct NewSegment<'a, M: Medium> {
    pub(super) segment: Segment<'a>,
    /// `None` for a segment with a fixed place (LH), which owns its chain from the start.
    claim: Option<Claim>,
    /// The mark of a segment that the allocator provided; while it is held, no other thread recovers the segment.
    _mark: Option<Mark<'a>>,
    guards: Vec<Guard<'a, M>>,
    chain_claims: Vec<Claim>,
}

impl<T: Kinds> Core<T> {
    /// Claims a segment and empties it; nothing of this is durable yet.
    pub(super) fn new_segment(&self, tag: u32) -> Result<NewSegment<'_, T::Medium>> {
        let blocks = SegmentBlocks(self);
        let claim =
            self.segment_blocks.claim(&self.storage, &self.root()?.segments, &blocks, tag)?;
        let segment = match self.segment(claim.block) {
            Ok(segment) => segment,
            Err(error) => {
                self.segment_blocks.abandon(
                    &self.storage,
                    &self.root()?.segments,
                    &blocks,
                    claim,
                )?;
                return Err(error);
            }
        };
        let mark = self.marks.take(&self.storage, claim.block)?;
        let reserved = self.reserve_segment(claim.block);
        let emptied = match (mark, reserved) {
            (Some(mark), Ok(())) => self.emptied(segment, mark.is_fresh(), Some(mark)),
            (None, Ok(())) => Err(self.in_use(claim.block)),
            (_, Err(error)) => Err(error),
        };
        match emptied {
            Ok(new) => Ok(NewSegment { claim: Some(claim), ..new }),
            Err(error) => {
                self.segment_blocks.abandon(
                    &self.storage,
                    &self.root()?.segments,
                    &blocks,
                    claim,
                )?;
                Err(error)
            }
        }
    }

    /// Empties a segment with a fixed place (LH). Frees the chain that an interrupted split left there, if `birth`
    /// shows that the chain belongs to the segment.
    pub(super) fn renew_segment(
        &self,
        id: u32,
        fresh: bool,
        birth: u64,
    ) -> Result<NewSegment<'_, T::Medium>> {
        let (storage, header) = (&self.storage, self.header(id)?);
        if header.birth.load(storage, Acquire) == birth {
            self.free_chain(id)?;
        } else {
            header.chain.store(storage, 0, Release);
            // Release (P19): the empty chain is stored before the birth word, and the birth word before a link to a new
            // chain. All three stores are to one line, so they become durable in this order.
            header.birth.store(storage, birth, Release);
        }
        self.emptied(self.segment(id)?, fresh, None)
    }

    /// Locks a segment that has no owner, and removes its records. The removals are not durable yet.
    fn emptied<'a>(
        &'a self,
        segment: Segment<'a>,
        fresh: bool,
        mark: Option<Mark<'a>>,
    ) -> Result<NewSegment<'a, T::Medium>> {
        if fresh {
            // Locks from an earlier session are invalid.
            segment
                .buckets
                .iter()
                .for_each(|bucket| version_lock::reset(bucket.version_lock(&self.storage)));
        }
        let guards = self.shut(segment);
        for bucket in segment.buckets {
            stash::reset(&self.storage, bucket, false);
            bucket.meta.store(&self.storage, 0, Release);
        }
        Ok(NewSegment { segment, claim: None, _mark: mark, guards, chain_claims: Vec::new() })
    }

    /// Returns a chained bucket with room in a new segment; adds one if there is none.
    pub(super) fn chained_room(&self, new: &mut NewSegment<'_, T::Medium>) -> Result<&ChainBlock> {
        let (storage, mask) = (&self.storage, self.geometry.slot_mask());
        if let Some((_, block)) = self.chain(new.segment.id).next().transpose()?
            && Bucket::free_slot(block.bucket.meta(storage).allocated(), mask).is_some()
        {
            return Ok(block);
        }
        if new.claim.is_none() {
            self.extend_chain(new.segment)?;
            return self.chain_block(self.chain_head(new.segment.id)?);
        }
        let claim = self.new_chain_block(new.segment.id)?;
        let block = self.chain_block(claim.block)?;
        self.header(new.segment.id)?.chain.store(storage, u64::from(claim.block) + 1, Release);
        new.chain_claims.push(claim);
        Ok(block)
    }

    #[cold]
    fn in_use(&self, id: u32) -> crate::Error {
        let offset = u64::from(id) * self.geometry.segment_bytes();
        self.segments.fault(&self.storage, offset, format!("segment {id} is free and in use"))
    }

    /// Reserves the space of a segment, which may have been returned to the file system.
    pub(super) fn reserve_segment(&self, id: u32) -> Result<()> {
        let bytes = self.geometry.segment_bytes();
        self.storage.reserve(&self.segments, u64::from(id) * bytes, bytes)
    }

    /// Writes the header and makes the whole segment durable, so that other threads may reach it.
    pub(super) fn complete(
        &self,
        new: &NewSegment<'_, T::Medium>,
        link: Link,
        pattern: u64,
    ) -> Result<()> {
        let header = self.header(new.segment.id)?;
        header.pattern.store(&self.storage, pattern, Release);
        header.link.store(&self.storage, link.pack(), Release);
        self.storage.flush_object(header);
        for bucket in new.segment.buckets {
            self.storage.flush_object(bucket);
        }
        // P6: the segment is durable before any durable word names it.
        self.storage.fence();
        Ok(())
    }

    /// Returns an unused new segment to the allocator.
    pub(super) fn abandon(&self, new: NewSegment<'_, T::Medium>) -> Result<()> {
        let Some(claim) = new.claim else { return Ok(()) };
        let root = self.root()?;
        self.header(new.segment.id)?.chain.store(&self.storage, 0, Release);
        for claim in new.chain_claims {
            self.chains.abandon(&self.storage, &root.chains, claim)?;
        }
        drop(new.guards);
        self.segment_blocks.abandon(&self.storage, &root.segments, &SegmentBlocks(self), claim)
    }

    /// Commits the allocation of a new segment that is durably linked.
    pub(super) fn adopt(&self, new: NewSegment<'_, T::Medium>) -> Result<()> {
        let root = self.root()?;
        self.chains.allocator().commit(&self.storage, &root.chains, &new.chain_claims);
        self.segment_blocks.commit(&self.storage, &root.segments, new.claim.as_slice());
        Ok(())
    }
}

impl<M: Medium> NewSegment<'_, M> {
    /// Releases the locks of a complete segment.
    pub(super) fn unlock(&mut self) {
        self.guards.clear();
    }
}
