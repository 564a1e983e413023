//! The index as a column store's companion: a directory with a [`JoinIndex`] from the words of the keys to row numbers,
//! the columns of these rows, and what both were built from.
//!
//! - [`keys`] makes words of key columns. [`columns`] writes the columns, and maps them into memory.
//! - [`mod@format`] reads the files of a table through DataFusion. [`source`] detects changes of files. [`stamp`]
//!   stores all this in the directory.
//! - [`ranks`] gives the rows of keys that ascend. [`build`] makes a new index.
//!
//! A directory never changes once it has its name: a new state of the files is built beside it, and takes its place by
//! one rename.

pub mod build;
pub mod columns;
pub mod format;
pub mod keys;
pub mod ranks;
pub mod source;
pub mod stamp;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow::array::UInt64Array;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::error::{DataFusionError, Result};
use icefield::JoinIndex;

use self::columns::Columns;
use self::keys::KeyForm;
use self::ranks::Ranks;
use self::stamp::Stamp;
use crate::error::{damaged, of_index};

/// The names of the files beside those of the [`JoinIndex`].
pub const FILES: [&str; 2] = [icefield_console::stamp::NAME, columns::NAME];

/// An index, open for reading. Any number of processes share its pages in memory.
pub struct Index {
    path: PathBuf,
    stamp: Stamp,
    join: JoinIndex<u64>,
    columns: Columns,
    /// The positions of the key columns among the columns.
    keys: Vec<usize>,
    /// The rows of the keys, if they ascend; made when many keys have been looked up.
    ranks: OnceLock<Option<Ranks>>,
    /// Number of keys that have been looked up without them.
    lookups: AtomicU64,
    allow_stale: bool,
}

impl Index {
    /// Opens the index at `path`. Unless `allow_stale` is true, the files that it was built from must be unchanged.
    ///
    /// No other program may write to the files of the index while it is open; see
    /// [`JoinOptions::open`](icefield::JoinOptions::open).
    ///
    /// # Errors
    /// If `path` is not an index, the index is damaged, or a file has changed.
    pub fn open(path: &Path, allow_stale: bool) -> Result<Self> {
        let path = path.canonicalize().map_err(|error| crate::error::at_path(path, error))?;
        // A caller probes from its own threads.
        let join =
            JoinIndex::<u64>::options().threads(1).open_read_only(&path).map_err(of_index)?;
        let stamp = Stamp::read(&path)?;
        if stamp.uuid != format!("{:032x}", join.uuid()) {
            return Err(damaged(
                &path.join(icefield_console::stamp::NAME),
                "it belongs to another index",
            ));
        }
        let columns = Columns::open(&path, stamp.rows, Some(stamp.columns_sums))?;
        let place = |name: &String| columns.schema().index_of(name);
        let keys = stamp.keys.iter().map(place).collect::<std::result::Result<_, _>>()?;
        if !allow_stale {
            stamp.files.iter().try_for_each(source::SourceFile::check)?;
        }
        let (ranks, lookups) = (OnceLock::new(), AtomicU64::new(0));
        Ok(Self { path, stamp, join, columns, keys, ranks, lookups, allow_stale })
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the description of the index's sources.
    pub fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// Returns the index from words to row numbers.
    pub fn join(&self) -> &JoinIndex<u64> {
        &self.join
    }

    /// Returns the columns.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// Returns the names and types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        self.columns.schema()
    }

    /// Returns the positions of the key columns among the columns.
    pub fn keys(&self) -> &[usize] {
        &self.keys
    }

    /// Returns the types of the key columns.
    pub fn key_types(&self) -> Vec<&DataType> {
        self.keys.iter().map(|&key| self.schema().field(key).data_type()).collect()
    }

    /// Returns the words of the keys of a chunk of rows, null for rows without a key.
    ///
    /// # Errors
    /// If the chunk is damaged.
    pub fn words(&self, chunk: usize) -> Result<UInt64Array> {
        let keys = self.keys.iter().map(|&key| self.columns.chunk(key, chunk).cloned());
        self.stamp.form.words(&keys.collect::<Result<Vec<_>>>()?, &self.key_types())
    }

    /// Returns the rows of the keys before `keys` of them are looked up, if the keys ascend, are dense and are their
    /// own words; `None` also as long as so few keys have been looked up that it does not pay to read all keys.
    ///
    /// # Errors
    /// If a chunk is damaged.
    pub fn ranks(&self, keys: usize) -> Result<Option<&Ranks>> {
        /// Looking up a key in the hash index takes as long as reading this many keys in order.
        const KEYS_PER_LOOKUP: u64 = 16;
        if let Some(ranks) = self.ranks.get() {
            return Ok(ranks.as_ref());
        }
        let (rows, form) = (self.columns.rows(), self.stamp.form);
        if form != KeyForm::Word || self.stamp.keyed_rows != rows {
            return Ok(self.ranks.get_or_init(|| None).as_ref());
        }
        let before = self.lookups.fetch_add(keys as u64, Relaxed);
        if (before + keys as u64).saturating_mul(KEYS_PER_LOOKUP) < rows {
            return Ok(None);
        }
        let ranks = Ranks::of(self.columns.chunks(), rows, |chunk| self.words(chunk))?;
        Ok(self.ranks.get_or_init(|| ranks).as_ref())
    }

    /// Returns whether files that have changed since the build are accepted.
    pub fn allows_stale(&self) -> bool {
        self.allow_stale
    }

    /// Returns whether the directory has this index still, and not one that was built later.
    pub fn is_at_its_path(&self) -> bool {
        Stamp::read(&self.path).is_ok_and(|stamp| stamp.uuid == self.stamp.uuid)
    }

    /// Returns the name of the directory without its ending, as a name for the indexed table.
    pub fn name(&self) -> String {
        self.path
            .file_stem()
            .map_or_else(|| "index".to_owned(), |name| name.to_string_lossy().into_owned())
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index({})", self.path.display())
    }
}

/// Returns the error for a row number that the columns do not have.
pub(crate) fn no_row(index: &Index, row: u64) -> DataFusionError {
    damaged(&index.path, &format!("row {row} does not exist: there are {}", index.columns.rows()))
}
