//! The formats of rows.

use std::path::Path;

/// The format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A header with the columns' names, then one row per line
    Csv,
    /// One JSON object per line
    #[value(alias = "jsonl", alias = "json")]
    Ndjson,
}

impl Format {
    /// Returns the format that a file name suggests: JSON for .ndjson, .jsonl and .json, CSV for any other.
    pub fn of_file(name: &Path) -> Self {
        match ending(name).as_deref() {
            Some("ndjson" | "jsonl" | "json") => Self::Ndjson,
            _ => Self::Csv,
        }
    }
}

/// Returns the extension of a file's name in lower case. The extension of a compression is ignored.
pub fn ending(name: &Path) -> Option<String> {
    let extension = |name: &Path| Some(name.extension()?.to_str()?.to_ascii_lowercase());
    match extension(name)?.as_str() {
        "gz" | "zst" | "zstd" => extension(Path::new(name.file_stem()?)),
        plain => Some(plain.to_owned()),
    }
}
