//! A tenth more rows (SPAR Fig 7): an index inserts them into its delta store and merges. This is compared with an
//! index rebuilt from all rows, and with tables that insert them.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use icefield::{JoinIndex, MergeKind, MergeReport};

use super::{BUILD_ROWS, Relations, built, contenders};
use crate::args::{Batch, Medium};
use crate::experiments::growth::describe_space;
use crate::keys::value_of;
use crate::machine::mops;
use crate::row::{Row, rounded};
use crate::session::Session;
use crate::stats::median;
use crate::table::{Call, Design};
use crate::{Error, Outcome};

/// The number of old rows per new one.
const OLD_PER_NEW: u64 = 10;
/// The number of old rows that a concurrent batch probes.
const ASKED: usize = 1 << 16;

/// The old rows and the new ones.
struct Rows {
    all: Vec<u64>,
    /// The number of old rows.
    present: usize,
    /// The new rows with their payloads.
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
    if session.args.medium == Some(Medium::Sim) {
        return Err(Error::option("medium", "must be memory, process, pmem or disk"));
    }
    let rows = Rows::make(session, session.keys_or(BUILD_ROWS));
    let nothing = Relations::default();
    let designs = contenders(session, &nothing)?;
    for threads in session.threads() {
        for batch in session.batches(&[Batch::Stream]) {
            let takes = |design: &&'static dyn Design| threads == 1 || !design.is_for_one_thread();
            let mut contenders: Vec<_> = designs
                .iter()
                .copied()
                .filter(takes)
                .map(|design| Contender::new(session, design, (threads, batch)))
                .collect();
            for _ in 0..session.repeat() {
                for contender in &mut contenders {
                    contender.measure(session, &rows)?;
                }
            }
            for contender in contenders {
                contender.report(session, &rows)?;
            }
        }
    }
    Ok(())
}

/// One table in the rotation, with its times in seconds per round.
struct Contender {
    design: &'static dyn Design,
    medium: Medium,
    how: (usize, Batch),
    update: Vec<f64>,
    insert: Vec<f64>,
    merge: Vec<f64>,
    rebuild: Vec<f64>,
    merged: Option<MergeReport>,
    row: Row,
}

impl Contender {
    fn new(session: &Session, design: &'static dyn Design, how: (usize, Batch)) -> Self {
        let medium = session.medium(design);
        let row = session.row("join-update", design, medium);
        let [update, insert, merge, rebuild] = [const { Vec::new() }; 4];
        Self { design, medium, how, update, insert, merge, rebuild, merged: None, row }
    }

    fn measure(&mut self, session: &Session, rows: &Rows) -> Outcome {
        let (threads, batch) = self.how;
        let (design, medium) = (self.design, self.medium);
        session.progress(&format!("join-update {}: {threads} threads", design.name()));
        let (placed, _) = built(session, design, medium, rows.old(), self.how)?;
        let table = &*placed.table;
        match table.index() {
            Some(index) => {
                let ([insert, merge], report) = updated(session, index, rows, threads)?;
                self.insert.push(insert.as_secs_f64());
                self.merge.push(merge.as_secs_f64());
                self.update.push((insert + merge).as_secs_f64());
                self.merged = Some(report);
            }
            None => {
                let (time, found) =
                    session.timed(table, Call::TryInsert, rows.added(), threads, batch)?;
                session.check_call(design, table, (Call::TryInsert, rows.added()), found);
                self.update.push(time.as_secs_f64());
            }
        }
        let (_, found) = session.timed(table, Call::Get, &rows.all, threads, Batch::Stream)?;
        session.check_call(design, table, (Call::Get, &rows.all), found);
        describe_space(&mut self.row, table);
        let is_index = table.index().is_some();
        drop(placed);
        if is_index {
            let (_, time) = built(session, design, medium, &rows.all, self.how)?;
            self.rebuild.push(time.as_secs_f64());
        }
        Ok(())
    }

    fn report(self, session: &mut Session, rows: &Rows) -> Outcome {
        let Self { design, mut row, how: (threads, batch), .. } = self;
        (row.threads, row.batch) = (Some(threads), Some(batch));
        (row.keys, row.ops) = (Some(rows.old().len() as u64), Some(rows.added().len() as u64));
        let rate = |seconds: &f64| mops(rows.added().len(), Duration::from_secs_f64(*seconds));
        row.throughput(&self.update.iter().map(rate).collect::<Vec<_>>());
        for (name, seconds) in
            [("insert_ms", &self.insert), ("merge_ms", &self.merge), ("rebuild_ms", &self.rebuild)]
        {
            if let Some(seconds) = median(seconds) {
                row.extra(name, rounded(seconds * 1e3));
            }
        }
        if let Some((rebuild, update)) = median(&self.rebuild).zip(median(&self.update)) {
            row.extra("rebuild_ratio", rounded(rebuild / update));
        }
        if let Some(report) = self.merged {
            row.extra("merge", kind(report.kind));
            let (asked, ratio) = meanwhile(session, design, (self.medium, self.how), rows)?;
            row.extra("probes_meanwhile", asked);
            row.extra("probe_rate_ratio", ratio.map(rounded));
        }
        session.put(row)
    }
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

/// Updates the index while another thread probes old rows, all of which are present. Returns the number of probed
/// rows, and their rate relative to that before the update.
fn meanwhile(
    session: &Session,
    design: &'static dyn Design,
    (medium, how): (Medium, (usize, Batch)),
    rows: &Rows,
) -> Outcome<(u64, Option<f64>)> {
    let (placed, _) = built(session, design, medium, rows.old(), how)?;
    let Some(index) = placed.table.index() else { return Ok((0, None)) };
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
            // Relaxed: the flag orders no other data. Probes at least once, even if the update is short.
            let mut first = true;
            probe(&mut || std::mem::take(&mut first) || !done.load(Relaxed))
        });
        // With one thread, as the other thread probes.
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
