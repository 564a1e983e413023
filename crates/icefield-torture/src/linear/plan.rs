//! What each thread of a concurrent history does.

use icefield::OnFailure;

use super::held::End;
use crate::asked::Asked;
use crate::call::{Action, BatchKind, Call};
use crate::pass::Pass;
use crate::rng::Rng;

/// One call of a thread.
#[derive(Clone, Debug)]
pub(super) enum Move {
    One(u64, Asked),
    Batch(BatchKind, Vec<Call>),
    /// A mixed batch with shadow inserts among its operations.
    Mixed(OnFailure, Vec<(u64, Asked)>),
    /// Ends the oldest shadow insert that the thread holds, or all; reads `key` if there is none.
    Settle {
        end: End,
        all: bool,
        key: u64,
    },
    Clear,
    /// Sees all records: a read of each key of the history.
    Pass(Pass),
}

impl Move {
    pub(super) fn call(call: Call) -> Self {
        Self::One(call.key, Asked::Call(call.action))
    }
}

/// The keys and the threads' moves of one history.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The keys that all threads fight over; absent before the history.
    pub hot: Vec<u64>,
    /// Hot keys that are inserted before the threads start.
    pub setup: Vec<Call>,
    /// The moves of each thread.
    pub threads: Vec<Vec<Move>>,
    /// Whether there are shadow inserts among them.
    pub shadows: bool,
}

/// Keys of one history: some hot ones, and some more for each thread, which fill the table so that it must grow.
const KEYS_PER_HISTORY: u64 = 64;
/// The first keys of a history's range are the hot ones.
const MAX_HOT: u64 = 3;

impl Plan {
    /// The plan of history number `history` on its table, which may have shadow inserts.
    pub(super) fn new(rng: &mut Rng, history: u64, threads: usize, may_shadow: bool) -> Self {
        let first = 1000 + history * KEYS_PER_HISTORY;
        // Mostly one: on several keys fewer operations meet.
        let keys = if rng.one_in(16) { 2 + rng.below(MAX_HOT - 1) } else { 1 };
        let hot: Vec<u64> = (first..first + keys).collect();
        let shadows = may_shadow && rng.one_in(2);
        let mut draw = Draw { rng, hot: hot.clone(), fresh: 300, shadows };
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
                // What is held must end.
                let last = shadows.then(|| draw.settle(true));
                moves.into_iter().chain(last).collect()
            })
            .collect();
        Self { hot, setup, threads, shadows }
    }

    /// Every key that the history touches.
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
    fresh: u64,
    shadows: bool,
}

impl Draw<'_> {
    fn value(&mut self) -> u64 {
        self.fresh += 1;
        self.fresh
    }

    fn next_move(&mut self, filler: u64) -> Move {
        match self.rng.below(100) {
            0 if self.rng.one_in(4) => Move::Clear,
            // Each reads the whole table: dear.
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

    fn shadow(&mut self) -> Asked {
        Asked::Shadow(self.value())
    }

    fn settle(&mut self, all: bool) -> Move {
        let end = *self.rng.pick(&[End::Commit, End::Abort]);
        Move::Settle { end, all, key: *self.rng.pick(&self.hot) }
    }

    /// An insertion of a key that only this thread uses.
    fn filling(&mut self, filler: u64) -> Call {
        Call { key: filler + self.rng.below(16), action: Action::Insert(self.value()) }
    }

    fn contended(&mut self) -> Call {
        let value = self.value();
        let action = Action::any(self.rng, value);
        Call { key: *self.rng.pick(&self.hot), action }
    }

    /// A batch over hot and own keys alike. Where keys may be shadowed, batches of inserts are mixed ones: of another
    /// that is refused nobody learns how far it came.
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

    /// The batch with some shadow inserts; blind puts tell their answer instead.
    fn mixed(&mut self, on_failure: OnFailure, calls: &[Call]) -> Move {
        let asked = |call: &Call| match call.action {
            _ if self.rng.one_in(3) => (call.key, self.shadow()),
            Action::Put(value) => (call.key, Asked::Call(Action::Insert(value))),
            action => (call.key, Asked::Call(action)),
        };
        Move::Mixed(on_failure, calls.iter().map(asked).collect())
    }
}
