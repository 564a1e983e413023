//! Random changes and probes, with reopenings, against a simple list of pairs.

use std::path::Path;

use icefield::storage::Medium;
use icefield::storage::sim::{Model, Pool, Sim, SimOptions};
use icefield::{Error, JoinIndex};

use super::options::options;
use super::steps::{Pairs, Step, Trouble, first_pairs};
use crate::failure::{Failure, guarded};
use crate::rng::Rng;

/// Results of model histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelCounts {
    /// Histories without a fault.
    pub histories: u64,
    /// Steps executed.
    pub operations: u64,
    /// Reopenings.
    pub reopens: u64,
    /// Generations created by merges.
    pub merges: u64,
}

impl ModelCounts {
    /// Adds the results of other histories.
    pub fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.operations += other.operations;
        self.reopens += other.reopens;
        self.merges += other.merges;
    }
}

/// Runs a history of `length` steps on the simulated medium.
///
/// # Errors
/// Returns a wrong result, a broken invariant, or an error of the index.
pub fn model_simulated(
    seed: u64,
    length: usize,
    model: Model,
    pool: &Pool,
) -> Result<ModelCounts, Failure> {
    let mut session = 0;
    let mut fresh = |image: Option<Sim>| {
        session += 1;
        // Recording finds stores that bypass the medium. It is slow, so only some histories use it.
        let options = SimOptions {
            seed: seed ^ session,
            model,
            recording: seed.is_multiple_of(4),
            pool: pool.clone(),
            ..SimOptions::default()
        };
        match image {
            Some(sim) => Sim::from_image(&sim.image(), options),
            None => Sim::new(options),
        }
    };
    let mut present = None;
    let variant = seed;
    history(seed, length, |pairs| {
        let sim = match (&present, pairs) {
            (_, Some(_)) => fresh(None),
            (old, None) => fresh(Option::clone(old)),
        };
        present = Some(sim.clone());
        match pairs {
            Some(pairs) => options(variant).build_on(sim, pairs),
            None => options(variant).open_on(sim),
        }
    })
}

/// Runs a history of `length` steps in a directory, which must not exist yet.
///
/// # Errors
/// Returns the errors of [`model_simulated`].
pub fn model_in_files(seed: u64, length: usize, path: &Path) -> Result<ModelCounts, Failure> {
    // Every second history verifies the reads of probes.
    let options = options(seed).threads(1 + seed as usize % 3).verify(seed.is_multiple_of(2));
    let done = history(seed, length, |pairs| match pairs {
        Some(pairs) => options.build_from(path, pairs),
        None => options.open(path),
    });
    // A failure to remove the directory shows when the next index is created.
    let _ = std::fs::remove_dir_all(path);
    done
}

fn history<M: Medium>(
    seed: u64,
    length: usize,
    mut place: impl FnMut(Option<&Pairs>) -> Result<JoinIndex<u64, M>, Error>,
) -> Result<ModelCounts, Failure> {
    guarded("model", seed, || {
        let mut trace = Vec::new();
        run(seed, length, &mut place, &mut trace)
            .map_err(|trouble| Failure::new("model", seed, trouble.to_string()).with_trace(trace))
    })
}

fn run<M: Medium>(
    seed: u64,
    length: usize,
    place: &mut impl FnMut(Option<&Pairs>) -> Result<JoinIndex<u64, M>, Error>,
    trace: &mut Vec<String>,
) -> Result<ModelCounts, Trouble> {
    let mut rng = Rng::fork(seed, 1);
    let keys = 2 + rng.below(40);
    let mut pairs = first_pairs(&mut rng, keys, 700);
    let mut counts = ModelCounts { histories: 1, ..ModelCounts::default() };
    trace.push(format!("built of {} pairs", pairs.0.len()));
    let mut index = Some(place(Some(&pairs))?);
    for _ in 0..length {
        let Some(present) = &index else { break };
        counts.operations += 1;
        if rng.one_in(25) {
            trace.push("reopened".into());
            counts.merges += present.generation() - 1;
            counts.reopens += 1;
            drop(index.take());
            let again = place(None)?;
            // Subtract the merges of earlier sessions, which are already counted.
            counts.merges -= again.generation() - 1;
            pairs.compare(&again)?;
            index = Some(again);
            continue;
        }
        let step = Step::draw(&mut rng, keys);
        trace.push(format!("{step:?}"));
        step.run(present, &pairs)?;
        pairs.apply(&step);
    }
    if let Some(index) = &index {
        counts.merges += index.generation() - 1;
        pairs.compare(index)?;
    }
    Ok(counts)
}
