//! Inserts of new keys mixed with reads of present ones, by the share of inserts (Dash Fig 8).

use icefield_torture::Rng;

use super::growth::describe_space;
use crate::Outcome;
use crate::args::Batch;
use crate::keys::Tally;
use crate::machine::part;
use crate::session::Session;
use crate::table::{Call, Mixed};

/// The shares without `--insert-ratio`.
const RATIOS: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];

pub(super) fn run(session: &mut Session) -> Outcome {
    let asked = session.args.insert_ratio.clone();
    let ratios = if asked.is_empty() { session.points(&RATIOS) } else { asked };
    for threads in session.threads() {
        for batch in session.batches(&[Batch::Stream]) {
            for ratio in &ratios {
                point(session, threads, batch, *ratio)?;
            }
        }
    }
    Ok(())
}

fn point(session: &mut Session, threads: usize, batch: Batch, ratio: f64) -> Outcome {
    let designs = session.contenders(&[Call::Get, Call::TryInsert], threads)?;
    let mut rows: Vec<_> = designs
        .iter()
        .map(|design| session.row("mixed", *design, session.medium(*design)))
        .collect();
    let mut mops: Vec<Vec<f64>> = designs.iter().map(|_| Vec::new()).collect();
    for round in 0..session.repeat() {
        for (i, design) in designs.iter().enumerate() {
            let (placed, keys) = session.create_loaded(*design)?;
            let ops = operations(session, keys, ratio, round as u64);
            session
                .progress(&format!("mixed {}: {ratio} inserts, {threads} threads", design.name()));
            let (time, parts) = session.run(&*placed.table, threads, |thread| {
                placed.table.run_mixed(&ops[part(ops.len(), thread, threads)], batch)
            });
            mops[i].push(ops.len() as f64 / time.as_secs_f64() / 1e6);
            let mut found = Tally::default();
            for part in parts {
                found.add(part?);
            }
            session.check_mixed(*design, &*placed.table, &ops, found);
            (rows[i].keys, rows[i].ops) = (Some(keys), Some(ops.len() as u64));
            describe_space(&mut rows[i], &*placed.table);
        }
    }
    for (mut row, mops) in rows.into_iter().zip(mops) {
        (row.threads, row.batch) = (Some(threads), Some(batch));
        row.dist = Some(session.args.dist.to_string());
        row.throughput(&mops);
        row.extra("insert_ratio", ratio);
        session.put(row)?;
    }
    Ok(())
}

/// Returns operations in random order.
fn operations(session: &Session, present: u64, ratio: f64, round: u64) -> Vec<Mixed> {
    let count = session.ops(present) as usize;
    let seed = session.args.seed + round;
    let mut random = Rng::fork(seed, 1);
    let mut next = present;
    let drawn = session.space.draw(session.args.dist, present, count, seed);
    let operation = |key| {
        if random.unit() >= ratio {
            return Mixed::new(Call::Get, key);
        }
        next += 1;
        Mixed::new(Call::TryInsert, session.space.key(next - 1))
    };
    drawn.into_iter().map(operation).collect()
}
