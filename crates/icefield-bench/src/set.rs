//! A set under measurement: it counts hits and has no values.

use std::time::Instant;

use icefield::{DlhtSet, Result, Stats};

use crate::args::Batch;
use crate::keys::Tally;
use crate::stats::Histogram;
use crate::table::{Answers, BenchTable, Call, Mixed};

pub(crate) struct Keys(pub DlhtSet<u64>);

impl Keys {
    /// Returns whether a set supports `call`.
    pub fn offers(call: Call) -> bool {
        matches!(call, Call::Get | Call::GetMiss | Call::TryInsert | Call::Remove | Call::InsDel)
    }

    fn run_single(&self, call: Call, keys: &[u64]) -> u64 {
        let set = &self.0;
        let keys = keys.iter().copied();
        match call {
            Call::Get | Call::GetMiss => keys.map(|key| u64::from(set.contains(key))).sum(),
            Call::TryInsert => keys.map(|key| u64::from(set.insert(key))).sum(),
            Call::Remove => keys.map(|key| u64::from(set.remove(key))).sum(),
            Call::InsDel => {
                keys.map(|key| u64::from(set.insert(key)) + u64::from(set.remove(key))).sum()
            }
            Call::Insert | Call::Put | Call::Update | Call::PutHeavy => 0,
        }
    }

    fn run_batches(&self, call: Call, keys: &[u64], size: usize) -> u64 {
        let mut answers = vec![false; size];
        let mut hits = 0;
        for chunk in keys.chunks(size) {
            let answers = &mut answers[..chunk.len()];
            answers.fill(false);
            match call {
                Call::Get | Call::GetMiss => self.0.contains_batch(chunk, answers),
                Call::TryInsert => self.0.insert_batch(chunk, answers),
                Call::Remove => self.0.remove_batch(chunk, answers),
                Call::InsDel => {
                    self.0.insert_batch(chunk, answers);
                    hits += count(answers);
                    self.0.remove_batch(chunk, answers);
                }
                Call::Insert | Call::Put | Call::Update | Call::PutHeavy => {}
            }
            hits += count(answers);
        }
        hits
    }
}

fn count(answers: &[bool]) -> u64 {
    answers.iter().map(|answer| u64::from(*answer)).sum()
}

impl BenchTable for Keys {
    fn run(&self, call: Call, keys: &[u64], batch: Batch) -> Result<Tally> {
        let hits = match batch {
            Batch::None => self.run_single(call, keys),
            batch => self.run_batches(call, keys, batch.size()),
        };
        Ok(Tally { hits, sum: 0 })
    }

    fn answers(&self) -> Answers {
        Answers::Hits
    }

    /// One by one: a set has no mixed batches.
    fn run_mixed(&self, ops: &[Mixed], _batch: Batch) -> Result<Tally> {
        let hits = ops.iter().map(|op| self.run_single(op.call, &[op.key])).sum();
        Ok(Tally { hits, sum: 0 })
    }

    fn run_timed(&self, call: Call, keys: &[u64], times: &mut Histogram) -> Result<Tally> {
        let (mut hits, mut last) = (0, Instant::now());
        for key in keys {
            hits += self.run_single(call, &[*key]);
            let now = Instant::now();
            times.saturating_record((now - last).as_nanos() as u64);
            last = now;
        }
        Ok(Tally { hits, sum: 0 })
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }
}
