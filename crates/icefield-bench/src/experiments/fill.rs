//! Throughput while a sized table fills up (Iceberg Fig 5).

use super::growth::describe_space;
use crate::Outcome;
use crate::args::Batch;
use crate::machine::mops;
use crate::row::{Row, rounded};
use crate::session::Session;
use crate::stats::median;
use crate::table::{Call, Design};

const STEPS: u64 = 20;

/// Throughputs at one fill, a value per repeat: of inserts up to it, then of reads.
struct Point {
    row: Row,
    insert: Vec<f64>,
    get: Vec<f64>,
    get_miss: Vec<f64>,
}

pub(super) fn run(session: &mut Session) -> Outcome {
    let calls = [Call::TryInsert, Call::Get, Call::GetMiss];
    for threads in session.threads() {
        let mut designs = session.contenders(&calls, threads)?;
        // The resize point of a peer is unknown.
        designs.retain(|design| !design.is_peer());
        for batch in session.batches(&[Batch::Stream]) {
            let mut curves: Vec<Vec<Point>> = designs.iter().map(|_| Vec::new()).collect();
            for round in 0..session.repeat() {
                for (design, curve) in designs.iter().zip(&mut curves) {
                    fill_up(session, *design, (threads, batch, round as u64), curve)?;
                }
            }
            for mut point in curves.into_iter().flatten() {
                point.row.throughput(&point.insert);
                point.row.extra("get_mops", median(&point.get).map(rounded));
                point.row.extra("get_miss_mops", median(&point.get_miss).map(rounded));
                session.put(point.row)?;
            }
        }
    }
    Ok(())
}

fn fill_up(
    session: &mut Session,
    design: &'static dyn Design,
    (threads, batch, round): (usize, Batch, u64),
    curve: &mut Vec<Point>,
) -> Outcome {
    let medium = session.medium(design);
    let space = session.space;
    let placed = session.create(design, medium, session.setup(session.keys(medium)))?;
    let table = &*placed.table;
    let capacity = table.stats().capacity.max(STEPS);
    let absent = space.keys(2 * capacity..2 * capacity + capacity / STEPS);
    // Maps the table's pages.
    session.touch(table, &space.keys(0..capacity))?;
    for step in 0..STEPS {
        let (from, to) = (capacity * step / STEPS, capacity * (step + 1) / STEPS);
        session.progress(&format!("fill-curve {}: {to} of {capacity}", design.name()));
        let new = space.keys(from..to);
        let drawn = space.draw(session.args.dist, to, new.len(), session.args.seed + round);
        let phase = |call: Call, keys: &[u64]| -> Outcome<f64> {
            let (time, found) = session.timed(table, call, keys, threads, batch)?;
            session.check_call(design, table, (call, keys), found);
            Ok(mops(keys.len(), time))
        };
        let speeds = [
            phase(Call::TryInsert, &new)?,
            phase(Call::Get, &drawn)?,
            phase(Call::GetMiss, &absent)?,
        ];
        if curve.len() == step as usize {
            let mut row = session.row("fill-curve", design, medium);
            (row.threads, row.batch, row.keys) = (Some(threads), Some(batch), Some(to));
            row.ops = Some(new.len() as u64);
            row.dist = Some(session.args.dist.to_string());
            row.extra("fill", rounded(to as f64 / capacity as f64));
            curve.push(Point { row, insert: Vec::new(), get: Vec::new(), get_miss: Vec::new() });
        }
        let point = &mut curve[step as usize];
        point.insert.push(speeds[0]);
        point.get.push(speeds[1]);
        point.get_miss.push(speeds[2]);
        describe_space(&mut point.row, table);
    }
    Ok(())
}
