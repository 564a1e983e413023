//! `icefield stat` and `check`: describe a table and check its integrity.

use icefield::AnyTable;

use crate::create::warning;
use crate::join_index;
use crate::table::{TableArg, describe};
use icefield_console::failure::Outcome;
use icefield_console::json::{JsonArgs, Line, with_output};
use icefield_console::progress;
use icefield_console::terminal::{shown, shown_path};

/// Examples for `stat --help`.
pub const STAT_EXAMPLES: &str = "\
Examples:
  icefield stat orders.ice
  icefield stat orders.ice --json -";

/// Examples for `check --help`.
pub const CHECK_EXAMPLES: &str = "\
Examples:
  icefield check orders.ice
  icefield check orders.ice --json faults.ndjson

Exit status: 0 the table is whole, 1 it has faults, 2 bad usage";

/// Describe a table: its design, types, size and space
#[derive(clap::Args, Debug)]
#[command(after_help = STAT_EXAMPLES)]
pub struct StatArgs {
    #[command(flatten)]
    table: TableArg,
    #[command(flatten)]
    json: JsonArgs,
}

/// Check every invariant and checksum of a table, without changes
#[derive(clap::Args, Debug)]
#[command(after_help = CHECK_EXAMPLES)]
pub struct CheckArgs {
    #[command(flatten)]
    table: TableArg,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs `stat`.
pub fn stat(args: &StatArgs) -> Outcome {
    with_output(&args.json, &[&args.table.table], |out| {
        if let Some(index) = join_index::open(&args.table.table)? {
            return join_index::stat(&args.table.table, &*index, out);
        }
        let table = AnyTable::open_read_only(&args.table.table)?;
        let (records, recovery) = (table.len()?, table.recovery());
        let stats = table.stats();
        let durability = stats.durability.unwrap_or_default();
        let closed = if recovery.was_clean { "properly" } else { "by a crash; recovered" };
        out.say(format_args!("table         {}", shown_path(table.path())))?;
        out.say(format_args!("types         {}", describe(&table)))?;
        out.say(format_args!("durability    {durability}"))?;
        out.say(format_args!("records       {records}"))?;
        out.say(format_args!("capacity      {}", stats.capacity))?;
        out.say(format_args!(
            "bytes         {} on the medium, {} in memory",
            stats.storage_bytes, stats.dram_bytes
        ))?;
        if records > 0 {
            out.say(format_args!(
                "bytes/record  {:.1}",
                stats.storage_bytes as f64 / records as f64
            ))?;
        }
        out.say(format_args!("opened        {} times; last closed {closed}", recovery.generation))?;
        let width = stats.details.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(13);
        for (name, count) in &stats.details {
            out.say(format_args!("{name:<width$} {count}"))?;
        }
        if let Some(warning) = warning(durability) {
            out.say(warning)?;
        }
        let details =
            stats.details.iter().fold(Line::new(), |line, (name, count)| line.field(name, count));
        let line = Line::new()
            .field("table", &table.path().display().to_string())
            .field("design", table.design())
            .field("key", table.key_type())
            .field("value", table.value_type())
            .field("durability", &durability.to_string())
            .field("survives_power_cut", &warning(durability).is_none())
            .field("records", &records)
            .field("capacity", &stats.capacity)
            .field("storage_bytes", &stats.storage_bytes)
            .field("dram_bytes", &stats.dram_bytes)
            .field("was_clean", &recovery.was_clean)
            .field("generation", &recovery.generation)
            .field("resolved", &recovery.resolved)
            .field("open_ms", &(recovery.open_time.as_secs_f64() * 1e3))
            .raw("details", &details.end());
        out.line(line)?;
        Ok(true)
    })
}

/// Runs `check`.
pub fn check(args: &CheckArgs) -> Outcome {
    with_output(&args.json, &[&args.table.table], |out| {
        let sign = progress::waiting("checking");
        let report = match join_index::open(&args.table.table)? {
            Some(index) => index.check(),
            None => AnyTable::open_read_only(&args.table.table)?.check(),
        };
        sign.finish_and_clear();
        let report = report?;
        for fault in &report.faults {
            out.say(format_args!("fault: {}", shown(fault)))?;
        }
        if report.leaked > 0 {
            out.say(format_args!("fault: {} blocks are neither in use nor free", report.leaked))?;
        }
        let verdict = match join_index::rebuild(&args.table.table) {
            _ if report.is_clean() => "no faults".to_owned(),
            Some(rebuild) => format!("DAMAGED; {rebuild}"),
            None => {
                "DAMAGED; `icefield salvage` copies the readable records to a new table".to_owned()
            }
        };
        out.say(format_args!(
            "{}: {} records, {verdict}",
            shown_path(&args.table.table),
            report.records
        ))?;
        let line = Line::new()
            .field("table", &args.table.table.display().to_string())
            .field("clean", &report.is_clean())
            .field("records", &report.records)
            .field("leaked", &report.leaked)
            .field("faults", &report.faults);
        out.line(line)?;
        Ok(report.is_clean())
    })
}
