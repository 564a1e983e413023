//! The files of a table: what identifies them, and how a change is detected.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::object_store::path::Path as ObjectPath;
use icefield::base::hash::{Hash, HashKind};
use serde::{Deserialize, Serialize};

use crate::error::{at_path, usage};
use datafusion::error::{DataFusionError, Result};

/// The checksum covers this number of bytes at the start of a file, and the same number at its end. A Parquet file ends
/// with its footer, which has the sizes and bounds of the file's contents.
const CHECKED_BYTES: u64 = 1 << 20;

/// A file from which an index was built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Its absolute path.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// The time of its last modification: seconds since 1970, and nanoseconds.
    pub modified: (u64, u32),
    /// The checksum of its first and last mebibyte.
    pub checksum: String,
    /// The number of its rows in each part of the index; empty until they have been read.
    pub rows: Vec<u64>,
}

impl SourceFile {
    /// Reads the present state of a file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let read = || {
            let mut file = File::open(path)?;
            let metadata = file.metadata()?;
            let since = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let bytes = metadata.len();
            let head = sum(&mut file, 0)?;
            let tail = sum(&mut file, bytes.saturating_sub(CHECKED_BYTES))?;
            let modified = (since.as_secs(), since.subsec_nanos());
            let checksum = format!("{head:016x}{tail:016x}");
            Ok(Self { path: path.to_owned(), bytes, modified, checksum, rows: Vec::new() })
        };
        read().map_err(|error| at_path(path, error))
    }

    /// Returns an error if the file has changed.
    ///
    /// # Errors
    /// The path, what has changed, and what to do.
    pub fn check(&self) -> Result<()> {
        let path = self.path.display();
        let hint = "run update-index, build the index again (--replace), or use it as it is (--allow-stale)";
        let now = match Self::read(&self.path) {
            Ok(now) => now,
            Err(_) if !self.path.exists() => {
                return Err(DataFusionError::Execution(format!(
                    "{path}: the file that was indexed is gone; {hint}"
                )));
            }
            Err(error) => return Err(error),
        };
        let changes = self.changes(&now);
        if changes.is_empty() {
            return Ok(());
        }
        let changes = changes.join(", ");
        Err(DataFusionError::Execution(format!(
            "{path}: has changed since it was indexed: {changes}; {hint}"
        )))
    }

    /// Returns what differs between this state and a later one.
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

    /// Returns whether a file that DataFusion is going to read has this length and time.
    pub fn has_state_of(&self, file: &PartitionedFile) -> bool {
        let meta = &file.object_meta;
        let modified = (
            u64::try_from(meta.last_modified.timestamp()).unwrap_or(0),
            meta.last_modified.timestamp_subsec_nanos(),
        );
        meta.size == self.bytes && modified == self.modified
    }
}

/// Returns the checksum of at most [`CHECKED_BYTES`] from `start` on.
fn sum(file: &mut File, start: u64) -> io::Result<u64> {
    let mut part = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.take(CHECKED_BYTES).read_to_end(&mut part)?;
    Ok(Hash::new(HashKind::Strong, [0, 0]).bytes(&part))
}

/// Returns the file system's name of a path of DataFusion.
///
/// # Errors
/// If the name cannot be written as such a path.
pub fn local_path(location: &ObjectPath) -> Result<PathBuf> {
    let path = Path::new("/").join(location.as_ref());
    match ObjectPath::from_absolute_path(&path) {
        Ok(again) if again == *location => Ok(path),
        _ => {
            Err(usage(format!("{}: this name cannot be indexed; rename the file", path.display())))
        }
    }
}

/// Returns the files that a scan reads, in order, or the reason why they cannot be those of an index: files on another
/// machine, or parts of files.
pub fn files_of(scan: &FileScanConfig) -> std::result::Result<Vec<PartitionedFile>, String> {
    if scan.object_store_url.as_str() != "file:///" {
        return Err(format!(
            "the files are on {}, not on this machine",
            scan.object_store_url.as_str()
        ));
    }
    let mut files: Vec<(PartitionedFile, Vec<(i64, i64)>)> = Vec::new();
    let mut places: HashMap<ObjectPath, usize> = HashMap::new();
    for file in scan.file_groups.iter().flat_map(|group| group.iter()) {
        // Other parts of a plan may have chosen row groups of the file.
        if !file.extensions.is_empty() {
            return Err(format!("only a part of {} is read", file.object_meta.location));
        }
        let size = i64::try_from(file.object_meta.size).unwrap_or(i64::MAX);
        let range = file.range.as_ref().map_or((0, size), |range| (range.start, range.end));
        // A file may be read in ranges, by several threads.
        match places.entry(file.object_meta.location.clone()) {
            Entry::Occupied(place) => files[*place.get()].1.push(range),
            Entry::Vacant(place) => {
                place.insert(files.len());
                files.push((file.clone(), vec![range]));
            }
        }
    }
    for (file, ranges) in &mut files {
        ranges.sort_unstable();
        let size = i64::try_from(file.object_meta.size).unwrap_or(i64::MAX);
        let end = ranges.iter().try_fold(0, |end, &(start, next)| (start == end).then_some(next));
        if end != Some(size) {
            return Err(format!("{} is not read as a whole, once", file.object_meta.location));
        }
    }
    Ok(files.into_iter().map(|(file, _)| file).collect())
}
