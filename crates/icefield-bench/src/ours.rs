//! Icefield's own tables under measurement: the loops around their calls.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use icefield::{DlhtLocal, OnFailure, Op, Result, Stats, Table, TryInsert};

use crate::args::Batch;
use crate::keys::{Tally, value_of};
use crate::stats::Histogram;
use crate::table::{BenchTable, Call, Mixed, updates};

/// The measured calls. Every [`Table`] has them, and so do single-threaded tables, which do not implement
/// [`Table`].
pub(crate) trait Calls {
    fn get(&self, key: u64) -> Result<Option<u64>>;
    fn try_insert(&self, key: u64, value: u64) -> Result<TryInsert<u64>>;
    fn insert(&self, key: u64, value: u64) -> Result<Option<u64>>;
    fn put(&self, key: u64, value: u64) -> Result<()>;
    fn update(&self, key: u64, value: u64) -> Result<Option<u64>>;
    fn remove(&self, key: u64) -> Result<Option<u64>>;
    fn get_batch(&self, keys: &[u64], found: &mut [Option<u64>]) -> Result<()>;
    fn insert_batch(&self, pairs: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()>;
    fn put_batch(&self, pairs: &[(u64, u64)]) -> Result<()>;
    fn update_batch(&self, pairs: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()>;
    fn try_insert_batch(&self, pairs: &[(u64, u64)], outcomes: &mut [TryInsert<u64>])
    -> Result<()>;
    fn remove_batch(&self, keys: &[u64], removed: &mut [Option<u64>]) -> Result<()>;
    fn execute(&self, ops: &mut [Op<'_, u64, u64>]) -> Result<()>;
    fn stats(&self) -> Stats;
}

impl<T: Table<Key = u64, Value = u64>> Calls for T {
    #[inline(always)]
    fn get(&self, key: u64) -> Result<Option<u64>> {
        Table::get(self, key)
    }
    #[inline(always)]
    fn try_insert(&self, key: u64, value: u64) -> Result<TryInsert<u64>> {
        Table::try_insert(self, key, value)
    }
    #[inline(always)]
    fn insert(&self, key: u64, value: u64) -> Result<Option<u64>> {
        Table::insert(self, key, value)
    }
    #[inline(always)]
    fn put(&self, key: u64, value: u64) -> Result<()> {
        Table::put(self, key, value)
    }
    #[inline(always)]
    fn update(&self, key: u64, value: u64) -> Result<Option<u64>> {
        Table::update(self, key, value)
    }
    #[inline(always)]
    fn remove(&self, key: u64) -> Result<Option<u64>> {
        Table::remove(self, key)
    }
    #[inline(always)]
    fn get_batch(&self, keys: &[u64], found: &mut [Option<u64>]) -> Result<()> {
        Table::get_batch(self, keys, found)
    }
    #[inline(always)]
    fn insert_batch(&self, pairs: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()> {
        Table::insert_batch(self, pairs, previous)
    }
    #[inline(always)]
    fn put_batch(&self, pairs: &[(u64, u64)]) -> Result<()> {
        Table::put_batch(self, pairs)
    }
    #[inline(always)]
    fn update_batch(&self, pairs: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()> {
        Table::update_batch(self, pairs, previous)
    }
    #[inline(always)]
    fn try_insert_batch(
        &self,
        pairs: &[(u64, u64)],
        outcomes: &mut [TryInsert<u64>],
    ) -> Result<()> {
        Table::try_insert_batch(self, pairs, outcomes)
    }
    #[inline(always)]
    fn remove_batch(&self, keys: &[u64], removed: &mut [Option<u64>]) -> Result<()> {
        Table::remove_batch(self, keys, removed)
    }
    #[inline(always)]
    fn execute(&self, ops: &mut [Op<'_, u64, u64>]) -> Result<()> {
        Table::execute(self, ops, OnFailure::Continue).map(drop)
    }
    fn stats(&self) -> Stats {
        Table::stats(self)
    }
}

/// The single-threaded DLHT.
pub(crate) struct Single(pub DlhtLocal<u64, u64>);

impl Calls for Single {
    #[inline(always)]
    fn get(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.0.get(key))
    }
    #[inline(always)]
    fn try_insert(&self, key: u64, value: u64) -> Result<TryInsert<u64>> {
        Ok(self.0.try_insert(key, value))
    }
    #[inline(always)]
    fn insert(&self, key: u64, value: u64) -> Result<Option<u64>> {
        Ok(self.0.insert(key, value))
    }
    #[inline(always)]
    fn put(&self, key: u64, value: u64) -> Result<()> {
        self.0.put(key, value);
        Ok(())
    }
    #[inline(always)]
    fn update(&self, key: u64, value: u64) -> Result<Option<u64>> {
        Ok(self.0.update(key, value))
    }
    #[inline(always)]
    fn remove(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.0.remove(key))
    }
    #[inline(always)]
    fn get_batch(&self, keys: &[u64], found: &mut [Option<u64>]) -> Result<()> {
        self.0.get_batch(keys, found);
        Ok(())
    }
    #[inline(always)]
    fn insert_batch(&self, pairs: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()> {
        self.0.insert_batch(pairs, previous);
        Ok(())
    }
    #[inline(always)]
    fn put_batch(&self, pairs: &[(u64, u64)]) -> Result<()> {
        self.0.put_batch(pairs);
        Ok(())
    }
    #[inline(always)]
    fn update_batch(&self, pairs: &[(u64, u64)], previous: &mut [Option<u64>]) -> Result<()> {
        self.0.update_batch(pairs, previous);
        Ok(())
    }
    #[inline(always)]
    fn try_insert_batch(
        &self,
        pairs: &[(u64, u64)],
        outcomes: &mut [TryInsert<u64>],
    ) -> Result<()> {
        self.0.try_insert_batch(pairs, outcomes);
        Ok(())
    }
    #[inline(always)]
    fn remove_batch(&self, keys: &[u64], removed: &mut [Option<u64>]) -> Result<()> {
        self.0.remove_batch(keys, removed);
        Ok(())
    }
    #[inline(always)]
    fn execute(&self, ops: &mut [Op<'_, u64, u64>]) -> Result<()> {
        self.0.execute(ops, OnFailure::Continue);
        Ok(())
    }
    fn stats(&self) -> Stats {
        self.0.stats()
    }
}

pub(crate) struct Ours<T>(pub T);

impl<T: Calls + Send + Sync> BenchTable for Ours<T> {
    fn run(&self, call: Call, keys: &[u64], batch: Batch) -> Result<Tally> {
        self.make(call, keys, batch)
    }

    fn run_mixed(&self, ops: &[Mixed], batch: Batch) -> Result<Tally> {
        self.make_mixed(ops, batch)
    }

    fn run_timed(&self, call: Call, keys: &[u64], times: &mut Histogram) -> Result<Tally> {
        self.make_timed(call, keys, times)
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }
}

/// A single-threaded table, behind a lock that is taken once per array of keys.
pub(crate) struct OneThread<T>(Mutex<Ours<T>>);

impl<T> OneThread<T> {
    pub fn new(table: T) -> Self {
        Self(Mutex::new(Ours(table)))
    }

    fn locked(&self) -> MutexGuard<'_, Ours<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Calls + Send> BenchTable for OneThread<T> {
    fn run(&self, call: Call, keys: &[u64], batch: Batch) -> Result<Tally> {
        self.locked().make(call, keys, batch)
    }

    fn run_mixed(&self, ops: &[Mixed], batch: Batch) -> Result<Tally> {
        self.locked().make_mixed(ops, batch)
    }

    fn run_timed(&self, call: Call, keys: &[u64], times: &mut Histogram) -> Result<Tally> {
        self.locked().make_timed(call, keys, times)
    }

    fn stats(&self) -> Stats {
        self.locked().0.stats()
    }
}

impl<T: Calls> Ours<T> {
    fn make(&self, call: Call, keys: &[u64], batch: Batch) -> Result<Tally> {
        match batch {
            Batch::None => self.run_single(call, keys),
            batch => self.run_batches(call, keys, batch.size()),
        }
    }

    fn make_mixed(&self, ops: &[Mixed], batch: Batch) -> Result<Tally> {
        let mut tally = Tally::default();
        if batch == Batch::None {
            for op in ops {
                tally.add(self.run_single(op.call, std::slice::from_ref(&op.key))?);
            }
            return Ok(tally);
        }
        let mut calls: Vec<Op<'_, u64, u64>> = Vec::with_capacity(batch.size());
        for chunk in ops.chunks(batch.size()) {
            calls.clear();
            for op in chunk {
                if op.call == Call::InsDel {
                    calls.push(Op::try_insert(op.key, value_of(op.key)));
                }
                calls.push(match op.call {
                    Call::Get | Call::GetMiss => Op::get(op.key),
                    Call::PutHeavy if !updates(op.key) => Op::get(op.key),
                    Call::PutHeavy | Call::Update => Op::update(op.key, value_of(op.key)),
                    Call::TryInsert => Op::try_insert(op.key, value_of(op.key)),
                    Call::Insert => Op::insert(op.key, value_of(op.key)),
                    Call::Put => Op::put(op.key, value_of(op.key)),
                    Call::Remove | Call::InsDel => Op::remove(op.key),
                });
            }
            self.0.execute(&mut calls)?;
            calls.iter().for_each(|call| tally.take(call));
        }
        Ok(tally)
    }

    fn make_timed(&self, call: Call, keys: &[u64], times: &mut Histogram) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut last = Instant::now();
        for key in keys {
            tally.add(self.run_single(call, std::slice::from_ref(key))?);
            let now = Instant::now();
            times.saturating_record((now - last).as_nanos() as u64);
            last = now;
        }
        Ok(tally)
    }

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
            Call::PutHeavy => {
                for &key in keys {
                    tally.answer(match updates(key) {
                        true => table.update(key, value_of(key))?,
                        false => table.get(key)?,
                    });
                }
            }
        }
        Ok(tally)
    }

    fn run_batches(&self, call: Call, keys: &[u64], size: usize) -> Result<Tally> {
        let table = &self.0;
        let mut tally = Tally::default();
        if call == Call::PutHeavy {
            return self.put_heavy(keys, size);
        }
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
                Call::PutHeavy => {}
            }
            if matches!(call, Call::InsDel) {
                table.remove_batch(chunk, answers)?;
            }
            match call {
                Call::Get | Call::GetMiss | Call::Update | Call::Remove | Call::PutHeavy => {
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

    /// [`Call::PutHeavy`] as peers run it: the reads of each chunk, then its updates. The split is branch-free,
    /// because the kind of each operation is unpredictable. `mixed` and the transactions measure mixed batches.
    fn put_heavy(&self, keys: &[u64], size: usize) -> Result<Tally> {
        let mut tally = Tally::default();
        let (mut asked, mut pairs) = (vec![0; size], vec![(0, 0); size]);
        let mut answers = vec![None; size];
        for chunk in keys.chunks(size) {
            let (mut reads, mut writes) = (0, 0);
            for &key in chunk {
                asked[reads] = key;
                pairs[writes] = (key, value_of(key));
                writes += usize::from(updates(key));
                reads += usize::from(!updates(key));
            }
            let (read, written) = answers[..reads + writes].split_at_mut(reads);
            self.0.get_batch(&asked[..reads], read)?;
            self.0.update_batch(&pairs[..writes], written)?;
            answers[..chunk.len()].iter().for_each(|answer| tally.answer(*answer));
        }
        Ok(tally)
    }
}

impl Tally {
    /// Counts the answer of one operation of a mixed batch.
    #[inline]
    fn take(&mut self, op: &Op<'_, u64, u64>) {
        match op {
            Op::TryInsert(.., outcome) => self.insert(outcome.is_ok()),
            Op::Shadow(.., outcome) => self.insert(outcome.is_ok()),
            Op::Insert(.., previous) => self.insert(previous.is_none()),
            Op::Put(..) => self.insert(true),
            Op::Get(_, answer) | Op::Update(.., answer) | Op::Remove(_, answer) => {
                self.answer(*answer);
            }
        }
    }

    #[inline]
    pub(crate) fn insert(&mut self, new: bool) {
        self.hits += u64::from(new);
    }

    #[inline]
    pub(crate) fn answer(&mut self, value: Option<u64>) {
        if let Some(value) = value {
            self.hits += 1;
            self.sum = self.sum.wrapping_add(value);
        }
    }
}
