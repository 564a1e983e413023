//! The command `icefield`: its subcommands and exit status. Each subcommand is a module. This crate is a library so
//! that `fuzz/` can use the row readers.

mod backup;
mod columns;
mod create;
mod documents;
mod export;
mod infer;
mod join_index;
mod load;
mod records;
mod report;
mod rows;
mod salvage;
mod scan;
mod shrink;
mod table;
mod text;
mod tour;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use icefield_console::failure::Outcome;

/// Store records in crash-safe hash tables, on disk and in persistent memory
#[derive(Parser, Debug)]
#[command(name = "icefield", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  icefield tour                                        watch tables survive a crash
  icefield load orders.ice orders.csv --create         create a table from a file
  icefield get orders.ice 7                            look up a key
  icefield COMMAND --help                              every option, with examples

Exit status: 0 success, 1 a problem was found, 2 bad usage, 130 Ctrl-C";

#[derive(Subcommand, Debug)]
enum Command {
    Tour(tour::Args),
    Create(create::Args),
    Load(load::Args),
    Get(records::GetArgs),
    Put(records::PutArgs),
    Del(records::DelArgs),
    Scan(scan::Args),
    Stat(report::StatArgs),
    Check(report::CheckArgs),
    Salvage(salvage::Args),
    Backup(backup::Args),
    Shrink(shrink::Args),
    Export(export::Args),
    Completions(documents::CompletionsArgs),
    Man(documents::ManArgs),
    #[command(name = tour::CHILD, hide = true)]
    TourChild(tour::ChildArgs),
}

#[doc(hidden)]
pub use rows::read_all;

/// Runs the command given by the program's arguments.
#[must_use]
pub fn main() -> ExitCode {
    icefield_console::main(|cli: &Cli| run(&cli.command))
}

fn run(command: &Command) -> Outcome {
    match command {
        Command::Tour(args) => tour::run(args),
        Command::Create(args) => create::run(args),
        Command::Load(args) => load::run(args),
        Command::Get(args) => records::get(args),
        Command::Put(args) => records::put(args),
        Command::Del(args) => records::del(args),
        Command::Scan(args) => scan::run(args),
        Command::Stat(args) => report::stat(args),
        Command::Check(args) => report::check(args),
        Command::Salvage(args) => salvage::run(args),
        Command::Backup(args) => backup::run(args),
        Command::Shrink(args) => shrink::run(args),
        Command::Export(args) => export::run(args),
        Command::Completions(args) => documents::completions(args, Cli::command()),
        Command::Man(args) => documents::man(args, Cli::command()),
        Command::TourChild(args) => tour::child(args),
    }
}
