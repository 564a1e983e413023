//! The columns of the file that a table was loaded from: `columns.json` in the table's directory, by which `export` gives
//! them back. It is there as long as all records have these columns, as far as `load` is concerned.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::rows::Rows;
use icefield_console::destination::Destination;
use icefield_console::failure::Failure;
use icefield_console::json::warn;
use icefield_console::terminal::{shown, shown_path};

/// The file's name.
pub const NAME: &str = "columns.json";
/// The version of its form.
const VERSION: u32 = 1;

/// How a file's columns became keys and values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Columns {
    version: u32,
    /// Those that are stored, in the file's order.
    pub columns: Vec<String>,
    /// The one that is the key; none when the key is the row's number.
    pub key: Option<String>,
    /// The one that is the value; none when the value is a JSON object of all but the key.
    pub value: Option<String>,
}

impl Columns {
    /// Those of an input.
    pub fn of(rows: &Rows) -> Self {
        let (key, value) = (rows.key_column(), rows.value_column());
        let is_stored =
            |name: &&String| value.is_none() || [key, value].contains(&Some(name.as_str()));
        Self {
            version: VERSION,
            columns: rows.columns().iter().filter(is_stored).cloned().collect(),
            key: key.map(str::to_owned),
            value: value.map(str::to_owned),
        }
    }

    /// Those of a table; `None` for one that was made by other means.
    pub fn read(table: &Path) -> Result<Option<Self>, Failure> {
        let path = table.join(NAME);
        let text = match read_small(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::io(&path, &error)),
        };
        match serde_json::from_str::<Self>(&text) {
            Ok(columns) if columns.version == VERSION => Ok(Some(columns)),
            _ => {
                warn(format_args!(
                    "note: {}: not a description of columns that this program can read",
                    shown_path(&path)
                ));
                Ok(None)
            }
        }
    }

    /// Keeps them with a table into which rows of them will be loaded.
    pub fn keep(&self, table: &Path, is_empty: bool) -> Result<(), Failure> {
        let path = table.join(NAME);
        let present = Self::read(table)?;
        if present.as_ref() == Some(self) {
            return Ok(());
        }
        if is_empty {
            return self.write(&path);
        }
        if present.is_some() {
            warn(format_args!(
                "note: {}: has records of other columns; `export` will give keys and values",
                shown_path(table)
            ));
            fs::remove_file(&path).map_err(|error| Failure::io(&path, &error))?;
        }
        Ok(())
    }

    /// Writes them for a copy of a table. Where they cannot be read, the copy has none, and a note says so: its records are
    /// complete.
    pub fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
        match Self::read(from) {
            Ok(Some(columns)) => columns.write(&to.join(NAME)),
            Ok(None) => Ok(()),
            Err(failure) => {
                warn(format_args!("note: {}", shown(&failure.to_string())));
                Ok(())
            }
        }
    }

    fn write(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Failure::Problem(format!("cannot write the columns: {error}")))?;
        let mut file = Destination::create(path, &[])?;
        writeln!(file, "{text}").map_err(|error| Failure::io(path, &error))?;
        file.finish()
    }
}

/// The text of a file that a command keeps beside a table. Anything else under its name is an error: a pipe would be
/// waited for.
pub fn read_small(path: &Path) -> io::Result<String> {
    const MOST_BYTES: u64 = 64 << 20;
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > MOST_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not a plain file of at most 64 MiB",
        ));
    }
    io::read_to_string(file.take(MOST_BYTES))
}
