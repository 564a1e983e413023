//! Searches in steps: each step prefetches what the next one reads, so that a single search waits for fewer lines one
//! after the other, and the searches of a batch overlap.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::core::Core;
use super::layout::{EntryRef, SLOTS};
use super::words::{Record, RecordOf, one_word};
use crate::Result;
use crate::base::pipeline::prefetch_read;
use crate::base::version_lock::Version;
use crate::engine::LookupKey;
use crate::storage::Medium;
use crate::types::RecordForm;

/// The first steps of a search, which hold as long as the root entry has the same version and the same number of
/// records. Appending a record does not change the version.
#[derive(Clone, Copy)]
pub(super) struct Begun<'t> {
    version: Version,
    size: usize,
    /// `false` if no record of the root entry has the key's fingerprint.
    may_be_in_root: bool,
    /// The first level whose entry was not ruled out by a filter.
    level: usize,
    /// The entry of that level and the buckets that its filter names; `None` if that filter has not been read.
    likely: Option<(EntryRef<'t>, u16)>,
    /// The reference of the newest record with the hash, and whether it is a removal. `None` if the search has not
    /// found one yet.
    sighted: Option<(u64, bool)>,
}

impl Begun<'_> {
    /// Returns `false` if the root entry and all filters that were read lack the key.
    #[inline(always)]
    pub(super) fn may_find(&self) -> bool {
        self.may_be_in_root || self.likely.is_some()
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Prefetches what a single write accesses first, and if it searches, what the search reads first. The processor
    /// can do this while the fence of the caller's previous write is pending (docs/decisions/0125).
    #[inline(never)]
    pub(super) fn look_ahead(&self, hash: u64, looks: bool) {
        let entry = self.root_entry(hash);
        self.root.prefetch_to_write(entry);
        if looks {
            self.root.prefetch_fingerprints(entry, self.shape.records());
            self.hint_filters(hash);
            self.hint_last_level(hash);
        }
    }

    /// Prefetches what a search reads first.
    #[inline]
    pub(super) fn hint_search(&self, hash: u64) {
        self.hint_root(hash);
        self.root.prefetch_fingerprints(self.root_entry(hash), self.shape.records());
        self.hint_filters(hash);
    }

    /// Prefetches the root entry without its fingerprints.
    #[inline]
    pub(super) fn hint_root(&self, hash: u64) {
        self.root.prefetch(self.root_entry(hash));
    }

    /// Prefetches the entry of the last level, which has most of the records.
    #[inline]
    pub(super) fn hint_last_level(&self, hash: u64) {
        let last = self.levels.count(&self.storage);
        if let Ok(entry) = self.entry_of(last, hash) {
            self.prefetch_filter(entry, hash);
            prefetch_read(&entry.entry.state);
        }
    }

    /// Prefetches the filters in DRAM.
    #[inline]
    pub(super) fn hint_filters(&self, hash: u64) {
        for level in self.levels_on_top() {
            if let Ok(entry) = self.entry_of(level, hash) {
                self.prefetch_filter(entry, hash);
            }
        }
    }

    /// Calls [`Core::begin_search`]; returns `None` while the root entry is being changed.
    #[inline]
    pub(super) fn try_begin_search(&self, hash: u64) -> Option<Begun<'_>> {
        let root = self.root_entry(hash);
        let version = self.root.try_read_begin(&self.storage, root)?;
        self.begin_search(root, version, hash)
    }

    /// Begins a search: excludes levels by the filters in DRAM, and prefetches the fingerprints of the root entry and
    /// the entry of a level. Returns `None` if an entry cannot be reached.
    #[inline]
    pub(super) fn begin_search(
        &self,
        root: usize,
        version: Version,
        hash: u64,
    ) -> Option<Begun<'_>> {
        let size = self.root.size(root);
        self.root.prefetch_fingerprints(root, size);
        let level = self.first_level(root);
        let mut begun =
            Begun { version, size, may_be_in_root: true, level, likely: None, sighted: None };
        let end_of_top = self.levels_on_top().end;
        while begun.level < end_of_top {
            let entry = self.entry_of(begun.level, hash).ok()?;
            let buckets = self.candidates(entry, hash);
            if buckets != 0 {
                self.fetch_state(entry);
                begun.likely = Some((entry, buckets));
                return Some(begun);
            }
            begun.level += 1;
        }
        // The next filters are on the medium.
        for level in self.levels_below() {
            let entry = self.entry_of(level, hash).ok()?;
            self.fetch_state(entry);
            self.prefetch_filter(entry, hash);
        }
        Some(begun)
    }

    /// Compares the fingerprints of the root entry, excludes levels by the filters on the medium, and prefetches the
    /// records that the search will compare.
    #[inline]
    pub(super) fn hint_records<'t>(&'t self, hash: u64, begun: &mut Begun<'t>) {
        begun.may_be_in_root = self.root.hint_newest(self.root_entry(hash), hash, begun.size);
        if begun.likely.is_none() {
            self.exclude_below(hash, begun);
        }
        if let Some((entry, buckets)) = begun.likely {
            self.hint_bucket(entry, buckets);
        }
    }

    /// Excludes further levels, by the filters on the medium.
    #[inline]
    fn exclude_below<'t>(&'t self, hash: u64, begun: &mut Begun<'t>) {
        while begun.level <= self.levels.count(&self.storage) {
            // The search will report what is wrong.
            let Ok(entry) = self.entry_of(begun.level, hash) else { return };
            let buckets = self.candidates(entry, hash);
            if buckets != 0 {
                begun.likely = Some((entry, buckets));
                return;
            }
            begun.level += 1;
        }
    }

    /// Searches for the newest record with the hash where [`Core::hint_records`] has prefetched records, and prefetches
    /// its payload. The record is valid if the version and the size of the root entry are still those of the beginning
    /// when the search ends.
    #[inline]
    pub(super) fn hint_payload(&self, hash: u64, begun: &mut Begun<'_>) {
        let Some(payloads) = self.payloads() else { return };
        let sighted = if begun.may_be_in_root {
            let has_hash = |record| Ok::<_, ()>(self.hash_of(record) == hash);
            self.root.newest(self.root_entry(hash), hash, has_hash).ok().flatten()
        } else {
            None
        };
        let sighted = match (sighted, begun.likely) {
            (None, Some((entry, buckets))) => self.newest_in(entry, buckets, hash),
            _ => sighted,
        };
        if let Some(record) = sighted {
            payloads.hint_whole(&self.storage, record.reference());
            begun.sighted = Some((record.reference(), record.dead));
        }
    }

    /// The newest record with a hash in the newest of the given buckets of an entry that no other one continues.
    #[inline]
    fn newest_in(&self, entry: EntryRef<'_>, buckets: u16, hash: u64) -> Option<RecordOf<R>> {
        let number = buckets.checked_ilog2()? as usize;
        let slots = self.shape.slots as usize;
        let used = self.state(entry).ok()?.size.saturating_sub(number * slots).min(slots);
        let bucket = self.bucket(entry, number).ok()?;
        let has_hash = |&slot: &usize| bucket.heads[slot].load(&self.storage, Relaxed) == hash;
        let slot = (0..used.min(SLOTS)).rev().find(has_hash)?;
        let is_alone = self.next_of(entry).ok()?.is_none();
        is_alone
            .then(|| self.record_in(bucket, slot, self.is_dead(entry.entry, number * slots + slot)))
    }

    /// Prefetches the newest of the given buckets of an entry.
    #[inline]
    pub(super) fn hint_bucket(&self, entry: EntryRef<'_>, buckets: u16) {
        let newest = buckets.checked_ilog2().map(|newest| newest as usize);
        let newest =
            newest.map(|newest| self.storage.read_unvalidated(|| self.bucket(entry, newest)));
        if let Some(Ok(bucket)) = newest {
            self.fetch(bucket);
        }
    }

    /// Completes a search that has begun, or begins it anew if the root entry has changed since.
    #[inline]
    pub(super) fn lookup_begun(
        &self,
        probe: &LookupKey<'_>,
        begun: Option<Begun<'_>>,
    ) -> Result<Option<RecordOf<R>>> {
        let Some(begun) = begun else { return self.lookup(probe) };
        let root = self.root_entry(probe.hash);
        if self.root.size(root) == begun.size {
            let found = self.search_begun(root, probe, begun);
            if self.root.validate(&self.storage, root, begun.version) {
                return found;
            }
            self.storage.forget_reads();
        }
        self.lookup(probe)
    }

    /// The result of a search that has begun. The caller validates it.
    #[inline]
    pub(super) fn search_begun(
        &self,
        root: usize,
        probe: &LookupKey<'_>,
        begun: Begun<'_>,
    ) -> Result<Option<RecordOf<R>>> {
        if let Some((reference, dead)) = begun.sighted {
            // If another key has the same hash, the whole search decides.
            let record = Record { key: one_word(probe.hash), value: one_word(reference), dead };
            if self.holds(record, probe)? {
                return Ok(Some(record));
            }
        }
        if begun.may_be_in_root
            && let Some(found) = self.search_root(root, probe)?
        {
            return Ok(Some(found));
        }
        let Some((entry, buckets)) = begun.likely else {
            return self.search_levels(begun.level, probe);
        };
        match self.search_level(entry, buckets, probe)? {
            None => self.search_levels(begun.level + 1, probe),
            found => Ok(found),
        }
    }

    /// The levels whose filters are in DRAM.
    #[inline]
    fn levels_on_top(&self) -> Range<usize> {
        1..self.top_filters.levels().min(self.levels.count(&self.storage)) + 1
    }

    /// The levels whose filters are on the medium only.
    #[inline]
    fn levels_below(&self) -> Range<usize> {
        self.top_filters.levels() + 1..self.levels.count(&self.storage) + 1
    }
}
