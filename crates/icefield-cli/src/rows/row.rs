//! A row, its source, and the result of reading it.

use std::fmt;
use std::io::{self, Read};

/// The texts of a row.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// The line on which the row begins, from 1.
    pub line: u64,
    /// The key's text.
    pub key: Vec<u8>,
    /// The value's text.
    pub value: Vec<u8>,
}

impl Row {
    /// Returns the size of its texts.
    pub fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

/// A malformed row.
#[derive(Debug, PartialEq, Eq)]
pub struct BadRow {
    /// The line on which the row begins, from 1.
    pub line: u64,
    /// The fault.
    pub reason: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// The result of reading a row. The inner error is a malformed row; the outer error ends reading.
pub type RowResult = io::Result<Result<Row, BadRow>>;

/// The source of rows.
pub type Input = Box<dyn Read + Send>;
