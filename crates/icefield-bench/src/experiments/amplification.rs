//! The accesses of each call to persistent memory, counted exactly on the simulated medium (Plush Fig 6, Iceberg
//! 5.2).
//!
//! An insert that meets a split pays for moving half a segment, and every write during a doubling for moving a few
//! buckets. Such calls are counted separately, as are inserts that displace records or do not use the first place.
//! The row's own figures are means over all calls that met neither a split nor a doubling.

use std::collections::BTreeMap;

use icefield::Stats;
use icefield::storage::sim::{Counters, Sim};
use serde_json::{Value, json};

use super::growth::{describe_space, detail, filled};
use super::latency::{CALLS, phase_keys};
use crate::args::{Batch, Medium};
use crate::keys::Tally;
use crate::row::{PmCost, Row, rounded};
use crate::session::{Placed, Session};
use crate::table::{Call, Design, Place, structure_of};
use crate::{Error, Outcome};

/// The classes of calls, the most expensive first, and the table's counts that identify them.
const MEETINGS: [(&str, &[&str]); 6] = [
    (DOUBLING, &["doublings"]),
    (SPLIT, &["splits"]),
    ("displacement", &["displacements"]),
    ("stash", &["stash_inserts", "chain_inserts"]),
    ("overflow", &["overflow_inserts"]),
    ("back", &["back_inserts"]),
];

/// The table is growing.
const DOUBLING: &str = "doubling";
const SPLIT: &str = "split";

/// The class of all other calls.
const DIRECT: &str = "direct";

pub(super) fn run(session: &mut Session) -> Outcome {
    if session.args.medium.is_some_and(|medium| medium != Medium::Sim) {
        return Err(Error::option("medium", "amplification counts on the simulated medium only"));
    }
    let batches = session.batches(&[Batch::None, Batch::Of(32)]);
    for design in session.ours_on(Medium::Sim)? {
        for batch in &batches {
            one_table(session, design, *batch)?;
        }
    }
    Ok(())
}

/// Grows a table by `try_insert`, or fills one of the right size, then makes every other call on it.
fn one_table(session: &mut Session, design: &'static dyn Design, batch: Batch) -> Outcome {
    let keys = session.keys(Medium::Sim);
    let (placed, keys) = match session.args.fill {
        Some(fill) => filled(session, design, (Medium::Sim, keys), fill)?,
        None => (session.create(design, Medium::Sim, session.setup(1024))?, keys),
    };
    let ops = session.args.ops.unwrap_or((keys / 4).max(1));
    let Place::Simulated(sim) = &placed.place else {
        return Err(Error::failed("the table is not on the simulated medium"));
    };
    let grow = session.space.keys(0..keys);
    call_row(session, design, (&placed, sim), ("try_insert", Call::TryInsert, batch), keys, &grow)?;
    for (name, call) in CALLS.into_iter().filter(|(_, call)| *call != Call::TryInsert) {
        let phase = phase_keys(session, call, keys, ops, 0);
        call_row(session, design, (&placed, sim), (name, call, batch), keys, &phase)?;
    }
    Ok(())
}

fn call_row(
    session: &mut Session,
    design: &'static dyn Design,
    (placed, sim): (&Placed, &Sim),
    (name, call, batch): (&'static str, Call, Batch),
    keys: u64,
    phase: &[u64],
) -> Outcome {
    session.progress(&format!("amplification {}: {name}, batch {batch}", design.name()));
    let (classes, found) = count(design, (placed, sim), (call, batch), phase)?;
    session.check_call(design, &*placed.table, (call, phase), found);
    let mut row = session.row("amplification", design, Medium::Sim);
    (row.op, row.batch, row.threads) = (name, Some(batch), Some(1));
    (row.keys, row.ops) = (Some(keys), Some(phase.len() as u64));
    describe_space(&mut row, &*placed.table);
    describe(&mut row, &classes, matches!(call, Call::TryInsert | Call::Insert | Call::Put));
    session.put(row)
}

/// Makes the calls one by one and classifies their costs.
fn count(
    design: &'static dyn Design,
    (placed, sim): (&Placed, &Sim),
    (call, batch): (Call, Batch),
    phase: &[u64],
) -> Outcome<(BTreeMap<&'static str, Class>, Tally)> {
    let table = &*placed.table;
    let mut classes: BTreeMap<&'static str, Class> = BTreeMap::new();
    let mut found = Tally::default();
    let mut stats = table.stats();
    for keys in phase.chunks(batch.size()) {
        sim.begin_op();
        let before = sim.counters();
        found.add(table.run(call, keys, batch)?);
        let after = sim.counters();
        let now = table.stats();
        classes.entry(met(&stats, &now)).or_default().add(design, keys.len(), &before, &after);
        stats = now;
    }
    Ok((classes, found))
}

fn met(before: &Stats, after: &Stats) -> &'static str {
    if [before, after].iter().any(|stats| detail(stats, "is_doubling") == Some(1)) {
        return DOUBLING;
    }
    let happened =
        |names: &[&str]| names.iter().any(|name| detail(before, name) != detail(after, name));
    MEETINGS.iter().find(|(_, names)| happened(names)).map_or(DIRECT, |(meeting, _)| meeting)
}

/// Returns the difference of the counters, and the lines read by structure.
pub(super) fn difference(
    design: &'static dyn Design,
    before: &Counters,
    after: &Counters,
) -> (PmCost, BTreeMap<&'static str, u64>) {
    let mut lines: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (region, count) in &after.line_reads {
        let earlier = before
            .line_reads
            .iter()
            .find(|(name, _)| name == region)
            .map_or(0, |(_, count)| *count);
        if *count > earlier {
            *lines.entry(structure_of(design, region)).or_default() += count - earlier;
        }
    }
    let cost = PmCost {
        line_reads: lines.values().sum::<u64>() as f64,
        line_writes: (after.line_writes - before.line_writes) as f64,
        flushes: (after.flushes - before.flushes) as f64,
        fences: (after.fences - before.fences) as f64,
        media_reads: (after.media_reads - before.media_reads) as f64,
        media_writes: (after.media_writes - before.media_writes) as f64,
    };
    (cost, lines)
}

/// The costs of all calls of one class.
#[derive(Clone, Default)]
struct Class {
    calls: u64,
    ops: u64,
    cost: PmCost,
    /// Lines read, by structure.
    lines: BTreeMap<&'static str, u64>,
    /// The number of calls by their lines written, flushes and fences.
    shapes: BTreeMap<Shape, u64>,
}

/// Lines written, flushes and fences of one call.
type Shape = [u64; 3];

impl Class {
    fn add(
        &mut self,
        design: &'static dyn Design,
        ops: usize,
        before: &Counters,
        after: &Counters,
    ) {
        self.calls += 1;
        self.ops += ops as u64;
        let (cost, lines) = difference(design, before, after);
        self.cost = self.cost.plus(cost);
        lines.iter().for_each(|(name, count)| *self.lines.entry(name).or_default() += count);
        let shape = [
            after.line_writes - before.line_writes,
            after.flushes - before.flushes,
            after.fences - before.fences,
        ];
        *self.shapes.entry(shape).or_default() += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.ops += other.ops;
        self.cost = self.cost.plus(other.cost);
        other.lines.iter().for_each(|(name, count)| *self.lines.entry(name).or_default() += count);
        other
            .shapes
            .iter()
            .for_each(|(shape, calls)| *self.shapes.entry(*shape).or_default() += calls);
    }

    fn per_op(&self) -> PmCost {
        self.cost.over(self.ops)
    }

    fn lines_per_op(&self) -> Value {
        self.lines
            .iter()
            .map(|(name, count)| {
                ((*name).to_owned(), json!(rounded(*count as f64 / self.ops as f64)))
            })
            .collect()
    }

    /// Returns a histogram such as `{"2": 1000, "5": 3}`: from a count per call to the number of calls. Large
    /// counts are rounded up to powers of two.
    fn counted(&self, what: usize) -> Value {
        const EXACT: u64 = 128;
        let mut shown: BTreeMap<u64, u64> = BTreeMap::new();
        for (shape, calls) in &self.shapes {
            let number = shape[what];
            let number = if number <= EXACT { number } else { number.next_power_of_two() };
            *shown.entry(number).or_default() += calls;
        }
        shown.into_iter().map(|(number, calls)| (number.to_string(), json!(calls))).collect()
    }

    /// Returns the most frequent shape, and the share of the calls that have it.
    fn usual(&self) -> Value {
        let most = self.shapes.iter().max_by_key(|(_, calls)| **calls);
        let ([line_writes, flushes, fences], calls) = most.map_or(([0; 3], 0), |(s, c)| (*s, *c));
        let share = calls as f64 / self.calls.max(1) as f64;
        json!({ "line_writes": line_writes, "flushes": flushes, "fences": fences, "share": share })
    }

    /// Means per call, that is per batch where operations are batched.
    fn summary(&self) -> Value {
        let per_call = self.cost.over(self.calls);
        json!({
            "calls": self.calls,
            "flushes": per_call.flushes,
            "fences": per_call.fences,
            "line_writes_calls": self.counted(0),
            "flushes_calls": self.counted(1),
            "fences_calls": self.counted(2),
            "pm": self.per_op(),
            "lines": self.lines_per_op(),
        })
    }
}

/// Returns all calls together, except those that met a split or a doubling.
fn typical(classes: &BTreeMap<&'static str, Class>) -> Class {
    let (mut at_rest, mut all) = (Class::default(), Class::default());
    for (meeting, class) in classes {
        all.merge(class);
        if !matches!(*meeting, DOUBLING | SPLIT) {
            at_rest.merge(class);
        }
    }
    // In tiny runs every call may meet a split.
    if at_rest.calls == 0 { all } else { at_rest }
}

fn describe(row: &mut Row, classes: &BTreeMap<&'static str, Class>, inserts: bool) {
    let typical = typical(classes);
    row.pm = Some(typical.per_op());
    row.extra("lines", typical.lines_per_op());
    row.extra("usual", typical.usual());
    if row.batch != Some(Batch::None) {
        row.extra("fences_per_batch", rounded(typical.cost.fences / typical.calls as f64));
    }
    if inserts {
        let mut all = Class::default();
        classes.values().for_each(|class| all.merge(class));
        row.extra("pm_with_splits", json!(all.per_op()));
        for (meeting, class) in classes {
            row.extra(meeting, class.summary());
        }
    }
}
