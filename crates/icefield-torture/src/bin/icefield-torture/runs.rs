//! Runs each scenario in rounds, and reports its counts.

use std::path::Path;
use std::process::Command;

use icefield::storage::sim::Pool as Memory;
use icefield_torture::churn::{self, ChurnOptions};
use icefield_torture::crash::{self, CrashOptions, CrashReport, mutate};
use icefield_torture::pool::Pool;
use icefield_torture::scenarios::{KillScenario, Scenarios};
use icefield_torture::scratch::Scratch;
use icefield_torture::{
    Failure as Violation, corrupt, faults, hostile, iterate, kill, linear, model, syncs,
};

use super::args::{CHILD, Common, name};
use super::rounds::{Rounds, Tally, tell};
use icefield_console::failure::{Failure, Outcome};
use icefield_console::json::Output;

/// Creates a directory for real files.
pub(super) fn place(common: &Common) -> Result<Scratch, Failure> {
    place_or(common, Scratch::new)
}

/// Creates a directory for real files on a medium where syncs have an effect.
pub(super) fn place_for_syncs(common: &Common) -> Result<Scratch, Failure> {
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

/// Number of steps of a model history.
pub(super) const MODEL_STEPS: usize = 300;

pub(super) fn run_model(scenarios: &Scenarios, rounds: &Rounds<'_>, out: &mut Output) -> Outcome {
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

pub(super) fn run_crash(
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

pub(super) fn run_mutate(
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
        out.say(format_args!("undetected: no scenario failed without {site}"))?;
    }
    let line = Tally::new(common, "mutate")
        .field("sites", &report.sites)
        .field("caught", &report.caught)
        .field("redundant", &report.redundant.len());
    line.print(out)?;
    Ok(report.redundant.is_empty())
}

pub(super) fn run_kill(
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
        .map_err(|error| Failure::Problem(format!("cannot find this program: {error}")))?;
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

pub(super) fn run_linear(
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
pub(super) const FILES_ONE_IN: u64 = 20;

pub(super) fn run_corrupt(scenarios: &Scenarios, rounds: &Rounds<'_>, out: &mut Output) -> Outcome {
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
pub(super) fn end_corrupt(
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

pub(super) fn run_churn(
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

pub(super) fn run_hostile(scenarios: &Scenarios, rounds: &Rounds<'_>, out: &mut Output) -> Outcome {
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

pub(super) fn run_faults(scenarios: &Scenarios, common: &Common, out: &mut Output) -> Outcome {
    let place = place(common)?;
    tell_faults(common, (scenarios.faults)(common.seed, place.path()), out)
}

/// Number of images to check in one round, from one or more histories.
const OF_HISTORIES: u64 = 5_000;

pub(super) fn run_syncs(
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

pub(super) fn tell_faults(
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
