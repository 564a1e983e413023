//! Splitting a segment in two: the part that extendible and linear hashing share (§4.7).
//!
//! The new segment is built beside the old one, private, every record at the position it had (the bucket bits of the
//! hash do not change), and is durable as a whole before one store makes the split a fact (`Link`,
//! [`State::Splitting`]). From then on it is rolled forward: by the splitting thread, or after a crash by whoever
//! touches the old segment first. Readers of the old segment go on until its records are struck out.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::bucket::Guard;
use super::insert::{choose, copy_fingerprint};
use super::layout::{Bucket, Link, State};
use super::segment::{ChainBlocks, Core, Segment};
use super::stash;
use crate::Result;
use crate::base::version_lock;
use crate::key::{Key, Value};
use crate::pm::Medium;
use crate::pm::alloc::Claim;

/// A segment with a longer chain is not split: its records agree in their hashes, so that splitting would not help
/// them, and copying the chain would need many blocks at once.
pub(super) const MAX_CHAIN_TO_SPLIT: usize = 8;

/// A new segment that nobody can reach yet, all its buckets locked.
pub(super) struct NewSegment<'a, M: Medium> {
    pub(super) segment: Segment<'a>,
    pub(super) claim: Claim,
    guards: Vec<Guard<'a, M>>,
    chain_claims: Vec<Claim>,
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// Claims a segment and empties it; nothing of that is durable yet.
    pub(super) fn new_segment(&self, tag: u32) -> Result<NewSegment<'_, M>> {
        let blocks = super::segment::SegmentBlocks(self);
        let claim = self.segment_blocks.claim(&self.pm, &self.root()?.segments, &blocks, tag)?;
        let segment = match self.segment(claim.block) {
            Ok(segment) => segment,
            Err(error) => {
                self.segment_blocks.abandon(&self.pm, &self.root()?.segments, &blocks, claim)?;
                return Err(error);
            }
        };
        if !self.is_touched(claim.block) {
            // Locks from before this session mean nothing.
            segment
                .buckets
                .iter()
                .for_each(|bucket| version_lock::reset(bucket.version_lock(&self.pm)));
        }
        // `clear` has waited for the writers before it: who holds a lock here has the segment for its own.
        let locked = segment.buckets.iter().map(|bucket| bucket.try_lock(&self.pm));
        let Some(guards) = locked.collect::<Option<Vec<_>>>() else {
            let offset = u64::from(claim.block) * self.geometry.segment_bytes();
            let detail = format!("segment {} is free and in use", claim.block);
            return Err(self.corrupt(&self.segments, offset, detail));
        };
        guards.iter().for_each(Guard::begin_change);
        for bucket in segment.buckets {
            stash::reset(&self.pm, bucket);
            bucket.meta.store(&self.pm, 0, Release);
        }
        Ok(NewSegment { segment, claim, guards, chain_claims: Vec::new() })
    }

    /// Writes the header and makes the whole segment durable; then anybody may reach it.
    pub(super) fn complete(&self, new: &NewSegment<'_, M>, link: Link, pattern: u64) -> Result<()> {
        let header = self.header(new.segment.id)?;
        header.pattern.store(&self.pm, pattern, Release);
        header.link.store(&self.pm, link.pack(), Release);
        self.pm.flush_object(header);
        for bucket in new.segment.buckets {
            self.pm.flush_object(bucket);
        }
        // P6: all of it is durable before any durable word names it.
        self.pm.fence();
        self.mark_touched(new.segment.id);
        Ok(())
    }

    /// Gives an unused new segment back.
    pub(super) fn abandon(&self, new: NewSegment<'_, M>) -> Result<()> {
        let root = self.root()?;
        self.header(new.segment.id)?.chain.store(&self.pm, 0, Release);
        for claim in new.chain_claims {
            self.chain_blocks.abandon(&self.pm, &root.chains, &ChainBlocks(self), claim)?;
        }
        drop(new.guards);
        self.segment_blocks.abandon(
            &self.pm,
            &root.segments,
            &super::segment::SegmentBlocks(self),
            new.claim,
        )
    }

    /// The new segment is linked, durably: its blocks have an owner.
    pub(super) fn adopt(&self, new: NewSegment<'_, M>) -> Result<()> {
        let root = self.root()?;
        for claim in new.chain_claims {
            self.chain_blocks.commit(&self.pm, &root.chains, claim);
        }
        self.segment_blocks.commit(&self.pm, &root.segments, new.claim);
        Ok(())
    }

    /// Copies the records whose hash has `bit` set into the new segment. The caller holds all locks of `from`.
    pub(super) fn copy_half(
        &self,
        from: Segment<'_>,
        new: &mut NewSegment<'_, M>,
        bit: u64,
    ) -> Result<()> {
        self.header(new.segment.id)?.chain.store(&self.pm, 0, Release);
        for (number, bucket) in from.buckets.iter().enumerate().take(self.geometry.buckets as usize)
        {
            let meta = bucket.meta(&self.pm);
            for slot in Bucket::slots_of(meta.allocated()) {
                if self.hash_at(bucket, slot)? & bit != 0 {
                    self.copy_slot(
                        bucket,
                        slot,
                        &new.segment.buckets[number],
                        slot,
                        meta.members() >> slot & 1 == 1,
                    );
                }
            }
        }
        for site in self.sites(from).skip(self.geometry.buckets as usize) {
            let (_, bucket) = site?;
            for slot in Bucket::slots_of(bucket.meta(&self.pm).allocated()) {
                let hash = self.hash_at(bucket, slot)?;
                if hash & bit != 0 {
                    self.copy_overflow(bucket, slot, hash, new)?;
                }
            }
        }
        Ok(())
    }

    /// The hash of the key in a slot.
    pub(super) fn hash_at(&self, bucket: &Bucket, slot: usize) -> Result<u64> {
        self.records.hash_of(&self.pm, bucket.record(&self.pm, slot).0)
    }

    /// Copies a record into a bucket that nobody else can see; flushed with the whole segment.
    fn copy_slot(&self, source: &Bucket, slot: usize, target: &Bucket, to: usize, member: bool) {
        let pm = &self.pm;
        let (key, value) = source.record(pm, slot);
        target.slots[to].key.store(pm, key, Release);
        target.slots[to].value.store(pm, value, Release);
        copy_fingerprint(pm, source, slot, target, to);
        target.meta.store(pm, target.meta(pm).with(to, member).0, Release);
    }

    /// Finds a stashed record a place in the new segment, at home if there is room again.
    fn copy_overflow(
        &self,
        source: &Bucket,
        slot: usize,
        hash: u64,
        new: &mut NewSegment<'_, M>,
    ) -> Result<()> {
        let pm = &self.pm;
        let mask = self.geometry.slot_mask();
        let [home, probing] = self.pair(new.segment, hash);
        let metas = [home, probing].map(|bucket| bucket.meta(pm).allocated());
        if let Some((target, free)) = choose(metas, mask) {
            self.copy_slot(source, slot, [home, probing][target], free, target == 1);
            return Ok(());
        }
        for (number, bucket) in self.stash(new.segment).iter().enumerate() {
            if let Some(free) = Bucket::free_slot(bucket.meta(pm).allocated(), mask) {
                self.copy_slot(source, slot, bucket, free, false);
                stash::note(pm, home, probing, hash, Some(number));
                return Ok(());
            }
        }
        let header = self.header(new.segment.id)?;
        let chained = self.chain(new.segment.id).next().transpose()?;
        let target = match chained {
            Some((_, block))
                if Bucket::free_slot(block.bucket.meta(pm).allocated(), mask).is_some() =>
            {
                block
            }
            _ => {
                let claim = self.new_chain_block(new.segment.id)?;
                let block = self.chain_block(claim.block)?;
                header.chain.store(pm, u64::from(claim.block) + 1, Release);
                new.chain_claims.push(claim);
                block
            }
        };
        if let Some(free) = Bucket::free_slot(target.bucket.meta(pm).allocated(), mask) {
            self.copy_slot(source, slot, &target.bucket, free, false);
            pm.flush_object(target);
            stash::note(pm, home, probing, hash, None);
        }
        Ok(())
    }

    /// Claims an empty chained bucket whose next block is the present head of the segment's chain; flushed, not fenced.
    fn new_chain_block(&self, segment: u32) -> Result<Claim> {
        let pm = &self.pm;
        let head = self.header(segment)?.chain.load(pm, Relaxed);
        let claim =
            self.chain_blocks.claim(pm, &self.root()?.chains, &ChainBlocks(self), segment)?;
        let block = self.chain_block(claim.block)?;
        version_lock::reset(block.bucket.version_lock(pm));
        stash::reset(pm, &block.bucket);
        block.bucket.meta.store(pm, 0, Release);
        block.next.store(pm, head, Release);
        pm.flush_object(block);
        Ok(claim)
    }

    /// Puts one more bucket at the head of a segment's chain: the way out when splitting does not help. The caller
    /// holds all locks of the segment.
    pub(super) fn extend_chain(&self, segment: Segment<'_>) -> Result<()> {
        let claim = self.new_chain_block(segment.id)?;
        // P7: the empty bucket is durable before the header names it.
        self.pm.fence();
        let header = self.header(segment.id)?;
        header.chain.store(&self.pm, u64::from(claim.block) + 1, Release);
        self.pm.persist(&header.chain);
        self.chain_blocks.commit(&self.pm, &self.root()?.chains, claim);
        Ok(())
    }

    /// Strikes out the records whose hash has `bit` set, brings stashed ones home where there is room now, rebuilds the
    /// overflow metadata. The caller holds all locks with their changing bits set, or recovers the segment.
    pub(super) fn strike_half(&self, segment: Segment<'_>, bit: u64) -> Result<()> {
        let pm = &self.pm;
        for site in self.sites(segment) {
            let (_, bucket) = site?;
            let meta = bucket.meta(pm);
            let mut gone = 0;
            for slot in Bucket::slots_of(meta.allocated()) {
                if self.hash_at(bucket, slot)? & bit != 0 {
                    gone |= 1 << slot;
                }
            }
            if gone != 0 {
                bucket.publish(pm, meta.without(gone));
            }
        }
        // P8: the slots are durably free before any of them is used again.
        pm.fence();
        self.bring_home(segment)?;
        self.drop_empty_chain(segment)?;
        self.rebuild_overflow(segment)
    }

    /// Moves records from the stash and the chain to their home or probing buckets, all together in three fences.
    fn bring_home(&self, segment: Segment<'_>) -> Result<()> {
        let pm = &self.pm;
        let mask = self.geometry.slot_mask();
        let mut pending = vec![0_u32; self.geometry.buckets as usize];
        let mut moves = Vec::new();
        for site in self.sites(segment).skip(self.geometry.buckets as usize) {
            let (_, bucket) = site?;
            for slot in Bucket::slots_of(bucket.meta(pm).allocated()) {
                let home = self.geometry.home(self.hash_at(bucket, slot)?);
                let pair = [home, self.geometry.next(home)];
                let metas = pair
                    .map(|number| segment.buckets[number].meta(pm).allocated() | pending[number]);
                if let Some((which, free)) = choose(metas, mask) {
                    pending[pair[which]] |= 1 << free;
                    let (key, value) = bucket.record(pm, slot);
                    segment.buckets[pair[which]].write_record(pm, free, key, value);
                    moves.push((bucket, slot, &segment.buckets[pair[which]], free, which == 1));
                }
            }
        }
        if moves.is_empty() {
            return Ok(());
        }
        // P9: the copies are durable before their buckets say so.
        pm.fence();
        for &(source, slot, target, free, member) in &moves {
            copy_fingerprint(pm, source, slot, target, free);
            target.publish(pm, target.meta(pm).with(free, member));
        }
        // P10: at home, durably, before they leave the stash; a crash between leaves duplicates, which recovery
        // removes.
        pm.fence();
        for &(source, slot, ..) in &moves {
            // P11: durable by the fence of P16, before the locks are released and the slots used again.
            source.publish(pm, source.meta(pm).without(1 << slot));
        }
        Ok(())
    }

    /// Unlinks chained buckets that hold nothing and frees them.
    fn drop_empty_chain(&self, segment: Segment<'_>) -> Result<()> {
        let pm = &self.pm;
        loop {
            let mut link = &self.header(segment.id)?.chain;
            let mut empty = None;
            for block in self.chain(segment.id) {
                let (number, block) = block?;
                if block.bucket.meta(pm).allocated() == 0 {
                    empty = Some((link, number, block.next.load(pm, Relaxed)));
                    break;
                }
                link = &block.next;
            }
            let Some((link, number, next)) = empty else { return Ok(()) };
            self.chain_blocks.free(
                pm,
                &self.root()?.chains,
                &ChainBlocks(self),
                (number, segment.id),
                || {
                    link.store(pm, next, Release);
                    pm.persist(link);
                    Ok(())
                },
            )?;
        }
    }

    /// Recomputes the overflow metadata of all buckets from the records in the stash and the chain.
    pub(super) fn rebuild_overflow(&self, segment: Segment<'_>) -> Result<()> {
        segment.buckets.iter().for_each(|bucket| stash::reset(&self.pm, bucket));
        for site in self.sites(segment).skip(self.geometry.buckets as usize) {
            let (site, bucket) = site?;
            for slot in Bucket::slots_of(bucket.meta(&self.pm).allocated()) {
                let hash = self.hash_at(bucket, slot)?;
                let [home, probing] = self.pair(segment, hash);
                stash::note(&self.pm, home, probing, hash, site.stash_bucket());
            }
        }
        Ok(())
    }

    /// Stores and persists a segment's link word.
    pub(super) fn set_link(
        &self,
        id: u32,
        state: State,
        depth: u32,
        side: Option<u32>,
    ) -> Result<()> {
        let link = &self.header(id)?.link;
        link.store(&self.pm, Link { state, depth, side }.pack(), Release);
        self.pm.persist(link);
        Ok(())
    }

    /// Whether a chained bucket belongs to the chain of segment `owner`.
    pub(super) fn owns_chain_block(&self, owner: u32, block: u32) -> Result<bool> {
        self.chain(owner).try_fold(false, |found, chained| Ok(found || chained?.0 == block))
    }

    /// Whether a key with this hash finds room without a split.
    pub(super) fn has_room(&self, segment: Segment<'_>, hash: u64) -> Result<bool> {
        let mask = self.geometry.slot_mask();
        let free =
            |bucket: &Bucket| Bucket::free_slot(bucket.meta(&self.pm).allocated(), mask).is_some();
        let [home, probing] = self.pair(segment, hash);
        if free(home) || free(probing) || self.stash(segment).iter().any(free) {
            return Ok(true);
        }
        self.chain(segment.id).try_fold(false, |found, block| Ok(found || free(&block?.1.bucket)))
    }
}

impl<M: Medium> NewSegment<'_, M> {
    /// Lets others at the new segment, once it is complete.
    pub(super) fn unlock(&mut self) {
        self.guards.clear();
    }
}
