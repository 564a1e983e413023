//! Due splits: in linear hashing the first thread that needs the new segment performs the split (§5.3).

use std::sync::atomic::Ordering::Acquire;

use super::Lh;
use crate::Result;
use crate::engine::dash::extent::{self, Extent};
use crate::engine::dash::kinds::Kinds;
use crate::engine::dash::layout::{Link, MAX_DEPTH, State};
use crate::engine::dash::located::Standing;
use crate::engine::dash::recover::ensure_recovered;
use crate::engine::dash::segment::Core;

impl Lh {
    /// Performs the next due split of a hash's segment, whose depth is `depth`.
    pub(super) fn catch_up<T: Kinds>(&self, core: &Core<T>, hash: u64, depth: u32) -> Result<()> {
        let extent = self.extent();
        let child = extent::child(extent.index(hash), depth);
        ensure_recovered(core, self, self.id(extent, child)).map(|_| ())
    }

    /// Returns the link word of a segment that this session has recovered, after checking it against the segment's
    /// number.
    fn link<T: Kinds>(&self, core: &Core<T>, extent: Extent, index: u64) -> Result<Link> {
        let id = self.id(extent, index);
        let (link, pattern) =
            (core.link(id)?, core.header(id)?.pattern.load(&core.storage, Acquire));
        let least = if index < self.arrays.first() {
            self.arrays.first_bits()
        } else {
            extent::birth_depth(index)
        };
        if link.state == State::Free || link.depth < least || pattern != extent::pattern(index) {
            let detail =
                format!("segment {id} ({link:?}, pattern {pattern:#x}) is not number {index}");
            return Err(core.headers.fault(&core.storage, u64::from(id) * 32, detail));
        }
        Ok(link)
    }

    /// Splits the source of segment `index` if the source has exactly the depth at which that split is due. Returns
    /// whether the source was split.
    fn give_birth<T: Kinds>(
        &self,
        core: &Core<T>,
        extent: Extent,
        index: u64,
        fresh: bool,
    ) -> Result<bool> {
        let source = extent::source(index);
        let segment = core.segment(self.id(extent, source))?;
        let guards = core.lock_all(segment);
        let link = self.link(core, extent, source)?;
        if link.state != State::Stable || link.depth + 1 != extent::birth_depth(index) {
            return Ok(false);
        }
        let new = core.renew_segment(self.id(extent, index), fresh, Self::birth(extent))?;
        core.split_into(self, segment, &guards, new)?;
        Ok(true)
    }

    /// Performs the split that makes a segment, if that split is still due. Returns the state of the segment.
    pub(super) fn make_if_due<T: Kinds>(
        &self,
        core: &Core<T>,
        segment: u32,
        fresh: bool,
    ) -> Result<Standing> {
        let extent = self.extent();
        let Some(index) = self.index(extent, segment) else { return Ok(Standing::Elsewhere) };
        if index < self.arrays.first() {
            return Ok(Standing::Whole);
        }
        let (source, due) = (extent::source(index), extent::birth_depth(index) - 1);
        for _ in 0..2 * MAX_DEPTH {
            if !ensure_recovered(core, self, self.id(extent, source))? {
                let is_due = core.marks.is_due(self.id(extent, source));
                return Ok(if is_due { Standing::Due } else { Standing::Elsewhere });
            }
            let link = self.link(core, extent, source)?;
            let depth = link.depth + u32::from(link.state == State::Splitting);
            if depth > due {
                return Ok(Standing::Whole);
            }
            if core.still.is_some() {
                return Ok(Standing::Due);
            }
            if depth < due {
                // An earlier split of the source is due first.
                ensure_recovered(core, self, self.id(extent, extent::child(source, depth)))?;
            } else if self.give_birth(core, extent, index, fresh)? {
                return Ok(Standing::Born);
            }
        }
        let detail =
            format!("the split of segment {source} that makes segment {index} does not end");
        Err(core.headers.fault(&core.storage, u64::from(segment) * 32, detail))
    }
}
