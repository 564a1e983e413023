//! `icefield backup`: copies a table.

use std::path::PathBuf;

use icefield::AnyTable;

use crate::join_index;
use crate::table::TableArg;
use icefield_console::failure::Outcome;
use icefield_console::json::{JsonArgs, Line, with_output};
use icefield_console::progress;
use icefield_console::terminal::shown_path;

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield backup orders.ice orders-monday.ice";

/// Copy a table's directory to a new one that opens as a table
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    table: TableArg,
    /// Create the copy in this directory; nothing may be there yet
    #[arg(value_name = "NEW")]
    new: PathBuf,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    with_output(&args.json, &[&args.table.table, &args.new], |out| {
        let sign = progress::waiting("copying");
        let table = &args.table.table;
        let report = match join_index::open(table)? {
            Some(index) => index.backup(&args.new),
            None => AnyTable::open_read_only(table)?.backup(&args.new),
        };
        sign.finish_and_clear();
        let report = report?;
        let pause_ms = report.pause.as_secs_f64() * 1e3;
        out.say(format_args!(
            "{}: {} bytes copied, writers paused for {pause_ms:.1} ms",
            shown_path(&args.new),
            report.bytes
        ))?;
        let line = Line::new()
            .field("backup", &args.new.display().to_string())
            .field("bytes", &report.bytes)
            .field("pause_ms", &pause_ms);
        out.line(line)?;
        Ok(true)
    })
}
