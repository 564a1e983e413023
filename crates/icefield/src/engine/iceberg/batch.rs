//! Batches. Reads (`reads`) go through the ring (`base::pipeline`), which prefetches for the following reads. Writes run
//! in whole windows (`window`), whose slots are all prefetched together while the preceding window is made durable.
//! Where a fence costs nothing, writes go through the ring, too (`unfenced_batch`).

use super::Iceberg;
use super::core::Core;
use super::held::WINDOW;
use super::layout::{Shape, Slot, fingerprint};
use super::reads::Reads;
use super::unfenced_batch::{BURST, UnfencedBatch, Writes};
use super::window::Writer;
use crate::Result;
use crate::base::group::{Isa, Kernel, dispatch};
use crate::base::pipeline::{self, prefetch_read, prefetch_write};
use crate::engine::LookupKey;
use crate::engine::slots::batch::{BatchTable, BatchWriter};
use crate::engine::slots::table::{WriteMode, WriteOutcome};
use crate::storage::Medium;
use crate::types::{Raw, RecordForm};

/// The ring of an unfenced batch (`unfenced_batch`) fetches fingerprints `RING` operations ahead, and inspects them
/// `PEEK` operations ahead to fetch slots.
const RING: usize = 48;
const PEEK: usize = 16;

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Fetches the fingerprints of a hash's front bucket.
    #[inline(always)]
    pub(super) fn fetch_line(&self, hash: u64, hint: impl Fn(*const crate::base::sync::Line)) {
        hint(self.buckets.line(&self.storage, self.shape().front(hash)).0);
    }

    /// Fetches everything that an insert of this hash probably accesses: fingerprints, a slot, and the words of its back
    /// buckets if its key or its room may be there.
    #[inline(always)]
    fn fetch_for_insert(&self, hash: u64) {
        let shape = self.shape();
        let bucket = shape.front(hash);
        prefetch_write(self.buckets.line(&self.storage, bucket).0);
        let room = self.buckets.room_at(&self.storage, bucket);
        if let Some(slot) = room {
            prefetch_write(slot);
        }
        if room.is_none() || self.buckets.leads_behind(&self.storage, shape, hash) {
            self.fetch_words(shape.back(hash));
        }
    }

    /// Returns the first slot of the front bucket that may hold the key, according to the fingerprints.
    #[inline(always)]
    fn candidate(&self, isa: impl Isa, shape: Shape, hash: u64) -> Option<&Slot> {
        let bucket = shape.front(hash);
        let line = self.buckets.line(&self.storage, bucket);
        match line.candidates_on(isa, fingerprint(hash), self.buckets.front_mask()) {
            0 => None,
            candidates => self.buckets.front_at(bucket, candidates.trailing_zeros()),
        }
    }

    /// Fetches what a write of this hash probably accesses; `mode` is `None` for a removal. Only a search of the
    /// fingerprints finds the slot of a present key. A write that expects the key to be absent is faster without that
    /// search.
    #[inline(always)]
    pub(super) fn fetch_for_write(&self, isa: impl Isa, hash: u64, mode: Option<WriteMode>) {
        let inserts = takes_room(mode);
        if inserts {
            self.fetch_for_insert(hash);
        }
        if mode == Some(WriteMode::TryInsert) {
            return;
        }
        let shape = self.shape();
        match self.candidate(isa, shape, hash) {
            Some(slot) => prefetch_write(slot),
            None if inserts => {}
            None if !self.buckets.leads_behind(&self.storage, shape, hash) => {}
            None => self.fetch_words(shape.back(hash)),
        }
    }

    /// Does the same as [`Core::fetch_for_write`] for a hash whose fingerprints are cached, but returns one of the
    /// slots instead of fetching it.
    #[inline(always)]
    pub(super) fn fetch_all_but_one(
        &self,
        isa: impl Isa,
        hash: u64,
        mode: Option<WriteMode>,
    ) -> Option<&Slot> {
        let shape = self.shape();
        let bucket = shape.front(hash);
        let view = self.buckets.line(&self.storage, bucket).view(
            isa,
            fingerprint(hash),
            self.buckets.front_mask(),
        );
        let slot = |slots: u64| match slots {
            0 => None,
            slots => self.buckets.front_at(bucket, slots.trailing_zeros()),
        };
        let candidate = slot(view.candidates);
        if (candidate.is_none() || takes_room(mode))
            && (view.empty == 0 || self.buckets.leads_behind(&self.storage, shape, hash))
        {
            self.fetch_words(shape.back(hash));
        }
        if !takes_room(mode) {
            return candidate;
        }
        if let Some(slot) = candidate {
            prefetch_write(slot);
        }
        slot(view.empty)
    }

    #[inline(always)]
    pub(super) fn fetch_words(&self, buckets: [u64; 2]) {
        for bucket in buckets {
            prefetch_read(self.buckets.back_word(&self.storage, bucket).0);
        }
    }
}

impl<'k, 'v, R, M, F, G, A> Kernel for Writes<'_, R, M, F, G, A>
where
    R: RecordForm,
    M: Medium,
    F: Fn(usize) -> Raw<'k>,
    G: Fn(usize) -> Raw<'v>,
    A: FnMut(usize, WriteOutcome) -> Result<()>,
{
    type Output = Result<()>;

    #[inline(always)]
    fn run<I: Isa>(mut self, isa: I) -> Result<()> {
        if self.table.core.storage.fence_is_free() {
            return self.run_at_once(isa);
        }
        let mut writer = Writer::new(self.table);
        let result = self.run_windows(isa, &mut writer);
        // Operations before a failure are made durable and answered.
        let finished = writer.commit(&mut self.answer);
        result.and(finished)
    }
}

impl<'k, 'v, R, M, F, G, A> Writes<'_, R, M, F, G, A>
where
    R: RecordForm,
    M: Medium,
    F: Fn(usize) -> Raw<'k>,
    G: Fn(usize) -> Raw<'v>,
    A: FnMut(usize, WriteOutcome) -> Result<()>,
{
    #[inline(always)]
    fn run_at_once<I: Isa>(self, isa: I) -> Result<()> {
        let (pin, count, mut failure) = (self.table.core.pin(), self.count, Ok(()));
        let stages = UnfencedBatch::new(self, isa, &pin, &mut failure);
        pipeline::rolling_in_bursts::<BURST, _>(count, RING, PEEK, stages);
        failure
    }

    /// Runs window after window. Between the flushes of a window and its fence, it fetches the slots of the next window
    /// and the fingerprints of the one after it: their latencies overlap with one another and with the flushes.
    #[inline(always)]
    fn run_windows<'t>(&mut self, isa: impl Isa, writer: &mut Writer<'t, R, M>) -> Result<()> {
        let (mut hashes, mut ahead) = ([0; WINDOW], [0; WINDOW]);
        self.fetch_lines(0, &mut hashes);
        self.fetch_slots(isa, 0, &hashes);
        self.fetch_lines(WINDOW, &mut ahead);
        for start in (0..self.count).step_by(WINDOW) {
            let end = self.count.min(start + WINDOW);
            self.table.core.storage.check_writable()?;
            writer.take_locks(&hashes[..end - start]);
            for (place, index) in (start..end).enumerate() {
                let (key, value) = ((self.key)(index), (self.value)(index));
                let write = self.mode.map(|mode| (mode, &value));
                let (at, probe) = ((place, index), LookupKey::new(hashes[place], &key));
                if !writer.run_in_front_yard(isa, at, &probe, write) {
                    writer.run_on(isa, (Some(place), index), &probe, write, &mut self.answer)?;
                }
            }
            writer.flush();
            hashes = ahead;
            self.fetch_slots(isa, start + WINDOW, &hashes);
            self.fetch_lines(start + 2 * WINDOW, &mut ahead);
            writer.commit(&mut self.answer)?;
        }
        Ok(())
    }

    /// Computes the hashes of the window that begins with operation `start`, and fetches their fingerprints.
    #[inline(always)]
    fn fetch_lines(&self, start: usize, hashes: &mut [u64; WINDOW]) {
        let core = &self.table.core;
        for (index, hash) in (start..self.count).zip(hashes) {
            *hash = core.records.hash_key(&(self.key)(index)).hash;
            core.fetch_line(*hash, prefetch_write);
        }
    }

    /// Searches the fingerprints that `fetch_lines` has fetched, then fetches the slots that will be written: one hint
    /// right after the other, so that as many of their page walks as possible overlap.
    #[inline(always)]
    fn fetch_slots(&self, isa: impl Isa, start: usize, hashes: &[u64; WINDOW]) {
        let (mut slots, mut found) = ([std::ptr::null(); WINDOW], 0);
        for (_, &hash) in (start..self.count).zip(hashes) {
            if let Some(slot) = self.table.core.fetch_all_but_one(isa, hash, self.mode) {
                slots[found] = std::ptr::from_ref(slot);
                found += 1;
            }
        }
        slots[..found].iter().for_each(|slot| prefetch_write(*slot));
    }
}

/// Returns whether a write with this mode may need an empty slot; `None` is a removal.
#[inline(always)]
fn takes_room(mode: Option<WriteMode>) -> bool {
    matches!(mode, Some(WriteMode::TryInsert | WriteMode::Upsert))
}

impl<R: RecordForm, M: Medium> BatchTable for Iceberg<R, M> {
    type Writer<'t>
        = Writer<'t, R, M>
    where
        Self: 't;

    fn writer(&self) -> Writer<'_, R, M> {
        Writer::new(self)
    }

    #[inline]
    fn hint(&self, hash: u64) {
        self.core.fetch_line(hash, prefetch_write);
    }

    fn hint_read(&self, hash: u64) {
        self.core.fetch_line(hash, prefetch_read);
    }

    fn read_batch<'k>(
        &self,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        found: impl FnMut(usize, Option<u64>) -> Result<()>,
    ) -> Result<()> {
        Reads { core: &self.core, count, key, found }.run()
    }

    fn run_batch<'k, 'v>(
        &self,
        mode: Option<WriteMode>,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        value: impl Fn(usize) -> Raw<'v>,
        answer: impl FnMut(usize, WriteOutcome) -> Result<()>,
    ) -> Result<()> {
        dispatch(Writes { table: self, mode, count, key, value, answer })
    }
}
