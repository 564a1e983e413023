//! An entry of a level: how it gets buckets, receives records and gives buckets back.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::core::Core;
use super::filter::Image;
use super::layout::{Bucket, CLASSES, Entry, EntryId, EntryRef, LINE_WORDS, State, class_of};
use super::moving::{Moving, MovingOf};
use super::words::RecordOf;
use crate::Result;
use crate::base::pipeline::prefetch_write;
use crate::storage::alloc::{Blocks, Claim, Freed, free_all};
use crate::storage::{Medium, not_poisoned};
use crate::types::RecordForm;

/// Claims, by class, of runs to which entries refer already, but perhaps not durably yet.
pub(super) type Provided = [Vec<Claim>; CLASSES];

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Gives each entry the runs for its number of records, durably.
    pub(super) fn provide_now(&self, needs: &[(EntryRef<'_>, usize)]) -> Result<()> {
        let provided = self.provide(needs.iter().copied())?;
        self.settle_runs(&provided)
    }

    /// Gives each entry the runs that its number of records needs. All runs of one size class share their fences. The
    /// stores are flushed. The caller completes them by [`Core::settle_runs`], or by a fence and [`Core::end_runs`].
    pub(super) fn provide<'a>(
        &self,
        needs: impl Iterator<Item = (EntryRef<'a>, usize)> + Clone,
    ) -> Result<Provided> {
        let mut provided = Provided::default();
        for class in 0..CLASSES {
            match self.provide_class(class, needs.clone()) {
                Ok(claims) => provided[class] = claims,
                Err(error) => return self.settle_runs(&provided).and(Err(error)),
            }
        }
        Ok(provided)
    }

    fn provide_class<'a>(
        &self,
        class: usize,
        needs: impl Iterator<Item = (EntryRef<'a>, usize)>,
    ) -> Result<Vec<Claim>> {
        let mut missing = Vec::new();
        for (entry, records) in needs {
            let of_class = (0..self.runs_for(records)).filter(|&run| class_of(run) == class);
            let cells = of_class.map(|run| (&entry.entry.runs[run], entry.id.pack()));
            missing.extend(cells.filter(|(cell, _)| cell.load(&self.storage, Acquire) == 0));
        }
        let words = &self.root_words()?.runs[class];
        let (allocator, blocks) =
            (self.runs[class].allocator(), self.runs[class].blocks(&self.storage));
        let mut missing = &missing[..];
        while !missing.is_empty() {
            let tags: Vec<u32> = missing.iter().map(|(_, tag)| *tag).collect();
            let claims = allocator.claim_some(&self.storage, words, &blocks, &tags)?;
            let (now, later) = missing.split_at(claims.len());
            for ((cell, _), claim) in now.iter().zip(&claims) {
                cell.store(&self.storage, claim.block + 1, Release);
                self.storage.flush_object(*cell);
            }
            if later.is_empty() {
                return Ok(claims);
            }
            // A thread that waits for further runs of a class holds no claims of it; otherwise two threads could wait
            // for each other.
            let fenced = self.storage.try_fence();
            self.end_claims(class, &claims, &fenced)?;
            fenced?;
            missing = later;
        }
        Ok(Vec::new())
    }

    /// Fences the references to runs, and ends the claims.
    pub(super) fn settle_runs(&self, provided: &Provided) -> Result<()> {
        if provided.iter().any(|claims| !claims.is_empty()) {
            // P3: the references are durable. (In a migration, the fence of P6 makes them durable.)
            self.end_runs(provided, self.storage.try_fence())?;
        }
        Ok(())
    }

    /// Ends the claims after a fence. If the fence failed, the claims are only forgotten.
    pub(super) fn end_runs(&self, provided: &Provided, fenced: Result<()>) -> Result<()> {
        let ended = provided
            .iter()
            .enumerate()
            .map(|(class, claims)| self.end_claims(class, claims, &fenced));
        ended.fold(Ok(()), Result::and).and(fenced)
    }

    fn end_claims(&self, class: usize, claims: &[Claim], fenced: &Result<()>) -> Result<()> {
        match fenced {
            Ok(()) => {
                let words = &self.root_words()?.runs[class];
                self.runs[class].allocator().commit(&self.storage, words, claims);
            }
            Err(_) => self.runs[class].allocator().forget_all(claims),
        }
        Ok(())
    }

    /// Frees the runs that an entry does not need for `records`. Called while readers wait. Forgets references to runs that
    /// do not exist: otherwise they would make every compaction of the entry fail.
    pub(super) fn give_back(&self, entry: EntryRef<'_>, records: usize) -> Result<()> {
        let needless = &entry.entry.runs[self.runs_for(records)..];
        if needless.iter().all(|cell| cell.load(&self.storage, Acquire) == 0) {
            return Ok(());
        }
        let words = self.root_words()?;
        let blocks = self.runs.each_ref().map(|pool| pool.blocks(&self.storage));
        let mut frees: Vec<_> = std::iter::zip(&self.runs, &words.runs)
            .zip(&blocks)
            .map(|((pool, words), blocks)| {
                let allocator = pool.allocator();
                Freed { allocator, words, blocks, owned: vec![] }
            })
            .collect();
        for (run, cell) in entry.entry.runs.iter().enumerate().skip(self.runs_for(records)) {
            let Some(block) = cell.load(&self.storage, Acquire).checked_sub(1) else { continue };
            let freed = &mut frees[class_of(run)];
            let used = freed.allocator.used(&self.storage, freed.words);
            if u64::from(block) < used && freed.blocks.find(block).is_ok() {
                freed.owned.push((block, entry.id.pack()));
            }
        }
        // If none remains, the call below only clears the references.
        frees.retain(|freed| !freed.owned.is_empty());
        free_all(&self.storage, &frees, || {
            for cell in needless {
                cell.store(&self.storage, 0, Release);
                // The allocator's fence between the links of the freed runs and the list head also makes this store
                // durable: the entry has lost the runs before another entry can get them.
                self.storage.flush_object(cell);
            }
            Ok(())
        })
    }

    /// A record with its hash.
    #[inline]
    pub(super) fn moving(&self, record: RecordOf<R>) -> MovingOf<R> {
        Moving { record, hash: self.hash_of(record) }
    }

    /// Writes records to the places of an entry from `size` on. The entry has the runs for them. The stores are
    /// flushed, but the records do not count yet.
    pub(super) fn write_records(
        &self,
        entry: EntryRef<'_>,
        size: usize,
        records: &[MovingOf<R>],
    ) -> Result<()> {
        // After a failed sync, records that still count on the medium may be at these places.
        not_poisoned(&self.storage)?;
        let mut filter = match size {
            0 => self.filter_of_continuations(entry)?,
            _ => self.filter_of(entry),
        };
        let (mut at, mut rest) = (size, records);
        while !rest.is_empty() {
            let (number, slot) = self.slot_of(at);
            let (portion, behind) = rest.split_at(rest.len().min(self.shape.slots as usize - slot));
            self.write_slots(self.bucket(entry, number)?, slot, portion);
            portion.iter().for_each(|moving| filter.add(number, moving.hash));
            (at, rest) = (at + portion.len(), behind);
        }
        self.write_dead(entry.entry, size, records);
        self.store_filter(entry, &filter);
        Ok(())
    }

    /// Returns an error if [`Core::write_records`] would fail for `records` records from the first place on, because the
    /// entry or those that continue it are damaged.
    pub(super) fn writable(&self, entry: EntryRef<'_>, records: usize) -> Result<()> {
        self.state(entry)?;
        self.filter_of_continuations(entry)?;
        let buckets = records.div_ceil(self.shape.slots as usize);
        (0..buckets).try_for_each(|number| self.bucket(entry, number).map(drop))
    }

    /// The filter of an entry that has no records. For a level's entry, it contains the records of the entries that
    /// continue it, or every key if these are leaves. For a chained entry, it is empty.
    fn filter_of_continuations(&self, entry: EntryRef<'_>) -> Result<Image> {
        let mut filter = Image::empty();
        if matches!(entry.id, EntryId::Level(_)) {
            if self.has_leaves(entry)? {
                return Ok(Image::full());
            }
            for chained in self.chain_of(entry)?.into_iter().skip(1) {
                for at in 0..self.state(chained)?.size {
                    filter.add(self.slot_of(at).0, self.hash_of(self.record(chained, at)?));
                }
            }
        }
        Ok(filter)
    }

    /// Rebuilds the filter of a level's entry from the entry's own records, when no entry continues it any more. The
    /// stores are flushed. A crash may leave parts of the former filter, which only cause false positives. Called while
    /// readers wait.
    pub(super) fn forget_continuations(&self, first: EntryRef<'_>) -> Result<()> {
        let mut filter = Image::empty();
        for at in 0..self.state(first)?.size {
            filter.add(self.slot_of(at).0, self.hash_of(self.record(first, at)?));
        }
        self.store_filter(first, &filter);
        Ok(())
    }

    /// Adds `records` to the filter of a chain's first entry. A continuing entry gets them behind the `size` records
    /// that it has. The stores are flushed.
    pub(super) fn announce(&self, first: EntryRef<'_>, size: usize, records: &[MovingOf<R>]) {
        let mut filter = self.filter_of(first);
        for (at, moving) in (size..).zip(records) {
            filter.add(self.slot_of(at).0, moving.hash);
        }
        self.store_filter(first, &filter);
    }

    /// Writes records to a bucket from a slot on. The stores are flushed.
    fn write_slots(&self, bucket: Bucket<'_>, slot: usize, records: &[MovingOf<R>]) {
        let slots = slot..slot + records.len();
        let (heads, rests) = (&bucket.heads[slots.clone()], bucket.rests(slots));
        let slots = heads.iter().zip(rests.chunks_exact(self.measure.widths().words() - 1));
        for ((head, rest), Moving { record, .. }) in slots.zip(records) {
            self.measure.each_word(record, |at, word| match at {
                // Relaxed (E3): the lock word publishes the head to readers.
                0 => head.store(&self.storage, word, Relaxed),
                // Release (E3): the payload behind a reference was written before.
                _ => rest[at - 1].store(&self.storage, word, Release),
            });
        }
        for words in [heads, rests] {
            self.storage.flush(words.as_ptr().cast(), size_of_val(words));
        }
    }

    /// Stores, for each record, whether it is a removal. The stores are flushed.
    fn write_dead(&self, entry: &Entry, size: usize, records: &[MovingOf<R>]) {
        let mut changed = false;
        for (number, cell) in entry.dead.iter().enumerate() {
            let within = |at: usize| at.clamp(number * 64, number * 64 + 64);
            let (from, to) = (within(size), within(size + records.len()));
            if from == to {
                continue;
            }
            let last_first = records[from - size..to - size].iter().rev();
            let bits = last_first.fold(0, |bits, moving| bits << 1 | u64::from(moving.record.dead));
            let mask = u64::MAX >> (64 - (to - from)) << (from % 64);
            let before = cell.load(&self.storage, Relaxed);
            let word = before & !mask | bits << (from % 64);
            if word != before {
                // Relaxed (E3): the lock word publishes the bits to readers.
                cell.store(&self.storage, word, Relaxed);
                changed = true;
            }
        }
        if changed {
            // Needed on disks only: in memory the state, stored later to the same line, would flush this word as
            // well.
            self.storage.flush_object(&entry.dead);
        }
    }

    /// Prefetches an entry that will receive records.
    pub(super) fn prefetch_entry(&self, level: usize, index: u64) {
        let Ok(EntryRef { entry, .. }) = self.level_entry(level, index) else { return };
        self.request_entry(entry);
        prefetch_write(&entry.state);
        entry.filter.iter().step_by(LINE_WORDS).for_each(|word| prefetch_write(word));
    }

    /// Prefetches slots of an entry that has the runs for them.
    pub(super) fn prefetch_slots(&self, entry: EntryRef<'_>, mut slots: Range<usize>) {
        while !slots.is_empty() {
            let (number, slot) = self.slot_of(slots.start);
            let end = (slot + slots.len()).min(self.shape.slots as usize);
            let Ok(bucket) = self.bucket(entry, number) else { return };
            self.request_bucket(bucket);
            bucket.prefetch_write(slot..end);
            slots.start += end - slot;
        }
    }

    /// Stores the number of records and the epoch of an entry. The store is flushed. Called while readers wait.
    pub(super) fn store_state(&self, entry: EntryRef<'_>, state: State) {
        entry.entry.state.store(&self.storage, state.pack(), Release);
        self.storage.flush_object(&entry.entry.state);
    }

    /// Returns whether the entry that `tag` names refers to the run of this class in `block`. Used by the allocator.
    pub(super) fn owns_run(&self, tag: u32, class: usize, block: u32) -> Result<bool> {
        let entry = self.entry(EntryId::unpack(tag))?.entry;
        let mut runs = (0..entry.runs.len()).filter(|&run| class_of(run) == class);
        // Not `block + 1`, which could overflow: the block of a damaged intent may be any number.
        Ok(runs
            .any(|run| entry.runs[run].load(&self.storage, Acquire).checked_sub(1) == Some(block)))
    }

    /// Returns whether the chained entry in `block` directly follows the entry that `tag` names. Used by the allocator.
    pub(super) fn owns_chained(&self, tag: u32, block: u32) -> Result<bool> {
        let entry = self.entry(EntryId::unpack(tag))?.entry;
        Ok(entry.next.load(&self.storage, Acquire).checked_sub(1) == Some(block))
    }

    /// Inserts an empty entry into a chain, directly behind the entry `last`.
    pub(super) fn extend(&self, last: EntryRef<'_>) -> Result<()> {
        let words = &self.root_words()?.chains;
        let claim = self.chains.claim(&self.storage, words, last.id.pack())?;
        let entry = match self.entry(EntryId::Chained(claim.block)) {
            Ok(entry) => entry.entry,
            Err(error) => {
                self.chains.abandon(&self.storage, words, claim)?;
                return Err(error);
            }
        };
        entry.state.store(&self.storage, 0, Relaxed);
        entry.next.store(&self.storage, last.entry.next.load(&self.storage, Acquire), Relaxed);
        entry.runs.iter().for_each(|run| run.store(&self.storage, 0, Relaxed));
        self.storage.flush(std::ptr::from_ref(entry).cast(), 64);
        // P4: the empty entry is durable before anything refers to it.
        let linked = self.storage.try_fence().and_then(|()| {
            let next = &last.entry.next;
            // Readers may rely on it before P5: they find the same without the empty entry.
            self.storage.store_copy(|| next.store(&self.storage, claim.block + 1, Release));
            // P5: from here on a crash keeps the empty entry in the chain.
            self.storage.try_persist(next)
        });
        match &linked {
            Ok(()) => self.chains.allocator().commit(&self.storage, words, &[claim]),
            Err(_) => self.chains.allocator().forget_all(&[claim]),
        }
        linked
    }

    /// Removes an empty chained entry from its chain. Called while readers wait.
    pub(super) fn unchain(&self, before: EntryRef<'_>, empty: EntryRef<'_>) -> Result<()> {
        let EntryId::Chained(block) = empty.id else { return Ok(()) };
        self.give_back(empty, 0)?;
        let words = &self.root_words()?.chains;
        let freed = (block, before.id.pack());
        self.chains.free(&self.storage, words, freed, || {
            let next = empty.entry.next.load(&self.storage, Acquire);
            before.entry.next.store(&self.storage, next, Release);
            // This store is durable before the head of the free list refers to the block. Until then a crash may leave
            // the empty entry in its chain.
            self.storage.flush_object(&before.entry.next);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::plush::options::table_of_words;
    use crate::engine::{Operations, WriteKind};
    use crate::storage::{Mapped, MappedOptions};
    use crate::types::{Ignore, Raw};

    type Check = std::result::Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn an_unneeded_reference_to_no_run_is_forgotten() -> Check {
        let storage = Mapped::anonymous(MappedOptions::default())?;
        let table = table_of_words(storage)?;
        for key in 0..20_000 {
            table.write(WriteKind::Put, &Raw::Word(key), &Raw::Word(key), Ignore)?;
        }
        let core = &*table.core;
        let entry = core.level_entry(1, 0)?;
        let runs = &entry.entry.runs;
        let free = || -> Result<usize> {
            let (mut free, words) = (0, &core.root_words()?.runs);
            for (pool, words) in core.runs.iter().zip(words) {
                free += pool.free_blocks(&core.storage, words)?.len();
            }
            Ok(free)
        };
        let _held = core.root.lock(&core.storage, 0);
        // With other runs, and alone.
        for damaged in [runs.len() - 1, 0] {
            runs[damaged].store(&core.storage, u32::MAX, Release);
            let whole =
                runs.iter().filter(|run| !matches!(run.load(&core.storage, Acquire), 0 | u32::MAX));
            let (whole, before) = (whole.count(), free()?);
            assert_eq!(whole > 1, damaged > 0);
            core.give_back(entry, 0)?;
            assert_eq!(free()?, before + whole);
            assert!(runs.iter().all(|run| run.load(&core.storage, Acquire) == 0));
        }
        // A run that was never handed out: the allocator would hand it out twice.
        let used = core.runs[0].used(&core.storage, &core.root_words()?.runs[0]);
        runs[0].store(&core.storage, used as u32 + 1, Release);
        let before = free()?;
        core.give_back(entry, 0)?;
        assert_eq!((free()?, runs[0].load(&core.storage, Acquire)), (before, 0));
        Ok(())
    }
}
