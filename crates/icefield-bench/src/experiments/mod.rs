//! The experiments by name.

mod amplification;
mod fill;
mod growth;
mod latency;
mod limit;
mod mixed;
mod recovery;
mod throughput;

use crate::args::Args;
use crate::output::Output;
use crate::session::Session;
use crate::{Error, Outcome};

/// One experiment.
struct Experiment {
    name: &'static str,
    what: &'static str,
    run: fn(&mut Session) -> Outcome,
}

/// In the order of `list` and `all`.
const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "limit",
        what: "the machine's own ceilings: bare loops over lines",
        run: limit::run,
    },
    Experiment {
        name: "get",
        what: "reads of present keys",
        run: |session| throughput::run(session, &throughput::GET),
    },
    Experiment {
        name: "get-miss",
        what: "reads of absent keys",
        run: |session| throughput::run(session, &throughput::GET_MISS),
    },
    Experiment {
        name: "insert",
        what: "try_insert of new keys into a table sized for them",
        run: |session| throughput::run(session, &throughput::INSERT),
    },
    Experiment {
        name: "populate",
        what: "try_insert of new keys into a table that grows from 1024",
        run: |session| throughput::run(session, &throughput::POPULATE),
    },
    Experiment {
        name: "insdel",
        what: "insert and remove of the same absent key, two operations",
        run: |session| throughput::run(session, &throughput::INSDEL),
    },
    Experiment {
        name: "putheavy",
        what: "half reads, half updates of present keys (DLHT Fig 6)",
        run: |session| throughput::run(session, &throughput::PUTHEAVY),
    },
    Experiment {
        name: "delete",
        what: "remove of present keys",
        run: |session| throughput::run(session, &throughput::DELETE),
    },
    Experiment {
        name: "mixed",
        what: "try_insert of new and get of present keys, by share of inserts",
        run: mixed::run,
    },
    Experiment {
        name: "load-factor",
        what: "how full segments are when they split, and the table while it grows",
        run: growth::load_factor,
    },
    Experiment {
        name: "fill-curve",
        what: "throughput while a sized table fills up",
        run: fill::run,
    },
    Experiment {
        name: "amplification",
        what: "lines, flushes, fences and media blocks per call, exactly (simulated medium)",
        run: amplification::run,
    },
    Experiment {
        name: "recovery",
        what: "from a killed process to the first answer and to full speed",
        run: recovery::run,
    },
    Experiment { name: "latency", what: "percentiles per call, splits inside", run: latency::run },
    Experiment {
        name: "space",
        what: "bytes on the medium and in DRAM per record",
        run: growth::space,
    },
];

/// Runs what `args` name; `false` when an answer was wrong.
pub(crate) fn run(args: Args) -> Outcome<bool> {
    match args.experiment.as_str() {
        "list" => {
            let mut output = Output::open(&args)?;
            EXPERIMENTS
                .iter()
                .try_for_each(|experiment| output.listed(experiment.name, experiment.what))?;
            return Ok(true);
        }
        recovery::CHILD => return recovery::child(&args).map(|()| true),
        _ => {}
    }
    let all = args.experiment == "all";
    let chosen: Vec<_> =
        EXPERIMENTS.iter().filter(|known| all || known.name == args.experiment).collect();
    if chosen.is_empty() {
        return Err(Error::NoExperiment(args.experiment));
    }
    let mut session = Session::new(args)?;
    for experiment in chosen {
        (experiment.run)(&mut session)?;
        session.output.finish_experiment()?;
    }
    Ok(session.is_sound())
}
