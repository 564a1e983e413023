//! Prefetches of records.

use std::sync::atomic::Ordering::Relaxed;

use super::PayloadLog;
use super::chunks::PayloadRef;
use crate::base::pipeline::{prefetch_read, prefetch_second_level};
use crate::storage::Cell64;

/// The number of records by which payloads are prefetched ahead of their use.
pub(in crate::engine::plush) const HINTED_AHEAD: usize = 16;
const LINE_BYTES: u64 = 64;
/// The largest number of lines of a record that are prefetched together.
const HINTED_LINES: u64 = 4;
/// The assumed length of records before the session has filled a chunk.
const UNKNOWN_BYTES: u64 = 2 * LINE_BYTES;

impl PayloadLog {
    /// Prefetches the first line of a record.
    #[inline]
    pub(in crate::engine::plush) fn hint(&self, word: u64) {
        let head: Option<&Cell64> = self.region.at(self.offset_of(PayloadRef::unpack(word)));
        head.into_iter().for_each(|head| prefetch_read(head));
    }

    /// Prefetches as many lines of a record as records have on average.
    #[inline]
    pub(in crate::engine::plush) fn hint_whole(&self, word: u64) {
        let at = self.offset_of(PayloadRef::unpack(word));
        let Some(head) = self.region.at::<Cell64>(at) else { return };
        let first: *const u8 = std::ptr::from_ref(head).cast();
        // Relaxed: a hint only.
        let bytes = match self.usual_bytes.load(Relaxed) {
            0 => UNKNOWN_BYTES,
            usual => u64::from(usual),
        };
        let end = at % LINE_BYTES + bytes;
        for line in 0..end.div_ceil(LINE_BYTES).clamp(1, HINTED_LINES) {
            prefetch_second_level(first.wrapping_add((line * LINE_BYTES) as usize));
        }
    }
}
