//! Scenarios for the join index, which is no map: each kind that there is for it, and what it counts.

use std::process::Command;

use icefield::pm::sim::Pool as Memory;
use icefield_testkit::crash::{self, CrashOptions};
use icefield_testkit::{corrupt, join, kill, model};

use super::{
    CHILD, Common, Kind, MODEL_STEPS, Records, Rounds, TableName, Tally, name, place, tell,
    tell_faults,
};
use crate::failure::{Failure, Outcome};
use crate::json::Output;

/// Of so many bits of a sealed index, one is flipped for each thousand damaged ones.
const FLIP_STRIDE: u64 = 97;

/// Runs `kind`, if the join index has it.
pub(super) fn torture(kind: &Kind, common: &Common, out: &mut Output) -> Outcome {
    if let Records::Bytes = common.records {
        return Err(Failure::Usage("--records: a join index has words only".to_owned()));
    }
    match kind {
        Kind::Model { histories, .. } => {
            run_model(&Rounds::new(common, "histories", *histories, 2000)?, out)
        }
        Kind::Crash { states, .. } => {
            run_crash(&Rounds::new(common, "images", *states, 200_000)?, out)
        }
        Kind::Kill { rounds, .. } => run_kill(&Rounds::new(common, "children", *rounds, 200)?, out),
        Kind::Corrupt { mutations, .. } => {
            run_corrupt(&Rounds::new(common, "damaged indexes", *mutations, 20_000)?, out)
        }
        Kind::Faults { .. } => {
            let place = place(common)?;
            tell_faults(common, join::faults(common.seed, place.path()), out)
        }
        Kind::Mutate { .. } | Kind::Linear { .. } | Kind::KillChild { .. } => {
            Err(Failure::Usage(format!(
                "--table: there is `icefield torture model|crash|kill|corrupt|faults --table {}`",
                name(&TableName::Join)
            )))
        }
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

fn run_crash(rounds: &Rounds<'_>, out: &mut Output) -> Outcome {
    let (mut histories, mut states, mut violations) = (0, 0, 0);
    let result = rounds.each(5_000, |seed, wanted| {
        let options = CrashOptions {
            seed,
            states: wanted,
            model: rounds.common.model.into(),
            ..CrashOptions::default()
        };
        let report = join::crash(&options);
        histories += report.histories;
        states += report.states;
        violations += report.violations;
        report.first.map_or(Ok(()), Err)
    });
    tell(result);
    let line = Tally::new(rounds.common, crash::NAME)
        .field("histories", &histories)
        .field("states", &states)
        .field("violations", &violations);
    rounds.end(out, line, violations)
}

fn run_kill(rounds: &Rounds<'_>, out: &mut Output) -> Outcome {
    let place = place(rounds.common)?;
    let program = std::env::current_exe()
        .map_err(|error| Failure::Problem(format!("this program: {error}")))?;
    let table = name(&TableName::Join);
    let command = |orders: &str| {
        let mut command = Command::new(&program);
        command.args(["torture", CHILD, "--table", &table, "--records", "words"]);
        command.args(["--orders", orders]);
        command
    };
    let mut counts = kill::Counts::default();
    let path = place.path().join("round");
    let result = rounds.each(8, |seed, size| {
        counts.add(join::kill(seed, size, &path, &command)?);
        Ok(())
    });
    let lost =
        tell(result.and_then(|()| counts.meaningful_in(rounds.common.seed, join::KILLED_IN)));
    let line = Tally::new(rounds.common, kill::NAME)
        .field("rounds", &counts.rounds)
        .field("acked", &counts.acked)
        .field("lost", &lost)
        .field("killed", &counts.killed)
        .field("killed_at_call", &counts.killed_at_call)
        .field("stages", &counts.stages);
    rounds.end(out, line, lost)
}

fn run_corrupt(rounds: &Rounds<'_>, out: &mut Output) -> Outcome {
    let mut counts = corrupt::Counts::default();
    let mut flips = 0;
    let result = rounds.each(1000, |seed, size| {
        counts.add(join::corrupt(seed, size)?);
        flips += join::every_flip(seed, FLIP_STRIDE)?;
        Ok(())
    });
    let failed = tell(result.and_then(|()| counts.clone().judged(rounds.common.seed).map(drop)));
    let line = Tally::new(rounds.common, corrupt::NAME)
        .field("mutations", &counts.mutations)
        .field("panics", &counts.panics)
        .field("hangs", &counts.hangs)
        .field("undetected_wrong_reads", &counts.undetected_wrong_reads)
        .field("refused", &counts.refused)
        .field("noticed", &counts.noticed)
        .field("unnoticed", &counts.unnoticed)
        .field("bits_flipped", &flips);
    rounds.end(out, line, failed)
}
