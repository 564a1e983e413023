//! The shared state of a table: regions, entries by number, and the search for a key.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::journals::Journals;
use super::layout::{
    Bucket, CLASSES, Entry, EntryId, EntryRef, LINE_WORDS, MAX_BUCKETS, Phase, RUNS, Root, SLOTS,
    Shape, State, class_of, run_buckets, run_of,
};
use super::leaf_bounds::Leaves;
use super::levels::Levels;
use super::mended::Mended;
use super::moving::{Moving, MovingOf};
use super::payload_log::{Payload, PayloadLog};
use super::placement::Placement;
use super::recovery_log::RecoveryLogs;
use super::requests::Requests;
use super::root::RootTable;
use super::root_lock::Held;
use super::tallies::Tallies;
use super::top_filters::TopFilters;
use super::words::{Measure, RecordOf, bytes_of, first, one_word, words_of};
use crate::base::group::Native;
use crate::base::pipeline::prefetch_read;
use crate::base::reclaim::Guard;
use crate::engine::LookupKey;
use crate::engine::exclusion::Exclusion;
use crate::storage::alloc::{Pool, Words};
use crate::storage::superblock;
use crate::storage::{Cell64, Medium, Region};
use crate::types::{Raw, RecordForm};
use crate::{Error, Result};

/// The state that all parts of a table share.
pub(crate) struct Core<R, M> {
    pub(super) shape: Shape,
    pub(super) measure: Measure<R>,
    pub(super) placement: Placement,
    pub(super) root: RootTable<R>,
    pub(super) top_filters: TopFilters,
    /// Used only when the table is partitioned by ranges.
    pub(super) leaves: Leaves,
    pub(super) logs: RecoveryLogs<R>,
    /// Present when a type has no fixed width.
    pub(super) payloads: Option<PayloadLog>,
    pub(super) table: Region,
    pub(super) levels: Levels,
    /// Entries that continue others.
    pub(super) chains: Pool,
    /// Runs of buckets, by class.
    pub(super) runs: [Pool; CLASSES],
    pub(super) journals: Journals<R>,
    pub(super) exclusion: Exclusion,
    /// Present when the table has a helper.
    pub(super) requests: Option<Arc<Requests>>,
    pub(super) tallies: Tallies,
    /// Present when the table is opened for salvage only.
    pub(super) mended: Option<Mended>,
    /// The last field, so that all fields that point into its mappings are dropped first.
    pub(super) storage: M,
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    pub(super) fn root_words(&self) -> Result<&Root> {
        superblock::root_words(&self.storage, &self.table)
    }

    /// Returns the files of blocks, each with the words of its allocator: the runs by class, then the entries that
    /// continue others.
    pub(super) fn pools<'a>(
        &'a self,
        root: &'a Root,
    ) -> impl Iterator<Item = (&'a Pool, &'a Words)> {
        self.runs.iter().zip(&root.runs).chain([(&self.chains, &root.chains)])
    }

    /// Stores and persists the phase of the table.
    pub(super) fn set_phase(&self, phase: Phase) -> Result<()> {
        let cell = &self.root_words()?.phase;
        cell.store(&self.storage, phase.pack(), Release);
        self.storage.try_persist(cell)
    }

    /// The key and its hash, for a search.
    #[inline]
    pub(super) fn hash_key<'a>(&self, key: &'a Raw<'_>) -> LookupKey<'a> {
        LookupKey::new(self.placement.of::<R>(key), key)
    }

    /// The payload log; `None` if the slots hold keys and values themselves.
    #[inline(always)]
    pub(super) fn payloads(&self) -> Option<&PayloadLog> {
        if self.measure.is_inline() { None } else { self.payloads.as_ref() }
    }

    /// Pins the thread: while the guard exists, payload chunks that can be reached now are not written again.
    #[inline]
    pub(super) fn pin(&self) -> Option<Guard<'_>> {
        self.payloads().map(PayloadLog::pin)
    }

    /// The root entry of a hash.
    #[inline]
    pub(super) fn root_entry(&self, hash: u64) -> usize {
        self.shape.index(0, hash) as usize
    }

    /// Locks the root entry of a hash. The caller has locked no other root entry.
    #[inline]
    pub(super) fn hold(&self, hash: u64) -> Held<'_, M> {
        self.root.lock(&self.storage, self.root_entry(hash))
    }

    /// An entry of a level.
    pub(super) fn level_entry(&self, level: usize, index: u64) -> Result<EntryRef<'_>> {
        let number = self.shape.entries_above(level) + index;
        self.entry(EntryId::Level(number as u32))
    }

    /// The entry of a level for a hash.
    #[inline(always)]
    pub(super) fn entry_of(&self, level: usize, hash: u64) -> Result<EntryRef<'_>> {
        self.level_entry(level, self.shape.index(level, hash))
    }

    /// An entry by its number.
    #[inline(always)]
    pub(super) fn entry(&self, id: EntryId) -> Result<EntryRef<'_>> {
        let entry = match id {
            EntryId::Level(number) => self.levels.entry(&self.storage, number)?,
            EntryId::Chained(block) => self.chains.at(&self.storage, block)?,
        };
        Ok(EntryRef { id, entry })
    }

    /// The entry that continues another one, if any.
    pub(super) fn next_of(&self, entry: EntryRef<'_>) -> Result<Option<EntryRef<'_>>> {
        match entry.entry.next.load(&self.storage, Acquire) {
            0 => Ok(None),
            next => self.entry(EntryId::Chained(next - 1)).map(Some),
        }
    }

    /// An entry and those that continue it, oldest records first.
    pub(super) fn chain_of<'a>(&'a self, first: EntryRef<'a>) -> Result<Vec<EntryRef<'a>>> {
        let bound = self.chains.room() + 1;
        let mut chain = vec![first];
        let mut last = first;
        while let Some(next) = self.next_of(last)? {
            if chain.len() as u64 > bound {
                return Err(self.chains.region().fault(
                    &self.storage,
                    0,
                    "a chain of entries does not end",
                ));
            }
            chain.push(next);
            last = next;
        }
        Ok(chain)
    }

    /// The number of records of an entry, and its epoch.
    #[inline(always)]
    pub(super) fn state(&self, entry: EntryRef<'_>) -> Result<State> {
        let state = State::unpack(entry.entry.state.load(&self.storage, Acquire));
        if state.size > self.shape.records() {
            return Err(self.impossible_size(entry.id));
        }
        Ok(state)
    }

    #[cold]
    fn impossible_size(&self, entry: EntryId) -> Error {
        let detail = format!("{entry:?} has an impossible number of records");
        self.levels.region().fault(&self.storage, 0, detail)
    }

    #[inline(always)]
    pub(super) fn bucket(&self, entry: EntryRef<'_>, number: usize) -> Result<Bucket<'_>> {
        self.find_bucket(entry, number).ok_or_else(|| self.no_bucket(entry.id, number))
    }

    /// A bucket of an entry, if the entry has it. A reader without a lock may find no run here: the entry may have lost
    /// the run since the reader loaded the entry's state.
    #[inline(always)]
    pub(super) fn find_bucket(&self, entry: EntryRef<'_>, number: usize) -> Option<Bucket<'_>> {
        let (run, place) = run_of(number);
        let block = entry.entry.runs[run].load(&self.storage, Acquire).checked_sub(1)?;
        let number = u64::from(block) * run_buckets(run) + place as u64;
        Bucket::at(self.runs[class_of(run)].region(), number, self.measure.widths())
    }

    #[cold]
    fn no_bucket(&self, entry: EntryId, number: usize) -> Error {
        let (run, _) = run_of(number);
        let detail = format!("{entry:?} has no bucket {number}");
        self.runs[class_of(run)].region().fault(&self.storage, 0, detail)
    }

    /// The bucket and the slot of the record at a place of an entry.
    #[inline]
    pub(super) fn slot_of(&self, at: usize) -> (usize, usize) {
        (at / self.shape.slots as usize, at % self.shape.slots as usize)
    }

    /// The record of an entry at a place.
    pub(super) fn record(&self, entry: EntryRef<'_>, at: usize) -> Result<RecordOf<R>> {
        let (bucket, slot) = self.slot_of(at);
        let bucket = self.bucket(entry, bucket)?;
        Ok(self.record_in(bucket, slot, self.is_dead(entry.entry, at)))
    }

    #[inline(always)]
    pub(super) fn record_in(&self, bucket: Bucket<'_>, slot: usize, dead: bool) -> RecordOf<R> {
        self.measure.record(dead, |word| self.word_in(bucket, slot, word))
    }

    #[inline(always)]
    fn word_in(&self, bucket: Bucket<'_>, slot: usize, word: usize) -> u64 {
        match word {
            0 => bucket.heads[slot].load(&self.storage, Relaxed),
            // Acquire (E3): a payload was written before the reference to it was stored.
            _ => bucket.rests(slot..slot + 1)[word - 1].load(&self.storage, Acquire),
        }
    }

    #[inline]
    pub(super) fn is_dead(&self, entry: &Entry, at: usize) -> bool {
        // Read without validation: other bits of the word may change at the same time, for records that do not count
        // yet.
        self.storage.read_unvalidated(|| entry.dead[at / 64].load(&self.storage, Relaxed))
            >> (at % 64)
            & 1
            == 1
    }

    /// The hash of a record's key.
    #[inline]
    pub(super) fn hash_of(&self, record: RecordOf<R>) -> u64 {
        self.hash_of_words(&record.key)
    }

    /// The hash of a key, given the words of the key.
    #[inline]
    fn hash_of_words(&self, key: &R::KeyWords) -> u64 {
        if self.measure.is_inline() {
            return self.placement.of::<R>(&self.measure.key_of(key));
        }
        first(key)
    }

    /// Returns whether a record has the searched key. The caller is pinned.
    #[inline]
    pub(super) fn holds(&self, record: RecordOf<R>, probe: &LookupKey<'_>) -> Result<bool> {
        let same = record.key == self.key_words(probe);
        if !same || self.measure.is_inline() {
            return Ok(same);
        }
        let mut buffer = [0; 8];
        let Some(payloads) = self.payloads() else { return Ok(same) };
        let Some(payload) = payloads.read(&self.storage, record.reference())? else {
            return Ok(false);
        };
        let same = payload.key == bytes_of(probe.key, &mut buffer);
        if !same {
            payloads.verify(&self.storage, record.reference())?;
        }
        Ok(same)
    }

    /// The payload behind a reference; `None` when it has been freed because its record is stale.
    pub(super) fn payload(&self, word: u64) -> Result<Option<Payload<'_>>> {
        match self.payloads() {
            Some(payloads) => payloads.read(&self.storage, word),
            None => Ok(None),
        }
    }

    /// The payload of a record that was current at some time since the caller was pinned.
    #[inline(always)]
    pub(super) fn payload_found(&self, word: u64) -> Result<Payload<'_>> {
        match self.payloads() {
            Some(payloads) => payloads.read_found(&self.storage, word),
            None => Ok(Payload { hash: 0, key: &[], value: &[] }),
        }
    }

    /// Returns whether the payload of a record has been freed: then the record is stale.
    #[inline]
    pub(super) fn dangles(&self, record: RecordOf<R>) -> Result<bool> {
        match self.payloads() {
            Some(payloads) => Ok(!payloads.is_current(&self.storage, record.reference())),
            None => Ok(false),
        }
    }

    /// Returns whether two records have the same key. Both were current at some time since the caller was pinned.
    #[inline]
    pub(super) fn same_key(&self, a: RecordOf<R>, b: RecordOf<R>) -> Result<bool> {
        if a.key != b.key || self.measure.is_inline() || a.value == b.value {
            return Ok(a.key == b.key);
        }
        let Some(payloads) = self.payloads() else { return Ok(true) };
        let [a, b] = [a, b].map(|record| payloads.key_found(&self.storage, record.reference()));
        Ok(a? == b?)
    }

    /// The newest record of a key, without a lock (§5.2).
    #[inline]
    pub(super) fn lookup(&self, probe: &LookupKey<'_>) -> Result<Option<RecordOf<R>>> {
        let root = self.root_entry(probe.hash);
        self.hint_search(probe.hash);
        self.hint_last_level(probe.hash);
        loop {
            let version = self.root.read_begin(&self.storage, root);
            let found = match self.begin_search(root, version, probe.hash) {
                Some(mut begun) => {
                    self.hint_records(Native::default(), probe.hash, &mut begun);
                    self.search_begun(root, probe, begun)
                }
                None => self.search(root, probe),
            };
            // Hits, misses and errors count only if nothing has changed since.
            if self.root.validate(&self.storage, root, version) {
                return found;
            }
            self.storage.forget_reads();
        }
    }

    /// The newest record of a key, in the root or the levels from top to bottom. Called under the lock, or the caller
    /// validates the result.
    #[inline]
    pub(super) fn search(
        &self,
        entry: usize,
        probe: &LookupKey<'_>,
    ) -> Result<Option<RecordOf<R>>> {
        match self.search_root(entry, probe)? {
            None => self.search_levels(self.first_level(entry), probe),
            found => Ok(found),
        }
    }

    /// The newest record of a key in the root.
    #[inline]
    pub(super) fn search_root(
        &self,
        entry: usize,
        probe: &LookupKey<'_>,
    ) -> Result<Option<RecordOf<R>>> {
        self.root.newest(Native::default(), entry, probe.hash, |record| self.holds(record, probe))
    }

    /// The first level that a search of a root entry must read. Level 1 is skipped if all its records for the root
    /// entry are in the root entry as well: the filters of entries that were emptied ahead of time still contain the
    /// keys that have left.
    #[inline(always)]
    pub(super) fn first_level(&self, entry: usize) -> usize {
        if self.root.is_sole(entry) { 2 } else { 1 }
    }

    /// The newest record of a key in the levels from `from` on.
    #[inline]
    pub(super) fn search_levels(
        &self,
        from: usize,
        probe: &LookupKey<'_>,
    ) -> Result<Option<RecordOf<R>>> {
        for level in from..=self.levels.count(&self.storage) {
            let first = self.entry_of(level, probe.hash)?;
            if level > self.top_filters.levels() {
                self.fetch_state(first);
            }
            let candidates = self.candidates(first, probe.hash);
            if candidates == 0 {
                // No entry of the chain has the key: the filter of the first one also contains the keys of those that
                // continue it.
                continue;
            }
            self.hint_bucket(first, candidates);
            let found = self.search_level(first, candidates, probe)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The newest record of a key in an entry of a level and those that continue it, given the buckets that the entry's
    /// filter names.
    #[inline]
    pub(super) fn search_level(
        &self,
        first: EntryRef<'_>,
        candidates: u16,
        probe: &LookupKey<'_>,
    ) -> Result<Option<RecordOf<R>>> {
        match self.next_of(first)? {
            None => self.search_entry(first, candidates, probe),
            Some(_) => self.search_chain(first, probe),
        }
    }

    #[cold]
    fn search_chain(
        &self,
        first: EntryRef<'_>,
        probe: &LookupKey<'_>,
    ) -> Result<Option<RecordOf<R>>> {
        if let Some(ranges) = self.placement.ranges() {
            let (leaf, _) = self.leaf_of(first, &ranges.sort_key(probe.key))?;
            return self.search_entry(leaf, self.candidates(leaf, probe.hash), probe);
        }
        for entry in self.chain_of(first)?.into_iter().rev() {
            let candidates = self.candidates(entry, probe.hash);
            let found = self.search_entry(entry, candidates, probe)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Searches all buckets that the filter names, newest first: a false positive must not hide the key in another
    /// bucket.
    #[inline]
    fn search_entry(
        &self,
        entry: EntryRef<'_>,
        mut candidates: u16,
        probe: &LookupKey<'_>,
    ) -> Result<Option<RecordOf<R>>> {
        let size = self.state(entry)?.size;
        let slots = self.shape.slots as usize;
        while candidates != 0 {
            let number = (15 - candidates.leading_zeros()) as usize;
            candidates &= !(1 << number);
            let used = size.saturating_sub(number * slots).min(slots);
            // The next one, if any. The caller has usually prefetched the first one.
            self.hint_bucket(entry, candidates);
            if used > 0
                && let Some(record) = self.search_bucket(entry, number, used, probe)?
            {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    #[inline]
    fn search_bucket(
        &self,
        entry: EntryRef<'_>,
        number: usize,
        used: usize,
        probe: &LookupKey<'_>,
    ) -> Result<Option<RecordOf<R>>> {
        let bucket = self.bucket(entry, number)?;
        let (wanted, mut used) = (first(&self.key_words(probe)), used);
        while let Some(slot) = self.newest_slot(bucket, used, wanted) {
            let at = number * self.shape.slots as usize + slot;
            let record = self.record_in(bucket, slot, self.is_dead(entry.entry, at));
            if self.holds(record, probe)? {
                return Ok(Some(record));
            }
            used = slot;
        }
        Ok(None)
    }

    /// The newest of the first `used` slots of a bucket whose first word is `wanted`. Compares the words of a line without
    /// branches, because it is not predictable which slot has the key, and reads the older line only if needed.
    #[inline(always)]
    pub(super) fn newest_slot(
        &self,
        bucket: Bucket<'_>,
        used: usize,
        wanted: u64,
    ) -> Option<usize> {
        let same = |head: &Cell64| u32::from(head.load(&self.storage, Relaxed) == wanted);
        for (number, line) in bucket.heads.chunks_exact(LINE_WORDS).enumerate().rev() {
            let start = number * LINE_WORDS;
            let Some(counting) = used.checked_sub(start + 1) else { continue };
            // Read without validation: the slots behind the used ones may be written at the same time. The caller reads
            // the whole record of the slot that is found.
            let found = self.storage.read_unvalidated(|| {
                line.iter().rev().fold(0, |found, head| found << 1 | same(head))
            });
            let found = found & ((2 << counting.min(LINE_WORDS - 1)) - 1);
            if let Some(slot) = found.checked_ilog2() {
                return Some(start + slot as usize);
            }
        }
        None
    }

    /// The key words of the records that have the searched key.
    #[inline]
    pub(super) fn key_words(&self, probe: &LookupKey<'_>) -> R::KeyWords {
        if self.measure.is_inline() { words_of(probe.key) } else { one_word(probe.hash) }
    }

    /// The records of an entry and of those that continue it, newest first.
    pub(super) fn newest_first(&self, first: EntryRef<'_>) -> Result<Vec<MovingOf<R>>> {
        let mut records = Vec::with_capacity(self.shape.records());
        self.newest_first_where(first, &mut records, |_| true)?;
        Ok(records)
    }

    /// Appends to `records` those records of an entry, and of the entries that continue it, whose hash `wanted`
    /// accepts, newest first.
    #[inline]
    pub(super) fn newest_first_where(
        &self,
        first: EntryRef<'_>,
        records: &mut Vec<MovingOf<R>>,
        mut wanted: impl FnMut(u64) -> bool,
    ) -> Result<()> {
        for entry in self.chain_of(first)?.into_iter().rev() {
            self.read_entry(entry, records, &mut wanted)?;
        }
        Ok(())
    }

    /// Appends to `records` those records of an entry whose hash `wanted` accepts, newest first.
    #[inline]
    pub(super) fn read_entry(
        &self,
        entry: EntryRef<'_>,
        records: &mut Vec<MovingOf<R>>,
        mut wanted: impl FnMut(u64) -> bool,
    ) -> Result<()> {
        let (size, slots) = (self.state(entry)?.size, self.shape.slots as usize);
        let mut buckets = [None; MAX_BUCKETS];
        for (number, found) in buckets.iter_mut().enumerate().take(size.div_ceil(slots)) {
            let bucket = self.bucket(entry, number)?;
            self.fetch(bucket);
            *found = Some(bucket);
        }
        for (number, bucket) in buckets.iter().enumerate().rev() {
            let Some(bucket) = *bucket else { continue };
            // Branch-free, because often few records are wanted.
            let mut hashes = [0; SLOTS];
            let mut found = (0..slots.min(size - number * slots)).fold(0_u32, |found, slot| {
                let key = self.measure.key(|word| self.word_in(bucket, slot, word));
                hashes[slot] = self.hash_of_words(&key);
                found | u32::from(wanted(hashes[slot])) << slot
            });
            while let Some(slot) = found.checked_ilog2().map(|slot| slot as usize) {
                found &= !(1 << slot);
                let dead = self.is_dead(entry.entry, number * slots + slot);
                let record = self.record_in(bucket, slot, dead);
                records.push(Moving { record, hash: hashes[slot] });
            }
        }
        Ok(())
    }

    /// Prefetches a bucket, from a disk too.
    #[inline(always)]
    pub(super) fn fetch(&self, bucket: Bucket<'_>) {
        self.request_bucket(bucket);
        bucket.prefetch();
    }

    /// Requests a bucket from a disk.
    #[inline(always)]
    pub(super) fn request_bucket(&self, bucket: Bucket<'_>) {
        self.storage.read_soon(bucket.heads.as_ptr().cast(), bucket.bytes());
    }

    /// Prefetches the state of an entry, from a disk its filter too.
    #[inline(always)]
    pub(super) fn fetch_state(&self, entry: EntryRef<'_>) {
        self.request_entry(entry.entry);
        prefetch_read(&entry.entry.state);
    }

    /// Requests an entry from a disk.
    #[inline(always)]
    pub(super) fn request_entry(&self, entry: &Entry) {
        self.storage.read_soon(std::ptr::from_ref(entry).cast(), size_of::<Entry>());
    }

    /// The number of runs that an entry needs for `records` records.
    pub(super) fn runs_for(&self, records: usize) -> usize {
        let buckets = records.div_ceil(self.shape.slots as usize);
        buckets.checked_sub(1).map_or(0, |last| run_of(last).0 + 1).min(RUNS)
    }
}
