//! The end of objects: `_free` and `_close`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::icefield_error;
use crate::error::icefield_status;
use crate::guard::run;
use crate::pointers::is_null;

/// Frees the object in a variable and sets the variable to null. A panic in its destructor is dropped, because there is
/// no caller for it.
///
/// # Safety
/// `variable` is null or points to a variable that is null or has an object made by this library.
pub(crate) unsafe fn free<T>(variable: *mut *mut T) {
    if variable.is_null() {
        return;
    }
    // SAFETY: the caller passes the address of a variable.
    let object = unsafe { variable.replace(std::ptr::null_mut()) };
    if object.is_null() {
        return;
    }
    // SAFETY: the object was made by `Box::into_raw`, and the variable held its handle.
    let object = unsafe { Box::from_raw(object) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(object)));
}

/// Closes a table as [`free`] does, but reports a null address and a panic.
///
/// # Safety
/// As [`free`]; `error` is null or points to a variable for an error.
pub(crate) unsafe fn close<T>(
    variable: *mut *mut T,
    error: *mut *mut icefield_error,
) -> icefield_status {
    let body = || {
        if variable.is_null() {
            return Err(is_null("handle"));
        }
        // SAFETY: the caller passes the address of a variable.
        let object = unsafe { variable.replace(std::ptr::null_mut()) };
        if !object.is_null() {
            // SAFETY: the object was made by `Box::into_raw`, and the variable held its handle.
            drop(unsafe { Box::from_raw(object) });
        }
        Ok(())
    };
    // SAFETY: as this function.
    unsafe { run(error, body) }
}
