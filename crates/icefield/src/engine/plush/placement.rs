//! Where a key is placed: its hash, or its place in the order of all keys.

use super::partition::Ranges;
use crate::base::hash::Hash;
use crate::types::{Form, Raw, RecordForm};

/// Computes the value that is used as the hash of a key.
pub(super) struct Placement {
    hash: Hash,
    /// Present when the table is partitioned by ranges.
    ranges: Option<Ranges>,
}

impl Placement {
    pub(super) fn new(hash: Hash, ranges: Option<Ranges>) -> Self {
        Self { hash, ranges }
    }

    #[inline]
    pub(super) fn ranges(&self) -> Option<Ranges> {
        self.ranges
    }

    /// Returns the value that is used as the hash of a key. With ranges, the upper half is the key's place among all
    /// keys.
    #[inline]
    pub(super) fn of<R: RecordForm>(&self, key: &Raw<'_>) -> u64 {
        let hash = match R::KEY {
            Form::Word => self.hash.word(key.word()),
            _ => self.hash.bytes(key.bytes()),
        };
        match self.ranges {
            None => hash,
            Some(ranges) => ranges.place(key) | hash & u64::from(u32::MAX),
        }
    }
}
