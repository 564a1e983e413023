//! Lets the Nth system call of the persistent layer fail, for every N: either that one only, or all later ones too.
//! Meanwhile, a table is created, loaded beyond its first size, copied, closed and opened again. Each time, the caller
//! must get an error and no panic, acknowledged writes must be present, failed operations must have no effect, and no
//! lock may stay set.

pub(crate) mod ledger;
mod trial;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use icefield::storage::{Errno, FaultMode, FaultPlan};

use crate::failure::Failure;
use crate::faulty::fail_at;
use crate::file_subject::FileSubject;
use crate::timed::{Ending, within};
use trial::Trial;

/// The name of the scenario.
pub const NAME: &str = "faults";
/// Time after which a trial is reported as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// The error codes of failing calls.
const ERRORS: [Errno; 2] = [Errno::IO, Errno::NOSPC];
/// Upper bound on the number of system calls of a trial. The search for the last one ends there.
const MAX_CALLS: u64 = 100_000;

/// Results of a run in which system calls fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// System calls that failed, each in several ways.
    pub sites: u64,
    /// Names of these system calls.
    pub names: BTreeSet<&'static str>,
    /// Tables with a failing call.
    pub trials: u64,
    /// Errors that calls of the table returned.
    pub errors: u64,
    /// Trials that ended with a wrong or missing record, or with a table that does not open or is not clean.
    pub lost: u64,
    /// Trials that did not end.
    pub stuck: u64,
    /// Trials that panicked.
    pub aborts: u64,
    /// Descriptions of the first violations.
    pub examples: Vec<String>,
}

/// The violation of a trial.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    Lost(String),
    Stuck,
    Panicked(String),
}

impl Counts {
    /// Adds the results of other trials.
    pub fn add(&mut self, other: Self) {
        self.sites += other.sites;
        self.names.extend(other.names);
        self.trials += other.trials;
        self.errors += other.errors;
        self.lost += other.lost;
        self.stuck += other.stuck;
        self.aborts += other.aborts;
        self.examples.extend(other.examples);
    }

    /// Returns the number of violations.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.lost + self.stuck + self.aborts
    }

    pub(crate) fn count(&mut self, result: Result<u64, Trouble>, how: &str) {
        self.trials += 1;
        let example = match result {
            Ok(errors) => return self.errors += errors,
            Err(Trouble::Lost(what)) => {
                self.lost += 1;
                what
            }
            Err(Trouble::Stuck) => {
                self.stuck += 1;
                "stuck".to_owned()
            }
            Err(Trouble::Panicked(what)) => {
                self.aborts += 1;
                format!("panicked: {what}")
            }
        };
        if self.examples.len() < 20 {
            self.examples.push(format!("{how}: {example}"));
        }
    }

    /// Returns the counts if there was no violation.
    ///
    /// # Errors
    /// Returns an error for a violation, or if fewer than ten calls failed, or if the table returned no error.
    pub fn judged(self, seed: u64) -> Result<Self, Failure> {
        let what = format!(
            "{} lost, {} stuck, {} panicked of {} trials",
            self.lost, self.stuck, self.aborts, self.trials
        );
        if self.violations() > 0 {
            return Err(Failure::new(NAME, seed, what).with_trace(self.examples));
        }
        if self.sites < 10 || self.errors == 0 {
            return Err(Failure::new(NAME, seed, format!("too few calls failed: {self:?}")));
        }
        Ok(self)
    }
}

/// Fails every system call in turn, in tables below `place`. Violations are counted, so that one run shows all of
/// them.
///
/// # Errors
/// Returns an error if the trial fails without a fault.
pub fn scenario<T: FileSubject>(seed: u64, place: &Path) -> Result<Counts, Failure> {
    every_call(seed, &ERRORS, |plan| {
        let (place, plan) = (place.to_owned(), Arc::clone(plan));
        attempt(move || Trial::<T>::new(seed, &place, plan).run())
    })
}

/// Fails every call that `attempt` makes, in turn, with each of `errors`.
///
/// # Errors
/// Returns an error if the attempt fails without a fault.
pub(crate) fn every_call(
    seed: u64,
    errors: &[Errno],
    attempt: impl Fn(&Arc<FaultPlan>) -> Result<u64, Trouble>,
) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    let counting = Arc::new(FaultPlan::counting());
    if let Err(trouble) = attempt(&counting) {
        return Err(Failure::new(NAME, seed, format!("without any fault: {trouble:?}")));
    }
    counts.names = counting.sites().into_iter().collect();
    for nth in 1..MAX_CALLS {
        let mut fired = false;
        for (mode, errno) in [FaultMode::Once, FaultMode::ForGood]
            .into_iter()
            .flat_map(|mode| errors.iter().map(move |&errno| (mode, errno)))
        {
            let plan = fail_at(nth, mode, errno);
            let result = attempt(&plan);
            fired |= plan.calls() >= nth;
            counts.count(result, &format!("call {nth} fails {mode:?} with {errno:?}"));
            if counts.stuck > 0 {
                // The hanging thread still holds the table, so this place cannot be used again.
                return Ok(counts);
            }
        }
        if !fired {
            break;
        }
        counts.sites += 1;
    }
    Ok(counts)
}

/// Runs a trial on a separate thread, so that a hanging one is detected.
pub(crate) fn attempt(
    trial: impl FnOnce() -> Result<u64, String> + Send + 'static,
) -> Result<u64, Trouble> {
    match within(PATIENCE, trial) {
        Ok(result) => result.map_err(Trouble::Lost),
        Err(Ending::Stuck) => Err(Trouble::Stuck),
        Err(Ending::Panicked(what)) => Err(Trouble::Panicked(what)),
    }
}
