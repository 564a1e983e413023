//! Shrinking in linear hashing: contraction, return of the space of arrays.

use std::sync::PoisonError;

use super::Lh;
use crate::Result;
use crate::engine::dash::extent;
use crate::engine::dash::kinds::Kinds;
use crate::engine::dash::layout::State;
use crate::engine::dash::recover::ensure_recovered;
use crate::engine::dash::segment::Core;
use crate::engine::slots::EpochGuard;
use crate::storage::{Regions, SimHooks};

impl Lh {
    /// Merges the last segment into the one that it was split off from, if both have few enough records.
    pub(super) fn contract<T: Kinds>(
        &self,
        core: &Core<T>,
        pin: &EpochGuard<'_>,
        percent: u64,
    ) -> Result<bool> {
        let _structure = self.base.shared();
        let _alone = self.expanding.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.extent();
        let least = self.arrays.first().max(self.base.floor());
        let Some(new) = old.shrunk(least) else { return Ok(false) };
        let last = new.count();
        let ids = [extent::source(last), last].map(|index| self.id(old, index));
        // `ensure_recovered` performs the split that makes the last segment, if that split is still due. The last
        // segment cannot be the source of another one. The first count reads through `read_unvalidated`, because the
        // records are counted again under the locks.
        if !ensure_recovered(core, self, ids[1])?
            || !core.storage.read_unvalidated(|| core.fit_in_one(ids, percent))?
        {
            return Ok(false);
        }
        let [left, right] = [core.hold(ids[0])?, core.hold(ids[1])?];
        let depth = extent::birth_depth(last);
        let links = [core.link(ids[0])?, core.link(ids[1])?];
        let fits = links.iter().all(|link| (link.state, link.depth) == (State::Stable, depth))
            && core.fit_in_one(ids, percent)?;
        if !fits {
            return Ok(false);
        }
        let merged = core.merge(&left, &right, || {
            // P24, commit point of the merge; also P12 of the contraction.
            self.base.set_word(&core.storage, core.root()?, new.pack());
            core.marks.away(ids[1]);
            // P26: the merge is finished.
            core.set_link(ids[0], State::Stable, depth - 1, links[1].side)
        })?;
        if merged {
            self.contractions.add(1);
            let (array, within) = self.arrays.array_of(last);
            if within == 0 {
                // The array's space is returned once no operation can access it.
                core.deferred_free.enter(pin, array as u32);
            }
        }
        Ok(merged)
    }

    /// Punches removed arrays that no operation can access any more. If one cannot be punched, the others are punched
    /// all the same.
    pub(super) fn punch_arrays<T: Kinds>(&self, core: &Core<T>) -> Result<()> {
        let _alone = self.expanding.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = core.geometry.segment_bytes();
        let mut punched = Ok(());
        for array in core.deferred_free.leave() {
            let (space, array, parity) = (array, u64::from(array), self.extent().parity());
            // Skips an array that exists again, or that was freed once more and may still be accessed.
            if array > 0
                && self.arrays.start(array) >= self.extent().count()
                && !core.deferred_free.waits(space)
            {
                let (start, size) = (self.arrays.place(array, parity), self.arrays.size(array));
                let done = core.storage.punch(&core.segments, start * bytes, size * bytes);
                punched = punched.and(done);
            }
        }
        punched
    }
}
