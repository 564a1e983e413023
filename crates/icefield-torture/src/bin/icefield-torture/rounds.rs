//! Repeats a scenario and reports its results.

use std::time::Duration;

use icefield_torture::Failure as Violation;
use icefield_torture::budget::Budget;
use indicatif::ProgressBar;
use serde::Serialize;

use super::args::Common;
use icefield_console::failure::{Failure, Outcome};
use icefield_console::interrupt::Interrupt;
use icefield_console::json::{Line, Output, warn};
use icefield_console::progress::over_records;

/// A loop over a scenario, with its budget, progress bar and interrupt handling.
pub(super) struct Rounds<'a> {
    pub(super) common: &'a Common,
    budget: Budget,
    bar: ProgressBar,
    interrupt: Interrupt,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(
        common: &'a Common,
        what: &'static str,
        asked: Option<u64>,
        default: u64,
    ) -> Result<Self, Failure> {
        let budget = match (common.seconds, asked) {
            (None, asked) => Budget::rounds(asked.unwrap_or(default)),
            (Some(seconds), None) => Budget::time(Duration::from_secs(seconds)),
            (Some(seconds), Some(asked)) => {
                Budget::time(Duration::from_secs(seconds)).at_most(asked)
            }
        };
        let bar = over_records(what, asked.unwrap_or(default));
        Ok(Self { common, budget, bar, interrupt: Interrupt::listen()? })
    }

    /// Runs chunks of at most `size` rounds until the budget is spent or a violation is found. `round` gets the first
    /// seed of a chunk and its number of rounds.
    pub(super) fn each(
        &self,
        size: u64,
        mut round: impl FnMut(u64, u64) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let mut budget = self.budget;
        while let Some((first, size)) = budget.chunk(size) {
            if self.interrupt.asked() {
                break;
            }
            round(self.common.seed.wrapping_add(first), size)?;
            self.bar.inc(size);
        }
        self.bar.finish_and_clear();
        Ok(())
    }

    /// Prints the last line and returns the exit status. An interrupted run is not a success.
    pub(super) fn end(&self, out: &mut Output, line: Tally, violations: u64) -> Outcome {
        line.print(out)?;
        if self.interrupt.asked() && violations == 0 {
            return Err(Failure::Interrupted(
                "interrupted; no violation was found before".to_owned(),
            ));
        }
        Ok(violations == 0)
    }
}

/// The last output line, while it is being built. If JSON goes to a file, the line is printed there and on standard
/// output.
pub(super) struct Tally(Vec<(&'static str, String)>);

impl Tally {
    pub(super) fn new(common: &Common, kind: &str) -> Self {
        Self(Vec::new()).field("kind", kind).field("table", &common.table)
    }

    pub(super) fn field(mut self, name: &'static str, value: &(impl Serialize + ?Sized)) -> Self {
        // Serialization fails only for maps with non-string keys, which no count has.
        self.0.push((name, serde_json::to_string(value).unwrap_or_default()));
        self
    }

    fn line(&self) -> Line {
        self.0.iter().fold(Line::new(), |line, (name, value)| line.raw(name, value))
    }

    /// Prints the line on standard output, and to the JSON output if there is one.
    pub(super) fn print(&self, out: &mut Output) -> Result<(), Failure> {
        out.say(self.line().end())?;
        out.line(self.line())
    }
}

/// Reports a violation, if there is one. Returns the number of violations.
pub(super) fn tell(result: Result<(), Violation>) -> u64 {
    match result {
        Ok(()) => 0,
        Err(violation) => {
            warn(violation);
            1
        }
    }
}
