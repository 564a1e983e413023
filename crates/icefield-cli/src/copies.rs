//! `icefield salvage` and `backup`: a second table from a first.

use std::path::PathBuf;

use icefield::AnyTable;

use crate::columns::Columns;
use crate::failure::{Failure, Outcome};
use crate::join::inspect;
use crate::json::{JsonArgs, Line, with_output};
use crate::progress;
use crate::table::TableArg;
use crate::terminal::shown_path;

/// Examples for `salvage --help`.
pub const SALVAGE_EXAMPLES: &str = "\
Examples:
  icefield salvage damaged.ice rescued.ice

Exit status: 0 everything could be read, 1 something was lost, 2 bad usage";

/// Examples for `backup --help`.
pub const BACKUP_EXAMPLES: &str = "\
Examples:
  icefield backup orders.ice orders-monday.ice";

/// Copies whatever can still be read of a damaged table to a new one
#[derive(clap::Args, Debug)]
#[command(after_help = SALVAGE_EXAMPLES)]
pub struct SalvageArgs {
    #[command(flatten)]
    from_to: FromTo,
}

/// Copies a table's directory to a new one that opens as a table
#[derive(clap::Args, Debug)]
#[command(after_help = BACKUP_EXAMPLES)]
pub struct BackupArgs {
    #[command(flatten)]
    from_to: FromTo,
}

#[derive(clap::Args, Debug)]
struct FromTo {
    #[command(flatten)]
    table: TableArg,
    /// The new table's directory; nothing may be there yet
    #[arg(value_name = "NEW")]
    new: PathBuf,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs `salvage`.
pub fn salvage(SalvageArgs { from_to: args }: &SalvageArgs) -> Outcome {
    with_output(&args.json, &[&args.table.table], |out| {
        if let Some(advice) = inspect::rebuild(&args.table.table) {
            return Err(Failure::Usage(advice));
        }
        let sign = progress::waiting("salvaging");
        let report = AnyTable::salvage_files(&args.table.table, &args.new);
        sign.finish_and_clear();
        let report = report?;
        Columns::copy(&args.table.table, &args.new)?;
        for lost in &report.lost {
            out.say(format_args!("lost: {lost}"))?;
        }
        let lost = report.lost.len();
        out.say(format_args!(
            "{}: {} records rescued, {lost} losses",
            shown_path(&args.new),
            report.records
        ))?;
        let line = Line::new()
            .field("salvaged", &args.new.display().to_string())
            .field("records", &report.records)
            .field("lost", &report.lost);
        out.line(line)?;
        Ok(report.lost.is_empty())
    })
}

/// Runs `backup`.
pub fn backup(BackupArgs { from_to: args }: &BackupArgs) -> Outcome {
    with_output(&args.json, &[&args.table.table], |out| {
        let sign = progress::waiting("copying");
        let table = &args.table.table;
        let report = match inspect::open(table)? {
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
