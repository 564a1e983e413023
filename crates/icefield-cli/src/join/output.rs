//! Writes rows to a Parquet or CSV file. The file gets its name when it is complete; see [`Destination`].

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::failures::internal;
use crate::rows::io_error;
use icefield_console::destination::Destination;
use icefield_console::failure::Failure;

/// A file that is being written.
pub struct RowFile {
    name: PathBuf,
    rows: Rows,
    written: u64,
}

type CsvWriter = csv::Writer<BufWriter<Destination>>;

enum Rows {
    Csv(Box<CsvWriter>),
    Parquet(Box<ArrowWriter<Destination>>),
}

impl RowFile {
    /// Starts writing rows of `schema` to `path`. For `-`, they are written as CSV to standard output. The output must
    /// not be one of `reads`.
    pub fn create(path: &Path, schema: &SchemaRef, reads: &[&Path]) -> Result<Self, Failure> {
        let parquet = is_parquet(path);
        if !parquet {
            refuse_nested(path, schema)?;
        }
        let file = Destination::create(path, reads)?;
        let name = file.name().to_owned();
        let rows = if parquet {
            let properties =
                WriterProperties::builder().set_compression(Compression::SNAPPY).build();
            let writer = ArrowWriter::try_new(file, SchemaRef::clone(schema), Some(properties));
            Rows::Parquet(Box::new(writer.map_err(|error| problem(path, &error))?))
        } else {
            csv_rows(file, schema).map_err(|error| Failure::io(path, &error))?
        };
        Ok(Self { name, rows, written: 0 })
    }

    /// Appends rows.
    pub fn write(&mut self, records: &RecordBatch) -> Result<(), Failure> {
        self.written += records.num_rows() as u64;
        match &mut self.rows {
            Rows::Csv(writer) => write_csv(&self.name, writer, records),
            Rows::Parquet(writer) => {
                writer.write(records).map_err(|error| problem(&self.name, &error))
            }
        }
    }

    /// Returns the number of rows written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Completes the file and moves it to its final name.
    pub fn finish(self) -> Result<(), Failure> {
        let name = &self.name;
        let file = match self.rows {
            Rows::Csv(writer) => {
                let flushed = writer.into_inner().map_err(|error| error.into_error());
                let flushed = flushed.and_then(|buffer| Ok(buffer.into_inner()?));
                flushed.map_err(|error| Failure::io(name, &error))?
            }
            Rows::Parquet(writer) => writer.into_inner().map_err(|error| problem(name, &error))?,
        };
        file.finish()
    }
}

/// Returns whether the name is that of a Parquet file.
pub fn is_parquet(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| {
        extension.eq_ignore_ascii_case("parquet") || extension.eq_ignore_ascii_case("pq")
    })
}

fn refuse_nested(path: &Path, schema: &Schema) -> Result<(), Failure> {
    match schema.fields().iter().find(|field| field.data_type().is_nested()) {
        None => Ok(()),
        Some(field) => Err(Failure::Usage(format!(
            "{}: `{}` is a {}, which CSV cannot represent; write a .parquet file, or choose other columns with \
             --select",
            path.display(),
            field.name(),
            field.data_type()
        ))),
    }
}

fn csv_rows(file: Destination, schema: &Schema) -> io::Result<Rows> {
    let mut writer = csv::Writer::from_writer(BufWriter::with_capacity(1 << 16, file));
    writer.write_record(schema.fields().iter().map(|field| field.name())).map_err(io_error)?;
    Ok(Rows::Csv(Box::new(writer)))
}

fn write_csv(name: &Path, writer: &mut CsvWriter, records: &RecordBatch) -> Result<(), Failure> {
    let options = FormatOptions::default().with_display_error(false);
    let columns: Vec<ArrayRef> = records.columns().iter().map(in_utc).collect::<Result<_, _>>()?;
    let columns: Vec<ArrayFormatter<'_>> = columns
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
        .collect::<Result<_, _>>()
        .map_err(internal)?;
    let mut field = String::new();
    for row in 0..records.num_rows() {
        for column in &columns {
            field.clear();
            column.value(row).write(&mut field).map_err(|error| problem(name, &error))?;
            writer.write_field(&field).map_err(|error| Failure::io(name, &io_error(error)))?;
        }
        let end: [&str; 0] = [];
        writer.write_record(end).map_err(|error| Failure::io(name, &io_error(error)))?;
    }
    Ok(())
}

/// Converts timestamps to UTC, because printing them in their time zone would need a time zone database.
fn in_utc(column: &ArrayRef) -> Result<ArrayRef, Failure> {
    match column.data_type() {
        DataType::Timestamp(unit, Some(_)) => {
            let utc = DataType::Timestamp(*unit, Some("+00:00".into()));
            cast(column, &utc).map_err(internal)
        }
        _ => Ok(ArrayRef::clone(column)),
    }
}

fn problem(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Problem(format!("{}: {error}", path.display()))
}
