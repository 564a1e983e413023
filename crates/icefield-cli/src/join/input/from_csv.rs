//! CSV: a header with the columns' names, then one row per line. All columns are texts; an empty field is null.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::batch::{BATCH_ROWS, Batch, Event, spawn};
use crate::join::failures::internal;
use crate::rows::{Input, OPEN_QUOTE, Watched, io_error};
use icefield_console::failure::Failure;

/// A batch is full when its texts have this number of bytes, because an array of texts must stay below 2 GiB.
const BATCH_BYTES: usize = 64 << 20;

/// A file whose header has been read.
pub struct CsvFile {
    path: PathBuf,
    reader: csv::Reader<Watched>,
    schema: SchemaRef,
}

impl CsvFile {
    /// Reads the header.
    pub fn open(path: &Path, input: Input) -> Result<(Self, SchemaRef), Failure> {
        let mut reader = Watched::reader(input);
        let header = reader.byte_headers().map_err(|error| Failure::io(path, &io_error(error)))?;
        let mut fields = Vec::new();
        for name in header {
            let name = std::str::from_utf8(name).map_err(|_| {
                Failure::Problem(format!(
                    "{}: line 1: the name of a column is not UTF-8",
                    path.display()
                ))
            })?;
            fields.push(Field::new(name, DataType::Utf8, true));
        }
        if fields.is_empty() {
            let path = path.display();
            return Err(Failure::Problem(format!("{path}: no header line with names of columns")));
        }
        let schema = Arc::new(Schema::new(fields));
        Ok((Self { path: path.to_owned(), reader, schema: Arc::clone(&schema) }, schema))
    }

    /// Starts the thread that reads the columns at these positions.
    pub fn read(self, columns: &[usize]) -> Result<Receiver<Event>, Failure> {
        let schema = self.schema.project(columns).map_err(internal)?;
        let rows = CsvRows {
            path: self.path,
            reader: self.reader,
            width: self.schema.fields().len(),
            columns: columns.to_vec(),
            schema: Arc::new(schema),
        };
        spawn(move |sender| rows.send_all(sender))
    }
}

struct CsvRows {
    path: PathBuf,
    reader: csv::Reader<Watched>,
    /// The number of fields in a row.
    width: usize,
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl CsvRows {
    fn send_all(mut self, sender: &SyncSender<Event>) {
        loop {
            let event = match self.batch() {
                Ok(None) => Event::GroupEnd,
                Ok(Some(batch)) => Event::Batch(batch),
                Err(failure) => Event::Failed(failure),
            };
            let goes_on = matches!(event, Event::Batch(_));
            // Sending fails if the command has ended, because then the receiver was dropped.
            if sender.send(event).is_err() || !goes_on {
                return;
            }
        }
    }

    fn batch(&mut self) -> Result<Option<Batch>, Failure> {
        let mut builders: Vec<StringBuilder> =
            self.columns.iter().map(|_| StringBuilder::new()).collect();
        let (mut lines, mut bytes) = (Vec::new(), 0);
        let mut record = csv::ByteRecord::new();
        while lines.len() < BATCH_ROWS && bytes < BATCH_BYTES {
            match self.reader.read_byte_record(&mut record) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Err(Failure::io(&self.path, &io_error(error))),
            }
            let line = record.position().map_or(0, csv::Position::line);
            self.append(&record, &mut builders).map_err(|reason| {
                Failure::Problem(format!("{}: line {line}: {reason}", self.path.display()))
            })?;
            bytes += record.as_slice().len();
            lines.push(line);
        }
        if lines.is_empty() {
            return Ok(None);
        }
        let columns: Vec<ArrayRef> =
            builders.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef).collect();
        let records = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(internal)?;
        Ok(Some(Batch { first_row: 0, lines, records }))
    }

    fn append(
        &self,
        record: &csv::ByteRecord,
        builders: &mut [StringBuilder],
    ) -> Result<(), String> {
        if self.reader.get_ref().ended_in_quotes() {
            return Err(OPEN_QUOTE.to_owned());
        }
        if record.len() != self.width {
            return Err(format!("{} fields, but the header has {}", record.len(), self.width));
        }
        for (place, (&column, builder)) in self.columns.iter().zip(builders).enumerate() {
            match std::str::from_utf8(&record[column]) {
                Ok("") => builder.append_null(),
                Ok(text) => builder.append_value(text),
                Err(_) => {
                    return Err(format!("`{}` is not UTF-8", self.schema.field(place).name()));
                }
            }
        }
        Ok(())
    }
}
