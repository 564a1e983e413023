//! What `icefield-sql build-index` stores beside an index: the files that it was built from.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::columns::read_small;
use icefield_console::failure::Failure;

/// The name of the file.
pub const NAME: &str = "source.json";
/// The version of its format.
const VERSION: u32 = 2;

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
    /// The number of rows in the files. The index contains only those that have a key.
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
        let path = directory.join(NAME);
        let text = match read_small(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::io(&path, &error)),
        };
        let problem = |error: &dyn std::fmt::Display| {
            Failure::Problem(format!("{}: {error}; build the index again", path.display()))
        };
        let version: Version = serde_json::from_str(&text).map_err(|error| problem(&error))?;
        if version.version != VERSION {
            return Err(problem(&format!(
                "version {}, but this program reads version {VERSION}",
                version.version
            )));
        }
        serde_json::from_str(&text).map(Some).map_err(|error| problem(&error))
    }
}

/// The part of a stamp that every version has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}
