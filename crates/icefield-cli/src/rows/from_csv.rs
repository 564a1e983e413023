//! CSV: a header with the columns' names, then a row a line.

use std::io::{self, Read};

use super::{BadRow, Columns, Input, LONGEST_BYTES, Row, RowResult, Schema, settle};
use crate::failure::Failure;
use crate::json::{Line, quoted};

/// The rows of a CSV input.
pub struct CsvRows {
    reader: csv::Reader<Watched>,
    header: csv::ByteRecord,
    key: usize,
    value: Option<usize>,
}

impl CsvRows {
    /// Reads the header and settles the columns.
    pub fn open(input: Input, asked: &Columns) -> Result<(Self, Schema), Failure> {
        let mut reader = Watched::reader(input);
        let header = reader
            .byte_headers()
            .map_err(|error| Failure::Problem(format!("the input: {}", io_error(error))))?
            .clone();
        let names: Vec<String> =
            header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let schema = settle(&names, asked)?;
        let position = |column: &String| names.iter().position(|name| name == column);
        // `settle` answers with columns that are there.
        let key = position(&schema.key).unwrap_or_default();
        let value = schema.value.as_ref().and_then(position);
        Ok((Self { reader, header, key, value }, schema))
    }

    /// How many bytes of the input have been read so far.
    pub fn consumed(&self) -> u64 {
        self.reader.get_ref().consumed()
    }

    /// The next row.
    pub fn next(&mut self) -> Option<RowResult> {
        let mut record = csv::ByteRecord::new();
        match self.reader.read_byte_record(&mut record) {
            Ok(false) => None,
            Ok(true) => Some(Ok(self.row(&record))),
            Err(error) => Some(Err(io_error(error))),
        }
    }

    fn row(&self, record: &csv::ByteRecord) -> Result<Row, BadRow> {
        let line = record.position().map_or(0, csv::Position::line);
        let bad = |reason| BadRow { line, reason };
        // The parser takes the end of the input for the quote that is missing, and all rows up to there for one field.
        if self.reader.get_ref().ended_in_quotes() {
            return Err(bad(OPEN_QUOTE.to_owned()));
        }
        let (found, expected) = (record.len(), self.header.len());
        if found != expected {
            return Err(bad(format!("{found} fields where the header has {expected}")));
        }
        let value = match self.value {
            Some(value) => record[value].to_vec(),
            None => self.others(record).map_err(bad)?,
        };
        Ok(Row { line, key: record[self.key].to_vec(), value })
    }

    /// All fields but the key as a JSON object of strings.
    fn others(&self, record: &csv::ByteRecord) -> Result<Vec<u8>, String> {
        let mut object = Line::new();
        for (index, (name, field)) in self.header.iter().zip(record).enumerate() {
            if index == self.key {
                continue;
            }
            let field = std::str::from_utf8(field)
                .map_err(|_| format!("field {} is not UTF-8", index + 1))?;
            object = object.raw(&String::from_utf8_lossy(name), &quoted(field));
        }
        Ok(object.end().into_bytes())
    }
}

/// What the system said, whatever the parser made of it.
pub fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// An input that is watched for what the parser does not tell: how far it has been read, fields without end, and a
/// quote that is still open at the end.
pub struct Watched {
    input: Input,
    consumed: u64,
    field_bytes: usize,
    place: Place,
}

/// What is told of a row with a quote that is still open at the end.
pub const OPEN_QUOTE: &str = "a quote is never closed; all that follows belongs to this row";

impl Watched {
    /// A parser of `input` that leaves the number of fields to its caller.
    pub fn reader(input: Input) -> csv::Reader<Self> {
        let input = Self { input, consumed: 0, field_bytes: 0, place: Place::FieldStart };
        csv::ReaderBuilder::new().flexible(true).buffer_capacity(1 << 16).from_reader(input)
    }

    /// How many bytes have been read so far.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Whether the input is at its end, within quotes.
    pub fn ended_in_quotes(&self) -> bool {
        self.place == Place::EndInQuotes
    }
}

/// Where in a row the last byte was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    FieldStart,
    Plain,
    Quoted,
    /// A quote within quotes: the end of the field, or the first half of a doubled quote.
    QuoteInQuotes,
    /// The input ended with an open quote.
    EndInQuotes,
}

impl Place {
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::FieldStart | Self::QuoteInQuotes, b'"') => Self::Quoted,
            (Self::Quoted, b'"') => Self::QuoteInQuotes,
            (Self::Quoted, _) => Self::Quoted,
            (_, b',' | b'\r' | b'\n') => Self::FieldStart,
            _ => Self::Plain,
        }
    }
}

/// What may come before the first field.
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
            self.place = self.place.after(byte);
            self.field_bytes =
                if self.place == Place::FieldStart { 0 } else { self.field_bytes + 1 };
        }
        if self.field_bytes > LONGEST_BYTES {
            let detail =
                format!("a field of more than {LONGEST_BYTES} bytes; is a quote never closed?");
            return Err(io::Error::new(io::ErrorKind::InvalidData, detail));
        }
        Ok(bytes)
    }
}
