//! Columns in memory, accessed by row number.

use arrow_array::{Array, ArrayRef, LargeBinaryArray};
use arrow_select::interleave::interleave;

use super::failures::{internal, interrupted};
use super::input::Batches;
use icefield_console::failure::Failure;
use icefield_console::interrupt::Interrupt;

/// Maps row numbers to batches, by the first row of each batch.
#[derive(Debug, Default)]
pub struct Starts(Vec<u64>);

impl Starts {
    /// Adds a batch that begins with this row.
    pub fn push(&mut self, first_row: u64) {
        self.0.push(first_row);
    }

    /// Returns the batch of a row and the row's position in the batch. The position may be past the batch's end.
    fn place(&self, row: u64) -> Option<(usize, usize)> {
        let batch = self.0.partition_point(|&start| start <= row).checked_sub(1)?;
        Some((batch, usize::try_from(row - self.0[batch]).ok()?))
    }
}

/// The keys of the indexed file if they are bytes. They verify matches, because the index has only their hashes.
#[derive(Debug, Default)]
pub struct ByteKeys {
    starts: Starts,
    batches: Vec<LargeBinaryArray>,
}

impl ByteKeys {
    /// Adds the keys of the next batch, as returned by
    /// [`KeyType::keys`](crate::join_index::key_type::KeyType::keys).
    pub fn push(&mut self, first_row: u64, keys: &ArrayRef) -> Result<(), Failure> {
        let keys = keys.as_any().downcast_ref::<LargeBinaryArray>();
        let keys = keys.ok_or_else(|| internal("the keys are not bytes"))?;
        self.starts.push(first_row);
        self.batches.push(keys.clone());
        Ok(())
    }

    /// Returns whether the key of the row `row` is `key`.
    pub fn is(&self, row: u64, key: &[u8]) -> bool {
        self.starts.place(row).is_some_and(|(batch, at)| {
            let keys = &self.batches[batch];
            at < keys.len() && keys.is_valid(at) && keys.value(at) == key
        })
    }

    /// Returns all keys that are not null, with their row numbers.
    pub fn valid(&self) -> (Vec<&[u8]>, Vec<u64>) {
        let batches = self.starts.0.iter().zip(&self.batches);
        let rows = batches.flat_map(|(&start, keys)| {
            keys.iter().enumerate().filter_map(move |(at, key)| Some((key?, start + at as u64)))
        });
        rows.unzip()
    }
}

/// Columns of a file, completely in memory.
#[derive(Debug)]
pub struct LoadedColumns {
    starts: Starts,
    /// For each column, its batches.
    columns: Vec<Vec<ArrayRef>>,
    rows: u64,
}

impl LoadedColumns {
    /// Reads `count` columns. Calls `look` with each batch before the batch is stored.
    pub fn read(
        mut batches: Batches,
        count: usize,
        interrupt: &Interrupt,
        mut look: impl FnMut(&super::input::Batch) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let (mut starts, mut columns) = (Starts::default(), vec![Vec::new(); count]);
        while let Some(batch) = batches.next(interrupt)? {
            look(&batch)?;
            starts.push(batch.first_row);
            for (column, array) in columns.iter_mut().zip(batch.records.columns()) {
                column.push(ArrayRef::clone(array));
            }
        }
        Ok(Self { starts, columns, rows: batches.rows() })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the positions of rows among the batches; fails for a row that does not exist.
    pub fn places(&self, rows: &[u64]) -> Result<Vec<(usize, usize)>, Failure> {
        let place = |&row: &u64| match self.starts.place(row) {
            Some(place) if row < self.rows => Ok(place),
            _ => Err(Failure::Problem(format!(
                "the index refers to row {row}, but its file has {} rows",
                self.rows
            ))),
        };
        rows.iter().map(place).collect()
    }

    /// Returns the values of a column at these positions.
    pub fn take(&self, column: usize, places: &[(usize, usize)]) -> Result<ArrayRef, Failure> {
        let batches: Vec<&dyn Array> =
            self.columns[column].iter().map(|array| array.as_ref()).collect();
        interleave(&batches, places).map_err(internal)
    }
}

/// Fails after Ctrl-C.
pub fn go_on(interrupt: &Interrupt) -> Result<(), Failure> {
    if interrupt.asked() { Err(interrupted()) } else { Ok(()) }
}
