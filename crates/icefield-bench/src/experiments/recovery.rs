//! From a killed process to the first answer and to full speed (Dash Table 1 and Fig 14, Plush Fig 11, Iceberg 6).
//!
//! A child process loads a table and goes on inserting until it is killed. This process opens what is left. Lines read
//! before the first answer are counted on the simulated medium, which gets a copy of the killed table's files.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use icefield::Durability;
use icefield::pm::sim::{Counters, Image, Sim};
use icefield_testkit::workload::Distribution;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::{Value, json};

use super::growth::describe_space;
use crate::Outcome;
use crate::args::{Args, Batch, Medium};
use crate::keys::{KeySpace, Tally, value_of};
use crate::machine::part;
use crate::place::RemovedDir;
use crate::row::{PmCost, rounded};
use crate::session::{Session, chosen_designs, counting_sim};
use crate::stats::median;
use crate::table::{BenchTable, Call, Design, Place, Setup, structure_of};

/// The hidden experiment that is this one's child process.
pub(super) const CHILD: &str = "recovery-child";

/// Tables this large when no size is asked for.
const SIZES: [u64; 2] = [1_000_000, 8_000_000];

/// How long the child goes on inserting before it is killed.
const GRACE: Duration = Duration::from_millis(20);

/// Reads per batch while speed is watched: some tens of microseconds.
const WATCHED: usize = 1024;

pub(super) fn run(session: &mut Session) -> Outcome {
    let medium = session.medium();
    if !matches!(medium, Medium::Process | Medium::Pmem | Medium::Disk) {
        return Err("--medium: recovery needs files: process, pmem or disk".into());
    }
    let sizes: Vec<u64> = match session.args.keys {
        Some(keys) => vec![keys],
        None => SIZES.iter().map(|size| session.keys_or(*size)).collect(),
    };
    for design in session.designs.clone() {
        for keys in &sizes {
            one_size(session, design, medium, *keys)?;
        }
    }
    Ok(())
}

/// What opening cost.
#[derive(Default)]
struct Times {
    open_ms: Vec<f64>,
    first_answer_ms: Vec<f64>,
    full_speed_ms: Vec<f64>,
    mops: Vec<f64>,
}

fn one_size(session: &mut Session, design: &dyn Design, medium: Medium, keys: u64) -> Outcome {
    let mut row = session.row("recovery", design, medium);
    (row.keys, row.threads, row.batch) =
        (Some(keys), Some(session.machine.cores()), Some(Batch::Of(WATCHED)));
    let mut times = Times::default();
    for round in 0..session.repeat() {
        session
            .progress(&format!("recovery {}: loading {keys} records to be killed", design.name()));
        let path = session.fresh_path();
        let _removed = RemovedDir(Some(path.clone()));
        leave_killed(&session.args, design, medium, &path, keys)?;
        if round == 0 {
            session.progress(&format!("recovery {}: counting lines", design.name()));
            let (cost, lines) = lines_to_first_answer(session, design, &path)?;
            row.pm = Some(cost);
            row.extra("lines", lines);
            row.extra("first_answer_lines", cost.line_reads);
        }
        session.progress(&format!("recovery {}: opening {keys} records", design.name()));
        let place =
            Place::Dir { path, durability: medium.durability().unwrap_or(Durability::Process) };
        let table = reopen(session, design, &place, keys, round as u64, &mut times)?;
        describe_space(&mut row, &*table);
    }
    row.ops = Some(watched_reads(keys) as u64);
    row.throughput(&times.mops);
    for (name, values) in [
        ("open_ms", &times.open_ms),
        ("first_answer_ms", &times.first_answer_ms),
        ("full_speed_ms", &times.full_speed_ms),
    ] {
        row.extra(name, median(values).map(rounded));
    }
    session.output.row(row)
}

/// Opens the table, asks it one question, and watches its speed.
fn reopen(
    session: &mut Session,
    design: &dyn Design,
    place: &Place,
    keys: u64,
    round: u64,
    times: &mut Times,
) -> Outcome<Box<dyn BenchTable>> {
    let seed = session.args.seed + round;
    let asked = session.space.draw(Distribution::Uniform, keys, watched_reads(keys), seed);
    let began = Instant::now();
    let table = design.open(place)?;
    times.open_ms.push(milliseconds(began.elapsed()));
    let found = table.run(Call::Get, &asked[..1], Batch::None)?;
    times.first_answer_ms.push(milliseconds(began.elapsed()));
    session.check("the first answer", found, Call::Get.expected(&asked[..1]));

    let threads = session.machine.cores();
    let (_, parts) = session.machine.run(threads, |thread| {
        let (mut found, mut stamps) = (Tally::default(), Vec::new());
        for keys in asked[part(asked.len(), thread, threads)].chunks(WATCHED) {
            found.add(table.run(Call::Get, keys, Batch::Stream)?);
            stamps.push((began.elapsed(), keys.len()));
        }
        Ok::<_, icefield::Error>((found, stamps))
    });
    let (mut found, mut stamps) = (Tally::default(), Vec::new());
    for part in parts {
        let (tally, more) = part?;
        found.add(tally);
        stamps.extend(more);
    }
    session.check("answers after recovery", found, Call::Get.expected(&asked));
    let (full_speed, mops) = full_speed(&mut stamps);
    times.full_speed_ms.push(full_speed);
    times.mops.push(mops);
    Ok(table)
}

/// Reads until the speed is surely the usual one.
fn watched_reads(keys: u64) -> usize {
    (2 * keys as usize).clamp(WATCHED * 100, 20_000_000)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// When the speed first reached 90 % of that of the second half, in milliseconds since the opening, and the latter in
/// million reads per second.
fn full_speed(stamps: &mut [(Duration, usize)]) -> (f64, f64) {
    /// Completions that make a speed.
    const WINDOW: usize = 32;
    stamps.sort_unstable();
    let speed = |from: usize, to: usize| {
        let reads: usize = stamps[from + 1..=to].iter().map(|(_, reads)| reads).sum();
        reads as f64 / (stamps[to].0 - stamps[from].0).as_secs_f64().max(1e-9) / 1e6
    };
    let last = stamps.len() - 1;
    let usual = speed(last / 2, last);
    let windows = 0..last.saturating_sub(WINDOW);
    let reached = windows
        .clone()
        .find(|from| speed(*from, from + WINDOW) >= 0.9 * usual)
        .unwrap_or(windows.end);
    (milliseconds(stamps[reached].0), usual)
}

/// Lets a child process load a table at `path` and kills it.
fn leave_killed(
    args: &Args,
    design: &dyn Design,
    medium: Medium,
    path: &Path,
    keys: u64,
) -> Outcome {
    let mut program = args.program.clone();
    if program.is_empty() {
        program = vec![std::env::current_exe()?.into(), "bench".into()];
    }
    let mut child = Command::new(&program[0])
        .args(&program[1..])
        .arg(CHILD)
        .args(["--tables", design.name(), "--medium", medium.name()])
        .args(["--keys", &keys.to_string(), "--seed", &args.seed.to_string()])
        .args(
            args.stash_buckets
                .iter()
                .flat_map(|stash| ["--stash-buckets".to_owned(), stash.to_string()]),
        )
        .arg("--dir")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let ready = wait_until_ready(&mut child);
    std::thread::sleep(GRACE);
    child.kill()?;
    child.wait()?;
    ready
}

fn wait_until_ready(child: &mut Child) -> Outcome {
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line.trim() == READY {
        Ok(())
    } else {
        Err("the process that was to load the table ended early".into())
    }
}

const READY: &str = "ready";

/// The child: loads, says so, and inserts until it is killed.
pub(super) fn child(args: &Args) -> Outcome {
    // Nobody would ever end a child whose parent is gone.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let (designs, durability) =
        (chosen_designs(&args.tables)?, args.medium.and_then(Medium::durability));
    let (Some(keys), Some(path), Some(durability), [design]) =
        (args.keys, args.dir.clone(), durability, &*designs)
    else {
        return Err("recovery-child is started by recovery only".into());
    };
    let setup = Setup { capacity: keys, stash_buckets: args.stash_buckets.first().copied() };
    let table = design.create(&Place::Dir { path, durability }, setup)?;
    let space = KeySpace::new(args.seed);
    for begin in (0..keys).step_by(CHILD_STEP as usize) {
        let new = space.keys(begin..(begin + CHILD_STEP).min(keys));
        table.run(Call::TryInsert, &new, Batch::Stream)?;
    }
    println!("{READY}");
    std::io::stdout().flush()?;
    for begin in (keys..2 * keys).step_by(CHILD_STEP as usize) {
        table.run(Call::TryInsert, &space.keys(begin..begin + CHILD_STEP), Batch::None)?;
    }
    loop {
        std::thread::park();
    }
}

/// Keys that the child makes at a time.
const CHILD_STEP: u64 = 1 << 16;

/// Opens a copy of the files on the simulated medium and counts what happens until the first answer.
fn lines_to_first_answer(
    session: &mut Session,
    design: &dyn Design,
    path: &Path,
) -> Outcome<(PmCost, Value)> {
    let mut image = Image::default();
    for (region, _) in design.regions() {
        let file: PathBuf = path.join(region);
        if file.exists() {
            image.set_region(
                region,
                std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?,
            );
        }
    }
    let sim = Sim::from_image(&image, counting_sim(session.args.seed));
    drop(image);
    sim.begin_op();
    let before = sim.counters();
    let table = design.open(&Place::Simulated(sim.clone()))?;
    let key = session.space.key(0);
    let found = table.run(Call::Get, &[key], Batch::None)?;
    let after = sim.counters();
    session.check(
        "the first answer on the simulated medium",
        found,
        Tally { hits: 1, sum: value_of(key) },
    );
    Ok(difference(design, &before, &after))
}

fn difference(design: &dyn Design, before: &Counters, after: &Counters) -> (PmCost, Value) {
    let mut lines = serde_json::Map::new();
    let mut cost = PmCost {
        line_writes: (after.line_writes - before.line_writes) as f64,
        flushes: (after.flushes - before.flushes) as f64,
        fences: (after.fences - before.fences) as f64,
        media_reads: (after.media_reads - before.media_reads) as f64,
        media_writes: (after.media_writes - before.media_writes) as f64,
        line_reads: 0.0,
    };
    for (region, count) in &after.line_reads {
        let earlier = before
            .line_reads
            .iter()
            .find(|(name, _)| name == region)
            .map_or(0, |(_, count)| *count);
        cost.line_reads += (count - earlier) as f64;
        let structure = lines.entry(structure_of(design, region)).or_insert(json!(0));
        *structure = json!(structure.as_u64().unwrap_or(0) + count - earlier);
    }
    (cost, Value::Object(lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_speed_is_where_the_slow_start_ends() {
        // 100 slow completions of 1 ms each, then fast ones of 0.1 ms.
        let mut time = Duration::ZERO;
        let mut stamps: Vec<_> = (0..2_000)
            .map(|i| {
                time += Duration::from_micros(if i < 100 { 1_000 } else { 100 });
                (time, 1_000)
            })
            .collect();
        let (reached, mops) = full_speed(&mut stamps);
        assert!((95.0..105.0).contains(&reached), "{reached}");
        assert!((mops - 10.0).abs() < 0.01);
    }
}
