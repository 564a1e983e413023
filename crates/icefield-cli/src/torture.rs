//! `icefield torture`: the scenarios of the test arsenal as a command.

use crate::failure::{Failure, Outcome};
use crate::json::{JsonArgs, with_output};

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield torture crash --table dash-eh";

/// Tries to break a table, and tells the seed when it did
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The scenario
    kind: String,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    with_output(&args.json, |_| {
        Err(Failure::Usage(format!("no scenario `{}` in this build", args.kind)))
    })
}
