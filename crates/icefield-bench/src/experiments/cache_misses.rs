//! Misses of the first-level and the last-level cache in a join (SPAR Fig 9).
//!
//! Misses are counted twice. The processor's counters include everything that the process does while it probes.
//! Simulated caches serve machines that give no access to the counters. The simulation sees each access to the medium,
//! but no accesses to keys, stacks or a table's data in DRAM, and does no prefetching. Misses per row are comparable
//! between the two; miss rates are not, because the simulation counts fewer accesses. The simulated last level is sized
//! so that the ratio of record bytes to cache bytes is the paper's.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult};
use perf_event::{Builder, Counter};

use super::join::{Probe, built, probe_rows, selectivities};
use crate::cache::{Caches, Sizes};
use crate::choice::named;
use crate::prelude::*;

/// The tables that are measured without `--tables`.
const USUAL: [&str; 4] = ["join", "dash-eh", "iceberg", "cceh-like"];
const SELECTIVITIES: [u32; 5] = [20, 40, 60, 80, 100];
/// Number of rows of the build side, on real memory and simulated.
const BUILD_ROWS: u64 = 10_000_000;
const SIMULATED_ROWS: u64 = 200_000;
/// Bytes of records per byte of the last-level cache in the paper: 50 M records of 16 bytes, 55 MB.
const RECORDS_PER_LLC: u64 = 15;

pub(super) fn run(session: &mut Session) -> Outcome {
    match hardware() {
        Ok(_) => on_hardware(session)?,
        Err(error) => {
            let why = format!("this machine does not grant access to its cache counters: {error}");
            session.output.warn(&format!("cache-misses cannot be measured here: {why}"));
            let mut row = Row::new(session.experiment, "machine");
            row.extra("not_measured", why);
            session.put(row)?;
        }
    }
    simulated(session)
}

/// Starts counters of loads and misses of both levels, for this thread and the threads that it starts.
fn hardware() -> io::Result<[Counter; 4]> {
    let start = |which, result| {
        let event = Cache { which, operation: CacheOp::READ, result };
        let mut counter = Builder::new(event).inherit(true).build()?;
        counter.enable().map(|()| counter)
    };
    Ok([
        start(CacheId::L1D, CacheResult::ACCESS)?,
        start(CacheId::L1D, CacheResult::MISS)?,
        start(CacheId::LL, CacheResult::ACCESS)?,
        start(CacheId::LL, CacheResult::MISS)?,
    ])
}

/// Returns the count so far. It is an estimate if the processor has too few counters for all events at once.
fn count_of(counter: &mut Counter) -> io::Result<f64> {
    let data = counter.read_full()?;
    let times = data.time_enabled().zip(data.time_running()).filter(|(_, ran)| !ran.is_zero());
    let scale = times.map_or(0.0, |(wanted, ran)| wanted.as_secs_f64() / ran.as_secs_f64());
    Ok(data.count() as f64 * scale)
}

fn contenders(session: &Session, simulated: bool) -> Outcome<Vec<DesignRef>> {
    named(session.designs_or(&USUAL), |design| {
        let is_map = [Call::TryInsert, Call::Get].into_iter().all(|call| design.offers(call));
        let is_there = !simulated || !design.is_peer() && design.lives_in(Medium::Sim);
        is_there && (design.is_built() || is_map)
    })
}

/// Probes tables on their own media; the processor counts the misses.
fn on_hardware(session: &mut Session) -> Outcome {
    let failed = |error| Error::failed(format!("a counter cannot be read: {error}"));
    let keys = session.space.keys(0..session.keys_or(BUILD_ROWS));
    for design in contenders(session, false)? {
        let medium = match session.medium(design) {
            Medium::Sim => design.usual_medium(),
            medium => medium,
        };
        let (placed, _) = built(session, design, medium, &keys, (1, Batch::Stream))?;
        for selectivity in selectivities(session, &SELECTIVITIES) {
            let build = keys.len() as u64;
            let probe = Probe::draw(session, build, probe_rows(session, build), selectivity);
            let mut counters = hardware().map_err(failed)?;
            let (_, found) = session.timed(&*placed, Call::Get, &probe.keys, (1, Batch::Stream))?;
            let mut counts = [0.0; 4];
            for (counter, count) in counters.iter_mut().zip(&mut counts) {
                *count = count_of(counter).map_err(failed)?;
            }
            probe.check(session, &placed, found);
            let row = described(session, medium, &placed, &probe, build, counts);
            session.put(row)?;
        }
    }
    Ok(())
}

/// Returns a row with `counts`: accesses and misses of each level.
fn described(
    session: &Session,
    medium: Medium,
    placed: &Placed,
    probe: &Probe,
    build: u64,
    counts: [f64; 4],
) -> Row {
    let mut row = session.row(placed.design, medium);
    row.at(1, Batch::Stream, build, probe.keys.len() as u64);
    row.dist = Some(session.args.dist.to_string());
    row.extra(probe.point.0, probe.point.1.clone());
    let by = if medium == Medium::Sim { "simulated caches" } else { "processor" };
    row.extra("counted_by", by);
    describe_space(&mut row, &**placed);
    for (name, level) in ["l1d", "llc"].into_iter().zip(counts.as_chunks::<2>().0) {
        let ([accesses, misses], rows) = (*level, probe.keys.len() as f64);
        row.extra(&format!("{name}_accesses"), rounded(accesses / rows));
        row.extra(&format!("{name}_misses"), rounded(misses / rows));
        let rate = (accesses > 0.0).then(|| rounded(misses / accesses));
        row.extra(&format!("{name}_miss_rate"), rate);
    }
    row
}

/// Probes tables on the simulated medium, behind simulated caches.
fn simulated(session: &mut Session) -> Outcome {
    let keys = session.space.keys(0..session.keys_or(SIMULATED_ROWS));
    let build = keys.len() as u64;
    let here = Sizes::here();
    let bytes = (build * 16 / RECORDS_PER_LLC).clamp(here.l1d.0, here.llc.0.max(here.l1d.0));
    let sizes = Sizes { llc: (bytes, here.llc.1), ..here };
    for design in contenders(session, true)? {
        session.progress(&format!("cache-misses {}: simulated caches", design.name));
        let (placed, _) = built(session, design, Medium::Sim, &keys, (1, Batch::Stream))?;
        let sim = placed.sim()?;
        let caches = Arc::new(Mutex::new(Caches::new(sizes)));
        let touched = Arc::clone(&caches);
        sim.on_touch(move |line| {
            touched.lock().unwrap_or_else(PoisonError::into_inner).touch(line);
        });
        let so_far = || caches.lock().unwrap_or_else(PoisonError::into_inner).misses();
        for selectivity in selectivities(session, &SELECTIVITIES) {
            let probe = Probe::draw(session, build, probe_rows(session, build), selectivity);
            let before = so_far();
            let mut found = Tally::default();
            for keys in probe.keys.chunks(Batch::Stream.size()) {
                sim.begin_op();
                found.add(placed.run(Call::Get, keys, Batch::Stream)?);
            }
            probe.check(session, &placed, found);
            let after = so_far();
            let counts = [0, 1, 1, 2].map(|at: usize| (after[at] - before[at]) as f64);
            let mut row = described(session, Medium::Sim, &placed, &probe, build, counts);
            row.extras([("l1d_bytes", sizes.l1d.0), ("llc_bytes", sizes.llc.0)]);
            session.put(row)?;
        }
    }
    Ok(())
}
