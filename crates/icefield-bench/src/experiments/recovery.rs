//! From a killed process to the first answer and to full speed (Dash Table 1 and Fig 14, Plush Fig 11, Iceberg 6).
//!
//! A child process loads a table and then inserts and removes keys until it is killed. This process opens the
//! table. Lines read before the first answer are counted on the simulated medium, which gets a copy of the killed
//! table's files.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use icefield::Durability;
use icefield::storage::sim::{Image, Sim};
use icefield_torture::workload::Distribution;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::json;

use super::amplification::difference;
use super::growth::describe_space;
use crate::args::{Args, Batch, Medium};
use crate::keys::{KeySpace, Tally};
use crate::machine::part;
use crate::place::RemovedDir;
use crate::row::{PmCost, rounded};
use crate::session::{Session, chosen_designs, counting_sim};
use crate::stats::median;
use crate::table::{BenchTable, Call, Design, Place, Records, Setup};
use crate::{Error, Outcome};

/// The hidden experiment that the child process runs.
pub(super) const CHILD: &str = "recovery-child";

/// Numbers of records without `--keys`.
const SIZES: [u64; 2] = [1_000_000, 8_000_000];

/// The time between the end of loading and the kill.
const GRACE: Duration = Duration::from_millis(20);

/// Reads per batch while the speed is measured: some tens of microseconds.
const WATCHED: usize = 1024;

pub(super) fn run(session: &mut Session) -> Outcome {
    let medium = session.args.medium.unwrap_or(Medium::Pmem);
    if !matches!(medium, Medium::Process | Medium::Pmem | Medium::Disk) {
        return Err(Error::option("medium", "recovery needs files: process, pmem or disk"));
    }
    let sizes: Vec<u64> = match session.args.keys {
        Some(keys) => vec![keys],
        None => SIZES.iter().map(|size| session.keys_or(*size)).collect(),
    };
    for design in session.ours_on(medium)? {
        let threads = match session.args.threads.is_empty() && !design.recovers_on_threads() {
            true => vec![session.machine.cores()],
            false => session.threads(),
        };
        for keys in &sizes {
            for threads in &threads {
                one_size(session, design, medium, (*keys, *threads))?;
            }
        }
    }
    Ok(())
}

/// The times after opening.
#[derive(Default)]
struct Times {
    open_ms: Vec<f64>,
    first_answer_ms: Vec<f64>,
    full_speed_ms: Vec<f64>,
    mops: Vec<f64>,
    /// The curve of the last opening.
    curve: Vec<[f64; 2]>,
}

fn one_size(
    session: &mut Session,
    design: &'static dyn Design,
    medium: Medium,
    (keys, threads): (u64, usize),
) -> Outcome {
    let mut row = session.row("recovery", design, medium);
    (row.keys, row.threads, row.batch) = (Some(keys), Some(threads), Some(Batch::Of(WATCHED)));
    let mut times = Times::default();
    for round in 0..session.repeat() {
        session
            .progress(&format!("recovery {}: loading {keys} records to be killed", design.name()));
        let path = session.fresh_path();
        let _removed = RemovedDir(Some(path.clone()));
        leave_killed(&session.args, design, medium, &path, keys)?;
        if round == 0 {
            session.progress(&format!("recovery {}: counting lines", design.name()));
            let first = cost_to_first_answer(session, design, &path)?;
            row.pm = Some(first.cost);
            row.extra("lines", json!(first.lines));
            row.extra("first_answer_lines", first.cost.line_reads);
            row.extra("first_answer_lines_min", first.fewest_lines);
            row.extra("first_answer_lines_max", first.most_lines);
        }
        session.progress(&format!("recovery {}: opening {keys} records", design.name()));
        let durability = medium.durability().unwrap_or(Durability::Process);
        let place = Place::Dir { path, durability, huge_pages: session.args.huge_pages() };
        let table = reopen(session, design, &place, (keys, threads), round as u64, &mut times)?;
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
    row.extra("curve", json!(times.curve));
    session.put(row)
}

/// Opens the table, reads one key, and measures the speed of further reads.
fn reopen(
    session: &mut Session,
    design: &'static dyn Design,
    place: &Place,
    (keys, threads): (u64, usize),
    round: u64,
    times: &mut Times,
) -> Outcome<Box<dyn BenchTable>> {
    let seed = session.args.seed + round;
    let asked = session.space.draw(Distribution::Uniform, keys, watched_reads(keys), seed);
    let began = Instant::now();
    let table = design.open(place, threads)?;
    times.open_ms.push(milliseconds(began.elapsed()));
    let found = table.run(Call::Get, &asked[..1], Batch::None)?;
    times.first_answer_ms.push(milliseconds(began.elapsed()));
    session.check_call(design, &*table, (Call::Get, &asked[..1]), found);

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
    session.check_call(design, &*table, (Call::Get, &asked), found);
    let (full_speed, mops) = full_speed(&mut stamps);
    times.full_speed_ms.push(full_speed);
    times.curve = curve(&stamps);
    times.mops.push(mops);
    Ok(table)
}

/// Returns a number of reads after which the speed is stable.
fn watched_reads(keys: u64) -> usize {
    (2 * keys as usize).clamp(WATCHED * 100, 20_000_000)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the time after opening, in milliseconds, at which the speed first reached 90 % of that of the second
/// half, and that speed in million reads per second.
fn full_speed(stamps: &mut [(Duration, usize)]) -> (f64, f64) {
    /// Completions over which a speed is computed.
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

const SLICES: usize = 40;

/// Returns the throughput after opening (Dash Fig 14) in slices of time: the end of each slice in milliseconds
/// after opening, and its million reads per second. `stamps` are in order.
fn curve(stamps: &[(Duration, usize)]) -> Vec<[f64; 2]> {
    let Some((end, _)) = stamps.last() else { return Vec::new() };
    let slice = end.as_secs_f64().max(1e-9) / SLICES as f64;
    let mut reads = [0; SLICES];
    for (time, count) in stamps {
        reads[((time.as_secs_f64() / slice) as usize).min(SLICES - 1)] += count;
    }
    let point = |(index, reads): (usize, usize)| {
        [rounded((index + 1) as f64 * slice * 1e3), rounded(reads as f64 / slice / 1e6)]
    };
    reads.into_iter().enumerate().map(point).collect()
}

/// Starts a child process that loads a table at `path`, and kills it.
fn leave_killed(
    args: &Args,
    design: &'static dyn Design,
    medium: Medium,
    path: &Path,
    keys: u64,
) -> Outcome {
    let program = args.this_program()?;
    let fault = |error| Error::file(Path::new(&program[0]), error);
    let mut child =
        Command::new(&program[0])
            .args(&program[1..])
            .arg(CHILD)
            .args(["--tables", design.name(), "--medium", medium.name()])
            .args(["--keys", &keys.to_string(), "--seed", &args.seed.to_string()])
            .args(
                args.stash_buckets
                    .iter()
                    .flat_map(|stash| ["--stash-buckets".to_owned(), stash.to_string()]),
            )
            .args(args.yards.first().into_iter().flat_map(|yards| {
                ["--yards".to_owned(), format!("{}/{}", yards.front, yards.back)]
            }))
            .args(args.small_pages.then_some("--small-pages"))
            .arg("--dir")
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(fault)?;
    let ready = wait_until_ready(&mut child);
    std::thread::sleep(GRACE);
    child.kill().and_then(|()| child.wait()).map_err(fault)?;
    ready
}

fn wait_until_ready(child: &mut Child) -> Outcome {
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        // An unreadable line is not the expected word.
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    if line.trim() == READY {
        Ok(())
    } else {
        Err(Error::failed("the process that was to load the table ended early"))
    }
}

const READY: &str = "ready";

/// The child: loads, reports that it is ready, then inserts and removes keys until it is killed.
pub(super) fn child(args: &Args) -> Outcome {
    // A child whose parent died would never end.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Error::failed(format!("no signal when the parent ends: {error}")))?;
    let (designs, durability) = (chosen_designs(args)?, args.medium.and_then(Medium::durability));
    let (Some(keys), Some(path), Some(durability), [design]) =
        (args.keys, args.dir.clone(), durability, &*designs)
    else {
        return Err(Error::failed("recovery-child is started by recovery only"));
    };
    let setup = Setup {
        capacity: keys,
        hash: args.hash.unwrap_or_default(),
        link_ratio: None,
        fixed_size: false,
        levels: None,
        sync: args.sync.unwrap_or_default(),
        records: Records::default(),
        stash_buckets: args.stash_buckets.first().copied(),
        yards: args.yards.first().copied(),
        filled_up: false,
        seed: args.seed,
    };
    let huge_pages = args.huge_pages();
    let table = design.create(&Place::Dir { path, durability, huge_pages }, setup)?;
    let space = KeySpace::new(args.seed);
    for begin in (0..keys).step_by(CHILD_STEP as usize) {
        let new = space.keys(begin..(begin + CHILD_STEP).min(keys));
        table.run(Call::TryInsert, &new, Batch::Stream)?;
    }
    let mut out = std::io::stdout();
    writeln!(out, "{READY}").and_then(|()| out.flush()).map_err(crate::output::stdout_fault)?;
    // In flight at the kill; the number of records stays the same.
    let more = space.keys(keys..keys + CHILD_STEP);
    loop {
        table.run(Call::InsDel, &more, Batch::None)?;
    }
}

/// Keys that the child generates at a time.
const CHILD_STEP: u64 = 1 << 16;

/// The number of first reads whose costs are compared: the recovery work depends on the segment of the key.
const QUESTIONS: u64 = 1001;

/// The accesses to the medium until the first answer.
struct FirstAnswer {
    /// Of opening, plus the median of the first reads of a segment.
    cost: PmCost,
    /// Lines read by both, by structure.
    lines: BTreeMap<&'static str, u64>,
    fewest_lines: f64,
    most_lines: f64,
}

/// Opens a copy of the files on the simulated medium and reads keys from all over the table. Where opening leaves
/// recovery work to the first access to a segment, only those accesses count: they cost far more than others.
fn cost_to_first_answer(
    session: &mut Session,
    design: &'static dyn Design,
    path: &Path,
) -> Outcome<FirstAnswer> {
    let mut image = Image::default();
    for (region, _) in design.regions() {
        let file = path.join(region);
        if file.exists() {
            image.set_region(
                region,
                std::fs::read(&file).map_err(|error| Error::file(&file, error))?,
            );
        }
    }
    let sim = Sim::from_image(&image, counting_sim(session.args.seed));
    drop(image);
    sim.begin_op();
    let before = sim.counters();
    let table = design.open(&Place::Simulated(sim.clone()), 1)?;
    let opening = difference(design, &before, &sim.counters());
    let mut asked = Vec::new();
    for index in 0..QUESTIONS {
        let key = session.space.key(index);
        sim.begin_op();
        let before = sim.counters();
        let found = table.run(Call::Get, &[key], Batch::None)?;
        asked.push(difference(design, &before, &sim.counters()));
        session.check_call(design, &*table, (Call::Get, &[key]), found);
    }
    let dearest = asked.iter().map(|(cost, _)| cost.line_reads).fold(0.0, f64::max);
    asked.retain(|(cost, _)| cost.line_reads >= dearest / 2.0);
    asked.sort_by(|(one, _), (other, _)| one.line_reads.total_cmp(&other.line_reads));
    let (fewest, most) = (asked[0].0.line_reads, asked[asked.len() - 1].0.line_reads);
    let (cost, mut lines) = asked.swap_remove(asked.len() / 2);
    opening.1.iter().for_each(|(structure, count)| *lines.entry(structure).or_default() += count);
    Ok(FirstAnswer {
        cost: cost.plus(opening.0),
        lines,
        fewest_lines: fewest + opening.0.line_reads,
        most_lines: most + opening.0.line_reads,
    })
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
        let curve = curve(&stamps);
        assert_eq!(curve.len(), SLICES);
        assert!((0.5..1.5).contains(&curve[0][1]) && (9.0..11.0).contains(&curve[SLICES / 2][1]));
    }
}
