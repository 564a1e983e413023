//! Crash scenarios on the simulated medium.
//!
//! A history runs on a tiny table. Just before each fence, at each growth and after each return, the images that a
//! crash could leave are opened with the table's ordinary `open` and checked:
//!
//! - Acknowledged writes and returned values are present.
//! - An operation in flight is entirely present or entirely absent. After a crash in a batch, each key holds the effect
//!   of a prefix of the operations on it; a `clear` takes effect for all keys or for none.
//! - No record is duplicated or invented.
//! - The table's own check is clean, and its recovery report states correctly whether it was closed.
//! - After a crash during recovery, the next recovery has a correct result, too.
//!
//! Where writes are acknowledged before they are durable, a key may also have any value that it had since the last
//! sync. If a crash point has few images, all are checked; otherwise a sample is. Other histories crash in the middle
//! of steps and continue, crash hundreds of times in a row, or run several threads.

mod blobs;
mod blocks;
pub(crate) mod capture;
mod expect;
mod history;
pub(crate) mod judge;
mod machine;
mod map;
pub mod mutate;
mod options;
mod plan;
mod step;
mod threads;

use std::time::Instant;

use self::history::Counts;
use self::plan::Plan;
use crate::failure::{Failure, guarded};
use crate::rng::mix;
use crate::shrink::shrink;
use crate::subject::Subject;

pub use self::machine::{Machine, Whole};
pub use self::options::CrashOptions;
pub(crate) use self::plan::fences_are_free;
pub use self::step::{Step, universe};

/// The name of the scenario.
pub const NAME: &str = "crash";

/// Number of steps in a history that crashes in every step.
const ROW: usize = 600;

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub struct CrashReport {
    /// Histories run.
    pub histories: u64,
    /// Steps executed.
    pub operations: u64,
    /// Crash points examined.
    pub points: u64,
    /// Images opened and checked.
    pub states: u64,
    /// Histories with a violation.
    pub violations: u64,
    /// The first violation, with its history shortened.
    pub first: Option<Failure>,
}

/// The kind of a history. It follows from the seed, so that a run that starts with the seed of a failure starts with
/// the failing history.
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

/// Runs histories of the blob store that all tables share, with blobs of several chunks.
#[must_use]
pub fn run_blob_store(options: &CrashOptions) -> CrashReport {
    run_machine::<blobs::BlobMap>(options)
}

/// Runs histories of the table `S` until enough images were checked.
#[must_use]
pub fn run<S: Subject>(options: &CrashOptions) -> CrashReport {
    run_machine::<Whole<S>>(options)
}

/// Runs histories of any [`Machine`] until enough images were checked.
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

/// Crashes one table repeatedly, each time inside a step. Only the values that are read after each crash are checked.
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
