//! The moves of each thread in a concurrent history.

use icefield::OnFailure;

use super::held::End;
use crate::call::{Action, BatchKind, Call};
use crate::operation::Operation;
use crate::pass::Pass;
use crate::rng::Rng;

/// A move of a thread.
#[derive(Clone, Debug)]
pub(super) enum Move {
    One(u64, Operation),
    Batch(BatchKind, Vec<Call>),
    /// A mixed batch that includes shadow inserts.
    Mixed(OnFailure, Vec<(u64, Operation)>),
    /// Ends the oldest shadow insert that the thread holds, or all of them. If there are none, reads `key`.
    Settle {
        end: End,
        all: bool,
        key: u64,
    },
    Clear,
    /// Makes a pass, which is a read of each key of the history.
    Pass(Pass),
}

impl Move {
    pub(super) fn call(call: Call) -> Self {
        Self::One(call.key, Operation::Call(call.action))
    }
}

/// The keys of one history and the moves of its threads.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The keys that all threads use; absent before the history.
    pub hot: Vec<u64>,
    /// Inserts of hot keys before the threads start.
    pub setup: Vec<Call>,
    pub threads: Vec<Vec<Move>>,
    /// Set if the moves include shadow inserts.
    pub shadows: bool,
}

/// Number of keys of one history: a few hot ones, and more for each thread, which fill the table so that it must grow.
const KEYS_PER_HISTORY: u64 = 64;
/// Maximum number of hot keys; they are the first keys of a history's range.
const MAX_HOT: u64 = 3;

impl Plan {
    /// Creates the plan of history number `history` on its table. The moves may include shadow inserts only if
    /// `may_shadow` is set. Every write has a value of its own, or `only_value` if that is set.
    pub(super) fn new(
        rng: &mut Rng,
        history: u64,
        threads: usize,
        may_shadow: bool,
        only_value: Option<u64>,
    ) -> Self {
        let first = 1000 + history * KEYS_PER_HISTORY;
        // Mostly one hot key, because with several keys fewer operations overlap.
        let keys = if rng.one_in(16) { 2 + rng.below(MAX_HOT - 1) } else { 1 };
        let hot: Vec<u64> = (first..first + keys).collect();
        let shadows = may_shadow && rng.one_in(2);
        let mut draw = Draw { rng, hot: hot.clone(), fresh: 300, only_value, shadows };
        let setup = hot
            .iter()
            .filter(|key| *key % 2 == 0)
            .map(|&key| Call { key, action: Action::Insert(draw.value()) });
        let setup = setup.collect();
        let moves = 4 + draw.rng.index(5);
        let threads = (0..threads as u64)
            .map(|thread| {
                let filler = first + MAX_HOT + thread * 16;
                let moves: Vec<Move> = (0..moves).map(|_| draw.next_move(filler)).collect();
                // Every shadow insert must end.
                let last = shadows.then(|| draw.settle(true));
                moves.into_iter().chain(last).collect()
            })
            .collect();
        Self { hot, setup, threads, shadows }
    }

    /// Returns every key that the history uses.
    pub(super) fn keys(&self) -> Vec<u64> {
        let calls = self.threads.iter().flatten().flat_map(|step| match step {
            Move::One(key, _) => vec![*key],
            Move::Batch(_, calls) => calls.iter().map(|call| call.key).collect(),
            Move::Mixed(_, ops) => ops.iter().map(|&(key, _)| key).collect(),
            Move::Settle { .. } | Move::Clear | Move::Pass(_) => Vec::new(),
        });
        let mut keys: Vec<u64> = self.hot.iter().copied().chain(calls).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

struct Draw<'a> {
    rng: &'a mut Rng,
    hot: Vec<u64>,
    /// The last value of a write.
    fresh: u64,
    only_value: Option<u64>,
    shadows: bool,
}

impl Draw<'_> {
    fn value(&mut self) -> u64 {
        self.fresh = self.only_value.unwrap_or(self.fresh + 1);
        self.fresh
    }

    fn next_move(&mut self, filler: u64) -> Move {
        match self.rng.below(100) {
            0 if self.rng.one_in(4) => Move::Clear,
            // Rare, because each pass reads the whole table.
            60..64 => Move::Pass(Pass::any(self.rng)),
            0..14 => self.batch(filler),
            14..20 => Move::call(self.filling(filler)),
            20..36 if self.shadows => {
                let all = self.rng.one_in(2);
                self.settle(all)
            }
            36..60 if self.shadows => Move::One(*self.rng.pick(&self.hot), self.shadow()),
            _ => Move::call(self.contended()),
        }
    }

    fn shadow(&mut self) -> Operation {
        Operation::Shadow(self.value())
    }

    fn settle(&mut self, all: bool) -> Move {
        let end = *self.rng.pick(&[End::Commit, End::Abort]);
        Move::Settle { end, all, key: *self.rng.pick(&self.hot) }
    }

    /// Returns an insertion of a key that only this thread uses.
    fn filling(&mut self, filler: u64) -> Call {
        Call { key: filler + self.rng.below(16), action: Action::Insert(self.value()) }
    }

    fn contended(&mut self) -> Call {
        let value = self.value();
        let action = Action::any(self.rng, value);
        Call { key: *self.rng.pick(&self.hot), action }
    }

    /// Returns a batch on hot keys and the thread's own keys. In histories with shadow inserts, batches that may insert
    /// become mixed batches: if a shadow insert makes a batch of another kind fail, the number of executed operations
    /// is unknown.
    fn batch(&mut self, filler: u64) -> Move {
        let kind = *self.rng.pick(&BatchKind::ALL);
        let calls: Vec<Call> = (0..2 + self.rng.below(3))
            .map(|at| {
                let call = if at % 2 == 0 { self.contended() } else { self.filling(filler) };
                Call { action: kind.action(call.action, self.fresh), ..call }
            })
            .collect();
        match kind {
            BatchKind::Get | BatchKind::Update | BatchKind::Remove => Move::Batch(kind, calls),
            _ if !self.shadows => Move::Batch(kind, calls),
            BatchKind::Execute(on_failure) => self.mixed(on_failure, &calls),
            _ => self.mixed(OnFailure::Continue, &calls),
        }
    }

    /// Replaces some calls of the batch by shadow inserts, and puts by inserts, which return an answer.
    fn mixed(&mut self, on_failure: OnFailure, calls: &[Call]) -> Move {
        let asked = |call: &Call| match call.action {
            _ if self.rng.one_in(3) => (call.key, self.shadow()),
            Action::Put(value) => (call.key, Operation::Call(Action::Insert(value))),
            action => (call.key, Operation::Call(action)),
        };
        Move::Mixed(on_failure, calls.iter().map(asked).collect())
    }
}
