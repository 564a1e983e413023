//! Sensitivity studies: sweeps over one parameter of the plain measurements (DLHT Figs 9 to 14 and 16).

use icefield_torture::workload::{Distribution, Stream};
use serde_json::{Value, json};

use super::throughput::{GET, INSDEL, Spec, Sweep, run_sweep};
use crate::args::Hashing;
use crate::map;
use crate::prelude::*;

/// The paper's batch sizes, and a stream.
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

/// Measures `specs` at one point of a sweep.
fn at_point(session: &mut Session, specs: &[&Spec], point: &[(&'static str, Value)]) -> Outcome {
    for spec in specs {
        run_sweep(session, spec, &Sweep { point, ..Sweep::new(session) })?;
    }
    Ok(())
}

/// Measures `specs` with the given batches, unless the options name others.
fn in_batches(
    session: &mut Session,
    specs: &[&Spec],
    (batches, point): (&[Batch], &[(&'static str, Value)]),
) -> Outcome {
    let asked = session.args.batch.clone();
    session.args.batch = session.batches(batches);
    at_point(session, specs, point)?;
    session.args.batch = asked;
    Ok(())
}

/// Measures reads in streams, and also one by one unless the options name batches.
fn reads(session: &mut Session, point: &[(&'static str, Value)]) -> Outcome {
    at_point(session, &[&GET], point)?;
    if session.args.batch.is_empty() {
        in_batches(session, &[&GET], (&[Batch::None], point))?;
    }
    Ok(())
}

/// `batch-size` (Fig 12).
pub(super) fn batch_size(session: &mut Session) -> Outcome {
    let batches = session.points(&[], &BATCHES);
    in_batches(session, &[&GET, &INSDEL], (&batches, &[]))
}

/// The number of records in the smallest table of `index-size`, which fits into the L2 cache.
const SMALLEST: u64 = 8_000;

/// The least number of operations. Tables that can be read in a millisecond are read several times.
const LEAST_OPS: u64 = 1_000_000;

/// `index-size` (Fig 11): eight times as many records at each step, up to `--keys`.
pub(super) fn index_size(session: &mut Session) -> Outcome {
    let (asked, asked_ops) = (session.args.keys, session.args.ops);
    let largest = session.keys_or(32_000_000);
    let mut sizes: Vec<u64> = std::iter::successors(Some(SMALLEST), |size| size.checked_mul(8))
        .take_while(|size| *size < largest)
        .collect();
    sizes.push(largest);
    for keys in session.points(&[], &sizes) {
        session.args.keys = Some(keys);
        session.args.ops = asked_ops.or(Some(session.ops(keys).max(LEAST_OPS.min(largest))));
        reads(session, &[])?;
        at_point(session, &[&INSDEL], &[])?;
    }
    (session.args.keys, session.args.ops) = (asked, asked_ops);
    Ok(())
}

/// `value-size` (Fig 9): gets that read the first word of a value, gets that read the whole value, and inserts with
/// removals. The sum of the values is checked, so a get cannot omit the read. Tables of words take part at eight bytes.
pub(super) fn value_size(session: &mut Session) -> Outcome {
    for value_bytes in session.points(&[], &map::VALUE_BYTES) {
        let size = ("value_bytes", json!(value_bytes));
        for (whole, reads) in [(false, "word"), (true, "value")] {
            session.records = Records { value_bytes, whole, ..Records::WORDS };
            if whole || value_bytes > 8 {
                let point = [size.clone(), ("reads", json!(reads))];
                at_point(session, &[&GET], &point)?;
            }
        }
        at_point(session, &[&INSDEL], &[size])?;
    }
    session.records = Records::WORDS;
    Ok(())
}

/// `key-size` (Fig 10): gets, and inserts with removals, by the size of the key.
pub(super) fn key_size(session: &mut Session) -> Outcome {
    for key_bytes in session.points(&[], &map::KEY_BYTES) {
        session.records = Records { key_bytes, ..Records::WORDS };
        at_point(session, &[&GET, &INSDEL], &[("key_bytes", json!(key_bytes))])?;
    }
    session.records = Records::WORDS;
    Ok(())
}

/// `single-thread` (Fig 16): DLHT with and without atomics, and with and without resizing.
pub(super) fn single_thread(session: &mut Session) -> Outcome {
    let (chosen, threads) = (session.designs.clone(), session.args.threads.clone());
    let (fixed, room) = (session.fixed_size, session.room);
    if session.args.tables.is_empty() {
        let peers = chosen.iter().copied().filter(|design| design.is_peer());
        let ours = [session.our("dlht")?, session.our("dlht-local")?];
        session.designs = ours.into_iter().chain(peers).collect();
    }
    (session.args.threads, session.room) = (vec![1], ROOM);
    let batches = [Batch::None, Batch::Stream];
    for resizing in [false, true] {
        session.fixed_size = !resizing;
        let point = [("resizing", json!(resizing))];
        in_batches(session, &[&GET, &INSDEL], (&batches, &point))?;
    }
    (session.fixed_size, session.room) = (fixed, room);
    (session.designs, session.args.threads) = (chosen, threads);
    Ok(())
}

/// The capacity of the tables of `features` and `single-thread`, as a multiple of the number of keys. A table of fixed
/// size needs room for the keys that the batches of all threads insert before they remove them.
const ROOM: f64 = 1.75;

/// `features` (Fig 14): resizing and strong hashing, each on or off, then separate records: of one size, with values or
/// keys of several sizes, in a namespace, and from the C library's allocator. `none` is what the paper calls its
/// default.
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
            let admits = |design: DesignRef| design.offers_hashes;
            let sweep = Sweep { point: &point, admits, ..Sweep::new(session) };
            run_sweep(session, spec, &sweep)?;
        }
    }
    (session.args.hash, session.fixed_size) = (asked, fixed);
    // Separate records, which only DLHT's map has, each form compared with the first.
    for (form, name) in [
        (Form::Plain, "records"),
        (Form::Values, "records+values"),
        (Form::Keys, "records+keys"),
        (Form::Namespace, "records+namespace"),
        (Form::Malloc, "records+malloc"),
    ] {
        session.records = Records { value_bytes: map::FORM_BYTES, form, ..Records::WORDS };
        at_point(session, &[&GET, &INSDEL], &[("features", json!(name))])?;
    }
    (session.records, session.room) = (Records::WORDS, room);
    Ok(())
}

const HOT_KEYS: u64 = 1000;

/// `skew` (Fig 13): a growing share of the operations uses a thousand keys.
pub(super) fn skew(session: &mut Session) -> Outcome {
    let asked = session.args.dist;
    for percent in session.points(&[], &[0, 20, 40, 60, 80, 90, 100]) {
        session.args.dist = Distribution::Hot { keys: HOT_KEYS, percent };
        reads(session, &[("hot_percent", json!(percent))])?;
        skewed_insdel(session, percent)?;
    }
    session.args.dist = asked;
    Ok(())
}

/// Inserts and removals of the same few keys by all threads. Threads interfere, so a call may find its key present or
/// absent. With several threads, only the number of records at the end is checked: it must equal the number before.
fn skewed_insdel(session: &mut Session, percent: u64) -> Outcome {
    for (threads, batch) in session.settings(&[Batch::Stream]) {
        let mut designs = session.contenders(&[Call::InsDel], threads)?;
        // The check needs tables that count their records.
        designs.retain(|design| !design.is_peer());
        for design in designs {
            let (placed, keys) = session.create_loaded(design)?;
            let (ops, dist) = (session.ops(keys).div_ceil(2), session.args.dist);
            let mut row = session.row(design, session.medium(design));
            "insdel".clone_into(&mut row.op);
            row.at(threads, batch, keys, 2 * ops);
            row.dist = Some(dist.to_string());
            for round in 0..session.repeat() as u64 {
                // Draws from the same distribution, over an equal number of further keys, none of which is present.
                let mut stream = Stream::new(dist, keys, session.args.seed + round);
                let pairs: Vec<Mixed> = (0..ops)
                    .map(|_| Mixed::new(Call::InsDel, session.space.key(keys + stream.draw())))
                    .collect();
                session.progress(&format!("skew {}: insdel, {threads} threads", design.name));
                let of = |thread| &pairs[part(pairs.len(), thread, threads)];
                let work: Vec<_> = (0..threads).map(of).collect();
                let (time, found) = session.timed_mixed(&placed, &work, batch)?;
                row.sample("mops", mops(2 * pairs.len(), time));
                if threads == 1 && found.hits != 2 * ops {
                    session.blame(design, &format!("{} of {ops} pairs, twice", found.hits));
                }
                // Tables with levels report an estimate: stale records count until they are merged.
                let left = placed.stats().len_estimate;
                if left != keys && !design.offers_levels {
                    session.blame(design, &format!("{left} records are left of {keys}"));
                }
            }
            describe_space(&mut row, &*placed);
            row.extra("hot_percent", percent);
            session.put(row)?;
        }
    }
    Ok(())
}
