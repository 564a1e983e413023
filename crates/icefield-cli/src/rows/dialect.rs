//! The dialect of CSV: its delimiter, header and nulls.

use std::path::Path;

use super::format::{Format, ending};
use icefield_console::failure::Failure;

/// The options for the dialect.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct DialectArgs {
    /// Separate the fields of CSV by this character, or `tab`; without it by a tab for .tsv and .tab, else a comma
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    pub delimiter: Option<u8>,
    /// Read and write CSV without a header line: the columns are column1, column2, ...
    #[arg(long)]
    pub no_header: bool,
    /// Treat this text as null in CSV: a row whose key or value column is null is malformed; in a value that is a JSON
    /// object of columns, it becomes a JSON null
    #[arg(long, value_name = "TEXT")]
    pub null: Option<String>,
}

/// The dialect of a CSV file.
#[derive(Clone, Debug)]
pub struct Dialect {
    /// The character between two fields.
    pub delimiter: u8,
    /// True if the user chose the delimiter.
    pub is_chosen: bool,
    /// True if the first line has the names of the columns.
    pub header: bool,
    /// The text that means null.
    pub null: Option<String>,
}

impl DialectArgs {
    /// Returns the dialect of a file; fails if the options do not fit its format.
    pub fn of(&self, format: Format, file: &Path) -> Result<Dialect, Failure> {
        let asked = self.delimiter.is_some() || self.no_header || self.null.is_some();
        if format != Format::Csv && asked {
            return Err(Failure::Usage(
                "--delimiter, --no-header, --null: only for CSV (--format csv)".to_owned(),
            ));
        }
        let is_tabbed = matches!(ending(file).as_deref(), Some("tsv" | "tab"));
        Ok(Dialect {
            delimiter: self.delimiter.unwrap_or(if is_tabbed { b'\t' } else { b',' }),
            is_chosen: self.delimiter.is_some(),
            header: !self.no_header,
            null: self.null.clone(),
        })
    }
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text {
        "tab" | "\\t" => Ok(b'\t'),
        _ => match text.as_bytes() {
            [byte] if !matches!(byte, b'"' | b'\r' | b'\n' | 0 | 0x80..) => Ok(*byte),
            _ => Err("expected one ASCII character other than a quote, or `tab`".to_owned()),
        },
    }
}
