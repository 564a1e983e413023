//! Runs the kinds of scenarios that exist for the join index, which is not a map.

use icefield::storage::sim::Pool as Memory;
use icefield_torture::{corrupt, join, kill, model};

use super::args::{Common, Kind, Records};
use super::rounds::{Rounds, Tally, tell};
use super::runs::{
    FILES_ONE_IN, MODEL_STEPS, end_corrupt, place, place_for_syncs, run_crash, run_kill,
    run_mutate, run_syncs, tell_faults,
};
use icefield_console::failure::{Failure, Outcome};
use icefield_console::json::Output;

/// For every thousand damaged indexes, one sealed index is tested with single flipped bits: one of every 97 bits.
const FLIP_STRIDE: u64 = 97;

/// Runs `kind` if it exists for the join index.
pub(super) fn torture(kind: &Kind, common: &Common, out: &mut Output) -> Outcome {
    if !matches!(common.records, Records::Words) {
        return Err(Failure::Usage(
            "--records: a join index has words only; leave the option out".to_owned(),
        ));
    }
    match kind {
        Kind::Model { histories, .. } => {
            run_model(&Rounds::new(common, "histories", *histories, 2000)?, out)
        }
        Kind::Crash { images, .. } => {
            run_crash(&Rounds::new(common, "images", *images, 200_000)?, join::crash, out)
        }
        Kind::Kill { rounds, .. } => {
            let judge = |counts: &kill::Counts, seed| counts.meaningful_in(seed, join::KILLED_IN);
            run_kill(&Rounds::new(common, "children", *rounds, 200)?, join::kill, judge, out)
        }
        Kind::Corrupt { mutations, .. } => {
            run_corrupt(&Rounds::new(common, "damaged indexes", *mutations, 20_000)?, out)
        }
        Kind::Mutate { images, only, .. } => {
            run_mutate(join::mutate, common, *images, only.clone(), out)
        }
        Kind::Faults { .. } => {
            let place = place_for_syncs(common)?;
            tell_faults(common, join::faults(common.seed, place.path()), out)
        }
        Kind::Syncs { images, each, .. } => {
            run_syncs(&Rounds::new(common, "images", *images, 20_000)?, *each, join::syncs, out)
        }
        Kind::Linear { .. }
        | Kind::Churn { .. }
        | Kind::Hostile { .. }
        | Kind::KillChild { .. } => Err(Failure::Usage(format!(
            "--table: not for this command; use `icefield-torture model|crash|mutate|kill|corrupt|faults|syncs --table \
             {}`",
            super::tables::JOIN
        ))),
    }
}

fn run_model(rounds: &Rounds<'_>, out: &mut Output) -> Outcome {
    let place = place(rounds.common)?;
    let (memory, path) = (Memory::default(), place.path().join("index"));
    let medium = rounds.common.model.into();
    let mut counts = join::ModelCounts::default();
    let violations = tell(rounds.each(1, |seed, _| {
        counts.add(match seed % 8 {
            7 => join::model_in_files(seed, MODEL_STEPS, &path),
            _ => join::model_simulated(seed, MODEL_STEPS, medium, &memory),
        }?);
        Ok(())
    }));
    let line = Tally::new(rounds.common, model::NAME)
        .field("histories", &counts.histories)
        .field("violations", &violations)
        .field("operations", &counts.operations)
        .field("reopens", &counts.reopens)
        .field("merges", &counts.merges);
    rounds.end(out, line, violations)
}

fn run_corrupt(rounds: &Rounds<'_>, out: &mut Output) -> Outcome {
    let place = place(rounds.common)?;
    let mut counts = corrupt::Counts::default();
    let mut flips = 0;
    let result = rounds.each(1000, |seed, size| {
        let on_files = size / FILES_ONE_IN;
        counts.add(join::corrupt(seed, size - on_files)?);
        counts.add(join::corrupt_files(seed, on_files, &place.path().join(seed.to_string()))?);
        flips += join::every_flip(seed, FLIP_STRIDE)?.flipped;
        Ok(())
    });
    end_corrupt(rounds, result, &counts, |line| line.field("bits_flipped", &flips), out)
}
