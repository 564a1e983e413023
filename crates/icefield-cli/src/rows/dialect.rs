//! How CSV is written: its delimiter, its header, its nulls.

use std::path::Path;

use super::Format;
use icefield_console::failure::Failure;

/// The options for it.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct DialectArgs {
    /// The character between the fields of CSV, or `tab`; without it a tab for .tsv and .tab, else a comma
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    pub delimiter: Option<u8>,
    /// CSV without a header line: the columns are column1, column2, ...
    #[arg(long)]
    pub no_header: bool,
    /// The text that stands for null in CSV; a null key or value column is a malformed row, in JSON objects it is null
    #[arg(long, value_name = "TEXT")]
    pub null: Option<String>,
}

/// How a CSV file is written.
#[derive(Clone, Debug)]
pub struct Dialect {
    /// Between two fields.
    pub delimiter: u8,
    /// The user chose it.
    pub is_chosen: bool,
    /// The first line has the names of the columns.
    pub header: bool,
    /// The text that stands for null.
    pub null: Option<String>,
}

impl DialectArgs {
    /// That of a file; the options must fit its format.
    pub fn of(&self, format: Format, file: &Path) -> Result<Dialect, Failure> {
        let asked = self.delimiter.is_some() || self.no_header || self.null.is_some();
        if format != Format::Csv && asked {
            return Err(Failure::Usage(
                "--delimiter, --no-header, --null: only for CSV (--format csv)".to_owned(),
            ));
        }
        let is_tabbed = matches!(super::ending(file).as_deref(), Some("tsv" | "tab"));
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
