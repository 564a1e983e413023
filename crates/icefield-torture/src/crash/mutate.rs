//! Mutation testing of persistence: disables each flush, fence and store order of a table's code in turn. If no crash
//! scenario detects the mutation, the site is untested or redundant.

use std::sync::Arc;

use icefield::SyncMode;
use icefield::storage::sim::{Model, Mutation, Site, SiteKind, SiteLog};

use super::blobs::BlobMap;
use super::blocks::BlockMap;
use super::history::Counts;
use super::machine::{Machine, Whole};
use super::plan::Plan;
use super::{CrashOptions, CrashReport, one_history, run_machine, some_threads};
use crate::failure::Failure;
use crate::rng::mix;
use crate::subject::Subject;

/// Options of a mutation run.
#[derive(Clone, Debug)]
pub struct MutateOptions {
    /// The first seed.
    pub seed: u64,
    /// The crash model of the medium.
    pub model: Model,
    /// Determines when writes are acknowledged, under [`Model::Disk`].
    pub sync: SyncMode,
    /// Images to check in the survey that finds the sites.
    pub survey_states: u64,
    /// Histories to try for a site. Only those that reach it are checked.
    pub histories: u64,
    /// Images after which a mutation counts as undetected.
    pub states: u64,
    /// Restricts the run to sites in files whose path contains this string.
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

/// Results of a mutation run.
#[derive(Clone, Debug, Default)]
pub struct MutateReport {
    /// Number of sites in `caught` and `redundant`. The sites in `unordered` and `idle` are not counted.
    pub sites: u64,
    /// Sites whose mutation a scenario detected.
    pub caught: u64,
    /// Flushes and fences whose mutation no scenario detected: untested or redundant.
    pub redundant: Vec<Site>,
    /// Stores whose mutation no scenario detected: they need not become durable after the stores before the preceding
    /// fence, or after earlier stores to the same line.
    pub unordered: Vec<Site>,
    /// Sites at which the mutation never changed anything (a store without a fence before it, a flush of a clean
    /// line).
    pub idle: Vec<Site>,
}

/// The result of a history in which the mutation was not detected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    pub(crate) states: u64,
    /// Calls that returned although stores were not durable, because the mutation had disabled their flush or fence.
    pub(crate) lasting: u64,
}

/// Histories of something that can crash, with one site of its code mutated.
pub(crate) trait Histories {
    /// Runs the history of a seed and checks only crash points whose images the mutation may have changed. If
    /// `options.samples` is 0, it checks none.
    fn one(seed: u64, options: &CrashOptions) -> Result<Judged, Failure>;
    /// Runs a history of several threads. A thread yields to the others while the effect of the disabled flush or fence
    /// is missing. The default runs no history.
    fn together(_seed: u64, _options: &CrashOptions) -> Result<Judged, Failure> {
        Ok(Judged { states: 0, lasting: 0 })
    }
    /// Runs histories until enough images were checked.
    fn all(options: &CrashOptions) -> CrashReport;
}

impl<M: Machine> Histories for M {
    fn one(seed: u64, options: &CrashOptions) -> Result<Judged, Failure> {
        let plan = Plan { only_mutated: true, ..Plan::new::<M>(options) };
        let steps = plan.draw::<M>(seed).history(plan.length);
        let mut counts = Counts::default();
        one_history::<M>(&plan, seed, &steps, &mut counts, false)?;
        Ok(Judged { states: counts.states, lasting: counts.lasting })
    }

    fn together(seed: u64, options: &CrashOptions) -> Result<Judged, Failure> {
        let plan = Plan { only_mutated: true, ..Plan::new::<M>(options) };
        let mut counts = Counts::default();
        some_threads::<M>(&plan, seed, 2 + seed % 2, &mut counts)?;
        Ok(Judged { states: counts.states, lasting: counts.lasting })
    }

    fn all(options: &CrashOptions) -> CrashReport {
        run_machine::<M>(options)
    }
}

/// Mutates every site that the table `S` reaches.
///
/// # Panics
/// Panics if the unmutated table already fails.
#[must_use]
pub fn run<S: Subject>(options: &MutateOptions) -> MutateReport {
    run_sites::<Whole<S>>(options, S::DISKS)
}

/// Mutates every site that the machine `M` reaches.
///
/// # Panics
/// Panics if the unmutated machine already fails.
#[must_use]
pub fn run_machine_sites<M: Machine>(options: &MutateOptions) -> MutateReport {
    first_look::<M>(options)
}

/// Mutates every site that the histories reach. With `disks`, mutations that are undetected so far are tried again on
/// the disk model.
pub(crate) fn run_sites<H: Histories>(options: &MutateOptions, disks: bool) -> MutateReport {
    let mut report = first_look::<H>(options);
    let on_disk = MutateOptions { model: Model::Disk, ..options.clone() };
    // All tables share the allocators. Some allocator states need a machine that allocates in every step.
    report.redundant.retain(|site| {
        let mutation = Mutation::of(*site);
        let noticed = match site.file {
            file if file.contains("storage/alloc/") => is_noticed::<BlockMap>(options, &mutation),
            file if file.contains("storage/blob/") => is_noticed::<BlobMap>(options, &mutation),
            _ => false,
        };
        // In persistent memory, stores to one line become durable in order. On disks this order needs a flush.
        let noticed = noticed || disks && is_noticed::<H>(&on_disk, &mutation);
        !noticed
    });
    report.caught = report.sites - report.redundant.len() as u64;
    report
}

fn first_look<H: Histories>(options: &MutateOptions) -> MutateReport {
    let sites = SiteLog::default();
    let survey = H::all(&CrashOptions {
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
        if is_noticed::<H>(options, &mutation) {
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

/// Factor by which histories and images are increased before a mutation counts as undetected.
const MORE: u64 = 10;

fn is_noticed<H: Histories>(options: &MutateOptions, mutation: &Arc<Mutation>) -> bool {
    let mutated = CrashOptions {
        mutation: Some(mutation.clone()),
        states: options.states,
        ..crash_options(options)
    };
    let changes = |_: Judged, applied| applied;
    if judge_histories::<H>(&mutated, options.histories, changes) {
        return true;
    }
    if mutation.site().kind == SiteKind::Store {
        return false;
    }
    // Some sites are reached only by the recovery of certain images, so this run checks all crash points, and crashes
    // again during every recovery.
    let every = CrashOptions { recover_one_in: 1, enough: 1, ..mutated.clone() };
    if H::all(&every).violations > 0 {
        return true;
    }
    // Some mutations are detected only if calls of several threads overlap in a certain way, which differs by seed.
    if judge(&mutated, options.histories, |seed| H::together(seed, &mutated)) {
        return true;
    }
    // For some sites, a later fence of the same call nearly always covers the missing one, or detection depends on
    // chance, so more histories are tried.
    let more = CrashOptions { seed: !options.seed, states: options.states * MORE, ..mutated };
    let histories = options.histories * MORE;
    mutation.applied() > 0
        && (judge_histories::<H>(&more, histories, |dry, _| dry.lasting > 0)
            || judge_histories::<H>(&more, histories, changes))
}

/// Runs histories and returns whether one failed. Each history runs first without images, which is fast. `worth` gets
/// the result of that run and whether the mutation was applied in it, and decides whether to check the history's
/// images.
fn judge_histories<H: Histories>(
    mutated: &CrashOptions,
    histories: u64,
    worth: impl Fn(Judged, bool) -> bool,
) -> bool {
    let mutation = mutated.mutation.as_ref();
    let applied = || mutation.map(|mutation| mutation.applied());
    let dry = CrashOptions { samples: 0, ..mutated.clone() };
    judge(mutated, histories, |seed| {
        let before = applied();
        let found = H::one(seed, &dry)?;
        if worth(found, applied() != before) { H::one(seed, mutated) } else { Ok(found) }
    })
}

/// Runs at most `histories` histories, until enough images were checked. Returns whether a history failed.
fn judge(
    mutated: &CrashOptions,
    histories: u64,
    mut one: impl FnMut(u64) -> Result<Judged, Failure>,
) -> bool {
    let (mut states, mut seed) = (0, mutated.seed);
    for _ in 0..histories {
        if states >= mutated.states {
            break;
        }
        seed = mix(seed);
        match one(seed) {
            Ok(judged) => states += judged.states,
            Err(_) => return true,
        }
    }
    false
}
