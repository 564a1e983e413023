//! One join, with the tables in rotation.

use std::time::{Duration, Instant};

use icefield::JoinIndex;

use super::relations::{Probe, Relations};
use crate::choice::ceiling;
use crate::experiments::amplification::Cost;
use crate::limit::Arena;
use crate::prelude::*;

/// The number of probing rows per turn. In each turn, the table processes these rows, and then the bare loop makes as
/// many operations.
const TURN_ROWS: usize = 50_000;
const MOST_TURNS: usize = 32;
/// The number of rows on each side when lines are counted.
const COUNTED_BUILD: u64 = 50_000;
const COUNTED_PROBE: u64 = 10_000;
/// The size of an index line, which holds the filter and bucket bounds of a group.
const GROUP_BYTES: u64 = 64;

/// Joins with each of `designs` in each setting, and writes a row for every phase and probe side.
pub(super) fn contest(
    session: &mut Session,
    designs: &[DesignRef],
    relations: &Relations,
    (op, batches): (&str, &[Batch]),
) -> Outcome {
    for setting in session.settings(batches) {
        let takes = |design: &&DesignRef| setting.0 == 1 || !design.is_for_one_thread;
        let new = |design: &DesignRef| Contender::new(session, design, relations, op, setting);
        let mut contenders: Vec<_> = designs.iter().filter(takes).map(new).collect();
        for _ in 0..session.repeat() {
            for contender in &mut contenders {
                contender.measure(session, relations)?;
            }
        }
        for contender in contenders {
            contender.report(session, relations)?;
        }
    }
    Ok(())
}

/// Builds a table of `keys`. Returns it with the time of the whole build, from the creation of files to the moment when
/// all records are durable (on a durable medium).
pub(in crate::experiments) fn built(
    session: &Session,
    design: DesignRef,
    medium: Medium,
    keys: &[u64],
    (threads, batch): Setting,
) -> Outcome<(Placed, Duration)> {
    let (place, dir) = session.place(medium);
    let setup = session.setup(keys.len() as u64);
    let (mut time, table) = session.machine.run_whole(threads, || match design.is_built() {
        true => design.build(&place, setup, keys, threads),
        false => design.create(&place, setup),
    });
    let placed = Placed { table: table?, design, place, dir };
    if !design.is_built() {
        time += session.measured(&placed, Call::TryInsert, keys, (threads, batch))?;
    }
    Ok((placed, time))
}

/// One probe side: its rows, and memory for the bare loop.
struct Side {
    cold: Row,
    warm: Row,
    arena: Option<(Arena, RemovedDir)>,
}

/// One table in the rotation.
struct Contender {
    design: DesignRef,
    medium: Medium,
    setting: Setting,
    build: Row,
    sides: Vec<Side>,
}

impl Contender {
    fn new(
        session: &Session,
        design: DesignRef,
        relations: &Relations,
        op: &str,
        setting: Setting,
    ) -> Self {
        let medium = session.medium(design);
        let mut row = session.row(design, medium);
        op.clone_into(&mut row.op);
        let rows = relations.build.len() as u64;
        row.at(setting.0, setting.1, rows, rows);
        row.dist = Some(session.args.dist.to_string());
        row.extra("scale", relations.scale.map(rounded));
        let side = |probe: &Probe| {
            let phase = |phase: &str| {
                let mut row = row.clone();
                row.ops = Some(probe.keys.len() as u64);
                row.extra(probe.point.0, probe.point.1.clone());
                row.extra("matches", probe.pairs.hits);
                row.extra("phase", phase);
                row
            };
            Side { cold: phase("cold"), warm: phase("warm"), arena: None }
        };
        let sides = relations.probes.iter().map(side).collect();
        row.extra("phase", "build");
        Self { design, medium, setting, build: row, sides }
    }

    fn measure(&mut self, session: &Session, relations: &Relations) -> Outcome {
        let (design, (threads, batch)) = (self.design, self.setting);
        let what = format!("{} {}", self.build.op, design.name);
        session.progress(&format!("{what}: {threads} threads, batch {batch}"));
        let rows = relations.build.len();
        let (mut placed, time) =
            built(session, design, self.medium, &relations.build, self.setting)?;
        self.build.sample("mops", mops(rows, time));
        for (probe, side) in relations.probes.iter().zip(&mut self.sides) {
            let (asked, found) = session.timed(&*placed, Call::Get, &probe.keys, self.setting)?;
            probe.check(session, &placed, found);
            side.cold.sample("mops", mops(probe.keys.len(), time + asked));
            side.cold.sample("tuples_mops", mops(rows + probe.keys.len(), time + asked));
        }
        self.describe(&*placed);
        let began = Instant::now();
        let mut opened = None;
        if !matches!(placed.place, Place::Memory) {
            placed = placed.reopened(threads)?;
            opened = Some(began.elapsed().as_secs_f64() * 1e3);
        }
        // Maps all pages.
        session.timed(&*placed, Call::Get, &relations.build, (threads, Batch::Stream))?;
        for (probe, side) in relations.probes.iter().zip(&mut self.sides) {
            opened.into_iter().for_each(|ms| side.warm.sample("open_ms", ms));
            side.probe_warm(session, &placed, (self.medium, self.setting), probe)?;
        }
        Ok(())
    }

    /// Adds the figures from the table's own statistics to all rows.
    fn describe(&mut self, table: &dyn BenchTable) {
        let stats = table.stats();
        let rows = self.sides.iter_mut().flat_map(|side| [&mut side.cold, &mut side.warm]);
        for row in rows.chain([&mut self.build]) {
            describe_space(row, table);
            if let Some(bits) = detail(&stats, "filter_bits") {
                row.extra("filter_bits", bits);
                let pass = detail(&stats, "filter_pass_ppm").unwrap_or_default();
                row.extra("filter_pass_rate", pass as f64 / 1e6);
            }
        }
    }

    /// Writes the rows of all rounds.
    fn report(self, session: &mut Session, relations: &Relations) -> Outcome {
        let Self { design, build, sides, .. } = self;
        let counts = !design.is_peer() && design.lives_in(Medium::Sim) && build.op == "join";
        for (probe, Side { cold, mut warm, .. }) in relations.probes.iter().zip(sides) {
            let mut build = build.clone();
            build.extra(probe.point.0, probe.point.1.clone());
            session.put(build)?;
            session.put(cold)?;
            if let Some(selectivity) = probe.selectivity().filter(|_| counts) {
                count(session, design, selectivity as u32)?.describe(&mut warm);
            }
            let bare = warm.median("ceiling_mops");
            let ratio = warm.median("mops").zip(bare).map(|(ours, bare)| rounded(ours / bare));
            warm.limit_ratio = ratio;
            session.put(warm)?;
            session.progress("");
        }
        Ok(())
    }
}

impl Side {
    /// Probes the table in turns with the bare loop. Peers, and probe sides that are not in random order, are probed in
    /// one turn and without the loop.
    fn probe_warm(
        &mut self,
        session: &Session,
        placed: &Placed,
        (medium, (threads, batch)): (Medium, Setting),
        probe: &Probe,
    ) -> Outcome {
        let in_turns = !placed.design.is_peer() && probe.shuffled;
        let bare = ceiling(Call::Get, medium, batch).filter(|_| in_turns);
        if bare.is_some() && self.arena.is_none() {
            let stats = placed.stats();
            // If nothing matches, the index reads only its lines with filters and bucket bounds, so the loop's memory
            // has their size.
            let filter = detail(&stats, "groups").filter(|_| probe.selectivity() == Some(0));
            let table = stats.storage_bytes + stats.dram_bytes;
            let bytes = filter.map_or(table, |groups| groups * GROUP_BYTES);
            self.arena = Some(session.arena(medium, bytes, placed.design.pages)?);
        }
        let (mut times, mut found) = ([Duration::ZERO; 2], Tally::default());
        let most = if in_turns { MOST_TURNS } else { 1 };
        let turns = (probe.keys.len() / TURN_ROWS).clamp(1, most);
        for turn in 0..turns {
            let keys = &probe.keys[part(probe.keys.len(), turn, turns)];
            let (time, answered) = session.timed(&**placed, Call::Get, keys, (threads, batch))?;
            times[0] += time;
            found.add(answered);
            if let Some((bare, (arena, _))) = bare.zip(self.arena.as_ref()) {
                times[1] += session.timed_loop(bare, arena, keys.len(), threads, turn as u64);
            }
        }
        probe.check(session, placed, found);
        let (row, rows) = (&mut self.warm, probe.keys.len());
        row.sample("mops", mops(rows, times[0]));
        if let Some((bare, (arena, _))) = bare.zip(self.arena.as_ref()) {
            row.sample("ceiling_mops", mops(rows, times[1]));
            row.ceiling = Some(bare.name());
            row.extra("ceiling_bytes", arena.bytes());
        }
        if let Some(index) = placed.index() {
            let (time, found) = with_payloads(session, index, &probe.keys, threads)?;
            session.check(placed.design, "join with payloads", found, probe.pairs);
            row.sample("payload_mops", mops(rows, time));
        }
        Ok(())
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
        // A load and a store suffice, without an atomic read-modify-write: an index with one thread calls back on this
        // thread only.
        index.probe(&keys[part(keys.len(), thread, threads)], |_, payload| {
            hits.store(hits.load(Relaxed) + 1, Relaxed);
            sum.store(sum.load(Relaxed).wrapping_add(payload), Relaxed);
        })?;
        Ok::<_, icefield::Error>(Tally { hits: hits.into_inner(), sum: sum.into_inner() })
    });
    Ok((time, sum(parts)?))
}

/// Counts the accesses of probes to the simulated medium, on a small table. The keys are probed one by one, so the
/// counts are exact.
fn count(session: &Session, design: DesignRef, selectivity: u32) -> Outcome<Cost> {
    session.progress(&format!("join {}: counting lines", design.name));
    let keys = session.space.keys(0..COUNTED_BUILD);
    let (placed, _) = built(session, design, Medium::Sim, &keys, (1, Batch::Stream))?;
    let sim = placed.sim()?;
    let probe = Probe::draw(session, COUNTED_BUILD, COUNTED_PROBE, selectivity);
    let (mut found, before) = (Tally::default(), sim.counters());
    for key in &probe.keys {
        sim.begin_op();
        found.add(placed.run(Call::Get, std::slice::from_ref(key), Batch::None)?);
    }
    probe.check(session, &placed, found);
    Ok(Cost::since(design, sim, &before).over(COUNTED_PROBE))
}
