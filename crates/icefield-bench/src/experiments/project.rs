//! Modelled throughput on media that this machine lacks: a model, not a measurement, and labelled so in every row.
//!
//! The simulated medium counts the accesses of a call. A thread spends time on computing, line reads and
//! fences; all threads share the medium's bandwidth. The model returns the lowest of three bounds:
//!
//! - `latency`: threads over (computing + reads * latency of a read / overlap + fences * time of a flush and
//!   fence);
//! - `reads`, `writes`: the medium's bandwidth over the bytes that a call reads or writes there, in the medium's
//!   unit.
//!
//! Computing is the time of the same call on a table that fits into the cache. The overlap of reads is the speedup
//! of independent reads over dependent ones on this machine. The model is checked where possible: with this
//! machine's own figures it should give the measured throughput, and `model_over_measured` is the deviation.

use super::amplification::typical_cost;
use super::latency::{CALLS, phase_keys};
use crate::Outcome;
use crate::args::{Batch, Medium};
use crate::limit::{Loop, Pace, Pages};
use crate::machine::mops;
use crate::row::{PmCost, rounded};
use crate::session::Session;
use crate::stats::median;
use crate::table::{Call, Design};

/// The costs of a medium.
#[derive(Clone, Debug)]
struct Costs {
    name: &'static str,
    /// The latency of a line read that depends on the previous one.
    read_ns: f64,
    /// The time of a flush and the fence that waits for it.
    persist_ns: f64,
    read_gb_per_s: f64,
    write_gb_per_s: f64,
    /// True if it reads and writes whole blocks of 256 bytes.
    in_blocks: bool,
}

/// Figures from the papers: the read latency, and a read bandwidth of an eighth of DRAM's, from SPAR-HT section 2;
/// writes from Plush Table 1.
const OPTANE: Costs = Costs {
    name: "optane",
    read_ns: 300.0,
    persist_ns: 130.0,
    read_gb_per_s: 10.0,
    write_gb_per_s: 6.5,
    in_blocks: true,
};

/// Assumed: memory behind eight lanes of CXL 2.0, with two to three times the latency of DRAM.
const CXL: Costs = Costs {
    name: "cxl",
    read_ns: 230.0,
    persist_ns: 230.0,
    read_gb_per_s: 28.0,
    write_gb_per_s: 28.0,
    in_blocks: false,
};

/// The numbers of threads of the papers' machines, and one.
const THREADS: [usize; 3] = [1, 8, 24];
/// The number of records in a table that fits into the cache.
const CACHED: u64 = 4_000;
const MODELLED: [Call; 5] = [Call::Get, Call::GetMiss, Call::TryInsert, Call::Update, Call::Remove];

/// The costs of this machine's memory, and the overlap of independent reads.
struct Here {
    costs: Costs,
    overlap: f64,
}

pub(super) fn run(session: &mut Session) -> Outcome {
    let here = look_at_this_machine(session)?;
    for design in session.ours_on(Medium::Sim)? {
        let computing = times(session, design, CACHED, Medium::Process)?;
        let measured = times(session, design, session.keys(Medium::Pmem), Medium::Pmem)?;
        let offered = CALLS.into_iter().filter(|(_, call)| MODELLED.contains(call));
        for (at, (name, call)) in offered.enumerate() {
            let cost = typical_cost(session, design, call)?;
            let op = Modelled { name, cost, computing_ns: computing[at], overlap: here.overlap };
            for medium in [&here.costs, &CXL, &OPTANE] {
                for threads in asked(session) {
                    let checked = medium.name == here.costs.name && threads == 1;
                    op.report(session, design, medium, threads, checked.then_some(measured[at]))?;
                }
            }
        }
    }
    Ok(())
}

fn asked(session: &Session) -> Vec<usize> {
    match session.args.threads.as_slice() {
        [] => THREADS.to_vec(),
        asked => asked.to_vec(),
    }
}

/// The inputs of the model for one call.
struct Modelled {
    name: &'static str,
    cost: PmCost,
    computing_ns: f64,
    overlap: f64,
}

impl Modelled {
    /// Returns million operations per second, and the name of the lowest bound.
    fn throughput(&self, medium: &Costs, threads: usize) -> (f64, &'static str) {
        let cost = &self.cost;
        let waits =
            cost.line_reads * medium.read_ns / self.overlap + cost.fences * medium.persist_ns;
        let latency = threads as f64 * 1e3 / (self.computing_ns + waits);
        let bytes = match medium.in_blocks {
            true => [cost.media_reads * 256.0, cost.media_writes * 256.0],
            false => [cost.line_reads * 64.0, cost.line_writes * 64.0],
        };
        let [reads, writes] = [medium.read_gb_per_s, medium.write_gb_per_s];
        let bound = |gb_per_s: f64, bytes: f64| match bytes > 0.0 {
            true => gb_per_s * 1e3 / bytes,
            false => f64::INFINITY,
        };
        let bounds = [
            (latency, "latency"),
            (bound(reads, bytes[0]), "reads"),
            (bound(writes, bytes[1]), "writes"),
        ];
        bounds
            .into_iter()
            .fold((f64::INFINITY, ""), |least, one| if one.0 < least.0 { one } else { least })
    }

    fn report(
        &self,
        session: &mut Session,
        design: &'static dyn Design,
        medium: &Costs,
        threads: usize,
        measured_ns: Option<f64>,
    ) -> Outcome {
        let (modelled, bound) = self.throughput(medium, threads);
        let mut row = session.row("project", design, Medium::Sim);
        (row.op, row.batch, row.threads) = (self.name, Some(Batch::None), Some(threads));
        row.pm = Some(self.cost);
        row.extra("modelled_medium", medium.name);
        row.extra("modelled_mops", rounded(modelled));
        row.extra("bound", bound);
        row.extra("computing_ns", rounded(self.computing_ns));
        row.extra("read_ns", rounded(medium.read_ns));
        row.extra("persist_ns", rounded(medium.persist_ns));
        row.extra("read_gb_per_s", rounded(medium.read_gb_per_s));
        row.extra("write_gb_per_s", rounded(medium.write_gb_per_s));
        row.extra("overlap", rounded(self.overlap));
        if let Some(ns) = measured_ns {
            row.extra("measured_mops", rounded(1e3 / ns));
            row.extra("model_over_measured", rounded(modelled * ns / 1e3));
        }
        session.put(row)
    }
}

/// Measures the nanoseconds of each modelled call on a table of `keys` records, one by one on one thread.
fn times(
    session: &mut Session,
    design: &'static dyn Design,
    keys: u64,
    medium: Medium,
) -> Outcome<Vec<f64>> {
    let mut times: Vec<Vec<f64>> = Vec::new();
    for round in 0..session.repeat() as u64 {
        let placed = session.create(design, medium, session.setup(2 * keys))?;
        session.load(design, &*placed.table, 0..keys)?;
        let offered = CALLS.into_iter().filter(|(_, call)| MODELLED.contains(call));
        for (at, (name, call)) in offered.enumerate() {
            session.progress(&format!("project {}: {name}, {keys} records", design.name()));
            let phase = phase_keys(session, call, keys, keys, round);
            let (time, found) = session.timed(&*placed.table, call, &phase, 1, Batch::None)?;
            session.check_call(design, &*placed.table, (call, &phase), found);
            times.resize(times.len().max(at + 1), Vec::new());
            times[at].push(1e3 / mops(phase.len(), time));
        }
    }
    Ok(times.iter().filter_map(|times| median(times)).collect())
}

fn look_at_this_machine(session: &mut Session) -> Outcome<Here> {
    let bytes = session.keys(Medium::Pmem) * 32;
    let (arena, _dir) = session.arena(Medium::Pmem, bytes, Pages::AsMapped)?;
    arena.link_cycle(session.args.seed);
    let ops = 1_000_000.min(arena.bytes() / 16) as usize;
    let ns = |bare: Loop| {
        let times: Vec<_> = (0..session.repeat() as u64)
            .map(|round| {
                session.timed_loop(bare, &arena, ops, 1, round).as_nanos() as f64 / ops as f64
            })
            .collect();
        median(&times).unwrap_or(f64::MAX)
    };
    let (dependent, independent) = (ns(Loop::Chase), ns(Loop::Read(Pace::Single)));
    let costs = Costs {
        name: "dram",
        read_ns: dependent,
        persist_ns: ns(Loop::Persist(1)),
        read_gb_per_s: 64.0 / ns(Loop::SequentialRead),
        write_gb_per_s: 64.0 / ns(Loop::SequentialWrite),
        in_blocks: false,
    };
    Ok(Here { costs, overlap: (dependent / independent).max(1.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(cost: PmCost) -> Modelled {
        Modelled { name: "get", cost, computing_ns: 100.0, overlap: 2.0 }
    }

    #[test]
    fn the_slowest_bound_decides() {
        let read = call(PmCost { line_reads: 2.0, media_reads: 2.0, ..PmCost::default() });
        // 100 ns, plus two reads of 150 ns each.
        assert_eq!(read.throughput(&OPTANE, 1), (2.5, "latency"));
        // 10 GB/s over 512 bytes.
        assert_eq!(read.throughput(&OPTANE, 24), (10e3 / 512.0, "reads"));
        let write =
            PmCost { line_writes: 1.0, fences: 1.0, media_writes: 1.0, ..PmCost::default() };
        assert_eq!(call(write).throughput(&OPTANE, 24), (6.5e3 / 256.0, "writes"));
        assert_eq!(call(write).throughput(&CXL, 1), (1e3 / 330.0, "latency"));
        assert_eq!(call(PmCost::default()).throughput(&OPTANE, 2).0, 20.0);
    }
}
