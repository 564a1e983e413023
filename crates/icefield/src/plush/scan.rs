//! Iteration: by ranges of hashes, each as wide as an entry of the last level covers.
//!
//! A range is read from the root and from every level, the newest record of each key counts, and the read is validated
//! like a *get*. A cursor is the hash at which a range begins, so it survives new levels.

use super::Plush;
use super::core::Core;
use super::root::Record;
use crate::Result;
use crate::key::{Key, Value};
use crate::pm::Medium;
use crate::table::{Cursor, Page};

/// Records, and the hash at which the next range begins.
type Range = (Vec<Record>, Option<u64>);

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// The records of the range that a hash is in, but those before the hash.
    pub(super) fn range_at(&self, hash: u64) -> Result<Range> {
        let entry = self.root_entry(hash);
        loop {
            let version = self.root.read_begin(&self.pm, entry);
            let found = self.read_range(entry, hash);
            if self.root.validate(&self.pm, entry, version) {
                return found;
            }
            self.pm.forget_reads();
        }
    }

    /// Where the range after that of a hash begins, with so many levels.
    pub(super) fn range_after(&self, levels: usize, hash: u64) -> Option<u64> {
        let next = self.shape.index(levels, hash) + 1;
        let width = 63 - self.shape.prefix(levels);
        (next < self.shape.entries(levels)).then(|| next << width << 1)
    }

    fn read_range(&self, entry: usize, from: u64) -> Result<Range> {
        let levels = self.level_count();
        let index = self.shape.index(levels, from);
        let size = self.root.size(entry);
        let mut all: Vec<Record> = (0..size).rev().map(|at| self.root.record(entry, at)).collect();
        for level in 1..=levels {
            let first = self.level_entry(level, self.shape.index(level, from))?;
            all.extend(self.newest_first(first)?);
        }
        all.retain(|&record| {
            let hash = self.hash_of(record);
            hash >= from && self.shape.index(levels, hash) == index
        });
        let mut records = self.newest_of(all)?;
        records.retain(|record| !record.dead);
        Ok((records, self.range_after(levels, from)))
    }

    /// How many keys there are.
    pub(super) fn count(&self) -> Result<u64> {
        let _pin = self.pin();
        let (mut count, mut next) = (0, Some(0));
        while let Some(hash) = next {
            let (records, after) = self.range_at(hash)?;
            count += records.len() as u64;
            next = after;
        }
        Ok(count)
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Plush<K, V, M> {
    pub(super) fn scan_page(&self, cursor: Cursor, n: usize) -> Result<Page<K, V>> {
        let _pin = self.core.pin();
        let mut next = Some(cursor.0);
        let mut records = Vec::new();
        while let Some(hash) = next
            && records.len() < n.max(1)
        {
            let (found, after) = self.core.range_at(hash)?;
            for record in found {
                records.push((self.own_key(record)?, self.own_value(record.value)?));
            }
            next = after;
        }
        Ok(Page { records, next: next.map(Cursor) })
    }
}

/// An iterator over a table's records, from [`Plush::iter`]; reads ahead a page at a time.
///
/// ```
/// let table = icefield::Plush::<u64, u64>::in_memory()?;
/// table.put_batch(&[(1, 10), (2, 20)])?;
/// let sum: u64 = table.iter().map(|record| record.map(|(_, value)| value)).sum::<icefield::Result<u64>>()?;
/// assert_eq!(sum, 30);
/// # Ok::<(), icefield::Error>(())
/// ```
pub struct PlushIter<'a, K: Key + ?Sized, V: Value + ?Sized, M: Medium> {
    pub(super) table: &'a Plush<K, V, M>,
    pub(super) page: std::vec::IntoIter<(K::Owned, V::Owned)>,
    pub(super) next: Option<Cursor>,
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Iterator for PlushIter<'_, K, V, M> {
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.page.next() {
                return Some(Ok(record));
            }
            match self.table.scan_page(self.next.take()?, crate::table::SCAN_PAGE) {
                Ok(page) => (self.page, self.next) = (page.records.into_iter(), page.next),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
