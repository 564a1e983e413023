//! A file of columns, mapped into memory.
//!
//! A column of a chunk is decoded without copies, and without validating texts: they are read as bytes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::{Block, MetadataVersion, root_as_footer};
use datafusion::error::Result;
use icefield::base::hash::{Hash, HashKind};
use memmap2::Mmap;

use super::writer::CHUNK_ROWS;
use crate::error::{at_path, damaged};

/// Length of the end of an Arrow file: the length of the footer and the magic word.
const TRAILER: usize = 10;

/// Maps a file of an index.
///
/// # Errors
/// If the file cannot be opened.
pub fn mapped(path: &Path) -> Result<Buffer> {
    let file = File::open(path).map_err(|error| at_path(path, error))?;
    // SAFETY: this program does not change a file of an index after it has written it. No other program does while it is
    // open, as `Index::open` and docs/crash-model.md require.
    let map = unsafe { Mmap::map(&file) }.map_err(|error| at_path(path, error))?;
    // The mapping is the owner of the buffer, so it lives as long as every array in it.
    Ok(Buffer::from(bytes::Bytes::from_owner(map)))
}

/// A file of columns.
pub struct ColumnsFile {
    path: PathBuf,
    schema: SchemaRef,
    /// The same columns with texts as bytes.
    as_bytes: SchemaRef,
    rows: u64,
    file: Buffer,
    version: MetadataVersion,
    blocks: Vec<Block>,
    sums: [u64; 2],
}

impl ColumnsFile {
    /// Maps the file at `path`, which has this number of rows. `sums` are those that [`sums`](Self::sums) returned when
    /// the file was written; `None` if it has just been written.
    ///
    /// # Errors
    /// If the file cannot be opened or is damaged.
    pub fn open(path: PathBuf, rows: u64, sums: Option<[u64; 2]>) -> Result<Self> {
        let file = mapped(&path)?;
        let broken = |what: &str| damaged(&path, what);
        let end = file.len().checked_sub(TRAILER).ok_or_else(|| broken("the file is too short"))?;
        let mut trailer = [0; TRAILER];
        trailer.copy_from_slice(&file[end..]);
        let length = read_footer_length(trailer).map_err(|error| broken(&error.to_string()))?;
        let start = end.checked_sub(length).ok_or_else(|| broken("the footer is too long"))?;
        let footer_sum = Hash::new(HashKind::Strong, [0, 0]).bytes(&file[start..]);
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
        let fields = schema.fields().iter().map(|field| match field.data_type() {
            DataType::Utf8View => {
                Arc::new(field.as_ref().clone().with_data_type(DataType::BinaryView))
            }
            _ => Arc::clone(field),
        });
        let as_bytes = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let headers_sum = headers_sum(&file, &blocks);
        if sums.is_some_and(|[_, of_headers]| of_headers != headers_sum) {
            return Err(broken("the checksum of the chunks' headers is wrong"));
        }
        let sums = [footer_sum, headers_sum];
        Ok(Self { path, schema, as_bytes, rows, file, version, blocks, sums })
    }

    /// Returns where the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the checksums of everything that decoding relies on: of the footer, and of the chunks' headers.
    pub fn sums(&self) -> [u64; 2] {
        self.sums
    }

    /// Returns the checksum of the whole file. `check` is called with the number of bytes that have been read, and may
    /// end this.
    ///
    /// Complexity: one reading of the file.
    ///
    /// # Errors
    /// The error of `check`.
    pub fn sum(&self, mut check: impl FnMut(u64) -> Result<()>) -> Result<u64> {
        /// Number of bytes between two calls of `check`.
        const PIECE: usize = 16 << 20;
        let hash = Hash::new(HashKind::Strong, [0, 0]);
        let (mut sum, mut read) = (0, 0);
        for piece in self.file.chunks(PIECE) {
            sum = hash.word(sum ^ hash.bytes(piece));
            read += piece.len() as u64;
            check(read)?;
        }
        Ok(sum)
    }

    /// Returns the columns' names and types.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the columns' names and types, with texts as bytes.
    pub fn as_bytes(&self) -> &SchemaRef {
        &self.as_bytes
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.file.len() as u64
    }

    /// Returns the number of chunks.
    pub fn chunks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the number of rows of a chunk.
    pub fn chunk_rows(&self, chunk: usize) -> usize {
        (self.rows - (chunk * CHUNK_ROWS) as u64).min(CHUNK_ROWS as u64) as usize
    }

    /// Decodes a column of a chunk, with texts as bytes.
    ///
    /// # Errors
    /// If the chunk is damaged.
    pub fn decode(&self, column: usize, chunk: usize) -> Result<ArrayRef> {
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
        if batch.num_rows() != self.chunk_rows(chunk) {
            return Err(broken("it has the wrong number of rows"));
        }
        Ok(Arc::clone(batch.column(0)))
    }
}

fn headers_sum(file: &Buffer, blocks: &[Block]) -> u64 {
    let hash = Hash::new(HashKind::Strong, [0, 0]);
    let headers = blocks.iter().map(|block| {
        let start = block.offset() as usize;
        hash.bytes(&file[start..start + block.metaDataLength() as usize])
    });
    headers.fold(0, |sum, header| hash.word(sum ^ header))
}

/// Returns the place of a chunk in the file and its length, if it ends before `end`.
fn extent(block: &Block, end: usize) -> Option<(usize, usize)> {
    let start = usize::try_from(block.offset()).ok()?;
    let header = usize::try_from(block.metaDataLength()).ok()?;
    let length = header.checked_add(usize::try_from(block.bodyLength()).ok()?)?;
    (start.checked_add(length)? <= end).then_some((start, length))
}
