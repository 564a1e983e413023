//! The files from which `icefield-sql` has built an index, as it describes them beside the index.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use icefield_console::failure::Failure;
use icefield_console::stamp;

/// The part of the file that this program shows.
#[derive(Clone, Debug, Deserialize)]
pub struct Stamp {
    /// The files, patterns and directories that the user named.
    pub sources: Vec<String>,
    /// The files, in the order of their rows.
    pub files: Vec<SourceFile>,
    /// The names of the key columns.
    pub keys: Vec<String>,
    /// The names of all columns that the index has.
    pub columns: Vec<String>,
    /// The number of rows in the files. An index by one column of integers, times or booleans has no rows with a null.
    pub rows: u64,
}

/// A file from which an index was built.
#[derive(Clone, Debug, Deserialize)]
pub struct SourceFile {
    /// Its absolute path.
    pub path: PathBuf,
}

impl Stamp {
    /// Reads the stamp of an index; `None` if it was not built by `icefield-sql`.
    pub fn read(directory: &Path) -> Result<Option<Self>, Failure> {
        Ok(stamp::read(directory)?.map(|(stamp, _)| stamp))
    }
}
