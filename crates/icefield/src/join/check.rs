//! Checks of the invariants.

use super::JoinIndex;
use super::base::passes;
use super::layout::{BUCKETS, DELTAS, Root, Sealed, Watermark, bucket_of, share_of, watermark};
use super::line::Line;
use super::log;
use super::view::{Frame, View};
use crate::error::without_advice;
use crate::report::CheckReport;
use crate::storage::Medium;
use crate::storage::superblock::{self, SessionEnd};
use crate::types::Word;
use crate::{Error, Result};

/// Maximum number of faults of one kind that are listed.
const TOLD: usize = 20;

impl<K: Word, M: Medium> JoinIndex<K, M> {
    /// Checks every block's checksum and every invariant, without changing anything. Finds every flipped bit in the
    /// files if the last session has closed the index, or if this handle is the writer and the delta store is empty.
    /// Takes the time of reading the index.
    ///
    /// ```
    /// let index = icefield::JoinIndex::in_memory(&[7, 8], &[70, 80])?;
    /// assert!(index.check()?.is_clean());
    /// # Ok::<(), icefield::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the files are too short to be checked.
    pub fn check(&self) -> Result<CheckReport> {
        self.core.while_still(|view, writes| {
            let mut report = CheckReport { records: view.len(), ..CheckReport::default() };
            let faults = &mut report.faults;
            let Frame { storage, table, .. } = &*view.frame;
            let end = superblock::session_end(storage, table)?;
            // A crash may leave root words and log bytes that only the next writer repairs: for a reader, they are not
            // faults.
            let settled = writes || end != SessionEnd::Open;
            check_superblock(&view.frame, settled, faults)?;
            if end == SessionEnd::Odd {
                faults.push("I1: the words of the last session are damaged".into());
            }
            check_files(view, self.core.threads(), faults);
            if faults.is_empty() {
                check_groups(view, faults)?;
                check_delta(view, writes, settled, faults)?;
            }
            for fault in faults {
                *fault = without_advice(&fault);
            }
            Ok(report)
        })
    }
}

/// I1: both copies of the superblock and of the root words are intact.
fn check_superblock<M: Medium>(
    frame: &Frame<M>,
    settled: bool,
    faults: &mut Vec<String>,
) -> Result<()> {
    let Frame { storage, table, sums, .. } = frame;
    faults
        .extend(superblock::check(storage, table)?.into_iter().map(|fault| format!("I1: {fault}")));
    if settled && !Root::is_settled(storage, table, sums)? {
        faults.push("I1: the copies of the root words differ, or one is damaged".into());
    }
    if let Some(at) = Root::stray(storage, table) {
        faults.push(format!("I1: byte {at} after the root words is not zero"));
    }
    Ok(())
}

/// I2: the file is as long as its header says, and every block has the checksum with which it was sealed.
fn check_files<M: Medium>(view: &View<M>, threads: usize, faults: &mut Vec<String>) {
    let Frame { storage, sums, .. } = &*view.frame;
    let (region, layout) = (&view.base.region, view.base.layout());
    if region.len() != layout.bytes() {
        let (found, expected) = (region.len(), layout.bytes());
        faults.push(format!("I2: {} has {found} bytes, not {expected}", region.name()));
    }
    match Sealed::read(storage, region, sums) {
        Ok(sealed) if sealed.sum(sums) == view.root.header_sum => {}
        Ok(_) => faults.push("I2: the header is not the one that the root words name".into()),
        Err(error) => faults.push(format!("I2: {error}")),
    }
    if let Some(at) = Sealed::stray(storage, region) {
        faults.push(format!("I2: byte {at} of the header's block is not zero"));
    }
    if view.verify_all(threads).is_err() {
        // Verifies block by block, to list the damaged ones.
        let bad = |block: &u64| view.base.verify_block(storage, sums, *block).is_err();
        let blocks: Vec<u64> = (1..layout.blocks()).filter(bad).take(TOLD).collect();
        match blocks.is_empty() {
            true => faults.push("I2: the area of checksums is damaged".into()),
            false => faults.push(format!("I2: {}: damaged blocks {blocks:?}", region.name())),
        }
    }
}

/// I3, I4: buckets are contiguous, records are in the buckets of their hashes, and their keys pass the filters.
fn check_groups<M: Medium>(view: &View<M>, faults: &mut Vec<String>) -> Result<()> {
    let storage = &view.frame.storage;
    let areas = view.base.areas(storage)?;
    let mut next = 0;
    for (number, line) in areas.groups.iter().enumerate() {
        for bucket in 0..BUCKETS {
            let extent = areas.extent(storage, line, bucket);
            if extent.bad || extent.start != next {
                faults.push(format!(
                    "I3: bucket {bucket} of group {number} does not begin at record {next}"
                ));
            }
            next = extent.end;
            check_bucket(view, line, (number as u64, bucket), extent.start..extent.end, faults)?;
            if faults.len() > TOLD {
                return Ok(());
            }
        }
    }
    if next != areas.records {
        faults.push(format!("I3: buckets end at record {next} of {}", areas.records));
    }
    Ok(())
}

fn check_bucket<M: Medium>(
    view: &View<M>,
    line: &Line,
    place: (u64, usize),
    records: std::ops::Range<u64>,
    faults: &mut Vec<String>,
) -> Result<()> {
    let Frame { storage, hash, .. } = &*view.frame;
    let pairs = view.base.pairs(storage)?;
    for record in records {
        let [key, _] = pairs[record as usize].load(storage);
        let hash = hash.word(key);
        if (share_of(hash, view.base.layout().groups), bucket_of(hash)) != place {
            faults.push(format!("I4: record {record} is in another key's bucket"));
        }
        if !passes(storage, line, hash) {
            faults.push(format!("I4: the filter does not contain record {record}"));
        }
    }
    Ok(())
}

/// I5: the delta log has no gap, only zeros follow it, and the index has the number of pairs that it reports.
fn check_delta<M: Medium>(
    view: &View<M>,
    writes: bool,
    settled: bool,
    faults: &mut Vec<String>,
) -> Result<()> {
    let Frame { storage, sums, limit, .. } = &*view.frame;
    let region = storage.region(DELTAS[view.root.slot()], *limit)?;
    let tail =
        log::replay(storage, &region, sums, view.root.generation, view.changes(), |_| Ok(()));
    match tail {
        // Writers only: a reader's view may be older, even after the index has been closed.
        Ok(tail) if tail.records > view.changes() && writes => {
            faults.push("I5: the delta log has records that the delta store does not have".into());
        }
        Ok(tail) if tail.stray > 0 && settled => {
            faults.push("I5: bytes after the last delta record are not zero".into());
        }
        Ok(_) => {}
        Err(error @ Error::Corrupt { .. }) => faults.push(format!("I5: {error}")),
        Err(error) => return Err(error),
    }
    let mark = watermark(storage, &view.frame.table, sums, view.root.generation)?;
    // If another handle is writing, the watermark may belong to a newer generation.
    if mark == Watermark::Odd && view.frame.root()?.generation == view.root.generation {
        faults.push("I5: the watermark is damaged".into());
    }
    let mut pairs = 0;
    view.for_each(&mut |keys, _| {
        pairs += keys.len() as u64;
        Ok(())
    })?;
    if pairs != view.len() {
        faults.push(format!("I5: {pairs} pairs were found, {} counted", view.len()));
    }
    Ok(())
}
