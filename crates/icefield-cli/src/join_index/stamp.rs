//! What an index remembers of the file it was built from, and how it notices that the file has changed.
//!
//! `source.json` lies in the index's directory. It is written and synced before the directory gets its name (see
//! [`site`](crate::site)), so there is no index without it, nor one with that of another.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use icefield::base::hash::{Hash, HashKind};
use serde::{Deserialize, Serialize};

use super::key_type::KeyType;
use crate::columns::read_small;
use icefield_console::failure::Failure;

/// The file's name.
pub const NAME: &str = "source.json";
/// The version of its form.
const VERSION: u32 = 1;
/// How much of a file's beginning, and of its end, the checksum covers. A Parquet file has its footer at the end, with
/// the sizes and bounds of all that is in it.
const CHECKED_BYTES: u64 = 1 << 20;

/// What tells a file from what it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// Its length.
    pub bytes: u64,
    /// When it was written last: seconds since 1970, and nanoseconds.
    pub modified: (u64, u32),
    /// Checksum of its first and last mebibyte.
    pub checksum: String,
}

impl FileState {
    /// That of a file now.
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        let since = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let bytes = metadata.len();
        let hash = Hash::new(HashKind::Strong, [0, 0]);
        let mut part = Vec::new();
        Read::by_ref(&mut file).take(CHECKED_BYTES).read_to_end(&mut part)?;
        let head = hash.bytes(&part);
        part.clear();
        file.seek(SeekFrom::Start(bytes.saturating_sub(CHECKED_BYTES)))?;
        Read::by_ref(&mut file).take(CHECKED_BYTES).read_to_end(&mut part)?;
        let checksum = format!("{head:016x}{:016x}", hash.bytes(&part));
        Ok(Self { bytes, modified: (since.as_secs(), since.subsec_nanos()), checksum })
    }

    /// What is different now, in words.
    pub fn changes(&self, now: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        if self.bytes != now.bytes {
            changes.push(format!("its length, from {} to {} bytes", self.bytes, now.bytes));
        }
        if self.checksum != now.checksum {
            changes.push("its contents".to_owned());
        }
        if self.modified != now.modified {
            changes.push("its time of modification".to_owned());
        }
        changes
    }
}

/// What an index was built from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    version: u32,
    /// The file, by its whole path.
    pub file: PathBuf,
    /// As it was then.
    pub state: FileState,
    /// The key column.
    pub column: String,
    /// Its type.
    pub key: KeyType,
    /// Rows of the file; those with a key are in the index.
    pub rows: u64,
    /// The seed of the hash function of keys that are bytes.
    pub hash_seed: [u64; 2],
}

impl Stamp {
    /// That of a new index of `file`.
    pub fn new(
        file: &Path,
        state: FileState,
        column: &str,
        key: KeyType,
        rows: u64,
    ) -> Result<Self, Failure> {
        let file = fs::canonicalize(file).map_err(|error| Failure::io(file, &error))?;
        if file.to_str().is_none() {
            return Err(Failure::Usage(format!("{}: a path that is not UTF-8", file.display())));
        }
        let (version, column) = (VERSION, column.to_owned());
        let hash_seed = icefield::base::hash::random_seed();
        Ok(Self { version, file, state, column, key, rows, hash_seed })
    }

    /// Writes it into the directory of an index, durably.
    pub fn write(&self, directory: &Path) -> Result<(), Failure> {
        let path = directory.join(NAME);
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Failure::Problem(format!("{}: {error}", path.display())))?;
        let write = || {
            let mut file = File::create_new(&path)?;
            writeln!(file, "{text}")?;
            file.sync_all()?;
            File::open(directory)?.sync_all()
        };
        write().map_err(|error| Failure::io(&path, &error))
    }

    /// That of an index; `None` for one that was built by other means.
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
                "version {}, where this program knows {VERSION}",
                version.version
            )));
        }
        serde_json::from_str(&text).map(Some).map_err(|error| problem(&error))
    }

    /// Fails unless the file at `path` is as it was when the index was built.
    pub fn check(&self, path: &Path) -> Result<(), Failure> {
        let hint = "build the index again (--replace), or take it as it is with --allow-stale";
        let now = match FileState::of(path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Failure::Problem(format!(
                    "{}: the file that was indexed is gone; name it with --source where it was moved, or take the \
                     index without it with --allow-stale",
                    path.display()
                )));
            }
            Err(error) => return Err(Failure::io(path, &error)),
        };
        let changes = self.state.changes(&now);
        if changes.is_empty() {
            return Ok(());
        }
        Err(Failure::Problem(format!(
            "{}: has changed since it was indexed: {}; {hint}",
            path.display(),
            changes.join(", ")
        )))
    }
}

/// What can be read of every version.
#[derive(Deserialize)]
struct Version {
    version: u32,
}
