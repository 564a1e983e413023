//! A table of the tour, with its measurement and its crash test.

use std::path::Path;
use std::time::Duration;

use icefield::{Durable, Result};

use super::child::ChildArgs;
use super::measure::Speed;
use super::stage::Stage;
use icefield_console::failure::Failure;

/// A table type that the tour can load, crash and reopen.
pub trait Shown: Durable<Key = u64> + Sized {
    /// Creates a table.
    fn create(path: &Path) -> Result<Self>;
    /// Opens the table again.
    fn open(path: &Path) -> Result<Self>;
}

/// A table of the tour.
pub struct Design {
    /// The design's name.
    pub name: &'static str,
    /// The stored part of each order.
    pub values: &'static str,
    /// Measures the table's speed.
    pub measure: fn(&Stage<'_>, &Design) -> Result<Speed, Failure>,
    /// The crash test, for tables that outlive their processes.
    pub outlives: Option<Outlives>,
}

/// The crash test of a table whose records survive its process.
pub struct Outlives {
    /// Starts a process that loads a table, kills it, and checks the table. The last argument is the table's number in
    /// the tour.
    pub crash: fn(&Stage<'_>, &Design, usize) -> Result<Crash, Failure>,
    /// The work of the process that will be killed.
    pub child: fn(&ChildArgs) -> Result<(), Failure>,
}

/// The result of a crash.
pub struct Crash {
    /// The number of orders that the process had acknowledged when it was killed.
    pub acknowledged: u64,
    /// The number of acknowledged orders that were missing or wrong after the crash.
    pub lost: u64,
    /// The time from the call of `open` to the first answer.
    pub recovery: Duration,
    /// Other faults.
    pub faults: Vec<String>,
}
