//! The address space of a simulated medium: one slot for each region, committed page by page on first access.

use std::ptr::NonNull;

/// The largest number of regions of a simulated medium.
pub(super) const SLOTS: usize = 16;

/// Reserved memory for [`SLOTS`] regions of equal, power-of-two size. Never moves; bytes are zero until they are
/// written.
pub(super) struct Arena {
    base: NonNull<u8>,
    slot_bytes: usize,
}

// SAFETY: the arena is plain memory that it owns; the medium regulates the accesses.
unsafe impl Send for Arena {}
// SAFETY: as above; the arena itself is immutable.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves the address space; `None` when the system has none.
    pub(super) fn reserve(slot_bytes: usize) -> Option<Self> {
        debug_assert!(slot_bytes.is_power_of_two() && slot_bytes >= 4096, "slots are whole pages");
        let base = map::reserve(slot_bytes.checked_mul(SLOTS)?)?;
        Some(Self { base, slot_bytes })
    }

    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the first byte of slot `slot`.
    pub(super) fn slot(&self, slot: usize) -> NonNull<u8> {
        assert!(slot < SLOTS, "a simulated medium holds at most {SLOTS} regions");
        // SAFETY: within the reservation, by the assertion.
        unsafe { self.base.add(slot * self.slot_bytes) }
    }

    /// Makes the first `used` bytes of a slot zero again.
    pub(super) fn wipe(&mut self, slot: usize, used: usize) {
        // SAFETY: in bounds; `&mut self` proves that no medium uses the arena.
        unsafe { self.slot(slot).write_bytes(0, used.min(self.slot_bytes)) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        map::release(self.base, self.slot_bytes * SLOTS);
    }
}

#[cfg(not(miri))]
mod map {
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    pub(super) fn reserve(bytes: usize) -> Option<NonNull<u8>> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses replaces no other.
        let base =
            unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
        NonNull::new(base.ok()?.cast())
    }

    pub(super) fn release(base: NonNull<u8>, bytes: usize) {
        // SAFETY: exactly what `reserve` mapped, and its owner is being dropped. A failure would only leak address
        // space.
        let _ = unsafe { munmap(base.as_ptr().cast(), bytes) };
    }
}

/// Miri does not support `mmap`.
#[cfg(miri)]
mod map {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 4096).expect("a power of two")
    }

    pub(super) fn reserve(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: the size is not zero.
        NonNull::new(unsafe { alloc_zeroed(layout(bytes)) })
    }

    pub(super) fn release(base: NonNull<u8>, bytes: usize) {
        // SAFETY: allocated by `reserve` with the same layout.
        unsafe { dealloc(base.as_ptr(), layout(bytes)) };
    }
}
