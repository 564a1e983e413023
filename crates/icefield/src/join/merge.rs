//! Merging: making the next generation from the present one and its delta store.
//!
//! With few changes, a merge goes group by group. The number of groups stays the same, so old keys need not be hashed,
//! scattered or sorted: the records of each group are copied in their order, and the group's changes are applied to the
//! copy. With many changes, or if the number of groups no longer suits the number of records, the index is rebuilt. In
//! both cases the old generation stays unchanged until the root words name the new one.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::base::{Areas, Base};
use super::delta::{Effect, KeyDelta};
use super::layout::as_bytes;
use super::layout::{BASES, BUCKETS, DELTAS, RECORD_BYTES, Root, WIDE_WORDS, reset_watermark};
use super::line::Line;
use super::log::{self, Log, Tail};
use super::placed::Placed;
use super::plan::Site;
use super::plan::merges_by_group;
use super::source::{JoinSource, share};
use super::view::{Frame, View};
use crate::Result;
use crate::base::parallel::{Tasks, in_parallel, threads_for};
use crate::storage::Medium;

/// Bytes of records that are written, or passed to a callback, at once.
pub(super) const WRITTEN_BYTES: usize = 1 << 17;
/// Number of blocks of one verification task.
const VERIFIED_BLOCKS: u64 = 256;

/// The way in which a merge made the new generation.
///
/// ```
/// use icefield::{JoinIndex, MergeKind};
/// let index = JoinIndex::in_memory(&[1_u64, 2], &[10, 20])?;
/// assert_eq!(index.merge()?.kind, MergeKind::Nothing);
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeKind {
    /// There was nothing to merge.
    Nothing,
    /// Group by group: the old records of each group were copied, and its changes applied to the copy.
    PerBucket,
    /// The index was built anew from the old pairs and the changes.
    Rebuild,
}

/// The result of [`JoinIndex::merge`](crate::JoinIndex::merge).
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
    /// The way in which the merge was done.
    pub kind: MergeKind,
    /// Number of changes that the delta store had.
    pub changes: u64,
    /// Number of pairs in the index after the merge.
    pub pairs: u64,
    /// Number of the generation after the merge.
    pub generation: u64,
    /// Size of the generation's file in bytes.
    pub bytes: u64,
    /// Duration of the merge.
    pub time: Duration,
}

/// The old generation of a merge, and the changes to apply to its records.
pub(super) struct Merged<'a, M> {
    pub(super) view: &'a View<M>,
    pub(super) areas: Areas<'a>,
}

/// The pairs of a generation with its changes applied, as the source of a build.
struct Pairs<'a, M> {
    merged: Merged<'a, M>,
    placed: Vec<Placed>,
}

/// The result of merging one group.
pub(super) struct GroupOut {
    /// The bounds of the group's buckets, counted from the group's first record.
    pub(super) bounds: [u64; WIDE_WORDS],
    /// The range of the group's records in the old base.
    pub(super) old: Range<u64>,
    /// `true` if pairs of the base were left out.
    pub(super) lost: bool,
}

impl<'a, M: Medium> Merged<'a, M> {
    pub(super) fn base(&self) -> &'a Base {
        &self.view.base
    }

    pub(super) fn line(&self, group: u64) -> Result<&'a Line> {
        let line = self.areas.groups.get(group as usize);
        line.ok_or_else(|| self.base().impossible(&self.view.frame.storage, group))
    }

    /// Returns the end of the previous group's records; 0 for the first group.
    fn end_before(&self, group: u64) -> Result<u64> {
        let Some(before) = group.checked_sub(1) else { return Ok(0) };
        let storage = &self.view.frame.storage;
        let extent = self.areas.group_extent(storage, self.line(before)?);
        if extent.bad { Err(self.base().impossible(storage, before)) } else { Ok(extent.end) }
    }

    /// Appends the records of a group to `out`, after applying `changes`, all of which belong to this group.
    pub(super) fn group(
        &self,
        group: u64,
        changes: &[Placed],
        out: &mut Vec<u8>,
    ) -> Result<GroupOut> {
        let storage = &self.view.frame.storage;
        let line = self.line(group)?;
        let start = out.len();
        let old = self.areas.group_extent(storage, line);
        let mut done = GroupOut { bounds: [0; WIDE_WORDS], old: old.start..old.start, lost: false };
        let mut changes = changes;
        for bucket in 0..BUCKETS {
            let extent = self.areas.extent(storage, line, bucket);
            // Buckets must be contiguous: pairs in overlapping buckets would be copied twice.
            if extent.bad || extent.start != done.old.end {
                return Err(self.base().impossible(storage, group));
            }
            done.old.end = extent.end;
            let old = self.base().record_bytes(storage, extent.start..extent.end)?;
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
            Effect::HideAll => keys.entry(*key).or_default().hides_all = Some(*payload),
            Effect::Hide => *keys.entry(*key).or_default().hidden.entry(*payload).or_default() += 1,
            Effect::Add => {}
        }
    }
    for pair in old.chunks_exact(RECORD_BYTES as usize) {
        let [key, payload] = words(pair);
        if keys.get_mut(&key).is_none_or(|known| known.shows(payload)) {
            out.extend_from_slice(pair);
        }
    }
}

/// Returns the words of a record's bytes.
pub(super) fn words(pair: &[u8]) -> [u64; 2] {
    let word = |at: usize| pair[at..].first_chunk().map_or(0, |chunk| u64::from_ne_bytes(*chunk));
    [word(0), word(8)]
}

impl<M: Medium> JoinSource for Pairs<'_, M> {
    fn read(
        &self,
        part: usize,
        parts: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
    ) -> Result<()> {
        let groups = share(self.merged.areas.groups.len(), part, parts);
        let (mut out, mut keys, mut payloads) = (Vec::new(), Vec::new(), Vec::new());
        let first = groups.start as u64 * BUCKETS as u64;
        let mut changes =
            &self.placed[self.placed.partition_point(|placed| placed.place < first)..];
        let mut next = self.merged.end_before(groups.start as u64)?;
        for group in groups.start as u64..groups.end as u64 {
            let end = (group + 1) * BUCKETS as u64;
            let count = changes.iter().take_while(|placed| placed.place < end).count();
            let (mine, rest) = changes.split_at(count);
            changes = rest;
            let GroupOut { old, .. } = self.merged.group(group, mine, &mut out)?;
            if old.start != next {
                return Err(self.merged.base().impossible(&self.merged.view.frame.storage, group));
            }
            next = old.end;
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
    /// Calls `show` with all visible pairs of the base and of the delta store, in undefined order.
    #[expect(clippy::type_complexity, reason = "what `JoinSource::read` takes")]
    pub(super) fn for_each(
        &self,
        show: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
    ) -> Result<()> {
        self.pairs()?.read(0, 1, show)
    }

    fn pairs(&self) -> Result<Pairs<'_, M>> {
        let merged = Merged { view: self, areas: self.base.areas(&self.frame.storage)? };
        Ok(Pairs { merged, placed: self.placed(self.base.layout().groups) })
    }

    /// Returns an error unless the checksums of all blocks of the base are right.
    pub(super) fn verify_all(&self, threads: usize) -> Result<()> {
        let tasks = self.verification()?;
        let blocks = self.base.layout().blocks() as usize;
        in_parallel(threads_for(threads, blocks, VERIFIED_BLOCKS as usize), || {
            self.verify_some(&tasks)
        })?;
        Ok(())
    }

    /// Verifies the area of checksums; returns the tasks for [`View::verify_some`].
    pub(super) fn verification(&self) -> Result<Tasks> {
        let Frame { storage, sums, .. } = &*self.frame;
        self.base.verify_sums(storage, sums)?;
        Ok(Tasks::new(self.base.layout().blocks().div_ceil(VERIFIED_BLOCKS) as usize))
    }

    /// Verifies blocks until no task is left. Returns an error if the checksum of a block is wrong.
    pub(super) fn verify_some(&self, tasks: &Tasks) -> Result<()> {
        let Frame { storage, sums, .. } = &*self.frame;
        while let Some(task) = tasks.take() {
            let first = task as u64 * VERIFIED_BLOCKS;
            for block in first.max(1)..self.base.layout().blocks().min(first + VERIFIED_BLOCKS) {
                self.base.verify_block(storage, sums, block)?;
            }
        }
        Ok(())
    }

    fn site(&self, threads: usize) -> Site<'_, M> {
        let Frame { storage, hash, sums, identity, limit, .. } = &*self.frame;
        Site {
            storage,
            hash,
            sums,
            uuid: identity.uuid,
            generation: self.root.generation + 1,
            bits: self.bits,
            threads,
            limit: *limit,
        }
    }

    /// Makes the next generation from this one and its changes. This generation is kept, and its delta store must not
    /// change during the call.
    pub(super) fn merge(&self, threads: usize) -> Result<(MergeKind, Next<M>)> {
        let layout = self.base.layout();
        let site = self.site(threads);
        let records = (layout.records, self.len());
        if merges_by_group(self.bits, layout.groups, records, self.living()) {
            return Ok((MergeKind::PerBucket, self.next(self.by_group(&site)?)?));
        }
        // The base is verified first: otherwise damaged records would get valid checksums in the new generation.
        self.verify_all(threads)?;
        Ok((MergeKind::Rebuild, self.next(site.build(&self.pairs()?)?)?))
    }

    /// Builds the next generation from the pairs of `source` alone.
    pub(super) fn replace(
        &self,
        source: &dyn JoinSource,
        bits: super::plan::FilterBits,
        threads: usize,
    ) -> Result<Next<M>> {
        let site = Site { bits, ..self.site(threads) };
        self.next(site.build(source)?)
    }

    /// Publishes the generation of `root`. Prepares its view and its log first, because no step may fail once the root
    /// words name the generation.
    fn next(&self, root: Root) -> Result<Next<M>> {
        let Frame { storage, table, sums, limit, .. } = &*self.frame;
        storage.discard_region(DELTAS[root.slot()])?;
        let view = Self::fresh(&self.frame, root)?;
        let region = log::region(storage, root.generation, *limit)?;
        let log = view.log(region, &Tail { records: 0, stray: 0 })?;
        reset_watermark(storage, table)?;
        root.publish(storage, table, sums)?;
        Ok(Next { view: Arc::new(view), log })
    }

    /// Removes the files of the other parity: those of the previous generation, or of an incomplete next one.
    pub(super) fn discard_others(&self) -> Result<()> {
        let other = 1 - self.root.slot();
        self.frame.storage.discard_region(BASES[other])?;
        self.frame.storage.discard_region(DELTAS[other])
    }
}

/// The new generation of a merge or rebuild, which the root words name already, with its empty log.
pub(super) struct Next<M> {
    pub(super) view: Arc<View<M>>,
    pub(super) log: Log,
}

/// Returns the report of a merge.
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
