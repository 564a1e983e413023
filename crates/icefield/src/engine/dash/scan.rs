//! Iteration: segment by segment in hash order (cursors are hashes), each segment read as one consistent unit.
//!
//! Splits refine the ranges of hashes but never move a boundary, so a cursor stays valid when the directory changes.
//! The hash of a record, not its place, determines which page returns it.

use super::Dash;
use super::directory::Directory;
use super::layout::Bucket;
use super::located::Covered;
use super::root::hashes_below;
use super::segment::Segment;
use crate::base::version_lock;
use crate::engine::slots::table::SlotTable;
use crate::engine::{OnDamage, Scanned};
use crate::outcome::Cursor;
use crate::storage::Medium;
use crate::types::{Ignore, RecordForm, Take};
use crate::{Error, Result};

/// Number of optimistic attempts to read a segment before its locks are taken.
const PATIENCE: u32 = 8;

/// A record's hash and its two words.
type Entry = (u64, u64, u64);

impl<R: RecordForm, P: Directory, M: Medium> Dash<R, P, M> {
    /// Returns about `n` records from `cursor` on; damaged records go to `damaged`.
    pub(super) fn scan_page<K: Take + Copy, V: Take + Copy>(
        &self,
        cursor: Cursor,
        n: usize,
        take: (K, V),
        damaged: &mut OnDamage<'_, K::Out>,
    ) -> Result<Scanned<K::Out, V::Out>> {
        let core = &self.core;
        let pin = core.pin();
        let mut page = Scanned { records: Vec::new(), next: Some(cursor) };
        while let Some(Cursor(from)) = page.next
            && page.records.len() < n.max(1)
        {
            let (range, mut entries) = self.read_segment(from, take.0)?;
            entries.retain(|&(hash, ..)| hash >= from && range.contains(hash));
            entries.sort_unstable_by_key(|&(hash, ..)| hash);
            page.next = range.last.checked_add(1).map(Cursor);
            if let Some(&(last, ..)) =
                entries.get((n - page.records.len().min(n)).saturating_sub(1))
            {
                // Records with the same hash stay on one page: a cursor cannot distinguish them.
                entries.retain(|&(hash, ..)| hash <= last);
                page.next = last.checked_add(1).map(Cursor);
            }
            for (_, key, value) in entries {
                page.add(
                    self.take_key(key, take.0),
                    || self.take_value(None, value, take.1),
                    damaged,
                )?;
            }
        }
        drop(pin);
        Ok(page)
    }

    /// Returns all records of the segment that holds `hash`, as of one moment.
    fn read_segment(&self, hash: u64, take: impl Take + Copy) -> Result<(Covered, Vec<Entry>)> {
        if self.core.still.is_some() {
            let range = self.directory.range(&self.core, hash)?;
            let segment = self.core.segment(range.located.segment)?;
            return Ok((range, self.entries(segment, range.first, take)?));
        }
        for _ in 0..PATIENCE {
            if let Some(read) = self.try_read_segment(hash, take)? {
                return Ok(read);
            }
        }
        loop {
            let range = self.directory.range(&self.core, hash)?;
            let segment = self.core.segment(range.located.segment)?;
            let _guards = self.core.lock_all(segment);
            if self.is_same(hash, range)? {
                return Ok((range, self.entries(segment, range.first, take)?));
            }
        }
    }

    fn try_read_segment(
        &self,
        hash: u64,
        take: impl Take + Copy,
    ) -> Result<Option<(Covered, Vec<Entry>)>> {
        let core = &self.core;
        let range = self.directory.range(core, hash)?;
        let segment = core.segment(range.located.segment)?;
        // Every change in the stash or the chain also changes the version of a normal bucket.
        let normal = &segment.buckets[..core.geometry.buckets as usize];
        let versions: Vec<_> = normal
            .iter()
            .map(|bucket| version_lock::read_begin(bucket.version_lock(&core.storage)))
            .collect();
        if !self.is_same(hash, range)? {
            core.storage.forget_reads();
            return Ok(None);
        }
        let entries = self.entries(segment, range.first, take);
        let valid = normal.iter().zip(versions).all(|(bucket, version)| {
            version_lock::validate(bucket.version_lock(&core.storage), version)
        });
        if !valid {
            core.storage.forget_reads();
            return Ok(None);
        }
        entries.map(|entries| Some((range, entries)))
    }

    /// Returns whether the segment of `hash` and its range are still those in `range`. May be called under locks: it
    /// accesses no other segment.
    fn is_same(&self, hash: u64, range: Covered) -> Result<bool> {
        Ok(self.directory.covered(&self.core, hash, range.located)? == Some(range))
    }

    /// Returns the records of a segment. A record whose key is damaged gets the hash `first`, so that the page reports
    /// it.
    fn entries(
        &self,
        segment: Segment<'_>,
        first: u64,
        take: impl Take + Copy,
    ) -> Result<Vec<Entry>> {
        let core = &self.core;
        // The hashes of the segment, including those that due splits will move. The link is read through
        // `read_unvalidated`: it only selects the records whose keys are checked.
        let depth = core.storage.read_unvalidated(|| core.link(segment.id))?.depth;
        let own = first & !hashes_below(depth)..=first | hashes_below(depth);
        let mut entries = Vec::with_capacity(core.geometry.segment_slots() as usize);
        for site in core.sites(segment) {
            let (_, bucket) = site?;
            for slot in Bucket::slots_of(bucket.meta(&core.storage).allocated()) {
                let (key, value) = bucket.record(&core.storage, slot);
                let hash = match core.records.hash_of(&core.storage, key) {
                    Err(Error::Corrupt { .. }) => first,
                    // The hash is outside the segment. If the key can be read, a split has not removed the record yet;
                    // otherwise the key is damaged.
                    Ok(hash) if !own.contains(&hash) && self.take_key(key, take).is_err() => first,
                    hash => hash?,
                };
                entries.push((hash, key, value));
            }
        }
        Ok(entries)
    }

    /// Counts all records, segment by segment.
    pub(super) fn count_all(&self) -> Result<u64> {
        let mut total = 0;
        let mut next = Some(0);
        while let Some(hash) = next {
            let (range, entries) = self.read_segment(hash, Ignore)?;
            let is_next = |&&(found, ..): &&Entry| found >= hash && range.contains(found);
            total += entries.iter().filter(is_next).count() as u64;
            next = range.last.checked_add(1);
        }
        Ok(total)
    }
}
