//! Crash scenarios on the simulated medium.
//!
//! A history runs on a tiny table; just before each fence, at each growth and after each return, the images that a
//! crash could leave are opened with the table's ordinary `open` and judged: what was acknowledged or told is there,
//! what was in flight is wholly there or wholly absent (batches: per key a prefix; `clear`: all or nothing), nothing is
//! there twice or from nowhere, the table's own check is clean, its report says whether it was closed, and a crash
//! during recovery changes nothing. Where writes are acknowledged before they are durable, a key may also have any value
//! that it had since the last sync. Few images are enumerated, many are sampled. Other histories crash in the middle of
//! steps and go on, crash hundreds of times in a row, or run several threads.

mod blobs;
mod blocks;
pub(crate) mod capture;
mod expect;
mod history;
pub(crate) mod judge;
mod machine;
mod map;
pub mod mutate;
mod step;
mod threads;

use std::sync::Arc;
use std::time::Instant;

use icefield::SyncMode;
use icefield::pm::sim::{Model, Mutation, SimOptions, SiteLog};

use self::history::Counts;
use self::step::Draw;
use crate::failure::{Failure, guarded};
use crate::rng::mix;
use crate::shrink::shrink;
use crate::subject::Subject;

pub use self::machine::{Machine, Whole};
pub use self::step::{Step, universe};

/// The scenario's name.
pub const NAME: &str = "crash";

/// Crashes in a row, in the histories that do nothing else.
const ROW: usize = 600;

/// How much to run, and on what.
#[derive(Clone, Debug)]
pub struct CrashOptions {
    /// The first history's seed.
    pub seed: u64,
    /// Images to judge, at least.
    pub states: u64,
    /// What a crash may do.
    pub model: Model,
    /// When writes are acknowledged, under [`Model::Disk`].
    pub sync: SyncMode,
    /// Steps of a history.
    pub length: usize,
    /// Keys of a history.
    pub keys: usize,
    /// A crash point with at most so many images is enumerated.
    pub exhaustive: u64,
    /// Images of any other crash point.
    pub samples: u64,
    /// One in so many images is crashed again while it recovers.
    pub recover_one_in: u64,
    /// Also run histories of several threads.
    pub threads: bool,
    /// Shorten the first failing history.
    pub shrink: bool,
    /// Violations after which the run ends.
    pub enough: u64,
    /// When the run ends in any case.
    pub deadline: Option<Instant>,
    /// What to change about one site of the code.
    pub mutation: Option<Arc<Mutation>>,
    /// Where to log the sites of the code.
    pub sites: Option<SiteLog>,
}

impl Default for CrashOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            states: 20_000,
            model: Model::Pmem,
            sync: SyncMode::Always,
            length: 30,
            keys: 14,
            exhaustive: 64,
            samples: 16,
            recover_one_in: 12,
            threads: true,
            shrink: true,
            enough: 3,
            deadline: None,
            mutation: None,
            sites: None,
        }
    }
}

/// What a run did, and found.
#[derive(Clone, Debug, Default)]
pub struct CrashReport {
    /// Histories run.
    pub histories: u64,
    /// Steps of them.
    pub operations: u64,
    /// Crash points looked at.
    pub points: u64,
    /// Images opened and judged.
    pub states: u64,
    /// Histories that found something.
    pub violations: u64,
    /// The first of them, with its history shortened.
    pub first: Option<Failure>,
}

/// The constant part of a run.
#[derive(Clone, Debug)]
struct Plan {
    keys: Arc<[u64]>,
    length: usize,
    exhaustive: u64,
    samples: u64,
    recover_one_in: u64,
    /// Look only at crash points that the mutation has changed something about.
    only_mutated: bool,
    /// Writes are acknowledged before they are durable: each key may fall back to what it was since the last sync.
    relaxed: bool,
    sim: SimOptions,
}

impl Plan {
    fn new<M: Machine>(options: &CrashOptions) -> Self {
        Self {
            keys: step::universe(options.keys).into(),
            length: options.length,
            exhaustive: options.exhaustive,
            samples: options.samples,
            recover_one_in: options.recover_one_in.max(1),
            only_mutated: false,
            relaxed: options.model == Model::Disk && options.sync != SyncMode::Always,
            sim: SimOptions {
                model: options.model,
                sync: options.sync,
                mutation: options.mutation.clone(),
                sites: options.sites.clone(),
                exempt: M::EXEMPT,
                step_budget: 20_000_000,
                ..SimOptions::default()
            },
        }
    }
}

/// Whether the simulated medium of a seed says that fences cost nothing, so that both ways of making batches are tried.
pub(crate) fn fences_are_free(seed: u64) -> bool {
    mix(seed).is_multiple_of(4)
}

impl Plan {
    fn sim(&self, seed: u64) -> SimOptions {
        SimOptions { seed, free_fences: fences_are_free(seed), ..self.sim.clone() }
    }

    fn draw<M: Machine>(&self, seed: u64) -> Draw<'_> {
        Draw::new(seed, &self.keys, M::SIMPLE).relaxed(self.relaxed)
    }
}

/// What a history does. Follows from its seed, so that a run that begins with the seed of a failure begins with the
/// failure.
enum Kind {
    Plain,
    Row,
    Threads(u64),
}

impl Kind {
    fn of(seed: u64, threads: bool) -> Self {
        match mix(seed) % 16 {
            0 => Self::Row,
            1 | 2 if threads => Self::Threads(2),
            3 if threads => Self::Threads(3),
            _ => Self::Plain,
        }
    }
}

/// Runs histories of the block allocator that all tables share, with several claims at once.
#[must_use]
pub fn run_allocator(options: &CrashOptions) -> CrashReport {
    run_machine::<blocks::BlockMap>(options)
}

/// Runs histories of the blob store that all tables share, with blobs of many chunks.
#[must_use]
pub fn run_blob_store(options: &CrashOptions) -> CrashReport {
    run_machine::<blobs::BlobMap>(options)
}

/// Runs histories of the table `S` until enough images were judged.
#[must_use]
pub fn run<S: Subject>(options: &CrashOptions) -> CrashReport {
    run_machine::<Whole<S>>(options)
}

/// The same for anything that can be asked.
#[must_use]
pub fn run_machine<M: Machine>(options: &CrashOptions) -> CrashReport {
    let plan = Plan::new::<M>(options);
    let mut report = CrashReport::default();
    let mut seed = options.seed;
    let late = || options.deadline.is_some_and(|deadline| Instant::now() >= deadline);
    while report.states < options.states && report.violations < options.enough && !late() {
        let mut counts = Counts::default();
        let shorten = options.shrink && report.first.is_none();
        let result = match Kind::of(seed, options.threads) {
            Kind::Plain => {
                let steps = plan.draw::<M>(seed).history(plan.length);
                one_history::<M>(&plan, seed, &steps, &mut counts, shorten)
            }
            Kind::Row => crashes_in_a_row::<M>(&plan, seed, &mut counts),
            Kind::Threads(threads) => some_threads::<M>(&plan, seed, threads, &mut counts),
        };
        report.histories += 1;
        report.operations += counts.operations;
        report.points += counts.points;
        report.states += counts.states;
        if let Err(failure) = result {
            report.violations += 1;
            report.first.get_or_insert(failure);
        }
        seed = mix(seed);
    }
    report
}

fn some_threads<M: Machine>(
    plan: &Plan,
    seed: u64,
    threads: u64,
    counts: &mut Counts,
) -> Result<(), Failure> {
    guarded(NAME, seed, || {
        threads::run::<M>(plan, seed, threads, counts).map_err(|what| {
            Failure::new(NAME, seed, format!("{}, {threads} threads: {what}", M::NAME))
        })
    })
}

fn one_history<M: Machine>(
    plan: &Plan,
    seed: u64,
    steps: &[Step],
    counts: &mut Counts,
    shorten: bool,
) -> Result<(), Failure> {
    let attempt = |steps: &[Step], counts: &mut Counts| {
        guarded(NAME, seed, || {
            history::run::<M>(plan, seed, steps, counts)
                .map_err(|what| Failure::new(NAME, seed, format!("{}: {what}", M::NAME)))
        })
    };
    let Err(failure) = attempt(steps, counts) else { return Ok(()) };
    let mut short = steps.to_vec();
    if shorten {
        short = shrink(short, |steps| attempt(steps, &mut Counts::default()).is_err());
    }
    let failure = attempt(&short, &mut Counts::default()).err().unwrap_or(failure);
    Err(failure.with_trace(short.iter().map(|step| format!("{step:?}"))))
}

/// One table, one crash after the other, each inside a step; only what is read back after each is judged.
fn crashes_in_a_row<M: Machine>(
    plan: &Plan,
    seed: u64,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let plan = Plan { samples: 0, ..plan.clone() };
    let mut draw = plan.draw::<M>(seed);
    let steps: Vec<Step> = (0..ROW)
        .map(|at| match draw.step(at % 24 < 12) {
            step @ (Step::Reopen | Step::CrashIn { .. }) => step,
            step => Step::CrashIn {
                step: Box::new(step),
                at: 1 + draw.rng.below(24),
                pick: draw.rng.word(),
            },
        })
        .collect();
    let result = one_history::<M>(&plan, seed, &steps, counts, false);
    counts.states += ROW as u64;
    result
}
