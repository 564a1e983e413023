//! The YCSB mixes (DLHT Fig 18; Iceberg 7.2 with writes that insert, so that tables double during the run).
//!
//! Workload E, which scans, is left out. A read-modify-write is a get and an update of the same key in one batch,
//! and counts as one operation.

use icefield_torture::Rng;
use icefield_torture::workload::Distribution;

use super::growth::describe_space;
use crate::Outcome;
use crate::args::{Batch, YcsbWrites};
use crate::keys::Tally;
use crate::machine::mops;
use crate::session::Session;
use crate::table::{Call, Mixed};

pub(super) struct Mix {
    name: &'static str,
    /// The percentage of reads; the other operations write.
    reads: u64,
    write: Write,
    /// True if reads prefer the latest keys when `--dist` is not given.
    latest: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    /// Updates a present key, or does what `--ycsb-writes` says.
    Update,
    /// Inserts a new key.
    Insert,
    /// Reads a present key, then updates it.
    Modify,
}

pub(super) const A: Mix = Mix { name: "ycsb-a", reads: 50, write: Write::Update, latest: false };
pub(super) const B: Mix = Mix { name: "ycsb-b", reads: 95, write: Write::Update, latest: false };
pub(super) const C: Mix = Mix { name: "ycsb-c", reads: 100, write: Write::Update, latest: false };
pub(super) const D: Mix = Mix { name: "ycsb-d", reads: 95, write: Write::Insert, latest: true };
pub(super) const F: Mix = Mix { name: "ycsb-f", reads: 50, write: Write::Modify, latest: false };

pub(super) fn run(session: &mut Session, mix: &Mix) -> Outcome {
    for threads in session.threads() {
        for batch in session.batches(&[Batch::Stream]) {
            point(session, mix, threads, batch)?;
        }
    }
    Ok(())
}

fn point(session: &mut Session, mix: &Mix, threads: usize, batch: Batch) -> Outcome {
    let dist = match session.args.dist {
        Distribution::Uniform if mix.latest => Distribution::Latest(0.99),
        asked => asked,
    };
    let inserts = session.args.ycsb_writes == YcsbWrites::Insert || mix.write == Write::Insert;
    let designs = session.contenders(&[Call::Get, Call::TryInsert, Call::Update], threads)?;
    let mut rows: Vec<_> = designs
        .iter()
        .map(|design| session.row(mix.name, *design, session.medium(*design)))
        .collect();
    let mut speeds: Vec<Vec<f64>> = designs.iter().map(|_| Vec::new()).collect();
    for round in 0..session.repeat() {
        for (i, design) in designs.iter().enumerate() {
            let (placed, keys) = session.create_loaded(*design)?;
            let table = &*placed.table;
            let ops = session.ops(keys);
            let work = operations(session, mix, (keys, ops, dist), (threads, round as u64));
            session.progress(&format!("{} {}: {threads} threads", mix.name, design.name()));
            let (time, parts) =
                session.run(table, threads, |thread| table.run_mixed(&work[thread], batch));
            let mut found = Tally::default();
            for part in parts {
                found.add(part?);
            }
            speeds[i].push(mops(ops as usize, time));
            session.check_mixed(*design, table, &work.concat(), found);
            (rows[i].keys, rows[i].ops) = (Some(keys), Some(ops));
            describe_space(&mut rows[i], table);
        }
    }
    for (mut row, speeds) in rows.into_iter().zip(speeds) {
        (row.threads, row.batch, row.dist) = (Some(threads), Some(batch), Some(dist.to_string()));
        row.throughput(&speeds);
        row.extra("writes", if inserts { "insert" } else { "update" });
        session.put(row)?;
    }
    Ok(())
}

/// Returns the operations of each thread; a read-modify-write is never split between threads.
fn operations(
    session: &Session,
    mix: &Mix,
    (present, count, dist): (u64, u64, Distribution),
    (threads, round): (usize, u64),
) -> Vec<Vec<Mixed>> {
    let seed = session.args.seed + round;
    let mut random = Rng::fork(seed, 2);
    let inserts = session.args.ycsb_writes == YcsbWrites::Insert || mix.write == Write::Insert;
    let drawn = session.space.draw(dist, present, count as usize, seed);
    let mut next = present;
    let mut threads: Vec<Vec<Mixed>> = vec![Vec::new(); threads];
    let each = drawn.len().div_ceil(threads.len()).max(1);
    for (ops, keys) in threads.iter_mut().zip(drawn.chunks(each)) {
        for &key in keys {
            if random.below(100) < mix.reads {
                ops.push(Mixed::new(Call::Get, key));
            } else if inserts {
                ops.push(Mixed::new(Call::TryInsert, session.space.key(next)));
                next += 1;
            } else {
                if mix.write == Write::Modify {
                    ops.push(Mixed::new(Call::Get, key));
                }
                ops.push(Mixed::new(Call::Update, key));
            }
        }
    }
    threads
}
