//! Batches of reads, in one of two rings (`base::pipeline`): one for keys that are expected to be present, and one for
//! keys of which many are absent. The first has fewer instructions for a hit, but its branches depend on whether the key
//! is present: we believe that each miss among hits costs it wrong predictions. The second has no such branch, except
//! for records in the back yard. A batch begins with the ring in which the table's last batch ended, and changes the ring
//! when too many keys are absent or present (`judgement`).

use std::hint::select_unpredictable;
use std::ops::ControlFlow;

use super::core::{Core, place_of};
use super::fingerprints::candidates_back;
use super::judgement::Span;
use super::layout::{Shape, Slot, fingerprint};
use super::lookup::Candidates;
use super::unfenced_batch::BURST;
use crate::Result;
use crate::base::group::{Isa, Kernel, dispatch};
use crate::base::pipeline::{self, Stages, prefetch_read, prefetch_second_level};
use crate::engine::LookupKey;
use crate::engine::slots::EpochGuard;
use crate::storage::Medium;
use crate::types::{Raw, RecordForm};

/// The rings fetch fingerprints `RING` reads ahead, and inspect them `PEEK` reads ahead to fetch slots.
const RING: usize = 64;
const PEEK: usize = 24;

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Searches the fingerprints, fetches the first two candidate slots, and returns them. With one candidate, both are
    /// the same, which costs less than an unpredictable branch. Without a candidate it fetches the words of the back
    /// buckets, if the key may be there. A hint only.
    #[inline(always)]
    fn fetch_slots(&self, isa: impl Isa, hash: u64, mask: u64) -> Option<[&Slot; 2]> {
        let shape = self.shape();
        let bucket = shape.front(hash);
        let line = self.buckets.line(&self.storage, bucket);
        let found = line.candidates_on(isa, fingerprint(hash), mask);
        if found == 0 {
            if self.buckets.leads_behind(&self.storage, shape, hash) {
                self.fetch_words(shape.back(hash));
            }
            return None;
        }
        let slots = first_two(self.buckets.front_bucket(bucket)?, found)?;
        slots.iter().for_each(|slot| prefetch_second_level(*slot));
        Some(slots)
    }

    /// Fetches the bytes to which the slot of a key refers, if it is one of the two. A hint only.
    #[inline(always)]
    fn fetch_references(&self, [first, second]: [&Slot; 2], hash: u64) {
        let words = |slot: &Slot| slot.load(&self.storage, None);
        let fetch = |slot: &Slot| {
            self.records.prefetch(&self.storage, hash, || words(slot), prefetch_second_level)
        };
        if !fetch(first) && !std::ptr::eq(first, second) {
            fetch(second);
        }
    }

    /// Searches the words of the two back buckets and fetches the first candidate slot. A hint only.
    #[inline(always)]
    fn fetch_back_slot(&self, hash: u64) {
        let buckets = self.shape().back(hash);
        let words = buckets.map(|bucket| self.buckets.back_word(&self.storage, bucket).load());
        let candidates = candidates_back(words, fingerprint(hash));
        if candidates != 0 {
            let (which, slot) = place_of(candidates);
            if let Some(slot) = self.buckets.back_at(buckets[which], slot) {
                prefetch_second_level(slot);
            }
        }
    }

    /// Does the work of [`Core::fetch_slots`] for a key that may well be absent. Returns whether the back yard is the only
    /// place where the key may be, and all that `answer_from` needs. Only the first of these decides about a branch. Without
    /// a candidate, both slots are `spare`, any slot that is cached.
    #[inline(always)]
    fn fetch_candidates<'a>(
        &'a self,
        isa: impl Isa,
        hash: u64,
        mask: u64,
        spare: &'a Slot,
    ) -> Option<(bool, Candidates<'a>)> {
        let shape = self.shape();
        let bucket = shape.front(hash);
        let line = self.buckets.line(&self.storage, bucket);
        let found = line.candidates_on(isa, fingerprint(hash), mask);
        let lead = self.buckets.lead(shape, hash);
        let is_behind = found | u64::from(lead.difference(&self.storage)) == 0;
        if is_behind {
            self.fetch_words(shape.back(hash));
        }
        let slots = first_two(self.buckets.front_bucket(bucket)?, found)?
            .map(|slot| select_unpredictable(found == 0, spare, slot));
        slots.iter().for_each(|slot| prefetch_second_level(*slot));
        Some((is_behind, Candidates { shape, line, lead, found, slots }))
    }
}

/// Returns the first two slots of the mask `found`: twice the same if there is only one, and the first slot of the bucket
/// if there is none.
#[inline(always)]
fn first_two(slots: &[Slot], found: u64) -> Option<[&Slot; 2]> {
    let others = found & found.wrapping_sub(1);
    let others = if others == 0 { found } else { others };
    let at = |mask: u64| slots.get((mask.trailing_zeros() % u64::BITS) as usize);
    Some([at(found)?, at(others)?])
}

/// The reads of a batch.
pub(super) struct Reads<'a, R, M, F, G> {
    pub(super) core: &'a Core<R, M>,
    pub(super) count: usize,
    pub(super) key: F,
    pub(super) found: G,
}

/// The progress of a batch.
struct State {
    failure: Result<()>,
    span: Span,
}

impl<'k, R, M, F, G> Reads<'_, R, M, F, G>
where
    R: RecordForm,
    M: Medium,
    F: Fn(usize) -> Raw<'k>,
    G: FnMut(usize, Option<u64>) -> Result<()>,
{
    pub(super) fn run(mut self) -> Result<()> {
        let (core, count, pin) = (self.core, self.count, self.core.pin());
        let before = core.last_judgement.load();
        let mut state = State { failure: Ok(()), span: Span::after(before) };
        let mut first = 0;
        while first < count && state.failure.is_ok() {
            // The ring for misses is for words only: it fetches no references.
            let misses = core.records.are_words() && state.span.often_misses();
            let mask = core.buckets.front_mask();
            let ring = Ring { reads: &mut self, first, mask, pin: &pin, state: &mut state };
            first += if misses {
                let spare = core.buckets.front_slot(&core.storage, 0, 0)?;
                dispatch(InMisses { ring, spare })
            } else {
                dispatch(InHits(ring))
            };
        }
        let judgement = state.span.judgement(first);
        if judgement != before {
            core.last_judgement.store(judgement);
        }
        state.failure
    }
}

/// The part that the rings have in common.
struct Ring<'r, Q> {
    reads: &'r mut Q,
    /// The first read of the batch that runs in this ring.
    first: usize,
    /// A mask of the slots of a front bucket.
    mask: u64,
    pin: &'r EpochGuard<'r>,
    state: &'r mut State,
}

/// Runs reads in the ring for hits, and returns their number. Compiled for each instruction set. Each ring has its own
/// function: in one function, hits were a tenth slower in the caches.
struct InHits<'r, Q>(Ring<'r, Q>);

/// The same for the ring for misses.
struct InMisses<'r, 'a, Q> {
    ring: Ring<'r, Q>,
    spare: &'a Slot,
}

impl<'k, R, M, F, G> Kernel for InHits<'_, Reads<'_, R, M, F, G>>
where
    R: RecordForm,
    M: Medium,
    F: Fn(usize) -> Raw<'k>,
    G: FnMut(usize, Option<u64>) -> Result<()>,
{
    type Output = usize;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> usize {
        let Self(ring) = self;
        let (left, shape) = (ring.reads.count - ring.first, ring.reads.core.shape());
        pipeline::rolling_in_bursts::<BURST, _>(left, RING, PEEK, Hits { ring, isa, shape })
    }
}

impl<'a, 'k, R, M, F, G> Kernel for InMisses<'_, 'a, Reads<'a, R, M, F, G>>
where
    R: RecordForm,
    M: Medium,
    F: Fn(usize) -> Raw<'k>,
    G: FnMut(usize, Option<u64>) -> Result<()>,
{
    type Output = usize;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> usize {
        let Self { ring, spare } = self;
        let left = ring.reads.count - ring.first;
        pipeline::rolling_in_bursts::<BURST, _>(left, RING, PEEK, Misses { ring, isa, spare })
    }
}

impl<'a, 'k, R, M, F, G> Ring<'_, Reads<'a, R, M, F, G>>
where
    R: RecordForm,
    M: Medium,
    F: Fn(usize) -> Raw<'k>,
    G: FnMut(usize, Option<u64>) -> Result<()>,
{
    /// Returns the hash of a read's key, and fetches the fingerprints.
    #[inline(always)]
    fn locate(&self, index: usize) -> u64 {
        let core = self.reads.core;
        let hash = core.records.hash_key(&(self.reads.key)(self.first + index)).hash;
        core.fetch_line(hash, prefetch_read);
        hash
    }

    /// Searches all places of a key.
    #[inline(always)]
    fn search(&self, isa: impl Isa, key: &Raw<'_>, hash: u64) -> Result<Option<u64>> {
        self.reads.core.lookup_on(isa, self.pin, &LookupKey::new(hash, key))
    }

    /// Returns the result of a read to the caller. Leaves the ring after an error, and if `is_last`.
    #[inline(always)]
    fn answer(
        &mut self,
        index: usize,
        value: Result<Option<u64>>,
        is_last: bool,
    ) -> ControlFlow<()> {
        match value.and_then(|word| (self.reads.found)(self.first + index, word)) {
            Ok(()) if !is_last => ControlFlow::Continue(()),
            answered => {
                self.state.failure = answered;
                ControlFlow::Break(())
            }
        }
    }
}

/// The ring for keys that are expected to be present.
struct Hits<'r, Q, I> {
    ring: Ring<'r, Q>,
    isa: I,
    /// The shape at the start, or when a read last needed a whole search.
    shape: Shape,
}

/// A prefetched read: the hash of its key, and two slots of which one probably holds its record. The references stay
/// valid whatever happens to the table, because yards are never unmapped.
#[derive(Clone, Copy)]
struct LikelyHit<'a> {
    hash: u64,
    slots: Option<[&'a Slot; 2]>,
}

impl<'a, 'k, R, M, F, G, I> Stages for Hits<'_, Reads<'a, R, M, F, G>, I>
where
    R: RecordForm,
    M: Medium,
    F: Fn(usize) -> Raw<'k>,
    G: FnMut(usize, Option<u64>) -> Result<()>,
    I: Isa,
{
    type Entry = LikelyHit<'a>;

    #[inline(always)]
    fn locate(&mut self, index: usize) -> LikelyHit<'a> {
        LikelyHit { hash: self.ring.locate(index), slots: None }
    }

    #[inline(always)]
    fn inspect(&mut self, ahead: &mut LikelyHit<'a>) {
        let Ring { reads, mask, .. } = &self.ring;
        ahead.slots = reads.core.fetch_slots(self.isa, ahead.hash, *mask);
    }

    #[inline(always)]
    fn follow(&mut self, ahead: &mut LikelyHit<'a>) {
        let core = self.ring.reads.core;
        if ahead.slots.is_none()
            && core.buckets.leads_behind(&core.storage, core.shape(), ahead.hash)
        {
            core.fetch_back_slot(ahead.hash);
        }
    }

    #[inline(always)]
    fn prefetch_record(&mut self, ahead: &mut LikelyHit<'a>) {
        if let Some(slots) = ahead.slots {
            self.ring.reads.core.fetch_references(slots, ahead.hash);
        }
    }

    #[inline(always)]
    fn run(&mut self, index: usize, ahead: LikelyHit<'a>) -> ControlFlow<()> {
        let Self { ring, isa, shape } = self;
        let (LikelyHit { hash, slots }, core) = (ahead, ring.reads.core);
        let key = (ring.reads.key)(ring.first + index);
        let quickly = |slots| core.lookup_in(*isa, *shape, slots, hash, key.word());
        if let Some(word) = slots.and_then(quickly) {
            return ring.answer(index, Ok(Some(word)), false);
        }
        *shape = core.shape();
        let value = ring.search(*isa, &key, hash);
        let is_last = core.records.are_words()
            && matches!(value, Ok(None))
            && ring.state.span.note_miss(ring.first + index);
        ring.answer(index, value, is_last)
    }
}

/// The ring for keys of which many are absent.
struct Misses<'r, 'a, Q, I> {
    ring: Ring<'r, Q>,
    isa: I,
    /// One slot for all reads without a candidate, so that it stays cached unless it is written.
    spare: &'a Slot,
}

/// A prefetched read: the hash of its key, and its candidates, if the yards contain its front bucket.
#[derive(Clone, Copy)]
struct LikelyMiss<'a> {
    hash: u64,
    /// `true` if the front bucket has no candidate, and its mark has the bit of the hash.
    is_behind: bool,
    candidates: Option<Candidates<'a>>,
}

impl<'a, 'k, R, M, F, G, I> Stages for Misses<'_, 'a, Reads<'a, R, M, F, G>, I>
where
    R: RecordForm,
    M: Medium,
    F: Fn(usize) -> Raw<'k>,
    G: FnMut(usize, Option<u64>) -> Result<()>,
    I: Isa,
{
    type Entry = LikelyMiss<'a>;

    #[inline(always)]
    fn locate(&mut self, index: usize) -> LikelyMiss<'a> {
        LikelyMiss { hash: self.ring.locate(index), is_behind: false, candidates: None }
    }

    #[inline(always)]
    fn inspect(&mut self, ahead: &mut LikelyMiss<'a>) {
        let Ring { reads, mask, .. } = &self.ring;
        let found = reads.core.fetch_candidates(self.isa, ahead.hash, *mask, self.spare);
        if let Some((is_behind, candidates)) = found {
            (ahead.is_behind, ahead.candidates) = (is_behind, Some(candidates));
        }
    }

    #[inline(always)]
    fn follow(&mut self, ahead: &mut LikelyMiss<'a>) {
        let core = self.ring.reads.core;
        if ahead.is_behind {
            core.fetch_back_slot(ahead.hash);
        }
    }

    #[inline(always)]
    fn run(&mut self, index: usize, ahead: LikelyMiss<'a>) -> ControlFlow<()> {
        let Self { ring, isa, .. } = self;
        let (LikelyMiss { hash, candidates, .. }, core) = (ahead, ring.reads.core);
        let key = (ring.reads.key)(ring.first + index);
        let quickly = |candidates| core.answer_from(*isa, &candidates, ring.mask, hash, key.word());
        let value = match candidates.and_then(quickly) {
            Some(answer) => Ok(answer),
            None => ring.search(*isa, &key, hash),
        };
        let is_miss = matches!(value, Ok(None));
        let is_last = ring.state.span.note_read(ring.first + index, is_miss);
        ring.answer(index, value, is_last)
    }
}
