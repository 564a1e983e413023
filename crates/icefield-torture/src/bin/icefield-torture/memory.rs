//! Scenarios for tables in memory. These do not outlive their process, so crash, kill and damage scenarios do not
//! apply.

use icefield::{Dlht, Table};
use icefield_torture::dlht::{
    Alone, DlhtPlace, DlhtRecords, SetCounts, faults, linear, linear_map, linear_set, set_model,
};
use icefield_torture::model;
use icefield_torture::place::Place;
use icefield_torture::subject::Sample;

use super::args::{Common, Kind, Records};
use super::rounds::{Rounds, Tally, tell};
use super::runs::{MODEL_STEPS, run_linear, tell_faults};
use super::tables::{DLHT, DLHT_LOCAL, DLHT_MAP, DLHT_SET};
use icefield_console::failure::{Failure, Outcome};
use icefield_console::json::Output;

/// Runs `kind` if it exists for the table.
pub(super) fn torture(kind: &Kind, common: &Common, records: Records, out: &mut Output) -> Outcome {
    let table = common.table.as_str();
    if !matches!(records, Records::Words) {
        return Err(Failure::Usage(format!(
            "--records: {table} has records of one kind only; leave the option out"
        )));
    }
    let rounds =
        |histories: &Option<u64>, default| Rounds::new(common, "histories", *histories, default);
    match (kind, table) {
        (Kind::Model { histories, .. }, DLHT) => {
            run_model::<Dlht<u64, u64>>(&rounds(histories, 2000)?, out)
        }
        (Kind::Model { histories, .. }, DLHT_LOCAL) => {
            run_model::<Alone>(&rounds(histories, 2000)?, out)
        }
        (Kind::Model { histories, .. }, DLHT_MAP) => {
            run_model::<DlhtRecords>(&rounds(histories, 2000)?, out)
        }
        (Kind::Model { histories, .. }, DLHT_SET) => run_set(&rounds(histories, 2000)?, out),
        (Kind::Linear { histories, .. }, DLHT) => {
            run_linear(&rounds(histories, 100_000)?, linear, out)
        }
        (Kind::Linear { histories, .. }, DLHT_MAP) => {
            run_linear(&rounds(histories, 100_000)?, linear_map, out)
        }
        (Kind::Linear { histories, .. }, DLHT_SET) => {
            run_linear(&rounds(histories, 100_000)?, linear_set, out)
        }
        (Kind::Faults { .. }, DLHT) => tell_faults(common, faults(common.seed), out),
        _ => Err(Failure::Usage(format!(
            "--table: {table} lives in memory, so it does not survive a crash, a kill or a damaged file; use \
             `icefield-torture {} --table {table}`",
            match table {
                DLHT => "model|linear|faults",
                DLHT_LOCAL => "model",
                _ => "model|linear",
            }
        ))),
    }
}

fn run_model<T>(rounds: &Rounds<'_>, out: &mut Output) -> Outcome
where
    T: Table<Key: Sample, Value: Sample>,
    DlhtPlace: Place<T>,
{
    let mut counts = model::Counts::default();
    let violations = tell(rounds.each(1, |seed, _| {
        counts.add(model::scenario::<T, _>(seed, MODEL_STEPS, || DlhtPlace(seed))?);
        Ok(())
    }));
    let line = Tally::new(rounds.common, model::NAME)
        .field("histories", &counts.histories)
        .field("violations", &violations)
        .field("operations", &counts.operations)
        .field("scans", &counts.scans)
        .field("own_calls", &counts.own_calls);
    rounds.end(out, line, violations)
}

fn run_set(rounds: &Rounds<'_>, out: &mut Output) -> Outcome {
    let mut counts = SetCounts::default();
    let violations = tell(rounds.each(1, |seed, _| {
        counts.add(set_model(seed, MODEL_STEPS)?);
        Ok(())
    }));
    let line = Tally::new(rounds.common, model::NAME)
        .field("histories", &counts.histories)
        .field("violations", &violations)
        .field("operations", &counts.operations)
        .field("scans", &counts.scans)
        .field("grown", &counts.grown);
    rounds.end(out, line, violations)
}
