//! The delta log: the changes of a generation, in the order in which they were made. It makes the delta store durable.
//!
//! A record is four words: key, payload, kind, and a checksum of these words, the record's number and the generation. A
//! record counts if its checksum is right and no earlier record is missing. The kind's word also contains the number of
//! earlier records that were to be persisted by the same fence. After a crash before this fence, any of those records
//! may be missing, so the log ends at the first missing one. But if a valid later record belongs to a later fence, the
//! missing record had been durable, and its loss is damage.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::delta::Change;
use super::layout::{DELTAS, short, words_sum};
use crate::base::hash::Hash;
use crate::storage::{Cell64, Medium, Region};
use crate::{Error, Result};

/// Maximum number of records that are persisted by one fence.
pub(super) const WINDOW: usize = 1024;
/// Bytes of a record.
pub(super) const RECORD_BYTES: u64 = 32;
/// Minimum and maximum growth of the log at a time, in bytes.
const GROWTH: (u64, u64) = (4096, 16 << 20);

const INSERT: u64 = 1;
const REMOVE: u64 = 2;
const REMOVE_PAIR: u64 = 3;
/// The first bit, in the kind's word, of the number of earlier records that the same fence persists.
const BACK_SHIFT: u32 = 8;

/// A record on the medium.
type Slot = [Cell64; 4];

/// The log of the present generation.
pub(super) struct Log {
    region: Region,
    generation: u64,
    /// Number of records.
    tail: u64,
}

/// The result of reading a log.
pub(super) struct Tail {
    /// Number of records.
    pub(super) records: u64,
    /// Number of nonzero words after the last record. A crash may leave them.
    pub(super) stray: u64,
}

fn encode(change: Change) -> [u64; 3] {
    match change {
        Change::Insert(key, payload) => [key, payload, INSERT],
        Change::Remove(key) => [key, 0, REMOVE],
        Change::RemovePair(key, payload) => [key, payload, REMOVE_PAIR],
    }
}

fn decode([key, payload, kind]: [u64; 3]) -> Option<Change> {
    match kind & 0xFF {
        INSERT => Some(Change::Insert(key, payload)),
        REMOVE => Some(Change::Remove(key)),
        REMOVE_PAIR => Some(Change::RemovePair(key, payload)),
        _ => None,
    }
}

fn sum_of(sums: &Hash, words: [u64; 3], number: u64, generation: u64) -> u64 {
    let [key, payload, kind] = words;
    words_sum(sums, &[key, payload, kind, number, generation])
}

/// Returns the change of record `number`, and the number of earlier records that the same fence persisted. Returns
/// `None` if the record is missing or damaged.
fn read(
    storage: &impl Medium,
    sums: &Hash,
    slot: &Slot,
    number: u64,
    generation: u64,
) -> Option<(Change, u64)> {
    // Relaxed: the checksum shows whether the words belong together.
    let [key, payload, kind, sum] = std::array::from_fn(|word| slot[word].load(storage, Relaxed));
    let words = [key, payload, kind];
    let back = kind >> BACK_SHIFT;
    if kind == 0 || sum != sum_of(sums, words, number, generation) || back > number {
        return None;
    }
    decode(words).map(|change| (change, back))
}

/// Returns the region of a generation's log.
pub(super) fn region(storage: &impl Medium, generation: u64, limit: u64) -> Result<Region> {
    storage.region(DELTAS[(generation & 1) as usize], limit)
}

fn slots<'r>(storage: &impl Medium, region: &'r Region) -> Result<&'r [Slot]> {
    let count = region.len() / RECORD_BYTES;
    region.slice_at(0, count as usize).ok_or_else(|| short(storage, region))
}

/// Calls `visit` with the changes of a log, oldest first. Returns an error if there are fewer than `expected` records.
pub(super) fn replay(
    storage: &impl Medium,
    region: &Region,
    sums: &Hash,
    generation: u64,
    expected: u64,
    mut visit: impl FnMut(Change) -> Result<()>,
) -> Result<Tail> {
    let slots = slots(storage, region)?;
    let mut records = 0;
    while let Some(slot) = slots.get(records as usize) {
        if let Some((change, _)) = read(storage, sums, slot, records, generation) {
            visit(change)?;
        } else if let Some(later) = witness(storage, slots, sums, generation, records) {
            // A concurrent writer may have written the record after this thread's first read of it.
            if read(storage, sums, slot, records, generation).is_some() {
                continue;
            }
            let detail =
                format!("delta record {records} is damaged: it was durable before record {later}");
            return Err(region.fault(storage, records * RECORD_BYTES, &detail));
        } else {
            break;
        }
        records += 1;
    }
    if records < expected {
        let detail = format!("delta record {records} of {expected} is damaged");
        return Err(region.fault(storage, records * RECORD_BYTES, &detail));
    }
    let rest = slots[records as usize..].iter().flatten();
    let stray = rest.filter(|cell| cell.load(storage, Relaxed) != 0).count() as u64;
    Ok(Tail { records, stray })
}

/// Calls `visit` with the intact changes of a log, oldest first, including those after damaged ones. Returns the
/// numbers of the missing records: those below `expected`, and those that an intact later record proves to have been
/// durable.
pub(super) fn rescue(
    storage: &impl Medium,
    region: &Region,
    sums: &Hash,
    generation: u64,
    expected: u64,
    mut visit: impl FnMut(Change),
) -> Result<Vec<Range<u64>>> {
    let slots = slots(storage, region)?;
    let all = || {
        (0..)
            .zip(slots)
            .map(|(number, slot)| (number, read(storage, sums, slot, number, generation)))
    };
    let witnessed = all().filter_map(|(number, found)| found.map(|(_, back)| number - back)).max();
    let durable = witnessed.unwrap_or(0).max(expected);
    let mut missing: Vec<Range<u64>> = Vec::new();
    for (number, found) in all() {
        match (found, missing.last_mut()) {
            (Some((change, _)), _) => visit(change),
            (None, _) if number >= durable => return Ok(missing),
            (None, Some(gap)) if gap.end == number => gap.end += 1,
            (None, _) => missing.push(number..number + 1),
        }
    }
    let end = slots.len() as u64;
    if end < expected {
        missing.push(end..expected);
    }
    Ok(missing)
}

/// Returns the number of an intact record that was written after record `missing` had become durable, if there is one.
fn witness(
    storage: &impl Medium,
    slots: &[Slot],
    sums: &Hash,
    generation: u64,
    missing: u64,
) -> Option<u64> {
    (missing + 1..slots.len() as u64).find(|&number| {
        let slot = &slots[number as usize];
        slot[2].load(storage, Relaxed) != 0
            && read(storage, sums, slot, number, generation)
                .is_some_and(|(_, back)| number - back > missing)
    })
}

impl Log {
    /// Resumes the log of a generation after the records of `tail`. Clears the nonzero words after them.
    pub(super) fn resume(
        storage: &impl Medium,
        region: Region,
        generation: u64,
        tail: &Tail,
    ) -> Result<Self> {
        if tail.stray > 0 {
            let rest = &slots(storage, &region)?[tail.records as usize..];
            for cell in rest.iter().flatten().filter(|cell| cell.load(storage, Relaxed) != 0) {
                cell.store(storage, 0, Relaxed);
            }
            storage.flush(rest.as_ptr().cast(), size_of_val(rest));
            // P5: the zeros are durable before a record is appended. Otherwise a record of a lost window might still
            // lie after the appended one and count.
            storage.try_fence()?;
        }
        Ok(Self { region, generation, tail: tail.records })
    }

    pub(super) fn records(&self) -> u64 {
        self.tail
    }

    /// Appends at most a window of changes, which are durable when the call returns.
    ///
    /// # Errors
    /// [`Error::NoSpace`], and nothing has changed; [`Error::Poisoned`].
    pub(super) fn append(
        &mut self,
        storage: &impl Medium,
        sums: &Hash,
        changes: &[Change],
    ) -> Result<()> {
        let end = (self.tail + changes.len() as u64) * RECORD_BYTES;
        if end > self.region.len() {
            self.grow(storage, end)?;
        }
        let (first, last) = (self.tail as usize, self.tail as usize + changes.len());
        let slots = slots(storage, &self.region)?;
        let slots = slots.get(first..last).ok_or_else(|| short(storage, &self.region))?;
        for (back, (slot, &change)) in slots.iter().zip(changes).enumerate() {
            let [key, payload, kind] = encode(change);
            let words = [key, payload, kind | (back as u64) << BACK_SHIFT];
            let sum = sum_of(sums, words, self.tail + back as u64, self.generation);
            for (cell, word) in slot.iter().zip([words[0], words[1], words[2], sum]) {
                // Relaxed: the checksum binds the words together.
                cell.store(storage, word, Relaxed);
            }
        }
        storage.flush(slots.as_ptr().cast(), size_of_val(slots));
        // P1, commit point: after this fence, the changes survive a crash.
        storage.try_fence()?;
        self.tail = last as u64;
        Ok(())
    }

    fn grow(&self, storage: &impl Medium, end: u64) -> Result<()> {
        let step = (self.region.len() / 2).clamp(GROWTH.0, GROWTH.1);
        let generous = (self.region.len() + step).max(end).next_multiple_of(4096);
        match storage.grow_exactly(&self.region, generous) {
            Err(Error::NoSpace { .. }) => storage.grow_exactly(&self.region, end),
            grown => grown,
        }
    }
}
