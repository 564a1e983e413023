//! Measurements that need special hardware: requests per joule (DLHT Fig 4), and memory on another node (DLHT
//! 5.3.2).
//!
//! On a machine without it, the experiment writes a row with the reason, so that it is not silently missing.

use std::path::PathBuf;

use super::growth::describe_space;
use crate::args::{Batch, Medium};
use crate::machine::{Node, mops};
use crate::row::{Row, rounded};
use crate::session::{Placed, Session};
use crate::stats::median;
use crate::table::{Call, Design};
use crate::{Error, Outcome};

/// Measures reads of present keys per joule of the processor's packages.
pub(super) fn energy(session: &mut Session) -> Outcome {
    let counters = EnergyCounters::find();
    if counters.read_joules().is_none() {
        return not_measured(
            session,
            "energy",
            "this machine has no energy counters that may be read",
        );
    }
    for threads in session.threads() {
        for design in session.contenders(&[Call::Get], threads)? {
            let loaded = session.create_loaded(design)?;
            let mut per_joule = Vec::new();
            let mut row = reads(session, "energy", design, &loaded, threads, &mut |ops, read| {
                let before = counters.read_joules();
                read()?;
                let spent =
                    before.zip(counters.read_joules()).map(|(before, after)| after - before);
                // A counter that wrapped around during the measurement is ignored.
                per_joule.extend(spent.filter(|joules| *joules > 0.0).map(|joules| ops / joules));
                Ok(())
            })?;
            row.extra("requests_per_joule", median(&per_joule).map(rounded));
            session.put(row)?;
        }
    }
    Ok(())
}

/// Measures streams of reads of present keys; `around` is passed their number and a function that runs them.
fn reads(
    session: &Session,
    experiment: &'static str,
    design: &'static dyn Design,
    (placed, keys): &(Placed, u64),
    threads: usize,
    around: &mut dyn FnMut(f64, &mut dyn FnMut() -> Outcome) -> Outcome,
) -> Outcome<Row> {
    let mut row = session.row(experiment, design, session.medium(design));
    let ops = session.ops(*keys);
    let mut rates = Vec::new();
    for round in 0..session.repeat() as u64 {
        session.progress(&format!("{experiment} {}: {threads} threads", design.name()));
        let seed = session.args.seed + round;
        let asked = session.space.draw(session.args.dist, *keys, ops as usize, seed);
        around(ops as f64, &mut || {
            let table = &*placed.table;
            let (time, found) = session.timed(table, Call::Get, &asked, threads, Batch::Stream)?;
            session.check_call(design, table, (Call::Get, &asked), found);
            rates.push(mops(asked.len(), time));
            Ok(())
        })?;
    }
    (row.threads, row.keys, row.ops) = (Some(threads), Some(*keys), Some(ops));
    (row.batch, row.dist) = (Some(Batch::Stream), Some(session.args.dist.to_string()));
    row.throughput(&rates);
    describe_space(&mut row, &*placed.table);
    Ok(row)
}

/// The RAPL energy counters of the processor's packages.
struct EnergyCounters(Vec<PathBuf>);

impl EnergyCounters {
    fn find() -> Self {
        let zones = std::fs::read_dir("/sys/class/powercap").into_iter().flatten().flatten();
        let package =
            |name: &str| name.starts_with("intel-rapl:") && name.matches(':').count() == 1;
        let zones = zones.filter(|zone| package(&zone.file_name().to_string_lossy()));
        Self(zones.map(|zone| zone.path().join("energy_uj")).collect())
    }

    /// Returns their sum; `None` where there are none or access is denied.
    fn read_joules(&self) -> Option<f64> {
        let read = |path: &PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<f64>().ok();
        let all: Option<Vec<_>> = self.0.iter().map(read).collect();
        all.filter(|all| !all.is_empty()).map(|all| all.iter().sum::<f64>() / 1e6)
    }
}

/// Measures reads of present keys from memory on each node, by threads on this process's cores.
pub(super) fn remote(session: &mut Session) -> Outcome {
    let nodes = Node::all();
    let asked: Vec<Node> = match session.args.mem_node {
        Some(number) => nodes.iter().copied().filter(|node| node.number() == number).collect(),
        None if nodes.len() < 2 => {
            return not_measured(session, "remote", "this machine has one memory node");
        }
        None => nodes.clone(),
    };
    if asked.is_empty() {
        let numbers: Vec<_> = nodes.iter().map(|node| node.number().to_string()).collect();
        return Err(Error::option("mem-node", format!("must be one of {}", numbers.join(", "))));
    }
    for node in asked {
        for threads in session.threads() {
            let mut designs = session.contenders(&[Call::Get], threads)?;
            designs.retain(|design| session.medium(*design) == Medium::Memory);
            for design in designs {
                let bound = node.bind().map_err(|error| {
                    Error::failed(format!(
                        "memory of node {} cannot be used: {error}",
                        node.number()
                    ))
                })?;
                let loaded = session.create_loaded(design);
                drop(bound);
                let loaded = loaded?;
                let mut row =
                    reads(session, "remote", design, &loaded, threads, &mut |_, read| read())?;
                row.extra("mem_node", node.number());
                session.put(row)?;
            }
        }
    }
    Ok(())
}

pub(super) fn not_measured(session: &mut Session, experiment: &'static str, why: &str) -> Outcome {
    let mut row = Row { experiment, table: "machine".to_owned(), op: experiment, ..Row::default() };
    row.extra("not_measured", why);
    session.output.warn(&format!("{experiment} cannot be measured here: {why}"));
    session.put(row)
}
