//! Makes each flush, fence and store order of a table's code ineffective in turn: some crash scenario must notice, or the
//! site is untested or not needed.

use icefield::pm::sim::{Model, Mutation, Site, SiteKind, SiteLog};

use super::machine::{Machine, Whole};
use super::{CrashOptions, run_machine};
use crate::subject::Subject;

/// How much to run.
#[derive(Clone, Debug)]
pub struct MutateOptions {
    /// The first seed.
    pub seed: u64,
    /// What a crash may do.
    pub model: Model,
    /// Images that look for the sites.
    pub survey_states: u64,
    /// Images after which a mutation counts as not noticed.
    pub states: u64,
    /// Only sites in files whose path contains this.
    pub only: Option<String>,
}

impl Default for MutateOptions {
    fn default() -> Self {
        Self { seed: 1, model: Model::Pmem, survey_states: 20_000, states: 40_000, only: None }
    }
}

/// What became of the mutations.
#[derive(Clone, Debug, Default)]
pub struct MutateReport {
    /// Sites that matter: `caught` and `redundant` together.
    pub sites: u64,
    /// Those whose mutation some scenario noticed.
    pub caught: u64,
    /// Flushes and fences that nobody missed: untested, or not needed.
    pub redundant: Vec<Site>,
    /// Stores that may as well happen earlier, as far as any scenario can tell: their order against the fence before them,
    /// or against their line, is not needed.
    pub unordered: Vec<Site>,
    /// Sites at which the mutation never changed anything (a store without a fence before it, a flush of a clean line).
    pub idle: Vec<Site>,
}

/// Mutates every site that the table `S` reaches.
///
/// # Panics
/// The unmutated table fails already.
#[must_use]
pub fn run<S: Subject>(options: &MutateOptions) -> MutateReport {
    run_machine_sites::<Whole<S>>(options)
}

/// The same for anything that can be asked.
///
/// # Panics
/// The unmutated table fails already.
#[must_use]
pub fn run_machine_sites<M: Machine>(options: &MutateOptions) -> MutateReport {
    let sites = SiteLog::default();
    let base = CrashOptions {
        seed: options.seed,
        model: options.model,
        states: options.survey_states,
        threads: false,
        shrink: false,
        enough: 1,
        recover_one_in: 6,
        ..CrashOptions::default()
    };
    let survey = run_machine::<M>(&CrashOptions { sites: Some(sites.clone()), ..base.clone() });
    if let Some(failure) = survey.first {
        panic!("the unmutated table fails: {failure}");
    }
    let mut report = MutateReport::default();
    for (site, _) in sites.sites() {
        if options.only.as_ref().is_some_and(|part| !site.file.contains(part.as_str())) {
            continue;
        }
        let mutation = Mutation::of(site);
        let found = run_machine::<M>(&CrashOptions {
            states: options.states,
            mutation: Some(mutation.clone()),
            ..base.clone()
        });
        if found.violations > 0 {
            report.sites += 1;
            report.caught += 1;
        } else if mutation.applied() == 0 {
            report.idle.push(site);
        } else if site.kind == SiteKind::Store {
            report.unordered.push(site);
        } else {
            report.sites += 1;
            report.redundant.push(site);
        }
    }
    report
}
