//! Types that may be laid over the bytes of a mapping.

/// A type whose bytes all belong to cells (or are padding that is never accessed), so that it may be laid over any
/// bytes of a mapping.
///
/// # Safety
/// The type is `repr(C)` or `repr(transparent)`, holds only cells, arrays of them, and other `Overlay` types, and has
/// no alignment above 64.
pub unsafe trait Overlay: Sized {}

// SAFETY: an array of overlays has no other bytes.
unsafe impl<T: Overlay, const N: usize> Overlay for [T; N] {}
