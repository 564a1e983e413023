//! The program `icefield-torture`: runs the test scenarios for any length of time.
//!
//! Each kind ends with one JSON line of its counts. A violation is reported on standard error, with the seed that
//! replays it and a shortened trace.

mod join;
mod memory;
mod rounds;
mod tables;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::builder::RangedU64ValueParser;
use clap::{Parser, Subcommand, ValueEnum};
use icefield::SyncMode;
use icefield::storage::sim::{Model as CrashModel, Pool as Memory};
use icefield_torture::churn::{self, ChurnOptions};
use icefield_torture::crash::{self, CrashOptions, CrashReport, mutate};
use icefield_torture::pool::Pool;
use icefield_torture::scenarios::{self, KillScenario, Scenarios, scenarios};
use icefield_torture::scratch::Scratch;
use icefield_torture::{
    Failure as Violation, corrupt, faults, hostile, iterate, kill, linear, model, syncs,
};

use icefield_console::failure::{Failure, Outcome};
use icefield_console::json::{JsonArgs, Output, with_output};

use self::rounds::{Rounds, Tally, tell};

const EXAMPLES: &str = "\
Examples:
  icefield-torture crash --table dash-eh --images 1000000
  icefield-torture linear --table dash-eh --records bytes --seconds 600
  icefield-torture linear --table dlht --histories 1000000
  icefield-torture model --table dlht-local --seconds 60
  icefield-torture kill --table dash-lh --rounds 500 --json result.ndjson
  icefield-torture churn --table plush --records bytes --turnovers 2000

Exit status: 0 nothing found, 1 a violation (its seed is printed), 2 bad usage";

/// Try to break Icefield's tables, and print the seed of each violation
#[derive(Parser, Debug)]
#[command(name = "icefield-torture", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Subcommand, Debug)]
enum Kind {
    /// Run random operations against a reference map, with reopenings
    Model {
        /// Run N histories [default: 2000]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        histories: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Reopen and check crash images of histories on the simulated medium
    Crash {
        /// Check N images [default: 200000]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        images: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Disable each flush, fence and store order in turn; a scenario must detect each
    Mutate {
        /// Report a mutation as undetected after N images
        #[arg(long, value_name = "N", default_value_t = mutate::MutateOptions::default().states, value_parser = at_least_one())]
        images: u64,
        /// Restrict the run to sites in files whose path contains TEXT
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Kill a writing child process, and check that every acknowledged write is present
    Kill {
        /// Start N children [default: 200]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        rounds: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Run concurrent histories on hot keys, and check each for linearizability
    Linear {
        /// Run N histories [default: 100000]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        histories: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Open, use and salvage damaged tables
    Corrupt {
        /// Use N damaged tables [default: 20000]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        mutations: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Replace records repeatedly with concurrent readers, then remove most of them, and check the size of the files
    Churn {
        /// Keep N records in the table
        #[arg(long, value_name = "N", default_value_t = ChurnOptions::default().records, value_parser = at_least_one())]
        keep: u64,
        /// Replace each record N times
        #[arg(long, value_name = "N", default_value_t = ChurnOptions::default().turnovers, value_parser = at_least_one())]
        turnovers: u64,
        /// Use N tables [default: 1]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        tables: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Open tables with forged references and lengths, and change them while values are borrowed
    Hostile {
        /// Use N forged tables [default: 20000]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        mutations: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Fail every system call in turn, or every allocation of a table in memory, once and permanently
    Faults {
        #[command(flatten)]
        common: Common,
    },
    /// Fail every sync of a table on disk once, and check that acknowledged writes survive in all resulting page
    /// states
    Syncs {
        /// Check N images [default: 20000]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        images: Option<u64>,
        /// Check at most N images for one failed sync; a power of two, 2^n, covers n pages
        #[arg(long, value_name = "N", default_value_t = syncs::Options::default().images, value_parser = at_least_one())]
        each: u64,
        #[command(flatten)]
        common: Common,
    },
    /// Run as the child of `kill`
    #[command(name = CHILD, hide = true)]
    KillChild {
        #[arg(long)]
        table: String,
        #[arg(long)]
        records: Records,
        #[arg(long)]
        orders: String,
    },
}

/// A run of no rounds would find nothing and report success.
fn at_least_one() -> RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..)
}

/// The hidden subcommand of a child.
const CHILD: &str = "kill-child";

#[derive(clap::Args, Clone, Debug)]
struct Common {
    /// Test tables of the design T
    #[arg(long, value_name = "T", value_parser = tables::names())]
    table: String,
    /// Start with the seed S; a violation prints the seed that replays it
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Run for S seconds instead of a number of rounds (or until both are reached)
    #[arg(long, value_name = "S", value_parser = at_least_one())]
    seconds: Option<u64>,
    /// Simulate crashes of this medium
    #[arg(long, default_value = "pmem")]
    model: Medium,
    /// Acknowledge writes in this mode: always, every:MS, never (`crash` with `--model disk`, `mutate`, `syncs`)
    #[arg(long, value_name = "MODE", default_value = "always")]
    sync: SyncMode,
    /// Use records of this kind
    #[arg(long, default_value = "words")]
    records: Records,
    /// Create real files in DIR [default: in memory, where syncs matter on a disk]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Records {
    Words,
    Bytes,
    /// Keys of 16 bytes, values of 32: `plush` only
    Wide,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Medium {
    Pmem,
    Disk,
}

impl From<Records> for scenarios::Records {
    fn from(records: Records) -> Self {
        match records {
            Records::Words => Self::Words,
            Records::Bytes => Self::Bytes,
            Records::Wide => Self::Wide,
        }
    }
}

impl From<Medium> for CrashModel {
    fn from(medium: Medium) -> Self {
        match medium {
            Medium::Pmem => Self::Pmem,
            Medium::Disk => Self::Disk,
        }
    }
}

fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn main() -> ExitCode {
    icefield_console::main(run)
}

fn run(args: &Args) -> Outcome {
    if let Kind::KillChild { table, records, orders } = &args.kind {
        return child(table, *records, orders);
    }
    let common = args.kind.common();
    if common.sync != SyncMode::Always && !args.kind.syncs() {
        let text = "--sync: only for `crash` with --model disk, `mutate` and `syncs`";
        return Err(Failure::Usage(text.to_owned()));
    }
    with_output(&common.json, &[], |out| match scenarios(&common.table, common.records.into()) {
        Some(scenarios) => torture(scenarios, &args.kind, common, out),
        None if common.table == tables::JOIN => join::torture(&args.kind, common, out),
        None if scenarios(&common.table, scenarios::Records::Words).is_some() => {
            let (table, records) = (&common.table, name(&common.records));
            Err(Failure::Usage(format!("--records: {table} has no records that are {records}")))
        }
        None => memory::torture(&args.kind, common, common.records, out),
    })
}

fn child(table: &str, records: Records, orders: &str) -> Outcome {
    if table == tables::JOIN {
        return icefield_torture::join::child(orders).map(|()| true).map_err(Failure::Problem);
    }
    let Some(scenarios) = scenarios(table, records.into()) else {
        return Err(Failure::Problem("a table in memory has nothing to be killed for".to_owned()));
    };
    (scenarios.child)(orders).map(|()| true).map_err(Failure::Problem)
}

impl Kind {
    /// Returns whether the kind has disks on which writes may be acknowledged before they are durable.
    fn syncs(&self) -> bool {
        match self {
            Self::Crash { common, .. } => matches!(common.model, Medium::Disk),
            // Undetected mutations are tried on disks, too.
            Self::Mutate { .. } | Self::Syncs { .. } => true,
            _ => false,
        }
    }

    fn common(&self) -> &Common {
        match self {
            Self::Model { common, .. }
            | Self::Crash { common, .. }
            | Self::Mutate { common, .. }
            | Self::Kill { common, .. }
            | Self::Linear { common, .. }
            | Self::Corrupt { common, .. }
            | Self::Syncs { common, .. }
            | Self::Churn { common, .. }
            | Self::Hostile { common, .. }
            | Self::Faults { common } => common,
            Self::KillChild { .. } => unreachable!("a child has no scenario"),
        }
    }
}

fn torture(scenarios: &Scenarios, kind: &Kind, common: &Common, out: &mut Output) -> Outcome {
    if matches!(common.model, Medium::Disk) && !scenarios.disks {
        let text = format!("--model disk: `{}` refuses disks; leave it out", scenarios.table);
        return Err(Failure::Usage(text));
    }
    match kind {
        Kind::Model { histories, .. } => {
            run_model(scenarios, &Rounds::new(common, "histories", *histories, 2000)?, out)
        }
        Kind::Crash { images, .. } => {
            run_crash(&Rounds::new(common, "images", *images, 200_000)?, scenarios.crash, out)
        }
        Kind::Mutate { images, only, .. } => {
            run_mutate(scenarios.mutate, common, *images, only.clone(), out)
        }
        Kind::Kill { rounds, .. } => {
            let rounds = Rounds::new(common, "children", *rounds, 200)?;
            run_kill(&rounds, scenarios.kill, kill::Counts::meaningful, out)
        }
        Kind::Linear { histories, .. } => {
            let model = common.model.into();
            let rounds = Rounds::new(common, "histories", *histories, 100_000)?;
            run_linear(&rounds, |seed, size, pool| (scenarios.linear)(seed, size, model, pool), out)
        }
        Kind::Corrupt { mutations, .. } => {
            run_corrupt(scenarios, &Rounds::new(common, "damaged tables", *mutations, 20_000)?, out)
        }
        Kind::Churn { keep, turnovers, tables, .. } => {
            let rounds = Rounds::new(common, "tables", *tables, 1)?;
            run_churn(scenarios, &rounds, (*keep, *turnovers), out)
        }
        Kind::Hostile { mutations, .. } => {
            run_hostile(scenarios, &Rounds::new(common, "forged tables", *mutations, 20_000)?, out)
        }
        Kind::Faults { .. } => run_faults(scenarios, common, out),
        Kind::Syncs { .. } if !scenarios.disks => {
            Err(Failure::Usage(format!("--table: `{}` refuses disks", scenarios.table)))
        }
        Kind::Syncs { images, each, .. } => {
            run_syncs(&Rounds::new(common, "images", *images, 20_000)?, *each, scenarios.syncs, out)
        }
        Kind::KillChild { .. } => Ok(true),
    }
}

/// Creates a directory for real files.
fn place(common: &Common) -> Result<Scratch, Failure> {
    place_or(common, Scratch::new)
}

/// Creates a directory for real files on a medium where syncs have an effect.
fn place_for_syncs(common: &Common) -> Result<Scratch, Failure> {
    place_or(common, Scratch::for_syncs)
}

fn place_or(
    common: &Common,
    usual: impl FnOnce() -> std::io::Result<Scratch>,
) -> Result<Scratch, Failure> {
    match &common.dir {
        None => usual().map_err(|error| Failure::io(&std::env::temp_dir(), &error)),
        Some(parent) => Scratch::within(parent).map_err(|error| Failure::io(parent, &error)),
    }
}

/// Steps of a model history.
const MODEL_STEPS: usize = 300;

fn run_model(scenarios: &Scenarios, rounds: &Rounds<'_>, out: &mut Output) -> Outcome {
    let place = place(rounds.common)?;
    let (memory, threads, medium) = (Memory::default(), Pool::new(3), rounds.common.model.into());
    let path = place.path().join("table");
    let mut counts = model::Counts::default();
    let mut scans = iterate::Counts::default();
    let violations = tell(rounds.each(1, |seed, _| {
        counts.add(match seed % 8 {
            6 => (scenarios.model_in_memory)(seed, MODEL_STEPS),
            7 => (scenarios.model_in_files)(seed, MODEL_STEPS, &path),
            _ => (scenarios.model_simulated)(seed, MODEL_STEPS, medium, &memory),
        }?);
        if seed % 8 == 0 {
            scans.add((scenarios.iterate)(seed, &threads, &memory)?);
        }
        Ok(())
    }));
    let line = Tally::new(rounds.common, model::NAME)
        .field("histories", &counts.histories)
        .field("violations", &violations)
        .field("operations", &counts.operations)
        .field("reopens", &counts.reopens)
        .field("scans_among_writers", &scans.scans);
    rounds.end(out, line, violations)
}

fn run_crash(
    rounds: &Rounds<'_>,
    scenario: impl Fn(&CrashOptions) -> CrashReport,
    out: &mut Output,
) -> Outcome {
    let (mut histories, mut states, mut violations) = (0, 0, 0);
    let result = rounds.each(5_000, |seed, wanted| {
        let options = CrashOptions {
            seed,
            states: wanted,
            model: rounds.common.model.into(),
            sync: rounds.common.sync,
            ..CrashOptions::default()
        };
        let report = scenario(&options);
        histories += report.histories;
        states += report.states;
        violations += report.violations;
        report.first.map_or(Ok(()), Err)
    });
    tell(result);
    let line = Tally::new(rounds.common, crash::NAME)
        .field("histories", &histories)
        .field("images", &states)
        .field("violations", &violations);
    rounds.end(out, line, violations)
}

fn run_mutate(
    scenario: fn(&mutate::MutateOptions) -> mutate::MutateReport,
    common: &Common,
    states: u64,
    only: Option<String>,
    out: &mut Output,
) -> Outcome {
    let options = mutate::MutateOptions {
        seed: common.seed,
        model: common.model.into(),
        sync: common.sync,
        states,
        only,
        ..mutate::MutateOptions::default()
    };
    let report = scenario(&options);
    for site in &report.redundant {
        out.say(format_args!("nobody noticed that {site} was left out"))?;
    }
    let line = Tally::new(common, "mutate")
        .field("sites", &report.sites)
        .field("caught", &report.caught)
        .field("redundant", &report.redundant.len());
    line.print(out)?;
    Ok(report.redundant.is_empty())
}

fn run_kill(
    rounds: &Rounds<'_>,
    scenario: KillScenario,
    judge: impl Fn(&kill::Counts, u64) -> Result<(), Violation>,
    out: &mut Output,
) -> Outcome {
    let place = match rounds.common.table.as_str() {
        "plush" => place_for_syncs(rounds.common)?,
        _ => place(rounds.common)?,
    };
    let program = std::env::current_exe()
        .map_err(|error| Failure::Problem(format!("this program: {error}")))?;
    let (table, records) = (&rounds.common.table, name(&rounds.common.records));
    let command = |orders: &str| {
        let mut command = Command::new(&program);
        command.args([CHILD, "--table", table, "--records", &records, "--orders", orders]);
        command
    };
    let mut counts = kill::Counts::default();
    let path = place.path().join("round");
    let result = rounds.each(8, |seed, size| {
        counts.add(scenario(seed, size, &path, &command)?);
        Ok(())
    });
    let lost = tell(result.and_then(|()| judge(&counts, rounds.common.seed)));
    let line = Tally::new(rounds.common, kill::NAME)
        .field("rounds", &counts.rounds)
        .field("acked", &counts.acked)
        .field("lost", &lost)
        .field("killed", &counts.killed)
        .field("killed_at_call", &counts.killed_at_call)
        .field("stages", &counts.stages);
    rounds.end(out, line, lost)
}

fn run_linear(
    rounds: &Rounds<'_>,
    scenario: impl Fn(u64, u64, &Pool) -> Result<linear::Counts, Violation>,
    out: &mut Output,
) -> Outcome {
    let threads = Pool::new(3);
    let mut counts = linear::Counts::default();
    let result = rounds.each(1024, |seed, size| {
        counts.add(scenario(seed, size, &threads)?);
        Ok(())
    });
    let violations = tell(result.and_then(|()| counts.meaningful(rounds.common.seed)));
    let line = Tally::new(rounds.common, linear::NAME)
        .field("histories", &counts.histories)
        .field("overlap", &counts.overlap())
        .field("violations", &violations)
        .field("operations", &counts.operations)
        .field("swapped", &counts.swapped)
        .field("swapped_rejected", &counts.swapped_rejected)
        .field("grown_tables", &counts.grown_tables);
    let line = match counts.shadows.histories {
        0 => line,
        _ => line.field("shadows", &counts.shadows),
    };
    rounds.end(out, line, violations)
}

/// One damaged table in this many is on real files.
const FILES_ONE_IN: u64 = 20;

fn run_corrupt(scenarios: &Scenarios, rounds: &Rounds<'_>, out: &mut Output) -> Outcome {
    let place = place(rounds.common)?;
    let mut counts = corrupt::Counts::default();
    let result = rounds.each(1000, |seed, size| {
        let on_files = size / FILES_ONE_IN;
        counts.add((scenarios.corrupt)(seed, size - on_files)?);
        let path = place.path().join(seed.to_string());
        counts.add((scenarios.corrupt_files)(seed, on_files, &path)?);
        Ok(())
    });
    end_corrupt(rounds, result, &counts, |line| line, out)
}

/// Reports the result of damaged tables. `more` adds fields to the line.
fn end_corrupt(
    rounds: &Rounds<'_>,
    result: Result<(), Violation>,
    counts: &corrupt::Counts,
    more: impl FnOnce(Tally) -> Tally,
    out: &mut Output,
) -> Outcome {
    let failed = tell(result.and_then(|()| counts.clone().judged(rounds.common.seed).map(drop)));
    let line = Tally::new(rounds.common, corrupt::NAME)
        .field("mutations", &counts.mutations)
        .field("panics", &counts.panics)
        .field("hangs", &counts.hangs)
        .field("undetected_wrong_reads", &counts.undetected_wrong_reads)
        .field("refused", &counts.refused)
        .field("noticed", &counts.noticed)
        .field("unnoticed", &counts.unnoticed)
        .field("salvaged", &counts.salvaged);
    rounds.end(out, more(line), failed)
}

fn run_churn(
    scenarios: &Scenarios,
    rounds: &Rounds<'_>,
    (records, turnovers): (u64, u64),
    out: &mut Output,
) -> Outcome {
    let place = place(rounds.common)?;
    let path = place.path().join("table");
    let mut counts = churn::Counts::default();
    let violations = tell(rounds.each(1, |seed, _| {
        let options = ChurnOptions { seed, records, turnovers, ..ChurnOptions::default() };
        counts = (scenarios.churn)(&options, &path)?;
        Ok(())
    }));
    let line = Tally::new(rounds.common, churn::NAME)
        .field("violations", &violations)
        .field("writes", &counts.writes)
        .field("reads", &counts.reads)
        .field("live_bytes", &counts.live_bytes)
        .field("early_bytes", &counts.early_bytes)
        .field("most_bytes", &counts.most_bytes)
        .field("left_bytes", &counts.left_bytes)
        .field("shrunk_bytes", &counts.shrunk_bytes)
        .field("cleared_bytes", &counts.cleared_bytes);
    rounds.end(out, line, violations)
}

fn run_hostile(scenarios: &Scenarios, rounds: &Rounds<'_>, out: &mut Output) -> Outcome {
    let place = place(rounds.common)?;
    let mut counts = hostile::Counts::default();
    let result = rounds.each(1000, |seed, size| {
        let on_files = size / FILES_ONE_IN;
        counts.add((scenarios.hostile)(seed, size - on_files)?);
        let path = place.path().join(seed.to_string());
        counts.add((scenarios.hostile_files)(seed, on_files, &path)?);
        Ok(())
    });
    let failed = tell(result.and_then(|()| counts.clone().judged(rounds.common.seed).map(drop)));
    let line = Tally::new(rounds.common, hostile::NAME)
        .field("mutations", &counts.mutations)
        .field("opened", &counts.opened)
        .field("refused", &counts.refused)
        .field("lends", &counts.lends)
        .field("changed", &counts.changed)
        .field("panics", &counts.panics)
        .field("hangs", &counts.hangs);
    rounds.end(out, line, failed)
}

fn run_faults(scenarios: &Scenarios, common: &Common, out: &mut Output) -> Outcome {
    let place = place(common)?;
    tell_faults(common, (scenarios.faults)(common.seed, place.path()), out)
}

/// Images to check in one round, from one or more histories.
const OF_HISTORIES: u64 = 5_000;

fn run_syncs(
    rounds: &Rounds<'_>,
    images: u64,
    scenario: fn(&syncs::Options, &Path) -> Result<syncs::Counts, Violation>,
    out: &mut Output,
) -> Outcome {
    let place = place_for_syncs(rounds.common)?;
    let mut counts = syncs::Counts::default();
    let result = rounds.each(OF_HISTORIES, |mut seed, wanted| {
        let before = counts.images;
        while counts.images < before + wanted {
            let enough = before + wanted - counts.images;
            let options = syncs::Options { seed, sync: rounds.common.sync, images, enough };
            counts.add(scenario(&options, place.path())?);
            seed += 1;
        }
        Ok(())
    });
    let failed = tell(result.and_then(|()| counts.clone().judged(rounds.common.seed).map(drop)));
    let line = Tally::new(rounds.common, syncs::NAME)
        .field("syncs", &counts.syncs)
        .field("exhaustive", &counts.exhaustive)
        .field("images", &counts.images)
        .field("most_pages", &counts.most_pages)
        .field("errors", &counts.errors)
        .field("unopened", &counts.unopened)
        .field("wrong", &counts.wrong);
    rounds.end(out, line, failed)
}

fn tell_faults(
    common: &Common,
    done: Result<faults::Counts, Violation>,
    out: &mut Output,
) -> Outcome {
    let counts = done.map_err(|violation| Failure::Problem(violation.to_string()))?;
    let failed = tell(counts.clone().judged(common.seed).map(drop));
    let line = Tally::new(common, faults::NAME)
        .field("sites", &counts.sites)
        .field("lost", &counts.lost)
        .field("stuck", &counts.stuck)
        .field("aborts", &counts.aborts)
        .field("trials", &counts.trials)
        .field("errors", &counts.errors);
    line.print(out)?;
    Ok(failed == 0)
}
