//! Parquet: a file of row groups, which several threads decode in turn.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use arrow_schema::{DataType, FieldRef, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;

use super::batch::{BATCH_ROWS, Batch, Event, spawn};
use super::zstd;
use icefield_console::failure::Failure;

/// A file whose footer has been read.
pub struct ParquetFile {
    path: PathBuf,
    file: File,
    metadata: ArrowReaderMetadata,
}

impl ParquetFile {
    /// Reads the footer.
    pub fn open(path: &Path, file: File) -> Result<(Self, SchemaRef), Failure> {
        let load = |options| {
            ArrowReaderMetadata::load(&file, options).map_err(|error| problem(path, &error))
        };
        let mut metadata = load(ArrowReaderOptions::new())?;
        if let Some(schema) = without_dictionaries(metadata.schema()) {
            metadata = load(ArrowReaderOptions::new().with_schema(schema))?;
        }
        let schema = SchemaRef::clone(metadata.schema());
        let roots = metadata.parquet_schema().root_schema().get_fields().len();
        if roots != schema.fields().len() {
            let path = path.display();
            return Err(Failure::Problem(format!("{path}: has a column without values")));
        }
        Ok((Self { path: path.to_owned(), file, metadata }, schema))
    }

    /// Returns the number of rows according to the footer.
    pub fn rows(&self) -> u64 {
        self.metadata.metadata().file_metadata().num_rows().unsigned_abs()
    }

    /// Starts the threads that decode the columns at these positions. Returns a receiver for each thread, and the
    /// number of row groups.
    pub fn read(
        self,
        columns: &[usize],
        threads: usize,
    ) -> Result<(Vec<Receiver<Event>>, usize), Failure> {
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), columns.iter().copied());
        self.refuse_unknown_codecs(&mask)?;
        let groups = self.metadata.metadata().num_row_groups();
        let lanes = threads.clamp(1, groups.max(1));
        let mut receivers = Vec::with_capacity(lanes);
        for lane in 0..lanes {
            let decoder = Decoder {
                path: self.path.clone(),
                file: self.reopened()?,
                metadata: self.metadata.clone(),
                mask: mask.clone(),
                groups: (lane..groups).step_by(lanes).collect(),
            };
            receivers.push(spawn(move |sender| decoder.send_all(sender))?);
        }
        Ok((receivers, groups))
    }

    /// Opens the file again, because each thread needs its own read position.
    fn reopened(&self) -> Result<File, Failure> {
        let path = &self.path;
        let reopen = || {
            let file = File::open(path)?;
            let (old, new) = (self.file.metadata()?, file.metadata()?);
            Ok(((old.dev(), old.ino()) == (new.dev(), new.ino())).then_some(file))
        };
        let changed =
            || Failure::Problem(format!("{}: was replaced while it was read", path.display()));
        reopen().map_err(|error| Failure::io(path, &error))?.ok_or_else(changed)
    }

    /// Fails, before any column is read, if a column's compression is not supported. The failure names the column.
    fn refuse_unknown_codecs(&self, mask: &ProjectionMask) -> Result<(), Failure> {
        for group in self.metadata.metadata().row_groups() {
            for (leaf, column) in group.columns().iter().enumerate() {
                if column.compression() == Compression::LZO && mask.leaf_included(leaf) {
                    let (path, name) = (self.path.display(), column.column_path().string());
                    return Err(Failure::Problem(format!(
                        "{path}: `{name}` is compressed by lzo, which this program cannot read; write it with zstd, \
                         snappy, lz4, gzip, brotli or uncompressed"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Returns the same columns with plain values instead of dictionary codes; `None` if no column has a dictionary.
/// Selecting single rows from many batches with dictionaries would merge all their dictionaries each time.
fn without_dictionaries(schema: &SchemaRef) -> Option<SchemaRef> {
    let plain = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Dictionary(_, values) => {
            Arc::new(field.as_ref().clone().with_data_type(values.as_ref().clone()))
        }
        _ => FieldRef::clone(field),
    });
    let plain = Schema::new_with_metadata(plain.collect::<Vec<_>>(), schema.metadata().clone());
    (plain != **schema).then(|| Arc::new(plain))
}

/// The state of one decoding thread.
struct Decoder {
    path: PathBuf,
    file: File,
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    groups: Vec<usize>,
}

impl Decoder {
    fn send_all(self, sender: &SyncSender<Event>) {
        for &group in &self.groups {
            match self.send_group(group, sender) {
                // `false` means that the command has ended and the receiver was dropped.
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => return drop(sender.send(Event::Failed(failure))),
            }
        }
    }

    /// Sends the batches of a row group. Returns `false` if the receiver was dropped.
    fn send_group(&self, group: usize, sender: &SyncSender<Event>) -> Result<bool, Failure> {
        let file = self.file.try_clone().map_err(|error| Failure::io(&self.path, &error))?;
        let (metadata, mask) = (&self.metadata, &self.mask);
        let columns = metadata.metadata().row_group(group).columns();
        let mut read = columns.iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf));
        let batches = match read.any(|(_, column)| zstd::is_zstd(column)) {
            true => zstd::read(file, metadata, mask, group),
            false => ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone())
                .with_projection(mask.clone())
                .with_row_groups(vec![group])
                .with_batch_size(BATCH_ROWS)
                .build(),
        };
        for records in batches.map_err(|error| problem(&self.path, &error))? {
            let records = records.map_err(|error| problem(&self.path, &error))?;
            let batch = Batch { first_row: 0, lines: Vec::new(), records };
            if sender.send(Event::Batch(batch)).is_err() {
                return Ok(false);
            }
        }
        Ok(sender.send(Event::GroupEnd).is_ok())
    }
}

fn problem(path: &Path, error: &impl std::fmt::Display) -> Failure {
    Failure::Problem(format!("{}: {error}", path.display()))
}
