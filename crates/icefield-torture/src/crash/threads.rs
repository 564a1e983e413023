//! Histories of several threads on few keys, with crashes in the middle. Each key must hold a value that some order
//! of the calls explains, and values that a call has returned must be present.

use std::sync::{Arc, Barrier, Mutex};

use icefield::storage::sim::{Sim, SimOptions};

use super::expect::Expect;
use super::history::{Bench, Counts};
use super::machine::Machine;
use super::plan::Plan;
use super::step::{Draw, Step};
use crate::call::{Action, Call, Reply, Rule};
use crate::failure::panic_text;
use crate::pool::lock;

/// A write, from its call to its return.
#[derive(Clone, Copy, Debug)]
struct Write {
    key: u64,
    value: Option<u64>,
    called: u64,
    /// The time by which the write had certainly taken effect: its return, or the return of a read that saw it.
    done: Option<u64>,
    /// True if the call returned without effect, or did not run.
    void: bool,
}

/// All writes called so far.
#[derive(Debug, Default)]
struct Ledger {
    clock: u64,
    writes: Vec<Write>,
    /// The time at which the last completed sync was called. `None` if writes are acknowledged only when they are
    /// durable.
    synced: Option<u64>,
}

impl Ledger {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Records the start of a call. Returns the index of its write, if it may write.
    fn called(&mut self, call: Call) -> Option<usize> {
        let called = self.tick();
        let value = match call.action {
            Action::Insert(n) | Action::Put(n) | Action::TryInsert(n) | Action::Update(n) => {
                Some(n)
            }
            Action::Compute(Rule::Put(n) | Rule::PutIfAbsent(n) | Rule::PutIfPresent(n)) => Some(n),
            Action::Remove | Action::Delete | Action::Compute(Rule::Remove | Rule::RemoveEven) => {
                None
            }
            Action::CompareExchange { new, .. } => Some(new),
            Action::Get
            | Action::GetWith
            | Action::GetAsync
            | Action::Contains
            | Action::Compute(Rule::Keep) => return None,
        };
        self.writes.push(Write { key: call.key, value, called, done: None, void: false });
        Some(self.writes.len() - 1)
    }

    /// Records the return of a call.
    fn returned(&mut self, call: Call, write: Option<usize>, reply: &Reply) {
        let now = self.tick();
        let (seen, effect) = match reply {
            Reply::Done => (None, true),
            Reply::Present(_) => (None, false),
            Reply::Value(value) => {
                (*value, value.is_some() || matches!(call.action, Action::Insert(_)))
            }
            Reply::TryInsert(outcome) => (outcome.err(), outcome.is_ok()),
            Reply::Exchanged(Ok(())) => (None, true),
            Reply::Exchanged(Err(present)) => (*present, false),
            Reply::Computed(computed) => {
                let effect = !matches!(computed, icefield::Computed::Kept(_));
                (computed.clone().before(), effect)
            }
        };
        if let Some(write) = write.map(|at| &mut self.writes[at]) {
            write.void = !effect;
            write.done.get_or_insert(now);
        }
        // Values are unique, so a returned value identifies its write.
        let told = |write: &&mut Write| write.key == call.key && write.value == seen;
        if seen.is_some()
            && let Some(write) = self.writes.iter_mut().find(told)
        {
            write.done.get_or_insert(now);
        }
    }

    /// Marks the write of a call that did not run, because its batch stopped at an earlier call.
    fn never_ran(&mut self, write: Option<usize>) {
        if let Some(at) = write {
            self.writes[at].void = true;
        }
    }

    /// Returns the values that a crash at this moment may leave for `key`.
    fn allowed(&self, key: u64) -> Vec<Option<u64>> {
        let start = Write { key, value: None, called: 0, done: Some(0), void: false };
        let writes = || self.writes.iter().filter(|write| write.key == key && !write.void);
        let is_durable = |write: &Write| {
            write.done.is_some_and(|done| self.synced.is_none_or(|synced| done < synced))
        };
        let overwritten =
            |done: u64| writes().any(|later| is_durable(later) && later.called > done);
        std::iter::once(&start)
            .chain(writes())
            .filter(|write| !write.done.is_some_and(overwritten))
            .map(|write| write.value)
            .collect()
    }
}

/// State that the threads share.
struct Stage<'a, M> {
    table: &'a M,
    sim: &'a Sim,
    ledger: &'a Mutex<Ledger>,
    bench: &'a Mutex<Bench>,
}

/// Returns the values that a crash at this moment may leave.
fn expectation(keys: &[u64], ledger: &Mutex<Ledger>) -> Expect {
    let ledger = lock(ledger);
    let mut expect = Expect::default();
    keys.iter().for_each(|&key| expect.push(ledger.allowed(key)));
    expect
}

/// Runs a history of `threads` threads.
///
/// # Errors
/// Returns the first violation.
pub(super) fn run<M: Machine>(
    plan: &Plan,
    seed: u64,
    threads: u64,
    counts: &mut Counts,
) -> Result<(), String> {
    let bench = Arc::new(Mutex::new(Bench::new(plan, seed)));
    let synced = plan.relaxed.then_some(0);
    let ledger = Arc::new(Mutex::new(Ledger { synced, ..Ledger::default() }));
    let detecting = !plan.relaxed;
    let sim = Sim::new(SimOptions { detecting, yield_one_in: 8, ..plan.sim(seed) });
    let table = M::create(sim.clone(), seed).map_err(|error| format!("create: {error}"))?;
    {
        let (bench, ledger, keys) = (bench.clone(), ledger.clone(), plan.keys.clone());
        sim.on_event(move |point| {
            let mut bench = lock(&bench);
            if bench.wants(point) {
                bench.expect = expectation(&keys, &ledger);
                bench.look::<M>(point);
            }
        });
    }
    let stage = Stage { table: &table, sim: &sim, ledger: &ledger, bench: &bench };
    // On a busy machine, the first thread could otherwise end before the last one begins.
    let start = Barrier::new(threads as usize);
    let run = |thread| {
        start.wait();
        stage.thread(plan, seed, thread)
    };
    let outcomes: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let run = &run;
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, _>| match handle.join() {
            Ok(outcome) => outcome,
            Err(payload) => Err(format!("panic: {}", panic_text(payload.as_ref()))),
        };
        handles.into_iter().map(join).collect()
    });
    outcomes.into_iter().collect::<Result<(), _>>()?;
    drop(table);
    sim.no_observer();
    let mut bench = lock(&bench);
    bench.expect = expectation(&plan.keys, &ledger);
    sim.crash_point(|point| bench.look::<M>(point));
    counts.operations += threads * plan.length as u64;
    counts.points += bench.counts.points;
    counts.states += bench.counts.states;
    bench.found.take().map_or(Ok(()), Err)
}

impl<M: Machine> Stage<'_, M> {
    fn thread(&self, plan: &Plan, seed: u64, thread: u64) -> Result<(), String> {
        let hot = &plan.keys[..plan.keys.len().min(6)];
        let mut draw = Draw::new(seed ^ (thread + 1) << 32, hot, M::SIMPLE);
        draw.fresh = (thread + 1) * 100_000;
        for at in 0..plan.length {
            let growing = at < plan.length / 2;
            let step = if plan.relaxed && draw.rng.one_in(8) {
                Step::Sync
            } else if !M::SIMPLE && draw.rng.one_in(10) {
                Step::Scan
            } else if !M::SIMPLE && draw.rng.one_in(6) {
                draw.batch(growing)
            } else {
                Step::One(draw.call(growing))
            };
            self.step(&step)?;
            if lock(self.bench).found.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), String> {
        let called = lock(self.ledger).tick();
        self.sim.begin_op();
        self.table.sync().map_err(|error| format!("sync: {error}"))?;
        let mut ledger = lock(self.ledger);
        ledger.synced = ledger.synced.max(Some(called));
        Ok(())
    }

    /// Makes a pass. Like the result of any call, the records that it returns must be durable from then on.
    fn scan(&self) -> Result<(), String> {
        self.sim.begin_op();
        let seen = self.table.records().map_err(|error| format!("scan: {error}"))?;
        self.is_durable(|| format!("a pass shows {seen:?}"))?;
        let mut ledger = lock(self.ledger);
        for &(key, value) in &seen {
            ledger.returned(Call { key, action: Action::Get }, None, &Reply::Value(Some(value)));
        }
        Ok(())
    }

    /// Checks that no crash can revert the values that the calling thread has received.
    fn is_durable(&self, told: impl FnOnce() -> String) -> Result<(), String> {
        match self.sim.op_returned().first() {
            None => Ok(()),
            Some(read) => Err(format!("{}, which depends on {read}", told())),
        }
    }

    fn step(&self, step: &Step) -> Result<(), String> {
        let calls = match step {
            Step::One(call) => std::slice::from_ref(call),
            Step::Batch(_, calls) => calls,
            Step::Sync => return self.sync(),
            Step::Scan => return self.scan(),
            _ => return Ok(()),
        };
        let writes: Vec<_> = {
            let mut ledger = lock(self.ledger);
            calls.iter().map(|&call| ledger.called(call)).collect()
        };
        self.table.help();
        self.sim.begin_op();
        let replies = match step {
            Step::Batch(kind, calls) => self.table.batch(*kind, calls),
            _ => calls.iter().map(|&call| self.table.ask(call)).collect(),
        };
        let replies = replies.map_err(|error| format!("{step:?}: {error}"))?;
        let durable = self.is_durable(|| format!("{step:?} returned {replies:?}"));
        let mut ledger = lock(self.ledger);
        for (at, (&call, write)) in calls.iter().zip(writes).enumerate() {
            match replies.get(at) {
                Some(reply) => ledger.returned(call, write, reply),
                None => ledger.never_ran(write),
            }
        }
        durable
    }
}
