//! Splitting a segment in two: the part that extendible and linear hashing share (§4.7).
//!
//! The new segment is built beside the old one, private, every record at the position it had (the bucket bits of the
//! hash do not change), and is durable as a whole before one store makes the split a fact (`Link`,
//! [`State::Splitting`]). From then on it is rolled forward: by the splitting thread, or after a crash by whoever
//! touches the old segment first. Readers of the old segment go on until its records are struck out.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::bucket::Guard;
use super::directory::Directory;
use super::insert::copy_fingerprint;
use super::kinds::Kinds;
use super::layout::{Bucket, Link, State, split_bit};
use super::recover::Mark;
use super::segment::{ChainBlocks, Core, Segment, SegmentBlocks};
use super::stash;
use crate::Result;
use crate::base::version_lock;
use crate::pm::Medium;
use crate::pm::alloc::Claim;

/// A segment with a longer chain is not split: its records agree in their hashes, so that splitting would not help
/// them, and copying the chain would need many blocks at once.
pub(super) const MAX_CHAIN_TO_SPLIT: usize = 8;
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
            Some(state) => Mark::take(&self.pm, state),
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

    /// Takes a segment that has a place of its own and empties it. Its chain is its own by `birth`, durably: what an
    /// interrupted split left there is freed.
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
            header.birth.store(pm, birth, Release);
            // P19: the segment has no chain, before it gets one.
            pm.persist(header);
        }
        self.emptied(self.segment(id)?, fresh, None)
    }

    /// Frees all buckets of a segment's chain, whatever they hold.
    fn free_chain(&self, id: u32) -> Result<()> {
        let (pm, link) = (&self.pm, &self.header(id)?.chain);
        while let Some((block, chained)) = self.chain(id).next().transpose()? {
            let next = chained.next.load(pm, Relaxed);
            self.chain_blocks.free(
                pm,
                &self.root()?.chains,
                &ChainBlocks(self),
                (block, id),
                || {
                    link.store(pm, next, Release);
                    pm.persist(link);
                    Ok(())
                },
            )?;
        }
        Ok(())
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
        // Who still looks for something here finds out that it is the wrong place and lets go.
        let guards = self.lock_all(segment);
        guards.iter().for_each(Guard::begin_change);
        for bucket in segment.buckets {
            stash::reset(&self.pm, bucket);
            bucket.meta.store(&self.pm, 0, Release);
        }
        Ok(NewSegment { segment, claim: None, _mark: mark, guards, chain_claims: Vec::new() })
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
    fn abandon(&self, new: NewSegment<'_, T::Medium>) -> Result<()> {
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
        for claim in new.chain_claims {
            self.chain_blocks.commit(&self.pm, &root.chains, claim);
        }
        if let Some(claim) = new.claim {
            self.segment_blocks.commit(&self.pm, &root.segments, claim);
        }
        Ok(())
    }

    /// Splits a segment, all of whose locks are held, into itself and a new one.
    pub(super) fn split_into(
        &self,
        directory: &impl Directory,
        segment: Segment<'_>,
        guards: &[Guard<'_, T::Medium>],
        mut new: NewSegment<'_, T::Medium>,
    ) -> Result<()> {
        let link = self.link(segment.id)?;
        let pattern = self.header(segment.id)?.pattern.load(&self.pm, Acquire);
        let records = self.count(segment)?;
        let bit = split_bit(link.depth);
        let right = Link { state: State::Stable, depth: link.depth + 1, side: link.side };
        let copied = self
            .copy_half(segment, &mut new, bit)
            .and_then(|()| self.complete(&new, right, pattern | bit));
        if let Err(error) = copied {
            self.abandon(new)?;
            return Err(error);
        }
        let new_id = new.segment.id;
        new.unlock();
        // P15, commit point of the split: from here on it is rolled forward.
        self.set_link(segment.id, State::Splitting, link.depth, Some(new_id))?;
        self.mark_ready(new_id);
        self.adopt(new)?;
        directory.redirect(self, (pattern | bit, link.depth + 1), segment.id, new_id)?;
        guards.iter().for_each(Guard::begin_change);
        self.strike_half(segment, bit)?;
        // P16: the split is over.
        self.set_link(segment.id, State::Stable, link.depth + 1, Some(new_id))?;
        self.counts.splits.add(1);
        self.counts.split_records.add(records as i64);
        self.counts.split_slots.add(self.geometry.segment_slots() as i64);
        Ok(())
    }

    /// Finishes a split that a crash interrupted after its commit point. Called once, before anybody else uses the
    /// segment.
    pub(super) fn finish_split(&self, directory: &impl Directory, id: u32) -> Result<()> {
        let link = self.link(id)?;
        let (State::Splitting, Some(right)) = (link.state, link.side) else { return Ok(()) };
        let bit = split_bit(link.depth);
        let pattern = self.header(id)?.pattern.load(&self.pm, Acquire) | bit;
        if directory.is_merged(pattern) {
            return self.set_link(id, State::Stable, link.depth, link.side);
        }
        directory.redirect(self, (pattern, link.depth + 1), id, right)?;
        self.strike_half(self.segment(id)?, bit)?;
        self.set_link(id, State::Stable, link.depth + 1, Some(right))
    }

    /// Copies the records whose hash has `bit` set into the new segment. The caller holds all locks of `from`.
    pub(super) fn copy_half(
        &self,
        from: Segment<'_>,
        new: &mut NewSegment<'_, T::Medium>,
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
        new: &mut NewSegment<'_, T::Medium>,
    ) -> Result<()> {
        let pm = &self.pm;
        let mask = self.geometry.slot_mask();
        let [home, probing] = self.pair(new.segment, hash);
        let metas = [home, probing].map(|bucket| bucket.meta(pm).allocated());
        if let Some((target, free)) = self.choose(metas) {
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
            _ if new.claim.is_none() => {
                self.extend_chain(new.segment)?;
                self.chain_block(self.chain_head(new.segment.id)?)?
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

    /// Brings stashed records home and frees what the chain does not need any more. The caller holds all locks.
    pub(super) fn tidy(&self, segment: Segment<'_>, guards: &[Guard<'_, T::Medium>]) -> Result<()> {
        guards.iter().for_each(Guard::begin_change);
        self.bring_home(segment)?;
        // P11, as after a split.
        self.pm.fence();
        self.drop_empty_chain(segment)?;
        self.rebuild_overflow(segment)
    }

    /// Moves records from the stash and the chain to their home or probing buckets, all together in three fences.
    fn bring_home(&self, segment: Segment<'_>) -> Result<()> {
        let pm = &self.pm;
        let mut pending = vec![0_u32; self.geometry.buckets as usize];
        let mut moves = Vec::new();
        for site in self.sites(segment).skip(self.geometry.buckets as usize) {
            let (_, bucket) = site?;
            for slot in Bucket::slots_of(bucket.meta(pm).allocated()) {
                let home = self.geometry.home(self.hash_at(bucket, slot)?);
                let pair = [home, self.geometry.next(home)];
                let metas = pair
                    .map(|number| segment.buckets[number].meta(pm).allocated() | pending[number]);
                if let Some((which, free)) = self.choose(metas) {
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
        let pair = self.pair(segment, hash);
        let metas = pair.map(|bucket| bucket.meta(&self.pm).allocated());
        if self.choose(metas).is_some() || self.stash(segment).iter().any(free) {
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
