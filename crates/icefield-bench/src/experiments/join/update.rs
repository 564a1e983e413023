//! The cost of a tenth more rows (SPAR Fig 7). An index inserts them into its delta store and merges. This is compared
//! with rebuilding the index from all rows, and with tables that insert the new rows.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use icefield::{JoinIndex, MergeKind, MergeReport};

use super::{BUILD_ROWS, Relations, built, contenders, refuse_sim};
use crate::prelude::*;

/// The number of old rows per new one.
const OLD_PER_NEW: u64 = 10;
/// The number of old rows in each batch that is probed during the update.
const ASKED: usize = 1 << 16;

/// The old rows and the new ones.
struct Rows {
    all: Vec<u64>,
    /// The number of old rows.
    present: usize,
    /// The new rows: each key with its payload.
    pairs: Vec<(u64, u64)>,
}

impl Rows {
    fn make(session: &Session, present: u64) -> Self {
        let all = session.space.keys(0..present + (present / OLD_PER_NEW).max(1));
        let pairs = all[present as usize..].iter().map(|&key| (key, value_of(key))).collect();
        Self { all, present: present as usize, pairs }
    }

    fn old(&self) -> &[u64] {
        &self.all[..self.present]
    }

    fn added(&self) -> &[u64] {
        &self.all[self.present..]
    }
}

pub(in crate::experiments) fn run(session: &mut Session) -> Outcome {
    refuse_sim(session)?;
    let rows = Rows::make(session, session.keys_or(BUILD_ROWS));
    let designs = contenders(session, &Relations::default())?;
    for setting in session.settings(&[Batch::Stream]) {
        let takes = |design: &DesignRef| setting.0 == 1 || !design.is_for_one_thread;
        let designs: Vec<_> = designs.iter().copied().filter(takes).collect();
        let measured = session.rotate(&designs, setting, |session, design, _, row| {
            measure(session, design, setting, &rows, row)
        })?;
        for (design, mut row) in designs.into_iter().zip(measured) {
            let times = row.median("rebuild_ms").zip(row.median("update_ms"));
            row.extra("rebuild_ratio", times.map(|(rebuild, update)| rounded(rebuild / update)));
            if row.extra.contains_key("merge") {
                let (asked, ratio) = meanwhile(session, design, setting, &rows)?;
                row.extra("probes_meanwhile", asked);
                row.extra("probe_rate_ratio", ratio.map(rounded));
            }
            row.forget("update_ms");
            session.put(row)?;
        }
    }
    Ok(())
}

/// Inserts the new rows into a table of the old ones. An index is also rebuilt from all rows.
fn measure(
    session: &Session,
    design: DesignRef,
    setting: Setting,
    rows: &Rows,
    row: &mut Row,
) -> Outcome {
    let medium = session.medium(design);
    let (placed, _) = built(session, design, medium, rows.old(), setting)?;
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let time = match placed.index() {
        Some(index) => {
            let ([insert, merge], report) = updated(session, index, rows, setting.0)?;
            row.sample("insert_ms", milliseconds(insert));
            row.sample("merge_ms", milliseconds(merge));
            row.extra("merge", kind(report.kind));
            insert + merge
        }
        None => session.measured(&placed, Call::TryInsert, rows.added(), setting)?,
    };
    row.sample("update_ms", milliseconds(time));
    row.sample("mops", mops(rows.added().len(), time));
    (row.keys, row.ops) = (Some(rows.old().len() as u64), Some(rows.added().len() as u64));
    session.measured(&placed, Call::Get, &rows.all, (setting.0, Batch::Stream))?;
    describe_space(row, &*placed);
    let is_index = placed.index().is_some();
    drop(placed);
    if is_index {
        let (_, time) = built(session, design, medium, &rows.all, setting)?;
        row.sample("rebuild_ms", milliseconds(time));
    }
    Ok(())
}

fn kind(kind: MergeKind) -> &'static str {
    match kind {
        MergeKind::Nothing => "nothing",
        MergeKind::PerBucket => "per-bucket",
        MergeKind::Rebuild => "rebuild",
        _ => "other",
    }
}

/// Inserts the new rows and merges. Returns the time of each step.
fn updated(
    session: &Session,
    index: &JoinIndex<u64>,
    rows: &Rows,
    threads: usize,
) -> Outcome<([Duration; 2], MergeReport)> {
    index.set_threads(threads);
    let (_, done) = session.machine.run_whole(threads, || {
        let began = Instant::now();
        index.insert_batch(&rows.pairs)?;
        let inserted = began.elapsed();
        let report = index.merge()?;
        Ok::<_, icefield::Error>(([inserted, began.elapsed() - inserted], report))
    });
    index.set_threads(1);
    Ok(done?)
}

/// Updates the index while another thread probes old rows, all of which are present. Returns the number of probed rows,
/// and the probe rate during the update relative to that before it.
fn meanwhile(
    session: &Session,
    design: DesignRef,
    setting: Setting,
    rows: &Rows,
) -> Outcome<(u64, Option<f64>)> {
    let (placed, _) = built(session, design, session.medium(design), rows.old(), setting)?;
    let Some(index) = placed.index() else { return Ok((0, None)) };
    let asked = &rows.old()[..rows.old().len().min(ASKED)];
    let probe = |rounds: &mut dyn FnMut() -> bool| {
        let (began, mut count, mut found) = (Instant::now(), 0_u64, 0);
        while rounds() {
            found += index.probe_count(asked)?;
            count += asked.len() as u64;
        }
        Ok::<_, icefield::Error>((count, found, began.elapsed()))
    };
    let passes = |count: u32| {
        let mut left = 0..count;
        probe(&mut || left.next().is_some())
    };
    // Maps the pages.
    passes(1)?;
    let (count, _, alone) = passes(8)?;
    let before = mops(count as usize, alone);
    let done = AtomicBool::new(false);
    let (probed, outcome) = std::thread::scope(|scope| {
        let prober = scope.spawn(|| {
            // Relaxed: the flag orders no other data. The first call returns true, so at least one batch is probed even
            // if the update is short.
            let mut first = true;
            probe(&mut || std::mem::take(&mut first) || !done.load(Relaxed))
        });
        // The merge uses one thread, because another thread probes.
        let outcome = index.insert_batch(&rows.pairs).and_then(|()| index.merge());
        done.store(true, Relaxed);
        let probed = prober.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (probed, outcome)
    });
    outcome?;
    let (count, found, time) = probed?;
    if found != count {
        session.blame(design, &format!("{found} of {count} rows were there during an update"));
    }
    let ratio = mops(count as usize, time) / before;
    Ok((count, Some(ratio).filter(|ratio| ratio.is_finite())))
}
