//! The steps of a history, and their generation.

use crate::call::{Action, BatchKind, Call, Rule};
use crate::rng::Rng;

/// A step of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are the calls of `Table` of the same names")]
pub enum Step {
    One(Call),
    Batch(BatchKind, Vec<Call>),
    /// A read whose closure calls the table again.
    GetWith {
        key: u64,
        inner: u64,
    },
    GetAsync(u64),
    /// `len`, `is_empty` and the estimate of `stats`.
    Len,
    /// A complete pass in pages of `page` records.
    Scan {
        page: usize,
    },
    /// A pass with writes between the pages and, if `reopen` is set, a reopening in the middle.
    ScanAmongWrites {
        page: usize,
        writes: Vec<Call>,
        reopen: bool,
    },
    /// A `for_each` that breaks at the first record after `stop_after` others.
    ForEach {
        stop_after: usize,
    },
    Clear,
    Reserve(u64),
    Shrink,
    /// Removes the keys whose number is a multiple of `drop_multiples_of`.
    Retain {
        drop_multiples_of: u64,
    },
    Check,
    Reopen,
    /// Calls that only this design has ([`Place::own_call`](crate::place::Place::own_call)).
    OwnCall(u64),
}

impl Step {
    /// Returns the calls of a batch, or those between the pages of a scan.
    pub(super) fn calls_mut(&mut self) -> Option<&mut Vec<Call>> {
        match self {
            Self::Batch(_, calls) | Self::ScanAmongWrites { writes: calls, .. } => Some(calls),
            _ => None,
        }
    }
}

/// The main activity of a part of a history.
#[derive(Clone, Copy)]
enum Mood {
    Mixed,
    Growing,
    Shrinking,
}

/// Returns the history of `seed`: phases of growing, shrinking and mixed work on few or many keys.
#[must_use]
pub fn history(seed: u64, length: usize) -> Vec<Step> {
    let mut draw = Draw::new(Rng::fork(seed, 1));
    let mut steps = Vec::with_capacity(length + 2);
    while steps.len() < length {
        let mood = *draw.rng.pick(&[Mood::Mixed, Mood::Growing, Mood::Growing, Mood::Shrinking]);
        for _ in 0..=draw.rng.index(length / 3 + 1) {
            steps.push(draw.step(mood));
        }
    }
    steps.extend([Step::Scan { page: 7 }, Step::Check]);
    steps
}

/// Returns the steps that `bytes` determine, at most `most`, and two more that check the result.
#[must_use]
pub(super) fn history_of_bytes(bytes: &[u8], most: usize) -> Vec<Step> {
    let mut draw = Draw::new(Rng::of_bytes(bytes));
    let mut steps = Vec::new();
    while draw.rng.has_bytes() && steps.len() < most {
        let mood = *draw.rng.pick(&[Mood::Mixed, Mood::Growing, Mood::Shrinking]);
        steps.push(draw.step(mood));
    }
    steps.extend([Step::Scan { page: 7 }, Step::Check]);
    steps
}

struct Draw {
    keys: u64,
    fresh: u64,
    rng: Rng,
}

impl Draw {
    fn new(mut rng: Rng) -> Self {
        Self { keys: *rng.pick(&[3, 12, 40, 150, 400]), fresh: 256, rng }
    }

    /// Returns a key of the universe, which includes the extreme words.
    fn key(&mut self) -> u64 {
        match self.rng.below(self.keys) {
            1 => u64::MAX,
            2 => 1 << 63,
            key => key,
        }
    }

    /// Returns a value that is mostly unique, so that stale results are detected.
    fn value(&mut self) -> u64 {
        if self.rng.one_in(5) {
            return self.rng.below(256);
        }
        self.fresh += 1;
        self.fresh
    }

    fn action(&mut self, mood: Mood) -> Action {
        let value = self.value();
        let growing = [Action::Insert(value), Action::TryInsert(value), Action::Put(value)];
        let shrinking = [
            Action::Remove,
            Action::Delete,
            Action::Compute(Rule::Remove),
            Action::Compute(Rule::RemoveEven),
        ];
        let others = [
            Action::Get,
            Action::Contains,
            Action::Update(value),
            Action::Compute(Rule::Keep),
            Action::Compute(Rule::Put(value)),
            Action::Compute(Rule::PutIfAbsent(value)),
            Action::Compute(Rule::PutIfPresent(value)),
        ];
        let weights = match mood {
            Mood::Mixed => [30, 25],
            Mood::Growing => [65, 5],
            Mood::Shrinking => [5, 55],
        };
        match self.rng.below(100) {
            n if n < weights[0] => *self.rng.pick(&growing),
            n if n < weights[0] + weights[1] => *self.rng.pick(&shrinking),
            _ => *self.rng.pick(&others),
        }
    }

    fn call(&mut self, mood: Mood) -> Call {
        Call { key: self.key(), action: self.action(mood) }
    }

    fn batch(&mut self, mood: Mood) -> Step {
        let kind = match mood {
            Mood::Growing if self.rng.one_in(2) => BatchKind::Insert,
            Mood::Shrinking if self.rng.one_in(2) => BatchKind::Remove,
            _ => *self.rng.pick(&BatchKind::ALL),
        };
        let count = *self.rng.pick(&[0, 1, 2, 5, 17, 40, 100]);
        let calls = (0..count).map(|_| {
            let call = self.call(mood);
            Call { action: kind.action(call.action, self.fresh), ..call }
        });
        Step::Batch(kind, calls.collect())
    }

    fn step(&mut self, mood: Mood) -> Step {
        match self.rng.below(1000) {
            0..5 => Step::Clear,
            5..20 => Step::Reopen,
            20..28 => Step::Reserve(self.rng.below(self.keys)),
            28..30 => Step::Shrink,
            30..40 => Step::Retain { drop_multiples_of: 2 + self.rng.below(5) },
            40..60 => Step::Scan { page: *self.rng.pick(&[1, 2, 7, 1000]) },
            60..75 => self.scan_among_writes(mood),
            75..85 => Step::ForEach { stop_after: self.rng.index(20) },
            85..95 => Step::Check,
            95..120 => Step::Len,
            120..150 => Step::GetAsync(self.key()),
            150..180 => Step::GetWith { key: self.key(), inner: self.key() },
            180..330 => self.batch(mood),
            330..350 => Step::OwnCall(self.rng.word()),
            _ => Step::One(self.call(mood)),
        }
    }

    fn scan_among_writes(&mut self, mood: Mood) -> Step {
        let count = self.rng.index(60);
        let writes = (0..count).map(|_| self.call(mood)).collect();
        Step::ScanAmongWrites { page: 1 + self.rng.index(4), writes, reopen: self.rng.one_in(4) }
    }
}
