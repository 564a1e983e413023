//! A growable range of bytes on a medium. Each byte keeps its address while the table is open.
//!
//! A region has one mapping while it can grow into the addresses behind it. When these are taken, the medium maps the
//! whole file a second time, at a larger free range (`Region::add_mapping`). Let `from` be the length of the region at
//! that moment: ranges that end at or before `from` stay in the older mapping, and ranges that end beyond it lie in the
//! newer one. Both mappings show the same pages. In the usual case, [`Region::at`] only compares the range's end with
//! the length of the first mapping, so it costs as much as with a fixed mapping.

use std::any::Any;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::arch::LINE_BYTES;
use super::medium::Properties;
use super::overlay::Overlay;
use crate::{Error, Result};

/// The largest number of lines of a record that are prefetched for a reader.
pub(crate) const READ_LINES: u64 = 4;

/// A mapped region: a file of the table's directory, or memory.
///
/// Cheap to clone; the clones share the length. The mapping belongs to the medium that made the region and stays valid
/// until the medium and every clone are dropped.
#[derive(Clone, Debug)]
pub struct Region {
    name: &'static str,
    base: NonNull<u8>,
    shared: Arc<Shared>,
    max_bytes: u64,
    /// Keeps the mapping alive.
    _owner: Option<Arc<dyn Any + Send + Sync>>,
}

/// The largest number of further mappings. It suffices, because each mapping is made for at least twice the region's
/// length at that moment.
const MOST_MAPPINGS: usize = 24;

/// The state that the handles of a region share.
#[derive(Debug)]
struct Shared {
    /// The number of bytes that may be accessed at `Region::base`. Equals `len` until there is a further mapping.
    head_len: AtomicU64,
    /// The bytes that may be accessed. Grows after the space has been reserved, and never shrinks.
    len: AtomicU64,
    /// Further mappings, oldest first.
    more: [OnceLock<Mapping>; MOST_MAPPINGS],
}

/// A mapping of all the region's bytes, used for ranges that end beyond `from`.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    from: u64,
}

// SAFETY: an address; the contracts of `Region` regulate accesses to the bytes at it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

// SAFETY: the bytes behind `base` are only accessed through cells (atomics) and the bulk calls of a medium, whose
// contracts exclude races.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Wraps a mapping: `len` bytes may be accessed now; `max_bytes` bounds the length of the region.
    ///
    /// # Safety
    /// `base` is 4096-aligned. The first `len` bytes from it are readable (and, unless the medium is read-only,
    /// writable) for as long as any clone is used. The same holds for the length of a later [`Region::set_len`],
    /// unless there is a further mapping.
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

    /// Returns a handle that keeps `owner` alive, so that the contract of [`Region::new`] holds.
    pub(crate) fn kept_by(&self, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { _owner: Some(owner), ..self.clone() }
    }

    /// Returns the file name of the region inside the table's directory.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of bytes that may be accessed.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        // Acquire: pairs with the Release in `set_len`; a thread that reads the length may access the bytes below it.
        self.shared.len.load(Ordering::Acquire)
    }

    /// Returns whether the length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bound of the region's length.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Returns the start of the first mapping, which is unique to this region. Later bytes can be in another mapping.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns whether there are other handles of this region.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// Publishes a new length. Called by the medium after it has reserved the space.
    pub(crate) fn set_len(&self, len: u64) {
        debug_assert!(len <= self.max_bytes, "a region never grows past its bound");
        if self.shared.more[0].get().is_none() {
            // Release: pairs with the Acquire in `place`.
            self.shared.head_len.fetch_max(len, Ordering::Release);
        }
        // Release: pairs with the Acquire in `len`.
        self.shared.len.fetch_max(len, Ordering::Release);
    }

    /// Adds a mapping at `base`, used for ranges that end beyond the present length. Returns `false` when there is no
    /// slot for another mapping. Only the medium calls this; it lets one thread at a time change a region's length and
    /// mappings.
    ///
    /// # Safety
    /// As for [`Region::new`]; both mappings show the same bytes.
    pub(crate) unsafe fn add_mapping(&self, base: NonNull<u8>) -> bool {
        let Some(free) = self.shared.more.iter().find(|more| more.get().is_none()) else {
            return false;
        };
        free.set(Mapping { base, from: self.len() }).is_ok()
    }

    /// Returns the address of `bytes` bytes at `offset`; `None` when they are not wholly inside the region. Two ranges
    /// with the same end always lie in the same mapping.
    #[inline(always)]
    pub(crate) fn place(&self, offset: u64, bytes: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        // Acquire: pairs with the Release in `set_len`; a thread that reads the length may access the bytes below it.
        if end > self.shared.head_len.load(Ordering::Acquire) {
            return self.place_beyond(offset, end);
        }
        // SAFETY: inside the first mapping (contract of `new`).
        Some(unsafe { self.base.add(offset as usize) })
    }

    /// Prefetches `bytes` bytes at `offset`, but at most `most_lines` lines: while longer contents are copied, the
    /// processor fetches the rest without a hint. The bytes may be anything, and may lie outside the region. `hint`
    /// prefetches a line.
    #[inline(always)]
    pub(crate) fn prefetch(
        &self,
        offset: u64,
        bytes: u64,
        most_lines: u64,
        hint: impl Fn(*const u8),
    ) {
        const LINE: u64 = LINE_BYTES as u64;
        let Some(first) = self.place(offset, 1) else { return };
        let lines = (offset % LINE).saturating_add(bytes).div_ceil(LINE).min(most_lines);
        for line in 0..lines {
            hint(first.as_ptr().wrapping_add((line * LINE) as usize));
        }
    }

    #[cold]
    fn place_beyond(&self, offset: u64, end: u64) -> Option<NonNull<u8>> {
        // The length is read first (Acquire), so that the mappings that were made for it are visible below.
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

    /// Returns the `T` at byte `offset`; `None` when it does not lie wholly inside the region, or is not aligned.
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

    /// Returns the error for damage at byte `offset`, with the file's path.
    #[cold]
    pub(crate) fn fault(
        &self,
        storage: &impl Properties,
        offset: u64,
        detail: impl Into<String>,
    ) -> Error {
        Error::corrupt(self.path(storage), offset, detail)
    }

    /// Returns the path of the region's file.
    pub(crate) fn path(&self, storage: &impl Properties) -> PathBuf {
        storage.path().join(self.name)
    }

    /// Like [`Region::at`], but returns an error that names `what` if the file ends before it.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn get<T: Overlay>(
        &self,
        storage: &impl Properties,
        offset: u64,
        what: &str,
    ) -> Result<&T> {
        self.at(offset).ok_or_else(|| self.ends_before(storage, offset, what))
    }

    /// Like [`Region::slice_at`], but returns an error that names `what` if the file ends before it.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn get_slice<T: Overlay>(
        &self,
        storage: &impl Properties,
        offset: u64,
        count: usize,
        what: &str,
    ) -> Result<&[T]> {
        self.slice_at(offset, count).ok_or_else(|| self.ends_before(storage, offset, what))
    }

    #[cold]
    fn ends_before(&self, storage: &impl Properties, offset: u64, what: &str) -> Error {
        self.fault(storage, offset, format!("the file ends before {what}"))
    }

    /// Returns `count` values of `T` from byte `offset` on, under the conditions of [`Region::at`].
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
