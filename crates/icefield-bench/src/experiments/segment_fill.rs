//! The load factor of segments with each technique, by segment size (Dash Fig 11): part of `load-factor`.

use icefield::{Ablation, Geometry, Whole};

use super::growth::detail;
use crate::Outcome;
use crate::ablated::{HomeOnly, Probing, WHOLE};
use crate::args::{Batch, Medium};
use crate::row::rounded;
use crate::session::Session;

const SIZES: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Buckets per KiB of a segment, and slots per bucket.
const BUCKETS: u32 = 4;
const SLOTS: u32 = 14;

/// The least number of filled segments; their means are compared.
const SEGMENTS: u64 = 128;

/// A technique, added to those before it.
struct Rung {
    name: &'static str,
    stash: u32,
    fill: fn(Geometry, &[u64]) -> icefield::Result<icefield::Stats>,
}

const fn rung<A: Ablation>(name: &'static str, stash: u32) -> Rung {
    Rung { name, stash, fill: crate::ablated::fill_segments::<A> }
}

const LADDER: [Rung; 5] = [
    rung::<HomeOnly>("bucketized", 0),
    rung::<Probing>("probing", 0),
    rung::<Whole>("balanced insert and displacement", 0),
    rung::<Whole>("stash of 2", 2),
    rung::<Whole>("stash of 4", 4),
];

pub(super) fn run(session: &mut Session) -> Outcome {
    for kib in session.points(&SIZES) {
        let slots = u64::from(kib * BUCKETS * SLOTS);
        // Twice the slots: most segments of the last doubling are split too.
        let count = (2 * SEGMENTS * slots).max(session.keys_or(200_000).min(200_000));
        let keys = session.space.keys(0..count);
        for rung in &LADDER {
            session.progress(&format!("load-factor: segments of {kib} KiB, {}", rung.name));
            let geometry = Geometry { buckets: kib * BUCKETS, slots: SLOTS, stash: rung.stash };
            let stats = (rung.fill)(geometry, &keys)?;
            let of = |name| detail(&stats, name).unwrap_or(0) as f64;
            let mut row = session.row("load-factor", &WHOLE, Medium::Memory);
            (row.threads, row.batch) = (Some(1), Some(Batch::None));
            (row.keys, row.ops) = (Some(count), Some(count));
            row.extra("technique", rung.name);
            row.extra("segment_kib", kib);
            row.extra("stash_buckets", rung.stash);
            row.extra("split_load_factor", rounded(of("split_records") / of("split_slots")));
            row.extra("splits", of("splits"));
            session.put(row)?;
        }
    }
    Ok(())
}
