//! Writes Parquet, with the columns encoded in parallel.
//!
//! Each thread has some of the columns. It receives all batches of a row group, in order, and returns its columns
//! encoded; these are then written one after the other. A few batches wait for each thread, so memory is that of one
//! encoded row group.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves,
};
use datafusion::parquet::basic::Compression;
use datafusion::parquet::errors::{ParquetError, Result};
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::parquet::file::writer::SerializedFileWriter;
use icefield_console::destination::Destination;

/// Number of rows in every row group but the last.
const GROUP_ROWS: usize = 1 << 20;
/// Number of batches that wait for a thread.
const WAITING: usize = 4;

/// A file that is being written.
pub struct ParquetRows {
    file: SerializedFileWriter<Destination>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    threads: usize,
    /// The threads that encode the present row group.
    encoders: Vec<Encoder>,
    /// Number of rows in the present row group.
    rows: usize,
    /// Number of row groups that are complete.
    groups: usize,
}

/// A thread, and the batches that it receives.
struct Encoder {
    batches: SyncSender<RecordBatch>,
    thread: JoinHandle<Result<Vec<(usize, ArrowColumnChunk)>>>,
}

/// A column of the schema: its position, and the writers of its leaves with their positions.
struct Field {
    at: usize,
    leaves: Vec<(usize, ArrowColumnWriter)>,
}

impl ParquetRows {
    /// Starts a file.
    pub fn create(file: Destination, schema: &SchemaRef, threads: usize) -> Result<Self> {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = ArrowWriter::try_new(file, Arc::clone(schema), Some(properties))?;
        let (file, factory) = writer.into_serialized_writer()?;
        let (schema, threads) =
            (Arc::clone(schema), threads.clamp(1, schema.fields().len().max(1)));
        Ok(Self { file, factory, schema, threads, encoders: Vec::new(), rows: 0, groups: 0 })
    }

    /// Appends rows.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut start = 0;
        while start < batch.num_rows() {
            if self.encoders.is_empty() {
                self.begin_group()?;
            }
            let length = (batch.num_rows() - start).min(GROUP_ROWS - self.rows);
            let part = batch.slice(start, length);
            let is_alive =
                self.encoders.iter().all(|encoder| encoder.batches.send(part.clone()).is_ok());
            self.rows += length;
            start += length;
            // A thread that has ended has failed; ending the row group returns its error.
            if self.rows == GROUP_ROWS || !is_alive {
                self.end_group()?;
            }
        }
        Ok(())
    }

    /// Completes the file.
    pub fn finish(mut self) -> Result<Destination> {
        if !self.encoders.is_empty() {
            self.end_group()?;
        }
        self.file.into_inner()
    }

    fn begin_group(&mut self) -> Result<()> {
        let mut fields: Vec<Field> =
            (0..self.schema.fields().len()).map(|at| Field { at, leaves: Vec::new() }).collect();
        let description = self.file.schema_descr();
        for (leaf, writer) in
            self.factory.create_column_writers(self.groups)?.into_iter().enumerate()
        {
            fields[description.get_column_root_idx(leaf)].leaves.push((leaf, writer));
        }
        let mut shares: Vec<Vec<Field>> = (0..self.threads).map(|_| Vec::new()).collect();
        for field in fields {
            shares[field.at % self.threads].push(field);
        }
        for share in shares {
            let (batches, received) = sync_channel(WAITING);
            let schema = Arc::clone(&self.schema);
            let thread = std::thread::Builder::new()
                .name("encode".to_owned())
                .spawn(move || encode(&schema, share, &received))?;
            self.encoders.push(Encoder { batches, thread });
        }
        Ok(())
    }

    fn end_group(&mut self) -> Result<()> {
        let mut chunks = Vec::new();
        for Encoder { batches, thread } in std::mem::take(&mut self.encoders) {
            drop(batches);
            let encoded = thread
                .join()
                .map_err(|_| ParquetError::General("a thread that encodes panicked".to_owned()))?;
            chunks.extend(encoded?);
        }
        chunks.sort_unstable_by_key(|&(leaf, _)| leaf);
        let mut group = self.file.next_row_group()?;
        for (_, chunk) in chunks {
            chunk.append_to_row_group(&mut group)?;
        }
        group.close()?;
        self.groups += 1;
        self.rows = 0;
        Ok(())
    }
}

/// Encodes some columns of the batches of a row group.
fn encode(
    schema: &SchemaRef,
    mut fields: Vec<Field>,
    batches: &Receiver<RecordBatch>,
) -> Result<Vec<(usize, ArrowColumnChunk)>> {
    for batch in batches {
        for Field { at, leaves } in &mut fields {
            let values = compute_leaves(schema.field(*at), batch.column(*at))?;
            for ((_, writer), values) in leaves.iter_mut().zip(&values) {
                writer.write(values)?;
            }
        }
    }
    let leaves = fields.into_iter().flat_map(|field| field.leaves);
    leaves.map(|(leaf, writer)| Ok((leaf, writer.close()?))).collect()
}
