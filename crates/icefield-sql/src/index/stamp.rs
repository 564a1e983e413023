//! The description of an index's sources: `source.json` in its directory.
//!
//! The stamp is written and synced before the directory gets its name, so every index under its name has a stamp.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use datafusion::error::{DataFusionError, Result};
use icefield::base::hash::{Hash, HashKind};
use icefield_console::stamp::{self, NAME, VERSION};
use serde::{Deserialize, Serialize};

use super::format::Format;
use super::keys::{KeyForm, MOST_PARTS};
use super::source::SourceFile;
use crate::error::{at_path, of_command, usage};

/// A part of an index: the keys with a range of hashes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The index from words to row numbers: [`JoinIndex::uuid`](icefield::JoinIndex::uuid), in hexadecimal digits.
    pub uuid: String,
    /// The number of its rows.
    pub rows: u64,
    /// The checksums of the columns' metadata: [`ColumnsFile::sums`](super::file::ColumnsFile::sums).
    pub columns_sums: [u64; 2],
    /// The checksum of the whole file of columns: [`ColumnsFile::sum`](super::file::ColumnsFile::sum).
    pub columns_sum: u64,
}

/// The description of an index's sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    version: u32,
    /// The parts of the index that the stamp belongs to.
    pub parts: Vec<Part>,
    /// The files, patterns and directories that the user named, as absolute paths.
    pub sources: Vec<String>,
    /// The files, in the order of their rows.
    pub files: Vec<SourceFile>,
    /// How they are read.
    pub format: Format,
    /// The names of all columns of the files, in order.
    pub table: Vec<String>,
    /// The names of the key columns.
    pub keys: Vec<String>,
    /// The names of the columns that the index has.
    pub columns: Vec<String>,
    /// The name of the functions that made the words: [`FUNCTIONS`](super::keys::FUNCTIONS).
    pub functions: String,
    /// How the keys became words.
    pub form: KeyForm,
    /// The number of rows in the files.
    pub rows: u64,
    /// The number of rows with a null in a key column.
    pub nulls: u64,
    /// The checksum of the file of ranks, if there is one: [`Ranks::write`](super::ranks::Ranks::write).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks_sum: Option<u64>,
    /// The checksum of everything else; `None` if the stamp has not been written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sum: Option<u64>,
}

impl Stamp {
    /// Returns a stamp without files or rows.
    #[must_use]
    pub fn new(
        sources: Vec<String>,
        format: Format,
        keys: Vec<String>,
        table: Vec<String>,
        columns: Vec<String>,
        form: KeyForm,
    ) -> Self {
        Self {
            version: VERSION,
            parts: Vec::new(),
            sources,
            files: Vec::new(),
            format,
            table,
            keys,
            columns,
            functions: super::keys::FUNCTIONS.to_owned(),
            form,
            rows: 0,
            nulls: 0,
            ranks_sum: None,
            sum: None,
        }
    }

    /// Writes the stamp into the directory of an index, durably.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(NAME);
        let text = self.text().map_err(|error| broken(&path, &error))?;
        let write = || {
            let mut file = File::create_new(&path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            File::open(directory)?.sync_all()
        };
        write().map_err(|error| at_path(&path, error))
    }

    /// Reads the stamp of an index.
    ///
    /// # Errors
    /// If there is none, or it is damaged or of another version.
    pub fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(NAME);
        let read = stamp::read(directory).map_err(of_command)?;
        let (stamp, text): (Self, String) = read.ok_or_else(|| {
            usage(format!(
                "{}: not an index, because it has no file {NAME}; build one with build-index",
                directory.display()
            ))
        })?;
        if stamp.functions != super::keys::FUNCTIONS {
            return Err(broken(&path, &format!("unknown key functions `{}`", stamp.functions)));
        }
        // The text is compared, not only the checksum: without the name of an absent value, the contents are the same.
        if stamp.text().map_err(|error| broken(&path, &error))? != text {
            return Err(broken(&path, &"damaged: its checksum is wrong"));
        }
        if !stamp.has_all_rows() {
            return Err(broken(&path, &"the parts, files and numbers of rows do not fit"));
        }
        Ok(stamp)
    }

    /// Returns the number of pairs of a word and a row.
    pub fn pairs(&self) -> u64 {
        match self.form {
            KeyForm::Word => self.rows.saturating_sub(self.nulls),
            KeyForm::Hash(_) => self.rows,
        }
    }

    /// Returns the text of the file. Its checksum is that of the text without the checksum.
    fn text(&self) -> serde_json::Result<String> {
        let mut stamp = Self { sum: None, ..self.clone() };
        let text = serde_json::to_string(&stamp)?;
        stamp.sum = Some(Hash::new(HashKind::Strong, [0, 0]).bytes(text.as_bytes()));
        Ok(serde_json::to_string_pretty(&stamp)? + "\n")
    }

    /// Returns whether the parts, and the files in each of them, have as many rows together as the index.
    fn has_all_rows(&self) -> bool {
        fn sum(mut rows: impl Iterator<Item = u64>) -> Option<u64> {
            rows.try_fold(0, u64::checked_add)
        }
        let of_files = |part: usize| sum(self.files.iter().map(|file| file.rows[part]));
        (1..=MOST_PARTS as usize).contains(&self.parts.len())
            && self.files.iter().all(|file| file.rows.len() == self.parts.len())
            && sum(self.parts.iter().map(|part| part.rows)) == Some(self.rows)
            && (0..self.parts.len()).all(|at| of_files(at) == Some(self.parts[at].rows))
    }
}

fn broken(path: &Path, what: &dyn std::fmt::Display) -> DataFusionError {
    DataFusionError::Execution(format!("{}: {what}; build the index again", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_changed_byte_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let names = vec!["k".to_owned()];
        let format = Format::of_name("r.csv").unwrap();
        let sources = vec!["/r.csv".to_owned()];
        let mut stamp =
            Stamp::new(sources, format, names.clone(), names.clone(), names, KeyForm::Word);
        let uuid = "0".repeat(32);
        stamp.parts.push(Part { uuid, rows: 0, columns_sums: [1, 2], columns_sum: 3 });
        stamp.write(dir.path()).unwrap();
        let good = fs::read(dir.path().join(NAME)).unwrap();
        Stamp::read(dir.path()).unwrap();
        for at in 0..good.len() {
            for bit in [0x01, 0x20, 0x29, 0x55] {
                let mut bad = good.clone();
                bad[at] ^= bit;
                fs::write(dir.path().join(NAME), bad).unwrap();
                assert!(Stamp::read(dir.path()).is_err(), "{at} {bit}");
            }
        }
    }
}
