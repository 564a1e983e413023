//! Rows of CSV and newline-delimited JSON, as the texts of a key and a value.
//!
//! The key and value columns are selected once, from the header of CSV or the first object of JSON. A row may be as
//! long as the text of the longest key and value; this limit bounds the memory use.

mod decode;
mod dialect;
mod format;
mod from_csv;
mod from_json;
mod row;
mod schema;

use std::io;

use from_csv::CsvRows;
use from_json::JsonRows;
use icefield_console::failure::Failure;
use schema::Schema;

pub use decode::text;
pub use dialect::{Dialect, DialectArgs};
pub use format::Format;
pub use from_csv::io_error;
pub use from_json::{Members, unquoted};
pub use row::{BadRow, Input, Row, RowResult};
pub use schema::Columns;

/// The rows of an input.
pub struct Rows {
    source: Source,
    schema: Schema,
}

enum Source {
    Csv(CsvRows),
    Ndjson(JsonRows),
}

impl Rows {
    /// Starts reading, and selects the columns.
    pub fn open(
        input: Input,
        format: Format,
        dialect: &Dialect,
        asked: &Columns,
    ) -> Result<Self, Failure> {
        let (source, schema) = match format {
            Format::Csv => {
                let (rows, schema) = CsvRows::open(input, dialect, asked)?;
                (Source::Csv(rows), schema)
            }
            Format::Ndjson => {
                let (rows, schema) = JsonRows::open(input, asked)?;
                (Source::Ndjson(rows), schema)
            }
        };
        Ok(Self { source, schema })
    }

    /// Returns all columns; for JSON those of the first object.
    pub fn columns(&self) -> &[String] {
        &self.schema.names
    }

    /// Returns the name of the key column; `None` if the key is the row number.
    pub fn key_column(&self) -> Option<&str> {
        self.schema.key.as_deref()
    }

    /// Returns the name of the value column; `None` if the value is a JSON object of all columns but the key.
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

/// Reads `data` as rows, up to the end or to an error. Returns the number of rows, including malformed ones. For
/// `fuzz/`.
#[must_use]
pub fn read_all(data: Vec<u8>, is_json: bool) -> u64 {
    let format = if is_json { Format::Ndjson } else { Format::Csv };
    let input = Box::new(io::Cursor::new(data));
    let dialect = DialectArgs::default().of(format, std::path::Path::new(""));
    match dialect.and_then(|dialect| Rows::open(input, format, &dialect, &Columns::default())) {
        Ok(rows) => rows.map_while(Result::ok).count() as u64,
        Err(_) => 0,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;
    use std::io::Read;
    use std::path::Path;

    fn rows(format: Format, text: &str, columns: &Columns) -> Vec<Result<Row, BadRow>> {
        let input = Box::new(io::Cursor::new(text.to_owned().into_bytes()));
        open(input, format, columns).unwrap().map(|row| row.unwrap()).collect()
    }

    fn open(input: Input, format: Format, columns: &Columns) -> Result<Rows, Failure> {
        let dialect = DialectArgs::default().of(format, Path::new("-")).unwrap();
        Rows::open(input, format, &dialect, columns)
    }

    fn row(line: u64, key: &str, value: &str) -> Result<Row, BadRow> {
        Ok(Row { line, key: key.into(), value: value.into() })
    }

    fn columns(key: &str, value: &str) -> Columns {
        Columns { key: Some(key.to_owned()), value: Some(value.to_owned()), ..Columns::default() }
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
        let all = Columns { key: Some("k".to_owned()), ..Columns::default() };
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
        let rows = open(input, Format::Ndjson, &Columns::default()).unwrap();
        let bad: Vec<_> = rows.filter_map(|row| row.unwrap().err()).collect();
        assert_eq!(bad, [BadRow { line: 2, reason: "not UTF-8".to_owned() }]);
    }

    #[test]
    fn unknown_columns_are_bad_usage() {
        let opened = |columns| open(Box::new(io::Cursor::new(b"a,b\n")), Format::Csv, &columns);
        assert!(
            matches!(opened(columns("a", "c")), Err(Failure::Usage(text)) if text.contains("a, b"))
        );
    }

    #[test]
    fn dialects_are_read_as_they_are_told() {
        let read = |dialect: Dialect, columns: &Columns, text: &str| -> Vec<Result<Row, BadRow>> {
            let input = Box::new(io::Cursor::new(text.to_owned().into_bytes()));
            let rows = Rows::open(input, Format::Csv, &dialect, columns).unwrap();
            rows.map(|row| row.unwrap()).collect()
        };
        let dialect = |delimiter, header, null: Option<&str>| {
            let null = null.map(str::to_owned);
            Dialect { delimiter, is_chosen: true, header, null }
        };
        let semicolons = dialect(b';', false, None);
        let text = "1;\"a;b\"\n2;c,d\n";
        assert_eq!(
            read(semicolons.clone(), &Columns::default(), text),
            [row(1, "1", "a;b"), row(2, "2", "c,d")]
        );
        assert_eq!(
            read(semicolons, &columns("column2", "column1"), text),
            [row(1, "a;b", "1"), row(2, "c,d", "2")]
        );
        let nulls = dialect(b',', true, Some("NA"));
        let got = read(nulls.clone(), &Columns::default(), "k,a,b\n1,NA,x\nNA,1,2\n");
        assert_eq!(got[0], row(2, "1", r#"{"a":null,"b":"x"}"#));
        assert_eq!(got[1].as_ref().unwrap_err().reason, "`k` is null");
        let got = read(nulls, &columns("k", "a"), "k,a,b\n1,NA,x\n");
        assert_eq!(got[0].as_ref().unwrap_err().reason, "`a` is null");
    }

    #[test]
    fn rows_can_be_keyed_by_their_numbers() {
        let numbers = Columns { key_is_number: true, ..Columns::default() };
        let got = rows(Format::Csv, "a,b\nx,y\nz\nx,y\n", &numbers);
        assert_eq!(got[0], row(2, "1", r#"{"a":"x","b":"y"}"#));
        assert!(got[1].is_err(), "a malformed row has its number, too");
        assert_eq!(got[2], row(4, "3", r#"{"a":"x","b":"y"}"#));
        assert_eq!(rows(Format::Csv, "a\nx\n", &numbers), [row(2, "1", "x")]);
        let json = "{\"a\":1}\n\n{\"a\":2}\n";
        assert_eq!(rows(Format::Ndjson, json, &numbers), [row(1, "1", "1"), row(3, "2", "2")]);
    }

    #[test]
    fn headers_that_cannot_be_meant_are_refused() {
        let refusal = |text: &str, columns: &Columns| {
            let input = Box::new(io::Cursor::new(text.to_owned().into_bytes()));
            open(input, Format::Csv, columns).err().map(|failure| failure.to_string())
        };
        let any = Columns::default();
        assert!(refusal("x;y\n1;a,b\n", &any).unwrap().contains("--delimiter ';'"));
        assert!(refusal("x\ty\n", &any).unwrap().contains("--delimiter tab"));
        assert!(refusal("id,x,x\n", &any).unwrap().contains("2 columns have the name `x`"));
        assert!(refusal("id,x,x,y\n", &columns("id", "y")).is_none());
        assert!(refusal("key,key\n", &any).is_some());
        assert!(refusal("\"key,value\n1,2\n", &any).unwrap().contains("line 1: a quote"));
        assert!(refusal("\0\0\n1,2\n", &any).unwrap().contains("bytes of zero"));
        let json = b"{\"k\":1,\"x\":2,\"x\":3}\n";
        assert!(open(Box::new(io::Cursor::new(json)), Format::Ndjson, &any).is_err());
    }

    #[test]
    fn a_row_without_end_is_not_read_to_its_end() {
        struct Endless(u8);
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                buffer.fill(self.0);
                Ok(buffer.len())
            }
        }
        for byte in *b"x," {
            let input = Box::new(io::Cursor::new(b"key,value\n1,2\n3,").chain(Endless(byte)));
            let mut rows = open(input, Format::Csv, &Columns::default()).unwrap();
            assert_eq!(rows.next().unwrap().unwrap(), row(2, "1", "2"));
            let error = rows.next().unwrap().unwrap_err().to_string();
            assert!(error.contains("line 3: a row of more than"), "{error}");
        }
    }

    #[test]
    fn compressed_files_have_the_names_inside() {
        let format = |name: &str| Format::of_file(Path::new(name));
        assert_eq!(format("a.b.ndjson.gz"), Format::Ndjson);
        assert_eq!(
            (format("a.csv.zst"), format("gz"), format("a.gz")),
            (Format::Csv, Format::Csv, Format::Csv)
        );
    }
}
