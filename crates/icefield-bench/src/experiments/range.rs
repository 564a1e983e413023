//! Range queries on a table that is partitioned by ranges (Plush §6.6), by the number of records that a query asks
//! for.

use icefield::{Partition, Plush};

use crate::prelude::*;

/// The number of records that one call asks for.
const LIMITS: [u64; 3] = [10, 100, 1_000];
/// The number of records that one batch loads.
const BATCH: usize = 1_024;

/// Keys are evenly spaced over the table's range: every `STEP`th number.
const STEP: u64 = 16;

pub(super) fn run(session: &mut Session) -> Outcome {
    let design = session.our("plush")?;
    let (medium, durability) = session.medium_of_files()?;
    let keys = session.keys(medium);
    let (path, _dir) = session.fresh_dir();
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
            let starts = &order[..calls as usize];
            let mut expected = Tally::default();
            for &start in starts {
                let end = (start + limit).min(keys);
                expected.hits += end - start;
                expected.sum = (start..end).fold(expected.sum, u64::wrapping_add);
            }
            let mut row = session.row(design, medium);
            (row.threads, row.keys, row.ops) = (Some(threads), Some(keys), Some(calls * limit));
            row.extra("limit", limit);
            for _ in 0..session.repeat() {
                let (time, parts) = session.machine.run(threads, |thread| {
                    ranges(&table, &starts[part(starts.len(), thread, threads)], limit)
                });
                session.check(design, "range", sum(parts)?, expected);
                row.sample("mops", mops(starts.len() * limit as usize, time));
            }
            session.put(row)?;
        }
    }
    Ok(())
}

/// Queries up to `limit` records from each key in `starts` upwards. Returns their number and the sum of their values.
fn ranges(table: &Plush<u64, u64>, starts: &[u64], limit: u64) -> icefield::Result<Tally> {
    let mut tally = Tally::default();
    for start in starts {
        let found = table.range(start * STEP, limit as usize)?;
        found.into_iter().for_each(|(_, value)| tally.answer(Some(value)));
    }
    Ok(tally)
}
