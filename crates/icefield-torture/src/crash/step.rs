//! The steps of a crash history, and their generation from a seed.

use crate::call::{Action, BatchKind, Call, Rule};
use crate::rng::Rng;

/// A step of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are the calls of `Table` of the same names")]
pub enum Step {
    One(Call),
    Batch(BatchKind, Vec<Call>),
    Scan,
    /// Drawn only if writes are acknowledged before they are durable.
    Sync,
    Clear,
    Reserve(u64),
    Shrink,
    Retain {
        drop_multiples_of: u64,
    },
    /// Closes the table cleanly and opens it again.
    Reopen,
    /// Simulates a power failure at the `at`th event inside the step, or at the step's return if that comes first, and
    /// continues from one of the images.
    CrashIn {
        step: Box<Step>,
        at: u64,
        pick: u64,
    },
}

/// Returns the numbers of the `count` keys that a history uses, with short and long samples.
#[must_use]
pub fn universe(count: usize) -> Vec<u64> {
    (0..count as u64).map(|at| if at % 3 == 0 { at } else { 300 + 17 * at }).collect()
}

/// A key that no history uses.
pub(super) const PROBE: u64 = 9_999_991;

/// First value of the steps that are not part of the history itself.
const BESIDE: u64 = 1 << 20;

pub(super) struct Draw<'a> {
    pub(super) rng: Rng,
    pub(super) keys: &'a [u64],
    /// The next value. Each write has a unique value, so that an image shows which write it holds.
    pub(super) fresh: u64,
    pub(super) simple: bool,
    /// True if writes are acknowledged before they are durable.
    pub(super) relaxed: bool,
}

impl<'a> Draw<'a> {
    pub(super) fn new(seed: u64, keys: &'a [u64], simple: bool) -> Self {
        Self { rng: Rng::fork(seed, 7), keys, fresh: 0, simple, relaxed: false }
    }

    /// Switches to the value range for steps that are not part of [`Self::history`].
    pub(super) fn beside(self) -> Self {
        Self { fresh: BESIDE, ..self }
    }

    /// Adds occasional syncs if `relaxed` is set.
    pub(super) fn relaxed(self, relaxed: bool) -> Self {
        Self { relaxed, ..self }
    }

    /// Draws a history: a growing phase first, so that structure changes come early, then mixed steps.
    pub(super) fn history(&mut self, length: usize) -> Vec<Step> {
        let growing = length * (1 + self.rng.index(3)) / 4;
        (0..length).map(|at| self.step(at < growing)).collect()
    }

    /// Draws an aftermath: steps that another thread could execute right after a call whose flush or fence is missing.
    /// To expose that, they remove what the call has written, or write enough to change the table's structure.
    pub(super) fn aftermath(&mut self) -> Vec<Step> {
        let rounds = match self.rng.below(4) {
            0 if !self.simple => return vec![Step::Clear],
            1 => return self.each(|_| Action::Delete),
            rounds => 1 + rounds,
        };
        (0..rounds).flat_map(|_| self.each(|draw| Action::Put(draw.value()))).collect()
    }

    fn each(&mut self, mut action: impl FnMut(&mut Self) -> Action) -> Vec<Step> {
        let keys = self.keys;
        keys.iter().map(|&key| Step::One(Call { key, action: action(self) })).collect()
    }

    /// Returns an unused value; tables of byte strings store some in a single byte.
    fn value(&mut self) -> u64 {
        self.fresh += 1;
        if self.fresh.is_multiple_of(5) && self.fresh < 1280 {
            self.fresh / 5
        } else {
            256 + self.fresh
        }
    }

    fn key(&mut self) -> u64 {
        *self.rng.pick(self.keys)
    }

    pub(super) fn step(&mut self, growing: bool) -> Step {
        if self.simple {
            return match self.rng.below(24) {
                0 => Step::Reopen,
                1 => self.crash(growing),
                _ => Step::One(self.call(growing)),
            };
        }
        match self.rng.below(48) {
            0 => Step::Reopen,
            1 | 2 => self.crash(growing),
            3 | 47 if !growing => Step::Clear,
            4 if self.rng.one_in(2) => Step::Reserve(1 + self.rng.below(12)),
            4 | 8 if !growing => Step::Shrink,
            5 => Step::Scan,
            44..=46 if self.relaxed => Step::Sync,
            6 if !growing => Step::Retain { drop_multiples_of: 2 + self.rng.below(4) },
            7..=13 => self.batch(growing),
            _ => Step::One(self.call(growing)),
        }
    }

    fn crash(&mut self, growing: bool) -> Step {
        let step = loop {
            match self.step(growing) {
                Step::Reopen | Step::CrashIn { .. } => {}
                step => break step,
            }
        };
        Step::CrashIn { step: Box::new(step), at: 1 + self.rng.below(24), pick: self.rng.word() }
    }

    pub(super) fn batch(&mut self, growing: bool) -> Step {
        let kind = if growing && self.rng.one_in(2) {
            BatchKind::Insert
        } else {
            *self.rng.pick(&BatchKind::ALL)
        };
        let count = 1 + self.rng.index(6);
        let calls = (0..count).map(|_| {
            let call = self.call(growing);
            let value = self.value();
            Call { key: call.key, action: kind.action(call.action, value) }
        });
        Step::Batch(kind, calls.collect())
    }

    pub(super) fn call(&mut self, growing: bool) -> Call {
        let value = self.value();
        let weight = if growing { self.rng.below(14) } else { self.rng.below(24) };
        let action = match weight {
            0..=4 => Action::Insert(value),
            5..=7 => Action::TryInsert(value),
            8 | 9 => Action::Put(value),
            10 | 11 => Action::Update(value),
            12 => Action::Compute(Rule::Put(value)),
            13 => Action::Get,
            14..=17 => Action::Remove,
            18 | 19 => Action::Delete,
            20 => Action::Compute(Rule::Remove),
            21 => Action::Compute(Rule::PutIfPresent(value)),
            22 => Action::Compute(Rule::PutIfAbsent(value)),
            _ => Action::Contains,
        };
        Call { key: self.key(), action }
    }
}
