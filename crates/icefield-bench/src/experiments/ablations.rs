//! The gain from parts of Dash: Dash-EH compared with forms of itself that lack one. `locks` (Dash Fig 13), and the
//! part of `filters` about Dash.
//!
//! Times are compared in turns, within one run. Lines are counted on the simulated medium, in a smaller table of
//! the same load factor.

use std::collections::BTreeMap;

use serde_json::json;

use super::amplification::difference;
use super::growth::{describe_space, filled_with};
use crate::ablated::{READ_LOCKS, WHOLE};
use crate::args::{Batch, Medium};
use crate::keys::Tally;
use crate::machine::{mops, part};
use crate::row::{PmCost, Row, rounded};
use crate::session::{Placed, Session};
use crate::stats::median;
use crate::table::{Call, Design, Place, Records};
use crate::{Error, Outcome};

/// The number of records in the tables whose lines are counted, and of searches there.
const COUNTED_RECORDS: u64 = 20_000;
const COUNTED_SEARCHES: usize = 5_000;

/// Turns that make up one measurement.
const TURNS: usize = 16;

const CALLS: [(&str, Call); 2] = [("get", Call::Get), ("get-miss", Call::GetMiss)];

pub(super) struct Comparison {
    pub experiment: &'static str,
    /// The first one is the reference.
    pub designs: Vec<&'static dyn Design>,
    pub key_bytes: usize,
}

pub(super) fn locks(session: &mut Session) -> Outcome {
    let designs: Vec<&'static dyn Design> = vec![&WHOLE, &READ_LOCKS];
    compare(session, &Comparison { experiment: "locks", designs, key_bytes: 8 })
}

/// Writes a row for each design, call, number of threads and batch.
pub(super) fn compare(session: &mut Session, comparison: &Comparison) -> Outcome {
    let medium = session.args.medium.unwrap_or(Medium::Pmem);
    if !matches!(medium, Medium::Memory | Medium::Process | Medium::Pmem) {
        return Err(Error::option("medium", "times are compared on memory, process or pmem"));
    }
    session.records = Records { key_bytes: comparison.key_bytes, ..Records::default() };
    let keys = session.keys_or(4_000_000);
    let (tables, keys) = load(session, comparison, medium, keys)?;
    let counted = count(session, comparison)?;
    for threads in session.threads() {
        for batch in session.batches(&[Batch::Stream]) {
            for (name, call) in CALLS {
                let speeds = race(session, comparison, &tables, (call, keys), (threads, batch))?;
                let whole = median(&speeds[0]);
                for (index, design) in comparison.designs.iter().enumerate() {
                    let mut row = session.row(comparison.experiment, *design, medium);
                    (row.threads, row.batch) = (Some(threads), Some(batch));
                    (row.keys, row.ops) = (Some(keys), Some(session.ops(keys)));
                    row.throughput(&speeds[index]);
                    describe_space(&mut row, &*tables[index].table);
                    row.extra("call", name);
                    row.extra("key_bytes", comparison.key_bytes);
                    let ratio = whole.zip(median(&speeds[index])).map(|(whole, own)| whole / own);
                    row.extra("whole_speed_ratio", ratio.map(rounded));
                    describe_lines(&mut row, &counted[index], name);
                    session.put(row)?;
                }
            }
        }
    }
    session.records = Records::default();
    Ok(())
}

/// Creates a table of each design, all with the same records: as many as the first one is planned for, at least
/// `keys`.
fn load(
    session: &Session,
    comparison: &Comparison,
    medium: Medium,
    keys: u64,
) -> Outcome<(Vec<Placed>, u64)> {
    let (mut tables, mut count) = (Vec::new(), None);
    for design in comparison.designs.iter().copied() {
        let (placed, planned) = planned(session, design, medium, keys)?;
        let keys = *count.get_or_insert(planned);
        session.load(design, &*placed.table, 0..keys)?;
        tables.push(placed);
    }
    Ok((tables, count.unwrap_or(keys)))
}

/// Returns an empty table and the number of records that it is planned for.
fn planned(
    session: &Session,
    design: &'static dyn Design,
    medium: Medium,
    keys: u64,
) -> Outcome<(Placed, u64)> {
    let fill = session.args.fill.unwrap_or(1.0);
    filled_with(session, design, (medium, keys), (fill, session.setup(0)))
}

/// Returns the throughputs of one call for each design, a value per repeat.
fn race(
    session: &Session,
    comparison: &Comparison,
    tables: &[Placed],
    (call, keys): (Call, u64),
    (threads, batch): (usize, Batch),
) -> Outcome<Vec<Vec<f64>>> {
    let mut speeds = vec![Vec::new(); tables.len()];
    for round in 0..session.repeat() {
        session.progress(&format!("{}: {call:?}, {threads} threads", comparison.experiment));
        let asked = searches(session, call, keys, session.ops(keys) as usize, round as u64);
        let mut times = vec![std::time::Duration::ZERO; tables.len()];
        let mut found = vec![Tally::default(); tables.len()];
        for turn in 0..TURNS {
            let asked = &asked[part(asked.len(), turn, TURNS)];
            for (index, placed) in tables.iter().enumerate() {
                let (time, tally) = session.timed(&*placed.table, call, asked, threads, batch)?;
                times[index] += time;
                found[index].add(tally);
            }
        }
        for (index, placed) in tables.iter().enumerate() {
            let design = comparison.designs[index];
            session.check_call(design, &*placed.table, (call, &asked), found[index]);
            speeds[index].push(mops(asked.len(), times[index]));
        }
    }
    Ok(speeds)
}

fn searches(session: &Session, call: Call, keys: u64, count: usize, round: u64) -> Vec<u64> {
    match call {
        Call::GetMiss => session.space.keys(keys..keys + count as u64),
        _ => session.space.draw(session.args.dist, keys, count, session.args.seed + round),
    }
}

/// The mean cost of one search, in total and as lines read by structure.
type Counted = BTreeMap<&'static str, (PmCost, BTreeMap<&'static str, f64>)>;

fn count(session: &Session, comparison: &Comparison) -> Outcome<Vec<Counted>> {
    let records = COUNTED_RECORDS.min(session.keys_or(COUNTED_RECORDS));
    let (tables, keys) = load(session, comparison, Medium::Sim, records)?;
    let mut counted = Vec::new();
    for (design, placed) in comparison.designs.iter().zip(&tables) {
        let mut calls = Counted::new();
        for (name, call) in CALLS {
            session.progress(&format!("{}: counting lines", comparison.experiment));
            let asked = searches(session, call, keys, COUNTED_SEARCHES, 0);
            calls.insert(name, cost_of(session, *design, placed, (call, &asked))?);
        }
        counted.push(calls);
    }
    Ok(counted)
}

fn cost_of(
    session: &Session,
    design: &'static dyn Design,
    placed: &Placed,
    (call, asked): (Call, &[u64]),
) -> Outcome<(PmCost, BTreeMap<&'static str, f64>)> {
    let Place::Simulated(sim) = &placed.place else {
        return Err(Error::failed("the table is not on the simulated medium"));
    };
    let (mut cost, mut lines, mut found) =
        (PmCost::default(), BTreeMap::<_, u64>::new(), Tally::default());
    for key in asked {
        sim.begin_op();
        let before = sim.counters();
        found.add(placed.table.run(call, std::slice::from_ref(key), Batch::None)?);
        let (one, read) = difference(design, &before, &sim.counters());
        cost = cost.plus(one);
        read.into_iter().for_each(|(name, count)| *lines.entry(name).or_default() += count);
    }
    session.check_call(design, &*placed.table, (call, asked), found);
    let mean = |count: u64| rounded(count as f64 / asked.len() as f64);
    let lines = lines.into_iter().map(|(name, count)| (name, mean(count))).collect();
    Ok((cost.over(asked.len() as u64), lines))
}

fn describe_lines(row: &mut Row, counted: &Counted, call: &str) {
    if let Some((cost, lines)) = counted.get(call) {
        row.pm = Some(*cost);
        row.extra("lines", json!(lines));
    }
}
