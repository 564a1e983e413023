//! Reports about the progress of a build.

use datafusion::error::Result;

/// Receives reports about the progress of a build.
pub trait Progress: Sync {
    /// The number of rows that will be read, if it is known.
    fn total(&self, rows: Option<u64>);
    /// The number of rows that have been read.
    fn read(&self, rows: u64);
    /// Returns an error if the build is to end.
    ///
    /// # Errors
    /// The error that ends it.
    fn check(&self) -> Result<()>;
}

/// Reports nothing and never ends a build.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn total(&self, _: Option<u64>) {}

    fn read(&self, _: u64) {}

    fn check(&self) -> Result<()> {
        Ok(())
    }
}
