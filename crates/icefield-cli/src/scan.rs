//! `icefield scan`: lists a table's records, page by page.

use icefield::{AnyDamage, AnyPage, Cursor};

use crate::table::{HexArg, TableArg, Types, open_to_read};
use icefield_console::failure::{Failure, Outcome};
use icefield_console::json::{JsonArgs, Line, Output, warn, with_output};

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield scan orders.ice
  icefield scan orders.ice --limit 100
  icefield scan orders.ice --limit 100 --cursor 48
  icefield scan orders.ice --json - | head

Each line is a key, a tab and a value. When more records follow, the last line of standard error
(with --json, the last object) has the cursor at which to continue. A page ends at the end of a bucket,
so it may have a few more than N records. Text with control characters is printed as a JSON string,
other bytes as 0x and hexadecimal digits; --json and `icefield export` are exact.
Exit status: 0 done, 1 there are damaged records, which standard error lists by key, 2 bad usage";

/// List records in the table's own order
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    table: TableArg,
    /// Stop after about N records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Continue where an earlier scan stopped
    #[arg(long, value_name = "CURSOR", default_value_t = 0)]
    cursor: u64,
    #[command(flatten)]
    hex: HexArg,
    #[command(flatten)]
    json: JsonArgs,
}

/// Number of records per call of the table.
pub const PAGE: u64 = 1024;

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    with_output(&args.json, &[&args.table.table], |out| {
        let table = open_to_read(&args.table.table)?;
        let types = Types::of(&table, args.hex);
        let mut left = args.limit.unwrap_or(u64::MAX);
        let mut next = Some(Cursor(args.cursor));
        let mut damaged = 0;
        while let Some(cursor) = next
            && left > 0
        {
            let page = table.scan(cursor, left.min(PAGE) as usize)?;
            print(&page, &types, out)?;
            for damage in &page.damaged {
                tell_damage(damage, &types, true, out)?;
            }
            damaged += page.damaged.len();
            left = left.saturating_sub(page.records.len() as u64);
            next = page.next;
        }
        if let Some(Cursor(cursor)) = next {
            out.flush()?;
            warn(format_args!("more: --cursor {cursor}"));
            out.line(Line::new().field("next_cursor", &cursor))?;
        }
        Ok(damaged == 0)
    })
}

/// Reports a damaged record, in the JSON output and, if `aloud` is true, also as text.
pub fn tell_damage(
    damage: &AnyDamage,
    types: &Types,
    aloud: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    let AnyDamage { key, detail } = damage;
    if aloud {
        out.flush()?;
        match key {
            Some(key) => warn(format_args!("record {}: {detail}", types.key.named(key))),
            None => warn(format_args!("a record: {detail}")),
        }
    }
    let line = match key {
        Some(key) => Line::new().raw("key", &types.key.json(key)),
        None => Line::new().raw("key", "null"),
    };
    out.line(line.field("damaged", detail))
}

fn print(page: &AnyPage, types: &Types, out: &mut Output) -> Result<(), Failure> {
    for (key, value) in &page.records {
        if out.wants_json() {
            out.line(
                Line::new().raw("key", &types.key.json(key)).raw("value", &types.value.json(value)),
            )?;
        }
        out.say(format_args!("{}\t{}", types.key.listed(key), types.value.listed(value)))?;
    }
    Ok(())
}
