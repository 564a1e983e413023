//! Batches: a ring prefetches the buckets of upcoming operations. The operations then run in windows: the operations of
//! one window, up to 32, share two fences.
//!
//! Each operation of a window locks its home bucket, and its probing bucket if it changes that, and decides what to do. The window waits only for its first lock.
//! It tries all other locks, and a failure closes the window. So a thread never waits while it holds a lock, and no
//! lock order is needed. New records are written to free slots, and one fence makes all of them durable. Then every
//! affected bucket gets its changes under its changing bit, and a second fence makes these durable before readers can
//! see them.
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
use crate::base::pipeline::{self, Stages, prefetch_read, prefetch_write};
use crate::engine::LookupKey;
use crate::engine::slots::EpochGuard;
use crate::engine::slots::batch::BatchTable;
use crate::engine::slots::table::{WriteMode, WriteOutcome};
use crate::storage::Medium;
use crate::types::{Raw, RecordForm};

/// The ring fetches the buckets of an operation `RING` operations before that operation runs. `PEEK` operations before,
/// it inspects these buckets and fetches the record. It handles `BURST` keys at a time.
const RING: usize = 48;
const PEEK: usize = 16;
const BURST: usize = 8;

impl<R: RecordForm, P: Directory, M: Medium> Dash<R, P, M> {
    /// The first stage: finds a key's buckets. Inlined into the ring, so that the entries of the ring are read word by
    /// word, as they are written. Vector loads would have to wait for the preceding word stores.
    #[inline(always)]
    fn ahead(&self, hash: u64) -> Ahead<'_> {
        Ahead { hash, sighted: self.core.storage.read_unvalidated(|| self.try_locate(hash)) }
    }

    /// The third stage of writes: selects the slot that will be changed, or the free slot for a new record, and fetches
    /// its line. A hint only.
    #[inline]
    fn peek_room(&self, ahead: &Ahead<'_>) {
        let Some(Target { pair, .. }) = ahead.sighted else { return };
        let candidates = self.core.candidates(pair, ahead.hash);
        let metas = pair.map(|bucket| bucket.meta(&self.core.storage).allocated());
        let place = match candidates {
            0 => self.core.choose(metas),
            _ => Some(place_of(candidates)),
        };
        if let Some((which, slot)) = place {
            prefetch_write(&raw const pair[which].slots[slot]);
        }
    }
}

/// The second stage: fetches the buckets.
#[inline(always)]
fn ask(sighted: Option<Target<'_>>, hint: impl Fn(*const Bucket)) {
    if let Some(Target { pair: [home, probing], .. }) = sighted {
        hint(home);
        hint(probing);
    }
}

/// The stages of a batch of reads.
struct Reads<'a, 't, R: RecordForm, P: Directory, M: Medium, K, F> {
    table: &'t Dash<R, P, M>,
    pin: &'a EpochGuard<'t>,
    key: K,
    found: F,
    failure: &'a mut Result<()>,
}

/// A key of a batch of reads.
#[derive(Clone, Copy)]
struct Read<'t> {
    hash: u64,
    sighted: Option<Target<'t>>,
    /// The search for the key, which begins with the third stage. `None` if the last stage must do the whole search.
    begun: Option<Begun>,
}

impl<'k, 't, R: RecordForm, P: Directory, M: Medium, K, F> Stages for Reads<'_, 't, R, P, M, K, F>
where
    K: Fn(usize) -> Raw<'k>,
    F: FnMut(usize, Option<u64>) -> Result<()>,
{
    type Entry = Read<'t>;

    #[inline(always)]
    fn locate(&mut self, index: usize) -> Read<'t> {
        let hash = self.table.core.records.hash_key(&(self.key)(index)).hash;
        let Ahead { hash, sighted } = self.table.ahead(hash);
        Read { hash, sighted, begun: None }
    }

    #[inline(always)]
    fn prefetch(&mut self, read: Read<'t>) {
        ask(read.sighted, prefetch_read);
    }

    /// Compares the fingerprints and fetches the line of the first candidate.
    #[inline(always)]
    fn inspect(&mut self, read: &mut Read<'t>) {
        let core = &self.table.core;
        let Some(Target { pair, located }) = read.sighted else { return };
        // The mark first (E5): the locks of an unmarked segment are not valid yet.
        if !P::Ablation::PARTS.optimistic || !core.marks.is_ready(located.segment) {
            return;
        }
        // Read through `read_unvalidated`: other operations finish before this one validates what it reads here.
        read.begun = core.storage.read_unvalidated(|| core.try_begin(pair, read.hash));
        if let Some(Begun { candidates: candidates @ 1.., .. }) = read.begun {
            let (which, slot) = place_of(candidates);
            prefetch_read(&raw const pair[which].slots[slot]);
        }
    }

    #[inline(always)]
    fn run(&mut self, index: usize, read: Read<'t>) -> ControlFlow<()> {
        let raw = (self.key)(index);
        let probe = LookupKey::new(read.hash, &raw);
        let word = self.table.lookup_begun(self.pin, &probe, read.sighted.zip(read.begun));
        match word.and_then(|word| (self.found)(index, word)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                *self.failure = Err(error);
                ControlFlow::Break(())
            }
        }
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
        ask(self.ahead(hash).sighted, prefetch_read);
    }

    #[inline]
    fn hint(&self, hash: u64) {
        ask(self.ahead(hash).sighted, prefetch_write);
    }

    fn read_batch<'k>(
        &self,
        count: usize,
        key: impl Fn(usize) -> Raw<'k>,
        found: impl FnMut(usize, Option<u64>) -> Result<()>,
    ) -> Result<()> {
        let pin = self.core.pin();
        let mut failure = Ok(());
        let reads = Reads { table: self, pin: &pin, key, found, failure: &mut failure };
        pipeline::rolling_in_bursts::<BURST, _>(count, RING, PEEK, reads);
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
        let writes = pipeline::stages(
            |index| self.ahead(self.core.records.hash_key(&key(index)).hash),
            |ahead| ask(ahead.sighted, prefetch_read),
            |ahead| self.core.storage.read_unvalidated(|| self.peek_room(&ahead)),
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
