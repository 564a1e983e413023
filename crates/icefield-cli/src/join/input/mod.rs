//! Reads columns of CSV and Parquet files, batch by batch.
//!
//! Threads read and decode ahead of the consumer: one thread per CSV file, several per Parquet file, row group by
//! row group. The batches still come in row order.

mod batch;
mod from_csv;
mod from_parquet;
mod zstd;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use arrow_schema::{Schema, SchemaRef};

use super::failures::interrupted;
use batch::Event;
use from_csv::CsvFile;
use from_parquet::ParquetFile;
use icefield_console::failure::Failure;
use icefield_console::interrupt::Interrupt;

pub use batch::Batch;

/// The first bytes of a Parquet file.
const PARQUET_MAGIC: &[u8] = b"PAR1";

/// A file of rows, or standard input.
pub struct Input {
    path: PathBuf,
    schema: SchemaRef,
    file: Kind,
}

enum Kind {
    Csv(CsvFile),
    Parquet(ParquetFile),
}

impl Input {
    /// Opens a file. Its extension or first bytes determine the format. For `-`, CSV is read from standard input.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let name = path.to_owned();
        if path == Path::new("-") {
            return Self::of_csv(PathBuf::from("standard input"), Box::new(io::stdin()));
        }
        let mut file = File::open(path).map_err(|error| Failure::io(path, &error))?;
        if file.metadata().map_err(|error| Failure::io(path, &error))?.is_dir() {
            return Err(Failure::Usage(format!("{}: a directory, not a file", path.display())));
        }
        if is_parquet(path, &mut file).map_err(|error| Failure::io(path, &error))? {
            let (file, schema) = ParquetFile::open(path, file)?;
            return Ok(Self { path: name, schema, file: Kind::Parquet(file) });
        }
        Self::of_csv(name, Box::new(file))
    }

    fn of_csv(path: PathBuf, input: crate::rows::Input) -> Result<Self, Failure> {
        let (file, schema) = CsvFile::open(&path, input)?;
        Ok(Self { path, schema, file: Kind::Csv(file) })
    }

    /// Returns the input's name for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns all columns. Those of a CSV file are texts.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns whether the file declares the types of its columns.
    pub fn has_types(&self) -> bool {
        matches!(self.file, Kind::Parquet(_))
    }

    /// Returns the number of rows, if it is known before they are read.
    pub fn rows(&self) -> Option<u64> {
        match &self.file {
            Kind::Csv(_) => None,
            Kind::Parquet(file) => Some(file.rows()),
        }
    }

    /// Returns the position of the column with this name.
    pub fn column(&self, name: &str) -> Result<usize, Failure> {
        let fields = self.schema.fields().iter().enumerate();
        let mut found = fields.filter(|(_, field)| field.name() == name).map(|(at, _)| at);
        let path = self.path.display();
        match (found.next(), found.next()) {
            (Some(at), None) => Ok(at),
            (Some(_), Some(_)) => {
                Err(Failure::Usage(format!("{path}: several columns have the name `{name}`")))
            }
            (None, _) => Err(Failure::Usage(format!(
                "{path}: no column `{name}`; there are {}",
                names(&self.schema)
            ))),
        }
    }

    /// Starts reading the columns at these positions, which are in ascending order.
    pub fn read(self, columns: &[usize], threads: usize) -> Result<Batches, Failure> {
        let (lanes, groups) = match self.file {
            Kind::Csv(file) => (vec![file.read(columns)?], 1),
            Kind::Parquet(file) => file.read(columns, threads)?,
        };
        Ok(Batches { path: self.path, lanes, group: 0, groups, rows: 0 })
    }
}

/// Returns the columns' names in one line.
pub fn names(schema: &Schema) -> String {
    let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    names.join(", ")
}

fn is_parquet(path: &Path, file: &mut File) -> io::Result<bool> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("parquet" | "pq") => Ok(true),
        Some("csv") => Ok(false),
        // Reading the first bytes of a pipe or device would lose them, so only regular files are examined.
        _ if !file.metadata()?.is_file() => Ok(false),
        _ => {
            let mut start = Vec::new();
            io::Read::by_ref(file).take(PARQUET_MAGIC.len() as u64).read_to_end(&mut start)?;
            io::Seek::rewind(file)?;
            Ok(start == PARQUET_MAGIC)
        }
    }
}

/// The batches of a file.
pub struct Batches {
    path: PathBuf,
    /// One receiver for each thread. The threads take turns, one row group each.
    lanes: Vec<Receiver<Event>>,
    group: usize,
    groups: usize,
    rows: u64,
}

impl Batches {
    /// Returns the next rows; `None` after the last ones.
    pub fn next(&mut self, interrupt: &Interrupt) -> Result<Option<Batch>, Failure> {
        while self.group < self.groups {
            if interrupt.asked() {
                return Err(interrupted());
            }
            // The timeout bounds the time until Ctrl-C is noticed while no data arrives from a pipe.
            match self.lanes[self.group % self.lanes.len()].recv_timeout(Duration::from_millis(100))
            {
                Ok(Event::Batch(mut batch)) => {
                    batch.first_row = self.rows;
                    self.rows += batch.rows() as u64;
                    return Ok(Some(batch));
                }
                Ok(Event::GroupEnd) => self.group += 1,
                Ok(Event::Failed(failure)) => return Err(failure),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let path = self.path.display();
                    return Err(Failure::Problem(format!("{path}: cannot be decoded")));
                }
            }
        }
        Ok(None)
    }

    /// Returns the number of rows read.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}
