//! `salvage` copies to a new index those pairs of a damaged index that can be verified, and lists the losses.
//!
//! A pair of the base is verified by its block's checksum alone; groups, filters and other blocks are not needed. A
//! record of the delta log has its own checksum, so records behind a damaged one count as well.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use super::JoinOptions;
use super::base::Base;
use super::delta::{Change, MAX_CHANGES};
use super::layout::{BASES, BLOCK_BYTES, RECORD_BYTES, Record, Sealed, Watermark, watermark};
use super::log;
use super::source::{JoinSource, share};
use super::view::Frame;
use crate::Result;
use crate::report::SalvageReport;
use crate::storage::superblock::{self, SessionEnd};
use crate::storage::{Mapped, Medium};
use crate::types::Word;

type Pairs = Vec<[u64; 2]>;
/// The number of occurrences of each payload of a key.
type Payloads = HashMap<u64, u64>;

impl<K: Word> JoinOptions<K> {
    /// Copies to a new index at `new`, where nothing may exist yet, those pairs of the index at `path` that can still
    /// be verified. The index at `path` may be too damaged to open. Nothing at `path` changes. [`SalvageReport`] lists
    /// what was lost: a damaged block of the base loses all its pairs, up to 256; a damaged record of the delta log
    /// loses the pair that it added, or restores the pairs that it removed. Takes 16 bytes of memory for each pair.
    ///
    /// ```
    /// use icefield::JoinIndex;
    /// let directory = tempfile::tempdir()?;
    /// let (path, new) = (directory.path().join("orders.ice"), directory.path().join("new.ice"));
    /// drop(JoinIndex::build(&path, &[7_u64, 9, 7], &[0, 1, 2])?);
    /// let report = JoinIndex::<u64>::options().salvage(&path, &new)?;
    /// assert_eq!((report.records, report.lost.len()), (3, 0));
    /// assert_eq!(JoinIndex::<u64>::open(&new)?.probe_count(&[7])?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An error if both copies of the superblock are damaged; [`Error::Locked`](crate::Error::Locked) while a process
    /// may change the index; the errors of [`build`](Self::build).
    pub fn salvage(&self, path: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<SalvageReport> {
        let frame = self.frame(Mapped::open_read_only(path, self.mapped())?)?;
        let mut report = SalvageReport::default();
        let pairs = rescue(&frame, &mut report)?;
        let index = self.like(&frame).build_from(new, &Rescued(pairs))?;
        report.records = index.len();
        Ok(report)
    }
}

/// Rescued pairs as a source.
struct Rescued(Pairs);

impl JoinSource for Rescued {
    fn read(
        &self,
        part: usize,
        parts: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
    ) -> Result<()> {
        const SHOWN: usize = 4096;
        for pairs in self.0[share(self.0.len(), part, parts)].chunks(SHOWN) {
            let [keys, payloads] =
                [0, 1].map(|at| pairs.iter().map(|pair| pair[at]).collect::<Vec<_>>());
            show(&keys, &payloads)?;
        }
        Ok(())
    }
}

/// Returns the verified pairs of the newest generation.
fn rescue<M: Medium>(frame: &Frame<M>, report: &mut SalvageReport) -> Result<Pairs> {
    let (generation, base) = newest(frame, report)?;
    let mut pairs = base.map_or_else(Vec::new, |base| whole_pairs(frame, &base, report));
    let changes = changes(frame, generation, report)?;

    // Pairs of keys that have removals move to `removed_of`, to be found by key; all other pairs stay where they are.
    let mut removed_of: HashMap<u64, Payloads> = HashMap::new();
    for change in changes.iter().filter(|change| !matches!(change, Change::Insert(..))) {
        removed_of.entry(change.key()).or_default();
    }
    pairs.retain(|&[key, payload]| match removed_of.get_mut(&key) {
        Some(payloads) => {
            *payloads.entry(payload).or_default() += 1;
            false
        }
        None => true,
    });
    for change in changes {
        match (change, removed_of.get_mut(&change.key())) {
            (Change::Insert(key, payload), None) => pairs.push([key, payload]),
            (Change::Insert(_, payload), Some(payloads)) => {
                *payloads.entry(payload).or_default() += 1
            }
            (Change::Remove(_), Some(payloads)) => payloads.clear(),
            (Change::RemovePair(_, payload), Some(payloads)) => {
                if let Some(count) = payloads.get_mut(&payload) {
                    *count = count.saturating_sub(1);
                }
            }
            // Does not occur: the map has the key of each removal.
            (Change::Remove(_) | Change::RemovePair(..), None) => {}
        }
    }
    for (key, payloads) in removed_of {
        let of_key = payloads
            .into_iter()
            .flat_map(|(payload, count)| (0..count).map(move |_| [key, payload]));
        pairs.extend(of_key);
    }
    Ok(pairs)
}

/// Returns the generation that the root words name, and its base if the header is whole. If both copies of the root
/// words are damaged, returns the newest sealed generation, which contains all changes even if it was never named.
fn newest<M: Medium>(frame: &Frame<M>, report: &mut SalvageReport) -> Result<(u64, Option<Base>)> {
    let Frame { storage, identity, sums, limit, .. } = frame;
    let mut bases = Vec::new();
    let mut faults = Vec::new();
    for name in BASES {
        let region = storage.region(name, *limit)?;
        match Sealed::header(storage, &region, sums) {
            Ok(sealed) if sealed.uuid == identity.uuid => {
                bases.push(Base::unverified(region, sealed))
            }
            Ok(_) => faults.push(format!("{name}: the file belongs to another index")),
            Err(error) => faults.push(error.to_string()),
        }
    }
    let named = frame.root().map(|root| root.generation);
    let newest = bases.iter().map(|base| base.sealed.generation).max();
    let generation = match (named, newest) {
        (Ok(generation), _) => generation,
        (Err(error), Some(newest)) => {
            report.lose(format_args!("{error}; salvaged generation {newest} instead"));
            newest
        }
        (Err(error), None) => return Err(error),
    };
    let base = bases.into_iter().find(|base| base.sealed.generation == generation);
    if base.is_none() {
        report.lose(format_args!(
            "the base of generation {generation} is lost: {}",
            faults.join("; ")
        ));
    }
    Ok((generation, base))
}

/// Lists a range of records that cannot be read, unless it is empty.
fn lose(report: &mut SalvageReport, file: &str, of: &str, gap: &Range<u64>) {
    if gap.is_empty() {
        return;
    }
    let (first, last, count) = (gap.start, gap.end - 1, gap.end - gap.start);
    report
        .lose(format_args!("{file}: {count} {of}, records {first} to {last}: damaged or missing"));
}

/// Returns the pairs in the intact blocks of a base.
fn whole_pairs<M: Medium>(frame: &Frame<M>, base: &Base, report: &mut SalvageReport) -> Pairs {
    let Frame { storage, sums, .. } = frame;
    let layout = base.layout();
    let first_block = layout.records_at() / BLOCK_BYTES;
    let each = BLOCK_BYTES / RECORD_BYTES;
    let (mut pairs, mut gap): (Pairs, Range<u64>) = (Vec::new(), 0..0);
    let mut lose = |gap: &Range<u64>| lose(report, base.region.name(), "pairs", gap);
    let there = base.region.len().saturating_sub(layout.records_at()) / BLOCK_BYTES;
    for block in 0..layout.records.div_ceil(each).min(there + 1) {
        // Records beyond the end of the file are one gap.
        let end = if block < there { (block + 1) * each } else { u64::MAX };
        let records = block * each..end.min(layout.records);
        let at = layout.records_at() + records.start * RECORD_BYTES;
        let slice = base.region.slice_at::<Record>(at, (records.end - records.start) as usize);
        match (slice, base.verify_block(storage, sums, first_block + block)) {
            (Some(slice), Ok(())) => pairs.extend(slice.iter().map(|record| record.load(storage))),
            _ if gap.end == records.start => gap.end = records.end,
            _ => {
                lose(&gap);
                gap = records;
            }
        }
    }
    lose(&gap);
    pairs
}

/// Returns the intact changes of a generation's log, oldest first.
fn changes<M: Medium>(
    frame: &Frame<M>,
    generation: u64,
    report: &mut SalvageReport,
) -> Result<Vec<Change>> {
    let Frame { storage, table, sums, limit, .. } = frame;
    let closed = match superblock::session_end(storage, table) {
        Ok(SessionEnd::Clean(records)) => records,
        _ => 0,
    };
    let kept = match watermark(storage, table, sums, generation) {
        Ok(Watermark::Records(records)) => records,
        _ => 0,
    };
    let region = log::region(storage, generation, *limit)?;
    let mut changes = Vec::new();
    let expected = closed.max(kept).min(MAX_CHANGES);
    for gap in
        log::rescue(storage, &region, sums, generation, expected, |change| changes.push(change))?
    {
        lose(report, region.name(), "changes", &gap);
    }
    Ok(changes)
}
