//! The allocator for peers. Large arrays are on huge pages, which are allocated before the measurement; small
//! allocations come from mimalloc, on huge pages where the system has them.
//!
//! Icefield's tables map their own memory on huge pages. Without this allocator, peers on small pages would be compared
//! with tables on huge pages.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;
use std::ptr;

use libmimalloc_sys::{mi_option_large_os_pages, mi_option_set_enabled};
use mimalloc::MiMalloc;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Allocations of at least this size get their own mapping.
const BIG_BYTES: usize = 4 << 20;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A global allocator for programs that measure peers.
///
/// ```
/// use std::alloc::{GlobalAlloc, Layout};
/// let layout = Layout::array::<u64>(1 << 20).unwrap();
/// // SAFETY: the layout is not empty; what is freed is what was allocated.
/// unsafe {
///     let zeroed = icefield_peers::HugePages.alloc_zeroed(layout);
///     assert_eq!(*zeroed, 0);
///     icefield_peers::HugePages.dealloc(zeroed, layout);
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct HugePages;

/// Makes mimalloc use huge pages; runs before the first allocation.
extern "C" fn prefer_huge_pages() {
    // SAFETY: the call sets a number; mimalloc's options need no initialisation.
    unsafe { mi_option_set_enabled(mi_option_large_os_pages, true) };
}

// SAFETY: the loader calls the functions in this section once, before `main`, with C's calling convention.
#[used]
#[unsafe(link_section = ".init_array")]
static PREFER_HUGE_PAGES: extern "C" fn() = prefer_huge_pages;

fn is_big(layout: Layout) -> bool {
    layout.size() >= BIG_BYTES && layout.align() <= HUGE_PAGE_BYTES
}

fn mapped_bytes(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(HUGE_PAGE_BYTES)
}

/// Returns a new mapping of zeroed memory, aligned to a huge page; all its pages are present. Returns null on failure.
fn map(bytes: usize) -> *mut u8 {
    let Some(kept) = mapped_bytes(bytes) else { return ptr::null_mut() };
    let Some(mapped) = kept.checked_add(HUGE_PAGE_BYTES) else { return ptr::null_mut() };
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the system's choice overlaps no other memory.
    let Ok(mapping) =
        (unsafe { mmap_anonymous(ptr::null_mut(), mapped, access, MapFlags::PRIVATE) })
    else {
        return ptr::null_mut();
    };
    let mapping = mapping.cast::<u8>();
    let lead = mapping.align_offset(HUGE_PAGE_BYTES);
    let start = mapping.wrapping_add(lead);
    // SAFETY: all ranges lie inside the mapping made above, which is not yet shared; `lead` is less than a huge page.
    // A failure to unmap or advise only costs memory or speed: pages that are not made present here appear at their
    // first access.
    unsafe {
        if lead > 0 {
            let _ = munmap(mapping.cast(), lead);
        }
        if lead < HUGE_PAGE_BYTES {
            let _ = munmap(start.add(kept).cast(), HUGE_PAGE_BYTES - lead);
        }
        let _ = madvise(start.cast(), kept, Advice::LinuxHugepage);
        let _ = madvise(start.cast(), kept, Advice::LinuxPopulateWrite);
    }
    start
}

// SAFETY: large allocations are separate mappings, of at least the requested size and aligned to a huge page; all
// others are mimalloc's. The layout alone determines which of the two an allocation is.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_big(layout) {
            true => map(layout.size()),
            // SAFETY: the caller upholds `alloc`'s contract.
            false => unsafe { MiMalloc.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_big(layout) {
            true => map(layout.size()),
            // SAFETY: the caller upholds `alloc_zeroed`'s contract.
            false => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if !is_big(layout) {
            // SAFETY: the caller upholds `dealloc`'s contract; the allocation is not large, so it is mimalloc's.
            return unsafe { MiMalloc.dealloc(memory, layout) };
        }
        if let Some(bytes) = mapped_bytes(layout.size()) {
            // SAFETY: `map` made this mapping for this layout, and its owner no longer uses it. A failure would
            // leak it.
            let _ = unsafe { munmap(memory.cast::<c_void>(), bytes) };
        }
    }
}
