//! What a growing table makes of its space: `load-factor` (Dash Figs 11-12) and `space`.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use icefield::{AnyTable, Stats};

use crate::Outcome;
use crate::ablated::WHOLE;
use crate::args::{Batch, Medium};
use crate::keys::Tally;
use crate::place::allocated_bytes;
use crate::row::{Row, rounded};
use crate::session::{Placed, Session};
use crate::table::{BenchTable, Call, Design, Place, Setup};

/// Samples over one growth.
const SAMPLES: u64 = 1_000;

/// How full the papers fill a table that can be told to take so many (Iceberg Table 3).
const FULL: f64 = 0.95;

/// Bytes of a record.
const RECORD_BYTES: u64 = 16;

/// Records before the first sample, which also waits until the table has grown: a table of a few segments says nothing
/// of the large ones.
const SETTLED: u64 = 20_000;

/// One of the design's own counts.
pub(super) fn detail(stats: &Stats, name: &str) -> Option<u64> {
    stats.details.iter().find(|(known, _)| *known == name).map(|(_, count)| *count)
}

/// Whether records are on the move because the table grows; `None` where the design does not tell.
pub(super) fn is_moving(table: &dyn BenchTable) -> Option<bool> {
    let stats = table.stats();
    detail(&stats, "transferring").or(detail(&stats, "is_doubling")).map(|moving| moving == 1)
}

/// Records per slot.
fn load_factor_of(stats: &Stats) -> Option<f64> {
    detail(stats, "slots")
        .filter(|slots| *slots > 0)
        .map(|slots| stats.len_estimate as f64 / slots as f64)
}

/// Bytes per record and how full the slots are, as the table itself says.
pub(super) fn describe_space(row: &mut Row, table: &dyn BenchTable) {
    let stats = table.stats();
    if stats.len_estimate == 0 {
        return;
    }
    row.bytes_per_key =
        Some(rounded((stats.pm_bytes + stats.dram_bytes) as f64 / stats.len_estimate as f64));
    row.load_factor = load_factor_of(&stats).map(rounded);
}

pub(super) fn load_factor(session: &mut Session) -> Outcome {
    let asked = session.args.stash_buckets.clone();
    let is_asked = !asked.is_empty();
    let stashes = if is_asked { asked } else { vec![2, 4] };
    let designs = session.ours_on(session.args.medium.unwrap_or(Medium::Process))?;
    // Who asks for stashes asks about tables.
    let ladder = !is_asked && designs.iter().any(|design| design.name() == WHOLE.name());
    for design in designs {
        for stash in &stashes {
            // One by one, as the paper does: a batch may close a window rather than displace.
            for batch in session.batches(&[Batch::None]) {
                grow_sampled(session, design, *stash, batch)?;
            }
        }
    }
    if ladder { super::ladder::run(session) } else { Ok(()) }
}

/// An empty table of at least so many records at `fill` of its slots, or of its resize point if it cannot be told to
/// fill them; and how many records that is exactly.
pub(super) fn filled(
    session: &Session,
    design: &'static dyn Design,
    (medium, keys): (Medium, u64),
    fill: f64,
) -> Outcome<(Placed, u64)> {
    filled_with(session, design, (medium, keys), (fill, session.setup(0)))
}

/// [`filled`], of a table made by `setup`.
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

/// Load factors of a table over its growth.
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
    // The medium changes no count, so a fast one will do.
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

pub(super) fn space(session: &mut Session) -> Outcome {
    let ours: Vec<_> = session.designs.iter().copied().filter(|design| !design.is_peer()).collect();
    let all = session.args.experiment == "all";
    for design in ours {
        space_of(session, design, session.args.fill)?;
        if all && session.args.fill.is_none() && design.offers_yards() {
            space_of(session, design, Some(FULL))?;
        }
    }
    Ok(())
}

/// The bytes of a table that was loaded to `fill`, or as growing leaves it.
fn space_of(session: &mut Session, design: &'static dyn Design, fill: Option<f64>) -> Outcome {
    let medium = session.medium(design);
    let keys = session.keys(medium);
    let (placed, keys) = match fill {
        Some(fill) => filled(session, design, (medium, keys), fill)?,
        None => (session.create(design, medium, session.setup(1024))?, keys),
    };
    session.load(design, &*placed.table, 0..keys)?;
    let stats = placed.table.stats();
    let pm_bytes = match &placed.place {
        Place::Dir { path, .. } => allocated_bytes(path)?,
        Place::Memory | Place::Simulated(_) => stats.pm_bytes,
    };
    let mut row = session.row("space", design, medium);
    row.keys = Some(keys);
    describe_space(&mut row, &*placed.table);
    describe_bytes(&mut row, &stats, pm_bytes, keys);
    if fill.is_none() && design.gives_space_back() {
        remove_most(session, design, placed, (keys, pm_bytes), &mut row)?;
    }
    session.put(row)
}

/// Removes nine of ten records while another thread reads those that stay; how much of the space is left then, and
/// whether the table is as it should be.
fn remove_most(
    session: &Session,
    design: &'static dyn Design,
    placed: Placed,
    (keys, before): (u64, u64),
    row: &mut Row,
) -> Outcome {
    let Place::Dir { path, .. } = &placed.place else { return Ok(()) };
    session.progress(&format!("space {}: removing nine of ten records", design.name()));
    let kept = (keys / 10).max(1);
    let (stay, go) = (session.space.keys(0..kept), session.space.keys(kept..keys));
    let (table, ended) = (&*placed.table, AtomicBool::new(false));
    let (_, parts) = session.run(table, 2, |thread| {
        let (mut found, mut passes) = (Tally::default(), 0);
        if thread == 0 {
            let removed = table.run(Call::Remove, &go, Batch::Stream);
            // Relaxed: only to be seen at some time.
            ended.store(true, Relaxed);
            return removed.map(|removed| (removed, passes));
        }
        while passes == 0 || !ended.load(Relaxed) {
            found.add(table.run(Call::Get, &stay, Batch::Stream)?);
            passes += 1;
        }
        Ok::<_, icefield::Error>((found, passes))
    });
    let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
    let [(removed, _), (found, passes)] = parts[..] else { return Ok(()) };
    session.check_call(design, table, (Call::Remove, &go), removed);
    let expected = table.answers().expected(Call::Get, &stay);
    let sum = expected.sum.wrapping_mul(passes);
    session.check(design, "Get", found, Tally { hits: expected.hits * passes, sum });
    let after = allocated_bytes(path)?;
    row.extra("removed_pm_bytes", after);
    row.extra("removed_share", rounded(after as f64 / before.max(1) as f64));
    row.extra("reads_meanwhile", found.hits);
    let path = path.clone();
    let Placed { table, _dir, .. } = placed;
    // The lock goes with the table.
    drop(table);
    let report = AnyTable::open(&path)?.check()?;
    row.extra("check_faults", report.faults.len() as u64 + report.leaked);
    if !report.is_clean() || report.records != kept {
        session.blame(design, "the table is not clean after removals");
    }
    Ok(())
}

/// What of all bytes is records, and what the others are.
fn describe_bytes(row: &mut Row, stats: &Stats, pm_bytes: u64, keys: u64) {
    let (all_bytes, data_bytes) = (pm_bytes + stats.dram_bytes, RECORD_BYTES * keys);
    row.bytes_per_key = Some(rounded(all_bytes as f64 / keys as f64));
    row.extra("pm_bytes", pm_bytes);
    row.extra("dram_bytes", stats.dram_bytes);
    row.extra("data_bytes", data_bytes);
    row.extra("data_share", rounded(data_bytes as f64 / all_bytes as f64));
    if let Some(slots) = detail(stats, "slots").map(|slots| RECORD_BYTES * slots) {
        row.extra("free_slot_bytes", slots.saturating_sub(data_bytes));
        row.extra("beside_slots_bytes", pm_bytes.saturating_sub(slots.max(data_bytes)));
    }
}
