//! Searches in steps: each step prefetches what the next one reads, so that a single search waits for fewer lines one
//! after the other, and the searches of a batch overlap.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::atomic::Ordering::Acquire;

use super::core::Core;
use super::layout::{EntryRef, State};
use super::words::{Record, RecordOf, first, one_word};
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
    size: u32,
    /// The buckets of the entry in `likely` that its filter names.
    buckets: u16,
    /// The first level whose entry was not ruled out by a filter.
    level: u8,
    /// `false` if no record of the root entry has the key's fingerprint.
    may_be_in_root: bool,
    /// The entry of the level; `None` if its filter has not been read.
    likely: Option<EntryRef<'t>>,
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
            self.root.prefetch_fingerprints(entry);
            self.hint_filters(hash);
            self.hint_last_level(hash);
        }
    }

    /// Prefetches what a search reads first.
    #[inline]
    pub(super) fn hint_search(&self, hash: u64) {
        self.hint_root(hash);
        self.root.prefetch_fingerprints(self.root_entry(hash));
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
    #[inline(always)]
    pub(super) fn hint_filters(&self, hash: u64) {
        for level in self.levels_on_top() {
            if let Ok(entry) = self.entry_of(level, hash) {
                self.prefetch_filter(entry, hash);
            }
        }
    }

    /// Calls [`Core::begin_search`]; returns `None` while the root entry is being changed.
    #[inline(always)]
    pub(super) fn try_begin_search(&self, hash: u64) -> Option<Begun<'_>> {
        let root = self.root_entry(hash);
        let version = self.root.try_read_begin(&self.storage, root)?;
        self.begin_search(root, version, hash)
    }

    /// Begins a search: excludes levels by the filters in DRAM, and prefetches the fingerprints of the root entry and
    /// the entry of a level. Returns `None` if an entry cannot be reached.
    #[inline(always)]
    pub(super) fn begin_search(
        &self,
        root: usize,
        version: Version,
        hash: u64,
    ) -> Option<Begun<'_>> {
        let size = self.root.size(root);
        self.root.prefetch_fingerprints(root);
        let level = self.first_level(root);
        let mut begun = Begun {
            version,
            size: size as u32,
            buckets: 0,
            level: level as u8,
            may_be_in_root: true,
            likely: None,
            sighted: None,
        };
        for level in level..self.levels_on_top().end {
            let entry = self.entry_of(level, hash).ok()?;
            let buckets = self.candidates(entry, hash);
            if buckets != 0 {
                self.fetch_state(entry);
                (begun.level, begun.buckets, begun.likely) = (level as u8, buckets, Some(entry));
                return Some(begun);
            }
            begun.level = level as u8 + 1;
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
    #[inline(always)]
    pub(super) fn hint_records<'t>(&'t self, hash: u64, begun: &mut Begun<'t>) {
        begun.may_be_in_root =
            self.root.hint_newest(self.root_entry(hash), hash, begun.size as usize);
        if begun.likely.is_none() {
            self.exclude_below(hash, begun);
        }
        if let Some(entry) = begun.likely {
            self.hint_bucket(entry, begun.buckets);
        }
    }

    /// Excludes further levels, by the filters on the medium.
    #[inline(always)]
    fn exclude_below<'t>(&'t self, hash: u64, begun: &mut Begun<'t>) {
        for level in begun.level.into()..=self.levels.count(&self.storage) {
            // The search will report what is wrong.
            let Ok(entry) = self.entry_of(level, hash) else { return };
            let buckets = self.candidates(entry, hash);
            if buckets != 0 {
                (begun.level, begun.buckets, begun.likely) = (level as u8, buckets, Some(entry));
                return;
            }
            begun.level = level as u8 + 1;
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
            (None, Some(entry)) => self.newest_in(entry, begun.buckets, hash),
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
        let bucket = self.find_bucket(entry, number)?;
        let slot = self.newest_slot(bucket, used, hash)?;
        let is_alone = self.next_of(entry).ok()?.is_none();
        is_alone
            .then(|| self.record_in(bucket, slot, self.is_dead(entry.entry, number * slots + slot)))
    }

    /// Prefetches the newest of the given buckets of an entry.
    #[inline(always)]
    pub(super) fn hint_bucket(&self, entry: EntryRef<'_>, buckets: u16) {
        let newest = buckets.checked_ilog2().map(|newest| newest as usize);
        let find = |number| self.storage.read_unvalidated(|| self.find_bucket(entry, number));
        if let Some(bucket) = newest.and_then(find) {
            self.fetch(bucket);
        }
    }

    /// The value of a key, if the records that [`Core::hint_records`] has prefetched determine it. The outer `None` means
    /// that a whole search is needed, which may return an error. For records that hold keys and values themselves. Most
    /// searches end here: a result that may be an error passes through memory, where the processor waits for its parts.
    #[inline(always)]
    pub(super) fn glance(
        &self,
        probe: &LookupKey<'_>,
        begun: &Begun<'_>,
    ) -> Option<Option<R::ValueWords>> {
        let root = self.root_entry(probe.hash);
        if self.root.size(root) != begun.size as usize {
            return None;
        }
        let seen = self.seen(root, probe, begun);
        if !self.root.validate(&self.storage, root, begun.version) {
            self.storage.forget_reads();
            return None;
        }
        seen
    }

    /// Does the same as [`Core::glance`], but leaves the validation to it.
    #[inline(always)]
    fn seen(
        &self,
        root: usize,
        probe: &LookupKey<'_>,
        begun: &Begun<'_>,
    ) -> Option<Option<R::ValueWords>> {
        let key = self.key_words(probe);
        if begun.may_be_in_root {
            let has_key = |record: RecordOf<R>| Ok::<_, Infallible>(record.key == key);
            let Ok(found) = self.root.newest(root, probe.hash, has_key);
            if found.is_some() {
                return Some(self.value_in(found));
            }
        }
        let (level, last) = (usize::from(begun.level), self.levels.count(&self.storage));
        let Some(entry) = begun.likely else { return (level > last).then_some(None) };
        let size = State::unpack(entry.entry.state.load(&self.storage, Acquire)).size;
        if size > self.shape.records() || entry.entry.next.load(&self.storage, Acquire) != 0 {
            return None;
        }
        let number = begun.buckets.checked_ilog2()? as usize;
        let start = number * self.shape.slots as usize;
        let used = size.saturating_sub(start).min(self.shape.slots as usize);
        // An entry need not have the buckets behind its records.
        let bucket = if used > 0 { Some(self.find_bucket(entry, number)?) } else { None };
        let slot = bucket.and_then(|bucket| self.newest_slot(bucket, used, first(&key)));
        let (Some(bucket), Some(slot)) = (bucket, slot) else {
            // The filter has named one bucket by mistake, and no level is left.
            let is_only = begun.buckets.is_power_of_two();
            return (is_only && level == last).then_some(None);
        };
        let record = self.record_in(bucket, slot, self.is_dead(entry.entry, start + slot));
        (record.key == key).then(|| self.value_in(Some(record)))
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
        if self.root.size(root) == begun.size as usize {
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
        let level = usize::from(begun.level);
        let Some(entry) = begun.likely else { return self.search_levels(level, probe) };
        match self.search_level(entry, begun.buckets, probe)? {
            None => self.search_levels(level + 1, probe),
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
