//! The commands of `icefield-sql`.

mod build;
mod inspect;
mod join;
mod output;
mod parquet;
mod query;
mod session;
mod update;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use icefield_console::failure::Outcome;

const EXAMPLES: &str = "\
Examples:
  icefield-sql build-index orders.parquet --on o_orderkey --include o_custkey,o_orderdate
  icefield-sql query \"SELECT o_orderdate, sum(l_quantity) FROM orders JOIN 'lineitem.parquet' \\
      ON o_orderkey = l_orderkey GROUP BY o_orderdate\" --index orders.ice
  icefield-sql join lineitem.parquet --index orders.ice --on l_orderkey --count
  icefield-sql update-index orders.ice";

/// SQL over files, with joins through indexes that are built once
#[derive(Parser, Debug)]
#[command(name = "icefield-sql", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    BuildIndex(build::Args),
    UpdateIndex(update::Args),
    Inspect(inspect::Args),
    Join(join::Args),
    Query(query::Args),
}

/// Runs the program.
pub fn main() -> ExitCode {
    icefield_console::main(|args: &Args| -> Outcome {
        match &args.command {
            Command::BuildIndex(args) => build::run(args),
            Command::UpdateIndex(args) => update::run(args),
            Command::Inspect(args) => inspect::run(args),
            Command::Join(args) => join::run(args),
            Command::Query(args) => query::run(args),
        }
    })
}
