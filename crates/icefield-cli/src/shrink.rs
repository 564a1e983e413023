//! `icefield shrink`: space that a table's records do not need goes back to the file system.

use crate::failure::Outcome;
use crate::json::{JsonArgs, Line, with_output};
use crate::progress;
use crate::table::{KeepingArg, TableArg};

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield shrink orders.ice
  icefield shrink orders.ice --json -

Worth while after many removals, or for a table that was made for more records than it has. The bytes told are those
of the blocks in use; how few they become is the design's matter. Tables grow again when they have to.";

/// Gives space back that a table's records do not need
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    table: TableArg,
    #[command(flatten)]
    keeping: KeepingArg,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    with_output(&args.json, |out| {
        let table = args.table.open(args.keeping.durability)?;
        let before = table.stats().pm_bytes;
        let sign = progress::waiting("shrinking");
        let shrunk = table.shrink_to_fit();
        sign.finish_and_clear();
        shrunk?;
        let after = table.stats().pm_bytes;
        let path = table.path().display().to_string();
        out.say(format_args!("{path}: {after} bytes, {before} before"))?;
        let line = Line::new()
            .field("shrunk", &path)
            .field("pm_bytes", &after)
            .field("pm_bytes_before", &before);
        out.line(line)?;
        Ok(true)
    })
}
