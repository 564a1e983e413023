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
