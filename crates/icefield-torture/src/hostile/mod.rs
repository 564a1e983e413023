//! Forged tables are opened and used by code that changes them while it holds borrowed values. A `&[u8]` that
//! `get_with` passes to its closure must not change while it is borrowed, whatever the files contain.

mod forge;
pub mod fuzz;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use icefield::storage::sim::{HANG, Pool, Sim};
use icefield::{Cursor, Data, Decision, Durable, Error};

use crate::corrupt::{self, PATIENCE, write_directory};
use crate::failure::{Failure, panic_text};
use crate::file_subject::{FileOptions, FileSubject};
use crate::rng::Rng;
use crate::subject::{Sample, Subject};
use crate::timed::{Ending, within};
use forge::forge;

/// The name of the scenario.
pub const NAME: &str = "hostile";
/// Maximum number of values that are borrowed at the same time.
const LENT: usize = 48;
/// Number of pages after which a scan is considered endless.
const MAX_PAGES: usize = 20_000;

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Forged tables.
    pub mutations: u64,
    /// Tables that opened.
    pub opened: u64,
    /// Tables that did not open.
    pub refused: u64,
    /// Values that were borrowed while the table was changed.
    pub lends: u64,
    /// Values that changed while they were borrowed.
    pub changed: u64,
    /// Panics.
    pub panics: u64,
    /// Operations that did not end.
    pub hangs: u64,
    /// The first violations, each with the forgery that led to it.
    pub examples: Vec<String>,
}

impl Counts {
    /// Adds the results of other forged tables.
    pub fn add(&mut self, other: Self) {
        self.mutations += other.mutations;
        self.opened += other.opened;
        self.refused += other.refused;
        self.lends += other.lends;
        self.changed += other.changed;
        self.panics += other.panics;
        self.hangs += other.hangs;
        self.examples.extend(other.examples);
        self.examples.truncate(40);
    }

    fn example(&mut self, what: &str, how: &str) {
        if self.examples.len() < 20 {
            self.examples.push(format!("{what} after {how}"));
        }
    }

    /// Counts one forged table.
    fn count(&mut self, outcome: Outcome, how: &str) {
        self.mutations += 1;
        self.opened += u64::from(outcome.opened);
        self.refused += u64::from(!outcome.opened && outcome.ending.is_ok());
        self.lends += outcome.lends;
        if let Some(key) = outcome.changed {
            self.changed += 1;
            self.example(&format!("the value of {key} changed while it was borrowed"), how);
        }
        match outcome.ending {
            Ok(()) => {}
            Err(Ending::Stuck) => {
                self.hangs += 1;
                self.example("hang", how);
            }
            Err(Ending::Panicked(text)) if text.starts_with(HANG) => {
                self.hangs += 1;
                self.example(&text, how);
            }
            Err(Ending::Panicked(text)) => {
                self.panics += 1;
                self.example(&format!("panic: {text}"), how);
            }
        }
    }

    /// Returns the number of violations.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.changed + self.panics + self.hangs
    }

    /// Returns the counts if there was no violation and enough forged tables opened and lent values.
    ///
    /// # Errors
    /// Returns an error for a violation, or for a run without effect.
    pub fn judged(self, seed: u64) -> Result<Self, Failure> {
        let Self { mutations, opened, lends, changed, panics, hangs, .. } = self;
        if self.violations() > 0 {
            let what = format!(
                "{changed} values changed while they were borrowed, {panics} panics, {hangs} hangs in {mutations} \
                 forged tables"
            );
            return Err(Failure::new(NAME, seed, what).with_trace(self.examples));
        }
        if mutations >= 100 && (opened < mutations / 4 || lends < mutations) {
            return Err(Failure::new(
                NAME,
                seed,
                format!("too few forged tables opened or lent values: {self:?}"),
            ));
        }
        Ok(self)
    }
}

/// The result of one forged table.
struct Outcome {
    opened: bool,
    lends: u64,
    /// The number of a key whose value changed while it was borrowed.
    changed: Option<u64>,
    ending: Result<(), Ending>,
}

impl Outcome {
    fn stuck() -> Self {
        Self { opened: true, lends: 0, changed: None, ending: Err(Ending::Stuck) }
    }
}

/// Uses `mutations` forged images on the simulated medium. Violations are counted, not returned, so that one run
/// shows all of them.
///
/// # Errors
/// Returns an error if the tables could not be created, or if a medium with an open table accepted a second one.
pub fn scenario<T: Subject>(seed: u64, mutations: u64) -> Result<Counts, Failure> {
    let fail = |what: String| Failure::new(NAME, seed, what);
    let pool = Pool::default();
    let bases =
        corrupt::images::<T>(seed, &pool).map_err(|error| fail(format!("create: {error}")))?;
    alone::<T>(&bases[0].0, &pool).map_err(fail)?;
    let mut counts = Counts::default();
    for n in 0..mutations {
        let mut rng = Rng::fork(seed, 300 + n);
        let (base, known) = rng.pick(&bases);
        let (mut image, mut other) = (base.clone(), rng.pick(&bases).0.clone());
        let how = forge_some(|rng| forge(&mut image, &mut other, rng), &mut rng);
        let sim = Sim::from_image(&image, corrupt::looking(n, &pool));
        let budget = sim.clone();
        let keys: Vec<u64> = known.keys();
        let use_it = |table: &T, using: &Using<'_>| using.change_and_look(table);
        let outcome = probe(|| T::open_on(sim), &keys, &mut rng, &|| budget.begin_op(), use_it);
        counts.count(outcome, &format!("mutation {n} of seed {seed}: {how}"));
    }
    Ok(counts)
}

/// Checks that a medium accepts only one open table: a second one on the same bytes could change values that the
/// first one lends.
fn alone<T: Subject>(image: &icefield::storage::sim::Image, pool: &Pool) -> Result<(), String> {
    let sim = Sim::from_image(image, corrupt::looking(0, pool));
    let table = T::open_on(sim.clone()).map_err(|error| format!("open: {error}"))?;
    let second = T::open_on(sim.clone()).map(drop);
    if !matches!(second, Err(Error::InvalidOption { option: "medium", .. })) {
        return Err(format!("a second table on one medium: {second:?}"));
    }
    drop(table);
    T::open_on(sim).map(drop).map_err(|error| format!("open after the first: {error}"))
}

/// Runs the scenario on real files below `place`. Each table is opened read-only, then opened for writing and salvaged.
///
/// # Errors
/// Returns an error if the tables could not be created or the files could not be written.
pub fn scenario_on_files<T: FileSubject>(
    seed: u64,
    mutations: u64,
    place: &Path,
) -> Result<Counts, Failure> {
    let fail = |what: String| Failure::new(NAME, seed, what);
    let bases = corrupt::directories::<T>(seed, place).map_err(fail)?;
    let path = place.join("forged");
    let mut counts = Counts::default();
    for n in 0..mutations {
        let mut rng = Rng::fork(seed, 400 + n);
        let (base, known) = rng.pick(&bases);
        let (mut files, mut other) = (base.clone(), rng.pick(&bases).0.clone());
        let how = forge_some(|rng| forge(&mut files, &mut other, rng), &mut rng);
        write_directory(&path, &files)
            .map_err(|error| fail(format!("{}: {error}", path.display())))?;
        let (opened, rescued, known) = (path.clone(), place.join("rescued"), Arc::clone(known));
        let used = within(PATIENCE, move || {
            let keys: Vec<u64> = known.keys();
            let look = |table: &T, using: &Using<'_>| using.look(table);
            let reading = probe(|| T::open_to_read(&opened), &keys, &mut rng.clone(), &|| (), look);
            let change = |table: &T, using: &Using<'_>| {
                // Salvage may fail, because the table is damaged.
                drop(table.salvage(&rescued));
                drop(std::fs::remove_dir_all(&rescued));
                using.change_and_look(table);
            };
            let open = || T::open_at(&opened, FileOptions::default());
            let mut writing = probe(open, &keys, &mut rng, &|| (), change);
            writing.opened |= reading.opened;
            writing.lends += reading.lends;
            writing.changed = reading.changed.or(writing.changed);
            writing.ending = reading.ending.and(writing.ending);
            writing
        });
        let outcome = used.unwrap_or_else(|_| Outcome::stuck());
        let hung = outcome.ending == Err(Ending::Stuck);
        counts.count(outcome, &format!("mutation {n} of files of seed {seed}: {how}"));
        if hung {
            // The hanging thread still uses the files.
            return Ok(counts);
        }
        std::fs::remove_dir_all(&path)
            .map_err(|error| fail(format!("{}: {error}", path.display())))?;
    }
    Ok(counts)
}

fn forge_some(mut once: impl FnMut(&mut Rng) -> String, rng: &mut Rng) -> String {
    let times = *rng.pick(&[1, 1, 1, 2, 4]);
    (0..times).map(|_| once(rng)).collect::<Vec<_>>().join("; ")
}

/// Opens a table and passes it to `use_it`.
fn probe<T: Durable<Key: Sample, Value: Sample>>(
    open: impl FnOnce() -> icefield::Result<T>,
    keys: &[u64],
    rng: &mut Rng,
    begin: &dyn Fn(),
    use_it: impl FnOnce(&T, &Using<'_>),
) -> Outcome {
    let using = Using { keys, begin, state: RefCell::new((rng.clone(), 0, None)) };
    let mut opened = false;
    let run = || {
        begin();
        if let Ok(table) = open() {
            opened = true;
            use_it(&table, &using);
            begin();
        }
    };
    let ending = catch_unwind(AssertUnwindSafe(run))
        .map_err(|payload| Ending::Panicked(panic_text(payload.as_ref())));
    let (_, lends, changed) = using.state.into_inner();
    Outcome { opened, lends, changed, ending }
}

/// Uses a table with the given keys. Calls `begin` before each operation.
struct Using<'a> {
    keys: &'a [u64],
    begin: &'a dyn Fn(),
    /// The generator, the number of values borrowed so far, and a key whose value changed.
    state: RefCell<(Rng, u64, Option<u64>)>,
}

impl Using<'_> {
    /// Borrows values without changing the table.
    fn look<T: Durable<Key: Sample, Value: Sample>>(&self, table: &T) {
        self.read(table);
        self.lend(table, &self.some_keys(), false);
    }

    /// Borrows values while every kind of call changes the table.
    fn change_and_look<T: Durable<Key: Sample, Value: Sample>>(&self, table: &T) {
        // On half of the tables, the first call is a write, which makes the blob store scan for its free blocks.
        if self.draw(2) == 0 {
            self.change(table);
        }
        self.lend(table, &self.some_keys(), true);
        self.lend(table, &self.some_keys(), true);
        self.read(table);
        (self.begin)();
        drop(table.shrink_to_fit());
        self.change(table);
    }

    /// Returns keys of the table, in any order, and a few of those that [`Using::change`] adds.
    fn some_keys(&self) -> Vec<u64> {
        let first = self.draw(self.keys.len().max(1) as u64) as usize;
        let old = self.keys.iter().cycle().skip(first).take(self.keys.len().min(LENT));
        old.copied().chain((0..4).map(|n| 10_000 + 100 * n + self.draw(40))).collect()
    }

    fn draw(&self, limit: u64) -> u64 {
        self.state.borrow_mut().0.below(limit)
    }

    /// Borrows the values of all `numbers` at the same time, changes the table if `changes` is set, and checks that
    /// no value has changed.
    fn lend<T>(&self, table: &T, numbers: &[u64], changes: bool)
    where
        T: Durable<Key: Sample, Value: Sample>,
    {
        let Some((&number, rest)) = numbers.split_first() else {
            if changes {
                self.change(table);
            }
            return;
        };
        (self.begin)();
        let key = T::Key::sample(number);
        let mut was_shown = false;
        let mut look = |shown: &T::Value| {
            was_shown = true;
            let before = shown.own_ref();
            self.lend(table, rest, changes);
            let mut state = self.state.borrow_mut();
            state.1 += 1;
            if shown.own_ref() != before {
                state.2 = Some(number);
            }
        };
        // Errors are expected, because the table is damaged.
        if self.draw(4) == 0 {
            let once = |shown: Option<&T::Value>| {
                shown.into_iter().for_each(&mut look);
                Decision::Keep
            };
            drop(table.compute(T::Key::arg(&key), once));
        } else {
            drop(table.get_with(T::Key::arg(&key), &mut look));
        }
        if !was_shown {
            self.lend(table, rest, changes);
        }
    }

    /// Removes, replaces and adds many records, so that freed space is reused. Each call has its own budget of steps,
    /// because many calls on damaged chains together exceed the budget of one.
    fn change<T: Durable<Key: Sample, Value: Sample>>(&self, table: &T) {
        let (key, value) = (T::Key::sample, T::Value::sample);
        let put = |number: u64, with: u64| {
            (self.begin)();
            drop(table.put(T::Key::arg(&key(number)), T::Value::arg(&value(with))));
        };
        (self.begin)();
        match self.draw(16) {
            0 => drop(table.clear()),
            1 => drop(table.shrink_to_fit()),
            2 => drop(table.reserve(100)),
            3 => drop(table.sync()),
            _ => {}
        }
        for &number in self.keys {
            (self.begin)();
            match self.draw(4) {
                0 => drop(table.remove(T::Key::arg(&key(number)))),
                1 | 2 => drop(table.delete(T::Key::arg(&key(number)))),
                _ => put(number, 1_000 + self.draw(500)),
            }
        }
        let first = 10_000 + 100 * self.draw(4);
        for number in first..first + 40 {
            put(number, 2_000 + self.draw(500));
        }
        for number in first..first + 40 {
            (self.begin)();
            if self.draw(2) == 0 {
                drop(table.delete(T::Key::arg(&key(number))));
            }
        }
    }

    /// Reads all records.
    fn read<T: Durable<Key: Sample, Value: Sample>>(&self, table: &T) {
        (self.begin)();
        drop(table.check());
        (self.begin)();
        drop(table.len());
        let mut next = Some(Cursor::START);
        for page in 0.. {
            assert!(page < MAX_PAGES, "{HANG}: a scan of {MAX_PAGES} pages did not end");
            let Some(cursor) = next else { break };
            (self.begin)();
            let Ok(page) = table.scan(cursor, 50) else { break };
            next = page.next;
        }
        for &number in self.keys {
            (self.begin)();
            drop(table.get(T::Key::arg(&T::Key::sample(number))));
        }
    }
}
