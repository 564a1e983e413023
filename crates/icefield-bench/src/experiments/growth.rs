//! The load factor of a growing table: `load-factor` (Dash Figs 11-12).

use icefield::Stats;

use crate::Outcome;
use crate::ablated::WHOLE;
use crate::args::{Batch, Medium};
use crate::row::{Row, rounded};
use crate::session::{Placed, Session};
use crate::table::{BenchTable, Call, Design, Setup};

const SAMPLES: u64 = 1_000;

/// The number of records before the first sample, which also waits until the table has grown: a table of a few
/// segments is not representative.
const SETTLED: u64 = 20_000;

/// Returns one of the design's own counts.
pub(super) fn detail(stats: &Stats, name: &str) -> Option<u64> {
    stats.details.iter().find(|(known, _)| *known == name).map(|(_, count)| *count)
}

/// Returns whether the table is moving records because it grows; `None` where the design does not report it.
pub(super) fn is_moving(table: &dyn BenchTable) -> Option<bool> {
    let stats = table.stats();
    detail(&stats, "transferring").or(detail(&stats, "is_doubling")).map(|moving| moving == 1)
}

fn load_factor_of(stats: &Stats) -> Option<f64> {
    detail(stats, "slots")
        .filter(|slots| *slots > 0)
        .map(|slots| stats.len_estimate as f64 / slots as f64)
}

/// Reports bytes per record and the load factor, from the table's own statistics.
pub(super) fn describe_space(row: &mut Row, table: &dyn BenchTable) {
    let stats = table.stats();
    if stats.len_estimate == 0 {
        return;
    }
    row.bytes_per_key =
        Some(rounded((stats.storage_bytes + stats.dram_bytes) as f64 / stats.len_estimate as f64));
    row.load_factor = load_factor_of(&stats).map(rounded);
}

pub(super) fn load_factor(session: &mut Session) -> Outcome {
    let asked = session.args.stash_buckets.clone();
    let is_asked = !asked.is_empty();
    let stashes = if is_asked { asked } else { vec![2, 4] };
    let designs = session.ours_on(session.args.medium.unwrap_or(Medium::Process))?;
    // With `--stash-buckets`, single segments are not measured.
    let ladder = !is_asked && designs.iter().any(|design| design.name() == WHOLE.name());
    for design in designs {
        for stash in &stashes {
            // One by one, as in the paper: a batch may close a window instead of displacing records.
            for batch in session.batches(&[Batch::None]) {
                grow_sampled(session, design, *stash, batch)?;
            }
        }
    }
    if ladder { super::segment_fill::run(session) } else { Ok(()) }
}

/// Creates an empty table for at least `keys` records at `fill` of its slots, or of its resize point if it cannot
/// fill all slots. Returns the exact number of records too.
pub(super) fn filled(
    session: &Session,
    design: &'static dyn Design,
    (medium, keys): (Medium, u64),
    fill: f64,
) -> Outcome<(Placed, u64)> {
    filled_with(session, design, (medium, keys), (fill, session.setup(0)))
}

/// Like [`filled`], for a table created with `setup`.
pub(super) fn filled_with(
    session: &Session,
    design: &'static dyn Design,
    (medium, keys): (Medium, u64),
    (fill, setup): (f64, Setup),
) -> Outcome<(Placed, u64)> {
    let capacity = (keys as f64 / fill.max(0.01)).ceil() as u64;
    let placed = session.create(design, medium, Setup { capacity, filled_up: true, ..setup })?;
    let records = (placed.table.stats().capacity as f64 * fill) as u64;
    Ok((placed, records.max(1)))
}

#[derive(Default)]
struct Samples {
    peak: f64,
    lowest: f64,
    sum: f64,
    count: u32,
}

impl Samples {
    fn take(&mut self, load: f64) {
        self.peak = self.peak.max(load);
        self.lowest = if self.count == 0 { load } else { self.lowest.min(load) };
        self.sum += load;
        self.count += 1;
    }
}

fn grow_sampled(
    session: &mut Session,
    design: &'static dyn Design,
    stash: u32,
    batch: Batch,
) -> Outcome {
    // The counts do not depend on the medium, so a fast one is used.
    let medium = session.args.medium.unwrap_or(Medium::Process);
    let keys = session.keys(medium);
    let placed = session.create(
        design,
        medium,
        Setup { stash_buckets: Some(stash), ..session.setup(1024) },
    )?;
    let table = &*placed.table;
    let (mut samples, initial) = (Samples::default(), detail(&table.stats(), "slots"));
    let step = (keys / SAMPLES).max(1);
    for begin in (0..keys).step_by(step as usize) {
        let end = (begin + step).min(keys);
        let new = session.space.keys(begin..end);
        let found = table.run(Call::TryInsert, &new, batch)?;
        session.check_call(design, table, (Call::TryInsert, &new), found);
        let stats = table.stats();
        let has_grown = detail(&stats, "slots") != initial || end > keys / 2;
        let settled = has_grown && end >= SETTLED.min(keys / 2);
        if let Some(load) = load_factor_of(&stats).filter(|_| settled) {
            samples.take(load);
        }
        session.progress(&format!("load-factor {}: {end} of {keys}", design.name()));
    }
    let mut row = session.row("load-factor", design, medium);
    (row.threads, row.batch) = (Some(1), Some(batch));
    (row.keys, row.ops) = (Some(keys), Some(keys));
    describe_space(&mut row, table);
    row.extra("stash_buckets", stash);
    describe_growth(&mut row, &samples, &table.stats());
    session.put(row)
}

fn describe_growth(row: &mut Row, samples: &Samples, stats: &Stats) {
    if samples.count > 0 {
        row.extra("peak_load_factor", rounded(samples.peak));
        row.extra("mean_load_factor", rounded(samples.sum / f64::from(samples.count)));
        row.extra("min_load_factor", rounded(samples.lowest));
    }
    if let (Some(records), Some(slots @ 1..)) =
        (detail(stats, "split_records"), detail(stats, "split_slots"))
    {
        row.extra("split_load_factor", rounded(records as f64 / slots as f64));
    }
    if let Some(splits) = detail(stats, "splits") {
        row.extra("splits", splits);
    }
}
