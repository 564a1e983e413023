//! The outcome of a command, and its exit status.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use icefield::Error;

use crate::terminal::shown_path;

/// The result of a command: `Ok(true)` for success, `Ok(false)` if it found and reported a problem.
pub type Outcome = Result<bool, Failure>;

/// The reason why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// The command line is not valid.
    Usage(String),
    /// A problem outside the command line.
    Problem(String),
    /// The library returned an error.
    Table(Error),
    /// The reader of the output has closed it. The command ends without a message.
    BrokenPipe,
    /// The command was interrupted by Ctrl-C. The text describes the work done before.
    Interrupted(String),
}

impl Failure {
    /// Wraps a system error about `path`. A path that does not exist counts as an error of the command line.
    pub fn io(path: &Path, source: &io::Error) -> Self {
        let path = shown_path(path);
        match source.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            io::ErrorKind::NotFound => Self::Usage(format!("{path}: no such file or directory")),
            _ => Self::Problem(format!("{path}: {source}")),
        }
    }

    /// Returns the exit status: 0 if the output was closed, 1 for a problem, 2 for bad usage, 130 after Ctrl-C, as in
    /// shells.
    pub fn status(&self) -> ExitCode {
        match self {
            Self::BrokenPipe => ExitCode::SUCCESS,
            Self::Usage(_) => ExitCode::from(2),
            Self::Table(error) if is_usage(error) => ExitCode::from(2),
            Self::Problem(_) | Self::Table(_) => ExitCode::from(1),
            Self::Interrupted(_) => ExitCode::from(130),
        }
    }
}

/// Returns whether the error is about the arguments, and not about the state of the table.
fn is_usage(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidOption { .. }
            | Error::Unsupported(_)
            | Error::NotFound { .. }
            | Error::AlreadyExists { .. }
            | Error::KeyTooLong { .. }
            | Error::ValueTooLong { .. }
    )
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Problem(text) | Self::Interrupted(text) => f.write_str(text),
            Self::Table(error) => write_chain(f, error),
            Self::BrokenPipe => f.write_str("the output was closed by its reader"),
        }
    }
}

/// Writes the library's message, followed by the cause if the message does not contain it.
fn write_chain(f: &mut fmt::Formatter<'_>, error: &Error) -> fmt::Result {
    let text = error.to_string();
    f.write_str(&text)?;
    match error.source().map(ToString::to_string) {
        Some(cause) if !text.contains(&cause) => write!(f, ": {cause}"),
        _ => Ok(()),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Table(error)
    }
}

/// Converts errors of standard output; use [`Failure::io`] for files.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::io(Path::new("output"), &error)
    }
}

impl std::error::Error for Failure {}
