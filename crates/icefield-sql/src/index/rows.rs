//! The rows of a build: first written as columns, part by part, then read again as the keys of each part.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, UInt64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::NullEquality;
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use icefield::JoinSource;
use icefield_console::site::Site;

use super::columns::{Columns, place};
use super::keys::{ByPart, KeyForm};
use super::progress::Progress;
use super::writer::{CHUNK_ROWS, ColumnsWriter, compacted_batch};
use super::{COLUMNS, Index};
use crate::error::at_path;

/// Number of pairs that a source shows at once.
const SHOWN: usize = 4096;

/// The rows of a build, as far as they are known.
pub struct Rows<'a> {
    /// For each part, where its columns are until the library has created its directory, and their writer.
    parts: Vec<(PathBuf, ColumnsWriter)>,
    /// How keys become words.
    pub form: KeyForm,
    /// The positions of the key columns among the stored ones.
    pub keys: Vec<usize>,
    schema: SchemaRef,
    /// The number of rows.
    pub count: u64,
    /// The number of rows with a null in a key column.
    pub nulls: u64,
    progress: &'a dyn Progress,
}

impl<'a> Rows<'a> {
    /// Begins a build of this number of parts at a site. `keys` are the positions of the key columns among the stored
    /// ones.
    ///
    /// # Errors
    /// If a file cannot be created.
    pub fn new(
        parts: u32,
        keys: Vec<usize>,
        site: &Site,
        form: KeyForm,
        schema: &SchemaRef,
        progress: &'a dyn Progress,
    ) -> Result<Self> {
        let part = |part| {
            // The next build removes directories with this name if this process dies.
            let directory = site.path().with_file_name(format!(".table.creating-columns-{part}"));
            std::fs::create_dir(&directory).map_err(|error| at_path(&directory, error))?;
            let path = directory.join(COLUMNS);
            Ok((path.clone(), ColumnsWriter::create(path, schema)?))
        };
        Ok(Self {
            parts: (0..parts).map(part).collect::<Result<_>>()?,
            form,
            keys,
            schema: Arc::clone(schema),
            count: 0,
            nulls: 0,
            progress,
        })
    }

    /// Returns the number of rows of each part.
    pub fn of_parts(&self) -> Vec<u64> {
        self.parts.iter().map(|(_, writer)| writer.rows()).collect()
    }

    /// Writes the rest of the rows; returns where the columns of each part are.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn finish(self) -> Result<Vec<PathBuf>> {
        let finish = |(path, writer): (_, ColumnsWriter)| writer.finish().map(|()| path);
        self.parts.into_iter().map(finish).collect()
    }

    /// Adds the rows of a file.
    ///
    /// # Errors
    /// If the file cannot be read, or its rows not be written.
    pub async fn read(
        &mut self,
        file: Arc<dyn TableProvider>,
        columns: &[usize],
        context: &SessionContext,
    ) -> Result<()> {
        let state = context.state();
        let plan = file.scan(&state, Some(&columns.to_vec()), &[], None).await?;
        let mut batches = datafusion::physical_plan::execute_stream(plan, context.task_ctx())?;
        while let Some(batch) = batches.next().await {
            self.push(&batch?)?;
        }
        Ok(())
    }

    /// Adds rows of a part of a former index.
    ///
    /// # Errors
    /// If the former index is damaged, or the rows cannot be written.
    pub fn take(&mut self, former: &Index, range: Range<u64>) -> Result<()> {
        let mut start = range.start;
        while start < range.end {
            let (chunk, first) = place(start);
            let rows = (range.end - start).min((CHUNK_ROWS - first) as u64);
            let columns = (0..self.schema.fields().len()).map(|column| {
                Ok(former.columns().chunk(column, chunk)?.slice(first, rows as usize))
            });
            let batch =
                RecordBatch::try_new(Arc::clone(former.schema()), columns.collect::<Result<_>>()?)?;
            self.push(&batch)?;
            start += rows;
        }
        Ok(())
    }

    fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.progress.check()?;
        let columns: Vec<_> = self.keys.iter().map(|&key| Arc::clone(batch.column(key))).collect();
        let nulls = columns.iter().fold(None, |nulls, column| {
            NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref())
        });
        self.count += batch.num_rows() as u64;
        self.nulls += nulls.map_or(0, |nulls| nulls.null_count()) as u64;
        if let [(_, writer)] = &mut self.parts[..] {
            writer.push(batch)?;
        } else {
            let types: Vec<_> =
                self.keys.iter().map(|&key| self.schema.field(key).data_type()).collect();
            let words = self.form.words(&columns, &types, NullEquality::NullEqualsNull)?;
            let ByPart { order, ends } = ByPart::of(words.iter(), self.parts.len() as u32);
            let order = UInt64Array::from(order);
            let mut start = 0;
            for ((_, writer), end) in std::iter::zip(&mut self.parts, ends) {
                // A part may wait long for more rows. It keeps nothing of the others.
                let rows = order.slice(start, end - start);
                writer.push(&compacted_batch(&take_record_batch(batch, &rows)?)?)?;
                start = end;
            }
        }
        self.progress.read(self.count);
        Ok(())
    }
}

/// The pairs of words and row numbers of a part.
pub struct Source<'a> {
    /// The columns of all parts.
    pub columns: &'a Columns,
    /// The positions of the key columns.
    pub keys: &'a [usize],
    /// How keys become words.
    pub form: KeyForm,
    /// The chunks of the part.
    pub chunks: Range<usize>,
    /// Ends the build if it is asked to.
    pub progress: &'a dyn Progress,
}

impl JoinSource for Source<'_> {
    fn read(
        &self,
        part: usize,
        parts: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> icefield::Result<()>,
    ) -> icefield::Result<()> {
        let stopped =
            |error: DataFusionError| icefield::Error::Source { detail: error.to_string() };
        let (mut keys, mut rows) = (Vec::with_capacity(SHOWN), Vec::with_capacity(SHOWN));
        for chunk in self.chunks.clone().skip(part).step_by(parts.max(1)) {
            self.progress.check().map_err(stopped)?;
            let words = self.columns.words(chunk, self.keys, self.form).map_err(stopped)?;
            let first = (chunk * CHUNK_ROWS) as u64;
            for start in (0..words.len()).step_by(SHOWN) {
                let end = words.len().min(start + SHOWN);
                keys.clear();
                rows.clear();
                for at in (start..end).filter(|&at| words.is_valid(at)) {
                    keys.push(words.value(at));
                    rows.push(first + at as u64);
                }
                show(&keys, &rows)?;
            }
        }
        Ok(())
    }
}
