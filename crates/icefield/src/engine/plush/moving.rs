//! Records that move from one entry to another.

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
