//! The weakly consistent iterator (§3.4.4): pages in the order of hashes, with cursors that survive every change of the
//! index.
//!
//! A cursor is a position in that order. Growing and shrinking split and merge bins but keep the order, so a cursor
//! stays valid: keys are selected by their hash, never by their bin. Only a new hash function changes the order. A scan
//! with a cursor of an earlier function then returns all remaining records in one page. A scan that runs while the
//! function changes does the same if memory for the change runs out.

use super::batch::STRETCH;
use super::core::Core;
use super::hasher::{part_of, positions};
use super::index::Index;
use super::mode::Threading;
use crate::Result;

/// The lowest bits of a cursor hold the generation of the hash function, the others those of a position. A page
/// therefore ends at a position whose lowest bits are zero.
pub(super) const GENERATION_BITS: u32 = 16;

/// The error of a scan whose records have been moved to an index with another order.
struct Rehashed;

impl<M: Threading> Core<M> {
    /// Appends about `n` records, starting at `cursor`, to `records`. Returns the cursor of the next page.
    pub(super) fn scan(
        &self,
        cursor: u64,
        n: usize,
        records: &mut Vec<(u64, u64)>,
    ) -> Result<Option<u64>> {
        let first = records.len();
        let generation = cursor as u16;
        let place = cursor - u64::from(generation);
        loop {
            let guard = self.pin();
            let index = self.current_for_reads(&guard, n.min(STRETCH));
            let read = if place == 0 || generation == index.hasher.generation {
                scan_index::<M>(index, place, n, records)
            } else {
                self.scan_rest(index, place, generation, records).map(|()| None)
            };
            match read {
                Ok(next) => return Ok(next),
                Err(Rehashed) => {
                    records.truncate(first);
                    if self.finish(index).is_err() {
                        // Memory for moving the remaining records is missing, so the records of the table are spread
                        // over indexes with different orders.
                        self.scan_between(index, place, generation, records);
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Adds all records at or after `place` in the order of the hash function of `generation`, while records are being
    /// moved to an index with another order.
    fn scan_between(
        &self,
        index: &Index,
        place: u64,
        generation: u16,
        records: &mut Vec<(u64, u64)>,
    ) {
        // A cursor with a generation that never existed yields nothing. The start cursor needs no generation.
        let hasher = self.hasher_of(generation);
        let from_place =
            |key| place == 0 || hasher.is_some_and(|hasher| hasher.order(key) >= place);
        let mut all = Vec::new();
        let mut next = Some(index);
        // Records move only to later indexes. A record that leaves its bin before the bin is read is found in a later
        // index. A record that leaves its bin afterwards may be read twice; the duplicate is removed below.
        while let Some(index) = next {
            let pictures = index.touched().filter_map(|bin| index.picture::<M>(index.bin(bin)));
            pictures.for_each(|picture| all.extend(picture.records()));
            next = index.next();
        }
        all.sort_by_key(|&(key, _)| key);
        all.dedup_by_key(|&mut (key, _)| key);
        records.extend(all.into_iter().filter(|&(key, _)| from_place(key)));
    }

    /// Adds all records from `place` on in the order of an earlier hash function.
    fn scan_rest(
        &self,
        index: &Index,
        place: u64,
        generation: u16,
        records: &mut Vec<(u64, u64)>,
    ) -> Result<(), Rehashed> {
        // A cursor with a generation that never existed yields nothing.
        let Some(hasher) = self.hasher_of(generation) else { return Ok(()) };
        let mut all = Vec::new();
        collect::<M>(index, 0, u64::MAX, &mut all)?;
        records.extend(all.into_iter().filter(|&(key, _)| hasher.order(key) >= place));
        Ok(())
    }
}

fn scan_index<M: Threading>(
    index: &Index,
    place: u64,
    n: usize,
    records: &mut Vec<(u64, u64)>,
) -> Result<Option<u64>, Rehashed> {
    let enough = records.len().saturating_add(n.max(1));
    let mut place = place;
    while records.len() < enough {
        // Bins have less than two records on average. The range ends a little behind the last bin.
        let bins = (enough - records.len()).div_ceil(2).min(STRETCH) as u64;
        let last_bin = (part_of(place, index.len()) + bins - 1).min(index.len() - 1);
        let last = positions(last_bin, index.len()).1 | ((1 << GENERATION_BITS) - 1);
        collect::<M>(index, place, last, records)?;
        let Some(next) = last.checked_add(1) else { return Ok(None) };
        place = next;
    }
    Ok(Some(place | u64::from(index.hasher.generation)))
}

/// Adds the records whose positions are in `first..=last`. The records of each bin are consistent.
fn collect<M: Threading>(
    index: &Index,
    first: u64,
    last: u64,
    records: &mut Vec<(u64, u64)>,
) -> Result<(), Rehashed> {
    let bins = index.len();
    let (first_part, last_part) = (part_of(first, bins), part_of(last, bins));
    let mut part = first_part;
    while part <= last_part {
        let bin = index.hasher.bin_at(part, bins);
        // Without a next index, the memory of bins that were never written to need not be read.
        if index.next().is_none()
            && let Some(end) = index.untouched_until(bin)
        {
            part = if index.hasher.is_modulo() { part + 1 } else { end };
            continue;
        }
        let is_whole = part != first_part && part != last_part;
        match index.picture::<M>(index.bin(bin)) {
            Some(picture) => {
                let wanted = |&&(key, _): &&(u64, u64)| {
                    is_whole || (first..=last).contains(&index.hasher.order(key))
                };
                records.extend(picture.records().iter().filter(wanted));
            }
            // The records have left the bin, which they do only after the next index has been installed.
            None => {
                let (start, end) = positions(part, bins);
                let Some(next) = index.next() else { return Ok(()) };
                if next.hasher.generation != index.hasher.generation {
                    return Err(Rehashed);
                }
                collect::<M>(next, first.max(start), last.min(end), records)?;
            }
        }
        part += 1;
    }
    Ok(())
}
