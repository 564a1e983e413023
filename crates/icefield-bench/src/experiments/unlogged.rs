//! Plush without its log (Plush 6.5): the gain for a bulk load, and the cost of the checkpoint that makes it
//! durable.

use std::time::Duration;

use icefield::Plush;

use crate::args::{Batch, Medium};
use crate::keys::{Tally, value_of};
use crate::machine::{mops, part};
use crate::place::RemovedDir;
use crate::row::rounded;
use crate::session::Session;
use crate::stats::median;
use crate::table::Design;
use crate::{Error, Outcome};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// By `put`: each record is durable at once.
    Logged,
    /// By `put_unlogged`: durable after a checkpoint.
    Unlogged,
}

impl Load {
    fn op(self) -> &'static str {
        match self {
            Self::Logged => "put",
            Self::Unlogged => "put_unlogged",
        }
    }
}

/// An empty table and its directory, which is removed on drop.
type Empty = (Plush<u64, u64>, RemovedDir);

fn empty(session: &Session, medium: Medium, keys: u64) -> Outcome<Empty> {
    let Some(durability) = medium.durability().filter(|_| medium != Medium::Memory) else {
        return Err(Error::option("medium", "must be process, pmem or disk"));
    };
    let path = session.fresh_path();
    let removed = RemovedDir(Some(path.clone()));
    let options = Plush::options().capacity(keys).durability(durability);
    Ok((options.sync(session.args.sync.unwrap_or_default()).create(&path)?, removed))
}

/// Puts all keys and returns the time.
fn fill(
    session: &Session,
    table: &Plush<u64, u64>,
    load: Load,
    keys: &[u64],
    threads: usize,
) -> Outcome<Duration> {
    let (time, parts) = session.machine.run(threads, |thread| {
        keys[part(keys.len(), thread, threads)].iter().try_for_each(|&key| match load {
            Load::Logged => table.put(key, value_of(key)),
            Load::Unlogged => table.put_unlogged(key, value_of(key)),
        })
    });
    parts.into_iter().collect::<icefield::Result<()>>()?;
    Ok(time)
}

/// Checks the content of the table against the keys.
fn check(
    session: &Session,
    design: &'static dyn Design,
    table: &Plush<u64, u64>,
    keys: &[u64],
) -> Outcome {
    let mut found = Tally::default();
    let mut answers = [None; 1 << 10];
    for chunk in keys.chunks(answers.len()) {
        let answers = &mut answers[..chunk.len()];
        table.get_batch(chunk, answers)?;
        answers.iter().for_each(|answer| found.answer(*answer));
    }
    session.check(design, "bulk load", found, Tally::of_values(keys));
    Ok(())
}

/// `bulk-load`: records with the log and without, each into its own tables, in turns.
pub(super) fn bulk_load(session: &mut Session) -> Outcome {
    let design = session.designs_named(&["plush"])?[0];
    let medium = session.medium(design);
    let keys = session.space.keys(0..session.keys(medium));
    for threads in session.threads() {
        let mut results = [Load::Logged, Load::Unlogged].map(|load| (load, Vec::new(), Vec::new()));
        for _ in 0..session.repeat() {
            for (load, speeds, checkpoints) in &mut results {
                let what = format!("bulk-load plush: {} of {} records", load.op(), keys.len());
                session.progress(&what);
                let (table, _removed) = empty(session, medium, keys.len() as u64)?;
                let time = fill(session, &table, *load, &keys, threads)?;
                let (checkpoint, done) =
                    session.machine.run_whole(threads, || table.checkpoint(threads));
                done?;
                speeds.push((mops(keys.len(), time), mops(keys.len(), time + checkpoint)));
                checkpoints.push(checkpoint.as_secs_f64() * 1e3);
                check(session, design, &table, &keys)?;
            }
        }
        let middle =
            |speeds: &[(f64, f64)]| median(&speeds.iter().map(|it| it.0).collect::<Vec<_>>());
        let logged = middle(&results[0].1);
        for (load, speeds, checkpoints) in results {
            let mut row = session.row("bulk-load", design, medium);
            (row.op, row.threads, row.batch) = (load.op(), Some(threads), Some(Batch::None));
            (row.keys, row.ops) = (Some(keys.len() as u64), Some(keys.len() as u64));
            row.throughput(&speeds.iter().map(|it| it.0).collect::<Vec<_>>());
            let durable: Vec<f64> = speeds.iter().map(|it| it.1).collect();
            row.extra("durable_mops", median(&durable).map(rounded));
            row.extra("checkpoint_ms", median(&checkpoints).map(rounded));
            row.extra(
                "to_logged",
                middle(&speeds).zip(logged).map(|(own, all)| rounded(own / all)),
            );
            session.put(row)?;
        }
    }
    Ok(())
}

/// `checkpoint`: moves all records that are not in a log to level 1, with one thread and with several.
pub(super) fn checkpoint(session: &mut Session) -> Outcome {
    let design = session.designs_named(&["plush"])?[0];
    let medium = session.medium(design);
    let keys = session.space.keys(0..session.keys(medium));
    let threads = session.threads();
    let mut results: Vec<_> = threads.iter().map(|threads| (*threads, Vec::new())).collect();
    let mut records = 0;
    for _ in 0..session.repeat() {
        for (threads, times) in &mut results {
            session
                .progress(&format!("checkpoint plush: {} records, {threads} threads", keys.len()));
            let (table, _removed) = empty(session, medium, keys.len() as u64)?;
            fill(session, &table, Load::Unlogged, &keys, session.machine.cores())?;
            let before = moves(&table);
            let (time, done) = session.machine.run_whole(*threads, || table.checkpoint(*threads));
            done?;
            records = moves(&table) - before;
            times.push(time.as_secs_f64() * 1e3);
            check(session, design, &table, &keys)?;
        }
    }
    let one = results.first().and_then(|(_, times)| median(times));
    for (threads, times) in results {
        let mut row = session.row("checkpoint", design, medium);
        (row.threads, row.keys, row.ops) = (Some(threads), Some(keys.len() as u64), Some(records));
        row.throughput(&times.iter().map(|ms| records as f64 / ms / 1e3).collect::<Vec<_>>());
        row.extra("checkpoint_ms", median(&times).map(rounded));
        row.extra("to_first", median(&times).zip(one).map(|(own, first)| rounded(first / own)));
        session.put(row)?;
    }
    Ok(())
}

/// Returns the number of records moved between levels so far.
fn moves(table: &Plush<u64, u64>) -> u64 {
    table.stats().details.iter().find(|(name, _)| *name == "moves").map_or(0, |(_, moves)| *moves)
}
