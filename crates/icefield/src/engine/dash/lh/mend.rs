//! Repairs a damaged table that is opened for salvage. The root word gives the places of the arrays; the records of a
//! segment determine its depth.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{Growth, Lh};
use crate::Result;
use crate::engine::dash::extent::{self, Extent};
use crate::engine::dash::kinds::Kinds;
use crate::engine::dash::layout::{Link, State};
use crate::engine::dash::root::entry_of;
use crate::engine::dash::segment::Core;
use crate::engine::mending::Mending;

impl Lh {
    pub(super) fn mend_all<T: Kinds>(
        core: &Core<T>,
        growth: Growth,
        mending: &Mending,
    ) -> Result<()> {
        let extent = Extent::unpack(core.root()?.directory.load(&core.storage, Acquire));
        let lh = Self::map(&core.storage, growth, extent)?;
        if !extent.is_possible(lh.arrays.first_bits()) {
            // Opening the table reports this error.
            return Ok(());
        }
        let parity = extent.parity();
        let arrays = lh.arrays.arrays_for(extent.count());
        mending.lengthen(&core.storage, lh.base.region(parity), lh.arrays.most() * 8)?;
        for array in 0..arrays {
            let place = lh.arrays.place(array, parity);
            let entry = &lh.base.entries(&core.storage, parity, array..array + 1)?[0];
            if lh.base.entry(&core.storage, parity, array) != Some(place as u32) {
                entry.store(&core.storage, entry_of(place as u32), Relaxed);
            }
            core.mend_segments(place + lh.arrays.size(array), mending)?;
        }
        lh.mend_headers(core, extent, mending)
    }

    /// Makes headers for segments without one, unless the split that makes the segment is still due.
    fn mend_headers<T: Kinds>(
        &self,
        core: &Core<T>,
        extent: Extent,
        mending: &Mending,
    ) -> Result<()> {
        let mut made = Vec::new();
        for index in 0..extent.count() {
            let id = self.id(extent, index);
            if !core.has_no_header(id) {
                continue;
            }
            let mut least = self.arrays.first_bits();
            if index >= self.arrays.first() {
                least = extent::birth_depth(index);
                let source = core.link(self.id(extent, extent::source(index)));
                // A split stores the source's new depth at its end, after the commit point, so a splitting source
                // counts one bit more.
                let depth = |link: Link| link.depth + u32::from(link.state == State::Splitting);
                if source.map_or(0, depth) < least {
                    continue;
                }
            }
            let pattern = extent::pattern(index);
            let depths = least..=extent.depth(pattern);
            let depth = core.depth_by_records(id, pattern, depths)?;
            made.push(core.mend_header(id, pattern, depth, Self::birth(extent))?);
        }
        core.tell_mended_headers(&made, mending)
    }
}
