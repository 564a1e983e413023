//! Errors, as DataFusion's.

use std::io;
use std::path::Path;

use datafusion::error::DataFusionError;
use icefield_console::failure::Failure;

/// Wraps a system error about a path.
pub(crate) fn at_path(path: &Path, error: io::Error) -> DataFusionError {
    DataFusionError::from(error).context(path.display().to_string())
}

/// Wraps an error of the index.
pub(crate) fn of_index(error: icefield::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Wraps a failure of what commands share.
pub(crate) fn of_command(failure: Failure) -> DataFusionError {
    DataFusionError::External(Box::new(failure))
}

/// Returns the error for a damaged file of an index.
pub(crate) fn damaged(path: &Path, what: &str) -> DataFusionError {
    DataFusionError::Execution(format!(
        "{}: damaged: {what}; build the index again",
        path.display()
    ))
}

/// Returns the error for something that the user must change.
pub(crate) fn usage(text: impl Into<String>) -> DataFusionError {
    DataFusionError::Configuration(text.into())
}
