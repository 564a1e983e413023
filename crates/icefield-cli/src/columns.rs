//! The columns of the file from which a table was loaded. They are stored as `columns.json` in the table's directory,
//! and `export` writes the same columns again. `load` removes this file when it adds rows with other columns.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::rows::Rows;
use icefield_console::destination::Destination;
use icefield_console::failure::Failure;
use icefield_console::json::warn;
use icefield_console::stamp::read_small;
use icefield_console::terminal::{shown, shown_path};

/// The name of the file.
pub const NAME: &str = "columns.json";
/// The version of its format.
const VERSION: u32 = 1;

/// The mapping from the columns of a file to keys and values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Columns {
    version: u32,
    /// The stored columns, in the file's order.
    pub columns: Vec<String>,
    /// The key column; `None` if the key is the row number.
    pub key: Option<String>,
    /// The value column; `None` if the value is a JSON object of all columns but the key.
    pub value: Option<String>,
}

impl Columns {
    /// Returns the columns of an input.
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

    /// Reads the columns of a table; `None` if it has none, for example because `load` did not fill it, or if this
    /// program cannot read their description.
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
                    "note: {}: this program cannot read this description of columns; the columns are key and value",
                    shown_path(&path)
                ));
                Ok(None)
            }
        }
    }

    /// Stores the columns in the directory of an empty table, before their rows are loaded. If the table is not empty
    /// and its records come from other columns, removes the file.
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
                "note: {}: has records of other columns, so `export` writes the columns key and value",
                shown_path(table)
            ));
            fs::remove_file(&path).map_err(|error| Failure::io(&path, &error))?;
        }
        Ok(())
    }

    /// Writes the columns into the copy of a table. If they cannot be read, the copy's records are complete, but the
    /// copy has no columns, and a note reports this.
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
