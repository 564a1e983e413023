//! Growth in extendible hashing: splits and the doubling of the directory (§4.7).

use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::Eh;
use crate::Result;
use crate::engine::dash::bucket::Guard;
use crate::engine::dash::directory::Directory;
use crate::engine::dash::kinds::{Ablation, Kinds};
use crate::engine::dash::layout::{MAX_DEPTH, RootWord};
use crate::engine::dash::segment::{Core, Segment};
use crate::engine::dash::split::MAX_CHAIN_TO_SPLIT;
use crate::storage::Persist;

/// Maximum number of directory entries per segment. If a split would exceed this limit, the segment's chain is
/// lengthened instead. With random hashes the ratio stays below 4. Without the limit, many equal hashes would double
/// the directory without end.
const MAX_ENTRIES_PER_SEGMENT: u64 = 16;

impl<A: Ablation> Eh<A> {
    /// Doubles the directory; the caller holds the entries' mutex. Returns `false` if the directory would become too
    /// large.
    fn double<T: Kinds>(&self, core: &Core<T>) -> Result<bool> {
        let storage = &core.storage;
        let old = self.root();
        let new = RootWord { depth: old.depth + 1, ..old };
        let used = core.segment_blocks.used(storage, &core.root()?.segments);
        if new.depth > MAX_DEPTH || 1 << new.depth > used.saturating_mul(MAX_ENTRIES_PER_SEGMENT) {
            return Ok(false);
        }
        self.base.grow(storage, new.parity(), 2 << new.depth)?;
        let (from, to) = (self.entries(storage, old)?, self.entries(storage, new)?);
        for (index, entry) in from.iter().enumerate() {
            let entry = entry.load(storage, Relaxed);
            // Release (E4), as for every entry; no thread reads these before P12.
            to[2 * index].store(storage, entry, Release);
            to[2 * index + 1].store(storage, entry, Release);
        }
        storage.flush(to.as_ptr().cast(), size_of_val(to));
        // P13: the new directory is durable before the root names it.
        storage.fence();
        self.base.set_word(&core.storage, core.root()?, new.pack());
        self.doublings.add(1);
        Ok(true)
    }

    /// Splits a locked segment. Returns `false` if the directory may not grow that far, or the segment's chain is too
    /// long.
    pub(super) fn split<T: Kinds>(
        &self,
        core: &Core<T>,
        segment: Segment<'_>,
        guards: &[Guard<'_, T::Medium>],
    ) -> Result<bool> {
        let chained = core.chain(segment.id).take(MAX_CHAIN_TO_SPLIT + 1).count();
        if chained > MAX_CHAIN_TO_SPLIT {
            return Ok(false);
        }
        // Only one split at a time may allocate chained buckets, so that the allocator's few intents suffice.
        let _alone = (chained > 0)
            .then(|| core.chained_split.lock().unwrap_or_else(PoisonError::into_inner));
        let link = core.link(segment.id)?;
        {
            let _entries = self.lock_entries();
            if link.depth >= self.root().depth && !self.double(core)? {
                return Ok(false);
            }
        }
        let new = core.new_segment(segment.id)?;
        core.split_into(self, segment, guards, new)?;
        Ok(true)
    }

    /// Splits the segment of `hash` until it has at least depth `depth`, or until it cannot be split.
    pub(super) fn deepen<T: Kinds>(&self, core: &Core<T>, hash: u64, depth: u32) -> Result<()> {
        let _structure = self.base.shared();
        loop {
            let located = self.ready(core, hash)?;
            let segment = core.segment(located.segment)?;
            let guards = core.lock_all(segment);
            if self.is_current(core, hash, located)
                && (core.link(segment.id)?.depth >= depth || !self.split(core, segment, &guards)?)
            {
                return Ok(());
            }
        }
    }
}
