//! Writes a file of columns: an Arrow IPC file in row order, in chunks of [`CHUNK_ROWS`] rows.
//!
//! Dictionaries are resolved, and texts become views.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ipc::writer::FileWriter;
use datafusion::error::{DataFusionError, Result};

use super::keys::{plain, values_of};
use crate::batch::batch_of;
use crate::error::at_path;

/// Number of rows in every chunk but the last of a file.
pub const CHUNK_ROWS: usize = 1 << 18;

/// Returns the schema of the stored columns.
pub fn stored_schema(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let data_type = stored_type(field.data_type());
        Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Returns the type in which a column is stored: without dictionaries, and with texts as views, which have no limit of
/// 2 GiB a chunk; within lists and structures, without views, which cannot be compacted there.
pub fn stored_type(data_type: &DataType) -> DataType {
    match values_of(data_type) {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        other @ (DataType::Utf8View | DataType::BinaryView) => other.clone(),
        other => nested_type(other),
    }
}

fn nested_type(data_type: &DataType) -> DataType {
    use DataType as D;
    let inner = |field: &Arc<Field>| {
        let data_type = nested_type(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    };
    match values_of(data_type) {
        D::Utf8View => D::LargeUtf8,
        D::BinaryView => D::LargeBinary,
        D::List(field) => D::List(inner(field)),
        D::LargeList(field) => D::LargeList(inner(field)),
        D::FixedSizeList(field, length) => D::FixedSizeList(inner(field), *length),
        D::Struct(fields) => D::Struct(fields.iter().map(inner).collect()),
        D::Map(field, is_sorted) => D::Map(inner(field), *is_sorted),
        other => other.clone(),
    }
}

/// Returns a column of views with a copy of their texts; other columns as they are. A part of a column of views keeps
/// the buffers of the whole column, and would be written, and counted as memory, with all of them.
pub fn compacted(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => Arc::clone(column),
    }
}

/// Returns a batch whose columns of views have only their own texts.
///
/// # Errors
/// If Arrow cannot make the batch.
pub fn compacted_batch(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(compacted).collect();
    Ok(batch_of(&batch.schema(), columns, batch.num_rows())?)
}

/// Writes the file.
pub struct ColumnsWriter {
    path: PathBuf,
    schema: SchemaRef,
    writer: FileWriter<BufWriter<File>>,
    /// Batches that do not yet fill a chunk.
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
    rows: u64,
}

impl ColumnsWriter {
    /// Creates the file at `path`, for batches of `schema`.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: PathBuf, schema: &Schema) -> Result<Self> {
        let file = File::create_new(&path).map_err(|error| at_path(&path, error))?;
        let schema = stored_schema(schema);
        let writer = FileWriter::try_new(BufWriter::with_capacity(1 << 20, file), &schema)?;
        Ok(Self { path, schema, writer, waiting: Vec::new(), waiting_rows: 0, rows: 0 })
    }

    /// Returns the number of rows that have been appended.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Appends rows.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = std::iter::zip(batch.columns(), self.schema.fields())
            .map(|(column, field)| Ok(cast(&plain(column)?, field.data_type())?));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let batch = batch_of(&self.schema, columns, batch.num_rows())?;
        self.rows += batch.num_rows() as u64;
        let mut rest = batch;
        while self.waiting_rows + rest.num_rows() >= CHUNK_ROWS {
            let fits = CHUNK_ROWS - self.waiting_rows;
            self.waiting.push(rest.slice(0, fits));
            rest = rest.slice(fits, rest.num_rows() - fits);
            self.flush()?;
        }
        self.waiting_rows += rest.num_rows();
        if rest.num_rows() > 0 {
            self.waiting.push(rest);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let chunk = concat_batches(&self.schema, &self.waiting)?;
        let chunk = compacted_batch(&chunk)?;
        self.waiting.clear();
        self.waiting_rows = 0;
        self.writer.write(&chunk).map_err(|error| self.fault(error.into()))
    }

    fn fault(&self, error: DataFusionError) -> DataFusionError {
        error.context(self.path.display().to_string())
    }

    /// Writes the rest, durably.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(mut self) -> Result<()> {
        if self.waiting_rows > 0 {
            self.flush()?;
        }
        let finish = self.writer.finish().and_then(|()| Ok(self.writer.get_mut().flush()?));
        finish.map_err(|error| self.fault(error.into()))?;
        self.writer.get_ref().get_ref().sync_all().map_err(|error| at_path(&self.path, error))
    }
}
