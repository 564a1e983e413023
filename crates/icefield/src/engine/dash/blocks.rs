//! Segments as blocks of the allocator, and the check of their number against the file sizes.

use std::sync::atomic::Ordering::Release;

use super::kinds::Kinds;
use super::layout::{Header, Link, State};
use super::segment::Core;
use crate::Result;
use crate::storage::Medium;
use crate::storage::alloc::{Blocks, check_length, reserve_blocks};

pub(super) struct SegmentBlocks<'a, T: Kinds>(pub(super) &'a Core<T>);

impl<T: Kinds> Blocks for SegmentBlocks<'_, T> {
    fn find(&self, block: u32) -> Result<()> {
        self.0.header(block).map(drop)
    }

    fn next(&self, block: u32) -> Result<u64> {
        let link = self.0.link(block)?;
        if link.state != State::Free {
            let offset = u64::from(block) * size_of::<Header>() as u64;
            return Err(self.0.headers.fault(
                &self.0.storage,
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
        header.link.store(&self.0.storage, free.pack(), Release);
        self.0.storage.flush_object(&header.link);
        Ok(())
    }

    fn reserve(&self, count: u64) -> Result<()> {
        let core = self.0;
        reserve_blocks(&core.storage, &core.headers, count, size_of::<Header>() as u64)?;
        reserve_blocks(&core.storage, &core.segments, count, core.geometry.segment_bytes())?;
        core.reach()
    }
}

/// Checks that the files can hold `segments` segments; all later code relies on this.
pub(super) fn check_count<T: Kinds>(core: &Core<T>, segments: u64) -> Result<()> {
    let header_bytes = size_of::<Header>() as u64;
    check_length(&core.storage, &core.headers, segments, header_bytes)?;
    check_length(&core.storage, &core.segments, segments, core.geometry.segment_bytes())
}
