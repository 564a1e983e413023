//! The time of each call while all threads work and tables split (DLHT Fig 15 at full load,
//! Iceberg Tables 2 and 5, Plush Fig 7).
//!
//! Some tables report when they move their records. For these, the inserts between the first and the last moved bucket
//! are also reported separately.

use std::time::Instant;

use crate::prelude::*;
use crate::stats::{Histogram, histogram};
use crate::table::Timed;
use crate::table_stats::is_moving;

/// The calls. Each leaves the table in the state that the next call needs.
pub(super) const CALLS: [(&str, Call); 7] = [
    ("get", Call::Get),
    ("get-miss", Call::GetMiss),
    ("try_insert", Call::TryInsert),
    ("insert", Call::Insert),
    ("put", Call::Put),
    ("update", Call::Update),
    ("remove", Call::Remove),
];

/// The number of inserts between two checks of the table's statistics, which report whether it is moving records.
const LOOK: usize = 64;

/// Times of calls: those while the table was at rest, and those while it moved its records.
type Times = [Histogram; 2];

pub(super) fn run(session: &mut Session) -> Outcome {
    for threads in session.threads() {
        let designs = session.contenders(&[Call::Get], threads)?;
        let mut measured: Vec<Vec<(Row, Times)>> = vec![Vec::new(); designs.len()];
        for round in 0..session.repeat() {
            for (design, measured) in designs.iter().zip(&mut measured) {
                one_table(session, design, (threads, round as u64), measured)?;
            }
        }
        for (mut row, [still, moving]) in measured.into_iter().flatten() {
            describe_moving(&mut row, &moving);
            describe(&mut row, &(still + moving));
            session.put(row)?;
        }
    }
    Ok(())
}

fn one_table(
    session: &Session,
    design: DesignRef,
    (threads, round): (usize, u64),
    measured: &mut Vec<(Row, Times)>,
) -> Outcome {
    let (placed, keys) = session.create_loaded(design)?;
    let ops = session.ops(keys);
    let splits = || detail(&placed.stats(), "splits");
    let offered = CALLS.into_iter().filter(|(_, call)| design.offers(*call));
    for (i, (name, call)) in offered.enumerate() {
        if measured.len() == i {
            let mut row = session.row(design, session.medium(design));
            name.clone_into(&mut row.op);
            row.at(threads, Batch::None, keys, ops);
            measured.push((row, [histogram(), histogram()]));
        }
        session.progress(&format!("latency {}: {name}, {threads} threads", design.name));
        let phase = phase_keys(session, call, keys, ops, round);
        let splits_before = splits();
        let (time, parts) = session.run(&*placed, threads, |thread| {
            timed_calls(&*placed, call, &phase[part(phase.len(), thread, threads)])
        });
        let (row, [still, moving]) = &mut measured[i];
        row.sample("mops", mops(phase.len(), time));
        let mut found = Tally::default();
        for part in parts {
            let (tally, times) = part?;
            found.add(tally);
            *still += &times[0];
            *moving += &times[1];
        }
        describe_space(row, &*placed);
        row.extra("splits", splits_before.zip(splits()).map(|(before, after)| after - before));
        session.check_call(&placed, call, &phase, found);
    }
    Ok(())
}

/// Makes the calls one by one and records the time of each.
fn timed_calls(
    table: &dyn BenchTable,
    call: Call,
    keys: &[u64],
) -> icefield::Result<(Tally, Times)> {
    let (mut tally, mut times) = (Tally::default(), [histogram(), histogram()]);
    let steps = if call.adds() && is_moving(table).is_some() { LOOK } else { keys.len().max(1) };
    for keys in keys.chunks(steps) {
        let moving = steps == LOOK && is_moving(table) == Some(true);
        tally.add(table.run_timed(Timed::each(&call, keys), &mut times[usize::from(moving)])?);
    }
    Ok((tally, times))
}

/// Returns the keys of a phase: loaded keys for reads, updates and removals, and different new keys for each kind of
/// insert.
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

pub(super) fn describe(row: &mut Row, times: &Histogram) {
    let at = |quantile| Some(times.value_at_quantile(quantile) as f64);
    row.mean_ns = Some(rounded(times.mean()));
    (row.p50_ns, row.p95_ns, row.p99_ns) = (at(0.50), at(0.95), at(0.99));
    (row.p999_ns, row.p9999_ns) = (at(0.999), at(0.9999));
    row.max_ns = Some(times.max() as f64);
    row.extra("samples", times.len());
    row.extra("timer_ns", rounded(timer_ns()));
}

/// Reports the calls that ran while the table moved its records, if there were any.
fn describe_moving(row: &mut Row, times: &Histogram) {
    if times.is_empty() {
        return;
    }
    let [middle, tail] = [0.50, 0.999].map(|at| times.value_at_quantile(at) as f64);
    row.extra("moving_samples", times.len());
    row.extras([
        ("moving_p50_ns", middle),
        ("moving_p999_ns", tail),
        ("moving_max_ns", times.max() as f64),
        ("moving_tail_ratio", rounded(tail / middle.max(1.0))),
    ]);
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
