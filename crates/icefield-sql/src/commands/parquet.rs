//! Writes Parquet, with the columns encoded in parallel.
//!
//! Each thread has some of the columns. It receives all batches of a row group, in order, and returns its columns
//! encoded; these are then written one after the other. A few batches wait for each thread, so memory is that of one
//! encoded row group.
//!
//! A column whose values do not fit a dictionary in one row group has none in the later ones, because each attempt
//! costs the time of looking up all values until the dictionary is full.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves,
};
use datafusion::parquet::basic::{Compression, Encoding, PageType};
use datafusion::parquet::errors::{ParquetError, Result};
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::parquet::file::writer::SerializedFileWriter;
use icefield_console::destination::Destination;

/// Number of rows in every row group but the last.
const GROUP_ROWS: usize = 1 << 20;
const COMPRESSION: Compression = Compression::SNAPPY;
/// Number of batches that wait for a thread.
const WAITING: usize = 4;

/// A file that is being written.
pub struct ParquetRows {
    file: SerializedFileWriter<Destination>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    threads: usize,
    /// Number of rows in every row group but the last.
    group_rows: usize,
    /// The leaves of the schema that have too many values for a dictionary.
    without_dictionary: BTreeSet<usize>,
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
        let properties = WriterProperties::builder().set_compression(COMPRESSION).build();
        let writer = ArrowWriter::try_new(file, Arc::clone(schema), Some(properties))?;
        let (file, factory) = writer.into_serialized_writer()?;
        let (schema, threads) =
            (Arc::clone(schema), threads.clamp(1, schema.fields().len().max(1)));
        Ok(Self {
            file,
            factory,
            schema,
            threads,
            group_rows: GROUP_ROWS,
            without_dictionary: BTreeSet::new(),
            encoders: Vec::new(),
            rows: 0,
            groups: 0,
        })
    }

    /// Appends rows.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut start = 0;
        while start < batch.num_rows() {
            if self.encoders.is_empty() {
                self.begin_group()?;
            }
            let length = (batch.num_rows() - start).min(self.group_rows - self.rows);
            let part = batch.slice(start, length);
            let is_alive =
                self.encoders.iter().all(|encoder| encoder.batches.send(part.clone()).is_ok());
            self.rows += length;
            start += length;
            // A thread that has ended has failed; ending the row group returns its error.
            if self.rows == self.group_rows || !is_alive {
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
        let overflowed = chunks.iter().filter(|(_, chunk)| !has_dictionary_alone(chunk));
        let overflowed: Vec<usize> = overflowed.map(|&(leaf, _)| leaf).collect();
        let mut group = self.file.next_row_group()?;
        for (_, chunk) in chunks {
            chunk.append_to_row_group(&mut group)?;
        }
        group.close()?;
        self.groups += 1;
        self.rows = 0;
        let known = self.without_dictionary.len();
        self.without_dictionary.extend(overflowed);
        if self.without_dictionary.len() > known {
            self.factory = self.factory_without_dictionaries()?;
        }
        Ok(())
    }

    /// Returns the maker of column writers without dictionaries for the columns that cannot have them.
    fn factory_without_dictionaries(&self) -> Result<ArrowRowGroupWriterFactory> {
        let mut properties = WriterProperties::builder().set_compression(COMPRESSION);
        for &leaf in &self.without_dictionary {
            let path = self.file.schema_descr().column(leaf).path().clone();
            properties = properties.set_column_dictionary_enabled(path, false);
        }
        // A file keeps the properties with which it was created, but column writers may come from any file.
        let other =
            ArrowWriter::try_new(io::sink(), Arc::clone(&self.schema), Some(properties.build()))?;
        Ok(other.into_serialized_writer()?.1)
    }
}

/// Returns whether all values of a column chunk are in its dictionary.
fn has_dictionary_alone(chunk: &ArrowColumnChunk) -> bool {
    let pages = chunk.close().metadata.page_encoding_stats();
    pages.is_none_or(|pages| {
        let mut pages = pages.iter().filter(|page| page.page_type != PageType::DICTIONARY_PAGE);
        pages.all(|page| page.encoding == Encoding::RLE_DICTIONARY)
    })
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    #[test]
    fn dictionaries_that_overflow_are_not_tried_again() {
        const GROUP: usize = 200_000;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows.parquet");
        let column = |number: fn(i64) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values((0..3 * GROUP as i64).map(number)))
        };
        let batch =
            RecordBatch::try_from_iter([("many", column(|at| at)), ("few", column(|at| at % 10))])
                .unwrap();
        let destination = Destination::create(&path, &[]).unwrap();
        let mut rows = ParquetRows::create(destination, batch.schema_ref(), 2).unwrap();
        rows.group_rows = GROUP;
        for start in (0..batch.num_rows()).step_by(7000) {
            rows.write(&batch.slice(start, 7000.min(batch.num_rows() - start))).unwrap();
        }
        rows.finish().unwrap().finish().unwrap();

        let reader =
            ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&path).unwrap()).unwrap();
        let groups = reader.metadata().row_groups();
        let dictionaries = groups.iter().map(|group| {
            let has = |column: usize| group.column(column).dictionary_page_offset().is_some();
            (has(0), has(1))
        });
        let expected = [(true, true), (false, true), (false, true)];
        assert_eq!(dictionaries.collect::<Vec<_>>(), expected);
        let read: Vec<_> = reader.build().unwrap().map(|batch| batch.unwrap()).collect();
        let read = arrow::compute::concat_batches(batch.schema_ref(), &read).unwrap();
        assert_eq!(read, batch);
    }
}
