//! The load factor of a growing table, and of segments with each technique: `load-factor` (Dash Figs 11-12).

use icefield::{Ablation, Geometry, Stats, Whole};

use crate::designs::{HomeOnly, Probing, WHOLE, fill_segments};
use crate::prelude::*;
use crate::table_stats::load_factor_of;

const SAMPLES: u64 = 1_000;

/// The number of records before the first load factor is sampled. Sampling also waits until the table has grown or half
/// of the keys are inserted, because the load factor of a table with a few segments is not representative.
const SETTLED: u64 = 20_000;

pub(super) fn load_factor(session: &mut Session) -> Outcome {
    let asked = session.args.stash_buckets.clone();
    // The counts do not depend on the medium, so a fast one is used.
    let medium = session.args.medium.unwrap_or(Medium::Process);
    let designs = session.ours_on(medium)?;
    for design in designs.iter().copied() {
        for stash in if asked.is_empty() { &[2, 4] } else { asked.as_slice() } {
            // The default is one by one, as in the paper, because batches use the stash before they displace records.
            for batch in session.batches(&[Batch::None]) {
                grow_sampled(session, (design, medium), *stash, batch)?;
            }
        }
    }
    // With `--stash-buckets`, single segments are not measured.
    if asked.is_empty() && designs.iter().any(|design| design.name == WHOLE.name) {
        fill_with_each_technique(session)?;
    }
    Ok(())
}

fn grow_sampled(
    session: &mut Session,
    (design, medium): (DesignRef, Medium),
    stash: u32,
    batch: Batch,
) -> Outcome {
    let keys = session.keys(medium);
    let setup = Setup { stash_buckets: Some(stash), ..session.setup(1024) };
    let placed = session.create(design, medium, setup)?;
    let (mut loads, initial) = (Vec::new(), detail(&placed.stats(), "slots"));
    let step = (keys / SAMPLES).max(1);
    for begin in (0..keys).step_by(step as usize) {
        let end = (begin + step).min(keys);
        let new = session.space.keys(begin..end);
        let found = placed.run(Call::TryInsert, &new, batch)?;
        session.check_call(&placed, Call::TryInsert, &new, found);
        let stats = placed.stats();
        let has_grown = detail(&stats, "slots") != initial || end > keys / 2;
        let settled = has_grown && end >= SETTLED.min(keys / 2);
        loads.extend(load_factor_of(&stats).filter(|_| settled));
        session.progress(&format!("load-factor {}: {end} of {keys}", design.name));
    }
    let mut row = session.row(design, medium);
    row.at(1, batch, keys, keys);
    describe_space(&mut row, &*placed);
    row.extra("stash_buckets", stash);
    let mean = loads.iter().sum::<f64>() / loads.len() as f64;
    let [lowest, peak] = [f64::min, f64::max].map(|pick| loads.iter().copied().reduce(pick));
    let mean = peak.map(|_| mean);
    for (name, load) in [("peak", peak), ("mean", mean), ("min", lowest)] {
        row.extra(&format!("{name}_load_factor"), load.map(rounded));
    }
    let stats = placed.stats();
    row.extra("split_load_factor", split_load_factor(&stats));
    row.extra("splits", detail(&stats, "splits"));
    session.put(row)
}

fn split_load_factor(stats: &Stats) -> Option<f64> {
    let slots = detail(stats, "split_slots").filter(|slots| *slots > 0)?;
    Some(rounded(detail(stats, "split_records")? as f64 / slots as f64))
}

/// Sizes of segments in KiB.
const SIZES: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Number of buckets per KiB of a segment, and of slots per bucket.
const BUCKETS: u32 = 4;
const SLOTS: u32 = 14;

/// The least number of segments to fill; the mean load factors of the filled segments are compared.
const SEGMENTS: u64 = 128;

/// A technique, which is added to those before it: its name, the number of stash buckets, and the function that fills
/// segments.
type Rung = (&'static str, u32, fn(Geometry, &[u64]) -> icefield::Result<Stats>);

const fn rung<A: Ablation>(name: &'static str, stash: u32) -> Rung {
    (name, stash, fill_segments::<A>)
}

const LADDER: [Rung; 5] = [
    rung::<HomeOnly>("bucketized", 0),
    rung::<Probing>("probing", 0),
    rung::<Whole>("balanced insert and displacement", 0),
    rung::<Whole>("stash of 2", 2),
    rung::<Whole>("stash of 4", 4),
];

/// The load factor of segments with each technique, by segment size (Dash Fig 11).
fn fill_with_each_technique(session: &mut Session) -> Outcome {
    for kib in session.points(&[], &SIZES) {
        let slots = u64::from(kib * BUCKETS * SLOTS);
        // Twice as many records as the segments have slots, so that most segments fill up and split.
        let count = (2 * SEGMENTS * slots).max(session.keys_or(200_000).min(200_000));
        let keys = session.space.keys(0..count);
        for (technique, stash, fill) in LADDER {
            session.progress(&format!("load-factor: segments of {kib} KiB, {technique}"));
            let stats = fill(Geometry { buckets: kib * BUCKETS, slots: SLOTS, stash }, &keys)?;
            let mut row = session.row(&WHOLE, Medium::Memory);
            row.at(1, Batch::None, count, count);
            row.extra("technique", technique);
            row.extras([("segment_kib", kib), ("stash_buckets", stash)]);
            row.extra("split_load_factor", split_load_factor(&stats));
            row.extra("splits", detail(&stats, "splits"));
            session.put(row)?;
        }
    }
    Ok(())
}
