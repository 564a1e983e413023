//! How a command ends, and the exit status that says so.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use icefield::Error;

use crate::terminal::shown_path;

/// What a command returns: `Ok(true)` when all is well, `Ok(false)` when it found (and has reported) a problem.
pub type Outcome = Result<bool, Failure>;

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for something that makes no sense.
    Usage(String),
    /// Something is wrong outside the command line.
    Problem(String),
    /// The library refused.
    Table(Error),
    /// Whoever read our output has gone: end without a word.
    BrokenPipe,
    /// Ctrl-C; says what was done until then.
    Interrupted(String),
}

impl Failure {
    /// Wraps what the system answered about `path`; a path that leads nowhere is the command line's fault.
    pub fn io(path: &Path, source: &io::Error) -> Self {
        let path = shown_path(path);
        match source.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            io::ErrorKind::NotFound => Self::Usage(format!("{path}: no such file or directory")),
            _ => Self::Problem(format!("{path}: {source}")),
        }
    }

    /// The exit status: 1 for a problem, 2 for bad usage, 130 after Ctrl-C as shells have it.
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

/// Whether the library refused what was asked, rather than what it found.
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
            Self::BrokenPipe => f.write_str("the reader of the output has gone"),
        }
    }
}

/// The library's message, and what it was caused by where it does not say so itself.
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

/// Errors of standard output; files name themselves with [`Failure::io`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::io(Path::new("output"), &error)
    }
}
