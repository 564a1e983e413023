//! A sealed generation: opening, bounds checks, reads and verification.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::layout::{
    BASES, BLOCK_BYTES, BUCKETS, ENDS_WORD, FILTER_WORD, FILTER_WORDS, FIRST_MASK, FIRST_WORD,
    GROUP_BYTES, LINE_RECORDS, Layout, RECORD_BYTES, Record, Root, Sealed, WIDE, WIDE_BYTES,
    bucket_of, share_of, short,
};
use super::line::Line;
use crate::base::group::Native;
use crate::base::hash::Hash;
use crate::storage::{Cell64, Medium, Region};
use crate::{Error, Result};

/// The file of one generation. It is never changed after it has been sealed.
pub(super) struct Base {
    pub(super) region: Region,
    pub(super) sealed: Sealed,
    /// One bit for each block, set when the block has been verified; empty if probes do not verify.
    verified: Box<[AtomicU64]>,
}

/// The areas of a generation's file, resolved once for many reads.
#[derive(Clone, Copy)]
pub(super) struct Areas<'a> {
    pub(super) groups: &'a [Line],
    pub(super) lines: &'a [Line],
    wide: &'a [Cell64],
    pub(super) records: u64,
}

/// The range of a bucket's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
    /// `true` if the words that describe the range are invalid. The range is empty then.
    pub(super) bad: bool,
}

impl Base {
    /// Opens the generation that `root` names.
    pub(super) fn open(
        storage: &impl Medium,
        root: &Root,
        uuid: [u64; 2],
        sums: &Hash,
        limit: u64,
        verify: bool,
    ) -> Result<Self> {
        let region = storage.region(BASES[root.slot()], limit)?;
        let sealed = Sealed::read(storage, &region, sums)?;
        if sealed.generation != root.generation
            || sealed.uuid != uuid
            || sealed.sum(sums) != root.header_sum
        {
            return Err(region.fault(
                storage,
                8,
                "the file belongs to another index or generation",
            ));
        }
        let words = if verify { sealed.layout.blocks().div_ceil(64) } else { 0 };
        let verified = (0..words).map(|_| AtomicU64::new(0)).collect();
        let base = Self { region, sealed, verified };
        if verify {
            base.verify_sums(storage, sums)?;
        }
        Ok(base)
    }

    /// Returns a generation of which only the header has been verified.
    pub(super) fn unverified(region: Region, sealed: Sealed) -> Self {
        Self { region, sealed, verified: Box::default() }
    }

    pub(super) fn layout(&self) -> Layout {
        self.sealed.layout
    }

    /// Returns the areas. The file is long enough for them, which was checked with the header.
    pub(super) fn areas(&self, storage: &impl Medium) -> Result<Areas<'_>> {
        let layout = self.layout();
        let lines = layout.records.div_ceil(LINE_RECORDS);
        let groups = self.region.slice_at(Layout::GROUPS_AT, layout.groups as usize);
        let lines = self.region.slice_at(layout.records_at(), lines as usize);
        let wide_words = layout.wide * WIDE_BYTES / 8;
        let wide = self.region.slice_at(layout.wide_at(), wide_words as usize);
        match (groups, lines, wide) {
            (Some(groups), Some(lines), Some(wide)) => {
                Ok(Areas { groups, lines, wide, records: layout.records })
            }
            _ => Err(short(storage, &self.region)),
        }
    }

    /// Returns the records one by one.
    pub(super) fn pairs(&self, storage: &impl Medium) -> Result<&[Record]> {
        let layout = self.layout();
        let pairs = self.region.slice_at(layout.records_at(), layout.records as usize);
        pairs.ok_or_else(|| short(storage, &self.region))
    }

    /// Returns the bytes of a range of the file.
    pub(super) fn bytes(&self, storage: &impl Medium, offset: u64, bytes: u64) -> Result<&[u8]> {
        // SAFETY: the file is sealed and never written again. This process, or another one that held the writers'
        // lock, wrote it before the root words named this generation.
        let bytes = unsafe { storage.read_bytes(&self.region, offset, bytes as usize) };
        bytes.ok_or_else(|| short(storage, &self.region))
    }

    /// Returns the bytes of a range of records.
    pub(super) fn record_bytes(&self, storage: &impl Medium, range: Range<u64>) -> Result<&[u8]> {
        let at = self.layout().records_at() + range.start * RECORD_BYTES;
        self.bytes(storage, at, (range.end - range.start) * RECORD_BYTES)
    }

    /// Returns an error unless the area of checksums is intact.
    pub(super) fn verify_sums(&self, storage: &impl Medium, sums: &Hash) -> Result<()> {
        let layout = self.layout();
        let area = self.bytes(storage, layout.sums_at(), layout.sums_bytes())?;
        if sums.bytes(area) == self.sealed.sums_sum {
            return Ok(());
        }
        Err(self.region.fault(storage, layout.sums_at(), "the area of checksums is damaged"))
    }

    /// Returns an error unless a block is intact. Must not be called for the header's block, which has its own
    /// checksum.
    pub(super) fn verify_block(
        &self,
        storage: &impl Medium,
        sums: &Hash,
        block: u64,
    ) -> Result<()> {
        let offset = block * BLOCK_BYTES;
        let at = self.layout().sums_at() + block * 8;
        let sum = self.region.at::<Cell64>(at).ok_or_else(|| short(storage, &self.region))?;
        if sums.bytes(self.bytes(storage, offset, BLOCK_BYTES)?) == sum.load(storage, Relaxed) {
            return Ok(());
        }
        Err(self.region.fault(storage, offset, "a block's checksum is wrong"))
    }

    /// Returns an error unless all blocks of a range of the file are intact. Verifies each block once.
    fn verify(&self, storage: &impl Medium, sums: &Hash, range: Range<u64>) -> Result<()> {
        for block in range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES) {
            let Some(word) = self.verified.get(block as usize / 64) else { continue };
            let bit = 1 << (block % 64);
            // Relaxed: a thread that does not see the bit verifies the block again.
            if word.load(Relaxed) & bit == 0 {
                self.verify_block(storage, sums, block)?;
                word.fetch_or(bit, Relaxed);
            }
        }
        Ok(())
    }

    /// Returns an error unless everything that a probe for `hash` reads is intact.
    pub(super) fn verify_probe(&self, storage: &impl Medium, sums: &Hash, hash: u64) -> Result<()> {
        let (layout, areas) = (self.layout(), self.areas(storage)?);
        let group = share_of(hash, layout.groups);
        let at = Layout::GROUPS_AT + group * GROUP_BYTES;
        self.verify(storage, sums, at..at + GROUP_BYTES)?;
        let Some(line) = areas.groups.get(group as usize) else { return Ok(()) };
        if line.load(storage, FIRST_WORD, Relaxed) & WIDE != 0 {
            let at = layout.wide_at()
                + line.load(storage, ENDS_WORD, Relaxed).min(layout.wide) * WIDE_BYTES;
            self.verify(storage, sums, at..at + WIDE_BYTES)?;
        }
        let extent = areas.extent(storage, line, bucket_of(hash));
        if extent.bad {
            return Err(self.impossible(storage, group));
        }
        if extent.start < extent.end && passes(storage, line, hash) {
            let start = layout.records_at() + extent.start * RECORD_BYTES;
            let end = layout.records_at() + extent.end * RECORD_BYTES;
            self.verify(storage, sums, start..end)?;
        }
        Ok(())
    }

    /// Returns the error for a group with invalid words.
    #[cold]
    pub(super) fn impossible(&self, storage: &impl Medium, group: u64) -> Error {
        let offset = Layout::GROUPS_AT + group * GROUP_BYTES;
        self.region.fault(storage, offset, "a group's line is damaged")
    }

    /// Calls `visit` with the payloads of a key, in undefined order, until it returns `false`. Returns an error if the
    /// group's words are invalid.
    pub(super) fn payloads(
        &self,
        storage: &impl Medium,
        hash: u64,
        key: u64,
        mut visit: impl FnMut(u64) -> bool,
    ) -> Result<()> {
        let (areas, pairs) = (self.areas(storage)?, self.pairs(storage)?);
        let group = share_of(hash, self.layout().groups);
        let line =
            areas.groups.get(group as usize).ok_or_else(|| self.impossible(storage, group))?;
        if !passes(storage, line, hash) {
            return Ok(());
        }
        let extent = areas.extent(storage, line, bucket_of(hash));
        if extent.bad {
            return Err(self.impossible(storage, group));
        }
        for pair in &pairs[extent.start as usize..extent.end as usize] {
            let [found, payload] = pair.load(storage);
            if found == key && !visit(payload) {
                break;
            }
        }
        Ok(())
    }
}

/// Returns whether a hash passes a group's filter.
#[inline(always)]
pub(super) fn passes(storage: &impl Medium, group: &Line, hash: u64) -> bool {
    group.has_bits(storage, Native::default(), hash)
}

impl Areas<'_> {
    /// Returns the range of a bucket's records, which is always within bounds.
    #[inline(always)]
    pub(super) fn extent(&self, storage: &impl Medium, group: &Line, bucket: usize) -> Extent {
        let first = group.load(storage, FIRST_WORD, Relaxed);
        if first & WIDE != 0 {
            return self.wide_extent(storage, group, bucket);
        }
        // Bucket 0 starts at offset 0: the byte before the first end is the top byte of the first word, which is zero.
        let end_at =
            |byte: usize| group.load(storage, byte / 8, Relaxed) >> (8 * (byte % 8)) & 0xFF;
        let first = first & FIRST_MASK;
        self.bounded(first + end_at(7 + bucket), first + end_at(8 + bucket))
    }

    #[inline(always)]
    fn bounded(&self, start: u64, end: u64) -> Extent {
        let bad = start > end || end > self.records;
        if bad { Extent { start: 0, end: 0, bad } } else { Extent { start, end, bad } }
    }

    #[cold]
    fn wide_extent(&self, storage: &impl Medium, group: &Line, bucket: usize) -> Extent {
        let number = group.load(storage, ENDS_WORD, Relaxed) as usize;
        let at = number.saturating_mul((WIDE_BYTES / 8) as usize).saturating_add(bucket);
        match self.wide.get(at..at.saturating_add(2)) {
            Some([start, end]) => {
                self.bounded(start.load(storage, Relaxed), end.load(storage, Relaxed))
            }
            _ => Extent { start: 0, end: 0, bad: true },
        }
    }

    /// Returns the range of all records of a group.
    pub(super) fn group_extent(&self, storage: &impl Medium, group: &Line) -> Extent {
        let (first, last) =
            (self.extent(storage, group, 0), self.extent(storage, group, BUCKETS - 1));
        match first.bad || last.bad || first.start > last.end {
            true => Extent { start: 0, end: 0, bad: true },
            false => Extent { start: first.start, end: last.end, bad: false },
        }
    }
}

/// Returns the share of absent keys that pass a group's filter.
pub(super) fn pass_rate(storage: &impl Medium, group: &Line) -> f64 {
    let filled = |word: usize| {
        let bits = group.load(storage, FILTER_WORD + word, Relaxed).count_ones();
        f64::from(bits) / 64.0
    };
    (0..FILTER_WORDS).map(filled).product()
}
