//! Words and bytes of the real medium: plain atomic instructions and copies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Mapped;
use super::region_file::RegionFile;
use super::setting::Backing;
use crate::storage::medium::{Bytes, Words};
use crate::storage::region::Region;

impl Words for Mapped {
    const DIRECT_LOADS: bool = true;

    #[inline(always)]
    fn load32(&self, cell: &AtomicU32, order: Ordering) -> u32 {
        cell.load(order)
    }

    #[inline(always)]
    fn load64(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        cell.load(order)
    }

    #[inline(always)]
    fn store32(&self, cell: &AtomicU32, value: u32, order: Ordering) {
        cell.store(value, order);
    }

    #[inline(always)]
    fn store64(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        cell.store(value, order);
    }

    #[inline(always)]
    fn load_volatile32(&self, cell: &AtomicU32, order: Ordering) -> u32 {
        cell.load(order)
    }

    #[inline(always)]
    fn load_volatile64(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        cell.load(order)
    }

    #[inline(always)]
    fn store_volatile32(&self, cell: &AtomicU32, value: u32, order: Ordering) {
        cell.store(value, order);
    }

    #[inline(always)]
    fn store_volatile64(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        cell.store(value, order);
    }

    #[inline(always)]
    fn cas_volatile32(
        &self,
        cell: &AtomicU32,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> std::result::Result<u32, u32> {
        cell.compare_exchange_weak(current, new, success, failure)
    }

    #[inline(always)]
    fn cas_volatile64(
        &self,
        cell: &AtomicU64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> std::result::Result<u64, u64> {
        cell.compare_exchange_weak(current, new, success, failure)
    }
}

impl Mapped {
    /// Writes by a system call; returns whether that succeeded. Does nothing on persistent memory: there the page fault
    /// of a store to the mapping makes the file's new blocks durable, which a system call would not.
    fn written_by_call(&self, region: &Region, offset: u64, src: &[u8]) -> bool {
        let inside = offset.checked_add(src.len() as u64).is_some_and(|end| end <= region.len());
        let write = |file: Arc<RegionFile>| file.write(&self.io, offset, src).is_ok();
        inside && self.backing() == Backing::Shared && self.file_of(region).is_ok_and(write)
    }
}

impl Bytes for Mapped {
    #[inline(always)]
    unsafe fn write_bytes(&self, region: &Region, offset: u64, src: &[u8]) {
        let target = region.place(offset, src.len() as u64);
        assert!(target.is_some(), "a write of {} bytes outside {}", src.len(), region.name());
        if let Some(target) = target {
            // SAFETY: in bounds, as just asserted; the caller guarantees exclusive access to the range.
            unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), target.as_ptr(), src.len()) };
        }
    }

    unsafe fn write_new_bytes(&self, region: &Region, offset: u64, src: &[u8]) {
        if !self.written_by_call(region, offset, src) {
            // SAFETY: the caller's contract.
            unsafe { self.write_bytes(region, offset, src) };
        }
    }

    #[inline(always)]
    unsafe fn read_bytes<'a>(
        &self,
        region: &'a Region,
        offset: u64,
        bytes: usize,
    ) -> Option<&'a [u8]> {
        let start = region.place(offset, bytes as u64)?;
        // SAFETY: in bounds, as just checked; the caller guarantees that the range is not written while the reference
        // lives.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes) })
    }
}
