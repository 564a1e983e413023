//! The time of each call with all threads at work and splits inside the window (DLHT Fig 15, Plush Fig 7).
//!
//! For tables that report when their records move, the inserts between the first and the last moved bucket are also
//! reported separately.

use std::time::Instant;

use super::growth::{describe_space, detail, is_moving};
use crate::Outcome;
use crate::args::Batch;
use crate::keys::Tally;
use crate::machine::part;
use crate::row::{Row, rounded};
use crate::session::Session;
use crate::stats::{Histogram, histogram};
use crate::table::{BenchTable, Call, Design};

/// The calls in order; each leaves the table in the state that the next one needs.
pub(super) const CALLS: [(&str, Call); 7] = [
    ("get", Call::Get),
    ("get-miss", Call::GetMiss),
    ("try_insert", Call::TryInsert),
    ("insert", Call::Insert),
    ("put", Call::Put),
    ("update", Call::Update),
    ("remove", Call::Remove),
];

/// Inserts between two checks of whether the table is moving records.
const LOOK: usize = 64;

/// Times of calls: those while the table moved its records, and all others.
struct Times {
    still: Histogram,
    moving: Histogram,
}

struct Measured {
    row: Row,
    mops: Vec<f64>,
    times: Times,
}

pub(super) fn run(session: &mut Session) -> Outcome {
    for threads in session.threads() {
        let designs = session.contenders(&[Call::Get], threads)?;
        let mut measured: Vec<Vec<Measured>> = designs.iter().map(|_| Vec::new()).collect();
        for round in 0..session.repeat() {
            for (design, measured) in designs.iter().zip(&mut measured) {
                one_table(session, *design, threads, round as u64, measured)?;
            }
        }
        for mut one in measured.into_iter().flatten() {
            one.row.throughput(&one.mops);
            describe_moving(&mut one.row, &one.times.moving);
            one.times.still += &one.times.moving;
            describe(&mut one.row, &one.times.still);
            session.put(one.row)?;
        }
    }
    Ok(())
}

fn one_table(
    session: &mut Session,
    design: &'static dyn Design,
    threads: usize,
    round: u64,
    measured: &mut Vec<Measured>,
) -> Outcome {
    let (placed, keys) = session.create_loaded(design)?;
    let ops = session.ops(keys);
    let splits = || detail(&placed.table.stats(), "splits");
    let offered = CALLS.into_iter().filter(|(_, call)| design.offers(*call));
    for (i, (name, call)) in offered.enumerate() {
        if measured.len() == i {
            let mut row = session.row("latency", design, session.medium(design));
            (row.op, row.threads, row.batch) = (name, Some(threads), Some(Batch::None));
            (row.keys, row.ops) = (Some(keys), Some(ops));
            measured.push(Measured { row, mops: Vec::new(), times: Times::new() });
        }
        session.progress(&format!("latency {}: {name}, {threads} threads", design.name()));
        let phase = phase_keys(session, call, keys, ops, round);
        let splits_before = splits();
        let (time, parts) = session.run(&*placed.table, threads, |thread| {
            timed_calls(&*placed.table, call, &phase[part(phase.len(), thread, threads)])
        });
        let one = &mut measured[i];
        one.mops.push(phase.len() as f64 / time.as_secs_f64() / 1e6);
        let mut found = Tally::default();
        for part in parts {
            let (tally, times) = part?;
            found.add(tally);
            one.times.still += times.still;
            one.times.moving += times.moving;
        }
        describe_space(&mut one.row, &*placed.table);
        if let (Some(before), Some(after)) = (splits_before, splits()) {
            one.row.extra("splits", after - before);
        }
        session.check_call(design, &*placed.table, (call, &phase), found);
    }
    Ok(())
}

impl Times {
    fn new() -> Self {
        Self { still: histogram(), moving: histogram() }
    }
}

/// Makes the calls one by one and records the time of each.
fn timed_calls(
    table: &dyn BenchTable,
    call: Call,
    keys: &[u64],
) -> icefield::Result<(Tally, Times)> {
    let (mut tally, mut times) = (Tally::default(), Times::new());
    let grows = matches!(call, Call::TryInsert | Call::Insert | Call::Put);
    if !grows || is_moving(table).is_none() {
        tally.add(table.run_timed(call, keys, &mut times.still)?);
        return Ok((tally, times));
    }
    for keys in keys.chunks(LOOK) {
        let moving = is_moving(table) == Some(true);
        let times = if moving { &mut times.moving } else { &mut times.still };
        tally.add(table.run_timed(call, keys, times)?);
    }
    Ok((tally, times))
}

/// Returns the keys of a phase: reads, updates and removals use loaded keys, each kind of insert has new keys.
pub(super) fn phase_keys(
    session: &Session,
    call: Call,
    keys: u64,
    ops: u64,
    round: u64,
) -> Vec<u64> {
    let space = session.space;
    match call {
        Call::Get | Call::Update => {
            space.draw(session.args.dist, keys, ops as usize, session.args.seed + round)
        }
        Call::Remove => space.keys(0..ops.min(keys)),
        Call::Insert => space.keys(keys + ops..keys + 2 * ops),
        Call::Put => space.keys(keys + 2 * ops..keys + 3 * ops),
        _ => space.keys(keys..keys + ops),
    }
}

fn describe(row: &mut Row, times: &Histogram) {
    let at = |quantile| times.value_at_quantile(quantile) as f64;
    row.mean_ns = Some(rounded(times.mean()));
    row.p50_ns = Some(at(0.50));
    row.p95_ns = Some(at(0.95));
    row.p99_ns = Some(at(0.99));
    row.p999_ns = Some(at(0.999));
    row.p9999_ns = Some(at(0.9999));
    row.max_ns = Some(times.max() as f64);
    row.extra("samples", times.len());
    row.extra("timer_ns", rounded(timer_ns()));
}

/// Reports the calls that ran while the table moved its records, if there were any.
fn describe_moving(row: &mut Row, times: &Histogram) {
    if times.is_empty() {
        return;
    }
    let at = |quantile| times.value_at_quantile(quantile) as f64;
    let (middle, tail) = (at(0.50), at(0.999));
    row.extra("moving_samples", times.len());
    row.extra("moving_p50_ns", middle);
    row.extra("moving_p999_ns", tail);
    row.extra("moving_max_ns", times.max() as f64);
    row.extra("moving_tail_ratio", rounded(tail / middle.max(1.0)));
}

/// Returns the cost of reading the clock, which is included in each time.
fn timer_ns() -> f64 {
    const READS: u32 = 10_000;
    let began = Instant::now();
    for _ in 0..READS {
        std::hint::black_box(Instant::now());
    }
    began.elapsed().as_nanos() as f64 / f64::from(READS)
}
