//! Scans a table while other threads insert and remove. Every key that is present throughout must be returned exactly
//! once, with its value, despite concurrent splits and moves. On every second table, the simulator also looks for
//! results that a crash could revert.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use icefield::storage::sim::{Model, Pool as Memory, Sim, SimOptions};
use icefield::{Cursor, Error, Table};

use crate::call::{Action, Call, ask};
use crate::failure::{Failure, guarded};
use crate::pool::{Pool, lock};
use crate::rng::Rng;
use crate::subject::{Sample, Subject};

/// The name of the scenario.
pub const NAME: &str = "iterate";
/// Number of keys that are never removed.
const STABLE_KEYS: u64 = 40;
/// The keys that writer number `n` inserts and removes begin at `n` times this number.
const CHURN_KEYS: u64 = 1000;
/// Passes over one table.
pub const PASSES: u64 = 6;
/// The simulated medium yields the processor once in this many events.
const YIELD_ONE_IN: u32 = 20;

/// A writer stops after this number of rounds, each of a hundred writes. Usually the scanner finishes earlier, when all
/// writers together have completed a dozen rounds.
const MOST_ROUNDS: u64 = 300;

/// Results of scans with concurrent writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Complete passes.
    pub scans: u64,
    /// Concurrent writes.
    pub writes: u64,
    /// Tables that grew during a scan.
    pub grown_tables: u64,
    /// Writers that stopped at their limit of rounds, before the scanner had finished.
    pub outrun: u64,
}

impl Counts {
    /// Adds the results of other scans.
    pub fn add(&mut self, other: Self) {
        self.scans += other.scans;
        self.writes += other.writes;
        self.grown_tables += other.grown_tables;
        self.outrun += other.outrun;
    }
}

/// Makes several passes over one table on the simulated medium. The first thread of `pool` scans, the others write.
///
/// # Errors
/// Returns a key that was missed or returned twice, or a wrong value.
pub fn scenario<T: Subject>(seed: u64, pool: &Pool, memory: &Memory) -> Result<Counts, Failure> {
    guarded(NAME, seed, || {
        let fail = |what: String| Failure::new(NAME, seed, what);
        let detecting = seed.is_multiple_of(2);
        let options = SimOptions {
            seed,
            model: Model::Pmem,
            recording: detecting,
            detecting,
            exempt: T::EXEMPT,
            pool: memory.clone(),
            ..SimOptions::default()
        };
        let sim = Sim::new(options);
        let table =
            T::create_tiny(sim.clone(), seed).map_err(|error| fail(format!("create: {error}")))?;
        sim.set_yield(YIELD_ONE_IN);
        passes_on(seed, table, pool, Some(sim)).map_err(fail)
    })
}

/// Runs the scenario on `table`. `sim` is its medium, if it is simulated.
///
/// # Errors
/// Returns a description of the fault.
pub fn passes_on<T>(seed: u64, table: T, pool: &Pool, sim: Option<Sim>) -> Result<Counts, String>
where
    T: Table<Key: Sample, Value: Sample> + 'static,
{
    for key in 0..STABLE_KEYS {
        ask(&table, Call { key, action: Action::Insert(key + 7) })
            .map_err(|error| error.to_string())?;
    }
    let capacity = table.capacity();
    let stage = Arc::new(Stage {
        table,
        done: AtomicBool::new(false),
        writes: AtomicU64::new(0),
        outrun: AtomicU64::new(0),
        trouble: Mutex::default(),
        sim,
    });
    let shared = Arc::clone(&stage);
    pool.run(Arc::new(move |thread| shared.perform(seed, thread)))?;
    match lock(&stage.trouble).take() {
        Some(trouble) => Err(trouble),
        None => Ok(Counts {
            scans: PASSES,
            writes: stage.writes.load(Ordering::Relaxed),
            outrun: stage.outrun.load(Ordering::Relaxed),
            grown_tables: u64::from(stage.table.capacity() > capacity),
        }),
    }
}

struct Stage<T> {
    table: T,
    /// Set when the scanning thread has finished.
    done: AtomicBool,
    writes: AtomicU64,
    outrun: AtomicU64,
    trouble: Mutex<Option<String>>,
    sim: Option<Sim>,
}

impl<T: Table<Key: Sample, Value: Sample>> Stage<T> {
    fn perform(&self, seed: u64, thread: usize) {
        let mut rng = Rng::fork(seed, thread as u64);
        let result =
            if thread == 0 { self.scan_all(&mut rng) } else { self.churn(thread, &mut rng) };
        if let Err(trouble) = result {
            lock(&self.trouble).get_or_insert(trouble);
        }
        if thread == 0 {
            self.done.store(true, Ordering::Relaxed);
        }
    }

    /// Executes one call with a new step budget, and checks that its result is durable.
    fn call<R>(&self, call: impl FnOnce() -> Result<R, Error>) -> Result<R, String> {
        let Some(sim) = &self.sim else { return call().map_err(|error| error.to_string()) };
        sim.begin_op();
        let answer = call().map_err(|error| error.to_string())?;
        match sim.op_returned().first() {
            None => Ok(answer),
            Some(read) => Err(format!("returned a result that depends on {read}")),
        }
    }

    fn scan_all(&self, rng: &mut Rng) -> Result<(), String> {
        (0..PASSES).try_for_each(|_| self.scan(1 + rng.index(8)))
    }

    fn scan(&self, page: usize) -> Result<(), String> {
        let mut seen: HashMap<u64, u64> = HashMap::new();
        let mut next = Some(Cursor::START);
        while let Some(cursor) = next {
            let page = self
                .call(|| self.table.scan(cursor, page))
                .map_err(|what| format!("scan: {what}"))?;
            for (key, value) in &page.records {
                let key = T::Key::number(key).ok_or("a scan shows a key that was never written")?;
                let value =
                    T::Value::number(value).ok_or("a scan shows a value that was never written")?;
                if key < STABLE_KEYS && seen.insert(key, value).is_some() {
                    return Err(format!("key {key} was seen twice"));
                }
            }
            next = page.next;
        }
        match (0..STABLE_KEYS).find(|key| seen.get(key) != Some(&(key + 7))) {
            Some(key) => Err(format!("key {key} was seen with {:?}", seen.get(&key))),
            None => Ok(()),
        }
    }

    /// Alternates between rounds of inserts and rounds of removals, all of random keys, and shrinks the table after
    /// every fourth round. Ends when the scanner has finished, or after [`MOST_ROUNDS`].
    fn churn(&self, thread: usize, rng: &mut Rng) -> Result<(), String> {
        let first = CHURN_KEYS * thread as u64;
        for round in 0..MOST_ROUNDS {
            for _ in 0..100 {
                if self.done.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let action = if round % 2 == 0 { Action::Insert(300) } else { Action::Remove };
                let call = Call { key: first + rng.below(200), action };
                self.call(|| ask(&self.table, call)).map_err(|what| format!("{call:?}: {what}"))?;
                self.writes.fetch_add(1, Ordering::Relaxed);
            }
            if round % 4 == 3 {
                self.call(|| self.table.shrink_to_fit())
                    .map_err(|what| format!("shrink: {what}"))?;
            }
        }
        self.outrun.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Bug, Toy};

    #[test]
    fn a_right_table_passes_and_a_losing_scan_is_found() {
        let pool = Pool::new(2);
        assert!(
            passes_on(1, Toy::new(Bug::None), &pool, None)
                .is_ok_and(|counts| counts.scans == PASSES)
        );
        let lossy = passes_on(1, Toy::new(Bug::ScanLoses), &Pool::new(1), None);
        assert!(lossy.is_err_and(|what| what.contains("was seen with None")));
    }
}
