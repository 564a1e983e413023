//! Iteration: by ranges of hashes, each as wide as an entry of the last level covers.
//!
//! A range is read from the root and from every level, the newest record of each key counts, and the read is validated
//! like a *get*. A cursor is the hash at which a range begins, so it survives new levels.

use std::cmp::Ordering;

use super::Plush;
use super::core::Core;
use super::words::RecordOf;
use crate::key::{Key, Raw, Value};
use crate::pm::Medium;
use crate::table::{Arg, Cursor, Owned, Page};
use crate::{Error, Result};

/// Records, and the hash at which the next range begins.
type Range<R> = (Vec<R>, Option<u64>);

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// The records of the range that a hash is in, but those before the hash.
    pub(super) fn range_at(&self, hash: u64) -> Result<Range<RecordOf<K, V>>> {
        let (mut records, after) = self.newest_at(hash)?;
        records.retain(|record| !record.dead);
        Ok((records, after))
    }

    /// The same, with those that say that their keys were removed.
    pub(super) fn newest_at(&self, hash: u64) -> Result<Range<RecordOf<K, V>>> {
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

    fn read_range(&self, entry: usize, from: u64) -> Result<Range<RecordOf<K, V>>> {
        let levels = self.level_count();
        let index = self.shape.index(levels, from);
        let size = self.root.size(entry);
        let mut all: Vec<_> =
            (0..size).rev().map(|at| self.moving(self.root.record(entry, at))).collect();
        for level in 1..=levels {
            let first = self.level_entry(level, self.shape.index(level, from))?;
            all.extend(self.newest_first(first)?);
        }
        all.retain(|moving| moving.hash >= from && self.shape.index(levels, moving.hash) == index);
        let (newest, _) = self.newest_of(all.into_iter())?;
        let records = newest.into_iter().map(|moving| moving.record).collect();
        Ok((records, self.range_after(levels, from)))
    }

    /// How many keys there are.
    pub(super) fn count(&self) -> Result<u64> {
        let (mut count, mut next) = (0, Some(0));
        while let Some(hash) = next {
            // Payload chunks that were freed wait for one range at most.
            let _pin = self.pin();
            let (records, after) = self.range_at(hash)?;
            count += records.len() as u64;
            next = after;
        }
        Ok(count)
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Plush<K, V, M> {
    /// The first `limit` records from `from` on, in the order of their keys, each key once (§6.6). Of a table that is
    /// partitioned by [`Partition::Range`](super::Partition::Range).
    ///
    /// Weakly consistent, as [`iter`](Self::iter): every key that is present throughout is in it, with a value that it
    /// had meanwhile; the records of one entry of the last level, some hundred at most, are of one moment. Takes no
    /// lock. Reads of each level one entry for each such part.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the table is partitioned by hashes; as [`get`](Self::get).
    ///
    /// ```
    /// use icefield::{Partition, Plush};
    /// let table = Plush::<str, u64>::options().partition(Partition::Range).in_memory()?;
    /// for (number, word) in ["plum", "fig", "apple", "pear"].into_iter().enumerate() {
    ///     table.put(word, number as u64)?;
    /// }
    /// let words: Vec<String> = table.range("b", 2)?.into_iter().map(|(word, _)| word).collect();
    /// assert_eq!(words, ["fig", "pear"]);
    /// # Ok::<(), icefield::Error>(())
    /// ```
    pub fn range(&self, from: Arg<'_, K>, limit: usize) -> Result<Vec<(Owned<K>, Owned<V>)>> {
        let Some(ranges) = self.core.ranges else {
            return Err(Error::Unsupported(
                "the table is partitioned by hashes: it has no ranges".into(),
            ));
        };
        let _pin = self.core.pin();
        let from = K::raw(from);
        // Keys of one place come in any order: all of them are looked at.
        let mut next = Some(ranges.place(&from));
        let mut found = Vec::new();
        while let Some(hash) = next
            && found.len() < limit
        {
            let (records, after) = self.core.range_at(hash)?;
            let begin = found.len();
            for record in records {
                found.push((self.own_key(record)?, self.own_value(record.value)?));
            }
            found[begin..].sort_by(|(a, _), (b, _)| ranges.compare(&raw::<K>(a), &raw::<K>(b)));
            let is_before = |(key, _): &(Owned<K>, Owned<V>)| {
                ranges.compare(&raw::<K>(key), &from) == Ordering::Less
            };
            let skipped = found[begin..].partition_point(is_before);
            found.drain(begin..begin + skipped);
            next = after;
        }
        found.truncate(limit);
        Ok(found)
    }

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

fn raw<K: Key + ?Sized>(key: &Owned<K>) -> Raw<'_> {
    K::raw(K::arg(key))
}
