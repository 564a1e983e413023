//! The columns of an index: files in row order, one for each part, mapped into memory and taken without copies.
//!
//! The files consist of chunks of [`CHUNK_ROWS`] rows; the last chunk of each file may have fewer. Chunks are numbered
//! through all files, and the number of a row is that of its chunk times [`CHUNK_ROWS`], and its place in the chunk. So
//! row numbers have gaps after the last row of each file, up to the next chunk.
//!
//! A column of a chunk is decoded when a row of it is first needed. Texts are validated when they are taken; those of a
//! whole chunk once.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, UInt64Array, downcast_primitive,
    new_empty_array,
};
use arrow::buffer::ScalarBuffer;
use arrow::compute::{interleave, take};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::NullEquality;
use datafusion::error::Result;

use super::file::ColumnsFile;
use super::keys::KeyForm;
use super::writer::{CHUNK_ROWS, compacted};
use crate::error::damaged;

/// Returns the chunk of a row, and its place there.
#[inline]
pub fn place(row: u64) -> (usize, usize) {
    (row as usize / CHUNK_ROWS, row as usize % CHUNK_ROWS)
}

/// The columns of an index.
pub struct Columns {
    path: PathBuf,
    schema: SchemaRef,
    rows: u64,
    files: Vec<ColumnsFile>,
    /// The number of rows of each chunk, and its file.
    chunks: Vec<(u32, u32)>,
    /// The first chunk of each file, and the end.
    firsts: Vec<usize>,
    /// By column and chunk, with texts as bytes.
    decoded: Vec<Vec<OnceLock<ArrayRef>>>,
    /// By column and chunk: texts that have been validated.
    texts: Vec<Vec<OnceLock<ArrayRef>>>,
}

impl Columns {
    /// Returns the columns of the index at `path`, of files that follow one another.
    ///
    /// # Errors
    /// If `files` is empty, or two files have different columns.
    pub fn of(path: &Path, files: Vec<ColumnsFile>) -> Result<Self> {
        let Some(first) = files.first() else { return Err(damaged(path, "it has no parts")) };
        let schema = Arc::clone(first.schema());
        if let Some(other) = files.iter().find(|file| *file.schema() != schema) {
            return Err(damaged(other.path(), "its columns are not those of the other parts"));
        }
        let (mut chunks, mut firsts) = (Vec::new(), vec![0]);
        for (at, file) in (0_u32..).zip(&files) {
            chunks.extend((0..file.chunks()).map(|chunk| (file.chunk_rows(chunk) as u32, at)));
            firsts.push(chunks.len());
        }
        let rows = chunks.iter().map(|&(rows, _)| u64::from(rows)).sum();
        let cells = || {
            let cells = || chunks.iter().map(|_| OnceLock::new()).collect();
            schema.fields().iter().map(|_| cells()).collect()
        };
        let (decoded, texts) = (cells(), cells());
        let path = path.to_owned();
        Ok(Self { path, schema, rows, files, chunks, firsts, decoded, texts })
    }

    /// Returns the files.
    pub fn files(&self) -> &[ColumnsFile] {
        &self.files
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
        self.chunks.len()
    }

    /// Returns the number of rows of a chunk, and the part to which it belongs.
    pub fn extent(&self, chunk: usize) -> (usize, u32) {
        let (rows, part) = self.chunks[chunk];
        (rows as usize, part)
    }

    /// Returns the chunks of a part.
    pub fn chunks_of(&self, part: usize) -> Range<usize> {
        self.firsts[part]..self.firsts[part + 1]
    }

    /// Returns one of the row numbers that do not exist.
    pub fn missing(&self, rows: &[u64]) -> Option<u64> {
        if self.files.len() == 1 {
            return rows.iter().copied().find(|&row| row >= self.rows);
        }
        let is_there = |row| {
            let (chunk, at) = place(row);
            self.chunks.get(chunk).is_some_and(|&(rows, _)| at < rows as usize)
        };
        rows.iter().copied().find(|&row| !is_there(row))
    }

    fn file_of(&self, chunk: usize) -> (&ColumnsFile, usize) {
        let file = self.chunks[chunk].1 as usize;
        (&self.files[file], chunk - self.firsts[file])
    }

    /// Returns the words of the keys of a chunk, as an index has them. `keys` are the positions of the key columns.
    ///
    /// # Errors
    /// If the chunk is damaged.
    pub fn words(&self, chunk: usize, keys: &[usize], form: KeyForm) -> Result<UInt64Array> {
        let columns = keys.iter().map(|&key| self.chunk(key, chunk).cloned());
        let types: Vec<_> = keys.iter().map(|&key| self.schema.field(key).data_type()).collect();
        form.words(&columns.collect::<Result<Vec<_>>>()?, &types, NullEquality::NullEqualsNull)
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
        let array = Self::texts_of(array, self.file_of(chunk).0.path())?;
        Ok(texts.get_or_init(|| array))
    }

    /// Returns a column of a chunk, with texts as bytes.
    fn bytes(&self, column: usize, chunk: usize) -> Result<&ArrayRef> {
        let decoded = &self.decoded[column][chunk];
        if let Some(array) = decoded.get() {
            return Ok(array);
        }
        let (file, of_file) = self.file_of(chunk);
        let array = file.decode(column, of_file)?;
        Ok(decoded.get_or_init(|| array))
    }

    /// Returns bytes as texts.
    fn texts_of(bytes: &ArrayRef, path: &Path) -> Result<ArrayRef> {
        let texts = bytes.as_binary_view().clone().to_string_view();
        Ok(Arc::new(texts.map_err(|error| damaged(path, &error.to_string()))?))
    }

    /// Returns the values of a column in the given rows.
    ///
    /// # Errors
    /// If a row does not exist, or its chunk is damaged.
    pub fn take(&self, column: usize, rows: &[u64]) -> Result<ArrayRef> {
        if let Some(row) = self.missing(rows) {
            return Err(damaged(&self.path, &format!("row {row} does not exist")));
        }
        if self.schema.field(column).data_type() == &DataType::Utf8View {
            return Self::texts_of(&self.take_bytes(column, rows)?, &self.path);
        }
        self.take_bytes(column, rows)
    }

    /// Returns the values of a column in the given rows, which exist, with texts as bytes.
    fn take_bytes(&self, column: usize, rows: &[u64]) -> Result<ArrayRef> {
        let data_type = self.files[0].as_bytes().field(column).data_type();
        if self.chunks() == 1 {
            let rows = UInt64Array::from(rows.to_vec());
            return Ok(compacted(&take(self.bytes(column, 0)?, &rows, None)?));
        }
        macro_rules! gather {
            ($type:ty, $chunks:expr, $rows:expr) => {
                Ok(gathered::<$type>(data_type, &$chunks, $rows))
            };
        }
        let places: Vec<_> = rows.iter().map(|&row| place(row)).collect();
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use arrow::array::{
        BooleanArray, Decimal128Array, Int32Array, RecordBatch, StringArray, StringViewArray,
    };
    use arrow::compute::cast;

    use super::super::writer::{ColumnsWriter, stored_type};
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
        let path = |name: &str| directory.path().join(name);
        // All rows in one file, and rows of three files, of which one is empty.
        let lengths: [&[usize]; 2] = [&[ROWS], &[CHUNK_ROWS + 3, 0, ROWS - CHUNK_ROWS - 3]];
        for (at, lengths) in lengths.into_iter().enumerate() {
            let mut next = 0;
            let mut files = Vec::new();
            for (file, &rows) in lengths.iter().enumerate() {
                let path = path(&format!("{at}-{file}.arrow"));
                let mut writer = ColumnsWriter::create(path.clone(), batch.schema_ref()).unwrap();
                let end = next + rows;
                for length in [1, CHUNK_ROWS - 1, CHUNK_ROWS + 10, 0, ROWS] {
                    let length = length.min(end - next);
                    writer.push(&batch.slice(next, length)).unwrap();
                    next += length;
                }
                assert_eq!(writer.rows(), rows as u64);
                writer.finish().unwrap();
                files.push(ColumnsFile::open(path, rows as u64, None).unwrap());
            }
            let columns = Columns::of(directory.path(), files).unwrap();
            assert_eq!((columns.chunks(), columns.rows()), (3 + lengths.len() / 2, ROWS as u64));
            // The row numbers of all rows, in order.
            let numbers: Vec<u64> = (0..columns.chunks())
                .flat_map(|chunk| {
                    let first = (chunk * CHUNK_ROWS) as u64;
                    first..first + columns.extent(chunk).0 as u64
                })
                .collect();
            assert_eq!(numbers.len(), ROWS);
            let last = ROWS - 1;
            let rows = [0, last, 7, CHUNK_ROWS, CHUNK_ROWS - 1, 5, 5, last - 3, CHUNK_ROWS + 2];
            for list in [&rows[..], &rows[2..3], &[]] {
                let indices = UInt64Array::from_iter_values(list.iter().map(|&row| row as u64));
                let list: Vec<u64> = list.iter().map(|&row| numbers[row]).collect();
                for (at, column) in batch.columns().iter().enumerate() {
                    let stored = cast(column, &stored_type(column.data_type())).unwrap();
                    let expected = take(&stored, &indices, None).unwrap();
                    let found = columns.take(at, &list).unwrap();
                    assert_eq!(&found, &expected, "{}", columns.schema().field(at));
                }
            }
            assert!(columns.take(0, &[numbers[last] + 1]).is_err());
            if lengths.len() > 1 {
                assert!(columns.take(0, &[numbers[CHUNK_ROWS + 2] + 1]).is_err());
                assert_eq!((columns.chunks_of(0), columns.chunks_of(1)), (0..2, 2..2));
            }
        }
        let open = |rows, sums| ColumnsFile::open(path("0-0.arrow"), rows, sums);
        let sums = open(ROWS as u64, None).unwrap().sums();
        assert!(open(ROWS as u64, Some(sums)).is_ok());
        assert!(open(ROWS as u64 + CHUNK_ROWS as u64, None).is_err());
        assert!(open(ROWS as u64, Some(sums.map(|sum| sum ^ 1))).is_err());
    }
}
