//! Large zeroed arrays in DRAM. Creating one writes no zeros: the kernel provides zeroed pages.

use std::io;
use std::mem::needs_drop;
use std::ops::{Deref, Range};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Mutex, PoisonError};

use super::addresses::Window;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The page size that a processor's second-level TLB covers best. Mappings of at least this size begin at a multiple of
/// it.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Mappings of growing arrays begin and end at multiples of this, the largest base page size of any machine.
const PAGE_BYTES: usize = 64 << 10;
/// At creation, a growing array reserves 1/`HELD_PART` of the addresses that its maximum size needs, within the two
/// bounds below. That suffices for a table of tens of gigabytes, and is little enough for a process with a limited
/// address space.
const HELD_PART: usize = 32;
const LEAST_HELD: usize = 16 << 20;
const MOST_HELD: usize = 1 << 30;
/// Growing arrays whose maximum size is at most this are mapped entirely at creation.
const LEAST_GROWING_BYTES: usize = 1 << 20;

/// A type for which all-zero bytes are a valid value.
///
/// # Safety
/// Zero bytes are a valid `Self`, `Self` needs no drop, and its alignment is at most 4096.
pub unsafe trait Zeroable {}

// SAFETY: an atomic integer: zero is a valid value, it needs no drop, and it is aligned to its size.
unsafe impl Zeroable for AtomicU8 {}
// SAFETY: as for `AtomicU8`.
unsafe impl Zeroable for AtomicU16 {}
// SAFETY: as for `AtomicU8`.
unsafe impl Zeroable for AtomicU32 {}
// SAFETY: as for `AtomicU8`.
unsafe impl Zeroable for AtomicU64 {}
// SAFETY: as for `AtomicU8`.
unsafe impl Zeroable for AtomicUsize {}
// SAFETY: as for `AtomicU8`.
unsafe impl Zeroable for AtomicI64 {}

// SAFETY: an array consists of its elements and has the same alignment.
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}

/// A fixed array of zeroed `T`s in its own anonymous memory. Pages are allocated at their first access, as huge pages
/// where the kernel provides them. Creating even a large array costs microseconds.
pub struct ZeroedArray<T: Zeroable> {
    start: NonNull<T>,
    len: usize,
    mapped_bytes: usize,
}

// SAFETY: owns its memory like a `Box<[T]>`.
unsafe impl<T: Zeroable + Send> Send for ZeroedArray<T> {}
// SAFETY: gives access to `&[T]` only.
unsafe impl<T: Zeroable + Sync> Sync for ZeroedArray<T> {}

impl<T: Zeroable> ZeroedArray<T> {
    /// Creates an array of `len` zeroed elements.
    ///
    /// # Errors
    /// Fails if the size overflows, or if the system has no address space or memory left for it.
    pub fn new(len: usize) -> io::Result<Self> {
        Self::with(len, map_zeroed)
    }

    /// Like [`ZeroedArray::new`], for an array that is accessed sparsely: on small pages, so that one element does not
    /// cost a huge page.
    ///
    /// # Errors
    /// Same as for [`ZeroedArray::new`].
    pub fn sparse(len: usize) -> io::Result<Self> {
        Self::with(len, map)
    }

    fn with(len: usize, map: fn(usize) -> io::Result<NonNull<u8>>) -> io::Result<Self> {
        const {
            assert!(!needs_drop::<T>(), "elements are never dropped");
            assert!(align_of::<T>() <= 4096, "mappings are aligned to pages");
        }
        let bytes = bytes_of::<T>(len)?;
        if bytes == 0 {
            return Ok(Self { start: NonNull::dangling(), len, mapped_bytes: 0 });
        }
        let start = map(bytes)?;
        Ok(Self { start: start.cast(), len, mapped_bytes: bytes })
    }

    /// Allocates all pages now, so that later accesses do not wait for them.
    pub fn populate(&self) {
        if self.mapped_bytes > 0 && !cfg!(miri) {
            // SAFETY: our own mapping, whose content is kept. This is only advice: before Linux 5.14 the first accesses
            // allocate.
            let _ = unsafe {
                madvise(self.start.as_ptr().cast(), self.mapped_bytes, Advice::LinuxPopulateWrite)
            };
        }
    }

    /// Unmaps all but the first `len` elements.
    pub fn shorten(&mut self, len: usize) {
        self.len = self.len.min(len);
        let kept_bytes = (self.len * size_of::<T>()).next_multiple_of(4096);
        // Miri supports only whole mappings.
        if kept_bytes < self.mapped_bytes && kept_bytes > 0 && !cfg!(miri) {
            // SAFETY: whole pages of our own mapping after the last element, and `self` is borrowed mutably. If this
            // fails, the memory is unmapped with the rest.
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
        // SAFETY: `len` elements are mapped at `start`, page-aligned. Each is zero, which is valid (`Zeroable`), or
        // holds the last value stored. The memory stays mapped until `self` is dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> Drop for ZeroedArray<T> {
    fn drop(&mut self) {
        if self.mapped_bytes > 0 {
            // SAFETY: our own mapping, to which no reference exists any more. If this fails, the memory leaks.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.mapped_bytes) };
        }
    }
}

impl<T: Zeroable> std::fmt::Debug for ZeroedArray<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZeroedArray").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A zeroed array that grows in place, in its own anonymous memory.
///
/// Memory is mapped only for the current length. The array also holds some of the addresses behind it (a 32nd of its
/// maximum size, between 16 MiB and 1 GiB), so that no other mapping is placed there. The addresses behind those are
/// left free (`base/addresses.rs`) and taken when they are needed, if they are still free.
pub struct GrowingArray<T: Zeroable> {
    start: NonNull<T>,
    len: AtomicUsize,
    most: usize,
    /// Locked while the array grows.
    bytes: Mutex<Bytes>,
    /// True if the array requests huge pages once it fills one.
    is_huge: bool,
    _window: Option<Window>,
}

/// The extent of an array, in bytes.
#[derive(Clone, Copy)]
struct Bytes {
    /// Mapped memory.
    mapped: usize,
    /// Held addresses, including the mapped ones.
    held: usize,
}

// SAFETY: owns its memory like a `Box<[T]>`.
unsafe impl<T: Zeroable + Send> Send for GrowingArray<T> {}
// SAFETY: gives access to `&[T]` only.
unsafe impl<T: Zeroable + Sync> Sync for GrowingArray<T> {}

impl<T: Zeroable> GrowingArray<T> {
    /// Creates an empty array that can grow to `most` elements, on huge pages once it fills one.
    ///
    /// # Errors
    /// Fails if the size overflows, or if the system has no addresses left.
    pub fn new(most: usize) -> io::Result<Self> {
        Self::with(most, true)
    }

    /// Like [`GrowingArray::new`], for an array that is accessed sparsely: on small pages.
    ///
    /// # Errors
    /// Same as for [`GrowingArray::new`].
    pub fn sparse(most: usize) -> io::Result<Self> {
        Self::with(most, false)
    }

    fn with(most: usize, is_huge: bool) -> io::Result<Self> {
        const {
            assert!(!needs_drop::<T>(), "elements are never dropped");
            assert!(align_of::<T>() <= 4096, "mappings are aligned to pages");
        }
        let most_bytes = bytes_of::<T>(most)?.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
        // Miri supports only whole mappings.
        let is_small = most_bytes <= LEAST_GROWING_BYTES || cfg!(miri);
        let window = (!is_small).then(Window::next);
        let (start, bytes) = match &window {
            Some(window) => hold(most_bytes, window)?,
            None => (map(most_bytes)?, Bytes { mapped: most_bytes, held: most_bytes }),
        };
        Ok(Self {
            start: start.cast(),
            len: AtomicUsize::new(0),
            most,
            bytes: Mutex::new(bytes),
            is_huge,
            _window: window,
        })
    }

    /// Grows the array to at least `len` elements; the new ones are zero.
    ///
    /// # Errors
    /// Fails if `len` exceeds the maximum, if another mapping lies behind the array, or if the process has no more
    /// addresses. The array is unchanged then.
    pub fn extend(&self, len: usize) -> io::Result<()> {
        // The mutex protects two numbers that a panic cannot leave inconsistent.
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: the length changes only under the lock.
        if len <= self.len.load(Relaxed) {
            return Ok(());
        }
        let no_more = |why: String| io::Error::new(io::ErrorKind::OutOfMemory, why);
        if len > self.most {
            return Err(no_more(format!("the array is at its limit of {} elements", self.most)));
        }
        let most = bytes_of::<T>(self.most)?.next_multiple_of(PAGE_BYTES);
        let needed = bytes_of::<T>(len)?.next_multiple_of(PAGE_BYTES);
        if needed > bytes.mapped {
            let twice = bytes.mapped.saturating_mul(2).min(most).max(needed);
            let start = self.start.cast();
            let grown = [twice, needed].into_iter().find_map(|end| bytes.grown(start, end).ok());
            *bytes = grown.ok_or_else(|| {
                no_more(format!(
                    "no address space to extend an array in place to {needed} bytes; open the table again, or raise \
                     `ulimit -v` (RLIMIT_AS)"
                ))
            })?;
        }
        if self.is_huge && needed >= HUGE_PAGE_BYTES && !cfg!(miri) {
            let whole = bytes.mapped / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
            // SAFETY: our own mapping; this is only advice.
            let _ = unsafe { madvise(self.start.as_ptr().cast(), whole, Advice::LinuxHugepage) };
        }
        // Release: pairs with the Acquire in `deref`; the elements are mapped.
        self.len.store(len, Release);
        Ok(())
    }
}

impl<T: Zeroable> Deref for GrowingArray<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements are mapped at `start`, page-aligned. Each is zero, which is valid (`Zeroable`), or
        // holds the last value stored. They stay mapped until `self` is dropped. Acquire: pairs with `extend`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len.load(Acquire)) }
    }
}

impl<T: Zeroable> Drop for GrowingArray<T> {
    fn drop(&mut self) {
        let held = self.bytes.get_mut().unwrap_or_else(PoisonError::into_inner).held;
        // SAFETY: our own mapping, to which no reference exists any more. If this fails, the memory leaks.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), held) };
    }
}

impl<T: Zeroable> std::fmt::Debug for GrowingArray<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrowingArray").field("len", &self.len()).finish_non_exhaustive()
    }
}

fn bytes_of<T>(len: usize) -> io::Result<usize> {
    len.checked_mul(size_of::<T>())
        .filter(|&bytes| bytes <= isize::MAX as usize - HUGE_PAGE_BYTES)
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::OutOfMemory,
                "the array does not fit into the address space",
            )
        })
}

impl Bytes {
    /// Maps zeroed memory up to byte `end` of the array at `start`.
    fn grown(self, start: NonNull<u8>, end: usize) -> io::Result<Self> {
        if end <= self.held {
            // SAFETY: the array holds these addresses and has no memory there yet.
            unsafe { map_at(start, self.mapped..end, MapFlags::FIXED) }?;
            return Ok(Self { mapped: end, ..self });
        }
        // SAFETY: `FIXED_NOREPLACE` replaces no mapping.
        unsafe { map_at(start, self.held..end, MapFlags::FIXED_NOREPLACE) }?;
        // SAFETY: the array holds these addresses and has no memory there yet.
        if let Err(error) = unsafe { map_at(start, self.mapped..self.held, MapFlags::FIXED) } {
            // SAFETY: unmaps only the memory mapped above.
            unsafe { munmap(start.as_ptr().wrapping_add(self.held).cast(), end - self.held) }?;
            return Err(error);
        }
        Ok(Self { mapped: end, held: end })
    }
}

/// Reserves addresses, without memory, for an array: at the start of a window, and on a huge page boundary if the array
/// can fill a huge page. Reserves fewer if the process has few addresses left.
fn hold(most: usize, window: &Window) -> io::Result<(NonNull<u8>, Bytes)> {
    let slack = if most >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { 0 };
    let mut held = (most / HELD_PART).clamp(LEAST_HELD, MOST_HELD).min(most);
    held = held.next_multiple_of(PAGE_BYTES);
    let mut free = window.bytes(held as u64, most as u64) as usize;
    let (taken, total) = loop {
        let total = free + slack;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let taken = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            mmap_anonymous(ptr::null_mut(), total, ProtFlags::empty(), flags)
        };
        match taken {
            Ok(taken) => break (taken.cast::<u8>(), total),
            Err(_) if free > PAGE_BYTES => {
                free = (free / 2).next_multiple_of(PAGE_BYTES);
                held = held.min(free);
            }
            Err(errno) => return Err(errno.into()),
        }
    };
    let lead = if slack == 0 { 0 } else { taken.addr().wrapping_neg() & (HUGE_PAGE_BYTES - 1) };
    let start = taken.wrapping_add(lead);
    // SAFETY: all parts lie inside the new mapping, on page boundaries, and nothing refers to them yet.
    unsafe {
        if lead > 0 {
            munmap(taken.cast(), lead)?;
        }
        if total > lead + held {
            munmap(start.wrapping_add(held).cast(), total - lead - held)?;
        }
    }
    let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
    Ok((start, Bytes { mapped: 0, held }))
}

/// Maps zeroed memory at the offsets `range` from the address `start`, in bytes.
///
/// # Safety
/// The caller holds the range, and no part of it is in use; or `flag` is `FIXED_NOREPLACE`.
unsafe fn map_at(start: NonNull<u8>, range: Range<usize>, flag: MapFlags) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let address = start.as_ptr().wrapping_add(range.start).cast();
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | flag;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the caller's contract.
    let mapped = unsafe { mmap_anonymous(address, range.len(), protection, flags) }?;
    if ptr::eq(mapped, address) {
        return Ok(());
    }
    // Kernels before 4.17 treat the address as a hint.
    // SAFETY: unmaps only the memory mapped above.
    unsafe { munmap(mapped, range.len()) }?;
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Maps `bytes > 0` of zeroed memory, on a huge page boundary if it fills a huge page.
fn map_zeroed(bytes: usize) -> io::Result<NonNull<u8>> {
    // Miri can unmap only whole mappings, and does not support `madvise`.
    if bytes < HUGE_PAGE_BYTES || cfg!(miri) {
        return map(bytes);
    }
    // Map one huge page more than needed, then unmap the parts before the boundary and after the end.
    let mapped_bytes = bytes + HUGE_PAGE_BYTES;
    let mapping = map(mapped_bytes)?.as_ptr();
    let lead_bytes = mapping.align_offset(HUGE_PAGE_BYTES);
    // Memory is unmapped in pages, so the array keeps the whole of its last page.
    let kept_bytes = bytes.next_multiple_of(4096);
    let start = mapping.wrapping_add(lead_bytes);
    // SAFETY: both parts lie inside the mapping made above, to which nothing refers yet. `align_offset` of a
    // page-aligned address is below a huge page, and kept_bytes is at most mapped_bytes - lead_bytes, as both are whole
    // pages.
    unsafe {
        if lead_bytes > 0 {
            munmap(mapping.cast(), lead_bytes)?;
        }
        if lead_bytes + kept_bytes < mapped_bytes {
            munmap(start.add(kept_bytes).cast(), mapped_bytes - lead_bytes - kept_bytes)?;
        }
        // Only advice: a kernel without transparent huge pages refuses it, which does no harm.
        let _ = madvise(start.cast(), bytes, Advice::LinuxHugepage);
    }
    NonNull::new(start).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    // NORESERVE: an array may be sized for growth that never happens; only accessed pages count.
    let flags =
        if cfg!(miri) { MapFlags::PRIVATE } else { MapFlags::PRIVATE | MapFlags::NORESERVE };
    // SAFETY: a new anonymous mapping at an address that the kernel chooses replaces nothing.
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
    #[cfg_attr(miri, ignore = "maps gigabytes, all of which Miri allocates")]
    fn growing_arrays_keep_what_they_hold() {
        // The maximum leaves room for mappings of other tests; the lengths lie within and beyond the addresses held.
        let array = GrowingArray::<AtomicU64>::new(1 << 34).expect("address space");
        assert!(array.is_empty());
        let held = MOST_HELD / 8;
        for len in [1, 2, 9000, 9000, 5, 1 << 20, held, held + 1] {
            let before = array.len();
            array.extend(len).expect("nothing lies behind it");
            assert_eq!(array.len(), len.max(before));
            for at in [before, (before + len) / 2, len - 1]
                .into_iter()
                .filter(|at| (before..len).contains(at))
            {
                assert_eq!(array[at].swap(at as u64 + 1, Relaxed), 0, "{at} of {len}");
                array[at].store(0, Relaxed);
            }
            array[len - 1].store(len as u64, Relaxed);
        }
        for len in [2, 9000, 1 << 20, held, held + 1] {
            assert_eq!(array[len - 1].load(Relaxed), len as u64);
        }
        let small = GrowingArray::<AtomicU64>::new(1000).expect("a page");
        small.extend(1000).expect("mapped at once");
        assert!(small.extend(1001).is_err());
        assert_eq!(small.len(), 1000);
        assert!(GrowingArray::<AtomicU64>::sparse(usize::MAX / 4).is_err());
        let none = GrowingArray::<AtomicU8>::sparse(0).expect("a page");
        assert!(none.extend(1).is_err() && none.is_empty());
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps at addresses of its choice")]
    fn growing_arrays_end_where_something_else_begins() {
        let array = GrowingArray::<AtomicU8>::new(1 << 40).expect("address space");
        array.extend(1).expect("held");
        // SAFETY: `FIXED_NOREPLACE` replaces no mapping.
        unsafe {
            map_at(array.start.cast(), MOST_HELD..MOST_HELD + PAGE_BYTES, MapFlags::FIXED_NOREPLACE)
        }
        .expect("free");
        array.extend(MOST_HELD).expect("held");
        assert!(array.extend(MOST_HELD + 1).is_err());
        assert_eq!(array.len(), MOST_HELD);
        array[MOST_HELD - 1].store(1, Relaxed);
        // SAFETY: mapped above.
        unsafe {
            munmap(array.start.as_ptr().cast::<u8>().wrapping_add(MOST_HELD).cast(), PAGE_BYTES)
        }
        .expect("mapped");
        array.extend(MOST_HELD + 1).expect("free again");
        assert_eq!(array[MOST_HELD - 1].load(Relaxed), 1);
    }

    #[test]
    fn absurd_sizes_are_an_error() {
        assert!(ZeroedArray::<AtomicU64>::new(usize::MAX / 4).is_err());
        assert!(ZeroedArray::<AtomicU64>::new(usize::MAX / 16).is_err());
    }
}
