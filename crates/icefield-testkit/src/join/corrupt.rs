//! Damaged indexes: none may panic, hang, or answer wrongly while probes verify what they read; and no flipped bit of a
//! sealed index escapes `check`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use icefield::JoinIndex;
use icefield::pm::sim::{Image, Pool, Sim, SimOptions};

use super::options;
use super::steps::{Pairs, Step, first_pairs};
use crate::corrupt::damage::damage;
use crate::corrupt::probe::Outcome;
use crate::corrupt::{Counts, NAME};
use crate::failure::{Failure, panic_text};
use crate::rng::Rng;

/// Indexes that are damaged in turn.
const INDEXES: u64 = 8;
/// Steps of the medium after which an index hangs.
const STEP_BUDGET: u64 = 20_000_000;
/// Keys of an index.
const KEYS: u64 = 30;

fn looking(seed: u64, pool: &Pool) -> SimOptions {
    SimOptions {
        seed,
        recording: false,
        step_budget: STEP_BUDGET,
        pool: pool.clone(),
        ..SimOptions::default()
    }
}

/// An index with its pairs, closed or not.
fn made(seed: u64, n: u64, pool: &Pool) -> Result<(Image, Pairs), String> {
    let mut rng = Rng::fork(seed, n);
    let sim = Sim::new(looking(seed, pool));
    let mut pairs = first_pairs(&mut rng, KEYS, 40 + 200 * n);
    let index = options(n).build_on(sim.clone(), &pairs).map_err(|error| error.to_string())?;
    // Every other one is sealed, without changes.
    for _ in 0..if n.is_multiple_of(2) { 0 } else { 15 } {
        let step = Step::draw(&mut rng, KEYS);
        step.run(&index, &pairs).map_err(|trouble| trouble.to_string())?;
        pairs.apply(&step);
    }
    let open = sim.image();
    drop(index);
    Ok((if n % 4 == 3 { open } else { sim.image() }, pairs))
}

/// Uses `mutations` damaged indexes. Violations are counted, not returned.
///
/// # Errors
/// The undamaged indexes could not be made.
pub fn corrupt(seed: u64, mutations: u64) -> Result<Counts, Failure> {
    let pool = Pool::default();
    let bases: Result<Vec<_>, _> = (0..INDEXES).map(|n| made(seed, n, &pool)).collect();
    let bases = bases.map_err(|what| Failure::new(NAME, seed, what))?;
    let mut counts = Counts::default();
    for n in 0..mutations {
        let mut rng = Rng::fork(seed, 100 + n);
        let variant = rng.index(bases.len());
        let (base, pairs) = &bases[variant];
        let mut image = base.clone();
        let times = *rng.pick(&[1, 1, 1, 2, 4]);
        let how: Vec<String> = (0..times)
            .map(|_| damage(&mut image, &mut rng.pick(&bases).0.clone(), &mut rng))
            .collect();
        let outcome = guarded_use(variant as u64, &image, pairs, n, &pool);
        counts.count(outcome, || format!("mutation {n}: {}", how.join("; ")));
    }
    Ok(counts)
}

fn guarded_use(variant: u64, image: &Image, pairs: &Pairs, seed: u64, pool: &Pool) -> Outcome {
    let sim = Sim::from_image(image, looking(seed, pool));
    match catch_unwind(AssertUnwindSafe(|| use_damaged(variant, sim, pairs))) {
        Ok(outcome) => outcome,
        Err(payload) => {
            let text = panic_text(payload.as_ref());
            if text.starts_with(icefield::pm::sim::HANG) {
                Outcome::Hung(text)
            } else {
                Outcome::Panicked(text)
            }
        }
    }
}

/// Opens, probes with verification, checks, changes, merges.
fn use_damaged(variant: u64, sim: Sim, pairs: &Pairs) -> Outcome {
    let Ok(index) = options(variant).verify(true).open_on(sim) else { return Outcome::Refused };
    let noticed = index.check().map_or(true, |report| !report.is_clean());
    let keys: Vec<u64> = (0..2 * KEYS).chain([u64::MAX, 1 << 63]).collect();
    let right = Step::Probe(keys).run(&index, pairs);
    // Whatever a caller may do next must not panic either, in what is there.
    let _ = index.insert(1, 1).and_then(|()| index.remove(2)).and_then(|_| index.merge());
    let _ = index.stats();
    match right {
        Ok(()) if noticed => Outcome::Noticed,
        Ok(()) => Outcome::Unnoticed,
        Err(super::steps::Trouble::Error(_)) => Outcome::Noticed,
        Err(super::steps::Trouble::Wrong(what)) if !noticed => Outcome::WrongRead(what),
        Err(super::steps::Trouble::Wrong(_)) => Outcome::Noticed,
    }
}

/// Flips bits of a sealed and closed index, each alone: all of them when `stride` is 1, else one in so many. `check`
/// must notice every one, if the index opens at all; and probes that verify must answer rightly or fail. Gives how many
/// bits were flipped.
///
/// # Errors
/// A bit that nobody noticed, or a wrong answer.
pub fn every_flip(seed: u64, stride: u64) -> Result<u64, Failure> {
    let fail = |what: String| Failure::new("flip", seed, what);
    let pool = Pool::default();
    // An even number is one without changes.
    let (base, pairs) = made(seed, 2 * (seed % 4), &pool).map_err(fail)?;
    let variant = 2 * (seed % 4);
    let mut flipped = 0;
    let lengths: Vec<(&'static str, u64)> =
        base.regions().map(|(name, bytes)| (name, bytes.len() as u64 * 8)).collect();
    let mut image = base.clone();
    for (name, bits) in lengths {
        for bit in (seed % stride.max(1)..bits).step_by(stride.max(1) as usize) {
            flip(&mut image, name, bit);
            let noticed = notices(variant, &image, &pairs, bit, &pool);
            flip(&mut image, name, bit);
            flipped += 1;
            noticed.map_err(|what| fail(format!("{name}, bit {bit}: {what}")))?;
        }
    }
    Ok(flipped)
}

fn flip(image: &mut Image, name: &str, bit: u64) {
    if let Some(byte) = image.region_mut(name).and_then(|bytes| bytes.get_mut(bit as usize / 8)) {
        *byte ^= 1 << (bit % 8);
    }
}

fn notices(
    variant: u64,
    image: &Image,
    pairs: &Pairs,
    seed: u64,
    pool: &Pool,
) -> Result<(), String> {
    let sim = Sim::from_image(image, looking(seed, pool));
    let open: Result<JoinIndex<u64, Sim>, _> = options(variant).verify(true).look_on(sim);
    let Ok(index) = open else { return Ok(()) };
    if index.check().is_ok_and(|report| report.is_clean()) {
        return Err("nobody noticed".into());
    }
    let keys: Vec<u64> = (0..2 * KEYS).chain([u64::MAX, 1 << 63]).collect();
    match Step::Probe(keys).run(&index, pairs) {
        Err(super::steps::Trouble::Wrong(what)) => Err(what),
        _ => Ok(()),
    }
}
