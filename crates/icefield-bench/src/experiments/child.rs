//! Child processes of this program. A child runs a hidden experiment and reports that it is ready. It ends when the
//! parent kills it or closes its standard input.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::output::stdout_fault;
use crate::prelude::*;

const READY: &str = "ready";

/// Starts a child that runs `experiment` for `keys` records at `path`, with `more` options.
pub(super) fn start(
    args: &Args,
    experiment: &str,
    path: &Path,
    keys: u64,
    more: &[String],
) -> Outcome<Child> {
    let program = args.this_program()?;
    Command::new(&program[0])
        .args(&program[1..])
        .arg(experiment)
        .args(["--keys", &keys.to_string(), "--seed", &args.seed.to_string()])
        .args(more)
        .arg("--dir")
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Error::file(Path::new(&program[0]), error))
}

/// Waits until the child has reported that it is ready.
pub(super) fn wait_until_ready(child: &mut Child) -> Outcome {
    let mut line = String::new();
    if let Some(stdout) = &mut child.stdout {
        // If the line cannot be read, the comparison below fails.
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    match line.trim() {
        READY => Ok(()),
        _ => Err(Error::failed("a child process ended before it was ready")),
    }
}

/// Called in the child: asks the system to kill the child when the parent dies, because it would otherwise run forever.
pub(super) fn end_with_parent() -> Outcome {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| {
        Error::failed(format!("cannot request a signal at the end of the parent: {error}"))
    })
}

/// Called in the child: reports that it is ready.
pub(super) fn report_ready() -> Outcome {
    let mut out = std::io::stdout();
    writeln!(out, "{READY}").and_then(|()| out.flush()).map_err(stdout_fault)
}
