//! CSV: a header with the columns' names, then one row per line.

use std::io::{self, Read};

use super::dialect::Dialect;
use super::row::{BadRow, Input, Row, RowResult};
use super::schema::{Columns, Schema, settle};
use icefield_console::failure::Failure;
use icefield_console::json::{Line, quoted};
use icefield_console::terminal::{shell_word, shown};

/// The longest row of CSV: key and value of the greatest length that tables accept (16 MiB each), as two characters per
/// byte.
const LONGEST_ROW_BYTES: usize = 68 << 20;
/// The most fields in a row of CSV. The limit bounds memory, because the parser stores a word for each field, even an
/// empty one.
const MOST_FIELDS: usize = 1 << 20;

/// The rows of a CSV input.
pub struct CsvRows {
    reader: csv::Reader<Watched>,
    names: Vec<String>,
    /// The first row of an input without a header.
    first: Option<csv::ByteRecord>,
    null: Option<String>,
    /// The number of rows read so far, including malformed ones.
    number: u64,
    /// `None` if the key is the row's number.
    key: Option<usize>,
    value: Option<usize>,
}

impl CsvRows {
    /// Reads the header and selects the columns.
    pub fn open(
        input: Input,
        dialect: &Dialect,
        asked: &Columns,
    ) -> Result<(Self, Schema), Failure> {
        let mut reader = Watched::delimited(input, dialect.delimiter);
        let mut header = csv::ByteRecord::new();
        let read = reader.read_byte_record(&mut header);
        read.map_err(|error| Failure::Problem(format!("the input: {}", io_error(error))))?;
        if reader.get_ref().ended_in_quotes() {
            return Err(Failure::Problem(format!("line 1: {OPEN_QUOTE}")));
        }
        let (names, first) = if dialect.header {
            (names_of(&header)?, None)
        } else {
            let names = (1..=header.len()).map(|number| format!("column{number}")).collect();
            (names, (!header.is_empty()).then_some(header))
        };
        if dialect.header && !dialect.is_chosen {
            refuse_other_delimiter(&names)?;
        }
        let schema = settle(&names, asked)?;
        let position = |column: &String| names.iter().position(|name| name == column);
        // `settle` returns only names of existing columns, so `position` finds every name that is set.
        let key = schema.key.as_ref().and_then(position);
        let value = schema.value.as_ref().and_then(position);
        let null = dialect.null.clone();
        Ok((Self { reader, names, first, null, number: 0, key, value }, schema))
    }

    /// Returns the next row.
    pub fn next(&mut self) -> Option<RowResult> {
        let mut record = self.first.take().unwrap_or_default();
        if record.is_empty() {
            match self.reader.read_byte_record(&mut record) {
                Ok(false) => return None,
                Ok(true) => {}
                Err(error) => return Some(Err(io_error(error))),
            }
        }
        self.number += 1;
        Some(Ok(self.row(&record)))
    }

    fn row(&self, record: &csv::ByteRecord) -> Result<Row, BadRow> {
        let line = record.position().map_or(0, csv::Position::line);
        let bad = |reason| BadRow { line, reason };
        // The parser does not report an open quote. It returns everything up to the end of the input as one field.
        if self.reader.get_ref().ended_in_quotes() {
            return Err(bad(OPEN_QUOTE.to_owned()));
        }
        let (found, expected) = (record.len(), self.names.len());
        if found != expected {
            let fields = if found == 1 { "field" } else { "fields" };
            return Err(bad(format!("{found} {fields}, but the first line has {expected}")));
        }
        let key = match self.key {
            Some(key) => self.field(record, key).map_err(bad)?,
            None => self.number.to_string().into_bytes(),
        };
        let value = match self.value {
            Some(value) => self.field(record, value).map_err(bad)?,
            None => self.others(record).map_err(bad)?,
        };
        Ok(Row { line, key, value })
    }

    fn is_null(&self, field: &[u8]) -> bool {
        self.null.as_ref().is_some_and(|null| null.as_bytes() == field)
    }

    fn field(&self, record: &csv::ByteRecord, index: usize) -> Result<Vec<u8>, String> {
        match &record[index] {
            field if self.is_null(field) => Err(format!("`{}` is null", shown(&self.names[index]))),
            field => Ok(field.to_vec()),
        }
    }

    /// Returns all fields but the key as a JSON object of strings and nulls.
    fn others(&self, record: &csv::ByteRecord) -> Result<Vec<u8>, String> {
        let mut object = Line::new();
        for (index, (name, field)) in self.names.iter().zip(record).enumerate() {
            if Some(index) == self.key {
                continue;
            }
            let text = std::str::from_utf8(field)
                .map_err(|_| format!("field {} is not UTF-8", index + 1))?;
            object = match self.is_null(field) {
                true => object.raw(name, "null"),
                false => object.raw(name, &quoted(text)),
            };
        }
        Ok(object.end().into_bytes())
    }
}

fn names_of(header: &csv::ByteRecord) -> Result<Vec<String>, Failure> {
    let name = |name: &[u8]| match std::str::from_utf8(name) {
        Ok(name) if !name.contains('\0') => Ok(name.to_owned()),
        Ok(_) => Err("bytes of zero, so this is not CSV"),
        Err(_) => Err("a name that is not UTF-8"),
    };
    let names: Result<Vec<String>, _> = header.iter().map(name).collect();
    names.map_err(|what| Failure::Problem(format!("line 1: the header has {what}")))
}

/// Rejects a header of one column whose name looks like several names separated by another delimiter.
fn refuse_other_delimiter(names: &[String]) -> Result<(), Failure> {
    let [name] = names else { return Ok(()) };
    let Some(other) = [';', '\t', '|', ','].into_iter().find(|&other| name.contains(other)) else {
        return Ok(());
    };
    let word = if other == '\t' { "tab".to_owned() } else { shell_word(&other.to_string()) };
    Err(Failure::Usage(format!(
        "line 1: one column, `{}`; give --delimiter {word} if that separates columns, or --delimiter {} if it is one",
        shown(name),
        if other == ',' { "tab" } else { "," }
    )))
}

/// Returns the I/O error that an error of the parser contains, or wraps the error.
pub fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// An input that detects two faults that the parser does not report: rows that are too long, and a quote that is
/// still open at the end.
pub struct Watched {
    input: Input,
    delimiter: u8,
    place: Place,
    /// Bytes read so far.
    consumed: u64,
    /// The current row: the line on which it begins, and the bytes and field ends read since then.
    line: u64,
    row_bytes: usize,
    row_fields: usize,
    /// Line ends read so far.
    lines: u64,
}

/// The message for a row with a quote that is still open at the end of the input.
pub const OPEN_QUOTE: &str =
    "a quote is never closed, so the rest of the input belongs to this row";

impl Watched {
    /// Returns a parser of all rows of `input`, including a header.
    pub fn delimited(input: Input, delimiter: u8) -> csv::Reader<Self> {
        Self::builder(delimiter).has_headers(false).from_reader(Self::new(input, delimiter))
    }

    fn builder(delimiter: u8) -> csv::ReaderBuilder {
        let mut builder = csv::ReaderBuilder::new();
        builder.flexible(true).buffer_capacity(1 << 16).delimiter(delimiter);
        builder
    }

    fn new(input: Input, delimiter: u8) -> Self {
        let place = Place::FieldStart;
        Self {
            input,
            delimiter,
            place,
            consumed: 0,
            line: 1,
            row_bytes: 0,
            row_fields: 0,
            lines: 0,
        }
    }

    /// Returns whether the input ended inside quotes.
    pub fn ended_in_quotes(&self) -> bool {
        self.place == Place::EndInQuotes
    }
}

/// The state of the scanner after the last byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    FieldStart,
    Plain,
    Quoted,
    /// A quote inside quotes: the end of the field, or the first half of a doubled quote.
    QuoteInQuotes,
    /// The input ended with an open quote.
    EndInQuotes,
}

impl Place {
    fn after(self, byte: u8, delimiter: u8) -> Self {
        match (self, byte) {
            (Self::FieldStart | Self::QuoteInQuotes, b'"') => Self::Quoted,
            (Self::Quoted, b'"') => Self::QuoteInQuotes,
            (Self::Quoted, _) => Self::Quoted,
            (_, b'\r' | b'\n') => Self::FieldStart,
            (_, byte) if byte == delimiter => Self::FieldStart,
            _ => Self::Plain,
        }
    }
}

/// The byte-order mark of UTF-8, which may precede the first field.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.read(buffer)?;
        if bytes == 0 && !buffer.is_empty() && self.place == Place::Quoted {
            self.place = Place::EndInQuotes;
        }
        for &byte in &buffer[..bytes] {
            let in_mark = BYTE_ORDER_MARK.get(self.consumed as usize) == Some(&byte);
            self.consumed += 1;
            if in_mark {
                continue;
            }
            self.place = self.place.after(byte, self.delimiter);
            self.row_bytes += 1;
            self.lines += u64::from(byte == b'\n');
            if self.place == Place::FieldStart {
                self.row_fields += 1;
                if matches!(byte, b'\r' | b'\n') {
                    (self.row_bytes, self.row_fields, self.line) = (0, 0, self.lines + 1);
                }
            }
        }
        if self.row_bytes > LONGEST_ROW_BYTES || self.row_fields > MOST_FIELDS {
            let detail = format!(
                "line {}: a row of more than {LONGEST_ROW_BYTES} bytes or {MOST_FIELDS} fields; is a quote never \
                 closed?",
                self.line
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, detail));
        }
        Ok(bytes)
    }
}
