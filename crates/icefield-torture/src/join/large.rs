//! Crash images of an index that several threads build and merge. A fence makes only its own thread's flushes durable,
//! so each thread must fence. Images are taken after a build and after a merge.

use icefield::storage::sim::{Image, Pick, Sim, SimOptions};
use icefield::{JoinIndex, JoinOptions, MergeKind};

use super::steps::{Pairs, Step};
use crate::crash::{CrashOptions, NAME};
use crate::failure::{Failure, guarded};
use crate::rng::Rng;

/// Number of pairs of an index: enough for two threads.
const PAIRS: u64 = 70_000;
/// Number of pairs that are added and merged group by group.
const ADDED: u64 = 500;
/// Number of images of a crash point.
const SAMPLES: u64 = 6;

fn options(seed: u64) -> JoinOptions<u64> {
    // A wide filter makes more groups, so that there are enough for two threads.
    JoinIndex::options().hash_seed([seed, 0x1CE]).threads(2).filter_bits_per_key(64)
}

/// Builds and merges an index with two threads, under the options' model and mutation. Returns the number of images
/// checked.
///
/// # Errors
/// Returns an image that differs from the pairs built or merged.
pub fn crash_large(seed: u64, asked: &CrashOptions) -> Result<u64, Failure> {
    guarded(NAME, seed, || {
        run(seed, asked).map_err(|what| Failure::new(NAME, seed, format!("two threads: {what}")))
    })
}

fn run(seed: u64, asked: &CrashOptions) -> Result<u64, String> {
    let told = |error: icefield::Error| error.to_string();
    let mut rng = Rng::fork(seed, 3);
    let mut draw = |count| (0..count).map(|_| (rng.below(PAIRS), rng.word())).collect::<Vec<_>>();
    let mut pairs = Pairs(draw(PAIRS));
    pairs.0.sort_unstable();
    let sim = Sim::new(SimOptions {
        seed,
        model: asked.model,
        mutation: asked.mutation.clone(),
        sites: asked.sites.clone(),
        ..SimOptions::default()
    });
    let index = options(seed).build_on(sim.clone(), &pairs).map_err(told)?;
    judge(seed, &sim, &pairs).map_err(|what| format!("a build: {what}"))?;
    let added = draw(ADDED);
    index.insert_batch(&added).map_err(told)?;
    pairs.apply(&Step::Insert(added));
    let kind = index.merge().map_err(told)?.kind;
    if kind != MergeKind::PerBucket {
        return Err(format!("a merge of few changes is {kind:?}"));
    }
    judge(seed, &sim, &pairs).map_err(|what| format!("a merge: {what}"))?;
    Ok(2 * SAMPLES)
}

/// Opens images of the present moment and checks them.
fn judge(seed: u64, sim: &Sim, pairs: &Pairs) -> Result<(), String> {
    for n in 0..SAMPLES {
        let mut image = Image::default();
        sim.crash_point(|point| point.space().image(Pick::sample(n, seed), &mut image));
        let looking = SimOptions { seed, recording: false, ..SimOptions::default() };
        let index = options(seed).open_on(Sim::from_image(&image, looking));
        let index = index.map_err(|error| format!("does not open: {error}"))?;
        let report = index.check().map_err(|error| error.to_string())?;
        if !report.is_clean() {
            return Err(format!("{:?}", report.faults.first()));
        }
        if Pairs::of_index(&index).map_err(|error| error.to_string())? != *pairs {
            return Err("it has other pairs".to_owned());
        }
    }
    Ok(())
}
