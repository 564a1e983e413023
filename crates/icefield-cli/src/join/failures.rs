//! Failures that several parts of a join report.

use icefield_console::failure::Failure;

/// Wraps an error of Arrow that should not occur.
pub fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::Problem(format!("cannot continue: {error}"))
}

/// Returns the failure of a command that was interrupted before it had any visible effect.
pub fn interrupted() -> Failure {
    Failure::Interrupted("interrupted; nothing was written".to_owned())
}
