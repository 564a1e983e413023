//! One join, with the tables in rotation.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use icefield::JoinIndex;
use serde_json::json;

use super::relations::{Probe, Relations};
use crate::args::{Batch, Medium};
use crate::experiments::amplification::difference;
use crate::experiments::growth::{describe_space, detail};
use crate::keys::Tally;
use crate::limit::Arena;
use crate::machine::{mops, part};
use crate::place::RemovedDir;
use crate::row::{PmCost, Row, rounded};
use crate::session::{Placed, Session, ceiling};
use crate::stats::median;
use crate::table::{BenchTable, Call, Design, Place};
use crate::{Error, Outcome};

/// The number of probing rows that a table, and then the bare loop, processes per turn.
const TURN_ROWS: usize = 50_000;
const MOST_TURNS: usize = 32;
/// The number of rows on each side when lines are counted.
const COUNTED_BUILD: u64 = 50_000;
const COUNTED_PROBE: u64 = 10_000;
/// The size of an index line with a filter.
const GROUP_BYTES: u64 = 64;

#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub op: &'static str,
    pub threads: usize,
    pub batch: Batch,
}

/// Joins with each of `designs`, and writes a row for every phase and probe side.
pub(super) fn contest(
    session: &mut Session,
    designs: &[&'static dyn Design],
    relations: &Relations,
    setting: Setting,
) -> Outcome {
    let takes = |design: &&&'static dyn Design| setting.threads == 1 || !design.is_for_one_thread();
    let mut contenders: Vec<_> = designs
        .iter()
        .filter(takes)
        .map(|design| Contender::new(session, *design, relations))
        .collect();
    for _ in 0..session.repeat() {
        for contender in &mut contenders {
            contender.measure(session, relations, setting)?;
        }
    }
    for contender in &mut contenders {
        contender.report(session, relations, setting)?;
    }
    Ok(())
}

/// Builds a table of `keys`. Returns it with the time from nothing but the keys until all records are durable,
/// where the medium is durable.
pub(in crate::experiments) fn built(
    session: &Session,
    design: &'static dyn Design,
    medium: Medium,
    keys: &[u64],
    (threads, batch): (usize, Batch),
) -> Outcome<(Placed, Duration)> {
    let (place, dir) = session.place(medium);
    let setup = session.setup(keys.len() as u64);
    let ((mut time, table), all_at_once) = match design.is_built() {
        true => {
            let build = || design.build(&place, setup, keys, threads);
            (session.machine.run_whole(threads, build), true)
        }
        false => (session.machine.run_whole(threads, || design.create(&place, setup)), false),
    };
    let table = table?;
    if !all_at_once {
        let (filling, found) = session.timed(&*table, Call::TryInsert, keys, threads, batch)?;
        session.check_call(design, &*table, (Call::TryInsert, keys), found);
        time += filling;
    }
    Ok((Placed { table, place, _dir: dir }, time))
}

/// The measurements of one probe side, in seconds per round.
#[derive(Default)]
struct Side {
    cold: Vec<f64>,
    warm: Vec<f64>,
    ceiling: Vec<f64>,
    /// Warm probes that return payloads; for an index only.
    payloads: Vec<f64>,
    /// Memory for the bare loop.
    arena: Option<(Arena, RemovedDir)>,
    /// The cost of a probe, and its lines by structure.
    cost: Option<(PmCost, BTreeMap<&'static str, u64>)>,
}

struct Contender {
    design: &'static dyn Design,
    medium: Medium,
    build: Vec<f64>,
    open_ms: Vec<f64>,
    sides: Vec<Side>,
    /// The fields that all its rows share.
    row: Row,
}

impl Contender {
    fn new(session: &Session, design: &'static dyn Design, relations: &Relations) -> Self {
        Self {
            design,
            medium: session.medium(design),
            build: Vec::new(),
            open_ms: Vec::new(),
            sides: relations.probes.iter().map(|_| Side::default()).collect(),
            row: Row::default(),
        }
    }

    fn measure(&mut self, session: &Session, relations: &Relations, setting: Setting) -> Outcome {
        let (design, Setting { op, threads, batch }) = (self.design, setting);
        session.progress(&format!("{op} {}: {threads} threads, batch {batch}", design.name()));
        let how = (threads, batch);
        let (mut placed, time) = built(session, design, self.medium, &relations.build, how)?;
        self.build.push(time.as_secs_f64());
        for (probe, side) in relations.probes.iter().zip(&mut self.sides) {
            let (asked, found) =
                session.timed(&*placed.table, Call::Get, &probe.keys, threads, batch)?;
            check(session, design, &*placed.table, probe, found);
            side.cold.push((time + asked).as_secs_f64());
        }
        self.describe(session, &*placed.table);
        if !matches!(placed.place, Place::Memory) {
            placed = self.reopened(placed, threads)?;
        }
        // Maps all pages.
        session.timed(&*placed.table, Call::Get, &relations.build, threads, Batch::Stream)?;
        for (probe, side) in relations.probes.iter().zip(&mut self.sides) {
            let filter = filter_bytes(&*placed.table).filter(|_| probe.selectivity() == Some(0));
            side.warm(session, (design, self.medium), &*placed.table, (probe, filter), setting)?;
        }
        Ok(())
    }

    fn reopened(&mut self, placed: Placed, threads: usize) -> Outcome<Placed> {
        let Placed { table, place, _dir } = placed;
        drop(table);
        let began = Instant::now();
        let table = self.design.open(&place, threads)?;
        self.open_ms.push(began.elapsed().as_secs_f64() * 1e3);
        Ok(Placed { table, place, _dir })
    }

    fn describe(&mut self, session: &Session, table: &dyn BenchTable) {
        let mut row = session.row("join", self.design, self.medium);
        describe_space(&mut row, table);
        let stats = table.stats();
        if let Some(bits) = detail(&stats, "filter_bits") {
            row.extra("filter_bits", bits);
            let pass = detail(&stats, "filter_pass_ppm").unwrap_or_default();
            row.extra("filter_pass_rate", pass as f64 / 1e6);
        }
        self.row = row;
    }

    /// Writes the rows of all rounds.
    fn report(
        &mut self,
        session: &mut Session,
        relations: &Relations,
        setting: Setting,
    ) -> Outcome {
        let Setting { op, threads, batch } = setting;
        let counts = !self.design.is_peer() && self.design.lives_in(Medium::Sim);
        let build_rows = relations.build.len();
        for (probe, side) in relations.probes.iter().zip(&mut self.sides) {
            let mut row = self.row.clone();
            (row.op, row.threads, row.batch) = (op, Some(threads), Some(batch));
            row.keys = Some(build_rows as u64);
            row.dist = Some(session.args.dist.to_string());
            row.extra(probe.point.0, probe.point.1.clone());
            if let Some(scale) = relations.scale {
                row.extra("scale", rounded(scale));
            }
            let mut built = row.clone();
            built.extra("phase", "build");
            built.ops = Some(build_rows as u64);
            built.throughput(&rates(build_rows, &self.build));
            session.put(built)?;

            row.ops = Some(probe.keys.len() as u64);
            row.extra("matches", probe.pairs.hits);
            let mut cold = row.clone();
            cold.extra("phase", "cold");
            cold.throughput(&rates(probe.keys.len(), &side.cold));
            let tuples = rates(build_rows + probe.keys.len(), &side.cold);
            cold.extra("tuples_mops", median(&tuples).map(rounded));
            session.put(cold)?;

            if let Some(selectivity) = probe.selectivity().filter(|_| counts && op == "join") {
                side.cost = Some(count(session, self.design, selectivity as u32)?);
            }
            row.extra("phase", "warm");
            if let Some(open_ms) = median(&self.open_ms) {
                row.extra("open_ms", rounded(open_ms));
            }
            side.describe_warm(session, &mut row, (self.medium, batch), probe.keys.len());
            session.put(row)?;
        }
        Ok(())
    }
}

/// Returns the throughput in million rows per second for each of these times.
fn rates(rows: usize, seconds: &[f64]) -> Vec<f64> {
    seconds.iter().map(|seconds| mops(rows, Duration::from_secs_f64(*seconds))).collect()
}

/// Returns the size of an index's filter, with the bounds of its buckets.
fn filter_bytes(table: &dyn BenchTable) -> Option<u64> {
    detail(&table.stats(), "groups").map(|groups| groups * GROUP_BYTES)
}

/// Compares the answers with the relations; for tables that only count, the number of pairs.
fn check(
    session: &Session,
    design: &'static dyn Design,
    table: &dyn BenchTable,
    probe: &Probe,
    found: Tally,
) {
    let told = table.answers().told_of(probe.pairs);
    session.check(design, "join", found, told);
}

impl Side {
    /// Probes in turns with the bare loop. Rows that come in some order are probed at once, as in other systems'
    /// joins.
    fn warm(
        &mut self,
        session: &Session,
        (design, medium): (&'static dyn Design, Medium),
        table: &dyn BenchTable,
        (probe, filter): (&Probe, Option<u64>),
        setting: Setting,
    ) -> Outcome {
        let Setting { threads, batch, .. } = setting;
        let in_turns = !design.is_peer() && probe.shuffled;
        let bare = ceiling(Call::Get, medium, batch).filter(|_| in_turns);
        if bare.is_some() && self.arena.is_none() {
            let stats = table.stats();
            let bytes = filter.unwrap_or(stats.storage_bytes + stats.dram_bytes);
            self.arena = Some(session.arena(medium, bytes, design.pages())?);
        }
        let (mut times, mut found) = ([Duration::ZERO; 2], Tally::default());
        let most = if in_turns { MOST_TURNS } else { 1 };
        let turns = (probe.keys.len() / TURN_ROWS).clamp(1, most);
        for turn in 0..turns {
            let keys = &probe.keys[part(probe.keys.len(), turn, turns)];
            let (time, answered) = session.timed(table, Call::Get, keys, threads, batch)?;
            times[0] += time;
            found.add(answered);
            if let Some((bare, (arena, _))) = bare.zip(self.arena.as_ref()) {
                times[1] += session.timed_loop(bare, arena, keys.len(), threads, turn as u64);
            }
        }
        check(session, design, table, probe, found);
        self.warm.push(times[0].as_secs_f64());
        if bare.is_some() {
            self.ceiling.push(times[1].as_secs_f64());
        }
        if let Some(index) = table.index() {
            let (time, found) = with_payloads(session, index, &probe.keys, threads)?;
            session.check(design, "join with payloads", found, probe.pairs);
            self.payloads.push(time.as_secs_f64());
        }
        Ok(())
    }

    fn describe_warm(
        &self,
        session: &Session,
        row: &mut Row,
        (medium, batch): (Medium, Batch),
        rows: usize,
    ) {
        row.throughput(&rates(rows, &self.warm));
        let bare = median(&rates(rows, &self.ceiling)).filter(|bare| *bare > 0.0);
        if let Some(((bare, ours), arena)) = bare.zip(row.mops).zip(self.arena.as_ref()) {
            row.ceiling = ceiling(Call::Get, medium, batch).map(|bare| bare.name());
            row.limit_ratio = Some(rounded(ours / bare));
            row.extra("ceiling_mops", rounded(bare));
            row.extra("ceiling_bytes", arena.0.bytes());
        }
        if let Some(mops) = median(&rates(rows, &self.payloads)) {
            row.extra("payload_mops", rounded(mops));
        }
        if let Some((cost, lines)) = &self.cost {
            row.pm = Some(*cost);
            let each = |lines: u64| rounded(lines as f64 / COUNTED_PROBE as f64);
            let lines: BTreeMap<_, _> = lines.iter().map(|(name, n)| (*name, each(*n))).collect();
            row.extra("lines", json!(lines));
        }
        session.progress("");
    }
}

/// Probes once more; every thread sums up the payloads passed to it.
fn with_payloads(
    session: &Session,
    index: &JoinIndex<u64>,
    keys: &[u64],
    threads: usize,
) -> Outcome<(Duration, Tally)> {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    let (time, parts) = session.machine.run(threads, |thread| {
        let (hits, sum) = (AtomicU64::new(0), AtomicU64::new(0));
        // Stores instead of a read-modify-write: with one thread, the probe calls back on this thread only.
        index.probe(&keys[part(keys.len(), thread, threads)], |_, payload| {
            hits.store(hits.load(Relaxed) + 1, Relaxed);
            sum.store(sum.load(Relaxed).wrapping_add(payload), Relaxed);
        })?;
        Ok::<_, icefield::Error>(Tally { hits: hits.into_inner(), sum: sum.into_inner() })
    });
    let mut found = Tally::default();
    for part in parts {
        found.add(part?);
    }
    Ok((time, found))
}

/// Counts the accesses of a probe to the medium, one by one and exactly, on a small table of the same shape.
fn count(
    session: &Session,
    design: &'static dyn Design,
    selectivity: u32,
) -> Outcome<(PmCost, BTreeMap<&'static str, u64>)> {
    session.progress(&format!("join {}: counting lines", design.name()));
    let keys = session.space.keys(0..COUNTED_BUILD);
    let (placed, _) = built(session, design, Medium::Sim, &keys, (1, Batch::Stream))?;
    let Place::Simulated(sim) = &placed.place else {
        return Err(Error::failed("the table is not on the simulated medium"));
    };
    let probe = Probe::draw(session, COUNTED_BUILD, COUNTED_PROBE, selectivity);
    let (mut found, before) = (Tally::default(), sim.counters());
    for key in &probe.keys {
        sim.begin_op();
        found.add(placed.table.run(Call::Get, std::slice::from_ref(key), Batch::None)?);
    }
    check(session, design, &*placed.table, &probe, found);
    let (cost, lines) = difference(design, &before, &sim.counters());
    Ok((cost.over(COUNTED_PROBE), lines))
}
