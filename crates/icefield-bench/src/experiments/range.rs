//! Range queries on a table that is partitioned by ranges (Plush §6.6), by the number of records that a query asks
//! for.

use icefield::{Partition, Plush};

use crate::args::Medium;
use crate::keys::Tally;
use crate::machine::{mops, part};
use crate::place::RemovedDir;
use crate::session::Session;
use crate::table::Design;
use crate::{Error, Outcome};

/// The number of records that one call asks for.
const LIMITS: [u64; 3] = [10, 100, 1_000];
/// The number of records that one batch loads.
const BATCH: usize = 1_024;

/// Keys are evenly spaced over the table's range: every `STEP`th number.
const STEP: u64 = 16;

pub(super) fn run(session: &mut Session) -> Outcome {
    let design = session.designs_named(&["plush"])?[0];
    let medium = session.medium(design);
    let Some(durability) = medium.durability().filter(|_| medium != Medium::Memory) else {
        return Err(Error::option("medium", "must be process, pmem or disk"));
    };
    let keys = session.keys(medium);
    let path = session.fresh_path();
    let _removed = RemovedDir(Some(path.clone()));
    let table = Plush::<u64, u64>::options()
        .capacity(keys)
        .partition(Partition::Range)
        .key_range(0, keys * STEP)
        .durability(durability)
        .sync(session.args.sync.unwrap_or_default())
        .create(&path)?;
    session.progress(&format!("plush: loading {keys} records in no order"));
    let mut order: Vec<u64> = (0..keys).collect();
    order.sort_unstable_by_key(|&key| session.space.key(key));
    for chunk in order.chunks(BATCH) {
        let pairs: Vec<(u64, u64)> = chunk.iter().map(|&key| (key * STEP, key)).collect();
        table.put_batch(&pairs)?;
    }
    for limit in LIMITS.map(|limit| limit.min(keys)) {
        for threads in session.threads() {
            let calls = (session.ops(keys) / limit).clamp(1, keys);
            let mut row = session.row("range", design, medium);
            (row.threads, row.keys, row.ops) = (Some(threads), Some(keys), Some(calls * limit));
            row.extra("limit", limit);
            let starts = &order[..calls as usize];
            row.throughput(&measured(session, design, &table, (starts, limit, keys), threads)?);
            session.put(row)?;
        }
    }
    Ok(())
}

/// Returns the throughput in million records per second of queries from `starts`, `limit` records each, per repeat.
fn measured(
    session: &Session,
    design: &'static dyn Design,
    table: &Plush<u64, u64>,
    (starts, limit, keys): (&[u64], u64, u64),
    threads: usize,
) -> Outcome<Vec<f64>> {
    let mut expected = Tally::default();
    for &start in starts {
        let end = (start + limit).min(keys);
        expected.hits += end - start;
        expected.sum = (start..end).fold(expected.sum, u64::wrapping_add);
    }
    let mut speeds = Vec::new();
    for _ in 0..session.repeat() {
        let (time, parts) = session.machine.run(threads, |thread| {
            ranges(table, &starts[part(starts.len(), thread, threads)], limit)
        });
        let mut found = Tally::default();
        for part in parts {
            found.add(part?);
        }
        session.check(design, "range", found, expected);
        speeds.push(mops(starts.len() * limit as usize, time));
    }
    Ok(speeds)
}

/// Queries the records from each start on. Returns the number of records and the sum of their values.
fn ranges(table: &Plush<u64, u64>, starts: &[u64], limit: u64) -> icefield::Result<Tally> {
    let mut tally = Tally::default();
    for start in starts {
        for (_, value) in table.range(start * STEP, limit as usize)? {
            tally.hits += 1;
            tally.sum = tally.sum.wrapping_add(value);
        }
    }
    Ok(tally)
}
