//! Lines with pending stores, and the contents that a crash can leave in them.

use super::image::mix;
use super::line::{Entry, LineId, StoreKind};
use super::model::Model;
use crate::storage::arch::LINE_BYTES;

/// A line with more possible contents than this is sampled instead of enumerated.
const STATES_MAX: usize = 64;

/// A line with pending stores.
#[derive(Clone)]
pub(super) struct DirtyLine {
    pub(super) id: LineId,
    base: [u8; LINE_BYTES],
    pub(super) entries: Vec<Entry>,
    /// Every possible content, the oldest first and the newest last; empty when there are too many.
    states: Vec<[u8; LINE_BYTES]>,
}

impl DirtyLine {
    pub(super) fn new(id: LineId, base: &[u8]) -> Self {
        let mut line = [0; LINE_BYTES];
        line[..base.len()].copy_from_slice(base);
        Self { id, base: line, entries: Vec::new(), states: Vec::new() }
    }

    /// Returns the number of possible contents; `None` when there are too many.
    pub(super) fn count(&self) -> Option<u64> {
        (!self.states.is_empty()).then_some(self.states.len() as u64)
    }

    /// Returns the possible content numbered `n`.
    pub(super) fn state(&self, n: usize) -> [u8; LINE_BYTES] {
        self.states.get(n).copied().unwrap_or(self.base)
    }

    pub(super) fn oldest(&self) -> [u8; LINE_BYTES] {
        self.states.first().copied().unwrap_or(self.base)
    }

    pub(super) fn newest(&self) -> [u8; LINE_BYTES] {
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

    /// Fills `states`, or leaves it empty if there are too many. With `moved`, adds only the contents that include the
    /// newest store.
    pub(super) fn enumerate(&mut self, model: Model, moved: bool) {
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

    /// For each possible end of the log's part that is certainly present (`cuts`), adds the contents with each subset
    /// of the stores that are independent of it (`is_free`).
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

    /// Returns the possible ends of the part of the log that is certainly present: the start of the log, and the
    /// position after each Release store.
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

    /// Returns which stores are present when the oldest `left[word]` stores to each word are present.
    fn keep(&self, mut left: [usize; LINE_BYTES / 8]) -> Vec<bool> {
        let keep = |entry: &Entry| {
            let left = &mut left[entry.word()];
            let there = *left > 0;
            *left = left.saturating_sub(1);
            there
        };
        self.entries.iter().map(keep).collect()
    }

    pub(super) fn random(&self, seed: u64, model: Model) -> [u8; LINE_BYTES] {
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
