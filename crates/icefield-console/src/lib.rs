//! Shared by Icefield's programs: output, JSON lines, warnings, progress, and the exit status of each outcome.

pub mod destination;
pub mod failure;
pub mod interrupt;
pub mod json;
pub mod progress;
pub mod site;
pub mod size;
pub mod stamp;
pub mod terminal;
mod warnings;

use std::process::ExitCode;

use clap::Parser;

use failure::{Failure, Outcome};
use terminal::{acts, shown};

/// Parses the program's arguments, runs `command` on them, and returns the exit status: 0 for success, 1 for a
/// problem, 2 for bad usage, 130 after Ctrl-C. The library's warnings and the failure are printed on standard
/// error.
pub fn main<A: Parser>(command: impl FnOnce(&A) -> Outcome) -> ExitCode {
    warnings::listen();
    let args = match A::try_parse() {
        Ok(args) => args,
        Err(refusal) => return refuse(&refusal),
    };
    match command(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => {
            if !matches!(failure, Failure::BrokenPipe) {
                let program = A::command().get_name().to_owned();
                json::warn(format_args!("{program}: {}", shown(&failure.to_string())));
            }
            failure.status()
        }
    }
}

/// Prints clap's message: help, or an error that quotes arguments. Arguments with characters that a terminal acts
/// on are escaped.
fn refuse(refusal: &clap::Error) -> ExitCode {
    if refusal.use_stderr() && std::env::args_os().any(|arg| arg.to_string_lossy().contains(acts)) {
        json::warn(refusal.render().to_string().trim_end());
    } else {
        // Ignore an error: the output may be closed.
        let _ = refusal.print();
    }
    ExitCode::from(u8::try_from(refusal.exit_code()).unwrap_or(2))
}
