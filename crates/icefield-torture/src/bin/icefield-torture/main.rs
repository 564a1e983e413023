//! The program `icefield-torture`: runs the test scenarios for any length of time.
//!
//! Each kind of scenario ends by printing its counts as one JSON line. A violation is reported on standard error, with
//! the seed that replays it and a shortened trace.

mod args;
mod join;
mod memory;
mod rounds;
mod runs;
mod tables;

use std::process::ExitCode;

use icefield::SyncMode;
use icefield_torture::kill;
use icefield_torture::scenarios::{self, Scenarios, scenarios};

use icefield_console::failure::{Failure, Outcome};
use icefield_console::json::{Output, with_output};

use self::args::{Args, Common, Kind, Medium, Records, name};
use self::rounds::Rounds;
use self::runs::{
    run_churn, run_corrupt, run_crash, run_faults, run_hostile, run_kill, run_linear, run_model,
    run_mutate, run_syncs,
};

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
            Err(Failure::Usage(format!(
                "--records: {table} has no records of the kind `{records}`"
            )))
        }
        None => memory::torture(&args.kind, common, common.records, out),
    })
}

fn child(table: &str, records: Records, orders: &str) -> Outcome {
    if table == tables::JOIN {
        return icefield_torture::join::child(orders).map(|()| true).map_err(Failure::Problem);
    }
    let Some(scenarios) = scenarios(table, records.into()) else {
        return Err(Failure::Problem("a table in memory does not survive a kill".to_owned()));
    };
    (scenarios.child)(orders).map(|()| true).map_err(Failure::Problem)
}

fn torture(scenarios: &Scenarios, kind: &Kind, common: &Common, out: &mut Output) -> Outcome {
    if matches!(common.model, Medium::Disk) && !scenarios.disks {
        let text = format!(
            "--model disk: `{}` does not support disks; leave the option out",
            scenarios.table
        );
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
        Kind::Syncs { .. } if !scenarios.disks => Err(Failure::Usage(format!(
            "--table: `{}` does not support disks; choose another table",
            scenarios.table
        ))),
        Kind::Syncs { images, each, .. } => {
            run_syncs(&Rounds::new(common, "images", *images, 20_000)?, *each, scenarios.syncs, out)
        }
        Kind::KillChild { .. } => Ok(true),
    }
}
