//! The time of an operation by the load (DLHT Fig 15): operations are due at regular times, at a share of the rate at
//! which all threads can make them one after the other. Beside the time from the start of each operation, rows have
//! that from the moment at which it was due.

use std::time::Duration;

use serde_json::json;

use super::latency::{describe, phase_keys};
use crate::prelude::*;
use crate::stats::{Histogram, histogram};
use crate::table::{Pace, Timed};

/// The workloads, and the calls that each makes with a key.
const WORKLOADS: [(&str, Call, &[Call]); 2] =
    [("get", Call::Get, &[Call::Get]), ("insdel", Call::InsDel, &[Call::TryInsert, Call::Remove])];

/// The loads, in percent. At 100, every operation is due when the one before has ended.
const LOADS: [u32; 6] = [100, 10, 30, 50, 70, 90];

pub(super) fn run(session: &mut Session) -> Outcome {
    let usual = session.designs_or(&["dlht"]);
    let chosen = std::mem::replace(&mut session.designs, usual);
    for threads in session.threads() {
        for workload in WORKLOADS {
            let designs = session.contenders(&[workload.1], threads)?;
            let mut measured: Vec<Vec<(Row, [Histogram; 2])>> = vec![Vec::new(); designs.len()];
            for round in 0..session.repeat() {
                for (design, measured) in designs.iter().zip(&mut measured) {
                    one_table(session, design, workload, (threads, round as u64), measured)?;
                }
            }
            for (mut row, [times, since_due]) in measured.into_iter().flatten() {
                describe(&mut row, &times);
                if !since_due.is_empty() {
                    for (name, quantile) in [("due_p50_ns", 0.50), ("due_p99_ns", 0.99)] {
                        row.extra(name, since_due.value_at_quantile(quantile));
                    }
                }
                session.put(row)?;
            }
        }
    }
    session.designs = chosen;
    Ok(())
}

fn one_table(
    session: &Session,
    design: DesignRef,
    (name, call, calls): (&'static str, Call, &[Call]),
    (threads, round): (usize, u64),
    measured: &mut Vec<(Row, [Histogram; 2])>,
) -> Outcome {
    let (placed, keys) = session.create_loaded(design)?;
    let ops = session.ops(keys) / calls.len() as u64;
    let phase = phase_keys(session, call, keys, ops, round);
    let mut fastest = 0.0;
    for (i, load) in LOADS.into_iter().enumerate() {
        if measured.len() == i {
            let mut row = session.row(design, session.medium(design));
            name.clone_into(&mut row.op);
            row.at(threads, Batch::None, keys, ops * calls.len() as u64);
            row.extra("load_percent", json!(load));
            measured.push((row, [histogram(), histogram()]));
        }
        session.progress(&format!(
            "latency-by-load {}: {name} at {load} %, {threads} threads",
            design.name
        ));
        let every = (load < 100)
            .then(|| Duration::from_secs_f64(threads as f64 * 1e-4 / (fastest * f64::from(load))));
        let (time, parts) = session.run(&*placed, threads, |thread| {
            let (mut times, mut since_due) = (histogram(), histogram());
            let keys = &phase[part(phase.len(), thread, threads)];
            let pace = every.map(|every| Pace { every, since_due: &mut since_due });
            let tally = placed.run_timed(Timed { calls, keys, pace }, &mut times)?;
            Ok::<_, icefield::Error>((tally, [times, since_due]))
        });
        let (row, times) = &mut measured[i];
        let rate = mops(phase.len() * calls.len(), time);
        row.sample("mops", rate);
        if load == 100 {
            fastest = rate;
        }
        let mut found = Tally::default();
        for part in parts {
            let (tally, of_thread) = part?;
            found.add(tally);
            times.iter_mut().zip(of_thread).for_each(|(all, one)| *all += one);
        }
        session.check_call(&placed, call, &phase, found);
    }
    Ok(())
}
