//! Moves many records between buckets together: one fence for all copies, one for all metadata words.

use super::insert::copy_fingerprint;
use super::kinds::Kinds;
use super::layout::Bucket;
use super::segment::Core;
use crate::storage::Persist;

/// A planned move of a record into a free slot.
pub(super) struct Move<'a> {
    pub(super) source: (&'a Bucket, usize),
    pub(super) target: (&'a Bucket, usize),
    /// The record's home, if the target is the bucket after it.
    pub(super) home: Option<&'a Bucket>,
}

impl<T: Kinds> Core<T> {
    /// Copies the records durably into slots that readers do not see yet.
    pub(super) fn copy_all(&self, moves: &[Move<'_>]) {
        for Move { source, target, .. } in moves {
            let (key, value) = source.0.record(&self.storage, source.1);
            target.0.write_record(&self.storage, target.1, key, value);
        }
        // P3, P9, P21: the copies are durable before the metadata words refer to them.
        self.storage.fence();
    }

    /// Publishes the copies durably, so that every record is in both places. The caller has set the changing bits of
    /// the target buckets.
    pub(super) fn publish_all(&self, moves: &[Move<'_>]) {
        for Move { source, target, home } in moves {
            copy_fingerprint(&self.storage, source.0, source.1, target.0, target.1);
            if let Some(home) = home {
                home.note_spill(&self.storage);
            }
            let meta = target.0.meta(&self.storage).with(target.1, home.is_some());
            target.0.publish(&self.storage, meta);
        }
        // P4, P10, P22: a crash before the originals are removed leaves duplicates, which recovery removes.
        self.storage.fence();
    }

    /// Removes the originals. The caller's next fence makes this durable; no slot is reused before that fence.
    pub(super) fn strike_all(&self, moves: &[Move<'_>]) {
        for Move { source: (bucket, slot), .. } in moves {
            bucket.publish(&self.storage, bucket.meta(&self.storage).without(1 << slot));
        }
    }
}
