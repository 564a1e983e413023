//! The accesses of each call to persistent memory, counted exactly on the simulated medium (Plush Fig 6, Iceberg
//! 5.2).
//!
//! An insert that splits a segment also pays for moving half of its records; every write during a doubling also pays
//! for moving a few buckets. Such calls are counted separately, as are inserts that displace records or use a place
//! other than the first choice. The row's own figures are means over all calls during which no split or doubling
//! occurred.

use std::collections::BTreeMap;

use icefield::Stats;
use icefield::storage::sim::{Counters, Sim};
use serde_json::{Value, json};

use super::latency::{CALLS, phase_keys};
use crate::prelude::*;
use crate::row::{Counts, PM_FIELDS};

/// The classes of calls, the most expensive first, and the table's counts that identify them.
const MEETINGS: [(&str, &[&str]); 6] = [
    (DOUBLING, &["doublings"]),
    (SPLIT, &["splits"]),
    ("displacement", &["displacements"]),
    ("stash", &["stash_inserts", "chain_inserts"]),
    ("overflow", &["overflow_inserts"]),
    ("back", &["back_inserts"]),
];

/// The classes of calls that move records because the table grows.
const DOUBLING: &str = "doubling";
const SPLIT: &str = "split";

/// The class of all other calls.
const DIRECT: &str = "direct";

/// Accesses to the medium.
#[derive(Clone, Debug, Default)]
pub(super) struct Cost {
    /// Counts by [`PM_FIELDS`].
    pub pm: Counts,
    /// Lines read, by structure.
    pub lines: Counts,
}

impl Cost {
    /// Returns the accesses since `before`.
    pub fn since(design: DesignRef, sim: &Sim, before: &Counters) -> Self {
        let (after, mut cost) = (sim.counters(), Self::default());
        let earlier = |region: &str| {
            let of_region = before.line_reads.iter().find(|(name, _)| *name == region);
            of_region.map_or(0, |(_, count)| *count)
        };
        let mut read = 0.0;
        for (region, count) in &after.line_reads {
            let lines = (count - earlier(region)) as f64;
            if lines > 0.0 {
                cost.lines.add(design.structure(region), lines);
                read += lines;
            }
        }
        let others = [
            after.line_writes - before.line_writes,
            after.flushes - before.flushes,
            after.fences - before.fences,
            after.media_reads - before.media_reads,
            after.media_writes - before.media_writes,
        ];
        let counts = std::iter::once(read).chain(others.map(|count| count as f64));
        PM_FIELDS.into_iter().zip(counts).for_each(|(name, count)| cost.pm.add(name, count));
        cost
    }

    /// Makes `call` for each key, one by one, checks the answers, and returns the sum of the accesses.
    pub fn of_calls(session: &Session, placed: &Placed, call: Call, keys: &[u64]) -> Outcome<Self> {
        let (mut all, mut found) = (Self::default(), Tally::default());
        for key in keys {
            let (cost, answer) = Self::of_batch(placed, call, &[*key], Batch::None)?;
            found.add(answer);
            all.merge(&cost);
        }
        session.check_call(placed, call, keys, found);
        Ok(all)
    }

    /// Makes `call` for a batch of keys. Returns the accesses and the answers.
    pub fn of_batch(
        placed: &Placed,
        call: Call,
        keys: &[u64],
        batch: Batch,
    ) -> Outcome<(Self, Tally)> {
        let sim = placed.sim()?;
        sim.begin_op();
        let before = sim.counters();
        let found = placed.run(call, keys, batch)?;
        Ok((Self::since(placed.design, sim, &before), found))
    }

    pub fn merge(&mut self, other: &Self) {
        self.pm.merge(&other.pm);
        self.lines.merge(&other.lines);
    }

    /// Returns the means over `count` operations.
    pub fn over(&self, count: u64) -> Self {
        Self { pm: self.pm.over(count), lines: self.lines.over(count) }
    }

    pub fn describe(self, row: &mut Row) {
        row.extra("lines", self.lines);
        row.pm = Some(self.pm);
    }
}

pub(super) fn run(session: &mut Session) -> Outcome {
    if session.args.medium.is_some_and(|medium| medium != Medium::Sim) {
        return Err(Error::option("medium", "amplification counts on the simulated medium only"));
    }
    for design in session.ours_on(Medium::Sim)? {
        for batch in session.batches(&[Batch::None, Batch::Of(32)]) {
            one_table(session, design, batch)?;
        }
    }
    Ok(())
}

/// Grows a table by `try_insert`, or fills one of the right size. Then makes every other call on the table.
fn one_table(session: &mut Session, design: DesignRef, batch: Batch) -> Outcome {
    let keys = session.keys(Medium::Sim);
    let (placed, keys) = match session.args.fill {
        Some(fill) => {
            session.create_for_fill(design, (Medium::Sim, keys), (fill, session.setup(0)))?
        }
        None => (session.create(design, Medium::Sim, session.setup(1024))?, keys),
    };
    let ops = session.args.ops.unwrap_or((keys / 4).max(1));
    let grow = session.space.keys(0..keys);
    call_row(session, &placed, ("try_insert", Call::TryInsert, batch), keys, &grow)?;
    for (name, call) in CALLS.into_iter().filter(|(_, call)| *call != Call::TryInsert) {
        let phase = phase_keys(session, call, keys, ops, 0);
        call_row(session, &placed, (name, call, batch), keys, &phase)?;
    }
    Ok(())
}

/// Makes the calls and classifies their costs.
fn call_row(
    session: &mut Session,
    placed: &Placed,
    (name, call, batch): (&str, Call, Batch),
    keys: u64,
    phase: &[u64],
) -> Outcome {
    session.progress(&format!("amplification {}: {name}, batch {batch}", placed.design.name));
    let mut classes: BTreeMap<&str, Class> = BTreeMap::new();
    let (mut found, mut stats) = (Tally::default(), placed.stats());
    for keys in phase.chunks(batch.size()) {
        let (cost, answers) = Cost::of_batch(placed, call, keys, batch)?;
        found.add(answers);
        let now = placed.stats();
        classes.entry(met(&stats, &now)).or_default().add(keys.len(), &cost);
        stats = now;
    }
    session.check_call(placed, call, phase, found);
    let mut row = session.row(placed.design, Medium::Sim);
    name.clone_into(&mut row.op);
    row.at(1, batch, keys, phase.len() as u64);
    describe_space(&mut row, &**placed);
    describe(&mut row, &classes, call.adds());
    session.put(row)
}

fn met(before: &Stats, after: &Stats) -> &'static str {
    if [before, after].iter().any(|stats| detail(stats, "is_doubling") == Some(1)) {
        return DOUBLING;
    }
    let happened =
        |names: &[&str]| names.iter().any(|name| detail(before, name) != detail(after, name));
    MEETINGS.iter().find(|(_, names)| happened(names)).map_or(DIRECT, |(meeting, _)| meeting)
}

/// The counts that make up the shape of a call: what the call writes.
const SHAPE: [&str; 3] = ["line_writes", "flushes", "fences"];

/// The costs of all calls of one class.
#[derive(Clone, Default)]
struct Class {
    calls: u64,
    ops: u64,
    cost: Cost,
    /// The number of calls for each shape, that is for each combination of the counts in [`SHAPE`].
    shapes: BTreeMap<[u64; 3], u64>,
}

impl Class {
    fn add(&mut self, ops: usize, cost: &Cost) {
        self.calls += 1;
        self.ops += ops as u64;
        self.cost.merge(cost);
        *self.shapes.entry(SHAPE.map(|name| cost.pm.get(name) as u64)).or_default() += 1;
    }

    fn merge<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut merged = Self::default();
        for class in all {
            merged.calls += class.calls;
            merged.ops += class.ops;
            merged.cost.merge(&class.cost);
            for (shape, calls) in &class.shapes {
                *merged.shapes.entry(*shape).or_default() += calls;
            }
        }
        merged
    }

    /// Returns a histogram such as `{"2": 1000, "5": 3}`: 1000 calls have the count 2, three calls the count 5. Large
    /// counts are rounded up to powers of two.
    fn counted(&self, figure: usize) -> Value {
        const EXACT: u64 = 128;
        let mut shown: BTreeMap<u64, u64> = BTreeMap::new();
        for (shape, calls) in &self.shapes {
            let number = shape[figure];
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

    /// Returns the counts as means per call, that is per batch where operations are batched; `pm` and `lines` are means
    /// per operation.
    fn summary(&self) -> Value {
        let (call, op) = (self.cost.pm.over(self.calls), self.cost.over(self.ops));
        json!({
            "calls": self.calls,
            "flushes": call.get("flushes"),
            "fences": call.get("fences"),
            "line_writes_calls": self.counted(0),
            "flushes_calls": self.counted(1),
            "fences_calls": self.counted(2),
            "pm": op.pm,
            "lines": op.lines,
        })
    }
}

fn describe(row: &mut Row, classes: &BTreeMap<&str, Class>, inserts: bool) {
    let all = Class::merge(classes.values());
    let at_rest = classes.iter().filter(|(meeting, _)| !matches!(**meeting, DOUBLING | SPLIT));
    let at_rest = Class::merge(at_rest.map(|(_, class)| class));
    // In tiny runs every call may meet a split. Then all calls are typical.
    let typical = if at_rest.calls == 0 { &all } else { &at_rest };
    typical.cost.over(typical.ops).describe(row);
    row.extra("usual", typical.usual());
    if row.batch != Some(Batch::None) {
        let fences = typical.cost.pm.get("fences") / typical.calls as f64;
        row.extra("fences_per_batch", rounded(fences));
    }
    if inserts {
        row.extra("pm_with_splits", all.cost.pm.over(all.ops));
        classes.iter().for_each(|(meeting, class)| row.extra(meeting, class.summary()));
    }
}
