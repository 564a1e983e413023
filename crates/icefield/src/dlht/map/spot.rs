//! Access to the slot of a hash.

use std::cell::Cell;

use crate::Result;
use crate::base::pipeline::prefetch_write;
use crate::base::sync::{Line, Ordering};
use crate::dlht::core::Core;
use crate::dlht::get::{Hit, Step, get_on};
use crate::dlht::header::{Header, SlotState};
use crate::dlht::index::Index;
use crate::dlht::layout::LINK_SLOTS;
use crate::dlht::mode::Threading;
use crate::dlht::write::{Outcome, Rule};

/// The slot of a hash: read, then changed if it is still as it was read.
pub(super) trait Spot {
    fn get(&self) -> Option<u64>;
    fn store(&self, word: u64, rule: Rule) -> Result<Outcome>;
    fn take(&self, expected: u64) -> Outcome;
}

/// A [`Spot`] that keeps no state between calls, so no index is pinned while a closure of the user runs in between.
pub(super) struct Alone<'a, M: Threading> {
    pub(super) core: &'a Core<M>,
    pub(super) hash: u64,
}

impl<M: Threading> Spot for Alone<'_, M> {
    #[inline(always)]
    fn get(&self) -> Option<u64> {
        self.core.get(self.hash)
    }
    #[inline(always)]
    fn store(&self, word: u64, rule: Rule) -> Result<Outcome> {
        self.core.store(self.hash, word, rule, SlotState::Valid)
    }
    #[inline(always)]
    fn take(&self, expected: u64) -> Outcome {
        self.core.take(self.hash, Some(expected))
    }
}

/// The bin of a hash in an index that the caller has pinned. Remembers the last search: a write that follows begins
/// with the slot that was found, and searches again only if the bin has changed. Does not count records.
pub(super) struct Bin<'a, M: Threading> {
    core: &'a Core<M>,
    index: &'a Index,
    line: &'a Line,
    hash: u64,
    /// The header of the last search, and the slot of the hash as of this header.
    seen: Cell<Option<(Header, Option<Hit<'a>>)>>,
}

impl<'a, M: Threading> Bin<'a, M> {
    #[inline(always)]
    pub(super) fn new(core: &'a Core<M>, index: &'a Index, line: &'a Line, hash: u64) -> Self {
        Self { core, index, line, hash, seen: Cell::new(None) }
    }

    #[inline(always)]
    pub(super) fn get(&self) -> Option<u64> {
        let header = Index::header(self.line);
        if header.is_plain() && header.held() & LINK_SLOTS == 0 {
            let hit = Index::find_primary(self.line, header.held(), self.hash);
            let valid = hit.filter(|hit| header.slot(hit.slot) == SlotState::Valid);
            // Relaxed: validated by `still`.
            let word = valid.map(|hit| hit.place.value().load(Ordering::Relaxed));
            if Index::still(self.line, header) {
                self.seen.set(Some((header, hit)));
                return word;
            }
        }
        self.seen.set(None);
        match self.index.get::<M>(self.line, self.hash) {
            Step::Done(word) => word,
            _ => get_on::<M>(self.index, self.hash),
        }
    }

    #[inline(always)]
    pub(super) fn store(&self, word: u64, rule: Rule) -> Result<Outcome> {
        let (record, new) = ((self.hash, word), SlotState::Valid);
        if let Some((header, hit)) = self.seen.take() {
            let tried = self.index.try_store::<M>(self.line, header, hit, record, rule, new);
            if let Some(Step::Done(outcome)) = tried {
                return Ok(outcome);
            }
        }
        self.core.store_at(self.index, self.line, self.hash, word, rule, new)
    }

    #[inline(always)]
    pub(super) fn take(&self, expected: u64) -> Outcome {
        if let Some((header, hit)) = self.seen.take() {
            let hit = hit.filter(|hit| header.slot(hit.slot) == SlotState::Valid);
            let tried = self.index.try_take::<M>(self.line, header, hit, Some(expected));
            if let Some(outcome) = tried {
                return outcome;
            }
        }
        self.core.take_at(self.index, self.line, self.hash, Some(expected))
    }
}

/// The [`Spot`] of a single call: one pin of the index, and one search.
pub(super) struct Single<'a, M: Threading>(Bin<'a, M>);

impl<'a, M: Threading> Single<'a, M> {
    /// `index` is the current index, which the caller has pinned.
    #[inline(always)]
    pub(super) fn new(core: &'a Core<M>, index: &'a Index, hash: u64) -> Self {
        Self(Bin::new(core, index, index.line_of(hash), hash))
    }

    /// Begins to load the bin, for a write.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        prefetch_write(self.0.line);
    }
}

impl<M: Threading> Spot for Single<'_, M> {
    #[inline(always)]
    fn get(&self) -> Option<u64> {
        self.0.get()
    }

    #[inline(always)]
    fn store(&self, word: u64, rule: Rule) -> Result<Outcome> {
        let outcome = self.0.store(word, rule)?;
        if outcome == Outcome::Inserted {
            M::add(&self.0.core.count, 1);
        }
        Ok(outcome)
    }

    #[inline(always)]
    fn take(&self, expected: u64) -> Outcome {
        let outcome = self.0.take(expected);
        if let Outcome::Replaced(_) = outcome {
            M::add(&self.0.core.count, -1);
        }
        outcome
    }
}
