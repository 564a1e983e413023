//! The time from a killed process to the first answer and to full speed (Dash Table 1, Fig 14, Plush Fig 11, Iceberg
//! 6).
//!
//! A child process loads a table and then inserts and removes keys until it is killed. This process opens the
//! table. Lines read before the first answer are counted on the simulated medium, which gets a copy of the killed
//! table's files.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use icefield::storage::sim::{Image, Sim};
use icefield_torture::workload::Distribution;
use serde_json::json;

use super::amplification::Cost;
use super::child;
use crate::choice::chosen_designs;
use crate::prelude::*;
use crate::session::{counting_sim, setup};

/// The hidden experiment that the child process runs.
pub(super) const CHILD: &str = "recovery-child";

/// Numbers of records without `--keys`.
const SIZES: [u64; 2] = [1_000_000, 8_000_000];

/// The time between the end of loading and the kill.
const GRACE: Duration = Duration::from_millis(20);

/// Number of reads per batch while the speed is measured. A batch takes some tens of microseconds.
const WATCHED: usize = 1024;

pub(super) fn run(session: &mut Session) -> Outcome {
    let (medium, _) = session.medium_of_files()?;
    let sizes: Vec<u64> = match session.args.keys {
        Some(keys) => vec![keys],
        None => SIZES.iter().map(|size| session.keys_or(*size)).collect(),
    };
    for design in session.ours_on(medium)? {
        let threads = match session.args.threads.is_empty() && !design.recovers_on_threads {
            true => vec![session.machine.cores()],
            false => session.threads(),
        };
        for (keys, threads) in sizes.iter().flat_map(|keys| threads.iter().map(|n| (*keys, *n))) {
            let mut row = session.row(design, medium);
            row.at(threads, Batch::Of(WATCHED), keys, watched_reads(keys) as u64);
            for round in 0..session.repeat() {
                one_round(session, (design, medium), (keys, threads), round as u64, &mut row)?;
            }
            session.put(row)?;
        }
    }
    Ok(())
}

fn one_round(
    session: &Session,
    (design, medium): (DesignRef, Medium),
    (keys, threads): (u64, usize),
    round: u64,
    row: &mut Row,
) -> Outcome {
    let name = design.name;
    session.progress(&format!("recovery {name}: loading {keys} records to be killed"));
    let (place, dir) = session.place(medium);
    let Place::Dir { path, .. } = place.clone() else {
        return Err(Error::failed("the table is not in files"));
    };
    leave_killed(&session.args, design, medium, &path, keys)?;
    if round == 0 {
        session.progress(&format!("recovery {name}: counting lines"));
        describe_first_answer(session, design, &path, row)?;
    }
    session.progress(&format!("recovery {name}: opening {keys} records"));
    let placed = reopen(session, design, (place, dir), (keys, threads), (round, row))?;
    describe_space(row, &*placed);
    Ok(())
}

/// Opens the table, reads one key, and measures the speed of further reads.
fn reopen(
    session: &Session,
    design: DesignRef,
    (place, dir): (Place, RemovedDir),
    (keys, threads): (u64, usize),
    (round, row): (u64, &mut Row),
) -> Outcome<Placed> {
    let seed = session.args.seed + round;
    let asked = session.space.draw(Distribution::Uniform, keys, watched_reads(keys), seed);
    let began = Instant::now();
    let placed = Placed { table: design.open(&place, threads)?, design, place, dir };
    row.sample("open_ms", milliseconds(began.elapsed()));
    let found = placed.run(Call::Get, &asked[..1], Batch::None)?;
    row.sample("first_answer_ms", milliseconds(began.elapsed()));
    session.check_call(&placed, Call::Get, &asked[..1], found);

    let table = &*placed;
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
    session.check_call(&placed, Call::Get, &asked, found);
    let (full_speed, mops) = full_speed(&mut stamps);
    row.sample("full_speed_ms", full_speed);
    row.sample("mops", mops);
    // The curve of the last reopening replaces those of earlier ones.
    row.extra("curve", json!(curve(&stamps)));
    Ok(placed)
}

/// Returns the number of reads to measure, enough for the speed to become stable.
fn watched_reads(keys: u64) -> usize {
    (2 * keys as usize).clamp(WATCHED * 100, 20_000_000)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns two figures: the time after opening, in milliseconds, at which the speed first reached 90 % of the full
/// speed; and the full speed, in million reads per second, which is the speed over the second half of `stamps`. A stamp
/// is the time at which a batch of reads was completed, with the number of reads.
fn full_speed(stamps: &mut [(Duration, usize)]) -> (f64, f64) {
    /// The number of completed batches over which a speed is computed.
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
fn leave_killed(args: &Args, design: DesignRef, medium: Medium, path: &Path, keys: u64) -> Outcome {
    let mut more = vec!["--tables", design.name, "--medium", medium.name()];
    more.extend(args.small_pages.then_some("--small-pages"));
    let mut more: Vec<String> = more.into_iter().map(str::to_owned).collect();
    more.extend(args.stash_buckets.first().map(|stash| format!("--stash-buckets={stash}")));
    let yards = args.yards.first();
    more.extend(yards.map(|yards| format!("--yards={}/{}", yards.front, yards.back)));
    let mut process = child::start(args, CHILD, path, keys, &more)?;
    let ready = child::wait_until_ready(&mut process);
    std::thread::sleep(GRACE);
    let ended = process.kill().and_then(|()| process.wait());
    ended.map_err(|error| Error::file(Path::new("the child process"), error))?;
    ready
}

/// The child: loads, reports that it is ready, then inserts and removes keys until it is killed.
pub(super) fn child(args: &Args) -> Outcome {
    child::end_with_parent()?;
    let (designs, durability) = (chosen_designs(args)?, args.medium.and_then(Medium::durability));
    let (Some(keys), Some(path), Some(durability), [design]) =
        (args.keys, args.dir.clone(), durability, &*designs)
    else {
        return Err(Error::failed("recovery-child: only recovery starts it; run recovery"));
    };
    let place = Place::Dir { path, durability, huge_pages: args.huge_pages() };
    let table = design.create(&place, setup(args, keys))?;
    let space = KeySpace::new(args.seed);
    for begin in (0..keys).step_by(CHILD_STEP as usize) {
        let new = space.keys(begin..(begin + CHILD_STEP).min(keys));
        table.run(Call::TryInsert, &new, Batch::Stream)?;
    }
    child::report_ready()?;
    // These operations are in flight at the kill. Each inserts and removes a key, so the number of records stays the
    // same.
    let more = space.keys(keys..keys + CHILD_STEP);
    loop {
        table.run(Call::InsDel, &more, Batch::None)?;
    }
}

/// Number of keys that the child generates at a time.
const CHILD_STEP: u64 = 1 << 16;

/// The number of first reads whose costs are compared. Their costs differ, because a read may first have to recover the
/// segment of its key.
const QUESTIONS: u64 = 1001;

/// Opens a copy of the files on the simulated medium and reads keys from all over the table. Reports the accesses to
/// the medium until the first answer: those of opening, plus the median over the reads that cost at least half as much
/// as the most expensive one. If opening defers the recovery of segments to their first use, these are the reads that
/// recover a segment.
fn describe_first_answer(
    session: &Session,
    design: DesignRef,
    path: &Path,
    row: &mut Row,
) -> Outcome {
    let mut image = Image::default();
    for (region, _) in design.regions {
        let file: PathBuf = path.join(region);
        if file.exists() {
            let bytes = std::fs::read(&file).map_err(|error| Error::file(&file, error))?;
            image.set_region(region, bytes);
        }
    }
    let sim = Sim::from_image(&image, counting_sim(session.args.seed));
    drop(image);
    sim.begin_op();
    let (before, place) = (sim.counters(), Place::Simulated(sim.clone()));
    let table = design.open(&place, 1)?;
    let opening = Cost::since(design, &sim, &before);
    let placed = Placed { table, design, place, dir: RemovedDir(None) };
    let mut asked = Vec::new();
    for index in 0..QUESTIONS {
        let key = [session.space.key(index)];
        let (mut cost, found) = Cost::of_batch(&placed, Call::Get, &key, Batch::None)?;
        session.check_call(&placed, Call::Get, &key, found);
        let own = cost.pm.get("line_reads");
        cost.merge(&opening);
        asked.push((own, cost));
    }
    let dearest = asked.iter().map(|(own, _)| *own).fold(0.0, f64::max);
    asked.retain(|(own, _)| *own >= dearest / 2.0);
    asked.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let lines = |at: usize| asked[at].1.pm.get("line_reads");
    let middle = asked.len() / 2;
    row.extras([
        ("first_answer_lines", lines(middle)),
        ("first_answer_lines_min", lines(0)),
        ("first_answer_lines_max", lines(asked.len() - 1)),
    ]);
    asked.swap_remove(middle).1.describe(row);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_speed_is_where_the_slow_start_ends() {
        // 100 slow completions at intervals of 1 ms, then fast ones at intervals of 0.1 ms.
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
