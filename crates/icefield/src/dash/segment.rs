//! Segments: the buckets that share a header, and everything that the directory policies (`eh`, `lh`) do with them.

use std::sync::Mutex;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::directory::Located;
use super::kinds::{Ablation, Kinds};
use super::layout::{Bucket, ChainBlock, Geometry, Header, Link, Root, State};
use super::limbo::Limbo;
use super::stash::{self, StashHint};
use crate::base::counter::ShardedCounter;
use crate::base::memory::ZeroedArray;
use crate::base::reclaim::PROTECTED;
use crate::base::version_lock;
use crate::pm::alloc::{Allocator, Blocks};
use crate::pm::superblock::ROOT_OFFSET;
use crate::pm::{Medium, Region};
use crate::record::{Pin, Probe, Records};
use crate::{Error, Result};

/// What every directory policy stands on: the medium, the regions, the records, and the DRAM beside them.
pub struct Core<T: Kinds> {
    pub(super) geometry: Geometry,
    pub(super) records: Records<T::Key, T::Value>,
    pub(super) table: Region,
    pub(super) headers: Region,
    pub(super) segments: Region,
    pub(super) chains: Region,
    pub(super) segment_blocks: Allocator,
    pub(super) chain_blocks: Allocator,
    /// Per segment: whether this session has recovered it (`recover`).
    pub(super) touched: ZeroedArray<AtomicU8>,
    /// Space that was freed: segments (`eh`), arrays of them (`lh`).
    pub(super) limbo: Limbo,
    /// Held by a split of a segment that has a chain.
    pub(super) chained_split: Mutex<()>,
    pub(super) counts: Counts,
    /// Last, so that everything that leads into its mappings is dropped before.
    pub(super) pm: T::Medium,
}

/// Rare events, counted for `stats` and the benchmarks.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) splits: ShardedCounter,
    /// Records and slots of the segments that were split, for the load factor at splits.
    pub(super) split_records: ShardedCounter,
    pub(super) split_slots: ShardedCounter,
    pub(super) merges: ShardedCounter,
    pub(super) displacements: ShardedCounter,
    pub(super) stash_inserts: ShardedCounter,
    pub(super) chain_inserts: ShardedCounter,
}

/// One segment's buckets, normal ones first.
#[derive(Clone, Copy)]
pub struct Segment<'a> {
    pub(super) id: u32,
    pub(super) buckets: &'a [Bucket],
}

/// Where a key belongs: a segment, and its home and probing bucket there. Buckets stay where they are while the table
/// is open, so this may grow stale but not dangle.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) located: Located,
    pub(super) pair: [&'a Bucket; 2],
}

/// A key's place in a segment.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) bucket: &'a Bucket,
    pub(super) slot: usize,
    pub(super) site: Site,
}

/// Which kind of bucket a record is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// Its home or probing bucket.
    Normal,
    /// A stash bucket, by its number.
    Stash(usize),
    /// A bucket of the chain.
    Chain,
}

impl Site {
    /// The stash bucket's number, as overflow metadata has it.
    pub(super) fn stash_bucket(self) -> Option<usize> {
        match self {
            Site::Stash(bucket) => Some(bucket),
            Site::Normal | Site::Chain => None,
        }
    }
}

/// What an optimistic search says.
pub(super) enum Search<T> {
    /// The answer, validated.
    Sure(T),
    /// A writer came between: start again from the directory.
    Again,
}

/// The segments as blocks of the allocator.
pub(super) struct SegmentBlocks<'a, T: Kinds>(pub(super) &'a Core<T>);

impl<T: Kinds> Blocks for SegmentBlocks<'_, T> {
    fn next(&self, block: u32) -> Result<u64> {
        let link = self.0.link(block)?;
        if link.state != State::Free {
            let offset = u64::from(block) * size_of::<Header>() as u64;
            return Err(self.0.corrupt(
                &self.0.headers,
                offset,
                format!("segment {block} is in the free list and in use"),
            ));
        }
        Ok(link.side.map_or(0, |side| u64::from(side) + 1))
    }

    fn set_next(&self, block: u32, next: u64) -> Result<()> {
        let header = self.0.header(block)?;
        let side = next.checked_sub(1).map(|side| side as u32);
        let free = Link { state: State::Free, depth: 0, side };
        header.link.store(&self.0.pm, free.pack(), Release);
        self.0.pm.persist(&header.link);
        Ok(())
    }

    fn reserve(&self, count: u64) -> Result<()> {
        let core = self.0;
        grow(&core.pm, &core.headers, count, size_of::<Header>() as u64)?;
        grow(&core.pm, &core.segments, count, core.geometry.segment_bytes())
    }
}

/// The chained buckets as blocks of the allocator.
pub(super) struct ChainBlocks<'a, T: Kinds>(pub(super) &'a Core<T>);

impl<T: Kinds> Blocks for ChainBlocks<'_, T> {
    fn next(&self, block: u32) -> Result<u64> {
        Ok(self.0.chain_block(block)?.next.load(&self.0.pm, Acquire))
    }

    fn set_next(&self, block: u32, next: u64) -> Result<()> {
        let block = self.0.chain_block(block)?;
        block.next.store(&self.0.pm, next, Release);
        self.0.pm.persist(&block.next);
        Ok(())
    }

    fn reserve(&self, count: u64) -> Result<()> {
        grow(&self.0.pm, &self.0.chains, count, size_of::<ChainBlock>() as u64)
    }
}

/// The number of segments must fit the files: everything later computes by it.
pub(super) fn check_count<T: Kinds>(core: &Core<T>, segments: u64) -> Result<()> {
    let header_bytes = size_of::<Header>() as u64;
    check_blocks(core, &core.headers, segments, header_bytes)?;
    check_blocks(core, &core.segments, segments, core.geometry.segment_bytes())
}

/// So many blocks must fit their file.
pub(super) fn check_blocks<T: Kinds>(
    core: &Core<T>,
    region: &Region,
    count: u64,
    block_bytes: u64,
) -> Result<()> {
    if count > region.len() / block_bytes {
        let detail = format!("{count} blocks of {block_bytes} bytes should be here");
        return Err(core.corrupt(region, region.len(), detail));
    }
    Ok(())
}

/// Makes `count` blocks usable, and an eighth more so that growth costs few system calls.
fn grow(pm: &impl Medium, region: &Region, count: u64, block_bytes: u64) -> Result<()> {
    let too_much =
        || Error::NoSpace { path: pm.path().join(region.name()), needed_bytes: u64::MAX };
    let needed = count.checked_mul(block_bytes).ok_or_else(too_much)?;
    if needed <= region.len() {
        return Ok(());
    }
    let slack = (needed / 8).min(64 << 20);
    let generous = needed.saturating_add(slack).min(region.max_bytes()).max(needed);
    pm.grow(region, generous).or_else(|_| pm.grow(region, needed))
}

/// Which bucket of a pair, and which of its slots, the first of some [`Core::candidates`] is.
#[inline]
pub(super) fn place_of(candidates: u32) -> (usize, usize) {
    let place = candidates.trailing_zeros() as usize;
    (place / 16, place % 16)
}

impl<T: Kinds> Core<T> {
    /// The root words.
    pub(super) fn root(&self) -> Result<&Root> {
        self.table.at::<Root>(ROOT_OFFSET).ok_or_else(|| {
            self.corrupt(&self.table, ROOT_OFFSET, "the file ends before the root words")
        })
    }

    /// A fault in one of the table's files.
    pub(super) fn corrupt(&self, region: &Region, offset: u64, detail: impl Into<String>) -> Error {
        Error::corrupt(self.pm.path().join(region.name()), offset, detail)
    }

    /// The buckets of a segment.
    #[inline]
    pub(super) fn segment(&self, id: u32) -> Result<Segment<'_>> {
        let offset = u64::from(id) * self.geometry.segment_bytes();
        match self.segments.slice_at(offset, self.geometry.all_buckets()) {
            Some(buckets) => Ok(Segment { id, buckets }),
            None => Err(self.no_segment(id)),
        }
    }

    /// Where in its segment a key belongs; `None`: there is no such segment.
    #[inline(always)]
    pub(super) fn target(&self, located: Located, hash: u64) -> Option<Target<'_>> {
        let (segment, geometry) = (u64::from(located.segment), &self.geometry);
        let first = segment * geometry.segment_bytes();
        let buckets: &[Bucket] = self.segments.slice_at(first, geometry.all_buckets())?;
        let home = geometry.home(hash);
        Some(Target { located, pair: [buckets.get(home)?, buckets.get(geometry.next(home))?] })
    }

    #[cold]
    fn no_segment(&self, id: u32) -> Error {
        let offset = u64::from(id) * self.geometry.segment_bytes();
        self.corrupt(&self.segments, offset, format!("segment {id} lies outside the file"))
    }

    /// The header of a segment.
    pub(super) fn header(&self, id: u32) -> Result<&Header> {
        let offset = u64::from(id) * size_of::<Header>() as u64;
        self.headers.at(offset).ok_or_else(|| {
            self.corrupt(&self.headers, offset, format!("segment {id} lies outside the file"))
        })
    }

    /// The unpacked link word of a segment.
    pub(super) fn link(&self, id: u32) -> Result<Link> {
        let word = self.header(id)?.link.load(&self.pm, Acquire);
        Link::unpack(word).ok_or_else(|| {
            self.corrupt(
                &self.headers,
                u64::from(id) * size_of::<Header>() as u64,
                format!("link word {word:#x} of segment {id}"),
            )
        })
    }

    /// A block of the chain region.
    pub(super) fn chain_block(&self, block: u32) -> Result<&ChainBlock> {
        let offset = u64::from(block) * size_of::<ChainBlock>() as u64;
        self.chains.at(offset).ok_or_else(|| {
            self.corrupt(
                &self.chains,
                offset,
                format!("chained bucket {block} lies outside the file"),
            )
        })
    }

    /// The first block of a segment's chain, which is not empty.
    pub(super) fn chain_head(&self, segment: u32) -> Result<u32> {
        let word = self.header(segment)?.chain.load(&self.pm, Acquire);
        Ok(word.wrapping_sub(1) as u32)
    }

    /// The blocks of a segment's chain. Ends in an error when there are more than were ever handed out: a cycle.
    pub(super) fn chain(&self, segment: u32) -> impl Iterator<Item = Result<(u32, &ChainBlock)>> {
        let mut next = self.header(segment).map(|header| header.chain.load(&self.pm, Acquire));
        let mut left = self.root().map_or(0, |words| Allocator::bound(&self.pm, &words.chains));
        std::iter::from_fn(move || match std::mem::replace(&mut next, Ok(0)) {
            Err(error) => Some(Err(error)),
            Ok(0) => None,
            Ok(_) if left == 0 => Some(Err(self.corrupt(
                &self.chains,
                0,
                format!("the chain of segment {segment} is a cycle"),
            ))),
            Ok(word) => {
                left -= 1;
                let block = (word - 1) as u32;
                let found = self.chain_block(block);
                if let Ok(found) = &found {
                    next = Ok(found.next.load(&self.pm, Acquire));
                }
                Some(found.map(|found| (block, found)))
            }
        })
    }

    /// The stash buckets of a segment.
    #[inline]
    pub(super) fn stash<'a>(&self, segment: Segment<'a>) -> &'a [Bucket] {
        &segment.buckets[self.geometry.buckets as usize..]
    }

    /// A key's home and probing bucket.
    #[inline]
    pub(super) fn pair<'a>(&self, segment: Segment<'a>, hash: u64) -> [&'a Bucket; 2] {
        let home = self.geometry.home(hash);
        [&segment.buckets[home], &segment.buckets[self.geometry.next(home)]]
    }

    /// Finds a key without a lock (Algorithm 3). `current` tells whether the segment is still the key's, asked after
    /// the versions have been read. What `take` makes of the value word counts only if the versions still hold
    /// afterwards.
    #[inline(always)]
    pub(super) fn search<R>(
        &self,
        Target { located, pair }: Target<'_>,
        probe: &Probe<'_>,
        current: impl FnOnce() -> bool,
        take: impl FnOnce(u64) -> R,
    ) -> Result<Search<Option<R>>> {
        let pm = &self.pm;
        let locks = pair.map(|bucket| bucket.version_lock(pm));
        // Acquire (E1), in `read_begin`: pairs with the Release of the unlocking writer.
        let versions = locks.map(version_lock::read_begin);
        let valid = || {
            locks.iter().zip(versions).all(|(&lock, version)| version_lock::validate(lock, version))
        };
        if !current() {
            return Ok(Search::Again);
        }
        let found = match self.find_in_pair(pair, probe) {
            Ok(Some((which, slot))) => Ok(Some(pair[which].value(slot).load(pm, PROTECTED))),
            Ok(None) => match self.stash_hint(pair, probe.hash) {
                hint if hint.is_empty() => Ok(None),
                hint => self.search_stash(located.segment, probe, hint),
            },
            Err(error) => Err(error),
        };
        // Hits, misses and faults alike count only when nobody wrote meanwhile.
        if !valid() {
            pm.forget_reads();
            return Ok(Search::Again);
        }
        Ok(Search::Sure(found?.map(take)))
    }

    /// Bit per slot of the two buckets (those of the probing bucket from bit 16 on) that holds a record with the key's
    /// fingerprint.
    #[inline]
    pub(super) fn candidates(&self, pair: [&Bucket; 2], hash: u64) -> u32 {
        let [home, probing] = pair.map(|bucket| move || self.candidates_in(bucket, hash));
        if T::Ablation::PARTS.probing { home() | probing() << 16 } else { home() }
    }

    /// Bit per slot of a bucket that holds a record with the key's fingerprint.
    #[inline]
    fn candidates_in(&self, bucket: &Bucket, hash: u64) -> u32 {
        if T::Ablation::PARTS.fingerprints {
            bucket.candidates(&self.pm, hash)
        } else {
            bucket.meta(&self.pm).allocated()
        }
    }

    /// Whether a slot, if it is taken, holds the key.
    #[inline]
    fn holds(&self, bucket: &Bucket, slot: usize, probe: &Probe<'_>) -> Result<bool> {
        // PROTECTED (E3): pairs with the Release in `store_record`; a reference that we see leads to a written blob,
        // which our pin keeps.
        let word = bucket.slots[slot].key.load(&self.pm, PROTECTED);
        if T::Ablation::PARTS.fingerprints {
            self.records.matches(&self.pm, word, probe)
        } else {
            self.records.is_key(&self.pm, word, probe)
        }
    }

    /// The slot of a bucket that holds the key.
    #[inline]
    fn find_in(&self, bucket: &Bucket, probe: &Probe<'_>) -> Result<Option<usize>> {
        let mut candidates = self.candidates_in(bucket, probe.hash);
        while candidates != 0 {
            let slot = candidates.trailing_zeros() as usize;
            if self.holds(bucket, slot, probe)? {
                return Ok(Some(slot));
            }
            candidates &= candidates - 1;
        }
        Ok(None)
    }

    /// Where the stash may hold a key with this hash.
    #[inline]
    fn stash_hint(&self, [home, probing]: [&Bucket; 2], hash: u64) -> StashHint {
        if !T::Ablation::PARTS.overflow_metadata {
            return StashHint { buckets: 0, all: true };
        }
        let probing = if T::Ablation::PARTS.probing { probing } else { home };
        stash::hint(&self.pm, [home, probing], hash)
    }

    /// Which of the two buckets, and which of its slots, holds the key. Both are compared at once: which one it will be
    /// is anybody's guess.
    #[inline]
    fn find_in_pair(
        &self,
        pair: [&Bucket; 2],
        probe: &Probe<'_>,
    ) -> Result<Option<(usize, usize)>> {
        let mut candidates = self.candidates(pair, probe.hash);
        while candidates != 0 {
            let (which, slot) = place_of(candidates);
            if self.holds(pair[which], slot, probe)? {
                return Ok(Some((which, slot)));
            }
            candidates &= candidates - 1;
        }
        Ok(None)
    }

    /// The value word of a key in the stash or its chain. Validates each stash bucket itself; the home bucket's
    /// version, which every change to its overflow records steps, is validated by the caller.
    #[cold]
    fn search_stash(
        &self,
        segment: u32,
        probe: &Probe<'_>,
        hint: StashHint,
    ) -> Result<Option<u64>> {
        let (pm, segment) = (&self.pm, self.segment(segment)?);
        let stash = self.stash(segment).iter().enumerate();
        let hinted = stash
            .filter(|(number, _)| hint.all || hint.buckets >> number & 1 == 1)
            .map(|(_, bucket)| Ok(bucket));
        let chained = hint
            .all
            .then(|| self.chain(segment.id).map(|block| block.map(|(_, block)| &block.bucket)));
        for bucket in hinted.chain(chained.into_iter().flatten()) {
            let bucket = bucket?;
            let value = loop {
                let lock = bucket.version_lock(pm);
                let version = version_lock::read_begin(lock);
                let value = self
                    .find_in(bucket, probe)
                    .map(|slot| slot.map(|slot| bucket.value(slot).load(pm, PROTECTED)));
                if version_lock::validate(lock, version) {
                    break value;
                }
                pm.forget_reads();
            };
            if let Some(value) = value? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Finds a key under the locks of its home and probing bucket, which keep every record of that home in its place.
    #[inline]
    pub(super) fn find_locked<'a>(
        &'a self,
        segment: u32,
        pair: [&'a Bucket; 2],
        probe: &Probe<'_>,
    ) -> Result<Option<Found<'a>>> {
        if let Some((which, slot)) = self.find_in_pair(pair, probe)? {
            return Ok(Some(Found { bucket: pair[which], slot, site: Site::Normal }));
        }
        let hint = self.stash_hint(pair, probe.hash);
        if hint.is_empty() {
            return Ok(None);
        }
        self.find_stashed(segment, probe, hint)
    }

    #[cold]
    fn find_stashed<'a>(
        &'a self,
        segment: u32,
        probe: &Probe<'_>,
        hint: StashHint,
    ) -> Result<Option<Found<'a>>> {
        let segment = self.segment(segment)?;
        for (number, bucket) in self.stash(segment).iter().enumerate() {
            if (hint.all || hint.buckets >> number & 1 == 1)
                && let Some(slot) = self.find_in(bucket, probe)?
            {
                return Ok(Some(Found { bucket, slot, site: Site::Stash(number) }));
            }
        }
        if hint.all {
            for block in self.chain(segment.id) {
                let bucket = &block?.1.bucket;
                if let Some(slot) = self.find_in(bucket, probe)? {
                    return Ok(Some(Found { bucket, slot, site: Site::Chain }));
                }
            }
        }
        Ok(None)
    }

    /// Records in a segment, its chain included.
    pub(super) fn count(&self, segment: Segment<'_>) -> Result<u64> {
        let in_buckets: u64 =
            segment.buckets.iter().map(|bucket| u64::from(bucket.meta(&self.pm).count())).sum();
        self.chain(segment.id).try_fold(in_buckets, |sum, block| {
            Ok(sum + u64::from(block?.1.bucket.meta(&self.pm).count()))
        })
    }

    /// Every bucket of a segment with the site that its records have.
    pub(super) fn sites<'a>(
        &'a self,
        segment: Segment<'a>,
    ) -> impl Iterator<Item = Result<(Site, &'a Bucket)>> {
        let normal = self.geometry.buckets as usize;
        let own = segment.buckets.iter().enumerate().map(move |(number, bucket)| {
            let site = if number < normal { Site::Normal } else { Site::Stash(number - normal) };
            Ok((site, bucket))
        });
        own.chain(
            self.chain(segment.id)
                .map(|block| block.map(|(_, block)| (Site::Chain, &block.bucket))),
        )
    }

    /// Whether a segment has been recovered in this session.
    #[inline]
    pub(super) fn is_touched(&self, id: u32) -> bool {
        // Acquire: pairs with the Release in `mark_ready`; who sees the mark sees the reset locks.
        self.touched
            .get(id as usize)
            .is_some_and(|state| state.load(Acquire) == super::recover::READY)
    }

    /// Protects by-reference records from reuse.
    #[inline]
    pub(super) fn pin(&self) -> Pin<'_> {
        self.records.pin()
    }

    /// Locks all buckets of a segment, in the one order in which any thread waits for several. That covers its chain,
    /// whose buckets are locked only by holders of a home bucket's lock; their own locks are left alone, because a
    /// split may free them before this guard ends.
    pub(super) fn lock_all<'a>(
        &'a self,
        segment: Segment<'a>,
    ) -> Vec<super::bucket::Guard<'a, T::Medium>> {
        segment.buckets.iter().map(|bucket| bucket.lock(&self.pm)).collect()
    }
}
