//! Records that move between buckets, many at a time: a fence for all copies, one for all metadata words.

use super::insert::copy_fingerprint;
use super::kinds::Kinds;
use super::layout::Bucket;
use super::segment::Core;
use crate::pm::Medium;

/// A record on its way: from a slot to a slot that is free.
pub(super) struct Move<'a> {
    pub(super) source: (&'a Bucket, usize),
    pub(super) target: (&'a Bucket, usize),
    /// Whether the target is the bucket after the record's home.
    pub(super) member: bool,
}

impl<T: Kinds> Core<T> {
    /// Makes the copies, in slots that nobody looks at yet, durable.
    pub(super) fn copy_all(&self, moves: &[Move<'_>]) {
        for Move { source, target, .. } in moves {
            let (key, value) = source.0.record(&self.pm, source.1);
            target.0.write_record(&self.pm, target.1, key, value);
        }
        // P3, P9, P21: the copies are durable before their buckets say so.
        self.pm.fence();
    }

    /// Has the target buckets say so, durably: every record is in both places. The caller has set their changing bits.
    pub(super) fn publish_all(&self, moves: &[Move<'_>]) {
        for Move { source, target, member } in moves {
            copy_fingerprint(&self.pm, source.0, source.1, target.0, target.1);
            target.0.publish(&self.pm, target.0.meta(&self.pm).with(target.1, *member));
        }
        // P4, P10, P22: a crash before the originals end leaves duplicates, which recovery removes.
        self.pm.fence();
    }

    /// Ends the originals: durable by the caller's next fence, which comes before their slots are used again.
    pub(super) fn strike_all(&self, moves: &[Move<'_>]) {
        for Move { source: (bucket, slot), .. } in moves {
            bucket.publish(&self.pm, bucket.meta(&self.pm).without(1 << slot));
        }
    }
}
