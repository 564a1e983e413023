//! Segments and chained buckets as blocks of the allocator, and checks of their number against the file sizes.

use std::sync::atomic::Ordering::{Acquire, Release};

use super::kinds::Kinds;
use super::layout::{ChainBlock, Header, Link, State};
use super::segment::Core;
use crate::Result;
use crate::storage::alloc::{Blocks, reserve_blocks};
use crate::storage::{Medium, Region};

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

pub(super) struct ChainBlocks<'a, T: Kinds>(pub(super) &'a Core<T>);

impl<T: Kinds> Blocks for ChainBlocks<'_, T> {
    fn next(&self, block: u32) -> Result<u64> {
        Ok(self.0.chain_block(block)?.next.load(&self.0.storage, Acquire))
    }

    fn set_next(&self, block: u32, next: u64) -> Result<()> {
        let block = self.0.chain_block(block)?;
        block.next.store(&self.0.storage, next, Release);
        self.0.storage.flush_object(&block.next);
        Ok(())
    }

    fn reserve(&self, count: u64) -> Result<()> {
        reserve_blocks(&self.0.storage, &self.0.chains, count, size_of::<ChainBlock>() as u64)
    }
}

/// Checks that the files can hold `segments` segments: all later code relies on it.
pub(super) fn check_count<T: Kinds>(core: &Core<T>, segments: u64) -> Result<()> {
    let header_bytes = size_of::<Header>() as u64;
    check_blocks(core, &core.headers, segments, header_bytes)?;
    check_blocks(core, &core.segments, segments, core.geometry.segment_bytes())
}

/// Checks that a file can hold `count` blocks.
pub(super) fn check_blocks<T: Kinds>(
    core: &Core<T>,
    region: &Region,
    count: u64,
    block_bytes: u64,
) -> Result<()> {
    if count > region.len() / block_bytes {
        let detail = format!("the file is shorter than its {count} blocks of {block_bytes} bytes");
        return Err(core.corrupt(region, region.len(), detail));
    }
    Ok(())
}
