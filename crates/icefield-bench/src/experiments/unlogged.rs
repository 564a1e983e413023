//! Plush without its log (Plush 6.5): how much faster a bulk load is, and the cost of the checkpoint that makes the
//! records durable.

use std::time::Duration;

use icefield::{Plush, Result};

use crate::prelude::*;

type Table = Plush<u64, u64>;

/// The two ways to put a record. With the log, each record is durable at once; without it, after a checkpoint.
const LOADS: [&str; 2] = ["put", "put_unlogged"];

fn logged(table: &Table, key: u64) -> Result<()> {
    table.put(key, value_of(key))
}

fn unlogged(table: &Table, key: u64) -> Result<()> {
    table.put_unlogged(key, value_of(key))
}

/// The subject of both experiments: Plush on one medium, and the records.
struct Run {
    design: DesignRef,
    medium: Medium,
    keys: Vec<u64>,
}

impl Run {
    fn new(session: &Session) -> Outcome<Self> {
        let (design, (medium, _)) = (session.our("plush")?, session.medium_of_files()?);
        Ok(Self { design, medium, keys: session.space.keys(0..session.keys(medium)) })
    }

    fn row(&self, session: &Session, threads: usize) -> Row {
        let mut row = session.row(self.design, self.medium);
        (row.threads, row.keys) = (Some(threads), Some(self.keys.len() as u64));
        row
    }

    /// Puts all keys into a new table. Returns the table, its directory, and the time.
    fn filled<P: Fn(&Table, u64) -> Result<()> + Sync>(
        &self,
        session: &Session,
        put: P,
        threads: usize,
    ) -> Outcome<(Table, RemovedDir, Duration)> {
        let ((_, durability), (path, dir)) = (session.medium_of_files()?, session.fresh_dir());
        let options = Plush::options().capacity(self.keys.len() as u64).durability(durability);
        let table = options.sync(session.args.sync.unwrap_or_default()).create(&path)?;
        let (time, parts) = session.machine.run(threads, |thread| {
            let keys = &self.keys[part(self.keys.len(), thread, threads)];
            keys.iter().try_for_each(|&key| put(&table, key))
        });
        parts.into_iter().collect::<Result<()>>()?;
        Ok((table, dir, time))
    }

    /// Makes all records durable, then checks the content of the table. Returns the time of the checkpoint alone.
    fn checkpoint(&self, session: &Session, table: &Table, threads: usize) -> Outcome<Duration> {
        let (time, done) = session.machine.run_whole(threads, || table.checkpoint(threads));
        done?;
        let mut found = Tally::default();
        let mut answers = [None; 1 << 10];
        for keys in self.keys.chunks(answers.len()) {
            let answers = &mut answers[..keys.len()];
            table.get_batch(keys, answers)?;
            answers.iter().for_each(|answer| found.answer(*answer));
        }
        session.check(self.design, "bulk load", found, Tally::of_values(&self.keys));
        Ok(time)
    }
}

/// `bulk-load`: puts the records with the log and without it, in turns, each time into a new table.
pub(super) fn bulk_load(session: &mut Session) -> Outcome {
    let run = Run::new(session)?;
    let count = run.keys.len();
    for threads in session.threads() {
        let mut rows = LOADS.map(|op| {
            let mut row = run.row(session, threads);
            op.clone_into(&mut row.op);
            row.at(threads, Batch::None, count as u64, count as u64);
            row
        });
        for _ in 0..session.repeat() {
            for row in &mut rows {
                session.progress(&format!("bulk-load plush: {} of {count} records", row.op));
                let (table, _dir, time) = match row.op == LOADS[0] {
                    true => run.filled(session, logged, threads)?,
                    false => run.filled(session, unlogged, threads)?,
                };
                let checkpoint = run.checkpoint(session, &table, threads)?;
                row.sample("mops", mops(count, time));
                row.sample("durable_mops", mops(count, time + checkpoint));
                row.sample("checkpoint_ms", checkpoint.as_secs_f64() * 1e3);
            }
        }
        let logged = rows[0].median("mops");
        for mut row in rows {
            let ratio = row.median("mops").zip(logged).map(|(own, all)| rounded(own / all));
            row.extra("to_logged", ratio);
            session.put(row)?;
        }
    }
    Ok(())
}

/// `checkpoint`: measures the move of all unlogged records to level 1, with one thread and with several.
pub(super) fn checkpoint(session: &mut Session) -> Outcome {
    let run = Run::new(session)?;
    let row = |threads| run.row(session, threads);
    let mut rows: Vec<_> = session.threads().into_iter().map(row).collect();
    for _ in 0..session.repeat() {
        for row in &mut rows {
            let threads = row.threads.unwrap_or(1);
            let count = run.keys.len();
            session.progress(&format!("checkpoint plush: {count} records, {threads} threads"));
            let cores = session.machine.cores();
            let (table, _dir, _) = run.filled(session, unlogged, cores)?;
            // Returns the number of records moved between levels so far.
            let moves = || detail(&table.stats(), "moves").unwrap_or(0);
            let before = moves();
            let time = run.checkpoint(session, &table, threads)?;
            let records = moves() - before;
            row.ops = Some(records);
            row.sample("mops", mops(records as usize, time));
            row.sample("checkpoint_ms", time.as_secs_f64() * 1e3);
        }
    }
    let first = rows.first().and_then(|row| row.median("checkpoint_ms"));
    for mut row in rows {
        let own = row.median("checkpoint_ms");
        row.extra("to_first", own.zip(first).map(|(own, first)| rounded(first / own)));
        session.put(row)?;
    }
    Ok(())
}
