//! Damaged indexes, on the simulated medium and in files. No call may panic or hang. Probes that verify their reads may
//! return wrong results only if `check` reports a fault or the checksums were forged. `check` must detect each flipped
//! bit of a sealed index, and so must a probe that reads its block.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use icefield::storage::Medium;
use icefield::storage::sim::{Image, Pool, Sim, SimOptions};
use icefield::{Error, JoinIndex};

use super::forge::forge;
use super::options::options;
use super::steps::{Pairs, Step, Trouble, first_pairs};
use crate::corrupt::damage::Directory;
use crate::corrupt::probe::Outcome;
use crate::corrupt::{Counts, NAME, PATIENCE, damage_some, read_directory, write_directory};
use crate::failure::{Failure, panic_text};
use crate::rng::Rng;
use crate::timed::{Ending, within};

/// Number of indexes to damage.
const INDEXES: u64 = 8;
/// Number of steps of the medium after which an index is reported as hanging.
const STEP_BUDGET: u64 = 20_000_000;
/// Number of keys of an index.
const KEYS: u64 = 30;
/// Size of a block with one checksum.
const BLOCK_BYTES: u64 = 4096;

fn looking(seed: u64, pool: &Pool) -> SimOptions {
    SimOptions {
        seed,
        recording: false,
        step_budget: STEP_BUDGET,
        pool: pool.clone(),
        ..SimOptions::default()
    }
}

/// Creates an index and its pairs. Every second index has only the sealed pairs; the others have changes in addition.
fn made<M: Medium>(
    seed: u64,
    n: u64,
    build: impl FnOnce(&Pairs) -> icefield::Result<JoinIndex<u64, M>>,
) -> Result<(JoinIndex<u64, M>, Pairs), String> {
    let mut rng = Rng::fork(seed, n);
    let mut pairs = first_pairs(&mut rng, KEYS, 40 + 200 * n);
    let index = build(&pairs).map_err(|error| error.to_string())?;
    for _ in 0..if n.is_multiple_of(2) { 0 } else { 15 } {
        let step = Step::draw(&mut rng, KEYS);
        step.run(&index, &pairs).map_err(|trouble| trouble.to_string())?;
        pairs.apply(&step);
    }
    Ok((index, pairs))
}

/// Creates the image of an index, closed or not.
fn made_image(seed: u64, n: u64, pool: &Pool) -> Result<(Image, Pairs), String> {
    let sim = Sim::new(looking(seed, pool));
    let (index, pairs) = made(seed, n, |pairs| options(n).build_on(sim.clone(), pairs))?;
    let open = sim.image();
    drop(index);
    Ok((if n % 4 == 3 { open } else { sim.image() }, pairs))
}

/// Creates the files of an index.
fn made_files(seed: u64, n: u64, place: &Path) -> Result<(Directory, Arc<Pairs>), String> {
    let path = place.join(format!("base-{n}"));
    let (index, pairs) = made(seed, n, |pairs| options(n).build_from(&path, pairs))?;
    drop(index);
    let files = read_directory(&path).and_then(|files| {
        std::fs::remove_dir_all(&path)?;
        Ok(files)
    });
    let files = files.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok((files, Arc::new(pairs)))
}

/// Uses `mutations` damaged indexes. Violations are counted, not returned.
///
/// # Errors
/// Returns an error if the undamaged indexes could not be created.
pub fn corrupt(seed: u64, mutations: u64) -> Result<Counts, Failure> {
    let pool = Pool::default();
    let bases: Result<Vec<_>, _> = (0..INDEXES).map(|n| made_image(seed, n, &pool)).collect();
    let bases = bases.map_err(|what| Failure::new(NAME, seed, what))?;
    let mut counts = Counts::default();
    for n in 0..mutations {
        let mut rng = Rng::fork(seed, 100 + n);
        let variant = rng.index(bases.len());
        let (base, pairs) = &bases[variant];
        let mut image = base.clone();
        let forged = rng.one_in(2);
        let how = match forged {
            true => forge(&mut image, &mut rng),
            false => damage_some(&mut image, &mut rng.pick(&bases).0.clone(), &mut rng),
        };
        let verify = !forged || rng.one_in(2);
        let outcome = guarded_use(variant as u64, &image, pairs, n, verify, &pool);
        counts.count(judged(outcome, forged), || format!("mutation {n}: {how}"));
    }
    Ok(counts)
}

/// Runs [`corrupt`] on real files below `place`.
///
/// # Errors
/// Returns an error if the undamaged indexes could not be created or the files could not be written.
pub fn corrupt_files(seed: u64, mutations: u64, place: &Path) -> Result<Counts, Failure> {
    let fail = |what: String| Failure::new(NAME, seed, what);
    let fault = |error: std::io::Error| fail(format!("{}: {error}", place.display()));
    std::fs::create_dir_all(place).map_err(fault)?;
    let bases: Result<Vec<_>, _> = (0..INDEXES).map(|n| made_files(seed, n, place)).collect();
    let bases = bases.map_err(fail)?;
    let path = place.join("damaged");
    let mut counts = Counts::default();
    for n in 0..mutations {
        let mut rng = Rng::fork(seed, 200 + n);
        let variant = rng.index(bases.len());
        let (base, pairs) = &bases[variant];
        let mut files = base.clone();
        let forged = rng.one_in(2);
        let how = match forged {
            true => forge(&mut files, &mut rng),
            false => damage_some(&mut files, &mut rng.pick(&bases).0.clone(), &mut rng),
        };
        let verify = !forged || rng.one_in(2);
        write_directory(&path, &files).map_err(fault)?;
        let (opened, pairs) = (path.clone(), Arc::clone(pairs));
        let used = within(PATIENCE, move || {
            use_damaged(&pairs, || options(variant as u64).verify(verify).open(&opened))
        });
        let outcome = used.unwrap_or_else(|ending| match ending {
            Ending::Panicked(text) => Outcome::Panicked(text),
            Ending::Stuck => Outcome::Hung("it did not end".to_owned()),
        });
        let hung = matches!(outcome, Outcome::Hung(_));
        counts.count(judged(outcome, forged), || format!("mutation {n} of files: {how}"));
        if hung {
            // The hanging thread still uses the files.
            return Ok(counts);
        }
        std::fs::remove_dir_all(&path).map_err(fault)?;
    }
    Ok(counts)
}

/// Accepts a wrong result if the checksums were forged, because such an index may contain other pairs than before.
fn judged(outcome: Outcome, forged: bool) -> Outcome {
    match outcome {
        Outcome::WrongRead(_) if forged => Outcome::Noticed,
        outcome => outcome,
    }
}

fn guarded_use(
    variant: u64,
    image: &Image,
    pairs: &Pairs,
    seed: u64,
    verify: bool,
    pool: &Pool,
) -> Outcome {
    let sim = Sim::from_image(image, looking(seed, pool));
    let open = || options(variant).verify(verify).open_on(sim);
    match catch_unwind(AssertUnwindSafe(|| use_damaged(pairs, open))) {
        Ok(outcome) => outcome,
        Err(payload) => {
            let text = panic_text(payload.as_ref());
            if text.starts_with(icefield::storage::sim::HANG) {
                Outcome::Hung(text)
            } else {
                Outcome::Panicked(text)
            }
        }
    }
}

/// Returns a probe for keys that may be present and for some that are not.
fn asked() -> Step {
    Step::Probe((0..2 * KEYS).chain([u64::MAX, 1 << 63]).collect())
}

/// Opens the index, checks it, probes, changes and merges it.
fn use_damaged<M: Medium>(
    pairs: &Pairs,
    open: impl FnOnce() -> icefield::Result<JoinIndex<u64, M>>,
) -> Outcome {
    let Ok(index) = open() else { return Outcome::Refused };
    let noticed = index.check().map_or(true, |report| !report.is_clean());
    let right = asked().run(&index, pairs);
    // Further calls on the damaged index must not panic.
    let _ = index.insert(1, 1).and_then(|()| index.remove(2)).and_then(|_| index.merge());
    let _ = (index.stats(), index.remove_pair(1, 1));
    // Callbacks that change the index during a probe or a pass must not panic either.
    let shown = AtomicU64::new(0);
    let change = |key: u64, payload: u64| {
        // Relaxed: only the number of calls matters.
        if shown.fetch_add(1, Ordering::Relaxed) % 64 < 2 {
            let _ = index.insert(key, payload).and_then(|()| index.remove_pair(key, payload));
            let _ = index.remove(payload).and_then(|_| index.merge());
        }
    };
    let _ = index.probe(&(0..KEYS).collect::<Vec<_>>(), |at, payload| change(at as u64, payload));
    let _ = index.for_each(change);
    match right {
        Ok(()) if noticed => Outcome::Noticed,
        Ok(()) => Outcome::Unnoticed,
        Err(Trouble::Error(_)) => Outcome::Noticed,
        Err(Trouble::Wrong(what)) if !noticed => Outcome::WrongRead(what),
        Err(Trouble::Wrong(_)) => Outcome::Noticed,
    }
}

/// Results of flipped bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flips {
    /// Bits flipped, one at a time.
    pub flipped: u64,
    /// Flips with which the index did not open.
    pub refused: u64,
    /// Flips with which the index opened, and a verifying probe failed.
    pub failed_probes: u64,
    /// Flips that only `check` detected: second copies, and bytes that no probe reads.
    pub only_checked: u64,
}

/// Flips bits of a sealed and closed index, one at a time: all of them if `stride` is 1, otherwise one in `stride`.
/// If the index opens, `check` must detect each flip. Verifying probes must return correct results or fail. They must
/// fail if the bit is in a block of the base that they read: any block but the first, which is the header, and the
/// last, which holds checksums.
///
/// # Errors
/// Returns a bit that was not detected, or a wrong result.
pub fn every_flip(seed: u64, stride: u64) -> Result<Flips, Failure> {
    let fail = |what: String| Failure::new("flip", seed, what);
    let pool = Pool::default();
    // Indexes of even variants have only sealed pairs.
    let variant = 2 * (seed % 4);
    let (base, pairs) = made_image(seed, variant, &pool).map_err(fail)?;
    let mut flips = Flips::default();
    let lengths: Vec<(&'static str, u64)> =
        base.regions().map(|(name, bytes)| (name, bytes.len() as u64)).collect();
    let mut image = base.clone();
    for (name, bytes) in lengths {
        let probed = BLOCK_BYTES..bytes.saturating_sub(BLOCK_BYTES);
        for bit in (seed % stride.max(1)..bytes * 8).step_by(stride.max(1) as usize) {
            flip(&mut image, name, bit);
            let is_probed = name.starts_with("base") && probed.contains(&(bit / 8));
            let must_fail = is_probed && !pairs.0.is_empty();
            let noticed = notices(variant, &image, &pairs, bit, &pool, must_fail);
            flip(&mut image, name, bit);
            flips.flipped += 1;
            let by = noticed.map_err(|what| fail(format!("{name}, bit {bit}: {what}")))?;
            match by {
                Noticed::Opening => flips.refused += 1,
                Noticed::Probe => flips.failed_probes += 1,
                Noticed::Check => flips.only_checked += 1,
            }
        }
    }
    Ok(flips)
}

fn flip(image: &mut Image, name: &str, bit: u64) {
    if let Some(byte) = image.region_mut(name).and_then(|bytes| bytes.get_mut(bit as usize / 8)) {
        *byte ^= 1 << (bit % 8);
    }
}

/// The call that detected a flipped bit.
enum Noticed {
    Opening,
    Probe,
    Check,
}

fn notices(
    variant: u64,
    image: &Image,
    pairs: &Pairs,
    seed: u64,
    pool: &Pool,
    must_fail: bool,
) -> Result<Noticed, String> {
    let sim = Sim::from_image(image, looking(seed, pool));
    let open: Result<JoinIndex<u64, Sim>, Error> = options(variant).verify(true).look_on(sim);
    let Ok(index) = open else { return Ok(Noticed::Opening) };
    if index.check().is_ok_and(|report| report.is_clean()) {
        return Err("neither opening nor `check` detected the damage".into());
    }
    match asked().run(&index, pairs) {
        Err(Trouble::Wrong(what)) => Err(what),
        Err(Trouble::Error(_)) => Ok(Noticed::Probe),
        Ok(()) if must_fail => Err("a verifying probe did not detect the damage".into()),
        Ok(()) => Ok(Noticed::Check),
    }
}
