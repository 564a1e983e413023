//! Rows of CSV and newline-delimited JSON as the texts of a key and a value.
//!
//! Which columns those are is settled once, on the header of CSV and on the first object of JSON.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::failure::Failure;
use crate::json::{Line, quoted};

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

/// The rows of an input.
pub struct Rows {
    source: Source,
    schema: Schema,
    consumed: Arc<AtomicU64>,
}

/// Which columns make the record.
struct Schema {
    key: String,
    /// `None`: all others, as a JSON object.
    value: Option<String>,
}

enum Source {
    Csv {
        reader: csv::Reader<Counting>,
        header: csv::ByteRecord,
        key: usize,
        value: Option<usize>,
    },
    /// With the rows that settling the columns has read already.
    Ndjson {
        lines: JsonLines,
        pending: Vec<(u64, String)>,
    },
}

impl Rows {
    /// Begins to read, and settles the columns.
    pub fn open(
        input: Box<dyn Read + Send>,
        format: Format,
        asked: &Columns,
    ) -> Result<Self, Failure> {
        let consumed = Arc::new(AtomicU64::new(0));
        let input = Counting { input, consumed: Arc::clone(&consumed) };
        let (source, schema) = match format {
            Format::Csv => open_csv(input, asked)?,
            Format::Ndjson => open_ndjson(input, asked)?,
        };
        Ok(Self { source, schema, consumed })
    }

    /// How many bytes of the input have been read so far.
    pub fn consumed(&self) -> u64 {
        // Relaxed: a figure for a progress bar.
        self.consumed.load(Ordering::Relaxed)
    }

    /// The name of the key's column.
    pub fn key_column(&self) -> &str {
        &self.schema.key
    }

    /// The name of the value's column, unless it is all the others.
    pub fn value_column(&self) -> Option<&str> {
        self.schema.value.as_deref()
    }

    fn read(&mut self) -> Option<RowResult> {
        match &mut self.source {
            Source::Csv { reader, header, key, value } => {
                let mut record = csv::ByteRecord::new();
                match reader.read_byte_record(&mut record) {
                    Ok(false) => None,
                    Ok(true) => Some(Ok(csv_row(&record, header, *key, *value))),
                    Err(error) => Some(Err(csv_error(error))),
                }
            }
            Source::Ndjson { lines, pending } => {
                let line = if pending.is_empty() { lines.next()? } else { Ok(pending.remove(0)) };
                Some(line.map(|(number, text)| json_row(number, &text, &self.schema)))
            }
        }
    }
}

impl Iterator for Rows {
    type Item = RowResult;

    fn next(&mut self) -> Option<RowResult> {
        self.read()
    }
}

/// A reader that tells how far it got.
struct Counting {
    input: Box<dyn Read + Send>,
    consumed: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.read(buffer)?;
        self.consumed.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

fn open_csv(input: Counting, asked: &Columns) -> Result<(Source, Schema), Failure> {
    let mut reader =
        csv::ReaderBuilder::new().flexible(true).buffer_capacity(1 << 16).from_reader(input);
    let header = reader.byte_headers().map_err(|error| Failure::from(csv_error(error)))?.clone();
    let names: Vec<String> =
        header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let schema = settle(&names, asked)?;
    let position = |column: &String| names.iter().position(|name| name == column);
    // `settle` answers with columns that are there.
    let key = position(&schema.key).unwrap_or_default();
    let value = schema.value.as_ref().and_then(position);
    Ok((Source::Csv { reader, header, key, value }, schema))
}

fn open_ndjson(input: Counting, asked: &Columns) -> Result<(Source, Schema), Failure> {
    let mut lines = JsonLines { input: BufReader::with_capacity(1 << 16, input), number: 0 };
    let mut pending = Vec::new();
    let mut names = Vec::new();
    // Lines that are no object are reported when their turn comes; the first that is one names the columns.
    while names.is_empty() && pending.len() < FIRST_OBJECT_WITHIN {
        let Some(line) = lines.next() else { break };
        let (number, text) = line?;
        if let Ok(Members(members)) = serde_json::from_str(&text) {
            names = members.into_iter().map(|(name, _)| name).collect();
        }
        pending.push((number, text));
    }
    if names.is_empty() && pending.is_empty() {
        // An empty input has no rows, whatever their columns.
        names = vec![
            asked.key.clone().unwrap_or_else(|| "key".to_owned()),
            asked.value.clone().unwrap_or_default(),
        ];
    }
    let schema = settle(&names, asked)?;
    Ok((Source::Ndjson { lines, pending }, schema))
}

/// How many lines may come before the first JSON object.
const FIRST_OBJECT_WITHIN: usize = 1000;

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

fn csv_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

fn csv_row(
    record: &csv::ByteRecord,
    header: &csv::ByteRecord,
    key: usize,
    value: Option<usize>,
) -> Result<Row, BadRow> {
    let line = record.position().map_or(0, csv::Position::line);
    if record.len() != header.len() {
        let reason = format!("{} fields where the header has {}", record.len(), header.len());
        return Err(BadRow { line, reason });
    }
    let value = match value {
        Some(value) => record[value].to_vec(),
        None => csv_object(record, header, key).map_err(|reason| BadRow { line, reason })?,
    };
    Ok(Row { line, key: record[key].to_vec(), value })
}

/// All fields but the key as a JSON object of strings.
fn csv_object(
    record: &csv::ByteRecord,
    header: &csv::ByteRecord,
    key: usize,
) -> Result<Vec<u8>, String> {
    let mut object = Line::new();
    for (index, (name, field)) in header.iter().zip(record).enumerate() {
        if index == key {
            continue;
        }
        let field =
            std::str::from_utf8(field).map_err(|_| format!("field {} is not UTF-8", index + 1))?;
        object = object.raw(&String::from_utf8_lossy(name), &quoted(field));
    }
    Ok(object.end().into_bytes())
}

/// Lines of text that are not blank, with their numbers.
struct JsonLines {
    input: BufReader<Counting>,
    number: u64,
}

impl JsonLines {
    fn next(&mut self) -> Option<io::Result<(u64, String)>> {
        loop {
            let mut bytes = Vec::new();
            self.number += 1;
            match self.input.read_until(b'\n', &mut bytes) {
                Ok(0) => return None,
                Err(error) => return Some(Err(error)),
                Ok(_) => {}
            }
            let text =
                String::from_utf8_lossy(bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes));
            if !text.trim().is_empty() {
                return Some(Ok((self.number, text.into_owned())));
            }
        }
    }
}

/// The members of a JSON object in their order, values as they were written.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

fn json_row(line: u64, text: &str, schema: &Schema) -> Result<Row, BadRow> {
    let bad = |reason| BadRow { line, reason };
    let Members(members) = serde_json::from_str(text).map_err(|error| bad(json_fault(&error)))?;
    let key = member(&members, &schema.key).map_err(bad)?;
    let value = match &schema.value {
        Some(column) => member(&members, column).map_err(bad)?,
        None => {
            let others = members.iter().filter(|(name, _)| *name != schema.key);
            others
                .fold(Line::new(), |object, (name, raw)| object.raw(name, raw.get()))
                .end()
                .into_bytes()
        }
    };
    Ok(Row { line, key, value })
}

/// A member's text: the content of a string, anything else as it is written.
fn member(members: &[(String, &RawValue)], column: &str) -> Result<Vec<u8>, String> {
    let mut found = members.iter().filter(|(name, _)| name == column).map(|(_, raw)| raw.get());
    let raw = found.next().ok_or_else(|| format!("no member `{column}`"))?;
    if found.next().is_some() {
        return Err(format!("two members `{column}`"));
    }
    match raw {
        "null" => Err(format!("`{column}` is null")),
        _ if raw.starts_with('"') => serde_json::from_str::<String>(raw)
            .map(String::into_bytes)
            .map_err(|error| json_fault(&error)),
        _ => Ok(raw.as_bytes().to_vec()),
    }
}

/// The parser's message; its own line numbers count from the row.
fn json_fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    format!("no JSON object: {text} at column {}", error.column())
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
    fn unknown_columns_are_bad_usage() {
        let open = |columns| Rows::open(Box::new(io::Cursor::new(b"a,b\n")), Format::Csv, &columns);
        assert!(
            matches!(open(columns("a", "c")), Err(Failure::Usage(text)) if text.contains("a, b"))
        );
    }
}
