//! `icefield-sql update-index`.

use std::path::PathBuf;

use icefield_console::failure::Outcome;
use icefield_console::interrupt::Interrupt;
use icefield_console::json::{JsonArgs, Line, with_output};
use icefield_console::terminal::shown_path;

use super::build::{Bar, report};
use super::session::{as_index, block_on, failure};
use crate::index::build::update;

const EXAMPLES: &str = "\
Examples:
  icefield-sql update-index orders.ice
  icefield-sql update-index orders.ice orders-2026-11.parquet

Finds the files that the index was built from again, with patterns and directories resolved anew. Rows of new
and changed files are read; rows of unchanged files are taken from the index; rows of files that a pattern or
directory does not name any more go. A file that was named itself and is gone is an error without --drop-missing.
The former index is replaced when the new one is complete and durable.";

/// Bring an index up to date with its files
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Update the index in this directory
    #[arg(value_name = "DIR")]
    index: PathBuf,
    /// Add these files: names, patterns or directories
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    /// Leave out the rows of files that were named and are gone
    #[arg(long)]
    drop_missing: bool,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    with_output(&args.json, &[&args.index], |out| {
        let interrupt = Interrupt::listen()?;
        as_index(&args.index)?;
        let bar = Bar::new("reading", &interrupt);
        let work = update(&args.index, &args.files, args.drop_missing, &bar);
        let updated = block_on(async { work.await.map_err(failure) });
        bar.finish();
        match updated? {
            Some(built) => report(&args.index, &built, out)?,
            None => {
                out.say(format_args!("{}: is up to date", shown_path(&args.index)))?;
                let index = args.index.display().to_string();
                out.line(Line::new().field("index", &index).field("rows_read", &0))?;
            }
        }
        Ok(true)
    })
}
