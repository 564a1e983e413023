//! What each thread of a concurrent history does.

use crate::call::{Action, BatchKind, Call};
use crate::rng::Rng;

/// One call of a thread.
#[derive(Clone, Debug)]
pub(super) enum Move {
    One(Call),
    Batch(BatchKind, Vec<Call>),
    Clear,
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
}

/// Keys of one history: some hot ones, and some more for each thread, which fill the table so that it must grow.
const KEYS_PER_HISTORY: u64 = 64;
/// The first keys of a history's range are the hot ones.
const MAX_HOT: u64 = 3;

impl Plan {
    /// The plan of history number `history` on its table.
    pub(super) fn new(rng: &mut Rng, history: u64, threads: usize) -> Self {
        let first = 1000 + history * KEYS_PER_HISTORY;
        // Mostly one: on several keys fewer operations meet.
        let keys = if rng.one_in(8) { 2 + rng.below(MAX_HOT - 1) } else { 1 };
        let hot: Vec<u64> = (first..first + keys).collect();
        let mut draw = Draw { rng, hot: hot.clone(), fresh: 300 };
        let setup = hot
            .iter()
            .filter(|key| *key % 2 == 0)
            .map(|&key| Call { key, action: Action::Insert(draw.value()) });
        let setup = setup.collect();
        let moves = 4 + draw.rng.index(5);
        let threads = (0..threads as u64)
            .map(|thread| {
                let filler = first + MAX_HOT + thread * 16;
                (0..moves).map(|_| draw.next_move(filler)).collect()
            })
            .collect();
        Self { hot, setup, threads }
    }

    /// Every key that the history touches.
    pub(super) fn keys(&self) -> Vec<u64> {
        let calls = self.threads.iter().flatten().flat_map(|step| match step {
            Move::One(call) => vec![call.key],
            Move::Batch(_, calls) => calls.iter().map(|call| call.key).collect(),
            Move::Clear => Vec::new(),
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
}

impl Draw<'_> {
    fn value(&mut self) -> u64 {
        self.fresh += 1;
        self.fresh
    }

    fn next_move(&mut self, filler: u64) -> Move {
        match self.rng.below(100) {
            0 if self.rng.one_in(4) => Move::Clear,
            0..14 => self.batch(filler),
            14..20 => Move::One(self.filling(filler)),
            _ => Move::One(self.contended()),
        }
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

    /// A batch over hot and own keys alike.
    fn batch(&mut self, filler: u64) -> Move {
        let kind = *self.rng.pick(&BatchKind::ALL);
        let calls = (0..2 + self.rng.below(3)).map(|at| {
            let call = if at % 2 == 0 { self.contended() } else { self.filling(filler) };
            Call { action: kind.action(call.action, self.fresh), ..call }
        });
        Move::Batch(kind, calls.collect())
    }
}
