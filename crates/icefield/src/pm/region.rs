//! A growable run of bytes on a medium. Each byte keeps its address while the table is open.
//!
//! A region is mapped at one base as long as there are free addresses behind it. Where there are none, the medium maps
//! the whole file a second time, at a larger free range (`Region::add_mapping`): what ends within the length that the
//! region had then keeps its address in the former mapping, and what lies beyond is found in the newer one. Both show the
//! same pages. [`Region::at`] compares with `head_len` only, so that the usual case costs what a fixed mapping costs.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::cell::Overlay;

/// One region: a file of the table's directory (or its image in memory), mapped.
///
/// Cheap to clone; the clones share the length. The mapping belongs to the medium that made the region and stays valid
/// until that and every clone are dropped.
#[derive(Clone, Debug)]
pub struct Region {
    name: &'static str,
    base: NonNull<u8>,
    shared: Arc<Shared>,
    max_bytes: u64,
    /// Keeps the mapping alive.
    _owner: Option<Arc<dyn Any + Send + Sync>>,
}

/// How often a region can be mapped anew. Each mapping is planned for twice the length that it begins with, at least.
const MOST_MAPPINGS: usize = 24;

/// What the handles of a region share.
#[derive(Debug)]
struct Shared {
    /// How far the region may be touched at `Region::base`: `len`, until there is a further mapping.
    head_len: AtomicU64,
    /// How far the region may be touched. Grows after the space behind it has been reserved, never shrinks.
    len: AtomicU64,
    /// Further mappings, in the order of their making.
    more: [OnceLock<Mapping>; MOST_MAPPINGS],
}

/// A mapping of the region's bytes from the first one on, for what ends behind `from`.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    from: u64,
}

// SAFETY: an address; who may touch the bytes behind it is said at `Region`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

// SAFETY: the bytes behind `base` are only reached through cells (atomics) and the bulk calls of a medium, whose
// contracts name who may write when.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Wraps a mapping: `len` bytes may be touched now, `max_bytes` is the most that the region may ever have.
    ///
    /// # Safety
    /// `base` is 4096-aligned; the first `len` bytes from it are readable (and, unless the medium is read-only, writable)
    /// for as long as any clone is used; so are those of a later [`Region::set_len`], unless there is a further mapping.
    pub(crate) unsafe fn new(
        name: &'static str,
        base: NonNull<u8>,
        len: u64,
        max_bytes: u64,
    ) -> Self {
        let (head_len, len) = (AtomicU64::new(len), AtomicU64::new(len));
        let shared = Arc::new(Shared { head_len, len, more: Default::default() });
        Self { name, base, shared, max_bytes, _owner: None }
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
        self.shared.len.load(Ordering::Acquire)
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

    /// The start of the first mapping, which no other region has. Later bytes can be in another mapping.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Whether there are other handles of this region.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// Publishes a new length, for the medium that has just reserved the space.
    pub(crate) fn set_len(&self, len: u64) {
        debug_assert!(len <= self.max_bytes, "a region never grows past its bound");
        if self.shared.more[0].get().is_none() {
            // Release: pairs with the Acquire in `place`.
            self.shared.head_len.fetch_max(len, Ordering::Release);
        }
        // Release: pairs with the Acquire in `len`.
        self.shared.len.fetch_max(len, Ordering::Release);
    }

    /// From here on, what ends behind the present length is found in a mapping at `base`. False when there have been too
    /// many. For the medium, which lets one thread at a time change a region's length and mappings.
    ///
    /// # Safety
    /// As for [`Region::new`]; both mappings show the same bytes.
    pub(crate) unsafe fn add_mapping(&self, base: NonNull<u8>) -> bool {
        let Some(free) = self.shared.more.iter().find(|more| more.get().is_none()) else {
            return false;
        };
        free.set(Mapping { base, from: self.len() }).is_ok()
    }

    /// Where `bytes` bytes at `offset` lie; `None` when they are not wholly inside the region. All of them, and any other
    /// range that ends where this one does, are found in the same mapping each time.
    #[inline(always)]
    pub(crate) fn place(&self, offset: u64, bytes: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        // Acquire: pairs with the Release in `set_len`; who sees the length may touch the bytes below it.
        if end > self.shared.head_len.load(Ordering::Acquire) {
            return self.place_beyond(offset, end);
        }
        // SAFETY: inside the first mapping (contract of `new`).
        Some(unsafe { self.base.add(offset as usize) })
    }

    #[cold]
    fn place_beyond(&self, offset: u64, end: u64) -> Option<NonNull<u8>> {
        // The length first: with it come the mappings that were made for it.
        if end > self.len() {
            return None;
        }
        let mut base = self.base;
        for mapping in self.shared.more.iter().map_while(OnceLock::get) {
            if end > mapping.from {
                base = mapping.base;
            }
        }
        // SAFETY: inside that mapping (contract of `add_mapping`).
        Some(unsafe { base.add(offset as usize) })
    }

    /// The `T` at byte `offset`; `None` when it does not lie wholly inside the region, or not aligned.
    #[inline]
    #[must_use]
    pub fn at<T: Overlay>(&self, offset: u64) -> Option<&T> {
        let start = self.place(offset, size_of::<T>() as u64)?;
        if !offset.is_multiple_of(align_of::<T>() as u64) {
            return None;
        }
        // SAFETY: in bounds and aligned (just checked; the base is page-aligned); `Overlay` makes every bit pattern a
        // valid `T` and every access atomic; the mapping outlives `self` (contract of `new`).
        Some(unsafe { start.cast::<T>().as_ref() })
    }

    /// `count` values of `T` from byte `offset`, under the conditions of [`Region::at`].
    #[inline]
    #[must_use]
    pub fn slice_at<T: Overlay>(&self, offset: u64, count: usize) -> Option<&[T]> {
        let start = self.place(offset, (count as u64).checked_mul(size_of::<T>() as u64)?)?;
        if !offset.is_multiple_of(align_of::<T>() as u64) {
            return None;
        }
        // SAFETY: as in `at`, for each of the `count` values.
        Some(unsafe { std::slice::from_raw_parts(start.cast::<T>().as_ptr(), count) })
    }
}
