//! The format of a table's files, and how DataFusion reads them.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::config::{CsvOptions, JsonOptions};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::arrow::ArrowFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::datasource::physical_plan::{CsvSource, FileScanConfig};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::object_store::path::Path as ObjectPath;
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use crate::error::{at_path, usage};
use crate::spelled::SpelledTable;

/// The types of CSV and JSON are those of this number of rows. A later row of another type is an error.
const INFERRED_ROWS: usize = 1_000_000;

/// The kind of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Parquet.
    Parquet,
    /// Comma-separated values, or another separator.
    Csv,
    /// A JSON object in each line.
    Json,
    /// Arrow IPC files.
    Arrow,
}

/// The format of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// The kind of files.
    pub kind: Kind,
    /// How CSV and JSON are compressed: `gz`, `bz2`, `xz`, `zst`, or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// How CSV is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Dialect>,
    /// The ending of the names of files that are read from a directory; without it all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<String>,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Parquet => "Parquet",
            Kind::Csv => "CSV",
            Kind::Json => "NDJSON",
            Kind::Arrow => "Arrow",
        })?;
        if let Some(compression) = &self.compression {
            write!(f, ", {compression}")?;
        }
        let Some(dialect) = &self.dialect else { return Ok(()) };
        write!(f, ", delimiter {:?}, quote {:?}", dialect.delimiter, dialect.quote)?;
        let more = [("escape", dialect.escape), ("comment", dialect.comment)];
        for (name, character) in more {
            if let Some(character) = character {
                write!(f, ", {name} {character:?}")?;
            }
        }
        if !dialect.header {
            f.write_str(", no header")?;
        }
        dialect.nulls.iter().try_for_each(|text| write!(f, ", null {text:?}"))
    }
}

/// How CSV is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialect {
    /// The byte between two fields.
    pub delimiter: char,
    /// The byte around fields.
    pub quote: char,
    /// The byte that makes the next one ordinary.
    pub escape: Option<char>,
    /// The byte with which a line of comment begins.
    pub comment: Option<char>,
    /// True if the first line has the names of the columns.
    pub header: bool,
    /// The texts that are read as null, besides no text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nulls: Vec<String>,
}

impl Default for Dialect {
    fn default() -> Self {
        let (escape, comment, nulls) = (None, None, Vec::new());
        Self { delimiter: ',', quote: '"', escape, comment, header: true, nulls }
    }
}

/// Endings of names, and the formats that they denote.
const ENDINGS: [(&str, Kind, char); 12] = [
    (".parquet", Kind::Parquet, ','),
    (".pq", Kind::Parquet, ','),
    (".csv", Kind::Csv, ','),
    (".tsv", Kind::Csv, '\t'),
    (".tbl", Kind::Csv, '|'),
    (".psv", Kind::Csv, '|'),
    (".json", Kind::Json, ','),
    (".ndjson", Kind::Json, ','),
    (".jsonl", Kind::Json, ','),
    (".arrow", Kind::Arrow, ','),
    (".feather", Kind::Arrow, ','),
    (".ipc", Kind::Arrow, ','),
];
const COMPRESSIONS: [&str; 5] = ["gz", "bz2", "xz", "zst", "zstd"];

impl Format {
    /// Returns the format that a name's ending denotes, such as `.csv` or `.tsv.gz`.
    pub fn of_name(name: &str) -> Option<Self> {
        let lower = name.to_ascii_lowercase();
        let (rest, compression) = compression_of(&lower);
        let &(_, kind, delimiter) = ENDINGS.iter().find(|(ending, ..)| rest.ends_with(ending))?;
        let dialect = (kind == Kind::Csv).then(|| Dialect { delimiter, ..Dialect::default() });
        let &(ending, ..) = ENDINGS.iter().find(|(ending, ..)| rest.ends_with(ending))?;
        let ending = name.get(rest.len() - ending.len()..).map(str::to_owned);
        Some(Self { kind, compression, dialect, ending })
    }

    /// Returns files of this kind, compressed as the ending of the name says.
    pub fn of_kind(kind: Kind, name: &str) -> Self {
        let (_, compression) = compression_of(&name.to_ascii_lowercase());
        Self { kind, compression, dialect: None, ending: None }
    }

    /// Returns an error if the ending of a name denotes another kind or compression of files.
    ///
    /// # Errors
    /// The name, and what to do.
    pub fn check_name(&self, name: &str) -> Result<()> {
        match Self::of_name(name) {
            Some(other) if other.kind != self.kind || other.compression != self.compression => {
                Err(usage(format!(
                    "{name}: the files of an index or a table must have one format and compression, and the others have \
                     another; convert it"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Returns the format of `source`, a file, a pattern or a directory, by the ending of its name or of a file in it.
    ///
    /// # Errors
    /// If no ending is known.
    pub fn of_source(source: &str) -> Result<Self> {
        let of_directory = || {
            let mut names: Vec<_> = Path::new(source)
                .read_dir()
                .ok()?
                .flatten()
                .map(|entry| entry.file_name())
                .collect();
            names.sort();
            names.iter().find_map(|name| Self::of_name(&name.to_string_lossy()))
        };
        Self::of_name(source).or_else(of_directory).ok_or_else(|| {
            usage(format!(
                "{source}: the format does not follow from the ending of the name{}; name it with --format parquet, csv, \
                 json or arrow",
                if Path::new(source).is_dir() { " of a file in this directory" } else { "" }
            ))
        })
    }

    /// Returns an error with the reason if a scan reads files as another format than this one. It reads texts as texts,
    /// and `nulls` are those that become null later.
    pub fn is_of(
        &self,
        scan: &FileScanConfig,
        nulls: &[String],
    ) -> std::result::Result<(), String> {
        let other =
            || Err("the table is read as another format than the index was built from".to_owned());
        let kind = match self.kind {
            Kind::Parquet => "parquet",
            Kind::Csv => "csv",
            Kind::Json => "json",
            Kind::Arrow => "arrow",
        };
        let is_text = matches!(self.kind, Kind::Csv | Kind::Json);
        let same_compression =
            || self.compression().is_ok_and(|one| one == scan.file_compression_type);
        if scan.file_source.file_type() != kind || is_text && !same_compression() {
            return other();
        }
        if nulls != self.nulls() {
            return Err("other texts are read as null than in the index; see --null".to_owned());
        }
        if self.kind != Kind::Csv {
            return Ok(());
        }
        let Some(csv) = scan.file_source.downcast_ref::<CsvSource>() else { return other() };
        let Dialect { delimiter, quote, escape, comment, header, .. } =
            self.dialect.clone().unwrap_or_default();
        let same = csv.delimiter() as char == delimiter
            && csv.quote() as char == quote
            && csv.escape().map(char::from) == escape
            && csv.comment().map(char::from) == comment
            && csv.has_header() == header
            && csv.terminator().is_none();
        if same { Ok(()) } else { other() }
    }

    /// Returns the texts of CSV that are read as null, besides no text.
    pub fn nulls(&self) -> &[String] {
        self.dialect.as_ref().map_or(&[], |dialect| &dialect.nulls)
    }

    fn compression(&self) -> Result<FileCompressionType> {
        let Some(compression) = &self.compression else {
            return Ok(FileCompressionType::UNCOMPRESSED);
        };
        FileCompressionType::from_str(compression)
    }

    /// Returns DataFusion's format, which infers types from this number of rows.
    fn file_format(&self, inferred_rows: usize) -> Result<Arc<dyn FileFormat>> {
        let compression = self.compression()?;
        Ok(match self.kind {
            Kind::Parquet => Arc::new(ParquetFormat::default()),
            Kind::Arrow => Arc::new(ArrowFormat),
            Kind::Json => Arc::new(
                JsonFormat::default()
                    .with_options(JsonOptions::default())
                    .with_schema_infer_max_rec(inferred_rows)
                    .with_file_compression_type(compression),
            ),
            Kind::Csv => {
                let Dialect { delimiter, quote, escape, comment, header, nulls } =
                    self.dialect.clone().unwrap_or_default();
                let byte_of = |option, character: Option<char>| {
                    character.map(|character| byte(option, character)).transpose()
                };
                let options = CsvOptions {
                    has_header: Some(header),
                    delimiter: byte("delimiter", delimiter)?,
                    quote: byte("quote", quote)?,
                    escape: byte_of("escape", escape)?,
                    comment: byte_of("comment", comment)?,
                    newlines_in_values: Some(true),
                    null_regex: (!nulls.is_empty()).then(|| one_of(&nulls)),
                    compression: *compression.get_variant(),
                    ..CsvOptions::default()
                };
                Arc::new(
                    CsvFormat::default()
                        .with_options(options)
                        .with_schema_infer_max_rec(inferred_rows),
                )
            }
        })
    }

    /// Returns the table of the files at `sources`: files, patterns or directories.
    ///
    /// # Errors
    /// If a source does not exist or its schema cannot be read.
    pub async fn table(
        &self,
        state: &SessionState,
        sources: &[String],
    ) -> Result<Arc<dyn TableProvider>> {
        let config = self.listing(sources)?.infer_schema(state).await;
        let place = format!("{}: ", sources.join(", "));
        self.table_of(config.map_err(|error| named(sources, error))?, place)
    }

    fn table_of(&self, files: ListingTableConfig, place: String) -> Result<Arc<dyn TableProvider>> {
        if self.nulls().is_empty() {
            return Ok(Arc::new(ListingTable::try_new(files)?));
        }
        Ok(Arc::new(SpelledTable::new(files, self.nulls(), place)?))
    }

    /// Returns the files at `sources` that the table of them reads, without reading any.
    ///
    /// # Errors
    /// If a source does not exist.
    pub async fn files(&self, state: &SessionState, sources: &[String]) -> Result<Vec<ObjectPath>> {
        let config = self.listing(sources)?;
        let ending = config.options.map(|options| options.file_extension).unwrap_or_default();
        let mut files = Vec::new();
        for url in &config.table_paths {
            let store = state.runtime_env().object_store(url)?;
            let mut found = url.list_all_files(state, store.as_ref(), &ending).await?;
            while let Some(file) = found.next().await {
                let file = file?;
                // DataFusion leaves out empty files.
                if file.size > 0 {
                    files.push(file.location);
                }
            }
        }
        Ok(files)
    }

    /// Returns the table of one of the files of a table with this schema.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn part(&self, file: &Path, schema: SchemaRef) -> Result<Arc<dyn TableProvider>> {
        let sources = [file.to_string_lossy().into_owned()];
        // A build adds the name of the file to errors.
        self.table_of(self.listing(&sources)?.with_schema(schema), String::new())
    }

    /// Returns the names in the first line of a CSV file; `None` if the file has none there.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn header(&self, state: &SessionState, file: &Path) -> Result<Option<Vec<String>>> {
        if !self.dialect.as_ref().is_some_and(|dialect| dialect.header) {
            return Ok(None);
        }
        let source = file.to_string_lossy();
        let options = ListingOptions::new(self.file_format(1)?).with_file_extension("");
        let schema = options.infer_schema(state, &url_of(&source)?).await?;
        Ok(Some(schema.fields().iter().map(|field| field.name().clone()).collect()))
    }

    fn listing(&self, sources: &[String]) -> Result<ListingTableConfig> {
        if sources.is_empty() {
            return Err(usage("no files are left"));
        }
        let mut urls = Vec::new();
        for source in sources {
            urls.push(url_of(source)?);
        }
        let directories = sources.iter().filter(|source| Path::new(source).is_dir()).count();
        if directories > 0 && directories < sources.len() {
            let sources = sources.join(", ");
            return Err(usage(format!("{sources}: name either files or directories, not both")));
        }
        // A file that the user names is read whatever its name; a directory may hold files of other kinds.
        let ending = if directories > 0 { self.ending.clone() } else { None };
        let options = ListingOptions::new(self.file_format(INFERRED_ROWS)?)
            .with_file_extension(ending.unwrap_or_default());
        Ok(ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options))
    }
}

/// Returns a name in lower case without the ending of a compression, and the compression.
fn compression_of(name: &str) -> (&str, Option<String>) {
    let compressed = COMPRESSIONS.iter().find_map(|&compression| {
        let rest = name.strip_suffix(compression)?.strip_suffix('.')?;
        Some((rest, Some(compression.trim_end_matches('d').to_owned())))
    });
    compressed.unwrap_or((name, None))
}

/// Returns the address of a source. A name that exists is that of a file or directory, even if it looks like a pattern.
fn url_of(source: &str) -> Result<ListingTableUrl> {
    if source.contains("://") {
        return ListingTableUrl::parse(source);
    }
    let path = std::path::absolute(source).map_err(|error| at_path(Path::new(source), error))?;
    let url = match (path.is_dir(), path.exists()) {
        (true, _) => url::Url::from_directory_path(&path),
        (false, true) => url::Url::from_file_path(&path),
        (false, false) if source.contains(['*', '?', '[']) => {
            return ListingTableUrl::parse(source);
        }
        (false, false) => return Err(usage(format!("{source}: no such file or directory"))),
    };
    let url = url.map_err(|()| usage(format!("{source}: not a path of a file")))?;
    ListingTableUrl::try_new(url, None)
}

/// Adds the names of the sources to an error.
pub(crate) fn named(sources: &[String], error: DataFusionError) -> DataFusionError {
    error.context(sources.join(", "))
}

/// Returns a regular expression for these texts and no text.
fn one_of(texts: &[String]) -> String {
    let literal = |text: &String| -> String {
        text.chars().map(|one| format!("\\x{{{:x}}}", u32::from(one))).collect()
    };
    let texts: Vec<_> = texts.iter().map(literal).collect();
    format!("^(?:|{})$", texts.join("|"))
}

fn byte(option: &str, character: char) -> Result<u8> {
    u8::try_from(character)
        .ok()
        .filter(u8::is_ascii)
        .ok_or_else(|| usage(format!("--{option}: `{character}` is not an ASCII character")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_determine_formats() {
        let of = |name: &str| Format::of_name(name).map(|format| (format.kind, format.compression));
        assert_eq!(of("a/b.PARQUET"), Some((Kind::Parquet, None)));
        assert_eq!(of("b.tsv.gz"), Some((Kind::Csv, Some("gz".to_owned()))));
        assert_eq!(of("b.jsonl.zstd"), Some((Kind::Json, Some("zst".to_owned()))));
        assert_eq!(of("part-*.csv"), Some((Kind::Csv, None)));
        assert_eq!(of("b.txt"), None);
        let tabs = Format::of_name("b.tsv").and_then(|format| format.dialect);
        assert_eq!(tabs.map(|dialect| dialect.delimiter), Some('\t'));
    }
}
