//! The thread that reads rows, converts them and collects them in batches.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::rows::{BadRow, Row, RowResult, Rows};
use crate::table::Types;
use crate::text::TextType;
use icefield_console::failure::Failure;

/// A row, converted for the table.
pub struct Record {
    /// The line on which the row begins in the input.
    pub line: u64,
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// Rows that become durable together, and the malformed rows found among them.
#[derive(Default)]
pub struct Batch {
    /// The converted rows.
    pub records: Vec<Record>,
    /// The malformed rows.
    pub bad: Vec<BadRow>,
}

/// A message from the reading thread. The thread closes the channel at the end of the input.
pub enum Event {
    /// The next rows.
    Batch(Batch),
    /// The input cannot be read further.
    Failed(Failure),
}

/// The number of batches that may wait in the channel, which limits how far the reader is ahead of the table.
const AHEAD: usize = 4;
/// A batch is full when its records have this number of bytes, whatever their number.
const BATCH_BYTES: usize = 4 << 20;

/// Starts the thread. It first converts the rows of `sample`, which have been read already, then those of `rows`. With
/// `strict`, it ends after the first malformed row. The thread is never joined, because when the command ends, the
/// thread may still wait for data from a pipe.
pub fn spawn(
    rows: Rows,
    sample: Vec<RowResult>,
    types: Types,
    batch_rows: usize,
    strict: bool,
) -> Result<Receiver<Event>, Failure> {
    let (sender, receiver) = sync_channel(AHEAD);
    let reader = Reader { types, batch_rows, strict, sender };
    thread::Builder::new()
        .name("rows".to_owned())
        .spawn(move || reader.run(rows, sample))
        .map_err(|error| Failure::Problem(format!("cannot start a thread: {error}")))?;
    Ok(receiver)
}

struct Reader {
    types: Types,
    batch_rows: usize,
    strict: bool,
    sender: SyncSender<Event>,
}

impl Reader {
    fn run(self, mut rows: Rows, sample: Vec<RowResult>) {
        let (mut batch, mut bytes) = (Batch::default(), 0);
        let mut sample = sample.into_iter();
        while let Some(row) = sample.next().or_else(|| rows.next()) {
            match row.map(|row| row.and_then(|row| self.convert(row))) {
                Ok(Ok(record)) => {
                    bytes += record.key.len() + record.value.len();
                    batch.records.push(record);
                }
                Ok(Err(bad)) => batch.bad.push(bad),
                Err(error) => {
                    self.send(&mut batch);
                    // Sending fails only if the command has ended, and then the failure is irrelevant.
                    let _ = self
                        .sender
                        .send(Event::Failed(Failure::Problem(format!("the input: {error}"))));
                    return;
                }
            }
            let stop = self.strict && !batch.bad.is_empty();
            let full =
                batch.records.len() + batch.bad.len() >= self.batch_rows || bytes >= BATCH_BYTES;
            if stop || full {
                let taken = self.send(&mut batch);
                bytes = 0;
                if stop || !taken {
                    return;
                }
            }
        }
        self.send(&mut batch);
    }

    fn convert(&self, row: Row) -> Result<Record, BadRow> {
        let bad =
            |column: &str, reason| BadRow { line: row.line, reason: format!("{column}: {reason}") };
        let Types { key, value, exact_keys, exact_values } = &self.types;
        Ok(Record {
            line: row.line,
            key: parse(key, &row.key, *exact_keys).map_err(|reason| bad("key", reason))?,
            value: parse(value, &row.value, *exact_values)
                .map_err(|reason| bad("value", reason))?,
        })
    }

    /// Sends the batch. Returns `false` if the receiver was dropped.
    fn send(&self, batch: &mut Batch) -> bool {
        self.sender.send(Event::Batch(std::mem::take(batch))).is_ok()
    }
}

fn parse(text_type: &TextType, text: &[u8], exact: bool) -> Result<Vec<u8>, String> {
    match exact {
        true => text_type.parse_exactly(text),
        false => text_type.parse(text),
    }
}
