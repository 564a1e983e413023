//! Segments and chained buckets as blocks of the allocator, and how many of them a file must hold.

use std::sync::atomic::Ordering::{Acquire, Release};

use super::kinds::Kinds;
use super::layout::{ChainBlock, Header, Link, State};
use super::segment::Core;
use crate::pm::alloc::Blocks;
use crate::pm::{Medium, Region};
use crate::{Error, Result};

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

/// Makes `count` blocks usable, and some more so that growth costs few system calls: an eighth in a small file, a
/// thirty-second in a large one, for a table that becomes smaller keeps them.
fn grow(pm: &impl Medium, region: &Region, count: u64, block_bytes: u64) -> Result<()> {
    let too_much =
        || Error::NoSpace { path: pm.path().join(region.name()), needed_bytes: u64::MAX };
    let needed = count.checked_mul(block_bytes).ok_or_else(too_much)?;
    if needed <= region.len() {
        return Ok(());
    }
    let slack = (needed / 8).min(1 << 20).max(needed / 32).min(64 << 20);
    let generous = needed.saturating_add(slack).min(region.max_bytes()).max(needed);
    pm.grow(region, generous).or_else(|_| pm.grow(region, needed))
}
