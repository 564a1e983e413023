//! Big arrays in DRAM that are zero without anybody writing zeros.

use std::io;
use std::mem::needs_drop;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The page size that a processor's second-level TLB covers best: mappings of at least this size begin on such a
/// boundary.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A type of which all-zero bytes are a valid value.
///
/// # Safety
/// Zero bytes are a valid `Self`, `Self` needs no drop, and its alignment is at most 4096.
pub unsafe trait Zeroable {}

macro_rules! zeroable {
    ($($ty:ty),*) => {$(
        // SAFETY: an atomic integer: zero is a valid value, there is nothing to drop, and it is aligned to its size.
        unsafe impl Zeroable for $ty {}
    )*};
}
zeroable!(AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, AtomicI64);

// SAFETY: an array has no bytes of its own.
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}

/// A fixed array of zeroed `T`s in anonymous memory of its own. Pages appear at their first touch, huge ones where the
/// kernel has them; creating even a big array costs microseconds.
pub struct ZeroedArray<T: Zeroable> {
    start: NonNull<T>,
    len: usize,
    mapped_bytes: usize,
}

// SAFETY: owns its memory as a `Box<[T]>` would.
unsafe impl<T: Zeroable + Send> Send for ZeroedArray<T> {}
// SAFETY: gives out `&[T]` only.
unsafe impl<T: Zeroable + Sync> Sync for ZeroedArray<T> {}

impl<T: Zeroable> ZeroedArray<T> {
    /// An array of `len` zeroed elements.
    ///
    /// # Errors
    /// The size overflows, or the system has no address space or memory left for it.
    pub fn new(len: usize) -> io::Result<Self> {
        Self::with(len, map_zeroed)
    }

    /// As [`ZeroedArray::new`], for an array of which little is ever touched: on small pages, so that an element does
    /// not cost a huge one.
    ///
    /// # Errors
    /// As [`ZeroedArray::new`].
    pub fn sparse(len: usize) -> io::Result<Self> {
        Self::with(len, map)
    }

    fn with(len: usize, map: fn(usize) -> io::Result<NonNull<u8>>) -> io::Result<Self> {
        const {
            assert!(!needs_drop::<T>(), "elements are never dropped");
            assert!(align_of::<T>() <= 4096, "mappings are aligned to pages");
        }
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&bytes| bytes <= isize::MAX as usize - HUGE_PAGE_BYTES)
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::OutOfMemory,
                    "the array does not fit into the address space",
                )
            })?;
        if bytes == 0 {
            return Ok(Self { start: NonNull::dangling(), len, mapped_bytes: 0 });
        }
        let start = map(bytes)?;
        Ok(Self { start: start.cast(), len, mapped_bytes: bytes })
    }

    /// Has all pages there at once, so that no first touch waits for one.
    pub fn populate(&self) {
        if self.mapped_bytes > 0 && !cfg!(miri) {
            // SAFETY: our own mapping; what it holds stays. Only advice: before Linux 5.14 the first touches do it.
            let _ = unsafe {
                madvise(self.start.as_ptr().cast(), self.mapped_bytes, Advice::LinuxPopulateWrite)
            };
        }
    }

    /// Gives back all but the first `len` elements.
    pub fn shorten(&mut self, len: usize) {
        self.len = self.len.min(len);
        let kept_bytes = (self.len * size_of::<T>()).next_multiple_of(4096);
        // Miri knows whole mappings only.
        if kept_bytes < self.mapped_bytes && kept_bytes > 0 && !cfg!(miri) {
            // SAFETY: whole pages of our own mapping after the last element, and `self` is borrowed by nobody else.
            // Should it fail, the memory is given back with the rest.
            let given_back = unsafe {
                munmap(
                    self.start.as_ptr().cast::<u8>().add(kept_bytes).cast(),
                    self.mapped_bytes - kept_bytes,
                )
            };
            if given_back.is_ok() {
                self.mapped_bytes = kept_bytes;
            }
        }
    }
}

impl<T: Zeroable> Deref for ZeroedArray<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements were mapped at `start`, page-aligned; they are zero, which is valid (`Zeroable`), or
        // what was stored into them since. The mapping goes only when `self` is dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> Drop for ZeroedArray<T> {
    fn drop(&mut self) {
        if self.mapped_bytes > 0 {
            // SAFETY: our own mapping, and nobody can have a reference into it any more. Failure would leak it, no
            // worse.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.mapped_bytes) };
        }
    }
}

impl<T: Zeroable> std::fmt::Debug for ZeroedArray<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZeroedArray").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Maps `bytes > 0` of zeroed memory, on a huge page's boundary when it fills one.
fn map_zeroed(bytes: usize) -> io::Result<NonNull<u8>> {
    // Miri knows whole mappings only, and no advice.
    if bytes < HUGE_PAGE_BYTES || cfg!(miri) {
        return map(bytes);
    }
    // Map one huge page more than needed, then give back what lies before the boundary and after the end.
    let mapped_bytes = bytes + HUGE_PAGE_BYTES;
    let mapping = map(mapped_bytes)?.as_ptr();
    let lead_bytes = mapping.align_offset(HUGE_PAGE_BYTES);
    // Pages are the unit of unmapping: the last one of ours stays whole.
    let kept_bytes = bytes.next_multiple_of(4096);
    let start = mapping.wrapping_add(lead_bytes);
    // SAFETY: both ends lie inside the mapping made above, which nobody knows yet. `align_offset` of a page-aligned
    // address is below a huge page, and kept_bytes at most mapped_bytes - lead_bytes, as both are whole pages.
    unsafe {
        if lead_bytes > 0 {
            munmap(mapping.cast(), lead_bytes)?;
        }
        if lead_bytes + kept_bytes < mapped_bytes {
            munmap(start.add(kept_bytes).cast(), mapped_bytes - lead_bytes - kept_bytes)?;
        }
        // Only advice: a kernel without transparent huge pages refuses it, and nothing is lost.
        let _ = madvise(start.cast(), bytes, Advice::LinuxHugepage);
    }
    NonNull::new(start).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    // NORESERVE: an array may be sized for growth that never comes; only touched pages count.
    let flags =
        if cfg!(miri) { MapFlags::PRIVATE } else { MapFlags::PRIVATE | MapFlags::NORESERVE };
    // SAFETY: a new anonymous mapping at an address of the kernel's choice replaces nothing.
    let mapping = unsafe {
        mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)?
    };
    NonNull::new(mapping.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn starts_zeroed_and_keeps_what_is_stored() {
        for len in [1, 1000, HUGE_PAGE_BYTES / 8, HUGE_PAGE_BYTES / 8 + 1, 3 * HUGE_PAGE_BYTES / 8]
        {
            let array = ZeroedArray::<AtomicU64>::new(len).expect("small");
            assert_eq!(array.len(), len);
            assert_eq!(array.first().expect("not empty").load(Ordering::Relaxed), 0);
            array[len - 1].store(7, Ordering::Relaxed);
            assert_eq!(array.last().expect("not empty").load(Ordering::Relaxed), 7);
        }
    }

    #[test]
    fn a_shorter_array_keeps_its_beginning() {
        let mut array = ZeroedArray::<AtomicU64>::new(3 * HUGE_PAGE_BYTES / 8).expect("small");
        array[1000].store(7, Ordering::Relaxed);
        for (len, left) in
            [(1 << 20, 3 << 18), (2 << 18, 2 << 18), (5000, 5000), (5001, 5000), (1001, 1001)]
        {
            array.shorten(len);
            assert_eq!(array.len(), left);
            assert_eq!(array[1000].load(Ordering::Relaxed), 7);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no huge pages")]
    fn big_arrays_begin_on_a_huge_page() {
        let array = ZeroedArray::<[AtomicU64; 8]>::new(1 << 16).expect("4 MiB");
        assert_eq!(array.as_ptr() as usize % HUGE_PAGE_BYTES, 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri backs every page")]
    fn untouched_memory_is_free() {
        for make in [ZeroedArray::<AtomicU64>::new, ZeroedArray::sparse] {
            let array = make(1 << 34).expect("128 GiB of address space");
            array[1 << 33].store(1, Ordering::Relaxed);
            assert_eq!(array[1 << 33].load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn an_empty_array_maps_nothing() {
        assert!(ZeroedArray::<AtomicU8>::new(0).expect("nothing to map").is_empty());
    }

    #[test]
    fn absurd_sizes_are_an_error() {
        assert!(ZeroedArray::<AtomicU64>::new(usize::MAX / 4).is_err());
        assert!(ZeroedArray::<AtomicU64>::new(usize::MAX / 16).is_err());
    }
}
