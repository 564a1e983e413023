//! Lets the Nth allocation of an index or of its link buckets fail, for every N: either that one only, or all later
//! ones too. Meanwhile, a table is created, grows through several sizes, is cleared, shrunk, and captured by snapshots.
//! Only a creation, an insert, a batch, a snapshot or a change of the whole table may fail. No record may be lost or
//! duplicated. Once there is memory again, the table must grow.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use icefield::storage::{Errno, FaultMode, FaultPlan};
use icefield::{Dlht, Error, OnFailure, Op, Table};

use super::shaped;
use crate::call::{Action, BatchKind, Call, Rule};
use crate::failure::{Failure, panic_text};
use crate::faults::ledger::Ledger;
use crate::faults::{Counts, attempt, every_call};
use crate::faulty::fail_at;
use crate::rng::Rng;

/// Number of rounds of a trial, each with one change of the whole table.
const ROUNDS: u64 = 8;
/// Number of keys that are written and read, and number of further keys that shadow inserts hold.
const KEYS: u64 = 400;
const SHADOWS: u64 = 12;
/// First of the keys that make the table grow at the end.
const FRESH: u64 = 1 << 20;
/// Number of table shapes, and the distance of their seeds. Together they cover every hash function, link ratio,
/// initial size and growth factor of [`shaped`].
const SHAPES: u64 = 8;
const SHAPE_STRIDE: u64 = 11;
/// Number of threads that share a table, each with its own keys.
const THREADS: u64 = 3;

/// Fails every allocation in turn, in tables of several shapes. Violations are counted, so that one run shows all of
/// them.
///
/// # Errors
/// Returns an error if a trial fails without a fault.
pub fn faults(seed: u64) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    for shape in 0..SHAPES {
        counts.add(faults_in_shape(seed.wrapping_add(shape * SHAPE_STRIDE))?);
        if counts.stuck > 0 {
            break;
        }
    }
    Ok(counts)
}

/// Fails every allocation in turn, in tables of the shape of `seed`: first with one thread, then with several.
fn faults_in_shape(seed: u64) -> Result<Counts, Failure> {
    let mut counts = every_call(seed, &[Errno::NOMEM], |plan| {
        let trial = Trial::new(seed, plan);
        attempt(move || trial.run())
    })?;
    for nth in 1..=counts.sites {
        let trial = Trial::new(seed, &fail_at(nth, FaultMode::ForGood, Errno::NOMEM));
        let result = attempt(move || trial.run_among_threads());
        counts.count(result, &format!("allocations fail among threads from {nth} on"));
    }
    Ok(counts)
}

/// Returns whether `error` is allowed: a memory error of a batch, or of an insert of a key that may be absent. No other
/// call needs memory.
fn refusal(call: Option<(Call, &BTreeSet<Option<u64>>)>, error: &Error) -> bool {
    let inserts = call.is_none_or(|(call, before)| {
        let puts = matches!(
            call.action,
            Action::TryInsert(_) | Action::Insert(_) | Action::Put(_) | Action::Compute(_)
        );
        puts && before.contains(&None)
    });
    inserts && matches!(error, Error::NoMemory { .. })
}

type Words = Dlht<u64, u64>;

/// Converts a memory error into `None`. Any other error is a violation.
fn had_memory<A>(what: &str, result: Result<A, Error>) -> Result<Option<A>, String> {
    match result {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::NoMemory { .. }) => Ok(None),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

/// A trial: one table, used while a plan makes allocations fail.
struct Trial {
    seed: u64,
    plan: Arc<FaultPlan>,
    rng: Rng,
    ledger: Ledger,
}

impl Trial {
    fn new(seed: u64, plan: &Arc<FaultPlan>) -> Self {
        let (rng, ledger) = (Rng::fork(seed, 4), Ledger::with_refusal(refusal));
        Self { seed, plan: Arc::clone(plan), rng, ledger }
    }

    fn create(&mut self) -> Result<Option<Words>, String> {
        let made = shaped::<Words>(self.seed).faults(Arc::clone(&self.plan)).build();
        let table = had_memory("create", made)?;
        self.ledger.errors += u64::from(table.is_none());
        Ok(table)
    }

    /// Runs the trial on one thread. Returns the number of refused calls, or a description of the violation.
    fn run(mut self) -> Result<u64, String> {
        let Some(table) = self.create()? else { return Ok(self.ledger.errors) };
        let shadows = table.shadows();
        let mut ops: Vec<Op<'_, u64, u64>> =
            (KEYS..KEYS + SHADOWS).map(|key| Op::shadow(key, key, &shadows)).collect();
        let executed = had_memory("shadows", Table::execute(&table, &mut ops, OnFailure::Stop))?;
        self.ledger.errors += u64::from(executed.is_none());
        let held = KEYS..KEYS + shadows.len() as u64;
        for round in 0..ROUNDS {
            self.load(&table, 0..KEYS, round)?;
            self.change_shape(&table, round)?;
            self.judge(&table).map_err(|what| format!("round {round}: {what}"))?;
            for key in held.clone() {
                let refused = Table::insert(&table, key, 1);
                if !matches!(refused, Err(Error::Shadowed)) || table.contains(key) {
                    return Err(format!("round {round}: {key} is not held: {refused:?}"));
                }
            }
        }
        self.plan.heal();
        shadows.commit();
        held.for_each(|key| self.ledger.set(key, Some(key)));
        self.recover(&table)
    }

    /// Executes single operations and a batch on keys of `keys`.
    fn load(&mut self, table: &Words, keys: Range<u64>, round: u64) -> Result<(), String> {
        for n in 0..60 {
            let (key, value) = (self.key(&keys), 1000 * round + n);
            let action = match self.rng.below(10) {
                0 => Action::Remove,
                1 => Action::Update(value),
                2 => Action::Get,
                3 => Action::Compute(Rule::PutIfAbsent(value)),
                4 => Action::Compute(Rule::RemoveEven),
                5 => Action::TryInsert(value),
                _ => Action::Insert(value),
            };
            self.ledger.ask(table, Call { key, action })?;
        }
        let kinds = [BatchKind::Put, BatchKind::Put, BatchKind::Remove];
        let kind = *self.rng.pick(&kinds);
        let call = |n| {
            let action = kind.action(Action::Get, 1000 * round + 500 + n);
            Call { key: self.key(&keys), action }
        };
        let calls: Vec<Call> = (0..40).map(call).collect();
        self.ledger.write_batch(table, kind, &calls)
    }

    /// Returns one of `keys`.
    fn key(&mut self, keys: &Range<u64>) -> u64 {
        keys.start + self.rng.below(keys.end - keys.start)
    }

    /// Changes the whole table. A refused change must have no effect.
    fn change_shape(&mut self, table: &Words, round: u64) -> Result<(), String> {
        let refused = match round % 4 {
            0 => had_memory("reserve", Table::reserve(table, 100 << (round / 4)))?.is_none(),
            1 => match had_memory("snapshot", table.try_snapshot())? {
                None => true,
                Some(snapshot) => {
                    self.ledger.compare_records(snapshot.iter())?;
                    false
                }
            },
            2 => had_memory("shrink", table.try_shrink_to_fit())?.is_none(),
            _ => match had_memory("clear", Table::clear(table))? {
                None => true,
                Some(()) => {
                    self.ledger.clear();
                    false
                }
            },
        };
        self.ledger.errors += u64::from(refused);
        Ok(())
    }

    /// Checks that every record is present exactly once.
    fn judge(&self, table: &Words) -> Result<(), String> {
        self.ledger.compare(table)?;
        let (len, seen) = (table.len(), table.iter().count());
        if len == seen { Ok(()) } else { Err(format!("len is {len} of {seen} records")) }
    }

    /// Checks, with memory available again, that no call is refused and that the table grows.
    fn recover(&mut self, table: &Words) -> Result<u64, String> {
        self.judge(table).map_err(|what| format!("at the end: {what}"))?;
        let refused = self.ledger.errors;
        self.load(table, 0..KEYS, ROUNDS)?;
        let capacity = table.capacity();
        let bins = table.stats().details.iter().find(|(name, _)| *name == "bins").map(|it| it.1);
        for key in FRESH..FRESH + 16 * bins.unwrap_or(0) {
            self.ledger.ask(table, Call { key, action: Action::TryInsert(key) })?;
            if table.capacity() > capacity {
                break;
            }
        }
        if table.capacity() <= capacity {
            return Err(format!("the table does not grow beyond {capacity} records"));
        }
        // `reserve` completes every transfer of records to a new index, so that the checks below see no transfer in
        // progress.
        Table::reserve(table, 1).map_err(|error| format!("reserve at the end: {error}"))?;
        if self.ledger.errors != refused {
            return Err("inserts are refused although there is memory".to_owned());
        }
        self.judge(table).map_err(|what| format!("after growing: {what}"))?;
        Ok(refused)
    }

    /// Runs the trial on several threads. The first one changes the table's shape and makes memory available again.
    fn run_among_threads(mut self) -> Result<u64, String> {
        let Some(table) = self.create()? else { return Ok(self.ledger.errors) };
        let lives = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let mut trial = Self::new(self.seed, &self.plan);
                    trial.rng = Rng::fork(self.seed, 10 + thread);
                    let table = &table;
                    scope.spawn(move || trial.live_among_others(table, thread))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
        });
        for life in lives {
            let ledger = life.map_err(|panic| format!("panicked: {}", panic_text(&*panic)))??;
            self.ledger.merge(ledger);
        }
        self.recover(&table)
    }

    fn live_among_others(mut self, table: &Words, thread: u64) -> Result<Ledger, String> {
        let keys = thread * KEYS..(thread + 1) * KEYS;
        for round in 0..2 * ROUNDS {
            self.load(table, keys.clone(), round)?;
            if thread == 0 {
                match round % 3 {
                    0 => drop(had_memory("snapshot", table.try_snapshot())?),
                    1 => drop(had_memory("shrink", table.try_shrink_to_fit())?),
                    _ => drop(had_memory("reserve", Table::reserve(table, 100 * round))?),
                }
                if round == ROUNDS {
                    self.plan.heal();
                }
            }
        }
        Ok(self.ledger)
    }
}
