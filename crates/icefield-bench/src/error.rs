//! What ends a run early.

use std::io;
use std::path::{Path, PathBuf};

/// Why there is no result.
///
/// ```
/// use icefield_bench::{Args, Error, run};
/// let error = run(Args::new("no-such-experiment")).unwrap_err();
/// assert!(matches!(error, Error::NoExperiment(name) if name == "no-such-experiment"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No experiment has this name.
    #[error("no experiment `{0}`; `icefield-bench list` names all")]
    NoExperiment(String),
    /// Files that are missing, or not wanted.
    #[error("{0}; see `icefield-bench --help`")]
    Arguments(&'static str),
    /// An option asks for what cannot be.
    #[error("--{option}: {detail}")]
    Option {
        /// Its name, without the dashes.
        option: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// A file, directory or program that cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// A table that cannot be made, opened or used.
    #[error(transparent)]
    Table(#[from] icefield::Error),
    /// The experiment could not go on.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    pub(crate) fn option(option: &'static str, detail: impl Into<String>) -> Self {
        Self::Option { option, detail: detail.into() }
    }

    /// Wraps what the system answered about `path`.
    pub(crate) fn file(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::File { path: path.to_owned(), source: source.into() }
    }

    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self::Failed(what.into())
    }
}
