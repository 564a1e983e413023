//! The role of a medium that copies bytes in and out.

use super::sealed::Sealed;
use crate::storage::bytes::{self, SharedBytes};
use crate::storage::region::Region;

/// Bulk bytes of a region: all data that does not lie in cells.
pub trait Bytes: Sealed {
    /// Copies `src` to byte `offset` of `region`. The words have no order: until a fence any subset may be durable.
    ///
    /// # Safety
    /// No other thread reads or writes the range meanwhile, and no reference from [`Bytes::read_bytes`] to it exists.
    ///
    /// # Panics
    /// The range lies outside the region.
    #[track_caller]
    unsafe fn write_bytes(&self, region: &Region, offset: u64, src: &[u8]);

    /// Like [`Bytes::write_bytes`], for many bytes that have not been accessed since the region grew over them. Where
    /// possible, they are written without clearing and mapping their pages first.
    ///
    /// # Safety
    /// As [`Bytes::write_bytes`].
    ///
    /// # Panics
    /// As [`Bytes::write_bytes`].
    #[track_caller]
    unsafe fn write_new_bytes(&self, region: &Region, offset: u64, src: &[u8]) {
        // SAFETY: the caller's contract.
        unsafe { self.write_bytes(region, offset, src) };
    }

    /// Returns the bytes at `offset`, or `None` when they lie outside the region.
    ///
    /// # Safety
    /// The range was written before by [`Bytes::write_bytes`] (or by a former process), that write happens before this
    /// call, and the range is not written again while the reference lives.
    unsafe fn read_bytes<'a>(
        &self,
        region: &'a Region,
        offset: u64,
        bytes: usize,
    ) -> Option<&'a [u8]>;

    /// Returns the bytes at `offset`, a multiple of 8, to be copied out or compared word by word; other threads may
    /// store to them meanwhile. `None` when the bytes, or the word that holds the last one, lie outside the region.
    #[inline(always)]
    #[track_caller]
    fn shared_bytes<'a>(
        &self,
        region: &'a Region,
        offset: u64,
        bytes: usize,
    ) -> Option<SharedBytes<'a>> {
        let words = region.slice_at(offset, bytes.div_ceil(size_of::<u64>()))?;
        Some(SharedBytes::new(words, bytes))
    }

    /// Stores `src` at `offset`, a multiple of 8, and zeros in the rest of the last word. The words are stored one by
    /// one in no order: until a fence any subset may be durable, and a thread that loads them meanwhile gets a mixture.
    ///
    /// # Panics
    /// The range lies outside the region.
    #[inline]
    #[track_caller]
    fn store_bytes(&self, region: &Region, offset: u64, src: &[u8]) {
        let words = region.slice_at(offset, src.len().div_ceil(size_of::<u64>()));
        let Some(words) = words else { panic!("bytes stored outside {}", region.name()) };
        bytes::store(words, src);
    }
}
