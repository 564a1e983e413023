//! The allocator under the peers: big arrays on huge pages that are there before anybody measures, small things from
//! mimalloc, likewise on huge pages where the system has them.
//!
//! Icefield's tables map their memory themselves, on huge pages; without this, a comparison would be one of page
//! tables.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;
use std::ptr;

use libmimalloc_sys::{mi_option_large_os_pages, mi_option_set_enabled};
use mimalloc::MiMalloc;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// From so many bytes on an allocation is a mapping of its own.
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

/// Lets mimalloc ask for huge pages, before anything is allocated.
extern "C" fn prefer_huge_pages() {
    // SAFETY: sets a number; mimalloc's options need no initialisation.
    unsafe { mi_option_set_enabled(mi_option_large_os_pages, true) };
}

// SAFETY: the loader runs what this section points to once, before `main`, with a C function's conventions.
#[used]
#[unsafe(link_section = ".init_array")]
static PREFER_HUGE_PAGES: extern "C" fn() = prefer_huge_pages;

fn is_big(layout: Layout) -> bool {
    layout.size() >= BIG_BYTES && layout.align() <= HUGE_PAGE_BYTES
}

fn mapped_bytes(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(HUGE_PAGE_BYTES)
}

/// Zeroed memory of its own, on a huge page's boundary and present; null when there is none.
fn map(bytes: usize) -> *mut u8 {
    let Some(kept) = mapped_bytes(bytes) else { return ptr::null_mut() };
    let Some(mapped) = kept.checked_add(HUGE_PAGE_BYTES) else { return ptr::null_mut() };
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the system's choice touches nobody's memory.
    let Ok(mapping) =
        (unsafe { mmap_anonymous(ptr::null_mut(), mapped, access, MapFlags::PRIVATE) })
    else {
        return ptr::null_mut();
    };
    let mapping = mapping.cast::<u8>();
    let lead = mapping.align_offset(HUGE_PAGE_BYTES);
    let start = mapping.wrapping_add(lead);
    // SAFETY: all ranges lie inside the mapping made above, which nobody knows yet: `lead` is below a huge page. What
    // cannot be given back or advised costs memory or speed, no more; pages that cannot be made present appear at their
    // first touch.
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

// SAFETY: big allocations are mappings of their own, of at least the size asked for and aligned to a huge page; all
// others are mimalloc's. Which of the two an allocation is follows from its layout alone.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_big(layout) {
            true => map(layout.size()),
            // SAFETY: the caller's promise.
            false => unsafe { MiMalloc.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_big(layout) {
            true => map(layout.size()),
            // SAFETY: the caller's promise.
            false => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if !is_big(layout) {
            // SAFETY: the caller's promise; not big, so it is mimalloc's.
            return unsafe { MiMalloc.dealloc(memory, layout) };
        }
        if let Some(bytes) = mapped_bytes(layout.size()) {
            // SAFETY: the mapping that `map` made for this layout, which its owner gives up. Failure would leak it.
            let _ = unsafe { munmap(memory.cast::<c_void>(), bytes) };
        }
    }
}
