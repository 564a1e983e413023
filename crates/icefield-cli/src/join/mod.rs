//! `icefield join`: joins of CSV and Parquet files through an index that is built once.
//!
//! # Structure
//!
//! - [`input`] reads columns of a file as Arrow arrays, batch by batch, in threads that read ahead.
//! - [`key`] determines which columns can be keys and which of them can be joined. It converts keys to `Int64`,
//!   `UInt64` or `LargeBinary` arrays, in which a null matches nothing. Therefore integers of all types are compared by
//!   value, and a negative one is never equal to one above `i64::MAX`.
//! - [`index`] builds an index: it reads the key column into memory and passes it to the library, with the row numbers
//!   as payloads. [`site`](icefield_console::site) manages the hidden directory of the build.
//!   [`stamp`](crate::join_index::stamp) records the origin of the index: the indexed file, its state, the column and
//!   the type of the keys.
//! - [`run`] probes with [`opened`], an index of any key type. [`loaded`] holds columns of the indexed file in memory,
//!   by row number: the selected ones, and keys that are bytes, of which the index has only hashes. [`select`] finds
//!   the columns that the user names, [`output`] writes files.
//!
//! `icefield stat`, `check` and `backup` accept an index too: [`join_index`](crate::join_index).
//!
//! # Memory use
//!
//! Building an index holds in memory the key column, 8 bytes per row; for CSV also the keys' texts until all are known
//! to be integers; for keys that are bytes, the bytes and 32 more per row. Probing holds a few batches of 65536 rows
//! for each reading thread, the pairs of a part of a batch (four million, or those of one key), and columns of the
//! indexed file as described above.

mod bar;
mod failures;
mod index;
mod input;
mod key;
mod loaded;
mod opened;
mod output;
mod run;
mod select;
mod threads;

use clap::Subcommand;

use icefield_console::failure::Outcome;

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield join build-index orders.parquet --on o_orderkey
  icefield join run lineitem.parquet --index orders.ice --on l_orderkey
  icefield join run lineitem.csv --index orders.ice --on l_orderkey --semi -o matched.csv --json summary.ndjson
  icefield stat orders.ice

`icefield stat`, `check` and `backup` accept an index, too.";

/// Join CSV and Parquet files through an index that is built once
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    BuildIndex(index::Args),
    Run(run::Args),
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::BuildIndex(args) => index::run(args),
        Command::Run(args) => run::run(args),
    }
}
