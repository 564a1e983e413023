//! Threads run small random histories on a few hot keys of a tiny table that concurrently splits and moves records.
//! Each history is checked for linearizability.
//!
//! A batch counts as a sequence of its operations, in batch order. Each takes effect between the call and the return of
//! the batch. `clear` counts as a removal of each key. A pass over all records counts as a read of each key, because a
//! pass need not be a consistent snapshot. `len` is compared when no thread writes. If a table has shadow inserts,
//! about half of the histories include them ([`Held`]). On some tables, the simulator also looks for results that a
//! crash could revert.

mod actor;
mod held;
mod plan;
mod stage;

use std::sync::Arc;

use icefield::storage::sim::{Model, Sim, SimOptions};
use icefield::{Error, Table};
use serde::Serialize;

use crate::crash::fences_are_free;
use crate::failure::{Failure, guarded};
use crate::history::{Event, Violation, check, overlapping, with_answers_swapped};
use crate::operation::{Answer, Operation};
use crate::pass::{self, OwnPass, Pass, see};
use crate::pool::Pool;
use crate::rng::Rng;
use crate::scheduler::{self, Scheduler};
use crate::subject::{Sample, Subject};
pub use held::{End, Held, Hold};
use plan::Plan;
use stage::{Stage, record};

/// The name of the scenario.
pub const NAME: &str = "linear";
/// Number of histories on one table: enough for a tiny one to grow through several sizes.
const HISTORIES_PER_TABLE: u64 = 32;
/// Minimum share of operations on hot keys that overlap another operation on the same key. With less,
/// [`Counts::meaningful`] returns an error.
pub const MIN_OVERLAP: f64 = 0.9;
/// Number of histories in a row: the threads run them in succession, with a barrier after each.
const HISTORIES_IN_A_ROW: u64 = 8;
/// One table in this many leaves the scheduling to the operating system, so that threads really run in parallel.
const FREE_ONE_IN: u64 = 32;
/// One table in this many records its stores, to find stores that bypass the medium and results that are not durable.
/// This costs a lock for each store and load.
const RECORD_ONE_IN: u64 = 8;

/// Results of concurrent histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Histories run and checked.
    pub histories: u64,
    /// Operations in them.
    pub operations: u64,
    /// Operations of the threads on hot keys, in histories in which threads take turns. In other histories, the
    /// overlap depends on the operating system.
    pub hot: u64,
    /// Number of the operations in `hot` that overlapped another thread's operation on the same key.
    pub overlapping: u64,
    /// Tables that grew during their histories.
    pub grown_tables: u64,
    /// Number of times that threads deviated from the order of the seed, because one held an operating system lock.
    pub stalls: u64,
    /// Histories checked again with two answers exchanged.
    pub swapped: u64,
    /// Number of the histories in `swapped` that the checker rejected. An exchange can be harmless, for example between
    /// two overlapping calls of one kind.
    pub swapped_rejected: u64,
    /// Results of histories with shadow inserts.
    pub shadows: ShadowCounts,
}

/// Results of histories with shadow inserts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShadowCounts {
    /// Histories with shadow inserts.
    pub histories: u64,
    /// Successful shadow inserts.
    pub made: u64,
    /// Failed shadow inserts: the key was present or another shadow insert held it.
    pub not_made: u64,
    /// Shadow inserts that became records.
    pub committed: u64,
    /// Shadow inserts that were discarded.
    pub aborted: u64,
    /// Calls that were refused because of a shadow insert.
    pub refused: u64,
    /// Repeated checks in which an exchanged answer concerns a shadow insert.
    pub swapped: u64,
    /// Number of the exchanges in `swapped` after which the checker rejected the history.
    pub swapped_rejected: u64,
}

impl ShadowCounts {
    fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.made += other.made;
        self.not_made += other.not_made;
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.refused += other.refused;
        self.swapped += other.swapped;
        self.swapped_rejected += other.swapped_rejected;
    }

    fn count(&mut self, event: &Event) {
        match (event.asked, &event.answer) {
            (_, Answer::Refused) => self.refused += 1,
            (_, Answer::Shadow(Ok(()))) => self.made += 1,
            (_, Answer::Shadow(Err(_))) => self.not_made += 1,
            (Operation::Commit, _) => self.committed += 1,
            (Operation::Abort, _) => self.aborted += 1,
            (_, _) => {}
        }
    }

    /// Number of histories after which no count that `meaningful` checks may be 0.
    const ENOUGH: u64 = 1000;

    fn meaningful(&self) -> bool {
        let each = [self.made, self.not_made, self.committed, self.aborted, self.refused];
        self.histories < Self::ENOUGH || (!each.contains(&0) && self.swapped_rejected > 0)
    }
}

impl Counts {
    /// Adds the results of other histories.
    pub fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.operations += other.operations;
        self.hot += other.hot;
        self.overlapping += other.overlapping;
        self.grown_tables += other.grown_tables;
        self.stalls += other.stalls;
        self.swapped += other.swapped;
        self.swapped_rejected += other.swapped_rejected;
        self.shadows.add(other.shadows);
    }

    /// Returns the share of operations on hot keys that overlapped another one, in histories in which threads take
    /// turns.
    #[must_use]
    pub fn overlap(&self) -> f64 {
        if self.hot == 0 { 0.0 } else { self.overlapping as f64 / self.hot as f64 }
    }

    /// Checks that the histories exercised the table enough.
    ///
    /// # Errors
    /// Returns an error if no history was run, if there was too little overlap, too few shadow inserts or no growth, or
    /// if the checker rejected nothing.
    pub fn meaningful(&self, seed: u64) -> Result<(), Failure> {
        let fail = |what: String| Err(Failure::new(NAME, seed, what));
        if self.histories == 0 {
            return fail("no history was run".to_owned());
        }
        if self.hot > 0 && self.overlap() < MIN_OVERLAP {
            return fail(format!(
                "only {:.3} of the operations overlapped another one on their key",
                self.overlap()
            ));
        }
        if self.swapped > 50 && self.swapped_rejected == 0 {
            return fail("the checker rejected no history with exchanged results".to_owned());
        }
        if !self.shadows.meaningful() {
            return fail(format!("too few shadow inserts: {:?}", self.shadows));
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
/// Returns the first history that no order explains.
pub fn scenario<T: Subject>(
    seed: u64,
    histories: u64,
    model: Model,
    pool: &Pool,
) -> Result<Counts, Failure> {
    let memory = icefield::storage::sim::Pool::default();
    let make = |seed: u64| {
        let recording = seed.is_multiple_of(RECORD_ONE_IN);
        let sim = Sim::new(SimOptions {
            seed,
            model,
            free_fences: fences_are_free(seed),
            recording,
            detecting: recording,
            exempt: T::EXEMPT,
            give_way: scheduler::tick,
            pool: memory.clone(),
            ..SimOptions::default()
        });
        let table = T::create_tiny(sim.clone(), seed)?;
        let turns = !seed.is_multiple_of(FREE_ONE_IN);
        Ok(Ground {
            sim: Some(sim),
            pass: pass::own::<T>,
            help: T::help,
            ..Ground::of(table, turns)
        })
    };
    histories_on(seed, histories, pool, make)
}

/// The test bed of a row of histories.
#[derive(Debug)]
pub struct Ground<T> {
    /// The table.
    pub table: T,
    /// Its medium, if it is simulated.
    pub sim: Option<Sim>,
    /// If set, threads take turns in the order of the seed; otherwise they run in parallel.
    pub turns: bool,
    /// Creates the holder of a thread's shadow inserts, if the table has them.
    pub hold: Option<Hold<T>>,
    /// The design's own call that returns all records.
    pub pass: OwnPass<T>,
    /// Does the work of the table's helper, if its callers help.
    pub help: fn(&T),
    /// If set, every write writes this value: the table has no others.
    pub only_value: Option<u64>,
}

impl<T> Ground<T> {
    /// Returns the test bed of a table in memory whose design adds no calls to [`Table`].
    pub fn of(table: T, turns: bool) -> Self {
        Self {
            table,
            sim: None,
            turns,
            hold: None,
            pass: |_| Ok(None),
            help: |_| (),
            only_value: None,
        }
    }
}

/// Runs the scenario on tables that `make` creates from a seed.
///
/// # Errors
/// Returns the first history that no order explains.
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
    let Ground { table, sim, turns, hold, pass, help, only_value } =
        make(seed).map_err(|error| Failure::new(NAME, seed, format!("create: {error}")))?;
    let table = Arc::new(table);
    let capacity = table.capacity();
    let all = histories.min(HISTORIES_PER_TABLE);
    for first in (0..all).step_by(HISTORIES_IN_A_ROW as usize) {
        let row = first..all.min(first + HISTORIES_IN_A_ROW);
        let plans: Vec<Plan> = row
            .map(|history| Plan::new(&mut rng, history, pool.threads(), hold.is_some(), only_value))
            .collect();
        let stage = Arc::new(Stage::new(&table, sim.as_ref(), hold, (pass, help), plans));
        let scheduler = turns.then(|| Scheduler::new(rng.word(), pool.threads()));
        let recorded = record(&stage, scheduler.clone(), pool)
            .map_err(|what| Failure::new(NAME, seed, what))?;
        counts.stalls += scheduler.map_or(0, |scheduler| scheduler.stalls());
        for ((history, plan), events) in (first..).zip(&stage.plans).zip(&recorded) {
            judge(events, plan, turns, pool.threads(), &mut counts)
                .map_err(|violation| explain(seed, history, &violation))?;
        }
        exchange(&recorded[0], &mut rng, &mut counts);
        count(&*table, pass).map_err(|what| Failure::new(NAME, seed, what))?;
    }
    counts.grown_tables += u64::from(table.capacity() > capacity);
    Ok(counts)
}

/// Checks `len` while no thread writes.
fn count<T: Table<Key: Sample, Value: Sample>>(table: &T, own: OwnPass<T>) -> Result<(), String> {
    let seen = see(table, Pass::ForEach, own, &|| Ok(()))?.len() as u64;
    let len = table.len().map_err(|error| error.to_string())?;
    if len == seen { Ok(()) } else { Err(format!("`len` returns {len}, a scan {seen} records")) }
}

fn explain(seed: u64, history: u64, violation: &Violation) -> Failure {
    let what = format!(
        "history {history}: no order of the operations on key {} explains their answers",
        violation.key
    );
    Failure::new(NAME, seed, what).with_trace(violation.trace())
}

fn judge(
    events: &[Event],
    plan: &Plan,
    turns: bool,
    threads: usize,
    counts: &mut Counts,
) -> Result<(), Violation> {
    counts.histories += 1;
    counts.operations += events.len() as u64;
    if turns {
        let is_hot = |event: &&Event| event.thread < threads && plan.hot.contains(&event.key);
        let hot: Vec<Event> = events.iter().filter(is_hot).cloned().collect();
        counts.hot += hot.len() as u64;
        counts.overlapping += overlapping(&hot) as u64;
    }
    counts.shadows.histories += u64::from(plan.shadows);
    events.iter().for_each(|event| counts.shadows.count(event));
    check(events)
}

/// Checks the history again with the answers of two operations on one key swapped.
fn exchange(events: &[Event], rng: &mut Rng, counts: &mut Counts) {
    let first = rng.index(events.len());
    let differs =
        |other: &Event| other.key == events[first].key && other.answer != events[first].answer;
    if let Some(second) = events.iter().position(differs) {
        let rejected = check(&with_answers_swapped(events, first, second)).is_err();
        counts.swapped += 1;
        counts.swapped_rejected += u64::from(rejected);
        if events[first].answer.is_of_shadow() || events[second].answer.is_of_shadow() {
            counts.shadows.swapped += 1;
            counts.shadows.swapped_rejected += u64::from(rejected);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Bug, Toy};

    fn ground(bug: Bug) -> Ground<Toy> {
        Ground::of(Toy::new(bug), false)
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
