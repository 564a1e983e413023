//! Iteration by ranges of hashes. Ranges of keys are read leaf by leaf where keys crowd in an entry.
//!
//! A range is read from the root and from every level, and only the newest record of each key counts. The read is
//! validated like a *get*. A cursor is the hash at which a range begins, so it remains valid when levels are added.
//!
//! A narrow range is that of an entry of the last level. It costs little, but the entries above are read anew for each
//! of the narrow ranges that they cover: with the usual fan-out, a scan by narrow ranges reads each record of the last
//! level but one 16 times, of the level above it 256 times. So long scans read wide ranges, each that of an entry above
//! the last level.

use super::Plush;
use super::core::Core;
use super::moving::MovingOf;
use super::partition::SortKey;
use super::words::RecordOf;
use crate::engine::{OnDamage, Scanned};
use crate::outcome::Cursor;
use crate::storage::Medium;
use crate::types::{Keep, Raw, RecordForm, Take};
use crate::{Error, Result};

/// The beginning of the next part of a range.
enum Next {
    Key(Box<[u8]>),
    /// The hash at which the next range begins; `None` after the last range.
    Hash(Option<u64>),
}

/// Records, and the hash at which the next range begins.
type Range<R> = (Vec<R>, Option<u64>);

/// How much of the table one read covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// The range of an entry of the last level.
    Narrow,
    /// The range of an entry above the last level. A narrow range is read in its place if the wide one is damaged, so
    /// that the rest is found, or if it changes during the read, so that writers cannot delay the read for long.
    Wide,
}

impl Width {
    /// The level whose entries have ranges of this width; 0 is the root.
    fn level(self, levels: usize) -> usize {
        match self {
            Self::Narrow => levels,
            Self::Wide => levels - 1,
        }
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Returns `Wide` if `ranges` narrow ranges fill a wide one.
    pub(super) fn width_for_ranges(&self, ranges: u64) -> Width {
        let levels = self.levels.count(&self.storage);
        let in_wide = 1 << self.shape.step(Width::Wide.level(levels));
        if ranges < in_wide { Width::Narrow } else { Width::Wide }
    }

    /// Returns `Wide` if `wanted` records are at least a quarter of those for which a wide range has room in the last level.
    fn width_for_records(&self, wanted: usize) -> Width {
        self.width_for_ranges(((wanted / self.shape.records()) as u64).saturating_mul(4))
    }

    /// The records from a hash on, up to the end of its range, which is narrow if the wide one cannot be read.
    pub(super) fn range_at(&self, hash: u64, width: Width) -> Result<Range<RecordOf<R>>> {
        let (mut records, after) = self.newest_at(hash, width)?;
        records.retain(|record| !record.dead);
        Ok((records, after))
    }

    /// Like [`Core::range_at`], but includes removals.
    pub(super) fn newest_at(&self, hash: u64, mut width: Width) -> Result<Range<RecordOf<R>>> {
        let entry = self.root_entry(hash);
        loop {
            let version = self.root.read_begin(&self.storage, entry);
            let found = self.read_range(entry, hash, width);
            let is_valid = self.root.validate(&self.storage, entry, version);
            if is_valid && (found.is_ok() || width == Width::Narrow) {
                return found;
            }
            width = Width::Narrow;
            self.storage.forget_reads();
        }
    }

    /// The beginning of the narrow range after that of a hash.
    pub(super) fn narrow_after(&self, hash: u64) -> Option<u64> {
        self.range_after(self.levels.count(&self.storage), hash)
    }

    /// The beginning of the next range, after that of the entry of `level` for a hash.
    pub(super) fn range_after(&self, level: usize, hash: u64) -> Option<u64> {
        let next = self.shape.index(level, hash) + 1;
        let width = 63 - self.shape.prefix(level);
        (next < self.shape.entries(level)).then(|| next << width << 1)
    }

    /// The records in the range of a hash, from `key` on, up to the nearest end of a leaf. Where entries have no
    /// leaves, returns the whole rest of the range, and does not compare keys. The first call of a search passes the
    /// place of `key` as the upper half of `hash`; later calls may pass a key with another place. Also returns the key
    /// or the hash at which the rest begins.
    fn range_from(
        &self,
        hash: u64,
        key: &[u8],
        mut width: Width,
    ) -> Result<(Vec<RecordOf<R>>, Next)> {
        let entry = self.root_entry(hash);
        loop {
            let version = self.root.read_begin(&self.storage, entry);
            let found = match width {
                Width::Narrow => self.read_range_from(entry, hash, key).map(Some),
                Width::Wide => self.read_wide_from(entry, hash),
            };
            match found.transpose() {
                Some(found) if self.root.validate(&self.storage, entry, version) => return found,
                // Leaves, or a change.
                _ => width = Width::Narrow,
            }
            self.storage.forget_reads();
        }
    }

    /// The records of a wide range. Returns `None` if the range is damaged or has leaves.
    fn read_wide_from(&self, entry: usize, from: u64) -> Result<Option<(Vec<RecordOf<R>>, Next)>> {
        for (level, index) in self.entries_in(self.levels.count(&self.storage), Width::Wide, from) {
            let first = self.level_entry(level, index);
            if first.and_then(|first| self.has_leaves(first)).unwrap_or(true) {
                return Ok(None);
            }
        }
        let Ok((mut records, after)) = self.read_range(entry, from, Width::Wide) else {
            return Ok(None);
        };
        records.retain(|record| !record.dead);
        Ok(Some((records, Next::Hash(after))))
    }

    /// Reads a narrow range for [`Core::range_from`].
    fn read_range_from(
        &self,
        entry: usize,
        from: u64,
        key: &[u8],
    ) -> Result<(Vec<RecordOf<R>>, Next)> {
        let levels = self.levels.count(&self.storage);
        let wanted = self.in_range(levels, from);
        let mut all = self.root_part(entry, &wanted);
        let (mut is_crowded, mut end) = (false, None::<Box<[u8]>>);
        for level in 1..=levels {
            let first = self.level_entry(level, self.shape.index(level, from))?;
            let has_leaves = self.has_leaves(first)?;
            let (leaf, bound) = if has_leaves { self.leaf_of(first, key)? } else { (first, None) };
            self.read_entry(leaf, &mut all, &wanted)?;
            is_crowded |= has_leaves;
            end = match (end, bound) {
                (Some(end), Some(bound)) => Some(end.min(bound)),
                (end, bound) => end.or(bound),
            };
        }
        let (newest, _) = self.newest_of(&all)?;
        let mut records = Vec::with_capacity(newest.len());
        for moving in newest.into_iter().filter(|moving| !moving.record.dead) {
            let is_between = |found: SortKey<'_>| {
                *found >= *key && end.as_ref().is_none_or(|end| *found < **end)
            };
            // Without leaves there are few records, and the caller compares their keys.
            if !is_crowded || self.sort_key_of(moving)?.is_some_and(is_between) {
                records.push(moving.record);
            }
        }
        // A leaf above the last level may extend beyond the range.
        let index = self.shape.index(levels, from);
        let is_inside = |end: &[u8]| {
            self.placement
                .ranges()
                .is_some_and(|it| self.shape.index(levels, it.place_of_sorted(end)) == index)
        };
        let after = Next::Hash(self.range_after(levels, from));
        Ok((records, end.filter(|end| is_inside(end)).map_or(after, Next::Key)))
    }

    /// Returns whether a hash is at or after `from` and in the same entry of `level`.
    fn in_range(&self, level: usize, from: u64) -> impl Fn(u64) -> bool {
        let (shape, index) = (self.shape, self.shape.index(level, from));
        move |hash| hash >= from && shape.index(level, hash) == index
    }

    /// The records of a root entry that `wanted` accepts, newest first.
    fn root_part(&self, entry: usize, wanted: impl Fn(u64) -> bool) -> Vec<MovingOf<R>> {
        let records = (0..self.root.size(entry)).rev();
        let records = records.map(|at| self.moving(self.root.record(entry, at)));
        records.filter(|moving| wanted(moving.hash)).collect()
    }

    /// The entries of `levels` levels that overlap with a range, from the hash `from` on: the level and the index of each.
    fn entries_in(
        &self,
        levels: usize,
        width: Width,
        from: u64,
    ) -> impl Iterator<Item = (usize, u64)> {
        let shape = self.shape;
        let last = self.range_after(width.level(levels), from).map_or(u64::MAX, |next| next - 1);
        (1..=levels).flat_map(move |level| {
            (shape.index(level, from)..=shape.index(level, last)).map(move |index| (level, index))
        })
    }

    /// The newest record of each key in a range, from the hash `from` on, removals included.
    fn read_range(&self, root: usize, from: u64, width: Width) -> Result<Range<RecordOf<R>>> {
        let levels = self.levels.count(&self.storage);
        let of = width.level(levels);
        let wanted = self.in_range(of, from);
        let mut all = self.root_part(root, &wanted);
        for (level, index) in self.entries_in(levels, width, from) {
            self.newest_first_where(self.level_entry(level, index)?, &mut all, &wanted)?;
        }
        let (newest, _) = self.newest_of(&all)?;
        let records = newest.into_iter().map(|moving| moving.record).collect();
        Ok((records, self.range_after(of, from)))
    }

    /// Number of keys.
    pub(super) fn count(&self) -> Result<u64> {
        let (mut count, mut next) = (0, Some(0));
        while let Some(hash) = next {
            // Pinned anew for each range, so that freed payload chunks wait for at most one range.
            let _pin = self.pin();
            let (records, after) = self.range_at(hash, Width::Wide)?;
            count += records.len() as u64;
            next = after;
        }
        Ok(count)
    }
}

impl<R: RecordForm, M: Medium> Plush<R, M> {
    /// Returns the first `limit` records from `from` on, in the order of their keys; see
    /// [`Plush::range`](crate::Plush::range).
    pub(crate) fn range<K: Keep, V: Take + Copy>(
        &self,
        from: &Raw<'_>,
        limit: usize,
        (key_as, value_as): (K, V),
    ) -> Result<Vec<(K::Out, V::Out)>> {
        let Some(ranges) = self.core.placement.ranges() else {
            return Err(Error::Unsupported(
                "the table is partitioned by hashes and has no ranges; create it with `Partition::Range`".into(),
            ));
        };
        let _pin = self.core.pin();
        // Keys with the same place are in no particular order, so all of them are read and sorted.
        let (mut next, mut key) = (Some(ranges.place(from)), Box::from(&*ranges.sort_key(from)));
        let (mut found, mut is_damaged) = (Vec::new(), false);
        while let Some(hash) = next
            && found.len() < limit
        {
            let wanted = limit - found.len();
            let width =
                if is_damaged { Width::Narrow } else { self.core.width_for_records(wanted) };
            let (records, after) = self.core.range_from(hash, &key, width)?;
            let keys =
                records.into_iter().map(|record| Ok((self.take_key(record, key_as)?, record)));
            let mut part = match keys.collect::<Result<Vec<_>>>() {
                // The damaged key may be behind the last one that is wanted.
                Err(Error::Corrupt { .. }) if width == Width::Wide => {
                    is_damaged = true;
                    continue;
                }
                part => part?,
            };
            part.sort_by(|(a, _), (b, _)| ranges.compare(&K::raw(a), &K::raw(b)));
            let skipped =
                part.partition_point(|(found, _)| *ranges.sort_key(&K::raw(found)) < *key);
            for (key, record) in part.into_iter().skip(skipped).take(wanted) {
                found.push((key, self.take_value(record.value, value_as)?));
            }
            match after {
                Next::Key(end) => key = end,
                // Keys with a later place follow all keys read so far.
                Next::Hash(hash) => next = hash,
            }
        }
        Ok(found)
    }

    /// About `n` records from `cursor` on. Damaged ones are passed to `damaged`.
    pub(super) fn scan_page<K: Take + Copy, V: Take + Copy>(
        &self,
        cursor: Cursor,
        n: usize,
        take: (K, V),
        damaged: &mut OnDamage<'_, K::Out>,
    ) -> Result<Scanned<K::Out, V::Out>> {
        let _pin = self.core.pin();
        let mut page = Scanned { records: Vec::new(), next: Some(cursor) };
        while let Some(Cursor(hash)) = page.next
            && page.records.len() < n.max(1)
        {
            // A page has all records of its ranges, so ranges of long values are narrow.
            let width = match self.core.measure.is_inline() {
                true => self.core.width_for_records(n.max(1) - page.records.len()),
                false => Width::Narrow,
            };
            let (found, after) = self.core.range_at(hash, width)?;
            for record in found {
                match self.take_key(record, take.0) {
                    Err(error @ Error::Corrupt { .. }) => {
                        damaged(self.unverified_key(record, take.0), error)?;
                    }
                    key => page.add(key, || self.take_value(record.value, take.1), damaged)?,
                }
            }
            page.next = after.map(Cursor);
        }
        Ok(page)
    }
}
