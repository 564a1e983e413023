//! The next generation: the present one with its delta store.
//!
//! Group by group when there are few changes: as many groups as before, so that no old key is hashed, scattered or
//! sorted; records are copied in the order in which they lie, each group's changes with them. Anew when there are many,
//! or when the groups would serve their records badly. Either way the old generation stays as it is until the root
//! words name the new one.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::base::{Areas, Base};
use super::build::{Site, WideGroup, as_bytes, open_filter, set_bounds, set_filter};
use super::delta::{Effect, KeyDelta, Placed};
use super::layout::{
    BASES, BUCKETS, DELTAS, FILTER_WORD, FIRST_MASK, FIRST_WORD, GROUP_BYTES, Layout, RECORD_BYTES,
    Root, WIDE, WIDE_WORDS, corrupt, reset_watermark,
};
use super::log::{self, Log, Tail};
use super::parallel::{Tasks, in_parallel, threads_for};
use super::plan::merges_by_group;
use super::source::{JoinSource, share};
use super::view::{Frame, View};
use crate::pm::{CellLine, Medium, Region};
use crate::{Error, Result};

/// Groups that are merged at a time.
const TASK_GROUPS: u64 = 1 << 12;
/// Groups that are worth another thread.
const GROUPS_PER_THREAD: usize = 1 << 11;
/// Bytes of records that are written at once.
const WRITTEN_BYTES: usize = 1 << 17;
/// Blocks verified at a time.
const VERIFIED_BLOCKS: u64 = 256;

/// How a merge made the new generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeKind {
    /// There was nothing to merge.
    Nothing,
    /// Group by group: old records were copied, changes put among them.
    PerBucket,
    /// By building the index anew from old pairs and changes.
    Rebuild,
}

/// What [`JoinIndex::merge`](crate::JoinIndex::merge) did.
///
/// ```
/// use icefield::{JoinIndex, MergeKind};
/// let keys: Vec<u64> = (0..10_000).collect();
/// let index = JoinIndex::in_memory(&keys, &keys)?;
/// index.insert(7, 70)?;
/// let report = index.merge()?;
/// assert_eq!((report.kind, report.changes, report.pairs), (MergeKind::PerBucket, 1, 10_001));
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MergeReport {
    /// How it was done.
    pub kind: MergeKind,
    /// Changes that the delta store had.
    pub changes: u64,
    /// Pairs that the index has now.
    pub pairs: u64,
    /// The generation that they are in.
    pub generation: u64,
    /// Bytes of the new generation's file.
    pub bytes: u64,
    /// How long it took.
    pub time: Duration,
}

/// A generation and its changes.
struct Merged<'a, M> {
    view: &'a View<M>,
    areas: Areas<'a>,
    placed: &'a [Placed],
}

/// A group on its way: its records' bytes are appended, its buckets' bounds noted, counted from its first record.
struct GroupOut {
    bounds: [u64; WIDE_WORDS],
    /// Whether pairs of the base were left out.
    lost: bool,
}

impl<'a, M: Medium> Merged<'a, M> {
    fn base(&self) -> &'a Base {
        &self.view.base
    }

    /// The changes to a range of groups.
    fn changes(&self, groups: Range<u64>) -> &'a [Placed] {
        let at = |group: u64| {
            self.placed.partition_point(|placed| placed.place < group * BUCKETS as u64)
        };
        &self.placed[at(groups.start)..at(groups.end)]
    }

    fn line(&self, group: u64) -> Result<&'a CellLine> {
        let line = self.areas.groups.get(group as usize);
        line.ok_or_else(|| self.base().impossible(&self.view.frame.pm, group))
    }

    /// Appends the records of a group with `changes`, all of them this group's.
    fn group(&self, group: u64, changes: &[Placed], out: &mut Vec<u8>) -> Result<GroupOut> {
        let pm = &self.view.frame.pm;
        let line = self.line(group)?;
        let start = out.len();
        let mut done = GroupOut { bounds: [0; WIDE_WORDS], lost: false };
        let mut changes = changes;
        for bucket in 0..BUCKETS {
            let extent = self.areas.extent(pm, line, bucket);
            if extent.bad {
                return Err(self.base().impossible(pm, group));
            }
            let old = self.base().record_bytes(pm, extent.start..extent.end)?;
            let place = group * BUCKETS as u64 + bucket as u64;
            let count = changes.partition_point(|placed| placed.place == place);
            let (mine, rest) = changes.split_at(count);
            changes = rest;
            if mine.iter().all(|placed| placed.effect == Effect::Add) {
                out.extend_from_slice(old);
            } else {
                done.lost = true;
                append_shown(old, mine, out);
            }
            for Placed { key, payload, .. } in
                mine.iter().filter(|placed| placed.effect == Effect::Add)
            {
                out.extend_from_slice(as_bytes(&[[*key, *payload]]));
            }
            done.bounds[bucket + 1] = (out.len() - start) as u64 / RECORD_BYTES;
        }
        Ok(done)
    }
}

/// Appends the records that `changes` do not hide.
fn append_shown(old: &[u8], changes: &[Placed], out: &mut Vec<u8>) {
    let mut keys = std::collections::HashMap::<u64, KeyDelta>::new();
    for Placed { key, payload, effect, .. } in changes {
        match effect {
            Effect::HideAll => keys.entry(*key).or_default().hides_all = true,
            Effect::Hide => *keys.entry(*key).or_default().hidden.entry(*payload).or_default() += 1,
            Effect::Add | Effect::Dead => {}
        }
    }
    for pair in old.chunks_exact(RECORD_BYTES as usize) {
        let [key, payload] = words(pair);
        if keys.get_mut(&key).is_none_or(|known| known.shows(payload)) {
            out.extend_from_slice(pair);
        }
    }
}

/// The words of a record's bytes.
fn words(pair: &[u8]) -> [u64; 2] {
    let word = |at: usize| pair[at..].first_chunk().map_or(0, |chunk| u64::from_ne_bytes(*chunk));
    [word(0), word(8)]
}

impl<M: Medium> JoinSource for Merged<'_, M> {
    fn read(
        &self,
        part: usize,
        parts: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
    ) -> Result<()> {
        let groups = share(self.areas.groups.len(), part, parts);
        let (mut out, mut keys, mut payloads) = (Vec::new(), Vec::new(), Vec::new());
        for group in groups.start as u64..groups.end as u64 {
            self.group(group, self.changes(group..group + 1), &mut out)?;
            if out.len() < WRITTEN_BYTES && group + 1 < groups.end as u64 {
                continue;
            }
            for pair in out.chunks_exact(RECORD_BYTES as usize) {
                let [key, payload] = words(pair);
                keys.push(key);
                payloads.push(payload);
            }
            show(&keys, &payloads)?;
            keys.clear();
            payloads.clear();
            out.clear();
        }
        Ok(())
    }
}

impl<M: Medium> View<M> {
    /// Shows all pairs, those of the base and of the delta store, in no order.
    #[expect(clippy::type_complexity, reason = "what `JoinSource::read` takes")]
    pub(super) fn for_each(
        &self,
        show: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
    ) -> Result<()> {
        let areas = self.base.areas(&self.frame.pm)?;
        let placed = self.placed(self.base.layout().groups);
        Merged { view: self, areas, placed: &placed }.read(0, 1, show)
    }

    /// Fails unless the whole base is as it was sealed.
    pub(super) fn verify_all(&self, threads: usize) -> Result<()> {
        let Frame { pm, sums, .. } = &*self.frame;
        self.base.verify_sums(pm, sums)?;
        let blocks = self.base.layout().blocks();
        let tasks = Tasks::new(blocks.div_ceil(VERIFIED_BLOCKS) as usize);
        in_parallel(threads_for(threads, blocks as usize, VERIFIED_BLOCKS as usize), || {
            while let Some(task) = tasks.take() {
                let first = task as u64 * VERIFIED_BLOCKS;
                for block in first.max(1)..blocks.min(first + VERIFIED_BLOCKS) {
                    self.base.verify_block(pm, sums, block)?;
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    fn site(&self, threads: usize) -> Site<'_, M> {
        let Frame { pm, hash, sums, identity, limit, .. } = &*self.frame;
        Site {
            pm,
            hash,
            sums,
            uuid: identity.uuid,
            generation: self.root.generation + 1,
            bits: self.bits,
            threads,
            limit: *limit,
        }
    }

    /// Makes the next generation of this one and its changes; the old one stays. Nobody changes this one meanwhile.
    pub(super) fn merge(&self, threads: usize) -> Result<(MergeKind, Next<M>)> {
        // A damaged base shall not get checksums that fit.
        self.verify_all(threads)?;
        let layout = self.base.layout();
        let placed = self.placed(layout.groups);
        let merged =
            Merged { view: self, areas: self.base.areas(&self.frame.pm)?, placed: &placed };
        let site = self.site(threads);
        let changes = placed.len() as u64;
        let records = (layout.records, self.len());
        if merges_by_group(self.bits, layout.groups, records, changes) {
            Ok((MergeKind::PerBucket, self.next(merged.by_group(&site)?)?))
        } else {
            Ok((MergeKind::Rebuild, self.next(site.build(&merged)?)?))
        }
    }

    /// Builds the next generation of other pairs altogether.
    pub(super) fn replace(
        &self,
        source: &dyn JoinSource,
        bits: super::plan::FilterBits,
        threads: usize,
    ) -> Result<Next<M>> {
        let site = Site { bits, ..self.site(threads) };
        self.next(site.build(source)?)
    }

    /// Everything that the generation of `root` needs, so that nothing can fail once it is named.
    fn next(&self, root: Root) -> Result<Next<M>> {
        let Frame { pm, table, sums, limit, .. } = &*self.frame;
        pm.discard_region(DELTAS[root.slot()])?;
        let view = Self::fresh(&self.frame, root)?;
        let region = log::region(pm, root.generation, *limit)?;
        let log = view.log(region, &Tail { records: 0, stray: 0 })?;
        reset_watermark(pm, table)?;
        root.publish(pm, table, sums)?;
        Ok(Next { view: Arc::new(view), log })
    }

    /// Takes away what is left of the generation before this one.
    pub(super) fn discard_others(&self) -> Result<()> {
        let other = 1 - self.root.slot();
        self.frame.pm.discard_region(BASES[other])?;
        self.frame.pm.discard_region(DELTAS[other])
    }
}

/// A generation that has just been named.
pub(super) struct Next<M> {
    pub(super) view: Arc<View<M>>,
    pub(super) log: Log,
}

impl<M: Medium> Merged<'_, M> {
    /// Merges group by group.
    fn by_group(&self, site: &Site<'_, M>) -> Result<Root> {
        let groups = self.base().layout().groups;
        let starts = self.starts(groups)?;
        let layout = Layout { records: *starts.last().unwrap_or(&0), groups, wide: 0 };
        let region = site.new_file(layout.bytes())?;
        let tasks = Tasks::new(starts.len() - 1);
        let wide =
            in_parallel(threads_for(site.threads, groups as usize, GROUPS_PER_THREAD), || {
                let mut writer = Writer {
                    merged: self,
                    site,
                    region: &region,
                    layout,
                    out: Vec::new(),
                    wide: Vec::new(),
                };
                while let Some(task) = tasks.take() {
                    let first = task as u64 * TASK_GROUPS;
                    let records = starts[task]..starts[task + 1];
                    writer.write(first..groups.min(first + TASK_GROUPS), records)?;
                }
                Ok(writer.wide)
            })?;
        let mut wide: Vec<_> = wide.into_iter().flatten().collect();
        wide.sort_unstable_by_key(|wide| wide.group);
        site.pm.writable()?;
        site.seal(&region, layout, wide)
    }

    /// Where the records of each task's groups will begin, and where the last ones end.
    fn starts(&self, groups: u64) -> Result<Vec<u64>> {
        let pm = &self.view.frame.pm;
        let mut starts = vec![0];
        let mut first = 0;
        while first < groups {
            let last = groups.min(first + TASK_GROUPS);
            let (one, other) = (self.line(first)?, self.line(last - 1)?);
            let (one, other) =
                (self.areas.group_extent(pm, one), self.areas.group_extent(pm, other));
            if one.bad || other.bad {
                return Err(self.base().impossible(pm, first));
            }
            let mut records = other.end.saturating_sub(one.start);
            for placed in self.changes(first..last) {
                records = match placed.effect {
                    Effect::Add => records + 1,
                    Effect::Hide => records.saturating_sub(1),
                    Effect::HideAll => records.saturating_sub(placed.payload),
                    Effect::Dead => records,
                };
            }
            starts.push(starts[starts.len() - 1] + records);
            first = last;
        }
        Ok(starts)
    }
}

/// One thread's way of merging groups.
struct Writer<'a, 's, M> {
    merged: &'a Merged<'a, M>,
    site: &'a Site<'s, M>,
    region: &'a Region,
    layout: Layout,
    /// Records that were not written yet.
    out: Vec<u8>,
    wide: Vec<WideGroup>,
}

impl<M: Medium> Writer<'_, '_, M> {
    /// Writes a task's groups, whose records go to `records`.
    fn write(&mut self, groups: Range<u64>, records: Range<u64>) -> Result<()> {
        let changes = self.merged.changes(groups.clone());
        let mut lines = Vec::with_capacity((groups.end - groups.start) as usize);
        let mut changes = changes;
        let mut written = records.start;
        for group in groups.clone() {
            let end = (group + 1) * BUCKETS as u64;
            let (mine, rest) =
                changes.split_at(changes.partition_point(|placed| placed.place < end));
            changes = rest;
            let first = written + self.out.len() as u64 / RECORD_BYTES;
            lines.push(self.group(group, mine, first)?);
            if self.out.len() >= WRITTEN_BYTES {
                self.flush(&mut written, records.end)?;
            }
        }
        self.flush(&mut written, records.end)?;
        if written != records.end {
            return Err(self.inconsistent());
        }
        let at = Layout::GROUPS_AT + groups.start * GROUP_BYTES;
        // SAFETY: these groups' lines are this thread's alone.
        unsafe { self.site.pm.write_bytes(self.region, at, as_bytes(&lines)) };
        self.site.flush(self.region, at, lines.len() as u64 * GROUP_BYTES);
        self.site.pm.fence();
        Ok(())
    }

    /// Appends a group's records, the first of which becomes record `first`; gives its line.
    fn group(&mut self, group: u64, changes: &[Placed], first: u64) -> Result<[u64; 8]> {
        let (pm, old) = (self.site.pm, self.merged.line(group)?);
        let load = |word: usize| old.load(pm, word, std::sync::atomic::Ordering::Relaxed);
        let mut line: [u64; 8] = std::array::from_fn(load);
        if changes.is_empty() && line[FIRST_WORD] & WIDE == 0 {
            let extent = self.merged.areas.group_extent(pm, old);
            if extent.bad || line[FIRST_WORD] > FIRST_MASK {
                return Err(self.merged.base().impossible(pm, group));
            }
            let records = self.merged.base().record_bytes(pm, extent.start..extent.end)?;
            self.out.extend_from_slice(records);
            line[FIRST_WORD] = first;
            return Ok(line);
        }
        let start = self.out.len();
        let GroupOut { mut bounds, lost } = self.merged.group(group, changes, &mut self.out)?;
        bounds.iter_mut().for_each(|bound| *bound += first);
        self.set_filter(&mut line, lost, changes, start);
        self.wide.extend(set_bounds(&mut line, group, bounds));
        Ok(line)
    }

    /// Lets the filter know what is in the group, and, when something was `lost`, nothing else.
    fn set_filter(&self, line: &mut [u64; 8], lost: bool, changes: &[Placed], start: usize) {
        let filtered = self.site.bits.is_filter();
        if !filtered {
            return open_filter(line);
        }
        if lost {
            line[FILTER_WORD..].fill(0);
            for pair in self.out[start..].chunks_exact(RECORD_BYTES as usize) {
                set_filter(line, self.site.hash.word(words(pair)[0]), filtered);
            }
        } else {
            changes.iter().for_each(|placed| set_filter(line, placed.hash, filtered));
        }
    }

    /// Writes and persists the records gathered so far.
    fn flush(&mut self, written: &mut u64, end: u64) -> Result<()> {
        let records = self.out.len() as u64 / RECORD_BYTES;
        if end.saturating_sub(*written) < records {
            return Err(self.inconsistent());
        }
        let at = self.layout.records_at() + *written * RECORD_BYTES;
        // SAFETY: the range is this task's alone, the task this thread's.
        unsafe { self.site.pm.write_bytes(self.region, at, &self.out) };
        self.site.flush(self.region, at, self.out.len() as u64);
        // P2: as in a build.
        self.site.pm.fence();
        *written += records;
        self.out.clear();
        Ok(())
    }

    #[cold]
    fn inconsistent(&self) -> Error {
        let base = &self.merged.base().region;
        let detail = "the base does not have the pairs that the delta store hides";
        corrupt(self.site.pm, base, self.merged.base().layout().records_at(), detail)
    }
}

/// What a merge that took place tells.
pub(super) fn report<M: Medium>(
    kind: MergeKind,
    changes: u64,
    view: &View<M>,
    started: Instant,
) -> MergeReport {
    MergeReport {
        kind,
        changes,
        pairs: view.len(),
        generation: view.root.generation,
        bytes: view.base.layout().bytes(),
        time: started.elapsed(),
    }
}
