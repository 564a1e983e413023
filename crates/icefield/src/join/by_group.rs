//! Merging group by group.
//!
//! One thread allocates space for the new file, which the kernel does not do in parallel, while another partitions the
//! changes by share; then both verify the base. After that, each thread processes share after share: it copies the old
//! records into a buffer and applies the changes to them, computes the checksums of the buffer's blocks, and writes the
//! buffer.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::build::{open_filter, set_filter};
use super::delta::Effect;
use super::layout::as_bytes;
use super::layout::{
    BLOCK_BYTES, BUCKETS, ENDS_WORD, FILTER_WORD, FIRST_MASK, FIRST_WORD, GROUP_BYTES, Layout,
    NARROW_RECORDS, RECORD_BYTES, Root, WIDE,
};
use super::merge::{GroupOut, Merged, WRITTEN_BYTES, words};
use super::placed::{Placed, SHARE_GROUPS, Shares, Sorter};
use super::plan::Site;
use super::seal::{Sums, WideGroup, set_bounds};
use super::view::{Frame, View};
use crate::base::parallel::{Tasks, both, in_parallel, threads_for};
use crate::storage::{Medium, Region};
use crate::{Error, Result};

/// Minimum number of groups for each thread.
const GROUPS_PER_THREAD: usize = 1 << 11;

const _: () = assert!((SHARE_GROUPS * GROUP_BYTES).is_multiple_of(BLOCK_BYTES));

impl<M: Medium> View<M> {
    /// Merges group by group.
    pub(super) fn by_group(&self, site: &Site<'_, M>) -> Result<Root> {
        let old = self.base.layout();
        let groups = old.groups;
        let layout = Layout { records: self.len(), groups, wide: 0 };
        let threads = threads_for(site.threads, groups as usize, GROUPS_PER_THREAD);
        // The base is verified first: otherwise damaged records would get valid checksums in the new generation.
        let checks = self.verification()?;
        let make_space = || {
            let region = site.new_file(layout.bytes())?;
            self.verify_some(&checks).map(|()| region)
        };
        let delta = self.read_delta();
        let partition = || {
            let shares = delta.shares(site.hash, groups);
            self.verify_some(&checks).map(|()| shares)
        };
        let (region, shares) = both(threads, make_space, partition);
        let (region, shares) = (&region?, &shares?);
        let merged = Merged { view: self, areas: self.base.areas(site.storage)? };
        let known = Sums::of_blocks(layout.blocks());
        let target = Target { site, region, layout, shares, known: &known };
        let wide = merged.write_all(&target, threads)?;
        site.storage.check_writable()?;
        site.seal(region, layout, wide, &known)
    }
}

/// The destination of the merged groups, and the changes to merge into them.
struct Target<'a, 's, M> {
    site: &'a Site<'s, M>,
    region: &'a Region,
    layout: Layout,
    shares: &'a Shares<'a>,
    known: &'a Sums,
}

impl<M: Medium> Merged<'_, M> {
    /// Writes all groups; returns the wide ones.
    fn write_all(&self, target: &Target<'_, '_, M>, threads: usize) -> Result<Vec<WideGroup>> {
        let groups = target.layout.groups;
        let starts = self.starts(groups, target.shares.growth())?;
        if starts.last() != Some(&target.layout.records) {
            return Err(self.inconsistent());
        }
        let tasks = Tasks::new(starts.len() - 1);
        let wide = in_parallel(threads, || {
            let (out, wide) = (Vec::new(), Vec::new());
            let mut writer = Writer { merged: self, target, out, wide };
            let mut sorter = Sorter::default();
            while let Some(share) = tasks.take() {
                let first = share as u64 * SHARE_GROUPS;
                let changes = sorter.sort(target.shares, share);
                let records = starts[share]..starts[share + 1];
                writer.write(first..groups.min(first + SHARE_GROUPS), changes, records)?;
            }
            Ok(writer.wide)
        })?;
        let mut wide: Vec<_> = wide.into_iter().flatten().collect();
        wide.sort_unstable_by_key(|wide| wide.group);
        Ok(wide)
    }

    /// Returns the number of the first record of each share in the new generation, and the end of the last share.
    fn starts(&self, groups: u64, growth: &[i64]) -> Result<Vec<u64>> {
        let storage = &self.view.frame.storage;
        let mut starts = vec![0];
        for (share, growth) in growth.iter().enumerate() {
            let first = share as u64 * SHARE_GROUPS;
            let last = groups.min(first + SHARE_GROUPS) - 1;
            let extent = |group| Ok(self.areas.group_extent(storage, self.line(group)?));
            let (one, other) = (extent(first)?, extent(last)?);
            if one.bad || other.bad || one.start > other.end {
                return Err(self.base().impossible(storage, first));
            }
            let records = (other.end - one.start).checked_add_signed(*growth);
            let records = records.ok_or_else(|| self.inconsistent())?;
            starts.push(starts[share] + records);
        }
        Ok(starts)
    }

    #[cold]
    fn inconsistent(&self) -> Error {
        let Frame { storage, .. } = &*self.view.frame;
        let detail = "the base does not have the pairs that the delta store removes";
        self.base().region.fault(storage, self.base().layout().records_at(), detail)
    }
}

/// The state of one thread that merges groups.
struct Writer<'a, 's, M> {
    merged: &'a Merged<'a, M>,
    target: &'a Target<'a, 's, M>,
    /// Records that have not been written yet.
    out: Vec<u8>,
    wide: Vec<WideGroup>,
}

impl<M: Medium> Writer<'_, '_, M> {
    /// Writes a share's groups after applying `changes`. `records` is the range of the share's records in the new
    /// generation.
    fn write(
        &mut self,
        groups: Range<u64>,
        mut changes: &[Placed],
        records: Range<u64>,
    ) -> Result<()> {
        let mut lines = Vec::with_capacity((groups.end - groups.start) as usize);
        let mut written = records.start;
        for group in groups.clone() {
            let end = (group + 1) * BUCKETS as u64;
            let count = changes.iter().take_while(|placed| placed.place < end).count();
            let (mine, rest) = changes.split_at(count);
            changes = rest;
            let first = written + self.out.len() as u64 / RECORD_BYTES;
            lines.push(self.group(group, mine, first)?);
            if self.out.len() >= WRITTEN_BYTES {
                self.flush(&mut written, records.end, false)?;
            }
        }
        self.flush(&mut written, records.end, true)?;
        if written != records.end {
            return Err(self.merged.inconsistent());
        }
        self.put(Layout::GROUPS_AT + groups.start * GROUP_BYTES, as_bytes(&lines))
    }

    /// Writes and persists a part of the file, and computes the checksums of its blocks.
    fn put(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let Target { site, region, known, .. } = self.target;
        known.note(site.sums, at, bytes);
        // SAFETY: only this thread uses this range of the file, and nothing has read it, because the file is new.
        unsafe { site.storage.write_new_bytes(region, at, bytes) };
        site.flush(region, at, bytes.len() as u64);
        // P2: this part of the file is durable before the header is written.
        site.storage.try_fence()
    }

    /// Writes and persists the gathered records up to the last block boundary, or all of them if `last` is `true`.
    fn flush(&mut self, written: &mut u64, end: u64, last: bool) -> Result<()> {
        let start = *written * RECORD_BYTES;
        let all = start + self.out.len() as u64;
        let stop = if last { all } else { all / BLOCK_BYTES * BLOCK_BYTES };
        if stop > end * RECORD_BYTES {
            return Err(self.merged.inconsistent());
        }
        let bytes = stop.saturating_sub(start) as usize;
        self.put(self.target.layout.records_at() + start, &self.out[..bytes])?;
        *written += bytes as u64 / RECORD_BYTES;
        self.out.drain(..bytes);
        Ok(())
    }

    /// Appends a group's records, the first of which becomes record `first`; returns the group's line.
    fn group(&mut self, group: u64, changes: &[Placed], first: u64) -> Result<[u64; 8]> {
        let (site, merged) = (self.target.site, self.merged);
        let (storage, old) = (site.storage, merged.line(group)?);
        let mut line: [u64; 8] = std::array::from_fn(|word| old.load(storage, word, Relaxed));
        let extent = merged.areas.group_extent(storage, old);
        if extent.bad || line[FIRST_WORD] & !(FIRST_MASK | WIDE) != 0 {
            return Err(merged.base().impossible(storage, group));
        }
        let start = self.out.len();
        if line[FIRST_WORD] & WIDE == 0 {
            let records = merged.base().record_bytes(storage, extent.start..extent.end)?;
            let ends = u128::from(line[ENDS_WORD]) | u128::from(line[ENDS_WORD + 1]) << 64;
            if let Some(ends) = with_added(records, ends, changes, &mut self.out) {
                line[FIRST_WORD] = first;
                line[ENDS_WORD] = ends as u64;
                line[ENDS_WORD + 1] = (ends >> 64) as u64;
                let filtered = site.bits.is_filter();
                changes.iter().for_each(|placed| set_filter(&mut line, placed.hash, filtered));
                return Ok(line);
            }
            self.out.truncate(start);
        }
        let GroupOut { mut bounds, lost, .. } = merged.group(group, changes, &mut self.out)?;
        bounds.iter_mut().for_each(|bound| *bound += first);
        self.set_filter(&mut line, lost, changes, start);
        self.wide.extend(set_bounds(&mut line, group, bounds));
        Ok(line)
    }

    /// Adds the keys of the changes to the group's filter. If pairs were `lost`, builds the filter anew from all
    /// records.
    fn set_filter(&self, line: &mut [u64; 8], lost: bool, changes: &[Placed], start: usize) {
        let site = self.target.site;
        let filtered = site.bits.is_filter();
        if !filtered {
            return open_filter(line);
        }
        if lost {
            line[FILTER_WORD..].fill(0);
            for pair in self.out[start..].chunks_exact(RECORD_BYTES as usize) {
                set_filter(line, site.hash.word(words(pair)[0]), filtered);
            }
        } else {
            changes.iter().for_each(|placed| set_filter(line, placed.hash, filtered));
        }
    }
}

/// Appends a group's records to `out`, with each added pair at the end of its bucket. `ends` contains the old ends of
/// the buckets, one byte each; returns the new ends. Returns `None`, possibly after appending some records, if a change
/// removes pairs, if an end no longer fits into a byte, or if `ends` are invalid.
fn with_added(records: &[u8], ends: u128, changes: &[Placed], out: &mut Vec<u8>) -> Option<u128> {
    const ONES: u128 = u128::from_ne_bytes([1; BUCKETS]);
    let mut after = ends;
    let mut copied = 0;
    let all = ends.to_le_bytes();
    if u64::from(all[BUCKETS - 1]) + changes.len() as u64 > NARROW_RECORDS || !all.is_sorted() {
        return None;
    }
    for Placed { place, key, payload, effect, .. } in changes {
        if *effect != Effect::Add {
            return None;
        }
        let bucket = *place as usize % BUCKETS;
        let end = usize::from(all[bucket]) * RECORD_BYTES as usize;
        out.extend_from_slice(records.get(copied..end)?);
        out.extend_from_slice(as_bytes(&[[*key, *payload]]));
        copied = end;
        // This bucket and those behind it end one record later.
        after += ONES << (8 * bucket);
    }
    out.extend_from_slice(records.get(copied..)?);
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_added_at_the_ends_of_their_buckets() {
        let old = [[1, 10], [2, 20], [3, 30]];
        // Bucket 0 has one record, and bucket 2 has two.
        let ends =
            u128::from_le_bytes(std::array::from_fn(|bucket| if bucket < 2 { 1 } else { 3 }));
        let change = |place, key, effect| Placed { place, hash: 0, key, payload: 0, effect };
        let add = |place, key| change(place, key, Effect::Add);
        let changes = [add(16, 4), add(17, 5), add(17, 6), add(31, 7)];
        let mut out = Vec::new();
        let after = with_added(as_bytes(&old), ends, &changes, &mut out).unwrap();
        let expected = [[1, 10], [4, 0], [5, 0], [6, 0], [2, 20], [3, 30], [7, 0]];
        assert_eq!(out, as_bytes(&expected));
        let mut bytes = [6; BUCKETS];
        (bytes[0], bytes[1], bytes[BUCKETS - 1]) = (2, 4, 7);
        assert_eq!(after.to_le_bytes(), bytes);
        let taken = [change(16, 1, Effect::Hide)];
        assert_eq!(with_added(as_bytes(&old), ends, &taken, &mut out), None);
        assert_eq!(with_added(as_bytes(&old), ends, &[add(0, 9); 253], &mut out), None);
        assert_eq!(with_added(as_bytes(&old), ends.rotate_left(8), &[], &mut out), None);
    }
}
