//! The command `icefield`: its subcommands and exit status. Each subcommand is a module. A library, so that `fuzz/` can
//! read rows.

mod backup;
mod bench;
mod columns;
mod create;
mod destination;
mod documents;
mod export;
mod failure;
mod infer;
mod interrupt;
mod join;
mod json;
mod load;
mod progress;
mod records;
mod report;
mod rows;
mod salvage;
mod scan;
mod shrink;
mod site;
mod table;
mod terminal;
mod text;
mod torture;
mod tour;
mod warnings;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use failure::{Failure, Outcome};
use terminal::{acts, shown};

/// Peers allocate; Icefield's tables in memory map their own huge pages.
#[cfg(feature = "peers")]
#[global_allocator]
static ALLOCATOR: icefield_peers::HugePages = icefield_peers::HugePages;

/// Crash-safe hash tables on disk and in persistent memory
#[derive(Parser, Debug)]
#[command(name = "icefield", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  icefield tour                                        watch tables survive a crash
  icefield load orders.ice orders.csv --create         make a table of a file
  icefield get orders.ice 7                            ask it
  icefield COMMAND --help                              every option, with examples

Exit status: 0 fine, 1 a found problem, 2 bad usage, 130 after Ctrl-C";

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
    Join(join::Args),
    /// Measures tables against what this machine can do
    #[command(after_help = bench::EXAMPLES)]
    Bench(Box<icefield_bench::Args>),
    Torture(torture::Args),
    Completions(documents::CompletionsArgs),
    Man(documents::ManArgs),
    #[command(name = tour::CHILD, hide = true)]
    TourChild(tour::ChildArgs),
}

#[doc(hidden)]
pub use rows::read_all;

/// Runs the command that the program's arguments name.
#[must_use]
pub fn main() -> ExitCode {
    warnings::listen();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refusal) => return refuse(&refusal),
    };
    match run(&cli.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => {
            if !matches!(failure, Failure::BrokenPipe) {
                json::warn(format_args!("icefield: {}", shown(&failure.to_string())));
            }
            failure.status()
        }
    }
}

/// Prints what clap has to say: help, or a refusal that repeats arguments, as they are unless a terminal would act on
/// them.
fn refuse(refusal: &clap::Error) -> ExitCode {
    if refusal.use_stderr() && std::env::args_os().any(|arg| arg.to_string_lossy().contains(acts)) {
        json::warn(refusal.render().to_string().trim_end());
    } else {
        // Nothing can be done when its reader has gone.
        let _ = refusal.print();
    }
    ExitCode::from(u8::try_from(refusal.exit_code()).unwrap_or(2))
}

/// The whole command line, for what is made of it.
fn command_line() -> clap::Command {
    Cli::command()
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
        Command::Join(args) => join::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Torture(args) => torture::run(args),
        Command::Completions(args) => documents::completions(args),
        Command::Man(args) => documents::man(args),
        Command::TourChild(args) => tour::child(args),
    }
}
