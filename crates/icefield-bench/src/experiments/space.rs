//! `space`: the records' share of all bytes of a table (Iceberg Table 3), during growth, after updates and after
//! removals.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use icefield::{AnyTable, Stats};

use crate::place::allocated_bytes;
use crate::prelude::*;

/// The papers' load factor, for tables that can be filled up to it (Iceberg Table 3).
const FULL: f64 = 0.95;

const RECORD_BYTES: u64 = 16;

/// The number of sizes at which a growing table is measured; each size is twice the previous one. The largest is
/// sixteen times the smallest, so a table whose levels grow by a factor of sixteen is measured at every stage of a
/// level.
const DOUBLINGS: u32 = 5;

/// The number of times that all records are updated at each of the five sizes: twenty in all.
const ROUNDS: usize = 4;

pub(super) fn run(session: &mut Session) -> Outcome {
    let all = session.args.experiment == "all";
    for design in session.designs.clone().into_iter().filter(|design| !design.is_peer()) {
        space_of(session, design, session.args.fill)?;
        if all && session.args.fill.is_none() && design.offers_yards {
            space_of(session, design, Some(FULL))?;
        }
    }
    Ok(())
}

/// Measures the bytes of a table that was loaded to `fill`, or that has grown.
fn space_of(session: &mut Session, design: DesignRef, fill: Option<f64>) -> Outcome {
    let medium = session.medium(design);
    let keys = session.keys(medium);
    let (placed, keys) = match fill {
        Some(fill) => session.create_for_fill(design, (medium, keys), (fill, session.setup(0)))?,
        None => (session.create(design, medium, session.setup(1024))?, keys),
    };
    let mut row = session.row(design, medium);
    row.keys = Some(keys);
    let over_data = grow(session, &placed, keys, 0)?;
    let stats = placed.stats();
    let storage_bytes = storage_bytes(&placed)?;
    describe_space(&mut row, &*placed);
    describe_bytes(&mut row, &stats, storage_bytes, keys);
    if fill.is_none() && matches!(placed.place, Place::Dir { .. }) {
        row.extra("growth_pm_over_data", rounded(over_data));
        if design.offers(Call::Put) {
            let updated = session.create(design, medium, session.setup(1024))?;
            let over_data = grow(session, &updated, keys, ROUNDS)?;
            row.extra("updated_pm_over_data", rounded(over_data));
        }
        if design.gives_space_back {
            remove_most(session, placed, (keys, storage_bytes), &mut row)?;
        }
    }
    session.put(row)
}

fn storage_bytes(placed: &Placed) -> Outcome<u64> {
    match &placed.place {
        Place::Dir { path, .. } => allocated_bytes(path),
        Place::Memory | Place::Simulated(_) => Ok(placed.stats().storage_bytes),
    }
}

/// Loads the records in [`DOUBLINGS`] steps, each of which after the first doubles their number. Updates all records
/// `rounds` times after each step. Returns the mean ratio of bytes on the medium to bytes of records.
fn grow(session: &Session, placed: &Placed, keys: u64, rounds: usize) -> Outcome<f64> {
    let (mut begin, mut sum) = (0, 0.0);
    for left in (0..DOUBLINGS).rev() {
        let end = (keys >> left).max(1);
        session.load(placed, begin..end.max(begin))?;
        for round in 1..=rounds {
            let name = placed.design.name;
            session.progress(&format!("space {name}: {end} updates, {round} of {rounds}"));
            session.write(placed, Call::Put, 0..end)?;
        }
        sum += storage_bytes(placed)? as f64 / (RECORD_BYTES * end) as f64;
        begin = end;
    }
    Ok(sum / f64::from(DOUBLINGS))
}

/// Removes nine of ten records while another thread reads the rest. Reports the remaining space and checks the
/// table.
fn remove_most(
    session: &Session,
    placed: Placed,
    (keys, before): (u64, u64),
    row: &mut Row,
) -> Outcome {
    let Place::Dir { path, .. } = placed.place.clone() else { return Ok(()) };
    session.progress(&format!("space {}: removing nine of ten records", placed.design.name));
    let kept = (keys / 10).max(1);
    let (stay, go) = (session.space.keys(0..kept), session.space.keys(kept..keys));
    let (table, ended) = (&*placed, AtomicBool::new(false));
    let (_, parts) = session.run(table, 2, |thread| {
        let (mut found, mut passes) = (Tally::default(), 0);
        if thread == 0 {
            let removed = table.run(Call::Remove, &go, Batch::Stream);
            // Relaxed: the flag orders no other data.
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
    session.check_call(&placed, Call::Remove, &go, removed);
    let expected = table.answers().expected(Call::Get, &stay);
    let sum = expected.sum.wrapping_mul(passes);
    session.check(placed.design, "Get", found, Tally { hits: expected.hits * passes, sum });
    let after = allocated_bytes(&path)?;
    row.extra("removed_storage_bytes", after);
    row.extra("removed_share", rounded(after as f64 / before.max(1) as f64));
    row.extra("reads_meanwhile", found.hits);
    let Placed { table, design, dir: _dir, .. } = placed;
    // Dropping the table releases its lock on the files.
    drop(table);
    let report = AnyTable::open(&path)?.check()?;
    row.extra("check_faults", report.faults.len() as u64 + report.leaked);
    if !report.is_clean() || report.records != kept {
        session.blame(design, "`check` found faults after removals");
    }
    Ok(())
}

/// Reports the share of records in all bytes, and the kinds of the other bytes.
fn describe_bytes(row: &mut Row, stats: &Stats, storage_bytes: u64, keys: u64) {
    let (all_bytes, data_bytes) = (storage_bytes + stats.dram_bytes, RECORD_BYTES * keys);
    row.bytes_per_key = Some(rounded(all_bytes as f64 / keys as f64));
    row.extras([
        ("storage_bytes", storage_bytes),
        ("dram_bytes", stats.dram_bytes),
        ("data_bytes", data_bytes),
    ]);
    row.extra("data_share", rounded(data_bytes as f64 / all_bytes as f64));
    if let Some(slots) = detail(stats, "slots").map(|slots| RECORD_BYTES * slots) {
        row.extra("free_slot_bytes", slots.saturating_sub(data_bytes));
        row.extra("overhead_bytes", storage_bytes.saturating_sub(slots.max(data_bytes)));
    }
}
