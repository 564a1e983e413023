//! The stamp of an index: which file it was built from, and how to detect that the file has changed.
//!
//! The stamp is `source.json` in the index's directory. It is written and synced before the directory gets its final
//! name (see [`site`](icefield_console::site)), so every index under its final name has its stamp.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use icefield::base::hash::{Hash, HashKind};
use serde::{Deserialize, Serialize};

use super::key_type::KeyType;
use crate::columns::read_small;
use icefield_console::failure::Failure;

/// The name of the file.
pub const NAME: &str = "source.json";
/// The version of its format.
const VERSION: u32 = 1;
/// The checksum covers this number of bytes at the start of a file, and the same number at its end. A Parquet file ends
/// with its footer, which has the sizes and bounds of the file's contents.
const CHECKED_BYTES: u64 = 1 << 20;

/// The state of a file, by which a change is detected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// Its length.
    pub bytes: u64,
    /// The time of its last modification: seconds since 1970, and nanoseconds.
    pub modified: (u64, u32),
    /// The checksum of its first and last mebibyte.
    pub checksum: String,
}

impl FileState {
    /// Reads the current state of a file.
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

    /// Describes the differences between this state and `now`.
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

/// The source of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    version: u32,
    /// The file's absolute path.
    pub file: PathBuf,
    /// The file's state at the build.
    pub state: FileState,
    /// The key column.
    pub column: String,
    /// Its type.
    pub key: KeyType,
    /// The number of rows in the file. The index contains only those that have a key.
    pub rows: u64,
    /// The seed of the hash function for keys that are bytes.
    pub hash_seed: [u64; 2],
}

impl Stamp {
    /// Returns the stamp of a new index of `file`.
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

    /// Writes the stamp into the directory of an index, durably.
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

    /// Reads the stamp of an index; `None` if it was not built by `join build-index`.
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

    /// Fails if the file at `path` has changed since the index was built.
    pub fn check(&self, path: &Path) -> Result<(), Failure> {
        let hint = "build the index again (--replace), or use it as it is with --allow-stale";
        let now = match FileState::of(path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Failure::Problem(format!(
                    "{}: the file that was indexed is gone; if it was moved, name it with --source; to use the index \
                     without it, add --allow-stale",
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

/// The part of a stamp that every version has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}
