//! The ranges of a region that have been punched and not reserved again.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint ranges that do not touch. Maps the start of each range to its end.
#[derive(Debug, Default)]
pub(super) struct Holes(BTreeMap<u64, u64>);

impl Holes {
    /// Returns the number of bytes in all ranges.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// Adds a range. Returns how many bytes of it are new.
    pub(super) fn add(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let before = self.bytes_in(&range);
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&first, &last)) = self.0.range(..=end).next_back()
            && last >= start
        {
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.0.insert(start, end);
        range.end - range.start - before
    }

    /// Removes a range. Returns the parts of it that were present.
    pub(super) fn take(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        let taken: Vec<_> = self.parts_in(range).collect();
        for part in &taken {
            let (first, last) = self.0.range(..=part.start).next_back().expect("a part of it");
            let (first, last) = (*first, *last);
            self.0.remove(&first);
            for rest in [first..part.start, part.end..last] {
                if !rest.is_empty() {
                    self.0.insert(rest.start, rest.end);
                }
            }
        }
        taken
    }

    fn bytes_in(&self, range: &Range<u64>) -> u64 {
        self.parts_in(range).map(|part| part.end - part.start).sum()
    }

    fn parts_in(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let Range { start, end } = *range;
        let before = self.0.range(..start).next_back();
        before
            .into_iter()
            .chain(self.0.range(start..end.max(start)))
            .map(move |(&first, &last)| first.max(start)..last.min(end))
            .filter(|part| !part.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares `Holes` with an array of one flag for each byte.
    #[test]
    fn ranges_are_what_bytes_would_be() {
        let (mut holes, mut flags) = (Holes::default(), [false; 64]);
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (start, len) = ((state >> 33) as usize % 64, (state >> 45) as usize % 12);
            let end = (start + len).min(64);
            let range = start as u64..end as u64;
            let set = flags[start..end].iter().filter(|&&flag| flag).count() as u64;
            if state >> 63 == 0 {
                assert_eq!(holes.add(range), (end - start) as u64 - set);
                flags[start..end].fill(true);
            } else {
                let taken = holes.take(&range);
                assert_eq!(taken.iter().map(|part| part.end - part.start).sum::<u64>(), set);
                assert!(taken.into_iter().flatten().all(|byte| flags[byte as usize]));
                flags[start..end].fill(false);
            }
            assert_eq!(holes.bytes(), flags.iter().filter(|&&flag| flag).count() as u64);
            let ranges: Vec<_> = holes.0.iter().collect();
            assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ranges:?}");
        }
    }
}
