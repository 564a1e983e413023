//! Parquet columns compressed with zstd. The `parquet` crate would need a C library for them. Therefore their pages are
//! read as if they were not compressed, and then decompressed in Rust.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReader, RowGroups};
use parquet::arrow::parquet_to_arrow_field_levels;
use parquet::basic::Compression;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::batch::BATCH_ROWS;

/// The largest number of bytes in a page, because its header stores the size in 31 bits.
const MOST_BYTES: u64 = i32::MAX as u64;

/// Returns whether a column is compressed with zstd.
pub fn is_zstd(column: &ColumnChunkMetaData) -> bool {
    matches!(column.compression(), Compression::ZSTD(_))
}

/// Reads columns of a row group, some of which are compressed with zstd.
pub fn read(
    file: File,
    metadata: &ArrowReaderMetadata,
    mask: &ProjectionMask,
    group: usize,
) -> Result<ParquetRecordBatchReader> {
    let hint = Some(metadata.schema().fields());
    let levels = parquet_to_arrow_field_levels(metadata.parquet_schema(), mask.clone(), hint)?;
    let group = Group { file: Arc::new(file), metadata: Arc::clone(metadata.metadata()), group };
    ParquetRecordBatchReader::try_new_with_row_groups(&levels, &group, BATCH_ROWS, None)
}

/// A row group of a file.
struct Group {
    file: Arc<File>,
    metadata: Arc<ParquetMetaData>,
    group: usize,
}

impl Group {
    fn rows(&self) -> usize {
        self.metadata.row_group(self.group).num_rows().unsigned_abs() as usize
    }
}

impl RowGroups for Group {
    fn num_rows(&self) -> usize {
        self.rows()
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        let column = self.metadata.row_group(self.group).column(column);
        let reader =
            |column| SerializedPageReader::new(Arc::clone(&self.file), column, self.rows(), None);
        let pages: Box<dyn PageReader> = match is_zstd(column) {
            true => {
                let plain = column.clone().into_builder();
                let plain = plain.set_compression(Compression::UNCOMPRESSED).build()?;
                Box::new(Pages { compressed: reader(&plain)?, decoder: FrameDecoder::new() })
            }
            false => Box::new(reader(column)?),
        };
        Ok(Box::new(Chunk(Some(pages))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.metadata.row_group(self.group)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// An iterator over one item: the page reader of a column's only chunk in a row group.
struct Chunk(Option<Box<dyn PageReader>>);

impl Iterator for Chunk {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for Chunk {}

/// The pages of a chunk.
struct Pages {
    compressed: SerializedPageReader<File>,
    decoder: FrameDecoder,
}

impl Pages {
    /// Decompresses `bytes`, except for the first `uncompressed` bytes.
    fn plain(&mut self, bytes: &[u8], uncompressed: usize) -> Result<Vec<u8>> {
        let short = || ParquetError::General("a page is shorter than its levels".to_owned());
        let (head, mut rest) = bytes.split_at_checked(uncompressed).ok_or_else(short)?;
        let mut plain = head.to_vec();
        while !rest.is_empty() {
            let frame = StreamingDecoder::new_with_decoder(&mut rest, &mut self.decoder);
            let frame = frame.map_err(|error| ParquetError::External(Box::new(error)))?;
            let left = (MOST_BYTES + 1).saturating_sub(plain.len() as u64);
            frame.take(left).read_to_end(&mut plain)?;
            if plain.len() as u64 > MOST_BYTES {
                return Err(ParquetError::General("a page is larger than the limit".to_owned()));
            }
        }
        Ok(plain)
    }

    fn decompressed(&mut self, mut page: Page) -> Result<Page> {
        match &mut page {
            Page::DataPageV2 {
                buf,
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed,
                ..
            } => {
                if *is_compressed {
                    let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
                    *buf = self.plain(buf, levels as usize)?.into();
                    *is_compressed = false;
                }
            }
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => {
                *buf = self.plain(buf, 0)?.into();
            }
        }
        Ok(page)
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.compressed.get_next_page()?;
        page.map(|page| self.decompressed(page)).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.compressed.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.compressed.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.compressed.at_record_boundary()
    }
}
