//! Writes rows to a file or standard output. The file gets its name when it is complete; see [`Destination`].

use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::ipc::writer::FileWriter;
use arrow::util::pretty::pretty_format_batches;
use datafusion::arrow::csv;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use icefield_console::destination::{Destination, is_stdout};
use icefield_console::failure::Failure;
use icefield_console::json::JsonArgs;

use super::parquet::ParquetRows;
use super::session::{FormatArgs, SessionArgs, failure};
use crate::batch::batch_of;

/// The options of commands that read files and write rows.
#[derive(clap::Args, Debug)]
pub struct RowsArgs {
    #[command(flatten)]
    pub format: FormatArgs,
    /// Write the rows to FILE; without it, or for `-`, to standard output
    #[arg(short, long, value_name = "FILE|-", default_value = "-")]
    pub output: PathBuf,
    /// Use indexes even if a file has changed since it was indexed: the rows are those of the index
    #[arg(long)]
    pub allow_stale: bool,
    #[command(flatten)]
    pub session: SessionArgs,
    #[command(flatten)]
    pub json: JsonArgs,
}

impl RowsArgs {
    /// Returns whether the rows go to standard output.
    pub fn takes_stdout(&self) -> bool {
        self.output == Path::new("-")
    }

    /// Fails if both rows and JSON lines would go to standard output.
    pub fn refuse_two_outputs(&self) -> Result<(), Failure> {
        if self.takes_stdout() && self.json.takes_stdout() {
            return Err(Failure::Usage(
                "--json -: the rows go to standard output already; name a file for them with -o"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Writes all rows; returns their number. The output must not be one of `reads`.
    pub async fn write(
        &self,
        mut rows: SendableRecordBatchStream,
        reads: &[&Path],
    ) -> Result<u64, Failure> {
        let threads = self.session.threads();
        let mut file = RowFile::create(&self.output, &rows.schema(), reads, threads)?;
        while let Some(batch) = rows.next().await {
            file.write(&batch.map_err(failure)?)?;
        }
        let written = file.written;
        file.finish()?;
        Ok(written)
    }
}

/// Number of rows that a table on a terminal shows at a time.
const SHOWN: usize = 10_000;

/// Rows that are being written.
struct RowFile {
    name: PathBuf,
    rows: Rows,
    written: u64,
}

enum Rows {
    /// A table for people.
    Table(Destination, Vec<RecordBatch>),
    Csv(Box<csv::Writer<BufWriter<Destination>>>),
    Json(Box<LineDelimitedWriter<BufWriter<Destination>>>),
    Parquet(Box<ParquetRows>),
    Arrow(Box<FileWriter<BufWriter<Destination>>>),
}

/// The formats of outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Table,
    Csv,
    Tsv,
    Json,
    Parquet,
    Arrow,
}

impl RowFile {
    /// Starts writing rows of `schema` to `path`; the ending of its name determines the format. Standard output, `-`, gets a
    /// table on a terminal, and CSV otherwise. The output must not be one of `reads`. Columns of Parquet are encoded by
    /// `threads` threads.
    fn create(
        path: &Path,
        schema: &SchemaRef,
        reads: &[&Path],
        threads: usize,
    ) -> Result<Self, Failure> {
        let kind = kind(path)?;
        if matches!(kind, Kind::Csv | Kind::Tsv) {
            refuse_nested(path, schema)?;
        }
        let file = Destination::create(path, reads)?;
        let name = file.name().to_owned();
        let buffered = |file| BufWriter::with_capacity(1 << 16, file);
        let rows = match kind {
            Kind::Table => Rows::Table(file, Vec::new()),
            Kind::Csv | Kind::Tsv => {
                let delimiter = if kind == Kind::Tsv { b'\t' } else { b',' };
                let mut writer =
                    csv::WriterBuilder::new().with_delimiter(delimiter).build(buffered(file));
                // The header of a result without rows.
                writer
                    .write(&RecordBatch::new_empty(in_utc_schema(schema)))
                    .map_err(|error| of_arrow(&name, error))?;
                Rows::Csv(Box::new(writer))
            }
            Kind::Json => Rows::Json(Box::new(LineDelimitedWriter::new(buffered(file)))),
            Kind::Parquet => {
                let rows = ParquetRows::create(file, schema, threads);
                Rows::Parquet(Box::new(rows.map_err(|error| problem(&name, &error))?))
            }
            Kind::Arrow => {
                let writer = FileWriter::try_new(buffered(file), schema);
                Rows::Arrow(Box::new(writer.map_err(|error| problem(&name, &error))?))
            }
        };
        Ok(Self { name, rows, written: 0 })
    }

    /// Appends rows.
    fn write(&mut self, records: &RecordBatch) -> Result<(), Failure> {
        self.written += records.num_rows() as u64;
        let Self { name, rows, .. } = self;
        match rows {
            Rows::Table(file, batches) => {
                batches.push(records.clone());
                if batches.iter().map(RecordBatch::num_rows).sum::<usize>() >= SHOWN {
                    show(file, batches).map_err(|error| problem(name, &error))?;
                }
                Ok(())
            }
            Rows::Csv(writer) => {
                writer.write(&in_utc(records)?).map_err(|error| of_arrow(name, error))
            }
            Rows::Json(writer) => writer.write(records).map_err(|error| of_arrow(name, error)),
            Rows::Parquet(writer) => writer.write(records).map_err(|error| problem(name, &error)),
            Rows::Arrow(writer) => writer.write(records).map_err(|error| of_arrow(name, error)),
        }
    }

    /// Completes the file and moves it to its final name.
    fn finish(self) -> Result<(), Failure> {
        let name = &self.name;
        let of_buffer = |buffer: BufWriter<Destination>| {
            buffer.into_inner().map_err(|error| Failure::io(name, error.error()))
        };
        let file = match self.rows {
            Rows::Table(mut file, mut batches) => {
                show(&mut file, &mut batches).map_err(|error| problem(name, &error))?;
                file
            }
            Rows::Csv(writer) => of_buffer(writer.into_inner())?,
            Rows::Json(mut writer) => {
                writer.finish().map_err(|error| of_arrow(name, error))?;
                of_buffer(writer.into_inner())?
            }
            Rows::Parquet(writer) => writer.finish().map_err(|error| problem(name, &error))?,
            Rows::Arrow(writer) => {
                of_buffer(writer.into_inner().map_err(|error| of_arrow(name, error))?)?
            }
        };
        file.finish()
    }
}

fn show(
    file: &mut Destination,
    batches: &mut Vec<RecordBatch>,
) -> Result<(), Box<dyn std::error::Error>> {
    if !batches.is_empty() {
        let table = pretty_format_batches(batches)?.to_string();
        writeln!(file, "{}", icefield_console::terminal::shown_lines(&table))?;
        batches.clear();
    }
    Ok(())
}

fn kind(path: &Path) -> Result<Kind, Failure> {
    if is_stdout(path) {
        let is_terminal = std::io::stdout().is_terminal();
        return Ok(if is_terminal { Kind::Table } else { Kind::Csv });
    }
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    Ok(match extension.to_ascii_lowercase().as_str() {
        "parquet" | "pq" => Kind::Parquet,
        "csv" => Kind::Csv,
        "tsv" => Kind::Tsv,
        "json" | "ndjson" | "jsonl" => Kind::Json,
        "arrow" | "feather" | "ipc" => Kind::Arrow,
        // A pipe or a device.
        _ if path.metadata().is_ok_and(|found| !found.is_file()) => Kind::Csv,
        _ => {
            return Err(Failure::Usage(format!(
                "-o: {}: the ending determines the format: .csv, .tsv, .ndjson, .parquet or .arrow",
                path.display()
            )));
        }
    })
}

fn refuse_nested(path: &Path, schema: &Schema) -> Result<(), Failure> {
    match schema.fields().iter().find(|field| field.data_type().is_nested()) {
        None => Ok(()),
        Some(field) => Err(Failure::Usage(format!(
            "{}: `{}` is a {}, which CSV cannot represent; write a .parquet or .ndjson file, or select other columns",
            path.display(),
            field.name(),
            field.data_type()
        ))),
    }
}

/// Returns the type in which a column is printed: timestamps in UTC, because their time zone would need a database.
fn printed(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("+00:00".into())),
        other => other.clone(),
    }
}

fn in_utc_schema(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let data_type = printed(field.data_type());
        field.as_ref().clone().with_data_type(data_type)
    });
    SchemaRef::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn in_utc(records: &RecordBatch) -> Result<RecordBatch, Failure> {
    let schema = in_utc_schema(records.schema_ref());
    let columns = std::iter::zip(records.columns(), schema.fields())
        .map(|(column, field)| cast(column, field.data_type()))
        .collect::<Result<Vec<ArrayRef>, _>>();
    columns
        .and_then(|columns| batch_of(&schema, columns, records.num_rows()))
        .map_err(|error| Failure::Problem(error.to_string()))
}

fn of_arrow(path: &Path, error: arrow::error::ArrowError) -> Failure {
    match error {
        arrow::error::ArrowError::IoError(_, source) => Failure::io(path, &source),
        // Arrow keeps only the text of errors of the CSV writer.
        arrow::error::ArrowError::CsvError(text) if text.contains("Broken pipe") => {
            Failure::BrokenPipe
        }
        other => problem(path, &other),
    }
}

fn problem(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Problem(format!("{}: {error}", path.display()))
}
