//! Errors that end a run.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a run has no result.
///
/// ```
/// use icefield_bench::{Args, Error, run};
/// let error = run(Args::new("no-such-experiment")).unwrap_err();
/// assert!(matches!(error, Error::NoExperiment(name) if name == "no-such-experiment"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of the experiment is unknown.
    #[error("no experiment `{0}`; `icefield-bench list` shows all")]
    NoExperiment(String),
    /// Files are missing or superfluous on the command line.
    #[error("{0}; see `icefield-bench --help`")]
    Arguments(&'static str),
    /// The value of an option is not valid.
    #[error("--{option}: {detail}")]
    Option {
        /// The option's name, without the dashes.
        option: &'static str,
        /// The problem.
        detail: String,
    },
    /// A file, directory or program cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error from the operating system.
        source: io::Error,
    },
    /// A table cannot be created, opened or used.
    #[error(transparent)]
    Table(#[from] icefield::Error),
    /// The experiment failed for another reason.
    #[error("{0}")]
    Failed(String),
}

impl From<procfs::ProcError> for Error {
    fn from(error: procfs::ProcError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The result of a step of a run.
pub(crate) type Outcome<T = ()> = Result<T, Error>;

impl Error {
    pub(crate) fn option(option: &'static str, detail: impl Into<String>) -> Self {
        Self::Option { option, detail: detail.into() }
    }

    pub(crate) fn file(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::File { path: path.to_owned(), source: source.into() }
    }

    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self::Failed(what.into())
    }
}
