//! Arguments: pointers of C as references, slices and places for results.

use std::ffi::{CStr, OsStr, c_char};
use std::marker::PhantomData;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::Failure;
use crate::error::icefield_status::*;

/// Bytes: `len` bytes from `data` on. `data` may be NULL if `len` is 0.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct icefield_slice {
    /// The first byte.
    pub data: *const u8,
    /// The number of bytes.
    pub len: usize,
}

/// A key and its value.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct icefield_record {
    /// The key.
    pub key: icefield_slice,
    /// The value.
    pub value: icefield_slice,
}

impl icefield_slice {
    /// The slice without bytes.
    pub(crate) const EMPTY: Self = Self { data: std::ptr::null(), len: 0 };

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), len: bytes.len() }
    }

    /// # Safety
    /// As [`slice`].
    pub(crate) unsafe fn bytes<'a>(self, name: &'static str) -> Result<&'a [u8], Failure> {
        // SAFETY: as this function.
        unsafe { slice(self.data, self.len, name) }
    }
}

#[cold]
pub(crate) fn is_null(name: &str) -> Failure {
    Failure::new(ICEFIELD_NULL_POINTER, format!("`{name}` is NULL"))
}

#[cold]
fn too_long(name: &str, len: usize) -> Failure {
    Failure::new(ICEFIELD_INVALID, format!("`{name}` has {len} entries, more than memory can hold"))
}

/// Returns a handle's object.
///
/// # Safety
/// `pointer` is null or refers to an object that no thread closes or frees before the call ends.
#[inline(always)]
pub(crate) unsafe fn handle<'a, T>(
    pointer: *const T,
    name: &'static str,
) -> Result<&'a T, Failure> {
    // SAFETY: as this function.
    unsafe { pointer.as_ref() }.ok_or_else(|| is_null(name))
}

/// Returns an array.
///
/// # Safety
/// `data` is null or refers to `len` values that do not change before the call ends.
#[inline(always)]
pub(crate) unsafe fn slice<'a, T>(
    data: *const T,
    len: usize,
    name: &'static str,
) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(is_null(name));
    }
    if len > isize::MAX as usize / size_of::<T>() {
        return Err(too_long(name, len));
    }
    // SAFETY: not null, no longer than an object may be, and otherwise as this function.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// Returns the slices of an array as Rust's.
///
/// # Safety
/// As [`slice`], also for the bytes of each element.
pub(crate) unsafe fn slices<'a>(
    data: *const icefield_slice,
    count: usize,
    name: &'static str,
) -> Result<Vec<&'a [u8]>, Failure> {
    // SAFETY: as this function.
    let all = unsafe { slice(data, count, name) }?;
    // SAFETY: as this function.
    all.iter().map(|bytes| unsafe { bytes.bytes(name) }).collect()
}

/// Returns a string.
///
/// # Safety
/// `text` is null or refers to a string that ends with a 0 byte.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &'static str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(is_null(name));
    }
    // SAFETY: as this function.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::new(ICEFIELD_INVALID, format!("`{name}` is not UTF-8")))
}

/// Returns a path.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path<'a>(
    path: *const c_char,
    name: &'static str,
) -> Result<&'a Path, Failure> {
    if path.is_null() {
        return Err(is_null(name));
    }
    // SAFETY: as this function.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Places for `len` results of the caller, which may be uninitialized, or no places.
pub(crate) struct Out<'a, T> {
    first: *mut T,
    len: usize,
    memory: PhantomData<&'a mut T>,
}

impl<T> Out<'_, T> {
    /// Stores a result. Does nothing if the caller passed NULL.
    #[inline(always)]
    pub(crate) fn set(&mut self, index: usize, value: T) {
        if !self.first.is_null() {
            assert!(index < self.len, "result {index} of {}", self.len);
            // SAFETY: `outs` was called for memory of `len` results.
            unsafe { self.first.add(index).write(value) };
        }
    }

    /// Stores the results from `index` on.
    pub(crate) fn fill(&mut self, index: usize, values: &[T])
    where
        T: Copy,
    {
        if !self.first.is_null() {
            assert!(index + values.len() <= self.len, "results beyond {}", self.len);
            // SAFETY: `outs` was called for memory of `len` results, which nothing else refers to.
            unsafe { self.first.add(index).copy_from(values.as_ptr(), values.len()) };
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        !self.first.is_null()
    }

    fn bytes(&self) -> Range<usize> {
        let first = self.first as usize;
        first..if first == 0 { 0 } else { first + self.len * size_of::<T>() }
    }

    /// Returns an error if the places overlap an argument, which the call reads while it stores results.
    pub(crate) fn apart<U>(&self, argument: &[U]) -> Result<(), Failure> {
        let (own, other) = (self.bytes(), argument.as_ptr_range());
        let other = other.start as usize..other.end as usize;
        if own.start < other.end && other.start < own.end {
            let text = "an array of results overlaps an argument; pass separate arrays";
            return Err(Failure::new(ICEFIELD_INVALID, text));
        }
        Ok(())
    }
}

/// Returns the place of a required result.
///
/// # Safety
/// `place` is null or refers to memory for a result.
#[inline(always)]
pub(crate) unsafe fn out<'a, T>(place: *mut T, name: &'static str) -> Result<Out<'a, T>, Failure> {
    if place.is_null() {
        return Err(is_null(name));
    }
    Ok(Out { first: place, len: 1, memory: PhantomData })
}

/// Returns the place of an optional result.
///
/// # Safety
/// As [`out`].
#[inline(always)]
pub(crate) unsafe fn optional<'a, T>(place: *mut T) -> Out<'a, T> {
    Out { first: place, len: 1, memory: PhantomData }
}

/// Returns the places of required results.
///
/// # Safety
/// `first` is null or refers to memory for `len` results.
#[inline(always)]
pub(crate) unsafe fn outs<'a, T>(
    first: *mut T,
    len: usize,
    name: &'static str,
) -> Result<Out<'a, T>, Failure> {
    if first.is_null() && len > 0 {
        return Err(is_null(name));
    }
    if len > isize::MAX as usize / size_of::<T>() {
        return Err(too_long(name, len));
    }
    Ok(Out { first, len, memory: PhantomData })
}

/// Returns the places of optional results.
///
/// # Safety
/// As [`outs`].
#[inline(always)]
pub(crate) unsafe fn optionals<'a, T>(
    first: *mut T,
    len: usize,
    name: &'static str,
) -> Result<Out<'a, T>, Failure> {
    let len = if first.is_null() { 0 } else { len };
    // SAFETY: as this function.
    unsafe { outs(first, len, name) }
}

/// A struct of the ABI that begins with its own size.
///
/// # Safety
/// The type is `repr(C)`, consists of integers only, has no padding, and its first field is a `usize`.
pub(crate) unsafe trait Versioned: Copy {}

/// Reads options. `pointer` may be null: all fields are then 0. Fields that the caller's version of the struct does not
/// have are 0; fields that this version does not have must be 0.
///
/// # Safety
/// `pointer` is null or refers to a struct of the size in its first field.
pub(crate) unsafe fn options<T: Versioned>(
    pointer: *const T,
    name: &'static str,
) -> Result<T, Failure> {
    let (mut value, bytes) = (std::mem::MaybeUninit::<T>::zeroed(), pointer.cast::<u8>());
    if !bytes.is_null() {
        // SAFETY: `T` begins with a `usize`.
        let size = unsafe { pointer.cast::<usize>().read() };
        check_size(size, name)?;
        // SAFETY: the struct has `size` bytes, and `value` has room for those that are copied.
        unsafe {
            bytes.copy_to(value.as_mut_ptr().cast(), size.min(size_of::<T>()));
        }
        for index in size_of::<T>()..size {
            // SAFETY: the struct has `size` bytes.
            if unsafe { bytes.add(index).read() } != 0 {
                let text = format!("`{name}` has an option that this version does not have");
                return Err(Failure::new(ICEFIELD_UNSUPPORTED, text));
            }
        }
    }
    // SAFETY: all bytes are initialized, and a `Versioned` type has integers only.
    Ok(unsafe { value.assume_init() })
}

/// Checks a place for a report before the call does its work.
///
/// # Safety
/// As [`options`].
pub(crate) unsafe fn check_report<T: Versioned>(
    place: *mut T,
    name: &'static str,
) -> Result<(), Failure> {
    if place.is_null() {
        return Ok(());
    }
    // SAFETY: `T` begins with a `usize`.
    check_size(unsafe { place.cast::<usize>().read() }, name)
}

/// Stores a report, except for its size: fields that the caller's version does not have are left out, and those that
/// this version does not have become 0. `place` may be null.
///
/// # Safety
/// As [`check_report`], which has accepted `place`.
pub(crate) unsafe fn report<T: Versioned>(place: *mut T, value: T) {
    if place.is_null() {
        return;
    }
    const HEAD: usize = size_of::<usize>();
    let (from, to) = ((&raw const value).cast::<u8>(), place.cast::<u8>());
    // SAFETY: the caller's struct has `size` bytes, of which the first are the size itself.
    unsafe {
        let size = place.cast::<usize>().read();
        let common = size.min(size_of::<T>());
        to.add(HEAD).copy_from(from.add(HEAD), common - HEAD);
        to.add(common).write_bytes(0, size - common);
    }
}

fn check_size(size: usize, name: &str) -> Result<(), Failure> {
    // The upper bound finds sizes that were never set.
    if (size_of::<usize>()..=4096).contains(&size) {
        return Ok(());
    }
    let text = format!("`{name}`: `struct_size` is {size}; set it to sizeof the struct");
    Err(Failure::new(ICEFIELD_INVALID, text))
}
