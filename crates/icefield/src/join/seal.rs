//! Sealing a generation whose records and groups are durable: wide groups, checksums, header.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::layout::{
    BLOCK_BYTES, BUCKETS, ENDS_WORD, FILTER_WORD, FIRST_WORD, GROUP_BYTES, Layout, NARROW_RECORDS,
    Root, Sealed, WIDE, WIDE_BYTES, WIDE_WORDS, as_bytes, short,
};
use super::line::Line;
use super::plan::{RECORDS_PER_THREAD, Site};
use crate::Result;
use crate::base::hash::Hash;
use crate::base::parallel::{Tasks, in_parallel, threads_for};
use crate::storage::{Cell64, Medium, Region};

/// Number of blocks of one task.
const SUMMED_BLOCKS: u64 = 256;

/// A group whose line cannot hold the ends of its buckets, because it has too many records.
pub(super) struct WideGroup {
    pub(super) group: u64,
    /// The beginning of each bucket, and the end of the last one.
    pub(super) bounds: [u64; WIDE_WORDS],
}

/// Block checksums that were computed when the blocks were written, so that the blocks need not be read again.
pub(super) struct Sums(Box<[AtomicU64]>);

impl Sums {
    /// Returns an empty set: no block's checksum is known.
    pub(super) fn none() -> Self {
        Self(Box::default())
    }

    /// Returns a set for `blocks` blocks; none of their checksums is known yet.
    pub(super) fn of_blocks(blocks: u64) -> Self {
        Self((0..blocks).map(|_| AtomicU64::new(0)).collect())
    }

    /// Stores the checksums of the whole blocks in `bytes`, which are written at byte `at` of the file.
    pub(super) fn note(&self, sums: &Hash, at: u64, bytes: &[u8]) {
        let block = at.div_ceil(BLOCK_BYTES);
        let whole = bytes.get((block * BLOCK_BYTES - at) as usize..).unwrap_or_default();
        let known = self.0.get(block as usize..).unwrap_or_default();
        for (sum, bytes) in known.iter().zip(whole.chunks_exact(BLOCK_BYTES as usize)) {
            // Relaxed: the threads have ended before the checksums are read.
            sum.store(sums.bytes(bytes), Relaxed);
        }
    }

    /// Removes the checksum of a block that has changed.
    fn forget(&self, block: u64) {
        if let Some(sum) = self.0.get(block as usize) {
            sum.store(0, Relaxed);
        }
    }

    /// Returns the checksum of a block, if it is known. A checksum of 0 counts as unknown.
    fn of(&self, block: u64) -> Option<u64> {
        self.0.get(block as usize).map(|sum| sum.load(Relaxed)).filter(|sum| *sum != 0)
    }
}

impl<M: Medium> Site<'_, M> {
    /// Writes the areas behind the records, and the header.
    pub(super) fn seal(
        &self,
        region: &Region,
        layout: Layout,
        wide: Vec<WideGroup>,
        known: &Sums,
    ) -> Result<Root> {
        let layout = Layout { wide: wide.len() as u64, ..layout };
        self.storage.grow_exactly(region, layout.bytes())?;
        let lines = region.slice_at::<Line>(Layout::GROUPS_AT, layout.groups as usize);
        let lines = lines.ok_or_else(|| short(self.storage, region))?;
        for (number, WideGroup { group, bounds }) in wide.iter().enumerate() {
            let at = layout.wide_at() + number as u64 * WIDE_BYTES;
            // SAFETY: only this thread uses this part of the file.
            unsafe { self.storage.write_bytes(region, at, as_bytes(&[*bounds])) };
            lines[*group as usize].store(self.storage, ENDS_WORD, number as u64, Relaxed);
            self.storage.flush_object(&lines[*group as usize]);
            known.forget((Layout::GROUPS_AT + group * GROUP_BYTES) / BLOCK_BYTES);
            // This thread's next fence makes these stores durable; that is the fence of P3 at the latest.
            self.flush(region, at, WIDE_BYTES);
        }
        let sums_sum = self.sum_blocks(region, layout, known)?;
        let (generation, uuid) = (self.generation, self.uuid);
        let sealed = Sealed { generation, uuid, layout, sums_sum };
        sealed.write(self.storage, region, self.sums)?;
        let header_sum = sealed.sum(self.sums);
        Ok(Root { generation, header_sum, filter_bits: self.bits.get() })
    }

    /// Writes and flushes the checksum of each block except the header; returns the checksum of the checksums.
    fn sum_blocks(&self, region: &Region, layout: Layout, known: &Sums) -> Result<u64> {
        let blocks = layout.blocks();
        let cells = region.slice_at::<Cell64>(layout.sums_at(), blocks as usize);
        let cells = cells.ok_or_else(|| short(self.storage, region))?;
        let tasks = Tasks::new(blocks.div_ceil(SUMMED_BLOCKS) as usize);
        let threads = threads_for(self.threads, layout.records as usize, RECORDS_PER_THREAD);
        in_parallel(threads, || {
            while let Some(task) = tasks.take() {
                let first = task as u64 * SUMMED_BLOCKS;
                let last = blocks.min(first + SUMMED_BLOCKS);
                for block in first.max(1)..last {
                    let read = || self.read(region, block * BLOCK_BYTES, BLOCK_BYTES);
                    let sum = match known.of(block) {
                        Some(sum) => sum,
                        None => self.sums.bytes(read()?),
                    };
                    cells[block as usize].store(self.storage, sum, Relaxed);
                }
            }
            Ok(())
        })?;
        // This thread, whose next fence is that of P3, flushes all checksums. If the threads that wrote them flushed
        // them instead, each would need a fence.
        self.flush(region, layout.sums_at(), layout.sums_bytes());
        Ok(self.sums.bytes(self.read(region, layout.sums_at(), layout.sums_bytes())?))
    }

    fn read<'r>(&self, region: &'r Region, offset: u64, bytes: u64) -> Result<&'r [u8]> {
        // SAFETY: the threads that wrote this range have ended, and no thread writes it any more.
        let bytes = unsafe { self.storage.read_bytes(region, offset, bytes as usize) };
        bytes.ok_or_else(|| short(self.storage, region))
    }
}

/// Writes the bounds of a group's buckets into its line. If they do not fit, marks the line as that of a wide group and
/// returns the wide group; `seal` writes its number into the line later.
pub(super) fn set_bounds(
    line: &mut [u64; 8],
    group: u64,
    bounds: [u64; WIDE_WORDS],
) -> Option<WideGroup> {
    let first = bounds[0];
    line[FIRST_WORD] = first;
    line[ENDS_WORD..FILTER_WORD].fill(0);
    if bounds[BUCKETS] - first > NARROW_RECORDS {
        line[FIRST_WORD] |= WIDE;
        return Some(WideGroup { group, bounds });
    }
    for (bucket, bound) in bounds[1..].iter().enumerate() {
        line[ENDS_WORD + bucket / 8] |= (bound - first) << (8 * (bucket % 8));
    }
    None
}
