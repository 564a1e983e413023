//! The weakly consistent iterator (§3.4.4): pages in the order of hashes, with cursors that survive every change of the
//! index.
//!
//! A cursor is a position in that order. Growing and shrinking split and merge bins but keep the order, so a cursor
//! stays valid: keys are selected by their hash, never by their bin. Only a new hash function changes the order. A scan
//! with a cursor of an earlier function then returns all remaining records in one page. A scan that runs while the
//! function changes does the same if memory for the change runs out.

use super::core::Core;
use super::index::Index;
use super::mode::Threading;
use crate::Result;

/// Number of bits of a position. An index has fewer bins than there are positions.
pub(super) const PLACE_BITS: u32 = 48;
const END: u64 = 1 << PLACE_BITS;
/// The other bits of a cursor hold the generation of the hash function.
pub(super) const GENERATION_BITS: u32 = 64 - PLACE_BITS;

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
        let (place, generation) = (cursor >> GENERATION_BITS, cursor as u16);
        loop {
            let guard = self.pin();
            let index = self.current(&guard);
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
        let from_place = |key| {
            place == 0 || hasher.is_some_and(|hasher| hasher.order(key) >> GENERATION_BITS >= place)
        };
        let mut all = Vec::new();
        let mut next = Some(index);
        // Records move only to later indexes. A record that leaves its bin before the bin is read is found in a later
        // index. A record that leaves its bin afterwards may be read twice; the duplicate is removed below.
        while let Some(index) = next {
            let pictures = (0..index.len()).filter_map(|bin| index.picture::<M>(index.bin(bin)));
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
        collect::<M>(index, 0, END, &mut all)?;
        records.extend(
            all.into_iter().filter(|&(key, _)| hasher.order(key) >> GENERATION_BITS >= place),
        );
        Ok(())
    }
}

fn scan_index<M: Threading>(
    index: &Index,
    place: u64,
    n: usize,
    records: &mut Vec<(u64, u64)>,
) -> Result<Option<u64>, Rehashed> {
    let bin_places = END >> index.size.bits;
    let enough = records.len().saturating_add(n.max(1));
    let mut place = place;
    while place < END && records.len() < enough {
        let end = (place / bin_places + 1) * bin_places;
        collect::<M>(index, place, end, records)?;
        place = end;
    }
    let cursor = place << GENERATION_BITS | u64::from(index.hasher.generation);
    Ok((place < END).then_some(cursor))
}

/// Adds the records whose positions are in `from..end`. The records of each bin are consistent.
fn collect<M: Threading>(
    index: &Index,
    from: u64,
    end: u64,
    records: &mut Vec<(u64, u64)>,
) -> Result<(), Rehashed> {
    let bits = index.size.bits;
    let bin_places = END >> bits;
    for bin in from / bin_places..=(end - 1) / bin_places {
        let (first, last) = (from.max(bin * bin_places), end.min((bin + 1) * bin_places));
        let line = index.bin(index.hasher.bin_at(bin, bits));
        if let Some(picture) = index.picture::<M>(line) {
            let whole = last - first == bin_places;
            let wanted = |&&(key, _): &&(u64, u64)| {
                whole || (first..last).contains(&(index.hasher.order(key) >> GENERATION_BITS))
            };
            records.extend(picture.records().iter().filter(wanted));
            continue;
        }
        // The records have left the bin, which they do only after the next index has been installed.
        let Some(next) = index.next() else { continue };
        if next.hasher.generation != index.hasher.generation {
            return Err(Rehashed);
        }
        collect::<M>(next, first, last, records)?;
    }
    Ok(())
}
