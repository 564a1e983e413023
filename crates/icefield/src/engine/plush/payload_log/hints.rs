//! Prefetches of records.

use std::sync::atomic::Ordering::Relaxed;

use super::PayloadLog;
use super::chunks::PayloadRef;
use crate::base::pipeline::{prefetch_read, prefetch_second_level};
use crate::storage::region::READ_LINES;
use crate::storage::{Cell64, Medium};

/// The number of records by which payloads are prefetched ahead of their use.
pub(in crate::engine::plush) const HINTED_AHEAD: usize = 16;
/// The assumed length of records before the session has filled a chunk.
const UNKNOWN_BYTES: u64 = 128;
/// The most that is read ahead of a record.
const MOST_BYTES: u64 = 4096;

impl PayloadLog {
    /// Prefetches the first line of a record.
    #[inline]
    pub(in crate::engine::plush) fn hint(&self, word: u64) {
        let head: Option<&Cell64> = self.region.at(self.offset_of(PayloadRef::unpack(word)));
        head.into_iter().for_each(|head| prefetch_read(head));
    }

    /// Prefetches a record as if it had the average length, from a disk too.
    #[inline]
    pub(in crate::engine::plush) fn hint_whole(&self, storage: &impl Medium, word: u64) {
        // Relaxed: a hint only.
        let bytes = match self.usual_bytes.load(Relaxed) {
            0 => UNKNOWN_BYTES,
            usual => u64::from(usual),
        };
        let offset = self.offset_of(PayloadRef::unpack(word));
        if let Some(head) = self.region.at::<Cell64>(offset) {
            storage.read_soon(std::ptr::from_ref(head).cast(), bytes.min(MOST_BYTES) as usize);
        }
        self.region.prefetch(offset, bytes, READ_LINES, prefetch_second_level);
    }
}
