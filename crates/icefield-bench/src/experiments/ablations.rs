//! The gain from single techniques: Dash-EH compared with forms that lack one (`locks`, Dash Fig 13; `filters`, Dash
//! Figs 9 and 10), and Plush with and without filters in DRAM and preallocated buckets (`filters`, Plush Fig 9).
//!
//! The forms run in turns within one measurement, so that disturbances affect all of them. Lines are counted on the
//! simulated medium, in smaller tables of the same load factor.

use std::time::Duration;

use serde_json::json;

use super::amplification::Cost;
use super::throughput::{GET, GET_MISS, INSERT, Sweep, run_sweep};
use crate::designs::{
    CCEH_LIKE, NO_FILTERS, NO_FINGERPRINTS, NO_OVERFLOW, READ_LOCKS, WHOLE, WIDE_BYTES,
};
use crate::prelude::*;
use crate::table::Levels;

/// The number of records in the tables whose lines are counted, and of searches in them.
const COUNTED_RECORDS: u64 = 20_000;
const COUNTED_SEARCHES: usize = 5_000;

/// Number of turns that make up one measurement.
const TURNS: usize = 16;

const CALLS: [(&str, Call); 2] = [("get", Call::Get), ("get-miss", Call::GetMiss)];

/// Dash with its filters, its forms without one or both of them, and the substitute for CCEH.
const FILTERS: [DesignRef; 5] = [&WHOLE, &NO_FINGERPRINTS, &NO_OVERFLOW, &NO_FILTERS, &CCEH_LIKE];

pub(super) fn locks(session: &mut Session) -> Outcome {
    compare(session, &[&WHOLE, &READ_LOCKS], 8)
}

pub(super) fn filters(session: &mut Session) -> Outcome {
    let any = |has: fn(DesignRef) -> bool| session.designs.iter().any(|design| has(design));
    let dash = any(|design| FILTERS.iter().any(|form| form.name == design.name));
    let levels = any(|design| design.offers_levels);
    if !dash && !levels {
        return Err(Error::option("tables", "none of these tables has filters to switch off"));
    }
    // Measures all forms, even if `--tables` names only some, because each form is compared with the complete one.
    for key_bytes in [8, WIDE_BYTES].into_iter().filter(|_| dash) {
        compare(session, &FILTERS, key_bytes)?;
    }
    if levels { filters_of_levels(session) } else { Ok(()) }
}

/// Measures the tables that have levels: without options, with preallocated buckets, and with filters in DRAM too.
/// The options apply to the first level, which has room for the whole capacity of the table.
fn filters_of_levels(session: &mut Session) -> Outcome {
    for (preallocated, dram_filters, name) in
        [(0, 0, "none"), (1, 0, "prealloc"), (1, 1, "prealloc+dramfilter")]
    {
        session.levels = Some(Levels { dram_filters, preallocated });
        let point = [("filters", json!(name))];
        for spec in [&INSERT, &GET, &GET_MISS] {
            let admits = |design: DesignRef| design.offers_levels;
            let sweep = Sweep { point: &point, admits, ..Sweep::new(session) };
            run_sweep(session, spec, &sweep)?;
        }
    }
    session.levels = None;
    Ok(())
}

/// Writes a row for each design, call, number of threads and batch. The first design is the reference.
fn compare(session: &mut Session, designs: &[DesignRef], key_bytes: usize) -> Outcome {
    let medium = session.args.medium.unwrap_or(Medium::Pmem);
    if !matches!(medium, Medium::Memory | Medium::Process | Medium::Pmem) {
        return Err(Error::option("medium", "times are compared on memory, process or pmem"));
    }
    session.records = Records { key_bytes, ..Records::WORDS };
    let (tables, keys) = load(session, designs, medium, session.keys_or(4_000_000))?;
    let records = COUNTED_RECORDS.min(session.keys_or(COUNTED_RECORDS));
    let counted = load(session, designs, Medium::Sim, records)?;
    for setting in session.settings(&[Batch::Stream]) {
        for (name, call) in CALLS {
            session.progress(&format!("{}: {name}, {} threads", session.experiment, setting.0));
            let mut rows = race(session, &tables, (call, keys), setting)?;
            let whole = rows[0].median("mops");
            for ((row, placed), counted_table) in rows.iter_mut().zip(&tables).zip(&counted.0) {
                describe_space(row, &**placed);
                row.extra("call", name);
                row.extra("key_bytes", key_bytes);
                let ratio = whole.zip(row.median("mops")).map(|(whole, own)| whole / own);
                row.extra("whole_speed_ratio", ratio.map(rounded));
                let asked = searches(session, call, counted.1, COUNTED_SEARCHES, 0);
                let cost = Cost::of_calls(session, counted_table, call, &asked)?;
                cost.over(asked.len() as u64).describe(row);
            }
            session.put_all(rows)?;
        }
    }
    session.records = Records::WORDS;
    Ok(())
}

/// Creates a table of each design for about `keys` records, and loads the same records into all of them. Their number
/// fills the first table to the share `--fill`, or completely without this option. Also returns that number.
fn load(
    session: &Session,
    designs: &[DesignRef],
    medium: Medium,
    keys: u64,
) -> Outcome<(Vec<Placed>, u64)> {
    let (mut tables, mut count) = (Vec::new(), None);
    for design in designs {
        let filled = (session.args.fill.unwrap_or(1.0), session.setup(0));
        let (placed, planned) = session.create_for_fill(design, (medium, keys), filled)?;
        session.load(&placed, 0..*count.get_or_insert(planned))?;
        tables.push(placed);
    }
    Ok((tables, count.unwrap_or(keys)))
}

/// Measures one call on each table and returns a row for each, with its throughputs.
fn race(
    session: &Session,
    tables: &[Placed],
    (call, keys): (Call, u64),
    setting: Setting,
) -> Outcome<Vec<Row>> {
    let ops = session.ops(keys);
    let row = |placed: &Placed| {
        let mut row = session.row(placed.design, session.args.medium.unwrap_or(Medium::Pmem));
        row.at(setting.0, setting.1, keys, ops);
        row
    };
    let mut rows: Vec<_> = tables.iter().map(row).collect();
    for round in 0..session.repeat() as u64 {
        let asked = searches(session, call, keys, ops as usize, round);
        let mut raced = vec![(Duration::ZERO, Tally::default()); tables.len()];
        for turn in 0..TURNS {
            let asked = &asked[part(asked.len(), turn, TURNS)];
            for (placed, (time, found)) in tables.iter().zip(&mut raced) {
                let (one, tally) = session.timed(&**placed, call, asked, setting)?;
                *time += one;
                found.add(tally);
            }
        }
        for ((placed, row), (time, found)) in tables.iter().zip(&mut rows).zip(raced) {
            session.check_call(placed, call, &asked, found);
            row.sample("mops", mops(asked.len(), time));
        }
    }
    Ok(rows)
}

fn searches(session: &Session, call: Call, keys: u64, count: usize, round: u64) -> Vec<u64> {
    match call {
        Call::GetMiss => session.space.keys(keys..keys + count as u64),
        _ => session.space.draw(session.args.dist, keys, count, session.args.seed + round),
    }
}
