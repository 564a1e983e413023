//! Records a row of histories: threads make their moves and record the answers with time stamps.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use icefield::Table;
use icefield::storage::sim::Sim;

use super::actor::{Actor, Answered};
use super::held::Hold;
use super::plan::{Move, Plan};
use crate::call::{Action, Call, Reply};
use crate::history::Event;
use crate::operation::{Answer, Operation};
use crate::pass::OwnPass;
use crate::pool::{Pool, lock};
use crate::scheduler::{self, Scheduler};
use crate::subject::Sample;

/// Threads that do not take turns yield the processor once in this many steps.
const YIELD_ONE_IN: u32 = 16;

/// A row of histories during its recording.
pub(super) struct Stage<T> {
    table: Arc<T>,
    sim: Option<Sim>,
    hold: Option<Hold<T>>,
    pass: OwnPass<T>,
    help: fn(&T),
    pub plans: Vec<Plan>,
    clock: AtomicU64,
    /// Number of arrivals of threads at the barriers between histories.
    arrivals: AtomicUsize,
    /// True if a thread has panicked, so that the others must not wait for it.
    broken: AtomicBool,
    /// The events of each history.
    events: Vec<Mutex<Vec<Event>>>,
    errors: Mutex<Vec<String>>,
}

/// Runs the setup and the threads, and reads every key at the end. All of it is part of the histories.
pub(super) fn record<T>(
    stage: &Arc<Stage<T>>,
    scheduler: Option<Arc<Scheduler>>,
    pool: &Pool,
) -> Result<Vec<Vec<Event>>, String>
where
    T: Table<Key: Sample, Value: Sample> + 'static,
{
    let outside = pool.threads();
    let ones = |calls: Vec<Call>| calls.into_iter().map(Move::call).collect::<Vec<_>>();
    for (history, plan) in stage.plans.iter().enumerate() {
        stage.perform(outside, history, &ones(plan.setup.clone()));
    }
    stage.give_way_one_in(if scheduler.is_some() { 1 } else { YIELD_ONE_IN });
    let shared = Arc::clone(stage);
    pool.run(Arc::new(move |thread| {
        let work = || shared.perform_all(thread, outside);
        match &scheduler {
            Some(scheduler) => scheduler.take_turns(thread, work),
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

/// Notifies the other threads when a thread panics.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

impl<T: Table<Key: Sample, Value: Sample>> Stage<T> {
    pub(super) fn new(
        table: &Arc<T>,
        sim: Option<&Sim>,
        hold: Option<Hold<T>>,
        (pass, help): (OwnPass<T>, fn(&T)),
        plans: Vec<Plan>,
    ) -> Self {
        Self {
            table: Arc::clone(table),
            sim: sim.cloned(),
            hold,
            pass,
            help,
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

    /// Runs a thread's part of all histories.
    fn perform_all(&self, thread: usize, threads: usize) {
        let _alarm = Alarm(&self.broken);
        for (history, plan) in self.plans.iter().enumerate() {
            self.perform(thread, history, &plan.threads[thread]);
            self.arrivals.fetch_add(1, Ordering::AcqRel);
            while self.arrivals.load(Ordering::Acquire) < (history + 1) * threads {
                if self.broken.load(Ordering::Acquire) {
                    return;
                }
                scheduler::pass();
            }
        }
    }

    fn perform(&self, thread: usize, history: usize, moves: &[Move]) {
        let mut mine = Vec::with_capacity(moves.len());
        let keys = self.plans[history].keys();
        let durable = || self.is_durable();
        let mut actor = Actor::new(&*self.table, self.hold, self.pass, &keys, &durable);
        for step in moves {
            (self.help)(&self.table);
            if let Some(sim) = &self.sim {
                sim.begin_op();
            }
            scheduler::begin();
            // SeqCst: the stamps are the real-time order that the checker uses.
            let began = self.clock.fetch_add(1, Ordering::SeqCst);
            let answers = actor.make(step).and_then(|answers| match step {
                // A `clear` returns nothing that depends on the words it has read, so these need not be durable.
                Move::Clear => Ok(answers),
                _ => self.is_durable().map(|()| answers),
            });
            let returned = self.clock.fetch_add(1, Ordering::SeqCst);
            let event =
                |(key, asked, answer)| Event { thread, began, returned, key, asked, answer };
            match answers {
                Ok(_) if matches!(step, Move::Clear) => self.cleared(event),
                Ok(answers) => mine.extend(answers.into_iter().map(event)),
                Err(what) => lock(&self.errors).push(format!("thread {thread}: {step:?}: {what}")),
            }
        }
        lock(&self.events[history]).extend(mine);
    }

    /// Returns an error if a crash could revert a value that the calling thread has read since its call began.
    fn is_durable(&self) -> Result<(), String> {
        match self.sim.iter().flat_map(Sim::op_returned).next() {
            None => Ok(()),
            Some(read) => Err(format!("returned a result that depends on {read}")),
        }
    }

    /// Records a `clear` as a removal of every key, including those of the other histories in the row.
    fn cleared(&self, event: impl Fn(Answered) -> Event) {
        for (plan, events) in self.plans.iter().zip(&self.events) {
            let removed =
                |key| event((key, Operation::Call(Action::Delete), Answer::Reply(Reply::Done)));
            lock(events).extend(plan.keys().into_iter().map(removed));
        }
    }
}
