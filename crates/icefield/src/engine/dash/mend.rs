//! Repairs a damaged table that is opened for salvage, in private memory: replaces missing segments and chained buckets
//! by zeros, and lost headers by new ones.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::kinds::Kinds;
use super::layout::{Bucket, Header, Link, State};
use super::root::hashes_below;
use super::segment::Core;
use crate::Result;
use crate::engine::mending::Mending;

impl<T: Kinds> Core<T> {
    /// Replaces missing segments by zeros, which means that they are empty. Returns the number of segments afterwards.
    pub(super) fn mend_segments(&self, segments: u64, mending: &Mending) -> Result<u64> {
        let (storage, bytes) = (&self.storage, size_of::<Header>() as u64);
        let segments = mending.lengthen_blocks(storage, &self.headers, segments, bytes)?;
        mending.lengthen_blocks(storage, &self.segments, segments, self.geometry.segment_bytes())
    }

    /// Returns whether the header of a segment is missing or has an impossible link word.
    pub(super) fn has_no_header(&self, id: u32) -> bool {
        self.header(id).is_ok_and(|it| Link::unpack(it.link.load(&self.storage, Acquire)).is_none())
    }

    /// Returns the depth of a segment without a header: the largest depth at which less than an eighth of its records
    /// belong to other segments. If a split is due, about half of the records belong to another segment at the next
    /// depth. A few records may be damaged.
    pub(super) fn depth_by_records(
        &self,
        id: u32,
        pattern: u64,
        depths: RangeInclusive<u32>,
    ) -> Result<u32> {
        let segment = self.segment(id)?;
        let mut hashes = Vec::new();
        for bucket in segment.buckets {
            let slots = Bucket::slots_of(bucket.meta(&self.storage).allocated());
            hashes.extend(slots.filter_map(|slot| self.hash_at(bucket, slot).ok()));
        }
        let least = *depths.start();
        let fits = |&depth: &u32| {
            let is_elsewhere = |hash: &&u64| *hash & !hashes_below(depth) != pattern;
            8 * hashes.iter().filter(is_elsewhere).count() < hashes.len().max(1)
        };
        Ok(depths.rev().find(fits).unwrap_or(least))
    }

    /// Makes a header for a segment that has none. Returns whether the segment keeps its chain, which it does if only
    /// the link word was damaged and the other words are right.
    pub(super) fn mend_header(
        &self,
        id: u32,
        pattern: u64,
        depth: u32,
        birth: u64,
    ) -> Result<bool> {
        let (storage, header) = (&self.storage, self.header(id)?);
        let keeps_chain = header.link.load(storage, Acquire) != 0
            && header.pattern.load(storage, Acquire) == pattern
            && header.birth.load(storage, Acquire) == birth;
        if !keeps_chain {
            header.chain.store(storage, 0, Relaxed);
        }
        header.pattern.store(storage, pattern, Relaxed);
        header.birth.store(storage, birth, Relaxed);
        let link = Link { state: State::Stable, depth, side: None };
        header.link.store(storage, link.pack(), Relaxed);
        Ok(keeps_chain)
    }

    /// Reports the new headers. `made` has one value for each: whether its segment kept its chain.
    pub(super) fn tell_mended_headers(&self, made: &[bool], mending: &Mending) -> Result<()> {
        if !made.is_empty() {
            mending.note(format!("{} segment headers rebuilt", made.len()));
        }
        if made.contains(&false) && self.chains.used(&self.storage, &self.root()?.chains) > 0 {
            mending.note("the chained buckets of these segments are lost".to_owned());
        }
        Ok(())
    }
}
