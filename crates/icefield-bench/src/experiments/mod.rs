//! The experiments by name.

mod ablations;
mod amplification;
mod any_table;
mod cache_misses;
mod child;
mod fill;
mod growth;
mod join;
mod latency;
mod levels;
mod limit;
mod locks;
mod mixed;
mod occupancy;
mod oltp;
mod paced;
mod prefault;
mod range;
mod records;
mod recovery;
mod rows;
mod smallbank;
mod space;
mod sweeps;
mod tatp;
mod throughput;
mod timeline;
mod unlogged;

use std::time::Instant;

use serde_json::json;

use crate::designs::ICEBERG_IN_MEMORY;
use crate::output::Output;
use crate::prelude::*;
use crate::report::{self, RunFacts};

struct Experiment {
    name: &'static str,
    what: &'static str,
    run: fn(&mut Session) -> Outcome,
}

/// Registers experiments by name, each with its description and the function that runs it.
macro_rules! experiments {
    ($(#[doc = $what:literal] $name:literal: $run:path,)*) => {
        /// All experiments, in the order of `list` and `all`.
        const EXPERIMENTS: &[Experiment] =
            &[$(Experiment { name: $name, what: $what.trim_ascii_start(), run: $run }),*];
    };
}

experiments! {
    /// the machine's own ceilings: bare loops over lines
    "limit": limit::run,
    /// reads of present keys (DLHT Fig 3, Dash Fig 7)
    "get": throughput::run,
    /// reads of absent keys (Dash Fig 7)
    "get-miss": throughput::run,
    /// try_insert of new keys into a table sized for them (Dash Fig 7, Iceberg Fig 1)
    "insert": throughput::run,
    /// blind puts of new keys into a table sized for them; with `--medium disk` beside stores in files
    "put": throughput::run,
    /// try_insert of new keys into a table that grows from 1024 (DLHT Fig 7)
    "populate": throughput::run,
    /// insert and remove of the same absent key, two operations (DLHT Fig 5)
    "insdel": throughput::run,
    /// half reads, half updates of present keys (DLHT Fig 6)
    "putheavy": throughput::run,
    /// remove of present keys (Dash Fig 7)
    "delete": throughput::run,
    /// try_insert of new and get of present keys, by share of inserts
    "mixed": mixed::run,
    /// reads, and inserts with removals, by operations in a batch (DLHT Fig 12)
    "batch-size": sweeps::batch_size,
    /// the same by the share of a thousand hot keys (DLHT Fig 13)
    "skew": sweeps::skew,
    /// the same by the number of records, from cache to memory (DLHT Fig 11)
    "index-size": sweeps::index_size,
    /// the same by bytes of a value, 8 to 1024: words, and dlht-map (DLHT Fig 9)
    "value-size": sweeps::value_size,
    /// the same by bytes of a key, 8 to 64: words, and dlht-map (DLHT Fig 10)
    "key-size": sweeps::key_size,
    /// the same with resizing and strong hashing off and on; dlht-map with either allocator (DLHT Fig 14)
    "features": sweeps::features,
    /// records in the order of their keys, by how many are asked for at a time (Plush Fig 10)
    "range": range::run,
    /// 16-byte keys with values of 16 to 2032 bytes, by the share of writes (Plush Fig 12)
    "var-records": records::run,
    /// gets of 16-byte keys with values of 100 bytes, one by one and in streams; beside stores in files
    "var-gets": records::gets,
    /// the calls of tables opened by name beside those of typed tables
    "any-table": any_table::run,
    /// records through the log, and past it (Plush Fig 9)
    "bulk-load": unlogged::bulk_load,
    /// making durable what no log has, by one thread and by several (Plush 6.5)
    "checkpoint": unlogged::checkpoint,
    /// the same for one thread, with atomics and without (DLHT Fig 16)
    "single-thread": sweeps::single_thread,
    /// how full an index is when it grows, and lines per get then (DLHT 5.1.5)
    "occupancy": occupancy::run,
    /// reads and inserts over time while all records move, and the longest stall of a get (DLHT Fig 8)
    "resize-timeline": timeline::run,
    /// locking by set insert, unlocking by remove (DLHT Fig 17)
    "lock-manager": locks::run,
    /// the loading of YCSB, into a table that grows (Iceberg 7.2)
    "ycsb-load": throughput::run,
    /// half reads, half writes (DLHT Fig 18)
    "ycsb-a": mixed::ycsb,
    /// 95 % reads, 5 % writes (DLHT Fig 18)
    "ycsb-b": mixed::ycsb,
    /// reads (DLHT Fig 18)
    "ycsb-c": mixed::ycsb,
    /// 95 % reads of the latest records, 5 % inserts (Iceberg 7.2)
    "ycsb-d": mixed::ycsb,
    /// half reads, half read-modify-writes (DLHT Fig 18)
    "ycsb-f": mixed::ycsb,
    /// transactions of a telephone exchange, over shadow inserts and locks in values (DLHT Fig 19)
    "tatp": tatp::run,
    /// transactions of a bank, over locks in values (DLHT Fig 19)
    "smallbank": smallbank::run,
    /// joins with an index and with maps: by the share that matches, and TPC-H's line items (SPAR 4-6, DLHT 20)
    "join": join::run,
    /// a tenth more rows: merged into an index, beside building it anew and inserting into tables (SPAR Fig 7)
    "join-update": join::update,
    /// memory of eight processes that have one index open, beside one process
    "join-share": join::share,
    /// misses of the first and the last level in a join, counted and simulated (SPAR Fig 9)
    "cache-misses": cache_misses::run,
    /// how full segments get, by technique and size, and a table while it grows (Dash Figs 11-12)
    "load-factor": growth::load_factor,
    /// throughput while a sized table fills up
    "fill-curve": fill::run,
    /// records by level at 95 % fill, by sizes of buckets (Iceberg Tables 4 and 6)
    "levels": levels::run,
    /// lines, flushes, fences and media blocks per call, exactly (simulated medium)
    "amplification": amplification::run,
    /// inserts that meet new pages and inserts that do not, on small pages and huge ones (Dash Fig 15)
    "prefault": prefault::run,
    /// what fingerprints and overflow metadata (Dash Figs 9-10), filters in DRAM (Plush Fig 9) are worth
    "filters": ablations::filters,
    /// searches and the lines that they write, optimistic and with read locks (Dash Fig 13)
    "locks": ablations::locks,
    /// from a killed process to the first answer and to full speed (Dash Table 1 and Fig 14)
    "recovery": recovery::run,
    /// percentiles per call, splits inside
    "latency": latency::run,
    /// percentiles of reads, and of inserts with removals, by the share of the highest rate (DLHT Fig 15)
    "latency-by-load": paced::run,
    /// bytes on the medium and in DRAM per record, over a growth, after updates and after removals
    "space": space::run,
}

/// The experiments that most claims are about. `all` measures them, even with `--quick`, with competitors, with each
/// number of threads, and both one key at a time and in streams.
const HEADLINES: [&str; 5] = ["get", "insert", "put", "populate", "insdel"];

/// Further experiments that `all --quick` measures with each number of threads, because their claims need it.
const BY_THREADS: [&str; 3] = ["join", "recovery", "checkpoint"];

/// Sets the options of one experiment of `all`, where the user gave none.
fn prepare(session: &mut Session, asked: &Args, name: &str) {
    let headline = HEADLINES.contains(&name);
    // The paper measures inserts of IcebergHT in DRAM.
    let in_memory = name == "insert" && asked.tables.is_empty() && asked.medium.is_none();
    let others: &[_] = if in_memory { &[&ICEBERG_IN_MEMORY] } else { &[] };
    session.invite(headline || !asked.quick || !asked.peers.is_empty(), others);
    session.args.threads = match asked.threads.as_slice() {
        [] if asked.quick && !headline && !BY_THREADS.contains(&name) => {
            vec![session.machine.cores()]
        }
        threads => threads.to_vec(),
    };
    session.args.batch = match asked.batch.as_slice() {
        [] if headline => vec![Batch::None, Batch::Stream],
        batches => batches.to_vec(),
    };
}

/// Returns the description of an experiment.
pub(crate) fn what(name: &str) -> Option<&'static str> {
    EXPERIMENTS.iter().find(|known| known.name == name).map(|known| known.what)
}

/// Runs the experiment that `args` names. Returns `false` if an answer was wrong.
pub(crate) fn run(args: Args) -> Outcome<bool> {
    match args.experiment.as_str() {
        "list" => {
            let mut output = Output::open(&args)?;
            for Experiment { name, what, .. } in EXPERIMENTS {
                let value = json!({ "experiment": name, "what": what });
                output.told(&format!("{name:14} {what}"), &value)?;
            }
            return output.finish().map(|()| true);
        }
        recovery::CHILD => return recovery::child(&args).map(|()| true),
        join::SHARE_CHILD => return join::share_child(&args).map(|()| true),
        _ => {}
    }
    let all = args.experiment == "all";
    let chosen: Vec<_> =
        EXPERIMENTS.iter().filter(|known| all || known.name == args.experiment).collect();
    if chosen.is_empty() {
        return Err(Error::NoExperiment(args.experiment));
    }
    let began = Instant::now();
    let mut session = Session::new(args)?;
    let asked = session.args.clone();
    for experiment in chosen {
        if all {
            prepare(&mut session, &asked, experiment.name);
        }
        session.experiment = experiment.name;
        (experiment.run)(&mut session)?;
        session.output.finish_experiment()?;
    }
    session.output.finish()?;
    if let Some(dir) = &session.args.out {
        let facts = RunFacts::gather(session.machine.cores(), session.backing(), began.elapsed());
        facts.write(dir)?;
        let page = report::write(dir, what)?;
        session.output.say(&format!("report: {}", page.display()))?;
    }
    Ok(session.is_sound())
}
