//! The results of model histories.

/// Results of model histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Histories run.
    pub histories: u64,
    /// Steps executed.
    pub steps: u64,
    /// Single operations, including those in batches.
    pub operations: u64,
    /// Clean reopenings.
    pub reopens: u64,
    /// Complete passes over a table, compared record by record.
    pub scans: u64,
    /// Calls, or short sequences of them, that only this design has.
    pub own_calls: u64,
}

impl Counts {
    /// Adds the results of another history.
    pub fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.steps += other.steps;
        self.operations += other.operations;
        self.reopens += other.reopens;
        self.scans += other.scans;
        self.own_calls += other.own_calls;
    }
}
