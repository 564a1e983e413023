//! Building a generation: count, scatter, settle, seal.
//!
//! 1. *Count* (first reading). Counts the records of each part of the source by share of the hash range: a histogram of
//!    2048 counters for each part. The counts determine the number of groups, and the range of the file that each part
//!    fills in each share.
//! 2. *Scatter* (second reading). Writes the pairs to the ranges of their parts and shares, sixteen at a time through a
//!    buffer. This needs no atomic operation, because the ranges of two parts never overlap.
//! 3. *Settle*. Processes one share after the other; a share fits into a cache. Counts its records by bucket and copies
//!    them to a buffer, derives the groups' lines from the counts, and writes each record from the buffer to its
//!    bucket. Each share is persisted when it is complete. A share with very many records is permuted in place instead,
//!    which takes twice as long, because each move waits for the one before.
//! 4. *Seal*. Writes wide groups, checksums of all blocks, and the header.
//!
//! In addition to the file, a build takes memory for the histograms. Each thread takes 256 bytes for each share while
//! it scatters, and 16 bytes for each bucket and 24 bytes for each record (at most 24 MiB) of the share that it
//! settles.

use std::ops::Range;

use super::layout::{
    BASES, BUCKETS, FILTER_WORD, FILTER_WORDS, GROUP_BYTES, Layout, MAX_RECORDS, RECORD_BYTES,
    Record, Root, WIDE_WORDS, as_bytes, bucket_of, filter_bit, share_of, short,
};
use super::plan::{RECORDS_PER_THREAD, Site};
use super::seal::{Sums, WideGroup, set_bounds};
use super::source::JoinSource;
use crate::base::parallel::{Tasks, in_parallel, threads_for};
use crate::storage::{Medium, Region};
use crate::{Error, Result};

/// Number of shares that the first reading distinguishes.
const FINE_SHARES: usize = 2048;
/// Planned number of records in a share.
const SHARE_RECORDS: u64 = 1 << 14;
/// Maximum number of records in a share that is settled by copying it to a buffer; larger ones are permuted in place.
const MOST_COPIED: usize = 1 << 20;
/// Number of records that are written to a share at once: 256 bytes, which media write as one block.
const CHUNK: usize = 16;
/// Number of parts of the source for each thread; several, so that no thread waits long for the last one.
const PARTS: usize = 4;
/// Returns the error for a source whose second reading differs from the first.
#[cold]
fn other_reading() -> Error {
    let detail = "the second pass returned other pairs than the first; build from a stable source";
    Error::Source { detail: detail.into() }
}

/// The number of records of each part of the source in each share.
struct Places {
    parts: usize,
    shares: usize,
    /// The count of part `p` and share `s` is at `p * shares + s`.
    counts: Vec<u64>,
}

impl Places {
    fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Reduces the number of shares to `shares`, a divisor of the present number, by joining neighbours.
    fn coarsen(&mut self, shares: usize) {
        let together = self.shares / shares.max(1);
        self.counts = self.counts.chunks(together).map(|counts| counts.iter().sum()).collect();
        self.shares = shares;
    }

    /// Returns where each share begins, and where the last one ends.
    fn starts(&self) -> Vec<u64> {
        let mut starts = vec![0; self.shares + 1];
        for (at, count) in self.counts.iter().enumerate() {
            starts[at % self.shares + 1] += count;
        }
        for share in 0..self.shares {
            starts[share + 1] += starts[share];
        }
        starts
    }

    /// Returns, for each share, the range of records that a part fills.
    fn ranges(&self, part: usize, starts: &[u64]) -> Vec<Range<u64>> {
        let range = |share: usize| {
            let count = |part: usize| self.counts[part * self.shares + share];
            let before: u64 = (0..part).map(count).sum();
            starts[share] + before..starts[share] + before + count(part)
        };
        (0..self.shares).map(range).collect()
    }
}

impl<M: Medium> Site<'_, M> {
    /// Builds a generation of all pairs of `source`. The last writes are durable only after the caller's next fence
    /// (P3). Except in a new index, this fence must come before the root words name the generation.
    pub(super) fn build(&self, source: &dyn JoinSource) -> Result<Root> {
        let mut places = self.count(source)?;
        let records = places.total();
        if records >= MAX_RECORDS {
            return Err(Error::Unsupported(
                "a join index has less than 2^48 pairs; build several indexes".into(),
            ));
        }
        let shares = records.div_ceil(SHARE_RECORDS).next_power_of_two();
        let shares = shares.min(FINE_SHARES as u64);
        places.coarsen(shares as usize);
        let groups = shares * self.bits.groups(records).div_ceil(shares);
        let layout = Layout { records, groups, wide: 0 };
        let region = self.new_file(layout.bytes())?;
        let starts = places.starts();
        self.scatter(source, &places, &starts, &region, layout)?;
        let wide = self.move_to_buckets(&starts, &region, layout)?;
        self.seal(&region, layout, wide, &Sums::none())
    }

    /// Creates an empty file for the generation, with space for this number of bytes.
    pub(super) fn new_file(&self, bytes: u64) -> Result<Region> {
        let name = BASES[(self.generation & 1) as usize];
        // An earlier build or merge that did not complete may have left a file.
        self.storage.discard_region(name)?;
        let region = self.storage.region(name, self.limit)?;
        self.storage.grow_exactly(&region, bytes)?;
        Ok(region)
    }

    fn count(&self, source: &dyn JoinSource) -> Result<Places> {
        let parts = if self.threads > 1 { self.threads * PARTS } else { 1 };
        let tasks = Tasks::new(parts);
        let counted = in_parallel(self.threads, || {
            let mut counted = Vec::new();
            while let Some(part) = tasks.take() {
                let mut counts = vec![0_u64; FINE_SHARES];
                source.read(part, parts, &mut |keys, _| {
                    for &key in keys {
                        counts[share_of(self.hash.word(key), FINE_SHARES as u64) as usize] += 1;
                    }
                    Ok(())
                })?;
                counted.push((part, counts));
            }
            Ok(counted)
        })?;
        let mut counts = vec![0; parts * FINE_SHARES];
        for (part, counted) in counted.into_iter().flatten() {
            counts[part * FINE_SHARES..][..FINE_SHARES].copy_from_slice(&counted);
        }
        Ok(Places { parts, shares: FINE_SHARES, counts })
    }

    fn scatter(
        &self,
        source: &dyn JoinSource,
        places: &Places,
        starts: &[u64],
        region: &Region,
        layout: Layout,
    ) -> Result<()> {
        let tasks = Tasks::new(places.parts);
        in_parallel(self.threads, || {
            let mut scatter = Scatter::new(self, region, layout.records_at(), places.shares);
            while let Some(part) = tasks.take() {
                scatter.begin(places.ranges(part, starts));
                source.read(part, places.parts, &mut |keys, payloads| {
                    if keys.len() != payloads.len() {
                        let detail = "a part has different numbers of keys and payloads".into();
                        return Err(Error::Source { detail });
                    }
                    for (&key, &payload) in keys.iter().zip(payloads) {
                        scatter.push(key, payload)?;
                    }
                    Ok(())
                })?;
                scatter.end()?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Moves every record of every share to its bucket; returns the wide groups.
    fn move_to_buckets(
        &self,
        starts: &[u64],
        region: &Region,
        layout: Layout,
    ) -> Result<Vec<WideGroup>> {
        let tasks = Tasks::new(starts.len() - 1);
        let threads = threads_for(self.threads, layout.records as usize, RECORDS_PER_THREAD);
        let pairs = region.slice_at::<Record>(layout.records_at(), layout.records as usize);
        let pairs = pairs.ok_or_else(|| short(self.storage, region))?;
        let groups_each = layout.groups / (starts.len() as u64 - 1);
        let wide = in_parallel(threads, || {
            let mut settler = Settler::default();
            while let Some(share) = tasks.take() {
                let records = &pairs[starts[share] as usize..starts[share + 1] as usize];
                let first_group = share as u64 * groups_each;
                settler.begin(first_group, groups_each as usize, starts[share]);
                settler.count(self, records, layout.groups)?;
                if records.len() <= MOST_COPIED {
                    settler.write_back(self, records);
                } else {
                    settler.permute(self, records, layout.groups)?;
                }
                self.storage.flush(records.as_ptr().cast(), size_of_val(records));
                if self.storage.fence_syncs() {
                    // A sync writes everything between the first and the last flushed byte. A single sync for the
                    // records and the lines would also write other shares' data, which lies between them.
                    self.storage.try_fence()?;
                }
                settler.write_lines(self, region)?;
            }
            Ok(settler.wide)
        })?;
        let mut wide: Vec<_> = wide.into_iter().flatten().collect();
        wide.sort_unstable_by_key(|wide| wide.group);
        Ok(wide)
    }

    pub(super) fn flush(&self, region: &Region, offset: u64, bytes: u64) {
        self.storage.flush_range(region, offset, bytes);
    }
}

/// The buffers of one thread that scatters pairs to shares.
struct Scatter<'a, M> {
    site: &'a Site<'a, M>,
    region: &'a Region,
    records_at: u64,
    chunks: Vec<[[u64; 2]; CHUNK]>,
    fill: Vec<u8>,
    ranges: Vec<Range<u64>>,
}

impl<'a, M: Medium> Scatter<'a, M> {
    fn new(site: &'a Site<'a, M>, region: &'a Region, records_at: u64, shares: usize) -> Self {
        let (chunks, fill) = (vec![[[0; 2]; CHUNK]; shares], vec![0; shares]);
        Self { site, region, records_at, chunks, fill, ranges: Vec::new() }
    }

    /// Begins a part of the source; `ranges` are those that it fills, one for each share.
    fn begin(&mut self, ranges: Vec<Range<u64>>) {
        self.ranges = ranges;
    }

    #[inline(always)]
    fn push(&mut self, key: u64, payload: u64) -> Result<()> {
        let share = share_of(self.site.hash.word(key), self.fill.len() as u64) as usize;
        let fill = usize::from(self.fill[share]);
        self.chunks[share][fill] = [key, payload];
        self.fill[share] = fill as u8 + 1;
        if fill + 1 == CHUNK { self.write(share) } else { Ok(()) }
    }

    fn write(&mut self, share: usize) -> Result<()> {
        let records = usize::from(std::mem::take(&mut self.fill[share]));
        let range = &mut self.ranges[share];
        if range.end - range.start < records as u64 {
            return Err(other_reading());
        }
        let at = self.records_at + range.start * RECORD_BYTES;
        range.start += records as u64;
        let bytes = as_bytes(&self.chunks[share][..records]);
        // SAFETY: only this thread writes the range of its part, and nothing reads the range before the threads end.
        unsafe { self.site.storage.write_bytes(self.region, at, bytes) };
        Ok(())
    }

    /// Writes the buffered rest of the part. Returns an error unless both readings had the same number of records in
    /// each share.
    fn end(&mut self) -> Result<()> {
        for share in 0..self.fill.len() {
            if self.fill[share] > 0 {
                self.write(share)?;
            }
            if !self.ranges[share].is_empty() {
                return Err(other_reading());
            }
        }
        Ok(())
    }
}

/// The working memory of one thread that settles shares.
#[derive(Default)]
struct Settler {
    first_group: u64,
    /// Index of the share's first record in the file.
    first_record: u64,
    /// Copies of the share's records, and the bucket of each.
    copies: Vec<([u64; 2], usize)>,
    /// For each bucket, the index of its first record within the share; then the end of the last bucket.
    starts: Vec<u64>,
    /// For each bucket, the index within the share at which its next record is written.
    heads: Vec<u64>,
    /// The groups' lines.
    lines: Vec<[u64; 8]>,
    wide: Vec<WideGroup>,
}

impl Settler {
    fn begin(&mut self, first_group: u64, groups: usize, first_record: u64) {
        self.first_group = first_group;
        self.first_record = first_record;
        self.copies.clear();
        self.starts.clear();
        self.starts.resize(groups * BUCKETS + 1, 0);
        self.lines.clear();
        self.lines.resize(groups, [0; 8]);
    }

    /// Returns the indexes of a hash's group and bucket within this share.
    #[inline(always)]
    fn place(&self, hash: u64, groups: u64) -> (usize, usize) {
        let group = share_of(hash, groups).wrapping_sub(self.first_group) as usize;
        (group, group.wrapping_mul(BUCKETS).wrapping_add(bucket_of(hash)))
    }

    fn count<M: Medium>(
        &mut self,
        site: &Site<'_, M>,
        records: &[Record],
        groups: u64,
    ) -> Result<()> {
        let filtered = site.bits.is_filter();
        let copies = records.len() <= MOST_COPIED;
        for pair in records {
            let record = pair.load(site.storage);
            let hash = site.hash.word(record[0]);
            let (group, bucket) = self.place(hash, groups);
            let (Some(line), Some(count)) =
                (self.lines.get_mut(group), self.starts.get_mut(bucket + 1))
            else {
                return Err(other_reading());
            };
            *count += 1;
            if copies {
                self.copies.push((record, bucket));
            }
            set_filter(line, hash, filtered);
        }
        for bucket in 1..self.starts.len() {
            self.starts[bucket] += self.starts[bucket - 1];
        }
        if !filtered {
            self.lines.iter_mut().for_each(open_filter);
        }
        Ok(())
    }

    /// Writes each record to its bucket.
    fn write_back<M: Medium>(&mut self, site: &Site<'_, M>, records: &[Record]) {
        self.heads.clear();
        self.heads.extend_from_slice(&self.starts);
        for &(record, bucket) in &self.copies {
            let head = &mut self.heads[bucket];
            records[*head as usize].store(site.storage, record);
            *head += 1;
        }
    }

    /// Moves each record to its bucket, cycle by cycle. A cycle first takes a record from place `home` into `hand`. It
    /// then swaps the record in `hand` with the one at the next place of its bucket, and repeats this until the record
    /// in `hand` belongs to the bucket of `home`. This record is stored at `home`.
    fn permute<M: Medium>(
        &mut self,
        site: &Site<'_, M>,
        records: &[Record],
        groups: u64,
    ) -> Result<()> {
        self.heads.clear();
        self.heads.extend_from_slice(&self.starts);
        for bucket in 0..self.starts.len() - 1 {
            while self.heads[bucket] < self.starts[bucket + 1] {
                let home = self.heads[bucket] as usize;
                let mut hand = records[home].load(site.storage);
                loop {
                    let (_, target) = self.place(site.hash.word(hand[0]), groups);
                    let Some(head) = self.heads.get_mut(target) else {
                        return Err(other_reading());
                    };
                    let at = *head as usize;
                    *head += 1;
                    if target == bucket {
                        records[home].store(site.storage, hand);
                        break;
                    }
                    let place = records.get(at).ok_or_else(other_reading)?;
                    let next = place.load(site.storage);
                    place.store(site.storage, hand);
                    hand = next;
                }
            }
        }
        Ok(())
    }

    /// Writes and persists the groups' lines.
    fn write_lines<M: Medium>(&mut self, site: &Site<'_, M>, region: &Region) -> Result<()> {
        for (group, line) in self.lines.iter_mut().enumerate() {
            let mut bounds = [0; WIDE_WORDS];
            for (bound, start) in bounds.iter_mut().zip(&self.starts[group * BUCKETS..]) {
                *bound = self.first_record + start;
            }
            let group = self.first_group + group as u64;
            if let Some(wide) = set_bounds(line, group, bounds) {
                self.wide.push(wide);
            }
        }
        let at = Layout::GROUPS_AT + self.first_group * GROUP_BYTES;
        // SAFETY: only this thread uses the lines of the share.
        unsafe { site.storage.write_bytes(region, at, as_bytes(&self.lines)) };
        site.flush(region, at, self.lines.len() as u64 * GROUP_BYTES);
        // P2: the share's records and lines are durable before the header is written.
        site.storage.try_fence()
    }
}

/// Adds a hash to the filter in a group's line, if there is a filter.
#[inline(always)]
pub(super) fn set_filter(line: &mut [u64; 8], hash: u64, filtered: bool) {
    if filtered {
        for word in 0..FILTER_WORDS {
            line[FILTER_WORD + word] |= 1 << filter_bit(hash, word);
        }
    }
}

/// Sets all bits of the filter, so that every key passes.
pub(super) fn open_filter(line: &mut [u64; 8]) {
    line[FILTER_WORD..].fill(u64::MAX);
}
