//! Crash points and the images that a crash there can leave.
//!
//! Every line with pending stores gets one of the contents that the order of its stores allows, independently of every
//! other line. On [`Model::Pmem`] a Release store is present only together with every earlier atomic store to its
//! line; Relaxed stores after it, and the words of bulk writes, are present or absent one by one. On [`Model::Disk`]
//! every 8-byte word has any of its versions.
//!
//! Pending stores only add images until a fence removes some, and a table's obligations only grow as calls return. So
//! the images just before each fence and after each return include the images of every crash point between, under the
//! strictest obligations.

use std::panic::Location;

use super::Model;
use super::image::{Image, ImageRegion, mix};
use super::state::{Entry, LineId, State, StoreKind};
use crate::storage::LINE_BYTES;

/// A line with more possible contents than this is sampled instead of enumerated.
const STATES_MAX: usize = 64;

/// The kind of a crash point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A store has just happened.
    Store,
    /// A flush has just begun.
    Flush,
    /// A fence is about to take effect.
    Fence,
    /// A region is about to grow.
    Grow,
    /// Pages are about to be punched.
    Punch,
    /// The harness requested the point ([`super::Sim::crash_point`]).
    Asked,
}

/// One crash point.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The kind of the event.
    pub kind: EventKind,
    /// Its number on this medium, from 1.
    pub number: u64,
    /// The number of the thread, by the order of first use of the medium.
    pub thread: usize,
    /// The position in the code.
    pub site: &'static Location<'static>,
}

/// The choice of one image of a crash point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// One of an enumerable space.
    Nth(u64),
    /// No pending store survived.
    AllOld,
    /// Every pending store survived.
    AllNew,
    /// Every store survived except those of one line, which has any possible content.
    OneBehind(u64),
    /// No store survived except those of one line, which has any possible content.
    OneAhead(u64),
    /// Every line has any possible content.
    Random(u64),
}

impl Pick {
    /// Returns the `n`th sample of a large space: all old, all new, then in turn one line behind, one line ahead, and
    /// random ones.
    #[must_use]
    pub fn sample(n: u64, seed: u64) -> Self {
        match n {
            0 => Self::AllOld,
            1 => Self::AllNew,
            _ if n % 4 == 2 => Self::OneBehind(mix(seed ^ n)),
            _ if n % 4 == 3 => Self::OneAhead(mix(seed ^ n)),
            _ => Self::Random(mix(seed ^ n)),
        }
    }
}

/// A line with pending stores.
#[derive(Clone)]
pub(super) struct DirtyLine {
    pub(super) id: LineId,
    base: [u8; LINE_BYTES],
    pub(super) entries: Vec<Entry>,
    /// Every possible content, the oldest first and the newest last; empty when there are too many.
    states: Vec<[u8; LINE_BYTES]>,
}

/// A moment at which a crash may happen, with all states that it can leave.
pub struct CrashPoint<'a> {
    state: &'a State,
    event: Event,
    /// The lines; `None`: those of `state`.
    lines: Option<Vec<DirtyLine>>,
    /// A line whose newest store must be present: all other images were seen already.
    moved: Option<usize>,
}

impl<'a> CrashPoint<'a> {
    pub(super) fn new(state: &'a State, event: Event) -> Self {
        Self { state, event, lines: None, moved: None }
    }

    /// Returns a point that a [`super::Mutation`] creates: the state before a fence, with a later store.
    pub(super) fn reordered(
        state: &'a State,
        event: Event,
        lines: Vec<DirtyLine>,
        moved: usize,
    ) -> Self {
        Self { state, event, lines: Some(lines), moved: Some(moved) }
    }

    /// Returns the event at this point.
    #[must_use]
    pub fn event(&self) -> Event {
        self.event
    }

    /// Returns whether a mutation created this point. Images should then be taken for every kind of event.
    #[must_use]
    pub fn is_reordered(&self) -> bool {
        self.moved.is_some()
    }

    /// Returns whether the table has been published, so that from here on every image must open.
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.state.published
    }

    /// Returns whether the effect of a flush or fence that the mutation left out is still missing. If not, every image
    /// is possible without the mutation, too.
    #[must_use]
    pub fn is_left_out(&self) -> bool {
        self.state.is_left_out()
    }

    /// Returns whether more than one image is possible.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_reordered() || !self.state.dirty.is_empty()
    }

    /// Returns the images of this point.
    #[must_use]
    pub fn space(&self) -> CrashSpace<'a> {
        let mut lines = self.lines.clone().unwrap_or_else(|| self.state.dirty_lines());
        for (at, line) in lines.iter_mut().enumerate() {
            line.enumerate(self.state.model, self.moved == Some(at));
        }
        let count = lines
            .iter()
            .map(DirtyLine::count)
            .try_fold(1_u64, |product, count| product.checked_mul(count?));
        CrashSpace { state: self.state, lines, count }
    }
}

/// All images that a crash at one point can leave.
pub struct CrashSpace<'a> {
    state: &'a State,
    lines: Vec<DirtyLine>,
    count: Option<u64>,
}

impl CrashSpace<'_> {
    /// Returns the number of lines with pending stores.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Returns an upper bound on the number of different images; `None` when they cannot be enumerated.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        self.count
    }

    /// Writes one image, reusing the memory of `into`. Volatile words hold garbage that depends on the medium's seed
    /// and on the pick.
    pub fn image(&self, pick: Pick, into: &mut Image) {
        let regions = self.state.regions();
        into.regions.resize_with(regions.len(), ImageRegion::default);
        for (region, copy) in regions.iter().zip(&mut into.regions) {
            copy.name = region.name;
            copy.bytes.clear();
            copy.bytes.extend_from_slice(&region.persistent);
            copy.volatile.clear();
            copy.volatile.extend_from_slice(&region.volatile);
        }
        let mut choice = Choice::new(pick, self.lines.len());
        for (at, line) in self.lines.iter().enumerate() {
            let content = choice.content(at, line, self.state.model);
            let bytes = &mut into.regions[usize::from(line.id.region)].bytes;
            let end = bytes.len().min(line.id.offset() + LINE_BYTES);
            if let Some(target) = bytes.get_mut(line.id.offset()..end) {
                target.copy_from_slice(&content[..target.len()]);
            }
        }
        into.scramble(self.state.seed ^ choice.seed);
    }
}

/// Converts a pick into one content for each line.
struct Choice {
    pick: Pick,
    /// The rest of the pick's number, or the state of the generator.
    left: u64,
    chosen: usize,
    seed: u64,
}

impl Choice {
    fn new(pick: Pick, lines: usize) -> Self {
        let seed = match pick {
            Pick::AllOld => 0,
            Pick::AllNew => 1,
            Pick::Nth(n) | Pick::OneBehind(n) | Pick::OneAhead(n) | Pick::Random(n) => n,
        };
        let chosen = (mix(seed) % lines.max(1) as u64) as usize;
        Self { pick, left: seed, chosen, seed: mix(seed) }
    }

    fn content(&mut self, at: usize, line: &DirtyLine, model: Model) -> [u8; LINE_BYTES] {
        match self.pick {
            Pick::Nth(_) => {
                let count = line.states.len().max(1) as u64;
                let state = (self.left % count) as usize;
                self.left /= count;
                line.states.get(state).copied().unwrap_or(line.base)
            }
            Pick::AllOld => line.oldest(),
            Pick::AllNew => line.newest(),
            Pick::OneBehind(_) if at != self.chosen => line.newest(),
            Pick::OneAhead(_) if at != self.chosen => line.oldest(),
            Pick::OneBehind(_) | Pick::OneAhead(_) | Pick::Random(_) => {
                self.left = mix(self.left);
                line.random(self.left, model)
            }
        }
    }
}

impl DirtyLine {
    pub(super) fn new(id: LineId, base: &[u8]) -> Self {
        let mut line = [0; LINE_BYTES];
        line[..base.len()].copy_from_slice(base);
        Self { id, base: line, entries: Vec::new(), states: Vec::new() }
    }

    fn count(&self) -> Option<u64> {
        (!self.states.is_empty()).then_some(self.states.len() as u64)
    }

    fn oldest(&self) -> [u8; LINE_BYTES] {
        self.states.first().copied().unwrap_or(self.base)
    }

    fn newest(&self) -> [u8; LINE_BYTES] {
        self.content(|_| true)
    }

    /// Returns the line with the chosen stores applied.
    fn content(&self, mut chosen: impl FnMut(usize) -> bool) -> [u8; LINE_BYTES] {
        let mut line = self.base;
        for (at, entry) in self.entries.iter().enumerate() {
            if chosen(at) {
                entry.apply(&mut line);
            }
        }
        line
    }

    /// Fills in `states`, unless there are too many. With `moved`, only those that include the newest store.
    fn enumerate(&mut self, model: Model, moved: bool) {
        self.states.clear();
        let complete = match model {
            Model::Pmem => self.enumerate_prefixes(moved),
            Model::Disk => self.enumerate_words(moved),
        };
        if !complete {
            self.states.clear();
        }
    }

    fn add_state(&mut self, content: [u8; LINE_BYTES]) -> bool {
        if !self.states.contains(&content) {
            self.states.push(content);
        }
        self.states.len() <= STATES_MAX
    }

    /// For each number of leading Release stores: every subset of the stores that are independent.
    fn enumerate_prefixes(&mut self, moved: bool) -> bool {
        let newest = self.entries.len() - 1;
        for cut in self.cuts() {
            let free: Vec<usize> =
                (0..self.entries.len()).filter(|&at| self.is_free(at, cut)).collect();
            if free.len() > 8 {
                return false;
            }
            for subset in 0..1_u32 << free.len() {
                let chosen = |at: usize| match free.iter().position(|&free| free == at) {
                    Some(bit) => subset >> bit & 1 == 1,
                    None => at < cut,
                };
                if (!moved || chosen(newest)) && !self.add_state(self.content(chosen)) {
                    return false;
                }
            }
        }
        true
    }

    /// Returns the possible ends of the part of the log that is certainly present: the beginning, or after a Release
    /// store.
    fn cuts(&self) -> Vec<usize> {
        let releases =
            self.entries.iter().enumerate().filter(|(_, entry)| entry.kind == StoreKind::Release);
        std::iter::once(0).chain(releases.map(|(at, _)| at + 1)).collect()
    }

    /// Returns whether the store at `at` may be present or absent when the log up to `cut` is present.
    fn is_free(&self, at: usize, cut: usize) -> bool {
        match self.entries[at].kind {
            StoreKind::Bulk => true,
            StoreKind::Relaxed => at >= cut,
            StoreKind::Release => false,
        }
    }

    /// Enumerates the combinations of every word's versions.
    fn enumerate_words(&mut self, moved: bool) -> bool {
        let mut versions = [1_usize; LINE_BYTES / 8];
        for entry in &self.entries {
            versions[entry.word()] += 1;
        }
        let total = versions.iter().try_fold(1_usize, |product, &count| product.checked_mul(count));
        let Some(total) = total.filter(|&total| total <= 4 * STATES_MAX) else { return false };
        let newest = self.entries.len() - 1;
        for mut number in 0..total {
            let mut kept = [0_usize; LINE_BYTES / 8];
            for (kept, count) in kept.iter_mut().zip(versions) {
                *kept = number % count;
                number /= count;
            }
            let chosen = self.keep(kept);
            if (!moved || chosen[newest]) && !self.add_state(self.content(|at| chosen[at])) {
                return false;
            }
        }
        true
    }

    /// Returns which stores are present when each word has the given number of its stores.
    fn keep(&self, mut left: [usize; LINE_BYTES / 8]) -> Vec<bool> {
        let keep = |entry: &Entry| {
            let left = &mut left[entry.word()];
            let there = *left > 0;
            *left = left.saturating_sub(1);
            there
        };
        self.entries.iter().map(keep).collect()
    }

    fn random(&self, seed: u64, model: Model) -> [u8; LINE_BYTES] {
        if !self.states.is_empty() {
            return self.states[(seed % self.states.len() as u64) as usize];
        }
        match model {
            Model::Pmem => {
                let cuts = self.cuts();
                let cut = cuts[(seed % cuts.len() as u64) as usize];
                let coin = |at: usize| mix(seed ^ at as u64) & 1 == 1;
                self.content(|at| if self.is_free(at, cut) { coin(at) } else { at < cut })
            }
            Model::Disk => {
                let mut counts = [0_u64; LINE_BYTES / 8];
                self.entries.iter().for_each(|entry| counts[entry.word()] += 1);
                let kept = std::array::from_fn(|word| {
                    (mix(seed ^ word as u64) % (counts[word] + 1)) as usize
                });
                let chosen = self.keep(kept);
                self.content(|at| chosen[at])
            }
        }
    }
}
