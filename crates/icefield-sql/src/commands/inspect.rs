//! `icefield-sql inspect`.

use std::path::PathBuf;

use icefield_console::failure::{Failure, Outcome};
use icefield_console::interrupt::Interrupt;
use icefield_console::json::{JsonArgs, Line, with_output};
use icefield_console::progress::over_bytes;
use icefield_console::terminal::{shown, shown_path};

use super::session::{as_index, block_on, failure};
use crate::error::of_command;
use crate::index::Index;
use crate::index::build::new_files;

const EXAMPLES: &str = "\
Examples:
  icefield-sql inspect orders.ice
  icefield-sql inspect orders.ice --json -
  icefield-sql inspect orders.ice --check

Without --check, the values of the columns are not read, so damage there is not found.
Exit status: 0 up to date, 1 a file has changed since it was indexed or the index is damaged, 2 bad usage";

/// Show what an index was built from, and whether its files have changed
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Show the index in this directory
    #[arg(value_name = "DIR")]
    index: PathBuf,
    /// Read the whole index, and compare its checksums
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    with_output(&args.json, &[&args.index], |out| {
        as_index(&args.index)?;
        let index = Index::open(&args.index, true).map_err(failure)?;
        let (of_index, of_columns) = index.bytes().map_err(failure)?;
        let stamp = index.stamp();
        let columns: Vec<_> = index
            .schema()
            .fields()
            .iter()
            .map(|field| format!("{} ({})", shown(field.name()), field.data_type()))
            .collect();
        out.say(format_args!("index         {}", shown_path(&args.index)))?;
        out.say(format_args!("keys          {}", shown(&stamp.keys.join(", "))))?;
        out.say(format_args!("columns       {}", columns.join(", ")))?;
        out.say(format_args!(
            "rows          {}, {} of them with a null key",
            stamp.rows, stamp.nulls
        ))?;
        out.say(format_args!("format        {}", shown(&stamp.format.to_string())))?;
        out.say(format_args!("partitions    {}", stamp.parts.len()))?;
        out.say(format_args!("generation    {} of {:032x}", index.generation(), index.uuid()))?;
        out.say(format_args!(
            "bytes         {of_index} of the index, {of_columns} of the columns"
        ))?;
        let faults = if args.check { Some(faults(&index, of_columns)?) } else { None };
        let mut is_fresh = faults.as_ref().is_none_or(Vec::is_empty);
        if let Some(faults) = &faults {
            if faults.is_empty() {
                out.say("check         no damage")?;
            }
            for fault in faults {
                out.say(format_args!("check         {}", shown(fault)))?;
            }
        }
        let mut changed = Vec::new();
        for file in &stamp.files {
            let state = match file.check() {
                Ok(()) => "unchanged".to_owned(),
                Err(error) => {
                    is_fresh = false;
                    changed.push(file.path.display().to_string());
                    error.strip_backtrace()
                }
            };
            out.say(format_args!(
                "file          {}, {} rows, {}",
                shown_path(&file.path),
                file.rows.iter().sum::<u64>(),
                shown(&state)
            ))?;
        }
        let new = block_on(async { new_files(&index).await.map_err(failure) });
        // A source that is gone has been reported above, file by file.
        let new = if is_fresh { new? } else { new.unwrap_or_default() };
        for file in &new {
            is_fresh = false;
            changed.push(file.display().to_string());
            out.say(format_args!("file          {}, new", shown_path(file)))?;
        }
        let files: Vec<_> =
            stamp.files.iter().map(|file| file.path.display().to_string()).collect();
        let names: Vec<_> =
            index.schema().fields().iter().map(|field| field.name().clone()).collect();
        out.line(
            Line::new()
                .field("index", &args.index.display().to_string())
                .field("uuid", &format!("{:032x}", index.uuid()))
                .field("generation", &index.generation())
                .field("partitions", &stamp.parts.len())
                .field("keys", &stamp.keys)
                .field("columns", &names)
                .field("rows", &stamp.rows)
                .field("pairs", &stamp.pairs())
                .field("index_bytes", &of_index)
                .field("column_bytes", &of_columns)
                .field("files", &files)
                .field("changed", &changed)
                .field("faults", &faults),
        )?;
        Ok(is_fresh)
    })
}

/// Returns what is damaged.
fn faults(index: &Index, bytes: u64) -> Result<Vec<String>, Failure> {
    let interrupt = Interrupt::listen()?;
    let bar = over_bytes(Some(bytes));
    let faults = index.check(|read| {
        bar.set_position(read);
        if interrupt.asked() {
            return Err(of_command(Failure::Interrupted("interrupted".to_owned())));
        }
        Ok(())
    });
    bar.finish_and_clear();
    faults.map_err(failure)
}
