//! Records that move from one entry to another, and migrations that are partly completed.

use super::words::Record;
use crate::types::RecordForm;

/// A record that moves to an entry, and its hash.
#[derive(Clone, Copy)]
pub(super) struct Moving<A, B> {
    pub(super) record: Record<A, B>,
    pub(super) hash: u64,
}

pub(super) type MovingOf<R> = Moving<<R as RecordForm>::KeyWords, <R as RecordForm>::ValueWords>;

/// The contribution of some records to the estimate of the number of records.
pub(super) fn counted<A, B>(records: &[Moving<A, B>]) -> i64 {
    records.iter().map(|moving| if moving.record.dead { -1 } else { 1 }).sum()
}

/// A partly completed migration of a level's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Underway {
    pub(super) level: usize,
    pub(super) index: u64,
    /// The next target: its place among the entries below.
    pub(super) place: usize,
}

/// A partly completed migration of the first records of a root entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Departing {
    /// Number of these records. They belong to the epoch before the entry's present one; later records belong to the
    /// present one.
    pub(super) records: usize,
    /// The next target: its place among the entries of level 1 for this root entry.
    pub(super) place: usize,
}
