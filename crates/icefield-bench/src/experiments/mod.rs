//! The experiments by name.

mod ablations;
mod amplification;
mod cache_misses;
mod fill;
mod filters;
mod growth;
mod join;
mod latency;
mod levels;
mod limit;
mod locks;
mod mixed;
mod occupancy;
mod oltp;
mod prefault;
mod range;
mod records;
mod recovery;
mod segment_fill;
mod smallbank;
mod space;
mod sweeps;
mod tatp;
mod throughput;
mod timeline;
mod unlogged;
mod ycsb;

use std::time::Instant;

use crate::args::{Args, Batch};
use crate::designs::ICEBERG_IN_MEMORY;
use crate::output::Output;
use crate::report::{self, RunFacts};
use crate::session::Session;
use crate::{Error, Outcome};

struct Experiment {
    name: &'static str,
    what: &'static str,
    run: fn(&mut Session) -> Outcome,
}

/// All experiments, in the order of `list` and `all`.
const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "limit",
        what: "the machine's own ceilings: bare loops over lines",
        run: limit::run,
    },
    Experiment {
        name: "get",
        what: "reads of present keys (DLHT Fig 3, Dash Fig 7)",
        run: |session| throughput::run(session, &throughput::GET),
    },
    Experiment {
        name: "get-miss",
        what: "reads of absent keys (Dash Fig 7)",
        run: |session| throughput::run(session, &throughput::GET_MISS),
    },
    Experiment {
        name: "insert",
        what: "try_insert of new keys into a table sized for them (Dash Fig 7, Iceberg Fig 1)",
        run: |session| throughput::run(session, &throughput::INSERT),
    },
    Experiment {
        name: "put",
        what: "blind puts of new keys into a table sized for them; with `--medium disk` beside stores in files",
        run: |session| throughput::run(session, &throughput::PUT),
    },
    Experiment {
        name: "populate",
        what: "try_insert of new keys into a table that grows from 1024 (DLHT Fig 7)",
        run: |session| throughput::run(session, &throughput::POPULATE),
    },
    Experiment {
        name: "insdel",
        what: "insert and remove of the same absent key, two operations (DLHT Fig 5)",
        run: |session| throughput::run(session, &throughput::INSDEL),
    },
    Experiment {
        name: "putheavy",
        what: "half reads, half updates of present keys (DLHT Fig 6)",
        run: |session| throughput::run(session, &throughput::PUTHEAVY),
    },
    Experiment {
        name: "delete",
        what: "remove of present keys (Dash Fig 7)",
        run: |session| throughput::run(session, &throughput::DELETE),
    },
    Experiment {
        name: "mixed",
        what: "try_insert of new and get of present keys, by share of inserts",
        run: mixed::run,
    },
    Experiment {
        name: "batch-size",
        what: "reads, and inserts with removals, by operations in a batch (DLHT Fig 12)",
        run: sweeps::batch_size,
    },
    Experiment {
        name: "skew",
        what: "the same by the share of a thousand hot keys (DLHT Fig 13)",
        run: sweeps::skew,
    },
    Experiment {
        name: "index-size",
        what: "the same by the number of records, from cache to memory (DLHT Fig 11)",
        run: sweeps::index_size,
    },
    Experiment {
        name: "value-size",
        what: "the same by bytes of a value, 8 to 1024: words, and dlht-map (DLHT Fig 9)",
        run: sweeps::value_size,
    },
    Experiment {
        name: "key-size",
        what: "the same by bytes of a key, 8 to 64: words, and dlht-map (DLHT Fig 10)",
        run: sweeps::key_size,
    },
    Experiment {
        name: "features",
        what: "the same with resizing and strong hashing off and on; dlht-map with either allocator (DLHT Fig 14)",
        run: sweeps::features,
    },
    Experiment {
        name: "range",
        what: "records in the order of their keys, by how many are asked for at a time (Plush Fig 10)",
        run: range::run,
    },
    Experiment {
        name: "var-records",
        what: "16-byte keys with values of 16 to 2032 bytes, by the share of writes (Plush Fig 12)",
        run: records::run,
    },
    Experiment {
        name: "bulk-load",
        what: "records through the log, and past it (Plush Fig 9)",
        run: unlogged::bulk_load,
    },
    Experiment {
        name: "checkpoint",
        what: "making durable what no log has, by one thread and by several (Plush 6.5)",
        run: unlogged::checkpoint,
    },
    Experiment {
        name: "single-thread",
        what: "the same for one thread, with atomics and without (DLHT Fig 16)",
        run: sweeps::single_thread,
    },
    Experiment {
        name: "occupancy",
        what: "how full an index is when it grows, and lines per get then (DLHT 5.1.5)",
        run: occupancy::run,
    },
    Experiment {
        name: "resize-timeline",
        what: "reads and inserts over time while all records move, and the longest get beside a control (DLHT Fig 8)",
        run: timeline::run,
    },
    Experiment {
        name: "lock-manager",
        what: "locks taken and given back over a set (DLHT Fig 17)",
        run: locks::run,
    },
    Experiment {
        name: "ycsb-load",
        what: "the loading of YCSB, into a table that grows (Iceberg 7.2)",
        run: |session| {
            let sweep = throughput::Sweep::new(session, "ycsb-load");
            throughput::run_sweep(session, &throughput::POPULATE, &sweep)
        },
    },
    Experiment {
        name: "ycsb-a",
        what: "half reads, half writes (DLHT Fig 18)",
        run: |session| ycsb::run(session, &ycsb::A),
    },
    Experiment {
        name: "ycsb-b",
        what: "95 % reads, 5 % writes (DLHT Fig 18)",
        run: |session| ycsb::run(session, &ycsb::B),
    },
    Experiment {
        name: "ycsb-c",
        what: "reads (DLHT Fig 18)",
        run: |session| ycsb::run(session, &ycsb::C),
    },
    Experiment {
        name: "ycsb-d",
        what: "95 % reads of the latest records, 5 % inserts (Iceberg 7.2)",
        run: |session| ycsb::run(session, &ycsb::D),
    },
    Experiment {
        name: "ycsb-f",
        what: "half reads, half read-modify-writes (DLHT Fig 18)",
        run: |session| ycsb::run(session, &ycsb::F),
    },
    Experiment {
        name: "tatp",
        what: "transactions of a telephone exchange, over shadow inserts and locks in values (DLHT Fig 19)",
        run: tatp::run,
    },
    Experiment {
        name: "smallbank",
        what: "transactions of a bank, over locks in values (DLHT Fig 19)",
        run: smallbank::run,
    },
    Experiment {
        name: "join",
        what: "joins with an index and with maps: by the share that matches, and TPC-H's line items (SPAR 4-6, DLHT 20)",
        run: join::run,
    },
    Experiment {
        name: "join-update",
        what: "a tenth more rows: merged into an index, beside building it anew and inserting into tables (SPAR Fig 7)",
        run: join::update,
    },
    Experiment {
        name: "join-share",
        what: "memory of eight processes that have one index open, beside one process",
        run: join::share,
    },
    Experiment {
        name: "cache-misses",
        what: "misses of the first and the last level in a join, counted and simulated (SPAR Fig 9)",
        run: cache_misses::run,
    },
    Experiment {
        name: "load-factor",
        what: "how full segments get, by technique and size, and a table while it grows (Dash Figs 11-12)",
        run: growth::load_factor,
    },
    Experiment {
        name: "fill-curve",
        what: "throughput while a sized table fills up",
        run: fill::run,
    },
    Experiment {
        name: "levels",
        what: "records by level at 95 % fill, by sizes of buckets (Iceberg Tables 4 and 6)",
        run: levels::run,
    },
    Experiment {
        name: "amplification",
        what: "lines, flushes, fences and media blocks per call, exactly (simulated medium)",
        run: amplification::run,
    },
    Experiment {
        name: "prefault",
        what: "inserts that meet new pages and inserts that do not, on small pages and huge ones (Dash Fig 15)",
        run: prefault::run,
    },
    Experiment {
        name: "filters",
        what: "what fingerprints and overflow metadata (Dash Figs 9-10), filters in DRAM (Plush Fig 9) are worth",
        run: filters::run,
    },
    Experiment {
        name: "locks",
        what: "searches and the lines that they write, optimistic and with read locks (Dash Fig 13)",
        run: ablations::locks,
    },
    Experiment {
        name: "recovery",
        what: "from a killed process to the first answer and to full speed (Dash Table 1 and Fig 14)",
        run: recovery::run,
    },
    Experiment { name: "latency", what: "percentiles per call, splits inside", run: latency::run },
    Experiment {
        name: "space",
        what: "bytes on the medium and in DRAM per record, over a growth, after updates and after removals",
        run: space::run,
    },
];

/// The experiments that most claims are about. Even `all --quick` measures them with competitors, with each number
/// of threads, and one key at a time.
const HEADLINES: [&str; 5] = ["get", "insert", "put", "populate", "insdel"];

/// Further experiments whose claims need each number of threads.
const BY_THREADS: [&str; 3] = ["join", "recovery", "checkpoint"];

/// Sets the options of one experiment of `all`, where the user gave none.
fn prepare(session: &mut Session, asked: &Args, name: &str) {
    let headline = HEADLINES.contains(&name);
    // The paper measures inserts of IcebergHT in DRAM.
    let in_memory = name == "insert" && asked.tables.is_empty() && asked.medium.is_none();
    let others: &[_] = if in_memory { &[ICEBERG_IN_MEMORY] } else { &[] };
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
            EXPERIMENTS
                .iter()
                .try_for_each(|experiment| output.listed(experiment.name, experiment.what))?;
            output.finish()?;
            return Ok(true);
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
        (experiment.run)(&mut session)?;
        session.output.finish_experiment()?;
    }
    session.output.finish()?;
    if let Some(dir) = &session.args.out {
        let facts = RunFacts::gather(session.machine.cores(), session.backing(), began.elapsed());
        facts.write(dir)?;
        let page = report::write(dir)?;
        session.output.say(&format!("report: {}", page.display()))?;
    }
    Ok(session.is_sound())
}
