//! `icefield shrink`: returns unused space of a table to the file system.

use std::fs::DirEntry;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use icefield::Error;

use crate::table::{KeepingArg, TableArg};
use icefield_console::failure::Outcome;
use icefield_console::json::{JsonArgs, Line, with_output};
use icefield_console::progress;
use icefield_console::terminal::shown_path;

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield shrink orders.ice
  icefield shrink orders.ice --json -

Useful after many removals, or for a table that was created for more records than it has. The printed bytes are those
that the file system has allocated for the table's files; the design determines how far they shrink. The table grows
again when it needs room.";

/// Return the unused space of a table to the file system
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
    with_output(&args.json, &[&args.table.table], |out| {
        let table = args.table.open(args.keeping.durability)?;
        let path = table.path().to_owned();
        let before = space(&path)?;
        let sign = progress::waiting("shrinking");
        let shrunk = table.shrink_to_fit();
        // Some designs release space only when no reader can reach it any more. Closing the table releases all of it.
        drop(table);
        sign.finish_and_clear();
        shrunk?;
        let after = space(&path)?;
        out.say(format_args!("{}: {after} bytes, {before} before", shown_path(&path)))?;
        let line = Line::new()
            .field("shrunk", &path.display().to_string())
            .field("bytes", &after)
            .field("bytes_before", &before);
        out.line(line)?;
        Ok(true)
    })
}

/// Returns the size of the blocks that the file system has allocated to the files of a directory.
fn space(path: &Path) -> icefield::Result<u64> {
    const BLOCK_BYTES: u64 = 512;
    let fault = |source| Error::Io { path: path.to_owned(), source };
    let entries = std::fs::read_dir(path).map_err(fault)?;
    let bytes = |entry: std::io::Result<DirEntry>| Ok(entry?.metadata()?.blocks() * BLOCK_BYTES);
    entries.map(bytes).sum::<std::io::Result<u64>>().map_err(fault)
}
