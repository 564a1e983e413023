//! The minimal medium: zeroed memory that is never flushed.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::lock;
use crate::storage::medium::{Bytes, Medium, Persist, Properties, Regions, SimHooks, Words};
use crate::storage::{Durability, Region};
use crate::{Error, Result};

/// Regions by name. To reopen, create a new store on the same medium.
#[derive(Default)]
pub struct Plain {
    regions: Mutex<HashMap<&'static str, (Region, Layout)>>,
    /// Ranges that were punched and not reserved since.
    pub punched: Mutex<Vec<(u64, u64)>>,
    /// Makes `reserve` fail.
    pub full: AtomicBool,
}

impl Drop for Plain {
    fn drop(&mut self) {
        for (region, layout) in lock(&self.regions).values() {
            // SAFETY: allocated in `region` with this layout; the stores that used it have been dropped.
            unsafe { dealloc(region.base().as_ptr(), *layout) };
        }
    }
}

impl crate::storage::medium::sealed::Sealed for Plain {}

impl Regions for Plain {
    fn region(&self, name: &'static str, max_bytes: u64) -> Result<Region> {
        let mut regions = lock(&self.regions);
        if let Some((region, _)) = regions.get(name) {
            return Ok(region.clone());
        }
        let layout = Layout::from_size_align(max_bytes as usize, 4096).expect("layout");
        // SAFETY: not of size zero; zeroed memory of the reserved size, which lives as long as the medium.
        let region = unsafe {
            let base = NonNull::new(alloc_zeroed(layout)).expect("memory");
            Region::new(name, base, 0, max_bytes)
        };
        regions.insert(name, (region.clone(), layout));
        Ok(region)
    }

    fn grow(&self, region: &Region, bytes: u64) -> Result<()> {
        if bytes > region.max_bytes() {
            return Err(Error::NoSpace { path: region.name().into(), needed_bytes: bytes });
        }
        region.set_len(bytes);
        Ok(())
    }

    fn grow_exactly(&self, region: &Region, bytes: u64) -> Result<()> {
        self.grow(region, bytes)
    }

    fn discard_region(&self, _: &'static str) -> Result<()> {
        Err(Error::Unsupported("nobody discards a blob store's regions".into()))
    }

    fn punch(&self, region: &Region, offset: u64, bytes: u64) -> Result<()> {
        assert!(offset + bytes <= region.len());
        // SAFETY: inside the region; the caller of `punch` uses nothing in the range.
        unsafe { region.base().as_ptr().add(offset as usize).write_bytes(0, bytes as usize) };
        lock(&self.punched).push((offset, bytes));
        Ok(())
    }

    fn reserve(&self, region: &Region, offset: u64, bytes: u64) -> Result<()> {
        if self.full.load(Ordering::Relaxed) {
            return Err(Error::NoSpace { path: region.name().into(), needed_bytes: bytes });
        }
        assert!(offset + bytes <= region.len());
        lock(&self.punched)
            .retain(|&(start, length)| start + length <= offset || offset + bytes <= start);
        Ok(())
    }
}

impl Words for Plain {
    const DIRECT_LOADS: bool = true;

    fn load32(&self, cell: &AtomicU32, order: Ordering) -> u32 {
        cell.load(order)
    }

    fn load64(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        cell.load(order)
    }

    fn store32(&self, cell: &AtomicU32, value: u32, order: Ordering) {
        cell.store(value, order);
    }

    fn store64(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        cell.store(value, order);
    }

    fn load_volatile32(&self, cell: &AtomicU32, order: Ordering) -> u32 {
        cell.load(order)
    }

    fn load_volatile64(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        cell.load(order)
    }

    fn store_volatile32(&self, cell: &AtomicU32, value: u32, order: Ordering) {
        cell.store(value, order);
    }

    fn store_volatile64(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        cell.store(value, order);
    }

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

impl Bytes for Plain {
    unsafe fn write_bytes(&self, region: &Region, offset: u64, src: &[u8]) {
        assert!(offset + src.len() as u64 <= region.len());
        // SAFETY: inside the region; the caller guarantees exclusive access to the range.
        unsafe {
            region
                .base()
                .as_ptr()
                .add(offset as usize)
                .copy_from_nonoverlapping(src.as_ptr(), src.len())
        };
    }

    unsafe fn read_bytes<'a>(
        &self,
        region: &'a Region,
        offset: u64,
        bytes: usize,
    ) -> Option<&'a [u8]> {
        offset.checked_add(bytes as u64).filter(|&end| end <= region.len())?;
        // SAFETY: inside the region; the caller guarantees that no thread writes to it.
        Some(unsafe {
            std::slice::from_raw_parts(region.base().as_ptr().add(offset as usize), bytes)
        })
    }
}

impl Persist for Plain {
    fn flush(&self, _: *const u8, _: usize) {}

    fn fence(&self) {}
}

impl Properties for Plain {
    fn check_writable(&self) -> Result<()> {
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::Memory
    }

    fn path(&self) -> &Path {
        Path::new("plain")
    }
}

impl Medium for Plain {
    type Copied = Self;

    fn publish_created(&self) -> Result<()> {
        Ok(())
    }

    fn close(&self) {}
}

impl SimHooks for Plain {}
