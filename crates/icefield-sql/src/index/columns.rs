//! The columns of an index: an Arrow IPC file in row order, mapped into memory and taken without copies.
//!
//! The file consists of chunks of [`CHUNK_ROWS`] rows, so the chunk and the place of a row follow from its number. A
//! column of a chunk is decoded when a row of it is first needed. Texts are validated when they are taken; those of a
//! whole chunk once. Dictionaries are resolved when the file is written.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch, UInt64Array,
    downcast_primitive, new_empty_array,
};
use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::compute::{cast, concat_batches, interleave, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::writer::FileWriter;
use arrow::ipc::{Block, MetadataVersion, root_as_footer};
use datafusion::error::{DataFusionError, Result};
use icefield::base::hash::{Hash, HashKind};
use memmap2::Mmap;

use super::keys::values_of;
use crate::batch::batch_of;
use crate::error::{at_path, damaged};

/// The name of the file in the directory of an index.
pub const NAME: &str = "columns.arrow";
/// Number of rows in every chunk but the last.
pub const CHUNK_ROWS: usize = 1 << 18;
/// Length of the end of an Arrow file: the length of the footer and the magic word.
const TRAILER: usize = 10;

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
fn compacted(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => Arc::clone(column),
    }
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
    /// Creates the file in `directory`, for batches of `schema`.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(directory: &Path, schema: &Schema) -> Result<Self> {
        let path = directory.join(NAME);
        let file = File::create_new(&path).map_err(|error| at_path(&path, error))?;
        let schema = stored_schema(schema);
        let writer = FileWriter::try_new(BufWriter::with_capacity(1 << 20, file), &schema)?;
        Ok(Self { path, schema, writer, waiting: Vec::new(), waiting_rows: 0, rows: 0 })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = std::iter::zip(batch.columns(), self.schema.fields())
            .map(|(column, field)| Ok(cast(column, field.data_type())?));
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
        let columns = chunk.columns().iter().map(compacted).collect();
        let chunk = batch_of(&self.schema, columns, chunk.num_rows())?;
        self.waiting.clear();
        self.waiting_rows = 0;
        self.writer.write(&chunk).map_err(|error| self.fault(error.into()))
    }

    fn fault(&self, error: DataFusionError) -> DataFusionError {
        error.context(self.path.display().to_string())
    }

    /// Writes the rest, durably; returns the number of rows.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(mut self) -> Result<u64> {
        if self.waiting_rows > 0 {
            self.flush()?;
        }
        let finish = self.writer.finish().and_then(|()| Ok(self.writer.get_mut().flush()?));
        finish.map_err(|error| self.fault(error.into()))?;
        self.writer.get_ref().get_ref().sync_all().map_err(|error| at_path(&self.path, error))?;
        Ok(self.rows)
    }
}

/// The file, open for reading.
pub struct Columns {
    path: PathBuf,
    schema: SchemaRef,
    /// The same columns with texts as bytes.
    as_bytes: SchemaRef,
    rows: u64,
    file: Buffer,
    version: MetadataVersion,
    blocks: Vec<Block>,
    sums: [u64; 2],
    /// By column and chunk, with texts as bytes.
    decoded: Vec<Vec<OnceLock<ArrayRef>>>,
    /// By column and chunk: texts that have been validated.
    texts: Vec<Vec<OnceLock<ArrayRef>>>,
}

impl Columns {
    /// Maps the file in `directory`, which has this number of rows. `sums` are those that [`sums`](Self::sums) returned
    /// when the file was written; `None` if it has just been written.
    ///
    /// # Errors
    /// If the file cannot be opened or is damaged.
    pub fn open(directory: &Path, rows: u64, sums: Option<[u64; 2]>) -> Result<Self> {
        let path = directory.join(NAME);
        let file = File::open(&path).map_err(|error| at_path(&path, error))?;
        // SAFETY: this program does not change the file after it has written it. No other program does while it is
        // open, as `Index::open` and docs/crash-model.md require.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| at_path(&path, error))?;
        // The mapping is the owner of the buffer, so it lives as long as every array in it.
        let file = Buffer::from(bytes::Bytes::from_owner(map));
        let broken = |what: &str| damaged(&path, what);
        let end = file.len().checked_sub(TRAILER).ok_or_else(|| broken("the file is too short"))?;
        let mut trailer = [0; TRAILER];
        trailer.copy_from_slice(&file[end..]);
        let length = read_footer_length(trailer).map_err(|error| broken(&error.to_string()))?;
        let start = end.checked_sub(length).ok_or_else(|| broken("the footer is too long"))?;
        let hash = Hash::new(HashKind::Strong, [0, 0]);
        let footer_sum = hash.bytes(&file[start..]);
        if sums.is_some_and(|[of_footer, _]| of_footer != footer_sum) {
            return Err(broken("the checksum of the footer is wrong"));
        }
        let footer =
            root_as_footer(&file[start..end]).map_err(|error| broken(&error.to_string()))?;
        let schema = footer.schema().ok_or_else(|| broken("the footer has no schema"))?;
        let schema = Arc::new(fb_to_schema(schema));
        let blocks: Vec<Block> = footer.recordBatches().into_iter().flatten().copied().collect();
        if blocks.len() as u64 != rows.div_ceil(CHUNK_ROWS as u64) {
            return Err(broken("the number of chunks is wrong"));
        }
        if let Some(block) = blocks.iter().find(|block| extent(block, start).is_none()) {
            return Err(broken(&format!("a chunk at {} is outside the file", block.offset())));
        }
        let version = footer.version();
        let chunks = || blocks.iter().map(|_| OnceLock::new()).collect();
        let cells = || schema.fields().iter().map(|_| chunks()).collect();
        let (decoded, texts, sums_of_file) = (cells(), cells(), [footer_sum, 0]);
        let fields = schema.fields().iter().map(|field| match field.data_type() {
            DataType::Utf8View => {
                Arc::new(field.as_ref().clone().with_data_type(DataType::BinaryView))
            }
            _ => Arc::clone(field),
        });
        let as_bytes = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut columns = Self {
            schema,
            as_bytes,
            rows,
            file,
            version,
            decoded,
            texts,
            path,
            blocks,
            sums: sums_of_file,
        };
        columns.sums[1] = columns.headers_sum();
        if sums.is_some_and(|sums| sums != columns.sums) {
            return Err(damaged(&columns.path, "the checksum of the chunks' headers is wrong"));
        }
        Ok(columns)
    }

    /// Returns the checksums of everything that decoding relies on: of the footer, and of the chunks' headers.
    pub fn sums(&self) -> [u64; 2] {
        self.sums
    }

    fn headers_sum(&self) -> u64 {
        let hash = Hash::new(HashKind::Strong, [0, 0]);
        let headers = self.blocks.iter().map(|block| {
            let start = block.offset() as usize;
            hash.bytes(&self.file[start..start + block.metaDataLength() as usize])
        });
        headers.fold(0, |sum, header| hash.word(sum ^ header))
    }

    /// Returns the columns' names and types.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the number of chunks.
    pub fn chunks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns a column of a chunk.
    ///
    /// # Errors
    /// If the chunk is damaged.
    pub fn chunk(&self, column: usize, chunk: usize) -> Result<&ArrayRef> {
        let array = self.bytes(column, chunk)?;
        if self.schema.field(column).data_type() != &DataType::Utf8View {
            return Ok(array);
        }
        let texts = &self.texts[column][chunk];
        if let Some(texts) = texts.get() {
            return Ok(texts);
        }
        let array = self.texts_of(array)?;
        Ok(texts.get_or_init(|| array))
    }

    /// Returns a column of a chunk, with texts as bytes.
    fn bytes(&self, column: usize, chunk: usize) -> Result<&ArrayRef> {
        let decoded = &self.decoded[column][chunk];
        if let Some(array) = decoded.get() {
            return Ok(array);
        }
        let array = self.decode(column, chunk)?;
        Ok(decoded.get_or_init(|| array))
    }

    /// Returns bytes as texts.
    fn texts_of(&self, bytes: &ArrayRef) -> Result<ArrayRef> {
        let texts = bytes.as_binary_view().clone().to_string_view();
        let broken = |error: ArrowError| damaged(&self.path, &error.to_string());
        Ok(Arc::new(texts.map_err(broken)?))
    }

    fn decode(&self, column: usize, chunk: usize) -> Result<ArrayRef> {
        let broken = |what: &str| damaged(&self.path, &format!("chunk {chunk}: {what}"));
        let block = &self.blocks[chunk];
        let (start, length) =
            extent(block, self.file.len()).ok_or_else(|| broken("it is outside the file"))?;
        let bytes = self.file.slice_with_length(start, length);
        let decoder = FileDecoder::new(Arc::clone(&self.as_bytes), self.version);
        let batch = decoder
            .with_projection(vec![column])
            .read_record_batch(block, &bytes)
            .map_err(|error| broken(&error.to_string()))?
            .ok_or_else(|| broken("it is empty"))?;
        let rows = (self.rows - (chunk * CHUNK_ROWS) as u64).min(CHUNK_ROWS as u64);
        if batch.num_rows() as u64 != rows {
            return Err(broken("it has the wrong number of rows"));
        }
        Ok(Arc::clone(batch.column(0)))
    }

    /// Returns the values of a column in the given rows.
    ///
    /// # Errors
    /// If a row does not exist, or its chunk is damaged.
    pub fn take(&self, column: usize, rows: &[u64]) -> Result<ArrayRef> {
        if let Some(row) = rows.iter().find(|&&row| row >= self.rows) {
            let what = format!("row {row} does not exist: there are {}", self.rows);
            return Err(damaged(&self.path, &what));
        }
        if self.schema.field(column).data_type() == &DataType::Utf8View {
            return self.texts_of(&self.take_bytes(column, rows)?);
        }
        self.take_bytes(column, rows)
    }

    /// Returns the values of a column in the given rows, which exist, with texts as bytes.
    fn take_bytes(&self, column: usize, rows: &[u64]) -> Result<ArrayRef> {
        let data_type = self.as_bytes.field(column).data_type();
        if self.chunks() == 1 {
            let rows = UInt64Array::from(rows.to_vec());
            return Ok(compacted(&take(self.bytes(column, 0)?, &rows, None)?));
        }
        macro_rules! gather {
            ($type:ty, $chunks:expr, $rows:expr) => {
                Ok(gathered::<$type>(data_type, &$chunks, $rows))
            };
        }
        let place = |&row: &u64| (row as usize / CHUNK_ROWS, row as usize % CHUNK_ROWS);
        let places: Vec<_> = rows.iter().map(place).collect();
        // Chunks without a row among these are not decoded.
        let empty = new_empty_array(data_type);
        let mut chunks: Vec<&dyn Array> = vec![&empty; self.chunks().max(1)];
        let mut is_there = vec![false; self.chunks()];
        for &(chunk, _) in &places {
            if !std::mem::replace(&mut is_there[chunk], true) {
                chunks[chunk] = self.bytes(column, chunk)?;
            }
        }
        downcast_primitive! {
            data_type => (gather, chunks, rows),
            _ => Ok(compacted(&interleave(&chunks, &places)?))
        }
    }
}

/// Returns numbers of the given rows. The loads of different rows do not depend on one another, so the processor
/// overlaps their cache misses.
fn gathered<T: ArrowPrimitiveType>(
    data_type: &DataType,
    chunks: &[&dyn Array],
    rows: &[u64],
) -> ArrayRef {
    let chunks: Vec<&PrimitiveArray<T>> = chunks.iter().map(|chunk| chunk.as_primitive()).collect();
    let place = |row: u64| (row as usize / CHUNK_ROWS, row as usize % CHUNK_ROWS);
    let values: Vec<&[T::Native]> = chunks.iter().map(|chunk| &chunk.values()[..]).collect();
    let gathered = rows.iter().map(|&row| {
        let (chunk, at) = place(row);
        values[chunk][at]
    });
    let gathered = ScalarBuffer::from_iter(gathered);
    let is_valid = |&row: &u64| {
        let (chunk, at) = place(row);
        chunks[chunk].is_valid(at)
    };
    let has_nulls = chunks.iter().any(|chunk| chunk.null_count() > 0);
    let nulls = has_nulls.then(|| rows.iter().map(is_valid).collect());
    Arc::new(PrimitiveArray::<T>::new(gathered, nulls).with_data_type(data_type.clone()))
}

/// Returns the place of a chunk in the file and its length, if it ends before `end`.
fn extent(block: &Block, end: usize) -> Option<(usize, usize)> {
    let start = usize::try_from(block.offset()).ok()?;
    let header = usize::try_from(block.metaDataLength()).ok()?;
    let length = header.checked_add(usize::try_from(block.bodyLength()).ok()?)?;
    (start.checked_add(length)? <= end).then_some((start, length))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use arrow::array::{BooleanArray, Decimal128Array, Int32Array, StringArray, StringViewArray};
    use arrow::compute::cast;

    use super::*;

    #[test]
    fn rows_of_several_chunks() {
        const ROWS: usize = 2 * CHUNK_ROWS + 1000;
        let directory = tempfile::tempdir().unwrap();
        let some = |at: usize| (!at.is_multiple_of(7)).then_some(at);
        let texts: StringArray =
            (0..ROWS).map(|at| some(at).map(|at| format!("text {at}"))).collect();
        let few: ArrayRef =
            Arc::new((0..ROWS).map(|at| Some(format!("{}", at % 3))).collect::<StringArray>());
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let decimals: Decimal128Array = (0..ROWS).map(|at| some(at).map(|at| at as i128)).collect();
        let batch = RecordBatch::try_from_iter([
            ("number", Arc::new(Int32Array::from_iter_values(0..ROWS as i32)) as ArrayRef),
            (
                "nullable",
                Arc::new((0..ROWS).map(|at| some(at).map(|at| at as i32)).collect::<Int32Array>()),
            ),
            ("decimal", Arc::new(decimals.with_precision_and_scale(20, 3).unwrap())),
            ("view", Arc::new(texts.iter().collect::<StringViewArray>())),
            ("text", Arc::new(texts)),
            (
                "boolean",
                Arc::new(
                    (0..ROWS).map(|at| some(at).map(|at| at % 2 == 0)).collect::<BooleanArray>(),
                ),
            ),
            ("dictionary", cast(&few, &dictionary).unwrap()),
        ])
        .unwrap();
        let mut writer = ColumnsWriter::create(directory.path(), batch.schema_ref()).unwrap();
        let mut start = 0;
        for length in [1, CHUNK_ROWS - 1, CHUNK_ROWS + 10, 0, ROWS] {
            let length = length.min(ROWS - start);
            writer.push(&batch.slice(start, length)).unwrap();
            start += length;
        }
        assert_eq!(writer.finish().unwrap(), ROWS as u64);
        let columns = Columns::open(directory.path(), ROWS as u64, None).unwrap();
        assert_eq!(columns.chunks(), 3);
        let last = ROWS as u64 - 1;
        let rows = [0, last, 7, CHUNK_ROWS as u64, CHUNK_ROWS as u64 - 1, 5, 5, last - 3];
        for list in [&rows[..], &rows[2..3], &[]] {
            let indices = UInt64Array::from(list.to_vec());
            for (at, column) in batch.columns().iter().enumerate() {
                let stored = cast(column, &stored_type(column.data_type())).unwrap();
                let expected = take(&stored, &indices, None).unwrap();
                assert_eq!(
                    &columns.take(at, list).unwrap(),
                    &expected,
                    "{}",
                    columns.schema().field(at)
                );
            }
        }
        assert!(columns.take(0, &[last + 1]).is_err());
        assert!(Columns::open(directory.path(), ROWS as u64 + CHUNK_ROWS as u64, None).is_err());
        assert!(
            Columns::open(directory.path(), ROWS as u64, Some(columns.sums().map(|sum| sum ^ 1)))
                .is_err()
        );
    }
}
