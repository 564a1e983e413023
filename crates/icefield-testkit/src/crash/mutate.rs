//! Makes each flush, fence and store order of a table's code ineffective in turn: some crash scenario must notice, or
//! the site is untested or not needed.

use std::sync::Arc;

use icefield::SyncMode;
use icefield::pm::sim::{Model, Mutation, Site, SiteKind, SiteLog};

use super::blobs::BlobMap;
use super::blocks::BlockMap;
use super::history::Counts;
use super::machine::{Machine, Whole};
use super::{CrashOptions, Plan, one_history, run_machine};
use crate::rng::mix;
use crate::subject::Subject;

/// How much to run.
#[derive(Clone, Debug)]
pub struct MutateOptions {
    /// The first seed.
    pub seed: u64,
    /// What a crash may do.
    pub model: Model,
    /// When writes are acknowledged, under [`Model::Disk`].
    pub sync: SyncMode,
    /// Images that look for the sites.
    pub survey_states: u64,
    /// Histories that are tried for a site; only those that reach it are judged.
    pub histories: u64,
    /// Images after which a mutation counts as not noticed.
    pub states: u64,
    /// Only sites in files whose path contains this.
    pub only: Option<String>,
}

impl Default for MutateOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            model: Model::Pmem,
            sync: SyncMode::Always,
            survey_states: 40_000,
            histories: 1_000,
            states: 40_000,
            only: None,
        }
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
    /// Stores that may as well happen earlier, as far as any scenario can tell: their order against the fence before
    /// them, or against their line, is not needed.
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
    let mut report = run_machine_sites::<Whole<S>>(options);
    let on_disk = MutateOptions { model: Model::Disk, ..options.clone() };
    // The allocators are shared by all tables; some of their states need a machine that allocates all the time.
    report.redundant.retain(|site| {
        let mutation = Mutation::of(*site);
        let noticed = match site.file {
            file if file.ends_with("pm/alloc.rs") => is_noticed::<BlockMap>(options, &mutation),
            file if file.contains("pm/blob/") => is_noticed::<BlobMap>(options, &mutation),
            _ => false,
        };
        // What the order of the stores to one line makes sure of in memory has to be flushed on disks.
        let noticed = noticed || S::DISKS && is_noticed::<Whole<S>>(&on_disk, &mutation);
        !noticed
    });
    report.caught = report.sites - report.redundant.len() as u64;
    report
}

/// The same for anything that can be asked.
///
/// # Panics
/// The unmutated table fails already.
#[must_use]
pub fn run_machine_sites<M: Machine>(options: &MutateOptions) -> MutateReport {
    let sites = SiteLog::default();
    let survey = run_machine::<M>(&CrashOptions {
        states: options.survey_states,
        sites: Some(sites.clone()),
        ..crash_options(options)
    });
    if let Some(failure) = survey.first {
        panic!("the unmutated table fails: {failure}");
    }
    let mut report = MutateReport::default();
    for (site, _) in sites.sites() {
        if options.only.as_ref().is_some_and(|part| !site.file.contains(part.as_str())) {
            continue;
        }
        let mutation = Mutation::of(site);
        if is_noticed::<M>(options, &mutation) {
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

fn crash_options(options: &MutateOptions) -> CrashOptions {
    CrashOptions {
        seed: options.seed,
        model: options.model,
        sync: options.sync,
        threads: false,
        shrink: false,
        recover_one_in: 6,
        ..CrashOptions::default()
    }
}

fn is_noticed<M: Machine>(options: &MutateOptions, mutation: &Arc<Mutation>) -> bool {
    let mutated = CrashOptions { mutation: Some(mutation.clone()), ..crash_options(options) };
    let plan = Plan { only_mutated: true, ..Plan::new::<M>(&mutated) };
    // Without images a history is fast, and most do not reach a given site.
    let dry = Plan { samples: 0, ..plan.clone() };
    let mut counts = Counts::default();
    let mut seed = options.seed;
    for _ in 0..options.histories {
        if counts.states >= options.states {
            break;
        }
        seed = mix(seed);
        let steps = plan.draw::<M>(seed).history(plan.length);
        let before = mutation.applied();
        if one_history::<M>(&dry, seed, &steps, &mut Counts::default(), false).is_err() {
            return true;
        }
        let reached = mutation.applied() > before;
        if reached && one_history::<M>(&plan, seed, &steps, &mut counts, false).is_err() {
            return true;
        }
    }
    if mutation.site().kind == SiteKind::Store {
        return false;
    }
    // Perhaps only the recovery of certain images gets there: crash every recovery.
    let every = CrashOptions { states: options.states, recover_one_in: 1, enough: 1, ..mutated };
    run_machine::<M>(&every).violations > 0
}
