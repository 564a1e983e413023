//! Searches in steps: each step prefetches what the next one reads, so that a single search waits for fewer lines one
//! after the other, and the searches of a batch overlap.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::atomic::Ordering::Acquire;

use super::core::Core;
use super::layout::{EntryRef, State};
use super::payload_log::Payload;
use super::root::Suspects;
use super::words::{RecordOf, bytes_of, first, one_word};
use crate::Result;
use crate::base::group::{Isa, Native};
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
    /// The records of the root entry that have the key's fingerprint. [`Core::hint_records`] finds them; nothing reads
    /// this before.
    in_root: Option<Suspects>,
    /// The entry of the level; `None` if its filter has not been read.
    likely: Option<EntryRef<'t>>,
    /// The reference of the newest record with the hash, and whether it is a removal; `Some(None)` if there is no
    /// record with the hash. `None` if this is not known.
    sighted: Option<Option<(u64, bool)>>,
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

    /// Calls [`Core::try_begin_search`]. Not inlined: single gets are a few percent faster so.
    #[inline(never)]
    pub(super) fn begin_apart(&self, hash: u64) -> Option<Begun<'_>> {
        self.try_begin_search(hash)
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
            in_root: None,
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
    pub(super) fn hint_records<'t>(&'t self, isa: impl Isa, hash: u64, begun: &mut Begun<'t>) {
        begun.in_root =
            self.root.hint_newest(isa, self.root_entry(hash), hash, begun.size as usize);
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
    /// its payload. The result is valid if the version and the size of the root entry are still those of the beginning
    /// when the search ends.
    #[inline(always)]
    fn hint_payload(&self, isa: impl Isa, hash: u64, begun: &mut Begun<'_>) {
        let Some(payloads) = self.payloads() else { return };
        let seen = self.newest_prefetched(isa, hash, &one_word(hash), begun);
        if let Some(Some(record)) = seen {
            payloads.hint_whole(&self.storage, record.reference());
        }
        begun.sighted = seen.map(|found| found.map(|record| (record.reference(), record.dead)));
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

    /// The words of a key's value, if the records that [`Core::hint_records`] has prefetched determine it. The outer
    /// `None` means that a whole search is needed, which may return an error. For records that hold keys and values
    /// themselves. Most searches end here: a result that may be an error passes through memory, where the processor
    /// waits for its parts.
    #[inline(always)]
    pub(super) fn find_prefetched(
        &self,
        isa: impl Isa,
        probe: &LookupKey<'_>,
        begun: &Begun<'_>,
    ) -> Option<Option<R::ValueWords>> {
        if !self.has_its_size(probe.hash, begun) {
            return None;
        }
        let seen = self.newest_prefetched(isa, probe.hash, &self.key_words(probe), begun);
        if self.still_holds(probe.hash, begun) {
            seen.map(|found| self.value_in(found))
        } else {
            None
        }
    }

    /// The bytes of a key's value, if the payload that [`Core::hint_payload`] has prefetched determines them; otherwise
    /// as [`Core::find_prefetched`]. For records with payloads; the caller is pinned.
    #[inline(always)]
    pub(super) fn find_sighted(
        &self,
        probe: &LookupKey<'_>,
        begun: &Begun<'_>,
    ) -> Option<Option<&[u8]>> {
        if !self.has_its_size(probe.hash, begun) {
            return None;
        }
        let (sighted, hash) = (begun.sighted?, probe.hash);
        let look = || _ = self.newest_prefetched(Native::default(), hash, &one_word(hash), begun);
        self.storage.repeat_reads(look);
        let value = match sighted {
            None => Some(None),
            Some((reference, dead)) => {
                let payload = self.payloads()?.try_read(&self.storage, reference);
                // If another key has the same hash, the whole search decides.
                let is_same =
                    |payload: &Payload<'_>| payload.key == bytes_of(probe.key, &mut [0; 8]);
                payload.filter(is_same).map(|payload| (!dead).then_some(payload.value))
            }
        };
        if self.still_holds(hash, begun) { value } else { None }
    }

    /// Returns whether the root entry has the same number of records as when the search began.
    #[inline(always)]
    fn has_its_size(&self, hash: u64, begun: &Begun<'_>) -> bool {
        self.root.size(self.root_entry(hash)) == begun.size as usize
    }

    /// Validates what a search has read since it began.
    #[inline(always)]
    fn still_holds(&self, hash: u64, begun: &Begun<'_>) -> bool {
        let holds = self.root.validate(&self.storage, self.root_entry(hash), begun.version);
        if !holds {
            self.storage.forget_reads();
        }
        holds
    }

    /// The newest record with these key words, which for records with payloads consist of the hash, if the records that
    /// [`Core::hint_records`] has prefetched determine it. The outer `None` is as in [`Core::find_prefetched`]; the
    /// caller validates.
    #[inline(always)]
    fn newest_prefetched(
        &self,
        isa: impl Isa,
        hash: u64,
        key: &R::KeyWords,
        begun: &Begun<'_>,
    ) -> Option<Option<RecordOf<R>>> {
        if let Some(suspects) = begun.in_root {
            let root = self.root_entry(hash);
            let newest = self.root.record(root, suspects.newest.into());
            if newest.key == *key {
                return Some(Some(newest));
            }
            if suspects.are_several {
                let has_key = |record: RecordOf<R>| Ok::<_, Infallible>(record.key == *key);
                let Ok(found) = self.root.newest(isa, root, hash, has_key);
                if found.is_some() {
                    return Some(found);
                }
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
        let slot = bucket.and_then(|bucket| self.newest_slot(bucket, used, first(key)));
        let (Some(bucket), Some(slot)) = (bucket, slot) else {
            // The filter has named one bucket by mistake, and no level is left.
            let is_only = begun.buckets.is_power_of_two();
            return (is_only && level == last).then_some(None);
        };
        let record = self.record_in(bucket, slot, self.is_dead(entry.entry, start + slot));
        (record.key == *key).then_some(Some(record))
    }

    /// Continues a search of a batch, one stage before [`Core::approach`]: records with payloads take one step more.
    #[inline(always)]
    pub(super) fn follow<'t>(&'t self, isa: impl Isa, hash: u64, begun: &mut Option<Begun<'t>>) {
        if let Some(begun) = begun
            && !self.measure.is_inline()
        {
            self.hint_records(isa, hash, begun);
        }
    }

    /// Continues a search of a batch, for the last time before its result is needed.
    #[inline(always)]
    pub(super) fn approach<'t>(&'t self, isa: impl Isa, hash: u64, begun: &mut Option<Begun<'t>>) {
        let Some(begun) = begun else { return };
        if self.measure.is_inline() {
            self.hint_records(isa, hash, begun);
        } else {
            // Read through `read_unvalidated`: other operations finish before this one validates what it reads here.
            self.storage.read_unvalidated(|| self.hint_payload(isa, hash, begun));
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
        if begun.in_root.is_some()
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
