//! The loops around a table's calls. An [`Adapter`] makes the calls of one table or peer; the loops are compiled for
//! each adapter, so nothing is dispatched per operation.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use icefield::{DlhtLocal, JoinIndex, Key, OnFailure, Op, Result, Stats, Table, TryInsert};

use crate::prelude::*;
use crate::stats::Histogram;
use crate::table::{Timed, updates};

/// Buffers that a call fills. Later calls of the same run reuse them.
#[derive(Default)]
pub(crate) struct Scratch<K: Key> {
    keys: Vec<K>,
    pairs: Vec<(K, u64)>,
    calls: Vec<Op<'static, K, u64>>,
    outcomes: Vec<TryInsert<u64>>,
    pub answers: Vec<Option<u64>>,
    pub flags: Vec<bool>,
    pub words: Vec<u64>,
}

/// The interface between the loops and a table. Each call adds its answers to the tally `t`.
pub(crate) trait Adapter {
    /// The type of the keys in the buffers of [`Scratch`].
    type Key: Key + Default;

    /// Makes `call`, which is one of [`Call::PLAIN`], for a key.
    fn one(&self, call: Call, key: u64, s: &mut Scratch<Self::Key>, t: &mut Tally) -> Result<()>;

    /// Makes `call`, which is one of [`Call::PLAIN`], for a batch of keys.
    fn many(
        &self,
        call: Call,
        keys: &[u64],
        s: &mut Scratch<Self::Key>,
        t: &mut Tally,
    ) -> Result<()>;

    /// Makes a batch of calls of several kinds in order. By default, the calls are made one by one.
    fn mixed(&self, ops: &[Mixed], s: &mut Scratch<Self::Key>, t: &mut Tally) -> Result<()> {
        ops.iter().try_for_each(|op| self.single(op.call, op.key, s, t))
    }

    /// Makes [`Call::InsDel`] for a key.
    #[inline(always)]
    fn insdel(&self, key: u64, s: &mut Scratch<Self::Key>, t: &mut Tally) -> Result<()> {
        self.one(Call::TryInsert, key, s, t)?;
        self.one(Call::Remove, key, s, t)
    }

    /// Makes [`Call::InsDel`] for a batch of keys: inserts all keys, then removes all of them.
    fn insdel_many(&self, keys: &[u64], s: &mut Scratch<Self::Key>, t: &mut Tally) -> Result<()> {
        self.many(Call::TryInsert, keys, s, t)?;
        self.many(Call::Remove, keys, s, t)
    }

    /// Returns the number of keys to pass in one call.
    fn chunk(&self, batch: Batch) -> usize {
        batch.size()
    }

    /// Returns the error of an earlier call whose return type could not report it.
    fn failure(&self) -> Result<()> {
        Ok(())
    }

    fn answers(&self) -> Answers {
        Answers::Values
    }

    fn thread(&self, _index: usize, _begins: bool) {}

    fn stats(&self) -> Stats;

    fn index(&self) -> Option<&JoinIndex<u64>> {
        None
    }

    /// Makes any call for a key.
    #[inline(always)]
    fn single(
        &self,
        call: Call,
        key: u64,
        s: &mut Scratch<Self::Key>,
        t: &mut Tally,
    ) -> Result<()> {
        match call {
            Call::InsDel => self.insdel(key, s, t),
            call => self.one(plain(call, key), key, s, t),
        }
    }

    fn run(&self, call: Call, keys: &[u64], batch: Batch) -> Result<Tally> {
        let (mut s, mut t) = (Scratch::default(), Tally::default());
        /// Expands to one loop for each call, so that the call is a constant in its loop.
        macro_rules! each {
            ($($one:ident)*) => {
                match call {
                    $(Call::$one => {
                        keys.iter().try_for_each(|&key| self.single(Call::$one, key, &mut s, &mut t))?;
                    })*
                }
            };
        }
        if batch == Batch::None {
            each!(Get GetMiss TryInsert Insert Put Update Remove InsDel PutHeavy);
        } else if call == Call::PutHeavy {
            // Each batch of keys has those to read before those to update, so it becomes two calls. The experiment
            // `mixed` and the transaction benchmarks measure batches that mix the two kinds.
            for keys in keys.chunk_by(|one, next| updates(*one) == updates(*next)) {
                let call = if updates(keys[0]) { Call::Update } else { Call::Get };
                self.many(call, keys, &mut s, &mut t)?;
            }
        } else {
            for keys in keys.chunks(self.chunk(batch)) {
                match call {
                    Call::InsDel => self.insdel_many(keys, &mut s, &mut t)?,
                    Call::GetMiss => self.many(Call::Get, keys, &mut s, &mut t)?,
                    call => self.many(call, keys, &mut s, &mut t)?,
                }
            }
        }
        self.failure().map(|()| t)
    }

    fn run_mixed(&self, ops: &[Mixed], batch: Batch) -> Result<Tally> {
        let (mut s, mut t) = (Scratch::default(), Tally::default());
        for ops in ops.chunks(batch.size()) {
            match ops {
                [op] => self.single(op.call, op.key, &mut s, &mut t)?,
                ops => self.mixed(ops, &mut s, &mut t)?,
            }
        }
        self.failure().map(|()| t)
    }

    fn run_timed(&self, run: Timed<'_>, times: &mut Histogram) -> Result<Tally> {
        let (mut s, mut t) = (Scratch::default(), Tally::default());
        let mut pace = run.pace;
        let mut last = Instant::now();
        let mut due = last;
        for &key in run.keys {
            for &call in run.calls {
                if let Some(pace) = &pace {
                    due += pace.every;
                    while last < due {
                        std::hint::spin_loop();
                        last = Instant::now();
                    }
                }
                self.single(call, key, &mut s, &mut t)?;
                let now = Instant::now();
                times.saturating_record((now - last).as_nanos() as u64);
                if let Some(pace) = &mut pace {
                    pace.since_due.saturating_record((now - due).as_nanos() as u64);
                }
                last = now;
            }
        }
        self.failure().map(|()| t)
    }
}

/// Returns the plain call that `call` consists of for this key.
#[inline(always)]
fn plain(call: Call, key: u64) -> Call {
    match call {
        Call::GetMiss => Call::Get,
        Call::PutHeavy if updates(key) => Call::Update,
        Call::PutHeavy => Call::Get,
        call => call,
    }
}

/// Calls `each` for every plain call that the operation `op` consists of.
#[inline(always)]
pub(crate) fn expand(op: Mixed, mut each: impl FnMut(Call, u64)) {
    if op.call == Call::InsDel {
        each(Call::TryInsert, op.key);
        each(Call::Remove, op.key);
    } else {
        each(plain(op.call, op.key), op.key);
    }
}

/// A table that any number of threads may use at once.
pub(crate) struct Shared<A>(pub A);

/// Implements [`BenchTable`] by the adapter `$inner` of `$this`.
macro_rules! bench_table {
    ($table:ty, $adapter:ident: $($bound:path)*, $this:ident => $inner:expr, $index:expr) => {
        impl<$adapter: Adapter $(+ $bound)*> BenchTable for $table {
            fn run(&self, call: Call, keys: &[u64], batch: Batch) -> Result<Tally> {
                let $this = self;
                $inner.run(call, keys, batch)
            }
            fn run_mixed(&self, ops: &[Mixed], batch: Batch) -> Result<Tally> {
                let $this = self;
                $inner.run_mixed(ops, batch)
            }
            fn run_timed(&self, run: Timed<'_>, times: &mut Histogram) -> Result<Tally> {
                let $this = self;
                $inner.run_timed(run, times)
            }
            fn answers(&self) -> Answers {
                let $this = self;
                $inner.answers()
            }
            fn thread(&self, index: usize, begins: bool) {
                let $this = self;
                $inner.thread(index, begins);
            }
            fn stats(&self) -> Stats {
                let $this = self;
                $inner.stats()
            }
            fn index(&self) -> Option<&JoinIndex<u64>> {
                let $this = self;
                $index
            }
        }
    };
}

bench_table!(Shared<A>, A: Send Sync, this => this.0, this.0.index());
// A single-threaded table behind a lock, which each call of `BenchTable` takes once for its whole array of keys.
bench_table!(Mutex<A>, A: Send, this => this.lock().unwrap_or_else(PoisonError::into_inner), {
    let _ = this;
    None
});

/// A table of ours whose keys are words.
pub(crate) struct Words<T>(pub T);
/// A table of ours whose keys are longer than a word; each key repeats one word.
pub(crate) struct Wide<T>(pub T);
/// The single-threaded DLHT, which does not implement [`Table`].
pub(crate) struct Single(pub DlhtLocal<u64, u64>);

#[inline(always)]
fn wide(key: u64) -> u128 {
    u128::from(key) << 64 | u128::from(key)
}

#[inline(always)]
fn word(key: u64) -> u64 {
    key
}

/// Returns the keys derived from words, in a buffer.
fn wides<'a>(keys: &[u64], buffer: &'a mut Vec<u128>) -> &'a [u128] {
    buffer.clear();
    buffer.extend(keys.iter().copied().map(wide));
    buffer
}

fn words<'a>(keys: &'a [u64], _buffer: &mut Vec<u64>) -> &'a [u64] {
    keys
}

/// Converts the outcome of a call that cannot fail to a `Result`.
#[inline(always)]
fn infallible<T>(outcome: T) -> Result<T> {
    Ok(outcome)
}

#[inline(always)]
fn fallible<T>(outcome: Result<T>) -> Result<T> {
    outcome
}

/// Implements [`Adapter`] for a table of ours with keys `$key`. `$of` converts a word to a key, `$all` converts an
/// array of words, and `$done` turns the outcome of a call into a `Result`.
macro_rules! adapter {
    ([$($generic:tt)*] $table:ty, $key:ty, $of:ident, $all:ident, $done:ident) => {
        impl<$($generic)*> Adapter for $table {
            type Key = $key;

            #[inline(always)]
            fn one(&self, call: Call, key: u64, _: &mut Scratch<$key>, t: &mut Tally) -> Result<()> {
                let (table, key, value) = (&self.0, $of(key), value_of(key));
                match call {
                    Call::Get => t.answer($done(table.get(key))?),
                    Call::TryInsert => t.insert($done(table.try_insert(key, value))?.is_ok()),
                    Call::Insert => t.insert($done(table.insert(key, value))?.is_none()),
                    Call::Update => t.answer($done(table.update(key, value))?),
                    Call::Remove => t.answer($done(table.remove(key))?),
                    _ => {
                        $done(table.put(key, value))?;
                        t.insert(true);
                    }
                }
                Ok(())
            }

            fn many(&self, call: Call, keys: &[u64], s: &mut Scratch<$key>, t: &mut Tally) -> Result<()> {
                let (table, answers, pairs) = (&self.0, &mut s.answers, &mut s.pairs);
                answers.resize(keys.len(), None);
                if !matches!(call, Call::Get | Call::Remove) {
                    pairs.clear();
                    pairs.extend(keys.iter().map(|&key| ($of(key), value_of(key))));
                }
                match call {
                    Call::Get => $done(table.get_batch($all(keys, &mut s.keys), answers))?,
                    Call::Remove => $done(table.remove_batch($all(keys, &mut s.keys), answers))?,
                    Call::Insert => $done(table.insert_batch(pairs, answers))?,
                    Call::Update => $done(table.update_batch(pairs, answers))?,
                    Call::TryInsert => {
                        s.outcomes.resize(keys.len(), Ok(()));
                        $done(table.try_insert_batch(pairs, &mut s.outcomes))?;
                        s.outcomes.iter().for_each(|outcome| t.insert(outcome.is_ok()));
                        return Ok(());
                    }
                    _ => {
                        $done(table.put_batch(pairs))?;
                        t.hits += keys.len() as u64;
                        return Ok(());
                    }
                }
                match call {
                    Call::Insert => answers.iter().for_each(|before| t.insert(before.is_none())),
                    _ => answers.iter().for_each(|answer| t.answer(*answer)),
                }
                Ok(())
            }

            fn mixed(&self, ops: &[Mixed], s: &mut Scratch<$key>, t: &mut Tally) -> Result<()> {
                let calls = &mut s.calls;
                calls.clear();
                ops.iter().for_each(|op| push(calls, *op, $of(op.key)));
                $done(self.0.execute(calls, OnFailure::Continue))?;
                calls.iter().for_each(|op| t.take(op));
                Ok(())
            }

            fn stats(&self) -> Stats {
                self.0.stats()
            }
        }
    };
}

adapter!([T: Table<Key = u64, Value = u64>] Words<T>, u64, word, words, fallible);
adapter!([T: Table<Key = u128, Value = u64>] Wide<T>, u128, wide, wides, fallible);
adapter!([] Single, u64, word, words, infallible);

/// Appends the operations of a call. The function matches on the call only once, because the processor cannot predict
/// this branch in a mixed batch.
#[inline(always)]
fn push<K>(calls: &mut Vec<Op<'static, K, u64>>, Mixed { call, key: word }: Mixed, key: K)
where
    K: Key + Copy + for<'a> icefield::Data<Arg<'a> = K>,
{
    let value = value_of(word);
    if call == Call::InsDel {
        calls.push(Op::try_insert(key, value));
    }
    calls.push(match call {
        Call::Get | Call::GetMiss => Op::get(key),
        Call::PutHeavy if !updates(word) => Op::get(key),
        Call::PutHeavy | Call::Update => Op::update(key, value),
        Call::TryInsert => Op::try_insert(key, value),
        Call::Insert => Op::insert(key, value),
        Call::Put => Op::put(key, value),
        Call::Remove | Call::InsDel => Op::remove(key),
    });
}

impl Tally {
    /// Counts the answer of one operation of a mixed batch.
    #[inline]
    fn take<K: Key>(&mut self, op: &Op<'_, K, u64>) {
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
}
