//! A growable run of bytes on a medium, mapped once at an address that never changes while the table is open.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cell::Overlay;

/// One region: a file of the table's directory (or its image in memory), mapped.
///
/// Cheap to clone; the clones share the length. The mapping belongs to the medium that made the region and stays valid
/// until that and every clone are dropped.
#[derive(Clone, Debug)]
pub struct Region {
    name: &'static str,
    base: NonNull<u8>,
    /// How far the region may be touched. Grows after the space behind it has been reserved, never shrinks.
    len: Arc<AtomicU64>,
    max_bytes: u64,
    /// Keeps the mapping alive.
    _owner: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: the bytes behind `base` are only reached through cells (atomics) and the bulk calls of a medium, whose
// contracts name who may write when.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Wraps a mapping: `len` bytes may be touched now, `max_bytes` of address space are reserved.
    ///
    /// # Safety
    /// `base` is 4096-aligned; `max_bytes` from it are reserved for this region and the first `len` readable (and,
    /// unless the medium is read-only, writable) for as long as any clone is used.
    pub(crate) unsafe fn new(
        name: &'static str,
        base: NonNull<u8>,
        len: u64,
        max_bytes: u64,
    ) -> Self {
        Self { name, base, len: Arc::new(AtomicU64::new(len)), max_bytes, _owner: None }
    }

    /// The same region, keeping `owner` alive as long as itself: what makes the contract of [`Region::new`] hold.
    pub(crate) fn kept_by(&self, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { _owner: Some(owner), ..self.clone() }
    }

    /// The file name of the region inside the table's directory.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How many bytes may be touched.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        // Acquire: pairs with the Release in `set_len`; who sees the length may touch the bytes below it.
        self.len.load(Ordering::Acquire)
    }

    /// Whether nothing may be touched yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How far the region can ever grow.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// The start of the mapping.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Whether there are other handles of this region.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.len) > 1
    }

    /// Publishes a new length, for the medium that has just reserved the space.
    pub(crate) fn set_len(&self, len: u64) {
        debug_assert!(len <= self.max_bytes, "a region never grows past its reservation");
        // Release: pairs with the Acquire in `len`.
        self.len.fetch_max(len, Ordering::Release);
    }

    /// The `T` at byte `offset`; `None` when it does not lie wholly inside the region, or not aligned.
    #[inline]
    #[must_use]
    pub fn at<T: Overlay>(&self, offset: u64) -> Option<&T> {
        let end = offset.checked_add(size_of::<T>() as u64)?;
        if end > self.len() || !offset.is_multiple_of(align_of::<T>() as u64) {
            return None;
        }
        // SAFETY: in bounds and aligned (just checked; the base is page-aligned); `Overlay` makes every bit pattern a
        // valid `T` and every access atomic; the mapping outlives `self` (contract of `new`).
        Some(unsafe { &*self.base.as_ptr().add(offset as usize).cast::<T>() })
    }

    /// `count` values of `T` from byte `offset`, under the conditions of [`Region::at`].
    #[inline]
    #[must_use]
    pub fn slice_at<T: Overlay>(&self, offset: u64, count: usize) -> Option<&[T]> {
        let bytes = (count as u64).checked_mul(size_of::<T>() as u64)?;
        let end = offset.checked_add(bytes)?;
        if end > self.len() || !offset.is_multiple_of(align_of::<T>() as u64) {
            return None;
        }
        // SAFETY: as in `at`, for each of the `count` values.
        Some(unsafe {
            std::slice::from_raw_parts(self.base.as_ptr().add(offset as usize).cast::<T>(), count)
        })
    }
}
