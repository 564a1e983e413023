//! A child process changes an index, acknowledges each step in a shared file, and is killed: at a random moment or at
//! a system call of the persistent layer, also during building, opening, merging and closing. The parent opens the
//! index and compares it with the result of the acknowledged steps.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use icefield::Durability;
use serde::{Deserialize, Serialize};

use super::options::options;
use super::steps::{Pairs, Step, first_pairs};
use crate::failure::Failure;
use crate::faulty::kill_at;
use crate::kill::ack::{Acks, Stage};
use crate::kill::{Counts, NAME, stage_name};
use crate::rng::Rng;

/// Number of rounds on one index before it is created anew.
const ROUNDS_PER_TABLE: u64 = 8;
/// Number of keys of an index.
const KEYS: u64 = 50;
/// Maximum number of pairs in a built index.
const PAIRS: u64 = 4000;
/// Time after which a child that is still alive is reported as hanging.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest time from a child's start of work to its death, if it is killed at a random moment.
const LIFE: Duration = Duration::from_millis(30);

/// The stages of an index's life in which at least one of many children must die. Closing is not listed, because it
/// takes only two stores.
pub const KILLED_IN: &[&str] = &["creating", "opening", "working"];

/// The orders of a child, in one line.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Orders {
    path: PathBuf,
    acks: PathBuf,
    seed: u64,
    /// Steps that are already done.
    first: u64,
    flushes: bool,
    die_at_call: Option<u64>,
    /// Steps between opening and closing.
    steps: u64,
    sessions: u64,
}

fn base(seed: u64) -> Pairs {
    first_pairs(&mut Rng::fork(seed, 3), KEYS, PAIRS)
}

fn step(seed: u64, number: u64) -> Step {
    let mut rng = Rng::fork(seed, 1000 + number);
    // Merges make the most system calls and therefore occur more often here.
    if rng.one_in(12) { Step::Merge } else { Step::draw(&mut rng, KEYS) }
}

/// Executes `orders` as the child.
///
/// # Errors
/// Returns a description of invalid orders, a failure of the index, or a wrong result.
pub fn child(orders: &str) -> Result<(), String> {
    let orders: Orders =
        serde_json::from_str(orders).map_err(|error| format!("orders: {error}"))?;
    let acks = Acks::open(&orders.acks).map_err(|error| format!("acknowledgements: {error}"))?;
    let mut next = orders.first;
    let mut pairs = base(orders.seed);
    (0..next).for_each(|number| pairs.apply(&step(orders.seed, number)));
    for _ in 0..orders.sessions {
        session(&orders, &acks, &mut pairs, &mut next)?;
    }
    Ok(())
}

fn session(orders: &Orders, acks: &Acks, pairs: &mut Pairs, next: &mut u64) -> Result<(), String> {
    let durability = if orders.flushes { Durability::PmemForced } else { Durability::Process };
    let mut how = options(orders.seed).durability(durability);
    if let Some(call) = orders.die_at_call {
        how = how.faults(kill_at(call));
    }
    let index = if orders.path.exists() {
        acks.set_stage(Stage::Opening);
        how.open(&orders.path)
    } else {
        acks.set_stage(Stage::Creating);
        how.build_from(&orders.path, pairs)
    };
    let index = index.map_err(|error| error.to_string())?;
    acks.set_stage(Stage::Working);
    for _ in 0..orders.steps {
        let step = step(orders.seed, *next);
        acks.begun(0).store(*next + 1, Ordering::Release);
        step.run(&index, pairs).map_err(|trouble| format!("step {next}: {trouble}"))?;
        *next += 1;
        acks.done(0).store(*next, Ordering::Release);
        pairs.apply(&step);
    }
    acks.set_stage(Stage::Closing);
    drop(index);
    acks.set_stage(Stage::Closed);
    Ok(())
}

/// Runs rounds on indexes below `place`, an empty or absent directory. `command` starts the child with its orders.
///
/// # Errors
/// Returns a lost or invented pair, an index that does not open or is not clean, or a child that failed before it was
/// killed.
pub fn kill(
    seed: u64,
    rounds: u64,
    place: &Path,
    command: &dyn Fn(&str) -> Command,
) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    for table in 0..rounds.div_ceil(ROUNDS_PER_TABLE) {
        let seed = seed.wrapping_add(table);
        let rounds = ROUNDS_PER_TABLE.min(rounds - table * ROUNDS_PER_TABLE);
        one_index(seed, rounds, place, command, &mut counts)
            .map_err(|what| Failure::new(NAME, seed, what))?;
    }
    Ok(counts)
}

fn one_index(
    seed: u64,
    rounds: u64,
    place: &Path,
    command: &dyn Fn(&str) -> Command,
    counts: &mut Counts,
) -> Result<(), String> {
    let io = |error: std::io::Error| format!("{}: {error}", place.display());
    if place.exists() {
        std::fs::remove_dir_all(place).map_err(io)?;
    }
    std::fs::create_dir_all(place).map_err(io)?;
    let (path, acks_path) = (place.join("index"), place.join("acks"));
    let mut rng = Rng::fork(seed, 4);
    let mut pairs = base(seed);
    let mut done = 0;
    for _ in 0..rounds {
        let acks = Acks::create(&acks_path).map_err(io)?;
        acks.begun(0).store(done, Ordering::Release);
        acks.done(0).store(done, Ordering::Release);
        let orders = Orders {
            path: path.clone(),
            acks: acks_path.clone(),
            seed,
            first: done,
            flushes: rng.one_in(2),
            die_at_call: (!rng.one_in(3))
                .then(|| 1 + rng.below(if path.exists() { 60 } else { 30 })),
            steps: 5 + rng.below(60),
            sessions: 40,
        };
        run_child(&orders, &mut rng, command, counts, &acks)?;
        counts.rounds += 1;
        let (begun, now) =
            (acks.begun(0).load(Ordering::Acquire), acks.done(0).load(Ordering::Acquire));
        counts.acked += now - done;
        (done..now).for_each(|number| pairs.apply(&step(seed, number)));
        let allowed =
            if begun > now { step(seed, now).outcomes(&pairs) } else { vec![pairs.clone()] };
        done = now;
        if !path.exists() {
            continue;
        }
        let found = judge(seed, &path, &allowed)?;
        // The next child recomputes the pairs from the number of completed steps. That works only if none or all of the
        // step in flight took effect.
        if found != pairs {
            pairs = found;
            done = begun;
            if allowed.last() != Some(&pairs) {
                // Only a part of a batch took effect, so the pairs cannot be recomputed: start with a new index.
                std::fs::remove_dir_all(&path).map_err(io)?;
                (pairs, done) = (base(seed), 0);
            }
        }
    }
    Ok(())
}

/// Starts a child and waits for its death.
fn run_child(
    orders: &Orders,
    rng: &mut Rng,
    command: &dyn Fn(&str) -> Command,
    counts: &mut Counts,
    acks: &Acks,
) -> Result<(), String> {
    let text = serde_json::to_string(orders).map_err(|error| error.to_string())?;
    let mut child = command(&text)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("the child did not start: {error}"))?;
    let started = Instant::now();
    let life = LIFE.mul_f64(rng.below(1000) as f64 / 1000.0);
    let mut born = None;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break status;
        }
        // `life` is measured from the moment at which the child has read its orders.
        if born.is_none() && acks.stage() != Stage::Starting {
            born = Some(Instant::now());
        }
        let dies = orders.die_at_call.is_none() && born.is_some_and(|born| born.elapsed() >= life);
        if dies || started.elapsed() > PATIENCE {
            child.kill().map_err(|error| error.to_string())?;
            let status = child.wait().map_err(|error| error.to_string())?;
            if !dies {
                return Err("the child hung".into());
            }
            break status;
        }
        std::thread::sleep(Duration::from_micros(200));
    };
    use std::os::unix::process::ExitStatusExt;
    if status.signal() == Some(9) {
        counts.killed += 1;
        counts.killed_at_call += u64::from(orders.die_at_call.is_some());
        *counts.stages.entry(stage_name(acks.stage())).or_default() += 1;
        return Ok(());
    }
    if status.success() {
        return Ok(());
    }
    let said = child.wait_with_output().map_err(|error| error.to_string())?;
    Err(format!("the child failed: {}", String::from_utf8_lossy(&said.stderr)))
}

/// Opens the index that a dead child has left, and returns its pairs.
fn judge(seed: u64, path: &Path, allowed: &[Pairs]) -> Result<Pairs, String> {
    // Open the index first as a reader, which changes nothing, then as a writer.
    let mut found = Pairs::default();
    for write in [false, true] {
        let index = options(seed).open(path).map_err(|error| format!("does not open: {error}"))?;
        if write {
            // Removing a pair that cannot exist makes this session the writer.
            index.remove_pair(u64::MAX, u64::MAX).map_err(|error| error.to_string())?;
        }
        found = Pairs::of_index(&index).map_err(|error| error.to_string())?;
        if !allowed.contains(&found) {
            let (count, wanted) = (found.0.len(), allowed.iter().map(|pairs| pairs.0.len()));
            return Err(format!(
                "has {count} pairs; allowed are the states with {:?}",
                wanted.collect::<Vec<_>>()
            ));
        }
        found.compare(&index).map_err(|trouble| trouble.to_string())?;
    }
    Ok(found)
}
