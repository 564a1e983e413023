//! The thread that reads rows, converts them and bundles them into batches.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::failure::Failure;
use crate::rows::{BadRow, Row, RowResult, Rows};
use crate::table::Types;

/// A row as the table takes it.
pub struct Record {
    /// Where the row begins in the input.
    pub line: u64,
    /// The key's bytes.
    pub key: Vec<u8>,
    /// The value's bytes.
    pub value: Vec<u8>,
}

/// Rows that become durable together, with the malformed ones between them.
#[derive(Default)]
pub struct Batch {
    /// The good rows.
    pub records: Vec<Record>,
    /// The others.
    pub bad: Vec<BadRow>,
    /// How many bytes of the input had been read when the batch was full.
    pub consumed: u64,
}

/// What the thread has to say. When it hangs up, the input is at its end.
pub enum Event {
    /// The next rows.
    Batch(Batch),
    /// The input cannot be read further.
    Failed(Failure),
}

/// How many batches may wait: the reader is at most so far ahead of the table.
const AHEAD: usize = 4;

/// Starts the thread on `sample`, which has been read already, and then on `rows`. With `strict` it ends after the
/// first malformed row. Nobody waits for the thread: it may be stuck in a read from a silent pipe when the command
/// ends.
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
        let mut batch = Batch::default();
        let mut sample = sample.into_iter();
        while let Some(row) = sample.next().or_else(|| rows.next()) {
            match row.map(|row| row.and_then(|row| self.convert(row))) {
                Ok(Ok(record)) => batch.records.push(record),
                Ok(Err(bad)) => batch.bad.push(bad),
                Err(error) => {
                    self.send(&mut batch, &rows);
                    // The command may have ended; then nobody needs to know.
                    let _ = self
                        .sender
                        .send(Event::Failed(Failure::Problem(format!("the input: {error}"))));
                    return;
                }
            }
            let stop = self.strict && !batch.bad.is_empty();
            let full = batch.records.len() + batch.bad.len() >= self.batch_rows;
            if stop || full {
                let taken = self.send(&mut batch, &rows);
                if stop || !taken {
                    return;
                }
            }
        }
        self.send(&mut batch, &rows);
    }

    fn convert(&self, row: Row) -> Result<Record, BadRow> {
        let bad =
            |column: &str, reason| BadRow { line: row.line, reason: format!("{column}: {reason}") };
        Ok(Record {
            line: row.line,
            key: self.types.key.parse(&row.key).map_err(|reason| bad("key", reason))?,
            value: self.types.value.parse(&row.value).map_err(|reason| bad("value", reason))?,
        })
    }

    /// Hands the batch over; `false` when nobody takes it any more.
    fn send(&self, batch: &mut Batch, rows: &Rows) -> bool {
        let mut full = std::mem::take(batch);
        full.consumed = rows.consumed();
        self.sender.send(Event::Batch(full)).is_ok()
    }
}
