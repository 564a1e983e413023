//! Threads run small random histories on a few hot keys of a tiny table, which splits and moves records under them;
//! each history is judged for linearizability.
//!
//! Scans and iteration are weakly consistent and left out. A batch counts as its operations, all within the batch's
//! interval and in its order; `clear` counts as a removal of each key.

mod plan;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use icefield::pm::sim::{Model, Sim, SimOptions};
use icefield::{Error, Table};

use crate::baton::{self, Baton};
use crate::call::{Action, Call, Reply, ask, ask_batch};
use crate::failure::{Failure, guarded};
use crate::history::{Event, Violation, check, overlapping, with_replies_swapped};
use crate::pool::{Pool, lock};
use crate::rng::Rng;
use crate::subject::{Sample, Subject};
use plan::{Move, Plan};

/// The scenario's name.
pub const NAME: &str = "linear";
/// Histories on one table: enough for a tiny one to grow through several sizes.
const HISTORIES_PER_TABLE: u64 = 32;
/// The share of operations on hot keys that must have met another one there for the histories to mean anything.
pub const MIN_OVERLAP: f64 = 0.9;
/// Histories that threads run in one go: one after the other, with a line between.
const HISTORIES_IN_A_ROW: u64 = 8;
/// Threads that do not take turns give up the processor once in so many steps.
const YIELD_ONE_IN: u32 = 16;
/// One table in so many leaves the choice of who runs to the system, so that threads really run at the same time.
const FREE_ONE_IN: u64 = 32;
/// One table in so many looks for stores that bypass the medium; it costs a lock for each store.
const RECORD_ONE_IN: u64 = 8;

/// What concurrent histories did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Histories run and judged.
    pub histories: u64,
    /// Operations in them.
    pub operations: u64,
    /// Operations of the threads on hot keys.
    pub hot: u64,
    /// Those of them that overlapped another thread's operation on the same key.
    pub overlapping: u64,
    /// Tables that grew while histories ran on them.
    pub grown_tables: u64,
    /// Times that threads could not take turns as the seed says, because one held a lock of the system.
    pub stalls: u64,
    /// Histories judged again with two answers exchanged.
    pub swapped: u64,
    /// How many of these were rejected; an exchange may be harmless, as between two equal-looking overlapping calls.
    pub swapped_rejected: u64,
}

impl Counts {
    /// Adds what other histories did.
    pub fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.operations += other.operations;
        self.hot += other.hot;
        self.overlapping += other.overlapping;
        self.grown_tables += other.grown_tables;
        self.stalls += other.stalls;
        self.swapped += other.swapped;
        self.swapped_rejected += other.swapped_rejected;
    }

    /// The share of operations on hot keys that overlapped another one there.
    #[must_use]
    pub fn overlap(&self) -> f64 {
        if self.hot == 0 { 0.0 } else { self.overlapping as f64 / self.hot as f64 }
    }

    /// Whether the histories were worth judging.
    ///
    /// # Errors
    /// Too little overlap, no growth, or a judge that rejects nothing.
    pub fn meaningful(&self, seed: u64) -> Result<(), Failure> {
        let fail = |what: String| Err(Failure::new(NAME, seed, what));
        if self.histories == 0 {
            return fail("no history was run".to_owned());
        }
        if self.overlap() < MIN_OVERLAP {
            return fail(format!(
                "only {:.3} of the operations overlapped another one on their key",
                self.overlap()
            ));
        }
        if self.swapped > 50 && self.swapped_rejected == 0 {
            return fail("the judge rejected no exchanged answers".to_owned());
        }
        if self.histories >= HISTORIES_PER_TABLE && self.grown_tables == 0 {
            return fail("no table grew".to_owned());
        }
        Ok(())
    }
}

/// Runs about `histories` histories on the simulated medium.
///
/// # Errors
/// The first history that no order explains.
pub fn scenario<T: Subject>(
    seed: u64,
    histories: u64,
    model: Model,
    pool: &Pool,
) -> Result<Counts, Failure> {
    let memory = icefield::pm::sim::Pool::default();
    let make = |seed: u64| {
        let sim = Sim::new(SimOptions {
            seed,
            model,
            recording: seed.is_multiple_of(RECORD_ONE_IN),
            give_way: baton::tick,
            pool: memory.clone(),
            ..SimOptions::default()
        });
        let table = T::create_tiny(sim.clone(), seed)?;
        Ok(Ground { table, sim: Some(sim), turns: !seed.is_multiple_of(FREE_ONE_IN) })
    };
    histories_on(seed, histories, pool, make)
}

/// What histories run on.
#[derive(Debug)]
pub struct Ground<T> {
    /// The table.
    pub table: T,
    /// Its medium, if it is the simulated one.
    pub sim: Option<Sim>,
    /// Whether threads take turns as the seed says, instead of running at the same time.
    pub turns: bool,
}

/// As [`scenario`], on tables of `make`, which is told a seed.
///
/// # Errors
/// The first history that no order explains.
pub fn histories_on<T>(
    seed: u64,
    histories: u64,
    pool: &Pool,
    make: impl Fn(u64) -> Result<Ground<T>, Error>,
) -> Result<Counts, Failure>
where
    T: Table<Key: Sample, Value: Sample> + 'static,
{
    let mut counts = Counts::default();
    let mut table_seed = seed;
    while counts.histories < histories {
        let run = || one_table(table_seed, histories - counts.histories, pool, &make);
        let done = guarded(NAME, table_seed, run)?;
        counts.add(done);
        table_seed = table_seed.wrapping_add(1);
    }
    Ok(counts)
}

fn one_table<T>(
    seed: u64,
    histories: u64,
    pool: &Pool,
    make: &impl Fn(u64) -> Result<Ground<T>, Error>,
) -> Result<Counts, Failure>
where
    T: Table<Key: Sample, Value: Sample> + 'static,
{
    let mut rng = Rng::fork(seed, 2);
    let mut counts = Counts::default();
    let Ground { table, sim, turns } =
        make(seed).map_err(|error| Failure::new(NAME, seed, format!("create: {error}")))?;
    let table = Arc::new(table);
    let capacity = table.capacity();
    let all = histories.min(HISTORIES_PER_TABLE);
    for first in (0..all).step_by(HISTORIES_IN_A_ROW as usize) {
        let row = first..all.min(first + HISTORIES_IN_A_ROW);
        let plans: Vec<Plan> =
            row.map(|history| Plan::new(&mut rng, history, pool.threads())).collect();
        let stage = Arc::new(Stage::new(&table, sim.as_ref(), plans));
        let baton = turns.then(|| Baton::new(rng.word(), pool.threads()));
        let recorded =
            record(&stage, baton.clone(), pool).map_err(|what| Failure::new(NAME, seed, what))?;
        counts.stalls += baton.map_or(0, |baton| baton.stalls());
        for ((history, plan), events) in (first..).zip(&stage.plans).zip(&recorded) {
            judge(events, plan, pool.threads(), &mut counts)
                .map_err(|violation| explain(seed, history, &violation))?;
        }
        exchange(&recorded[0], &mut rng, &mut counts);
    }
    counts.grown_tables += u64::from(table.capacity() > capacity);
    Ok(counts)
}

fn explain(seed: u64, history: u64, violation: &Violation) -> Failure {
    let what = format!(
        "history {history}: no order of the operations on key {} explains their answers",
        violation.key
    );
    Failure::new(NAME, seed, what).with_trace(violation.trace())
}

/// A row of histories while they are recorded.
struct Stage<T> {
    table: Arc<T>,
    sim: Option<Sim>,
    plans: Vec<Plan>,
    clock: AtomicU64,
    /// How often threads have come to the line between two histories.
    arrivals: AtomicUsize,
    /// A thread panicked: nobody shall wait for it.
    broken: AtomicBool,
    /// The events of each history.
    events: Vec<Mutex<Vec<Event>>>,
    errors: Mutex<Vec<String>>,
}

/// Sets up, runs the threads, and reads every key at the end; everything is part of the histories.
fn record<T>(
    stage: &Arc<Stage<T>>,
    baton: Option<Arc<Baton>>,
    pool: &Pool,
) -> Result<Vec<Vec<Event>>, String>
where
    T: Table<Key: Sample, Value: Sample> + 'static,
{
    let outside = pool.threads();
    let ones = |calls: Vec<Call>| calls.into_iter().map(Move::One).collect::<Vec<_>>();
    for (history, plan) in stage.plans.iter().enumerate() {
        stage.perform(outside, history, &ones(plan.setup.clone()));
    }
    stage.give_way_one_in(if baton.is_some() { 1 } else { YIELD_ONE_IN });
    let shared = Arc::clone(stage);
    pool.run(Arc::new(move |thread| {
        let work = || shared.perform_all(thread, outside);
        match &baton {
            Some(baton) => baton.take_turns(thread, work),
            None => work(),
        }
    }))?;
    stage.give_way_one_in(0);
    for (history, plan) in stage.plans.iter().enumerate() {
        let reads = plan.keys().into_iter().map(|key| Call { key, action: Action::Get });
        stage.perform(outside, history, &ones(reads.collect()));
    }
    match std::mem::take(&mut *lock(&stage.errors)).into_iter().next() {
        Some(error) => Err(error),
        None => Ok(stage.events.iter().map(|events| std::mem::take(&mut *lock(events))).collect()),
    }
}

/// Tells the other threads when one of them panics.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

impl<T: Table<Key: Sample, Value: Sample>> Stage<T> {
    fn new(table: &Arc<T>, sim: Option<&Sim>, plans: Vec<Plan>) -> Self {
        Self {
            table: Arc::clone(table),
            sim: sim.cloned(),
            events: plans.iter().map(|_| Mutex::default()).collect(),
            plans,
            clock: AtomicU64::new(0),
            arrivals: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            errors: Mutex::default(),
        }
    }

    fn give_way_one_in(&self, steps: u32) {
        if let Some(sim) = &self.sim {
            sim.set_yield(steps);
        }
    }

    /// A thread's part of all histories.
    fn perform_all(&self, thread: usize, threads: usize) {
        let _alarm = Alarm(&self.broken);
        for (history, plan) in self.plans.iter().enumerate() {
            self.perform(thread, history, &plan.threads[thread]);
            self.arrivals.fetch_add(1, Ordering::AcqRel);
            while self.arrivals.load(Ordering::Acquire) < (history + 1) * threads {
                if self.broken.load(Ordering::Acquire) {
                    return;
                }
                baton::pass();
            }
        }
    }

    fn perform(&self, thread: usize, history: usize, moves: &[Move]) {
        let mut mine = Vec::with_capacity(moves.len());
        for step in moves {
            if let Some(sim) = &self.sim {
                sim.begin_op();
            }
            baton::begin();
            // SeqCst: the stamps are the real-time order that the judge goes by.
            let began = self.clock.fetch_add(1, Ordering::SeqCst);
            let answers = self.answers(step);
            let returned = self.clock.fetch_add(1, Ordering::SeqCst);
            let event = |(call, reply)| Event { thread, began, returned, call, reply };
            match answers {
                Ok(_) if matches!(step, Move::Clear) => self.cleared(event),
                Ok(answers) => mine.extend(answers.into_iter().map(event)),
                Err(what) => lock(&self.errors).push(format!("thread {thread}: {step:?}: {what}")),
            }
        }
        lock(&self.events[history]).extend(mine);
    }

    /// A `clear` removes every key, also those of the histories before and after.
    fn cleared(&self, event: impl Fn((Call, Reply)) -> Event) {
        for (plan, events) in self.plans.iter().zip(&self.events) {
            let removed = |key| event((Call { key, action: Action::Delete }, Reply::Done));
            lock(events).extend(plan.keys().into_iter().map(removed));
        }
    }

    fn answers(&self, step: &Move) -> Result<Vec<(Call, Reply)>, Error> {
        let table = &*self.table;
        Ok(match step {
            Move::One(call) => vec![(*call, ask(table, *call)?)],
            Move::Batch(kind, calls) => {
                calls.iter().copied().zip(ask_batch(table, *kind, calls)?).collect()
            }
            Move::Clear => {
                table.clear()?;
                Vec::new()
            }
        })
    }
}

fn judge(
    events: &[Event],
    plan: &Plan,
    threads: usize,
    counts: &mut Counts,
) -> Result<(), Violation> {
    let hot: Vec<Event> = events
        .iter()
        .filter(|event| event.thread < threads && plan.hot.contains(&event.call.key))
        .cloned()
        .collect();
    counts.histories += 1;
    counts.operations += events.len() as u64;
    counts.hot += hot.len() as u64;
    counts.overlapping += overlapping(&hot) as u64;
    check(events)
}

/// Judges the history again with the answers of two operations on one key exchanged.
fn exchange(events: &[Event], rng: &mut Rng, counts: &mut Counts) {
    let first = rng.index(events.len());
    let differs = |other: &Event| {
        other.call.key == events[first].call.key && other.reply != events[first].reply
    };
    if let Some(second) = events.iter().position(differs) {
        counts.swapped += 1;
        counts.swapped_rejected +=
            u64::from(check(&with_replies_swapped(events, first, second)).is_err());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Bug, Toy};

    fn ground(bug: Bug) -> Ground<Toy> {
        Ground { table: Toy::new(bug), sim: None, turns: false }
    }

    #[test]
    fn a_right_table_passes_and_exchanges_are_noticed() {
        let pool = Pool::new(3);
        let counts = histories_on(1, 300, &pool, |_| Ok(ground(Bug::None)))
            .unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(counts.histories, 300);
        assert!(counts.swapped_rejected > 3, "{counts:?}");
    }

    #[test]
    fn a_lost_update_is_found() {
        let pool = Pool::new(3);
        let result = histories_on(1, 5000, &pool, |_| Ok(ground(Bug::LostUpdate)));
        assert!(result.is_err_and(|failure| failure.what.contains("no order")));
    }
}
