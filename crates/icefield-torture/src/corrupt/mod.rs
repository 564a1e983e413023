//! Damaged tables are opened and used. No call may panic or hang. No call may return data that was never written,
//! unless the table's check reports a fault.

pub(crate) mod damage;
pub(crate) mod probe;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use icefield::storage::sim::{Image, Model, Pool, Sim, SimOptions};
use icefield::{AnyTable, Durable, Error};

use crate::call::{Action, Call, ask};
use crate::failure::{Failure, panic_text};
use crate::file_subject::{FileOptions, FileSubject};
use crate::rng::Rng;
use crate::subject::{Sample, Subject};
use crate::timed::within;
use damage::{Directory, Files, damage};
use probe::{Known, Outcome, probe};

/// The name of the scenario.
pub const NAME: &str = "corrupt";
/// Number of tables to damage.
const TABLES: u64 = 8;
/// Number of steps after which an operation on a tiny table is reported as hanging.
const STEP_BUDGET: u64 = 2_000_000;
/// Time after which the work on one damaged table on real files is reported as hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Results of damaged tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Damaged tables that were used.
    pub mutations: u64,
    /// Tables that did not open.
    pub refused: u64,
    /// Tables that opened and reported a fault.
    pub noticed: u64,
    /// Tables that opened and reported no fault, for example because the damage hit bytes that are not used, or records
    /// of words, which have no checksum.
    pub unnoticed: u64,
    /// Damaged tables that salvage turned into an intact table.
    pub salvaged: u64,
    /// Panics.
    pub panics: u64,
    /// Operations that did not end.
    pub hangs: u64,
    /// Results with bytes that were never written, from a table whose check reports no fault.
    pub undetected_wrong_reads: u64,
    /// The first violations, each with the damage that led to it.
    pub examples: Vec<String>,
}

impl Counts {
    /// Adds the results of other damaged tables.
    pub fn add(&mut self, other: Self) {
        self.mutations += other.mutations;
        self.refused += other.refused;
        self.noticed += other.noticed;
        self.unnoticed += other.unnoticed;
        self.salvaged += other.salvaged;
        self.panics += other.panics;
        self.hangs += other.hangs;
        self.undetected_wrong_reads += other.undetected_wrong_reads;
        self.examples.extend(other.examples);
    }

    pub(crate) fn count(&mut self, outcome: Outcome, how: impl FnOnce() -> String) {
        self.mutations += 1;
        let example = match outcome {
            Outcome::Refused => return self.refused += 1,
            Outcome::Noticed => return self.noticed += 1,
            Outcome::Unnoticed => return self.unnoticed += 1,
            Outcome::Panicked(text) => {
                self.panics += 1;
                format!("panic: {text}")
            }
            Outcome::Hung(text) => {
                self.hangs += 1;
                text
            }
            Outcome::WrongRead(text) => {
                self.undetected_wrong_reads += 1;
                format!("wrong read: {text}")
            }
        };
        if self.examples.len() < 20 {
            self.examples.push(format!("{example} after {}", how()));
        }
    }

    /// Returns the number of violations.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.panics + self.hangs + self.undetected_wrong_reads
    }

    /// Returns the counts if there was no violation, and if some damaged tables opened and some did not.
    ///
    /// # Errors
    /// Returns an error for a violation, or for a run without effect.
    pub fn judged(self, seed: u64) -> Result<Self, Failure> {
        if self.violations() > 0 {
            let what = format!(
                "{} panics, {} hangs, {} undetected wrong reads in {} damaged tables",
                self.panics, self.hangs, self.undetected_wrong_reads, self.mutations
            );
            return Err(Failure::new(NAME, seed, what).with_trace(self.examples));
        }
        if self.mutations >= 100 && (self.refused == 0 || self.noticed == 0 || self.unnoticed == 0)
        {
            return Err(Failure::new(
                NAME,
                seed,
                format!("the damage is not varied enough: {self:?}"),
            ));
        }
        Ok(self)
    }
}

/// Uses `mutations` damaged images on the simulated medium. Violations are counted, not returned, so that one run
/// shows all of them.
///
/// # Errors
/// Returns an error if the undamaged tables could not be created.
pub fn scenario<T: Subject>(seed: u64, mutations: u64) -> Result<Counts, Failure> {
    let pool = Pool::default();
    let bases = images::<T>(seed, &pool)
        .map_err(|error| Failure::new(NAME, seed, format!("create: {error}")))?;
    let mut counts = Counts::default();
    for n in 0..mutations {
        let mut rng = Rng::fork(seed, 100 + n);
        let (base, known) = rng.pick(&bases);
        let mut image = base.clone();
        let how = damage_some(&mut image, &mut rng.pick(&bases).0.clone(), &mut rng);
        let sim = Sim::from_image(&image, looking(n, &pool));
        let budget = sim.clone();
        let outcome = probe(|| T::open_on(sim), known, n, || budget.begin_op());
        counts.count(outcome, || format!("mutation {n}: {how}"));
    }
    Ok(counts)
}

/// Runs the scenario on real files below `place`, which are also salvaged.
///
/// # Errors
/// Returns an error if the undamaged tables could not be created or the files could not be written.
pub fn scenario_on_files<T: FileSubject>(
    seed: u64,
    mutations: u64,
    place: &Path,
) -> Result<Counts, Failure> {
    let fail = |what: String| Failure::new(NAME, seed, what);
    let bases = directories::<T>(seed, place).map_err(fail)?;
    let (path, rescued) = (place.join("damaged"), place.join("rescued"));
    let mut counts = Counts::default();
    for n in 0..mutations {
        let mut rng = Rng::fork(seed, 200 + n);
        let (base, known) = rng.pick(&bases);
        let mut files = base.clone();
        let how = damage_some(&mut files, &mut rng.pick(&bases).0.clone(), &mut rng);
        write_directory(&path, &files)
            .map_err(|error| fail(format!("{}: {error}", path.display())))?;
        let (opened, new) = (path.clone(), rescued.clone());
        let known = Arc::clone(known);
        let probing = within(PATIENCE, move || {
            let salvaged = salvage::<T>(&opened, &new, &known, n);
            let open = || T::open_at(&opened, FileOptions::default());
            salvaged.map(|salvaged| (salvaged, probe(open, &known, n, || ())))
        });
        let hung = |ending| Err(Outcome::Hung(format!("{ending:?}")));
        let outcome = match probing.unwrap_or_else(hung) {
            Ok((salvaged, outcome)) => {
                counts.salvaged += u64::from(salvaged);
                outcome
            }
            Err(violation) => violation,
        };
        let hung = matches!(outcome, Outcome::Hung(_));
        counts.count(outcome, || format!("mutation {n} of files: {how}"));
        if hung {
            // The hanging thread still uses the files.
            return Ok(counts);
        }
        for directory in [&path, &rescued].into_iter().filter(|directory| directory.exists()) {
            std::fs::remove_dir_all(directory)
                .map_err(|error| fail(format!("{}: {error}", directory.display())))?;
        }
    }
    if mutations >= 50 && counts.salvaged == 0 && can_be_salvaged(&bases[0].0, &path) {
        return Err(fail("nothing was salvaged".to_owned()));
    }
    Ok(counts)
}

/// Salvages a damaged table and checks that the new one is intact. Returns whether salvage created one.
fn salvage<T: FileSubject>(
    path: &Path,
    new: &Path,
    known: &Known,
    seed: u64,
) -> Result<bool, Outcome> {
    match catch_unwind(AssertUnwindSafe(|| AnyTable::salvage_files(path, new))) {
        Err(payload) => return Err(Outcome::Panicked(panic_text(payload.as_ref()))),
        Ok(Err(_)) => return Ok(false),
        Ok(Ok(_)) => {}
    }
    match probe(|| T::open_at(new, FileOptions::default()), known, seed, || ()) {
        Outcome::Unnoticed => Ok(true),
        // The damage changed the type names in the files. The new table has the changed names, too, so it is intact but
        // does not open with the original types.
        Outcome::Refused if is_clean(new) => Ok(true),
        found @ (Outcome::Panicked(_) | Outcome::Hung(_)) => Err(found),
        found => Err(Outcome::WrongRead(format!("the salvaged table: {found:?}"))),
    }
}

fn is_clean(path: &Path) -> bool {
    let report = AnyTable::open_read_only(path).and_then(|table| table.check());
    report.is_ok_and(|report| report.is_clean())
}

/// Returns whether the undamaged table can be opened by its type names, which salvage needs.
fn can_be_salvaged(files: &Directory, path: &Path) -> bool {
    write_directory(path, files).is_ok() && AnyTable::open_read_only(path).is_ok()
}

pub(crate) fn damage_some<F: Files>(files: &mut F, other: &mut F, rng: &mut Rng) -> String {
    let times = *rng.pick(&[1, 1, 1, 2, 4]);
    (0..times).map(|_| damage(files, other, rng)).collect::<Vec<_>>().join("; ")
}

pub(crate) fn looking(seed: u64, pool: &Pool) -> SimOptions {
    SimOptions {
        seed,
        recording: false,
        step_budget: STEP_BUDGET,
        pool: pool.clone(),
        ..SimOptions::default()
    }
}

/// Creates tables of different sizes and geometries, some closed cleanly and some not.
pub(crate) fn images<T: Subject>(seed: u64, pool: &Pool) -> Result<Vec<(Image, Known)>, Error> {
    let image = |n: u64| {
        let sim = Sim::new(SimOptions { model: Model::Pmem, ..looking(seed ^ n, pool) });
        let table = T::create_tiny(sim.clone(), n)?;
        let known = load(&table, seed ^ n, 20 + 40 * n)?;
        let unclean = sim.image();
        drop(table);
        Ok((if n % 3 == 2 { unclean } else { sim.image() }, known))
    };
    (0..TABLES).map(image).collect()
}

pub(crate) fn directories<T: FileSubject>(
    seed: u64,
    place: &Path,
) -> Result<Vec<(Directory, Arc<Known>)>, String> {
    std::fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
    let directory = |n: u64| {
        let path = place.join(format!("base-{n}"));
        let how = FileOptions { variant: n, ..FileOptions::default() };
        let table = T::create_at(&path, how).map_err(|error| error.to_string())?;
        let known = load(&table, seed ^ n, 20 + 100 * n).map_err(|error| error.to_string())?;
        drop(table);
        let files =
            read_directory(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        std::fs::remove_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok((files, Arc::new(known)))
    };
    (0..3).map(directory).collect()
}

/// Fills a table and removes some of the records again.
fn load<T: Durable<Key: Sample, Value: Sample>>(
    table: &T,
    seed: u64,
    operations: u64,
) -> Result<Known, Error> {
    let mut rng = Rng::fork(seed, 8);
    let mut known = Known::default();
    for n in 0..operations {
        let (key, value) = (rng.below(operations), 256 + n);
        let action = if rng.one_in(6) { Action::Remove } else { Action::Insert(value) };
        ask(table, Call { key, action })?;
        known.written.entry(key).or_default().insert(value);
    }
    Ok(known)
}

pub(crate) fn read_directory(path: &Path) -> std::io::Result<Directory> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        files
            .push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?));
    }
    files.sort();
    Ok(Directory(files))
}

pub(crate) fn write_directory(path: &Path, files: &Directory) -> std::io::Result<()> {
    std::fs::create_dir_all(path)?;
    files.0.iter().try_for_each(|(name, bytes)| std::fs::write(path.join(name), bytes))
}
