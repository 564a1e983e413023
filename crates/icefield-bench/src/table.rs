//! The seam between experiments and tables: [`BenchTable`] is one opened table, [`Design`] makes them.
//!
//! The loops are inside the calls, so that a call through `dyn` costs nothing per operation; whatever can take an array
//! of keys can be measured. A new design joins by implementing [`Design`] and a line in [`super::designs`].

use std::path::PathBuf;
use std::time::Instant;

use icefield::pm::sim::Sim;
use icefield::{Durability, OnFailure, Op, Result, Stats, Table};

use crate::args::Batch;
use crate::keys::{Tally, value_of};
use crate::stats::Histogram;

/// What is asked of each key of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Of a present key.
    Get,
    /// Of an absent key.
    GetMiss,
    TryInsert,
    Insert,
    Put,
    Update,
    Remove,
    /// An insert and a remove of the same absent key.
    InsDel,
}

impl Call {
    /// How many operations one key stands for.
    pub fn operations(self) -> usize {
        if self == Self::InsDel { 2 } else { 1 }
    }

    /// What a phase over `keys` must answer when each key was as the call expects it.
    pub fn expected(self, keys: &[u64]) -> Tally {
        let values = Tally::of_values(keys);
        match self {
            Self::Get | Self::Update | Self::Remove => values,
            Self::GetMiss => Tally::default(),
            Self::TryInsert | Self::Insert | Self::Put => Tally { sum: 0, ..values },
            Self::InsDel => Tally { hits: 2 * values.hits, ..values },
        }
    }
}

/// One operation of a mixed phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixed {
    pub key: u64,
    pub inserts: bool,
}

/// A table under measurement: 64-bit keys, [`value_of`] each as its value.
pub(crate) trait BenchTable: Send + Sync {
    /// Makes `call` for each key in order. `hits` counts gets and updates and removals that found their key, and
    /// inserts that met none; `sum` adds up the values that they answered.
    fn run(&self, call: Call, keys: &[u64], batch: Batch) -> Result<Tally>;

    /// Gets and `try_insert`s in order.
    fn run_mixed(&self, ops: &[Mixed], batch: Batch) -> Result<Tally>;

    /// [`BenchTable::run`] one by one, each with its time in nanoseconds.
    fn run_timed(&self, call: Call, keys: &[u64], times: &mut Histogram) -> Result<Tally>;

    /// What the table is made of.
    fn stats(&self) -> Stats;
}

/// A kind of table that can be made and opened.
pub(crate) trait Design: Sync {
    /// Its name in options and results.
    fn name(&self) -> &'static str;

    /// Makes an empty table.
    fn create(&self, place: &Place, setup: Setup) -> Result<Box<dyn BenchTable>>;

    /// Opens the table that is there.
    fn open(&self, place: &Place) -> Result<Box<dyn BenchTable>>;

    /// What the design itself says that one operation costs, without splits.
    fn cost(&self, call: Call) -> Cost;

    /// The regions that a table of this design may have, each with what its lines are called in results.
    fn regions(&self) -> &'static [(&'static str, &'static str)];
}

/// What the lines of `region` are called in results.
pub(crate) fn structure_of(design: &dyn Design, region: &str) -> &'static str {
    design
        .regions()
        .iter()
        .find(|(name, _)| *name == region)
        .map_or("other", |(_, structure)| structure)
}

/// Where a table is made.
#[derive(Clone)]
pub(crate) enum Place {
    Memory,
    Dir { path: PathBuf, durability: Durability },
    Simulated(Sim),
}

/// How a table is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Records that it holds without growing.
    pub capacity: u64,
    pub stash_buckets: Option<u32>,
    /// Of its hash, so that runs repeat.
    pub seed: u64,
}

/// The documented cost of an operation: it reads `reads` lines, stores to and flushes `writes`, and fences `fences`
/// times; a batch of 32 shares its fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub reads: usize,
    pub writes: usize,
    pub fences: usize,
}

/// One of Icefield's own tables.
pub(crate) struct Ours<T>(pub T);

impl<T: Table<Key = u64, Value = u64>> BenchTable for Ours<T> {
    fn run(&self, call: Call, keys: &[u64], batch: Batch) -> Result<Tally> {
        match batch {
            Batch::None => self.run_single(call, keys),
            batch => self.run_batches(call, keys, batch.size()),
        }
    }

    fn run_mixed(&self, ops: &[Mixed], batch: Batch) -> Result<Tally> {
        let mut tally = Tally::default();
        if batch == Batch::None {
            for op in ops {
                if op.inserts {
                    tally.insert(self.0.try_insert(op.key, value_of(op.key))?.is_ok());
                } else {
                    tally.answer(self.0.get(op.key)?);
                }
            }
            return Ok(tally);
        }
        let mut calls: Vec<Op<'_, u64, u64>> = Vec::with_capacity(batch.size());
        for chunk in ops.chunks(batch.size()) {
            calls.clear();
            calls.extend(chunk.iter().map(|op| match op.inserts {
                true => Op::try_insert(op.key, value_of(op.key)),
                false => Op::get(op.key),
            }));
            self.0.execute(&mut calls, OnFailure::Continue)?;
            for call in &calls {
                match call {
                    Op::TryInsert(.., outcome) => tally.insert(outcome.is_ok()),
                    Op::Get(_, found) => tally.answer(*found),
                    _ => {}
                }
            }
        }
        Ok(tally)
    }

    fn run_timed(&self, call: Call, keys: &[u64], times: &mut Histogram) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut last = Instant::now();
        for key in keys {
            tally.add(self.run_single(call, std::slice::from_ref(key))?);
            let now = Instant::now();
            times.record((now - last).as_nanos() as u64);
            last = now;
        }
        Ok(tally)
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }
}

impl<T: Table<Key = u64, Value = u64>> Ours<T> {
    #[inline]
    fn run_single(&self, call: Call, keys: &[u64]) -> Result<Tally> {
        let table = &self.0;
        let mut tally = Tally::default();
        match call {
            Call::Get | Call::GetMiss => {
                keys.iter().try_for_each(|&key| table.get(key).map(|found| tally.answer(found)))?
            }
            Call::TryInsert => keys.iter().try_for_each(|&key| {
                table.try_insert(key, value_of(key)).map(|outcome| tally.insert(outcome.is_ok()))
            })?,
            Call::Insert => keys.iter().try_for_each(|&key| {
                table.insert(key, value_of(key)).map(|previous| tally.insert(previous.is_none()))
            })?,
            Call::Put => keys
                .iter()
                .try_for_each(|&key| table.put(key, value_of(key)).map(|()| tally.insert(true)))?,
            Call::Update => {
                keys.iter().try_for_each(|&key| {
                    table.update(key, value_of(key)).map(|previous| tally.answer(previous))
                })?;
            }
            Call::Remove => keys
                .iter()
                .try_for_each(|&key| table.remove(key).map(|removed| tally.answer(removed)))?,
            Call::InsDel => {
                for &key in keys {
                    tally.insert(table.try_insert(key, value_of(key))?.is_ok());
                    tally.answer(table.remove(key)?);
                }
            }
        }
        Ok(tally)
    }

    fn run_batches(&self, call: Call, keys: &[u64], size: usize) -> Result<Tally> {
        let table = &self.0;
        let mut tally = Tally::default();
        let mut pairs = Vec::with_capacity(size);
        let (mut answers, mut outcomes) = (vec![None; size], vec![Ok(()); size]);
        for chunk in keys.chunks(size) {
            let (answers, outcomes) = (&mut answers[..chunk.len()], &mut outcomes[..chunk.len()]);
            if !matches!(call, Call::Get | Call::GetMiss | Call::Remove) {
                pairs.clear();
                pairs.extend(chunk.iter().map(|&key| (key, value_of(key))));
            }
            match call {
                Call::Get | Call::GetMiss => table.get_batch(chunk, answers)?,
                Call::TryInsert | Call::InsDel => table.try_insert_batch(&pairs, outcomes)?,
                Call::Insert => table.insert_batch(&pairs, answers)?,
                Call::Put => table.put_batch(&pairs)?,
                Call::Update => table.update_batch(&pairs, answers)?,
                Call::Remove => table.remove_batch(chunk, answers)?,
            }
            if matches!(call, Call::InsDel) {
                table.remove_batch(chunk, answers)?;
            }
            match call {
                Call::Get | Call::GetMiss | Call::Update | Call::Remove => {
                    answers.iter().for_each(|answer| tally.answer(*answer))
                }
                Call::TryInsert => {
                    outcomes.iter().for_each(|outcome| tally.insert(outcome.is_ok()))
                }
                Call::Insert => {
                    answers.iter().for_each(|previous| tally.insert(previous.is_none()))
                }
                Call::Put => tally.hits += chunk.len() as u64,
                Call::InsDel => {
                    outcomes.iter().for_each(|outcome| tally.insert(outcome.is_ok()));
                    answers.iter().for_each(|answer| tally.answer(*answer));
                }
            }
        }
        Ok(tally)
    }
}

impl Tally {
    #[inline]
    fn insert(&mut self, new: bool) {
        self.hits += u64::from(new);
    }

    #[inline]
    fn answer(&mut self, value: Option<u64>) {
        if let Some(value) = value {
            self.hits += 1;
            self.sum = self.sum.wrapping_add(value);
        }
    }
}
