//! Rows of CSV and newline-delimited JSON as the texts of a key and a value.
//!
//! Which columns those are is settled once, on the header of CSV and on the first object of JSON.

mod from_csv;
mod from_json;

use std::fmt;
use std::io::{self, Read};

use crate::failure::Failure;
use from_csv::CsvRows;
use from_json::JsonRows;

pub use from_csv::{OPEN_QUOTE, Watched, io_error};

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A header with the columns' names, then a row a line
    Csv,
    /// A JSON object a line
    #[value(alias = "jsonl", alias = "json")]
    Ndjson,
}

impl Format {
    /// The format that a file name suggests: JSON for .ndjson, .jsonl and .json, CSV for any other.
    pub fn of_file(name: &std::path::Path) -> Self {
        match name.extension().and_then(|extension| extension.to_str()) {
            Some("ndjson" | "jsonl" | "json") => Self::Ndjson,
            _ => Self::Csv,
        }
    }
}

/// The columns that the user named.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// The key's.
    pub key: Option<String>,
    /// The value's.
    pub value: Option<String>,
}

/// A row's texts.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// Where the row begins, from 1.
    pub line: u64,
    /// The key's text.
    pub key: Vec<u8>,
    /// The value's text.
    pub value: Vec<u8>,
}

/// A row that is no row.
#[derive(Debug, PartialEq, Eq)]
pub struct BadRow {
    /// Where the row begins, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// What reading gives for each row; the outer error ends it.
pub type RowResult = io::Result<Result<Row, BadRow>>;

/// Where rows come from.
pub type Input = Box<dyn Read + Send>;

/// No field of CSV and no line of JSON is longer: the longest value, each byte escaped, has room.
const LONGEST_BYTES: usize = 128 << 20;

/// The rows of an input.
pub struct Rows {
    source: Source,
    schema: Schema,
}

/// Which columns make the record.
struct Schema {
    key: String,
    /// `None`: all others, as a JSON object.
    value: Option<String>,
}

enum Source {
    Csv(CsvRows),
    Ndjson(JsonRows),
}

impl Rows {
    /// Begins to read, and settles the columns.
    pub fn open(input: Input, format: Format, asked: &Columns) -> Result<Self, Failure> {
        let (source, schema) = match format {
            Format::Csv => {
                let (rows, schema) = CsvRows::open(input, asked)?;
                (Source::Csv(rows), schema)
            }
            Format::Ndjson => {
                let (rows, schema) = JsonRows::open(input, asked)?;
                (Source::Ndjson(rows), schema)
            }
        };
        Ok(Self { source, schema })
    }

    /// How many bytes of the input have been read so far.
    pub fn consumed(&self) -> u64 {
        match &self.source {
            Source::Csv(rows) => rows.consumed(),
            Source::Ndjson(rows) => rows.consumed(),
        }
    }

    /// The name of the key's column.
    pub fn key_column(&self) -> &str {
        &self.schema.key
    }

    /// The name of the value's column, unless it is all the others.
    pub fn value_column(&self) -> Option<&str> {
        self.schema.value.as_deref()
    }
}

impl Iterator for Rows {
    type Item = RowResult;

    fn next(&mut self) -> Option<RowResult> {
        match &mut self.source {
            Source::Csv(rows) => rows.next(),
            Source::Ndjson(rows) => rows.next(&self.schema),
        }
    }
}

/// Reads `data` as rows to the end, or to the first error that ends it; how many there were, good and bad. For `fuzz/`.
#[must_use]
pub fn read_all(data: Vec<u8>, is_json: bool) -> u64 {
    let format = if is_json { Format::Ndjson } else { Format::Csv };
    let input = Box::new(io::Cursor::new(data));
    match Rows::open(input, format, &Columns::default()) {
        Ok(rows) => rows.map_while(Result::ok).count() as u64,
        Err(_) => 0,
    }
}

/// Settles the columns: the key is the one named, else `key`, else the first; the value is the one named, else the only
/// other one, else all others as JSON.
fn settle(names: &[String], asked: &Columns) -> Result<Schema, Failure> {
    if names.is_empty() {
        return Err(Failure::Problem(
            "the input has no header and no object: nothing names its columns".to_owned(),
        ));
    }
    let named =
        |option: &str, column: &String| match names.iter().filter(|name| *name == column).count() {
            1 => Ok(column.clone()),
            0 => Err(Failure::Usage(format!(
                "{option} {column}: no such column; there are {}",
                names.join(", ")
            ))),
            n => Err(Failure::Usage(format!(
                "{option} {column}: there are {n} columns of that name"
            ))),
        };
    let key = match &asked.key {
        Some(column) => named("--key", column)?,
        None => names.iter().find(|name| *name == "key").unwrap_or(&names[0]).clone(),
    };
    let value = match &asked.value {
        Some(column) => Some(named("--value", column)?),
        None => {
            let mut others = names.iter().filter(|name| **name != key);
            others.next().filter(|_| others.next().is_none()).cloned()
        }
    };
    Ok(Schema { key, value })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    fn rows(format: Format, text: &str, columns: &Columns) -> Vec<Result<Row, BadRow>> {
        let input = Box::new(io::Cursor::new(text.to_owned().into_bytes()));
        Rows::open(input, format, columns).unwrap().map(|row| row.unwrap()).collect()
    }

    fn row(line: u64, key: &str, value: &str) -> Result<Row, BadRow> {
        Ok(Row { line, key: key.into(), value: value.into() })
    }

    fn columns(key: &str, value: &str) -> Columns {
        Columns { key: Some(key.to_owned()), value: Some(value.to_owned()) }
    }

    #[test]
    fn csv_columns_go_by_name() {
        let text = "id,name,price\n1,\"a, b\",5\n2,c,6\n";
        assert_eq!(
            rows(Format::Csv, text, &columns("id", "price")),
            [row(2, "1", "5"), row(3, "2", "6")]
        );
        assert_eq!(
            rows(Format::Csv, text, &Columns::default()),
            [
                row(2, "1", r#"{"name":"a, b","price":"5"}"#),
                row(3, "2", r#"{"name":"c","price":"6"}"#)
            ]
        );
    }

    #[test]
    fn two_columns_need_no_names() {
        assert_eq!(rows(Format::Csv, "value,key\n7,1\n", &Columns::default()), [row(2, "1", "7")]);
        let json = "{\"n\":1,\"text\":\"x\\ny\"}\n\n{\"text\":2,\"n\":\"3\"}";
        assert_eq!(
            rows(Format::Ndjson, json, &Columns::default()),
            [row(1, "1", "x\ny"), row(3, "3", "2")]
        );
    }

    #[test]
    fn malformed_rows_have_their_line() {
        let text = "key,value\n1,2\n3\n\"4\n4\",5\n6,7,8\n";
        let got = rows(Format::Csv, text, &Columns::default());
        assert_eq!(
            got.iter().filter_map(|row| row.as_ref().err()).map(|bad| bad.line).collect::<Vec<_>>(),
            [3, 6]
        );
        let text =
            "nonsense\n{\"key\":1,\"value\":2}\n[1]\n{\"key\":1}\n{\"key\":1,\"value\":null}\n";
        let got = rows(Format::Ndjson, text, &Columns::default());
        assert_eq!(
            got.iter().filter_map(|row| row.as_ref().err()).map(|bad| bad.line).collect::<Vec<_>>(),
            [1, 3, 4, 5]
        );
        assert!(got[0].as_ref().unwrap_err().reason.contains("column 2"));
    }

    #[test]
    fn numbers_keep_their_digits() {
        let text = "{\"k\":1,\"v\":{\"a\": 1.50, \"b\":[1e400]},\"w\":0.10}\n";
        let all = Columns { key: Some("k".to_owned()), value: None };
        assert_eq!(
            rows(Format::Ndjson, text, &all),
            [row(1, "1", r#"{"v":{"a": 1.50, "b":[1e400]},"w":0.10}"#)]
        );
        assert_eq!(
            rows(Format::Ndjson, text, &columns("k", "v")),
            [row(1, "1", r#"{"a": 1.50, "b":[1e400]}"#)]
        );
    }

    #[test]
    fn a_quote_that_is_never_closed_is_told() {
        let bad = |text: &str| {
            let got = rows(Format::Csv, text, &Columns::default());
            got.into_iter().filter_map(|row| row.err()).map(|bad| bad.line).collect::<Vec<_>>()
        };
        assert_eq!(bad("key,value\n1,a\n2,\"b\n3,c\n"), [3]);
        assert_eq!(bad("key,value\n1,\"a\"\n2,\"b \"\"c\"\"\""), [0; 0]);
        assert_eq!(bad("\u{FEFF}\"key\",value\r\n1,a\"b\r\n2,\"\"\r\n"), [0; 0]);
        assert_eq!(bad("key,value\n1,\""), [2]);
    }

    #[test]
    fn json_that_is_no_text_is_told() {
        let input = Box::new(io::Cursor::new(
            b"{\"key\":1,\"value\":\"a\"}\n{\"key\":2,\"value\":\"\xFF\"}\n",
        ));
        let rows = Rows::open(input, Format::Ndjson, &Columns::default()).unwrap();
        let bad: Vec<_> = rows.filter_map(|row| row.unwrap().err()).collect();
        assert_eq!(bad, [BadRow { line: 2, reason: "not UTF-8".to_owned() }]);
    }

    #[test]
    fn unknown_columns_are_bad_usage() {
        let open = |columns| Rows::open(Box::new(io::Cursor::new(b"a,b\n")), Format::Csv, &columns);
        assert!(
            matches!(open(columns("a", "c")), Err(Failure::Usage(text)) if text.contains("a, b"))
        );
    }
}
