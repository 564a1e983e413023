//! Lets the Nth system call of the persistent layer fail, for every N: either that one only, or all later ones too.
//! Meanwhile, an index is built, changed, merged, copied, closed, opened, and replaced by a new build.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use icefield::storage::{Errno, FaultPlan};
use icefield::{Durability, Error, JoinIndex};

use super::options::options;
use super::steps::{Pairs, Step, Trouble, first_pairs};
use crate::failure::Failure;
use crate::faults::{Counts, attempt, every_call};
use crate::rng::Rng;

/// The error codes of failing calls.
const ERRORS: [Errno; 2] = [Errno::IO, Errno::NOSPC];
/// Number of keys of an index.
const KEYS: u64 = 20;
/// Number of steps of a trial.
const STEPS: u64 = 40;

/// Fails every system call in turn, in indexes below `place`. Violations are counted.
///
/// # Errors
/// Returns an error if the trial fails without a fault.
pub fn faults(seed: u64, place: &Path) -> Result<Counts, Failure> {
    every_call(seed, &ERRORS, |plan| {
        let (place, plan) = (place.to_owned(), Arc::clone(plan));
        attempt(move || Trial { seed, path: place.join("index"), place, plan, errors: 0 }.run())
    })
}

struct Trial {
    seed: u64,
    place: PathBuf,
    path: PathBuf,
    plan: Arc<FaultPlan>,
    errors: u64,
}

impl Trial {
    /// Runs the trial. Returns the number of errors, or a description of the violation.
    fn run(mut self) -> Result<u64, String> {
        for entry in std::fs::read_dir(&self.place).map_err(|error| error.to_string())? {
            let path = entry.map_err(|error| error.to_string())?.path();
            std::fs::remove_dir_all(&path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let mut rng = Rng::fork(self.seed, 5);
        let mut pairs = first_pairs(&mut rng, KEYS, 300);
        let mut allowed = vec![pairs.clone()];
        let durability = *rng.pick(&[Durability::Disk, Durability::PmemForced]);
        let faulty = options(self.seed).durability(durability).faults(Arc::clone(&self.plan));
        match faulty.build_from(&self.path, &pairs) {
            Err(error) => {
                self.note(&error)?;
                if self.path.exists() {
                    return Err("a failed build left files".into());
                }
            }
            Ok(index) => {
                self.change(&index, &mut rng, &mut pairs, &mut allowed)?;
                drop(index);
                self.reopen(&faulty, &mut allowed)?;
            }
        }
        self.plan.heal();
        self.judge(&allowed)?;
        Ok(self.errors)
    }

    fn note(&mut self, error: &Error) -> Result<(), String> {
        if self.plan.fired() == 0 {
            return Err(format!("an error without a fault: {error}"));
        }
        self.errors += 1;
        Ok(())
    }

    fn change(
        &mut self,
        index: &JoinIndex<u64>,
        rng: &mut Rng,
        pairs: &mut Pairs,
        allowed: &mut Vec<Pairs>,
    ) -> Result<(), String> {
        for _ in 0..STEPS {
            let step = Step::draw(rng, KEYS);
            match step.run(index, pairs) {
                Ok(()) => {
                    pairs.apply(&step);
                    *allowed = vec![pairs.clone()];
                }
                Err(Trouble::Wrong(what)) => return Err(what),
                Err(Trouble::Error(error)) => {
                    self.note(&error)?;
                    // A failed step has no effect, or the effect of the part that became durable. From then on, the
                    // index must return that state.
                    let outcomes = step.outcomes(pairs);
                    let found = Pairs::of_index(index).map_err(|error| error.to_string())?;
                    if !outcomes.contains(&found) {
                        return Err(format!("{step:?} failed and left {found:?}"));
                    }
                    if matches!(error, Error::Poisoned) {
                        // The medium may hold more than the index returns.
                        *allowed = outcomes;
                        return Ok(());
                    }
                    *pairs = found;
                    *allowed = vec![pairs.clone()];
                }
            }
        }
        let copy = self.place.join("copy");
        if let Err(error) = index.backup(&copy) {
            self.note(&error)?;
            return Ok(());
        }
        let copied =
            options(self.seed).open(&copy).map_err(|error| format!("the copy: {error}"))?;
        pairs.compare(&copied).map_err(|trouble| format!("the copy: {trouble}"))
    }

    /// Opens the index with faults, and builds another one in its place.
    fn reopen(
        &mut self,
        faulty: &icefield::JoinOptions<u64>,
        allowed: &mut Vec<Pairs>,
    ) -> Result<(), String> {
        match faulty.open(&self.path) {
            Err(error) => self.note(&error)?,
            Ok(index) => {
                let found = Pairs::of_index(&index).map_err(|error| error.to_string())?;
                if !allowed.contains(&found) {
                    return Err(format!("reopened with {found:?}"));
                }
            }
        }
        let other = first_pairs(&mut Rng::fork(self.seed, 6), KEYS, 300);
        match faulty.build_from(&self.path, &other) {
            Ok(_) => *allowed = vec![other],
            Err(error) => {
                self.note(&error)?;
                if matches!(error, Error::Poisoned | Error::Io { .. }) {
                    allowed.push(other);
                }
            }
        }
        Ok(())
    }

    /// Opens the index without faults and checks that it has an allowed state and accepts changes.
    fn judge(&self, allowed: &[Pairs]) -> Result<(), String> {
        if !self.path.exists() {
            let built = options(self.seed).build_from(&self.path, &allowed[0]);
            return built.map(drop).map_err(|error| format!("cannot be built: {error}"));
        }
        let index = options(self.seed)
            .open(&self.path)
            .map_err(|error| format!("does not open: {error}"))?;
        let mut found = Pairs::of_index(&index).map_err(|error| error.to_string())?;
        if !allowed.contains(&found) {
            return Err(format!("holds {found:?}, which is not one of {allowed:?}"));
        }
        for step in [Step::Insert(vec![(1, 1)]), Step::Merge, Step::Remove(vec![1]), Step::Merge] {
            step.run(&index, &found).map_err(|trouble| format!("{step:?}: {trouble}"))?;
            found.apply(&step);
        }
        found.compare(&index).map_err(|trouble| trouble.to_string())
    }
}
