//! Rows to a file, Parquet or CSV. The file appears when it is complete: it is written beside its place under another
//! name, and renamed.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use tempfile::TempPath;

use super::internal;
use crate::failure::Failure;
use crate::rows::io_error;

/// A file in the making.
pub struct RowFile {
    name: PathBuf,
    rows: Rows,
    /// Where it is until it is complete; `None` for what has no place to be renamed to.
    hidden: Option<TempPath>,
    written: u64,
}

type CsvWriter = csv::Writer<Box<dyn Write + Send>>;

enum Rows {
    Csv(Box<CsvWriter>),
    Parquet(Box<ArrowWriter<File>>),
}

impl RowFile {
    /// Begins to write rows of `schema` to `path`; `-` is CSV on standard output.
    pub fn create(path: &Path, schema: &SchemaRef) -> Result<Self, Failure> {
        let parquet = is_parquet(path);
        if !parquet {
            refuse_nested(path, schema)?;
        }
        let (file, name, hidden) = match destination(path) {
            Destination::Stdout => {
                let rows = csv_rows(Box::new(io::stdout()), schema);
                let rows = rows.map_err(|error| Failure::io(path, &error))?;
                return Ok(Self { name: "output".into(), rows, hidden: None, written: 0 });
            }
            Destination::Odd => {
                let file = File::options().write(true).open(path);
                (file.map_err(|error| Failure::io(path, &error))?, path.to_owned(), None)
            }
            Destination::File(name) => {
                let hidden = hidden(&name).map_err(|error| Failure::io(&name, &error))?;
                let (file, hidden) = hidden.into_parts();
                (file, name, Some(hidden))
            }
        };
        let rows = if parquet {
            let properties =
                WriterProperties::builder().set_compression(Compression::SNAPPY).build();
            let writer = ArrowWriter::try_new(file, SchemaRef::clone(schema), Some(properties));
            Rows::Parquet(Box::new(writer.map_err(|error| problem(path, &error))?))
        } else {
            csv_rows(Box::new(file), schema).map_err(|error| Failure::io(path, &error))?
        };
        Ok(Self { name, rows, hidden, written: 0 })
    }

    /// Adds rows.
    pub fn write(&mut self, records: &RecordBatch) -> Result<(), Failure> {
        self.written += records.num_rows() as u64;
        match &mut self.rows {
            Rows::Csv(writer) => write_csv(&self.name, writer, records),
            Rows::Parquet(writer) => {
                writer.write(records).map_err(|error| problem(&self.name, &error))
            }
        }
    }

    /// How many rows have been added.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Brings the file to its place, complete.
    pub fn finish(self) -> Result<(), Failure> {
        let name = &self.name;
        match self.rows {
            Rows::Csv(mut writer) => writer.flush().map_err(|error| Failure::io(name, &error))?,
            Rows::Parquet(writer) => {
                writer.close().map(drop).map_err(|error| problem(name, &error))?;
            }
        }
        let Some(hidden) = self.hidden else { return Ok(()) };
        let place = || {
            File::open(&hidden)?.sync_all()?;
            hidden.persist(name).map_err(|error| error.error)?;
            File::open(parent(name))?.sync_all()
        };
        place().map_err(|error| Failure::io(name, &error))
    }
}

enum Destination {
    Stdout,
    /// A pipe or device.
    Odd,
    /// A file, that links lead to.
    File(PathBuf),
}

fn destination(path: &Path) -> Destination {
    if path == Path::new("-") {
        return Destination::Stdout;
    }
    match path.metadata() {
        Ok(metadata) if metadata.is_file() => {
            Destination::File(path.canonicalize().unwrap_or_else(|_| path.to_owned()))
        }
        Ok(_) => Destination::Odd,
        Err(_) => Destination::File(path.to_owned()),
    }
}

/// Whether that name is one of a Parquet file.
pub fn is_parquet(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| {
        extension.eq_ignore_ascii_case("parquet") || extension.eq_ignore_ascii_case("pq")
    })
}

fn hidden(name: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name.file_name().unwrap_or_default());
    prefix.push(".writing-");
    // As any new file: what the user's mask leaves.
    let permissions = Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(&prefix).permissions(permissions).tempfile_in(parent(name))
}

fn parent(name: &Path) -> &Path {
    match name.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn refuse_nested(path: &Path, schema: &Schema) -> Result<(), Failure> {
    match schema.fields().iter().find(|field| field.data_type().is_nested()) {
        None => Ok(()),
        Some(field) => Err(Failure::Usage(format!(
            "{}: `{}` is a {}, which CSV has no form for; write .parquet, or --select other columns",
            path.display(),
            field.name(),
            field.data_type()
        ))),
    }
}

fn csv_rows(sink: Box<dyn Write + Send>, schema: &Schema) -> io::Result<Rows> {
    let sink: Box<dyn Write + Send> = Box::new(BufWriter::with_capacity(1 << 16, sink));
    let mut writer = csv::Writer::from_writer(sink);
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

/// Points in time without the names of their zones, which only a library of all zones' history could print.
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
