//! The index as a column store's companion: a directory with a [`JoinIndex`] from the words of the keys to row numbers,
//! the columns of these rows, and what both were built from.
//!
//! - [`keys`] makes words of key columns. [`writer`] writes the columns to a file, which [`mod@file`] maps into memory;
//!   [`columns`] takes rows of them.
//! - [`mod@format`] reads the files of a table through DataFusion. [`source`] detects changes of files. [`stamp`]
//!   stores all this in the directory.
//! - [`ranks`] gives the rows of keys that ascend, from a file. [`build`] makes a new index; `rows` writes
//!   its columns and reads the keys again.
//!
//! An index may be divided into parts by a hash of the words of its keys. Each part then has a [`JoinIndex`] and a file
//! of columns in a separate directory, `part-000` and so on, below that of the index; the only part of an undivided index
//! has them in the directory of the index itself. Row numbers are those of all parts together.
//!
//! A directory never changes once it has its name: a new state of the files is built beside it, and takes its place by
//! one rename.

pub mod build;
pub mod columns;
pub mod file;
pub mod format;
pub mod keys;
mod progress;
pub mod ranks;
mod rows;
pub mod source;
pub mod stamp;
pub mod writer;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use arrow::array::{Array, UInt64Array};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::NullEquality;
use datafusion::error::{DataFusionError, Result};
use icefield::{JoinIndex, Pairs};

use self::columns::Columns;
use self::file::ColumnsFile;
pub use self::keys::MOST_PARTS;
use self::keys::{ByPart, KeyForm, part_of};
use self::ranks::Ranks;
use self::stamp::Stamp;
use self::writer::CHUNK_ROWS;
use crate::error::{at_path, damaged, of_index};

/// The name of the file of columns beside the files of a [`JoinIndex`].
pub const COLUMNS: &str = "columns.arrow";
/// The names of the files beside those of a [`JoinIndex`].
pub const FILES: [&str; 3] = [icefield_console::stamp::NAME, COLUMNS, ranks::NAME];

/// Returns the directory of one of `parts` parts of the index at `path`.
pub fn part_path(path: &Path, part: usize, parts: usize) -> PathBuf {
    if parts == 1 { path.to_owned() } else { path.join(format!("part-{part:03}")) }
}

/// An index, open for reading. Any number of processes share its pages in memory.
pub struct Index {
    path: PathBuf,
    stamp: Stamp,
    parts: Vec<JoinIndex<u64>>,
    columns: Columns,
    /// The positions of the key columns among the columns.
    keys: Vec<usize>,
    ranks: Option<Ranks>,
    /// The rows without a word, once they have been needed.
    null_rows: OnceLock<Vec<u64>>,
    /// Held by the thread that finds these rows.
    finds_nulls: Mutex<()>,
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
        let mut stamp = Stamp::read(&path)?;
        let (parts, columns, ranks) = loop {
            match files_of(&path, &stamp) {
                Ok(files) => break files,
                Err(error) => {
                    // Another build may have taken the place of the one whose stamp was read.
                    let now = Stamp::read(&path)?;
                    if now == stamp {
                        return Err(error);
                    }
                    stamp = now;
                }
            }
        };
        let place = |name: &String| columns.schema().index_of(name).ok();
        let keys: Option<Vec<_>> = stamp.keys.iter().map(place).collect();
        let Some(keys) = keys.filter(|keys| !keys.is_empty()) else {
            return Err(damaged(&path, "its columns are not those of the description"));
        };
        if !allow_stale {
            stamp.files.iter().try_for_each(source::SourceFile::check)?;
        }
        Ok(Self {
            path,
            stamp,
            parts,
            columns,
            keys,
            ranks,
            null_rows: OnceLock::new(),
            finds_nulls: Mutex::new(()),
            allow_stale,
        })
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the description of the index's sources.
    pub fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// Returns the indexes from words to row numbers, one for each part.
    pub fn parts(&self) -> &[JoinIndex<u64>] {
        &self.parts
    }

    /// Returns what distinguishes this build of the index from all others.
    pub fn uuid(&self) -> u128 {
        self.parts[0].uuid()
    }

    /// Returns the generation of the index.
    pub fn generation(&self) -> u64 {
        self.parts[0].generation()
    }

    /// Returns the number of bytes of the files of the indexes from words to row numbers, and of those of the columns.
    ///
    /// Complexity: one reading of each part's directory.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn bytes(&self) -> Result<(u64, u64)> {
        let of_part = |part: &Path| -> io::Result<u64> {
            part.read_dir()?.try_fold(0, |sum, file| {
                let file = file?;
                let is_of_join = file.file_name().as_encoded_bytes().ends_with(b".ice");
                Ok(if is_of_join { sum + file.metadata()?.len() } else { sum })
            })
        };
        let paths = (0..self.parts.len()).map(|at| part_path(&self.path, at, self.parts.len()));
        let of_joins = paths.map(|path| of_part(&path).map_err(|error| at_path(&path, error)));
        let of_columns = self.columns.files().iter().map(ColumnsFile::bytes).sum();
        Ok((of_joins.sum::<Result<u64>>()?, of_columns))
    }

    /// Compares the checksums of all files, and returns what is damaged. `read` is called with the number of bytes of
    /// columns that have been read, and may end this.
    ///
    /// Complexity: one reading of all files.
    ///
    /// # Errors
    /// The error of `read`.
    pub fn check(&self, read: impl Fn(u64) -> Result<()>) -> Result<Vec<String>> {
        let mut faults = Vec::new();
        let mut before = 0;
        for (at, (join, file)) in std::iter::zip(&self.parts, self.columns.files()).enumerate() {
            let path = part_path(&self.path, at, self.parts.len());
            match join.check() {
                Ok(report) => {
                    let of_part = report.faults.iter();
                    faults.extend(of_part.map(|fault| format!("{}: {fault}", path.display())));
                }
                Err(error) => faults.push(error.to_string()),
            }
            if file.sum(|bytes| read(before + bytes))? != self.stamp.parts[at].columns_sum {
                faults.push(format!("{}: its checksum is wrong", file.path().display()));
            }
            before += file.bytes();
        }
        if let Some(Err(error)) = self.ranks().map(Ranks::check_all) {
            faults.push(error.strip_backtrace());
        }
        Ok(faults)
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

    /// Returns the words of the keys of a chunk of rows, null for rows without a word.
    ///
    /// # Errors
    /// If the chunk is damaged.
    pub fn words(&self, chunk: usize) -> Result<UInt64Array> {
        self.columns.words(chunk, &self.keys, self.stamp.form)
    }

    /// Returns the rows without a word, in order: those whose key is null, if the words are the values of the keys.
    ///
    /// Complexity: one reading of the nulls of the key column, the first time.
    ///
    /// # Errors
    /// If the index is damaged.
    pub fn null_rows(&self) -> Result<&[u64]> {
        if let Some(rows) = self.null_rows.get() {
            return Ok(rows);
        }
        // Other threads wait for the first.
        let _guard = self.finds_nulls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = self.null_rows.get() {
            return Ok(rows);
        }
        let mut rows = Vec::new();
        if self.stamp.form == KeyForm::Word && self.stamp.nulls > 0 {
            for chunk in 0..self.columns.chunks() {
                let first = (chunk * CHUNK_ROWS) as u64;
                if let Some(nulls) = self.columns.chunk(self.keys[0], chunk)?.nulls() {
                    rows.extend((!nulls.inner()).set_indices().map(|at| first + at as u64));
                }
            }
        }
        Ok(self.null_rows.get_or_init(|| rows))
    }

    /// Returns an estimate of the number of rows with the same key, of those that some rows have.
    ///
    /// # Errors
    /// If the index is damaged.
    pub fn rows_per_key(&self, nulls: NullEquality) -> Result<f64> {
        const SAMPLE: usize = 16;
        let sample = |at: usize| {
            let chunk = at * self.columns.chunks() / SAMPLE;
            let (rows, _) = self.columns.extent(chunk);
            (chunk * CHUNK_ROWS + at * rows / SAMPLE) as u64
        };
        let last = if self.columns.chunks() == 0 { 0 } else { SAMPLE };
        let rows: Vec<u64> = (0..last).map(sample).collect();
        let columns = self.keys.iter().map(|&key| self.columns.take(key, &rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let words = self.stamp.form.words(&columns, &self.key_types(), nulls)?;
        let mut found = 0;
        for word in &words {
            let part = part_of(word, self.parts.len() as u32) as usize;
            found += match word {
                Some(word) => self.parts[part].probe_count(&[word]).map_err(of_index)?,
                None if nulls == NullEquality::NullEqualsNull => self.stamp.nulls,
                None => 0,
            };
        }
        Ok(found as f64 / SAMPLE as f64)
    }

    /// Returns the rows with one of these words, in order.
    ///
    /// # Errors
    /// If the index is damaged.
    pub fn rows_of(&self, words: &[u64]) -> Result<Vec<u64>> {
        let mut pairs = Pairs::default();
        let mut rows = Vec::new();
        let parts = self.parts.len() as u32;
        let ByPart { order, ends } = ByPart::of(words.iter().map(|&word| Some(word)), parts);
        let mut start = 0;
        for (join, end) in std::iter::zip(&self.parts, ends) {
            let words: Vec<_> = order[start..end].iter().map(|&at| words[at as usize]).collect();
            join.probe_into(&words, &mut pairs).map_err(of_index)?;
            rows.extend_from_slice(pairs.payloads());
            start = end;
        }
        rows.sort_unstable();
        rows.dedup();
        Ok(rows)
    }

    /// Returns the rows of the keys, if the keys ascend, are dense and are their own words.
    pub fn ranks(&self) -> Option<&Ranks> {
        self.ranks.as_ref()
    }

    /// Returns whether files that have changed since the build are accepted.
    pub fn allows_stale(&self) -> bool {
        self.allow_stale
    }

    /// Returns whether the directory has this index still, and not one that was built later.
    pub fn is_at_its_path(&self) -> bool {
        Stamp::read(&self.path).is_ok_and(|stamp| stamp.parts == self.stamp.parts)
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

/// Opens the files that a stamp describes.
fn files_of(path: &Path, stamp: &Stamp) -> Result<(Vec<JoinIndex<u64>>, Columns, Option<Ranks>)> {
    let (mut parts, mut files) = (Vec::new(), Vec::new());
    for (at, part) in stamp.parts.iter().enumerate() {
        let path = part_path(path, at, stamp.parts.len());
        if !path.try_exists().map_err(|error| at_path(&path, error))? {
            return Err(damaged(&path, "this part of the index is missing"));
        }
        // A caller probes from its own threads.
        let join =
            JoinIndex::<u64>::options().threads(1).open_read_only(&path).map_err(of_index)?;
        if part.uuid != format!("{:032x}", join.uuid()) {
            return Err(damaged(&path, "it belongs to another build of the index"));
        }
        parts.push(join);
        files.push(ColumnsFile::open(path.join(COLUMNS), part.rows, Some(part.columns_sums))?);
    }
    let ranks = |sum| Ranks::open(path.join(ranks::NAME), stamp.rows, sum);
    Ok((parts, Columns::of(path, files)?, stamp.ranks_sum.map(ranks).transpose()?))
}

/// Returns the error for a row number that the columns do not have.
pub(crate) fn no_row(index: &Index, row: u64) -> DataFusionError {
    damaged(&index.path, &format!("row {row} does not exist"))
}
