//! Batches: a ring prefetches the buckets of upcoming operations. The operations then run in windows: the operations of
//! one window, up to 32, share two fences.
//!
//! Each operation of a window locks its home bucket and decides what to do; if it changes the probing bucket, it locks
//! that as well. The window waits only for its first lock. It tries all other locks, and a failure closes the window. So
//! a thread never waits while it holds a lock, and no lock order is needed. New records are written to free slots, and
//! one fence makes all of them durable, except those beside their metadata words, which become durable with these. Then
//! every affected bucket gets its changes under its changing bit, and a second fence makes these durable before readers
//! can see them.
//!
//! An operation that needs a displacement, a split or a chained bucket closes the window and runs alone. A second
//! operation on a key of the window also closes it.

use std::ops::ControlFlow;

use super::Dash;
use super::directory::Directory;
use super::kinds::Ablation;
use super::layout::Bucket;
use super::search::{Begun, place_of};
use super::segment::Target;
use super::writer::{Ahead, Writer};
use crate::Result;
use crate::base::pipeline::{
    self, fills_first_level_slowly, prefetch_read, prefetch_second_level, prefetch_write,
};
use crate::base::reclaim::PROTECTED;
use crate::engine::LookupKey;
use crate::engine::slots::EpochGuard;
use crate::engine::slots::batch::BatchTable;
use crate::engine::slots::table::{WriteMode, WriteOutcome};
use crate::storage::Medium;
use crate::types::{Raw, RecordForm};

/// The ring fetches the home bucket of a write `RING` operations before that operation runs, both buckets of a read
/// `READ_RING` before. `PEEK` operations before, it inspects these buckets and fetches the slot, or the probing bucket of
/// a write. One burst before, it fetches the slot there, or what the slot of a read refers to. A write of a key by
/// reference begins with a lookup, so the ring also fetches for it what a read needs, except the value. It handles `BURST`
/// keys at a time.
const RING: usize = 48;
const READ_RING: usize = 32;
const PEEK: usize = 16;
const BURST: usize = 8;
/// Below this size of all segments, the caches hold so much that hints to the second level gain nothing
/// (docs/decisions/0128).
const UNCACHED_BYTES: u64 = 32 << 20;

impl<R: RecordForm, P: Directory, M: Medium> Dash<R, P, M> {
    /// The first stage: finds a key's buckets. Inlined into the ring, so that the entries of the ring are read word by
    /// word, as they are written. Vector loads would have to wait for the preceding word stores.
    #[inline(always)]
    fn ahead(&self, hash: u64) -> Ahead<'_> {
        Ahead { hash, sighted: self.core.storage.read_unvalidated(|| self.try_locate(hash)) }
    }

    /// The third stage of reads: begins the search, and fetches the first two candidates.
    #[inline(always)]
    fn begin(&self, ahead: &Ahead<'_>) -> Begun {
        let Some(sighted) = ahead.sighted else { return Begun::default() };
        // Read through `read_unvalidated`: other operations finish before this one validates what it reads here.
        let begun =
            self.core.storage.read_unvalidated(|| self.core.begin_search(sighted, ahead.hash));
        self.hint_slots(sighted.pair, begun.candidates);
        begun
    }

    /// The last stage of reads: completes the search that has begun, or searches anew.
    #[inline(always)]
    fn complete(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        sighted: Option<Target<'_>>,
        begun: Begun,
    ) -> Result<Option<u64>> {
        if P::Ablation::PARTS.optimistic
            && let Some(Target { located, pair }) = sighted
            && self.directory.is_unchanged(located)
            && let Some(found) = self.core.find_begun(pair, probe, begun)
        {
            return Ok(found);
        }
        self.lookup_whole(pin, probe, sighted)
    }

    /// Searches anew. Not inlined: few reads of a batch need it.
    #[inline(never)]
    fn lookup_whole(
        &self,
        pin: &EpochGuard<'_>,
        probe: &LookupKey<'_>,
        sighted: Option<Target<'_>>,
    ) -> Result<Option<u64>> {
        self.lookup_sighted(pin, probe, sighted, |word| word)
    }

    /// Fetches the lines of the first two candidates.
    #[inline(always)]
    fn hint_slots(&self, pair: [&Bucket; 2], candidates: u32) {
        if candidates != 0 {
            // With one candidate, both are the same, which costs less than an unpredictable branch.
            let others = candidates & (candidates - 1);
            for candidates in [candidates, if others == 0 { candidates } else { others }] {
                let (which, slot) = place_of(candidates);
                prefetch_read(&raw const pair[which].slots[slot]);
            }
        }
    }

    /// The fourth stage of reads: fetches the bytes to which the first candidate with the key's tag refers. A hint only.
    #[inline]
    fn peek_record(&self, ahead: &Ahead<'_>, mut candidates: u32) {
        let Some(Target { pair, .. }) = ahead.sighted else { return };
        let (storage, records) = (&self.core.storage, &self.core.records);
        while !records.are_words() && candidates != 0 {
            let (which, slot) = place_of(candidates);
            let words = || {
                let slot = &pair[which].slots[slot];
                [slot.key.load(storage, PROTECTED), slot.value.load(storage, PROTECTED)]
            };
            if records.prefetch(storage, ahead.hash, words, prefetch_read) {
                return;
            }
            candidates &= candidates - 1;
        }
    }

    /// The fourth stage of writes of keys by reference: fetches the key to which the first candidate with the key's tag
    /// refers. A hint only.
    #[inline]
    fn peek_key(&self, ahead: &Ahead<'_>) {
        let Some(Target { pair, .. }) = ahead.sighted else { return };
        let (storage, records) = (&self.core.storage, &self.core.records);
        let mut candidates = storage.read_unvalidated(|| self.core.candidates(pair, ahead.hash));
        while candidates != 0 {
            let (which, slot) = place_of(candidates);
            let word = || pair[which].slots[slot].key.load(storage, PROTECTED);
            let key = storage.read_unvalidated(word);
            if records.prefetch_key(storage, ahead.hash, key, prefetch_read) {
                return;
            }
            candidates &= candidates - 1;
        }
    }

    /// The third stage of writes: selects the slot in the home bucket that will be changed, or the free slot for a new
    /// record, and fetches its line. Fetches the probing bucket if the write needs it. Hints only.
    #[inline]
    fn peek_room(&self, ahead: &Ahead<'_>) {
        let Some(Target { pair: [home, probing], .. }) = ahead.sighted else { return };
        match self.place_at_home(home, ahead.hash) {
            Some(slot) => prefetch_write(&raw const home.slots[slot]),
            None => prefetch_read(probing),
        }
    }

    /// The fourth stage of writes: does the same for a write that needs the probing bucket. A hint only.
    #[inline]
    fn peek_further(&self, ahead: &Ahead<'_>) {
        let Some(Target { pair: [home, probing], .. }) = ahead.sighted else { return };
        if self.place_at_home(home, ahead.hash).is_some() {
            return;
        }
        let metas = [home, probing].map(|bucket| bucket.meta(&self.core.storage).allocated());
        let place = match self.core.candidates_in(probing, ahead.hash) {
            0 => self.core.choose(metas),
            candidates => Some((1, candidates.trailing_zeros() as usize)),
        };
        if let Some((which, slot)) = place {
            prefetch_write(&raw const [home, probing][which].slots[slot]);
        }
    }

    /// Guesses the slot in the home bucket that a write will change; `None` if the write needs the probing bucket.
    #[inline]
    fn place_at_home(&self, home: &Bucket, hash: u64) -> Option<usize> {
        match self.core.candidates_in(home, hash) {
            0 if self.core.overflows(home) => None,
            0 => self.core.choose_home(home.meta(&self.core.storage).allocated()),
            candidates => Some(candidates.trailing_zeros() as usize),
        }
    }
}

/// The second stage of reads, and of writes of keys by reference: fetches the buckets.
#[inline(always)]
fn ask(ahead: &Ahead<'_>, hint: impl Fn(*const Bucket)) {
    if let Some(Target { pair: [home, probing], .. }) = ahead.sighted {
        hint(home);
        hint(probing);
    }
}

/// The second stage of other writes: fetches the home bucket.
#[inline(always)]
fn ask_home(ahead: &Ahead<'_>, hint: impl Fn(*const Bucket)) {
    if let Some(Target { pair: [home, _], .. }) = ahead.sighted {
        hint(home);
    }
}

impl<R: RecordForm, P: Directory, M: Medium> BatchTable for Dash<R, P, M> {
    type Writer<'t>
        = Writer<'t, R, P, M>
    where
        Self: 't;

    fn writer(&self) -> Writer<'_, R, P, M> {
        Writer::new(self)
    }

    fn hint_read(&self, hash: u64) {
        ask(&self.ahead(hash), prefetch_read);
    }

    #[inline]
    fn hint(&self, hash: u64) {
        ask_home(&self.ahead(hash), prefetch_write);
    }

    fn read_batch<'k>(
        &self,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        mut found: impl FnMut(usize, Option<u64>) -> Result<()>,
    ) -> Result<()> {
        let pin = self.core.pin();
        let to_second_level =
            self.core.segments.len() >= UNCACHED_BYTES && fills_first_level_slowly();
        let mut failure = Ok(());
        let reads = pipeline::stages_with_record(
            |index| (self.ahead(self.core.records.hash_key(&key(index)).hash), Begun::default()),
            |(ahead, _)| {
                if to_second_level {
                    ask(&ahead, prefetch_second_level);
                } else {
                    ask(&ahead, prefetch_read);
                }
            },
            |(ahead, begun)| *begun = self.begin(ahead),
            |(ahead, begun)| self.peek_record(&ahead, begun.candidates),
            |index, (ahead, begun)| {
                let raw = key(index);
                let probe = LookupKey::new(ahead.hash, &raw);
                match self
                    .complete(&pin, &probe, ahead.sighted, begun)
                    .and_then(|word| found(index, word))
                {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        failure = Err(error);
                        ControlFlow::Break(())
                    }
                }
            },
        );
        pipeline::rolling_in_bursts::<BURST, _>(count, READ_RING, PEEK, reads);
        failure
    }

    fn run_batch<'k, 'v>(
        &self,
        mode: Option<WriteMode>,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        value: impl Fn(usize) -> Raw<'v>,
        mut answer: impl FnMut(usize, WriteOutcome) -> Result<()>,
    ) -> Result<()> {
        let mut writer = Writer::new(self);
        let mut failure = Ok(());
        let storage = &self.core.storage;
        // Writes of keys by reference begin with a lookup.
        let looks = !self.core.records.keys_are_words();
        let writes = pipeline::stages_with_record(
            |index| self.ahead(self.core.records.hash_key(&key(index)).hash),
            |ahead| {
                if looks { ask(&ahead, prefetch_read) } else { ask_home(&ahead, prefetch_read) }
            },
            |ahead| {
                storage.read_unvalidated(|| self.peek_room(ahead));
                if looks && let Some(Target { pair, .. }) = ahead.sighted {
                    let find = || self.core.candidates(pair, ahead.hash);
                    self.hint_slots(pair, storage.read_unvalidated(find));
                }
            },
            |ahead| {
                storage.read_unvalidated(|| self.peek_further(&ahead));
                if looks {
                    self.peek_key(&ahead);
                }
            },
            |index, ahead| {
                let value = value(index);
                let write = mode.map(|mode| (mode, &value));
                let mut took = writer.take_up(index, ahead, &key(index), write);
                if took.is_ok() && writer.is_full() {
                    took = writer.run_all(&key, &mut answer);
                }
                match took {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        failure = Err(error);
                        ControlFlow::Break(())
                    }
                }
            },
        );
        pipeline::rolling_in_bursts::<BURST, _>(count, RING, PEEK, writes);
        // Operations before a failure are made durable and answered.
        let finished = writer.run_all(&key, &mut answer);
        failure.and(finished)
    }
}
