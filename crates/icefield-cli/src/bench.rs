//! `icefield bench`: the experiments of `icefield_bench` as a command.

use std::error::Error;
use std::io;
use std::path::Path;

use icefield_bench::Args;

use crate::failure::{Failure, Outcome};

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield bench list
  icefield bench get --quick
  icefield bench insert --tables dash-eh --threads 1 --batch none,32
  icefield bench all --quick --json results.jsonl

Exit status: 0 measured, 1 a table answered wrongly or the run failed, 2 bad usage";

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    icefield_bench::run(args.clone()).map_err(failure)
}

fn failure(error: Box<dyn Error>) -> Failure {
    let error = match error.downcast::<icefield::Error>() {
        Ok(error) => return Failure::Table(*error),
        Err(error) => error,
    };
    match error.downcast::<io::Error>() {
        Ok(error) => Failure::io(Path::new("output"), &error),
        Err(error) if is_usage(&error.to_string()) => Failure::Usage(error.to_string()),
        Err(error) => Failure::Problem(error.to_string()),
    }
}

/// Complaints about an option begin with its name, those about the experiment with these words.
fn is_usage(complaint: &str) -> bool {
    complaint.starts_with("--") || complaint.starts_with("no experiment")
}
