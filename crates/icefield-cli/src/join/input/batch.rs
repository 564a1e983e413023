//! Batches of rows, and the threads that read them ahead.

use std::sync::mpsc::{Receiver, SyncSender};

use arrow_array::RecordBatch;

use icefield_console::failure::Failure;

/// The most rows of a batch.
pub const BATCH_ROWS: usize = 1 << 16;
/// The number of batches that a thread may decode ahead of the consumer.
const AHEAD: usize = 2;

/// Rows in the order of their file.
pub struct Batch {
    /// The number of the first row, from 0.
    pub first_row: u64,
    /// The line on which each row begins, for messages about a text file; empty for other files.
    pub lines: Vec<u64>,
    /// The selected columns, in the file's order.
    pub records: RecordBatch,
}

impl Batch {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.records.num_rows()
    }

    /// Returns the name of row `at` for messages.
    pub fn name_of(&self, at: usize) -> String {
        match self.lines.get(at) {
            Some(line) => format!("line {line}"),
            None => format!("row {}", self.first_row + at as u64),
        }
    }
}

/// A message from a thread.
pub enum Event {
    Batch(Batch),
    /// A row group is complete. The next group comes from the next thread.
    GroupEnd,
    Failed(Failure),
}

/// Starts a thread that reads ahead.
pub fn spawn(
    read: impl FnOnce(&SyncSender<Event>) + Send + 'static,
) -> Result<Receiver<Event>, Failure> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(AHEAD);
    std::thread::Builder::new()
        .name("columns".to_owned())
        .spawn(move || read(&sender))
        .map_err(|error| Failure::Problem(format!("cannot start a thread: {error}")))?;
    Ok(receiver)
}
