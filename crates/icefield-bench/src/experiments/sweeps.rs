//! Sensitivity studies: sweeps over one parameter of the plain measurements (DLHT Figs 9 to 14 and 16).

use icefield_torture::workload::Distribution;
use serde_json::{Value, json};

use super::growth::describe_space;
use super::throughput::{GET, INSDEL, Spec, Sweep, run_sweep};
use crate::Outcome;
use crate::args::{Batch, Hashing};
use crate::keys::Tally;
use crate::machine::{mops, part};
use crate::map;
use crate::session::Session;
use crate::table::{Allocation, Call, Design, Mixed, Records};

/// The paper's batch sizes, and the ring.
const BATCHES: [Batch; 11] = [
    Batch::None,
    Batch::Of(1),
    Batch::Of(2),
    Batch::Of(4),
    Batch::Of(8),
    Batch::Of(16),
    Batch::Of(24),
    Batch::Of(32),
    Batch::Of(64),
    Batch::Of(128),
    Batch::Stream,
];

/// `batch-size` (Fig 12).
pub(super) fn batch_size(session: &mut Session) -> Outcome {
    let batches = session.batches(&session.points(&BATCHES));
    for spec in [&GET, &INSDEL] {
        let sweep = Sweep { batches: batches.clone(), ..Sweep::new(session, "batch-size") };
        run_sweep(session, spec, &sweep)?;
    }
    Ok(())
}

/// The number of records in the smallest table of `index-size`, which fits into the L2 cache.
const SMALLEST: u64 = 8_000;

/// The least number of operations: a table that is read in a millisecond is read several times.
const LEAST_OPS: u64 = 1_000_000;

/// `index-size` (Fig 11): eight times as many records at each step, up to `--keys`.
pub(super) fn index_size(session: &mut Session) -> Outcome {
    let (asked, asked_ops) = (session.args.keys, session.args.ops);
    let largest = session.keys_or(32_000_000);
    let mut sizes: Vec<u64> = std::iter::successors(Some(SMALLEST), |size| size.checked_mul(8))
        .take_while(|size| *size < largest)
        .collect();
    sizes.push(largest);
    for keys in session.points(&sizes) {
        session.args.keys = Some(keys);
        session.args.ops = asked_ops.or(Some(session.ops(keys).max(LEAST_OPS.min(largest))));
        let stream = Sweep::new(session, "index-size");
        run_sweep(session, &GET, &stream)?;
        if session.args.batch.is_empty() {
            let single = Sweep { batches: vec![Batch::None], ..Sweep::new(session, "index-size") };
            run_sweep(session, &GET, &single)?;
        }
        run_sweep(session, &INSDEL, &stream)?;
    }
    (session.args.keys, session.args.ops) = (asked, asked_ops);
    Ok(())
}

/// `value-size` (Fig 9): gets that read the first word of a value, gets that read all of it, and inserts with
/// removals. Sums are checked, so every measured get includes the read. Tables of words take part at eight bytes.
pub(super) fn value_size(session: &mut Session) -> Outcome {
    for value_bytes in session.points(&map::VALUE_BYTES) {
        for whole in [false, true] {
            let reads = if whole { "value" } else { "word" };
            let point = [("value_bytes", json!(value_bytes)), ("reads", json!(reads))];
            session.records = Records { value_bytes, whole, ..Records::default() };
            if whole || value_bytes > 8 {
                of_records(session, "value-size", &[&GET], &point)?;
            }
        }
        of_records(session, "value-size", &[&INSDEL], &[("value_bytes", json!(value_bytes))])?;
    }
    session.records = Records::default();
    Ok(())
}

/// `key-size` (Fig 10): the same, by the size of the key.
pub(super) fn key_size(session: &mut Session) -> Outcome {
    for key_bytes in session.points(&map::KEY_BYTES) {
        session.records = Records { key_bytes, ..Records::default() };
        of_records(session, "key-size", &[&GET, &INSDEL], &[("key_bytes", json!(key_bytes))])?;
    }
    session.records = Records::default();
    Ok(())
}

/// Measures one point of a sweep over `session.records`.
fn of_records(
    session: &mut Session,
    experiment: &'static str,
    specs: &[&Spec],
    point: &[(&'static str, Value)],
) -> Outcome {
    for spec in specs {
        run_sweep(session, spec, &Sweep { point, ..Sweep::new(session, experiment) })?;
    }
    Ok(())
}

/// `single-thread` (Fig 16): DLHT with and without atomics.
pub(super) fn single_thread(session: &mut Session) -> Outcome {
    let chosen = session.designs.clone();
    if session.args.tables.is_empty() {
        session.designs = session.designs_named(&["dlht", "dlht-local"])?;
    }
    let batches = session.batches(&[Batch::None, Batch::Stream]);
    for spec in [&GET, &INSDEL] {
        let sweep = Sweep {
            threads: vec![1],
            batches: batches.clone(),
            ..Sweep::new(session, "single-thread")
        };
        run_sweep(session, spec, &sweep)?;
    }
    session.designs = chosen;
    Ok(())
}

/// The capacity of the tables of `features`, as a multiple of the number of keys. A link bucket stays with its bin.
/// Inserts and removals over all bins therefore need a link bucket for every bin that ever overflows, and a table
/// of fixed size cannot grow to get them.
const ROOM: f64 = 1.75;

/// `features` (Fig 14): switchable features. `none` is what the paper calls its default.
pub(super) fn features(session: &mut Session) -> Outcome {
    let (asked, fixed, room) = (session.args.hash, session.fixed_size, session.room);
    session.room = ROOM;
    for (hash, grows, name) in [
        (Hashing::Modulo, false, "none"),
        (Hashing::Modulo, true, "resizing"),
        (Hashing::Strong, false, "hashing"),
        (Hashing::Strong, true, "resizing+hashing"),
    ] {
        (session.args.hash, session.fixed_size) = (Some(hash), !grows);
        let point = [("features", json!(name))];
        for spec in [&GET, &INSDEL] {
            let admits = |design: &dyn Design| design.offers_hashes();
            let sweep = Sweep { point: &point, admits, ..Sweep::new(session, "features") };
            run_sweep(session, spec, &sweep)?;
        }
    }
    (session.args.hash, session.fixed_size) = (asked, fixed);
    records_and_allocators(session)?;
    session.room = room;
    Ok(())
}

/// Measures values in separate records, which tables of words do not have, from the program's allocator and from
/// the C library's (through the allocator parameter).
fn records_and_allocators(session: &mut Session) -> Outcome {
    for (allocation, name) in
        [(Allocation::Global, "records"), (Allocation::Malloc, "records+malloc")]
    {
        let value_bytes = map::ALLOCATED_BYTES;
        session.records = Records { value_bytes, allocation, ..Records::default() };
        of_records(session, "features", &[&GET, &INSDEL], &[("features", json!(name))])?;
    }
    session.records = Records::default();
    Ok(())
}

const HOT_KEYS: u64 = 1000;

/// `skew` (Fig 13): a growing share of the operations uses a thousand keys.
pub(super) fn skew(session: &mut Session) -> Outcome {
    let asked = session.args.dist;
    for percent in session.points(&[0, 20, 40, 60, 80, 90, 100]) {
        let dist = Distribution::Hot { keys: HOT_KEYS, percent };
        session.args.dist = dist;
        let point = [("hot_percent", json!(percent))];
        let stream = Sweep { point: &point, ..Sweep::new(session, "skew") };
        run_sweep(session, &GET, &stream)?;
        if session.args.batch.is_empty() {
            let single =
                Sweep { point: &point, batches: vec![Batch::None], ..Sweep::new(session, "skew") };
            run_sweep(session, &GET, &single)?;
        }
        for threads in session.threads() {
            for batch in session.batches(&[Batch::Stream]) {
                skewed_insdel(session, dist, (threads, batch), &point)?;
            }
        }
    }
    session.args.dist = asked;
    Ok(())
}

/// Inserts and removals of the same few keys by all threads. Threads interfere, so a call may find its key in
/// either state; the check is that no key is left at the end.
fn skewed_insdel(
    session: &mut Session,
    dist: Distribution,
    (threads, batch): (usize, Batch),
    point: &[(&'static str, Value)],
) -> Outcome {
    let mut designs = session.contenders(&[Call::InsDel], threads)?;
    // The check needs tables that count their records.
    designs.retain(|design| !design.is_peer());
    for design in designs {
        let (placed, keys) = session.create_loaded(design)?;
        let (ops, mut speeds) = (session.ops(keys).div_ceil(2), Vec::new());
        for round in 0..session.repeat() {
            // The same distribution over as many keys, none of them present.
            let mut stream = icefield_torture::workload::Stream::new(
                dist,
                keys,
                session.args.seed + round as u64,
            );
            let pairs: Vec<Mixed> = (0..ops)
                .map(|_| Mixed::new(Call::InsDel, session.space.key(keys + stream.draw())))
                .collect();
            session.progress(&format!("skew {}: insdel, {threads} threads", design.name()));
            let (time, parts) = session.run(&*placed.table, threads, |thread| {
                placed.table.run_mixed(&pairs[part(pairs.len(), thread, threads)], batch)
            });
            let mut found = Tally::default();
            for part in parts {
                found.add(part?);
            }
            speeds.push(mops(2 * pairs.len(), time));
            if threads == 1 && found.hits != 2 * ops {
                session.blame(design, &format!("{} of {ops} pairs, twice", found.hits));
            }
            // Tables with levels report an estimate: stale records count until they are merged.
            let left = placed.table.stats().len_estimate;
            if left != keys && !design.offers_levels() {
                session.blame(design, &format!("{left} records are left of {keys}"));
            }
        }
        let mut row = session.row("skew", design, session.medium(design));
        (row.op, row.threads, row.batch) = ("insdel", Some(threads), Some(batch));
        (row.keys, row.ops, row.dist) = (Some(keys), Some(2 * ops), Some(dist.to_string()));
        row.throughput(&speeds);
        describe_space(&mut row, &*placed.table);
        point.iter().for_each(|(name, value)| row.extra(name, value.clone()));
        session.put(row)?;
    }
    Ok(())
}
