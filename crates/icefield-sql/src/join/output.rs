//! The rows that a partition returns, in batches of the session's size.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;

use crate::batch::batch_of;

/// Collects rows to batches of the right size.
pub struct Output {
    /// The columns.
    pub schema: SchemaRef,
    batch_size: usize,
    coalescer: BatchCoalescer,
    /// Number of rows still to return, for an output without columns.
    rows: usize,
}

impl Output {
    /// Returns an empty output with these columns.
    pub fn new(schema: SchemaRef, batch_size: usize) -> Self {
        let coalescer = BatchCoalescer::new(Arc::clone(&schema), batch_size)
            .with_biggest_coalesce_batch_size(Some(batch_size / 2));
        Self { schema, batch_size, coalescer, rows: 0 }
    }

    /// Adds rows.
    ///
    /// # Errors
    /// If the columns do not fit.
    pub fn push(&mut self, columns: Vec<ArrayRef>, rows: usize) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        if columns.is_empty() {
            self.rows += rows;
            return Ok(());
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        // Large parts are passed on as they are, small ones collected.
        for start in (0..rows).step_by(self.batch_size) {
            self.coalescer.push_batch(batch.slice(start, self.batch_size.min(rows - start)))?;
        }
        Ok(())
    }

    /// Returns a batch that is complete.
    ///
    /// # Errors
    /// If the batch cannot be made.
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.rows == 0 {
            return Ok(self.coalescer.next_completed_batch());
        }
        let rows = self.rows.min(self.batch_size);
        self.rows -= rows;
        Ok(Some(batch_of(&self.schema, Vec::new(), rows)?))
    }

    /// Completes the last batch, which may be small.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(&mut self) -> Result<()> {
        Ok(self.coalescer.finish_buffered_batch()?)
    }
}
