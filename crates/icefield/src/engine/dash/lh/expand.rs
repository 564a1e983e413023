//! Growth in linear hashing: expansions, and the arrays of segments that they need (§5.1, §5.2).

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Release;

use super::growth::Expansion;
use super::{Lh, runs};
use crate::Result;
use crate::engine::dash::extent::{self, Extent};
use crate::engine::dash::kinds::Kinds;
use crate::engine::dash::layout::{Header, Link, State};
use crate::engine::dash::marks::READY;
use crate::engine::dash::recover::ensure_recovered;
use crate::engine::dash::root::entry_of;
use crate::engine::dash::segment::{Core, Segment};
use crate::engine::dash::split::MAX_CHAIN_TO_SPLIT;
use crate::storage::{Medium, Regions};

impl Lh {
    /// Makes sure that an array exists before its first segment is added. When an array is removed, its entry stays and
    /// is ignored.
    fn provide<T: Kinds>(&self, core: &Core<T>, extent: Extent, array: u64) -> Result<()> {
        let (storage, parity) = (&core.storage, extent.parity());
        let place = self.arrays.place(array, parity);
        let end = place + self.arrays.size(array);
        storage.grow(&core.headers, end * size_of::<Header>() as u64)?;
        let bytes = core.geometry.segment_bytes();
        storage.grow(&core.segments, end * bytes)?;
        core.reach()?;
        // The array may have existed before, and its space may have been returned to the file system.
        storage.reserve(&core.segments, place * bytes, (end - place) * bytes)?;
        if self.base.entry(storage, parity, array) == Some(place as u32) {
            return Ok(());
        }
        for entry in self.base.entries(storage, parity, array..array + 1)? {
            // Release (E4): the array that the entry names exists.
            entry.store(storage, entry_of(place as u32), Release);
            // P13: the entry is durable before the root word counts a segment of the array.
            storage.persist(entry);
        }
        Ok(())
    }

    /// Adds a segment; the split that makes it is due from then on. Returns `false` if the table has the maximum number
    /// of segments.
    pub(super) fn expand<T: Kinds>(&self, core: &Core<T>) -> Result<bool> {
        let _alone = self.expanding.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.extent();
        let Some(new) = old.grown() else { return Ok(false) };
        // Recover the source first: after a crash its link word may still describe a contraction that removed the same
        // segment (`is_merged`).
        ensure_recovered(core, self, self.id(old, extent::source(old.count())))?;
        let (array, within) = self.arrays.array_of(old.count());
        if within == 0 {
            self.provide(core, old, array)?;
        }
        self.base.set_word(&core.storage, core.root()?, new.pack());
        self.expansions.add(1);
        Ok(true)
    }

    /// Returns whether the table should grow, now that a segment is about to get a chained bucket.
    pub(super) fn shall_expand<T: Kinds>(
        &self,
        core: &Core<T>,
        segment: Segment<'_>,
        records: impl Fn() -> u64,
    ) -> Result<bool> {
        let segments = self.extent().count();
        Ok(match self.expansion {
            Expansion::ChainedBucket => {
                // Without this condition, many equal hashes would make the table grow without end.
                let chained = core.chains.used(&core.storage, &core.root()?.chains);
                chained <= segments / 2
                    || core.chain(segment.id).take(MAX_CHAIN_TO_SPLIT + 1).count()
                        <= MAX_CHAIN_TO_SPLIT
            }
            Expansion::Load { percent } => {
                let slots = segments * core.geometry.segment_slots();
                records().saturating_mul(100) > slots.saturating_mul(percent.into())
            }
        })
    }

    pub(super) fn lay_out<T: Kinds>(&self, core: &Core<T>, extent: Extent) -> Result<()> {
        for array in 0..self.arrays.arrays_for(extent.count()) {
            self.provide(core, extent, array)?;
        }
        for run in runs(extent) {
            let id = self.id(extent, extent.index(run.first));
            let side = run.last.checked_add(1).map(|next| self.id(extent, extent.index(next)));
            let fresh = !core.marks.is_ready(id);
            let mut new = core.renew_segment(id, fresh, Self::birth(extent))?;
            let link = Link { state: State::Stable, depth: run.depth, side };
            core.complete(&new, link, run.first)?;
            core.marks.set(id, READY);
            new.unlock();
        }
        Ok(())
    }
}
