//! Calls on errors and status codes.

use std::ffi::c_char;

use crate::error::icefield_error;
use crate::error::icefield_status::{self, ICEFIELD_NULL_POINTER};

/// Returns the status of an error; ICEFIELD_NULL_POINTER for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_error_status(error: *const icefield_error) -> icefield_status {
    // SAFETY: the pointer is null or that of an error.
    unsafe { error.as_ref() }.map_or(ICEFIELD_NULL_POINTER, |error| error.status)
}

/// Returns the message of an error: what happened, where, and what to do. The text belongs to the error. Returns "" for
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_error_message(error: *const icefield_error) -> *const c_char {
    // SAFETY: the pointer is null or that of an error.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// Returns the errno of an error with the status ICEFIELD_IO; otherwise 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_error_os_code(error: *const icefield_error) -> i32 {
    // SAFETY: the pointer is null or that of an error.
    unsafe { error.as_ref() }.map_or(0, |error| error.os_code)
}

/// Frees an error and sets the variable to NULL. Does nothing if `error` or the variable is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_error_free(error: *mut *mut icefield_error) {
    // SAFETY: as for the handles of `free`.
    unsafe { crate::objects::free(error) };
}

/// Returns the name of a status, for example "ICEFIELD_LOCKED"; "ICEFIELD_OTHER" for an unknown number.
#[unsafe(no_mangle)]
pub extern "C" fn icefield_status_name(status: i32) -> *const c_char {
    let names = [
        c"ICEFIELD_OK",
        c"ICEFIELD_IO",
        c"ICEFIELD_CORRUPT",
        c"ICEFIELD_LOCKED",
        c"ICEFIELD_TYPE_MISMATCH",
        c"ICEFIELD_FORMAT_VERSION",
        c"ICEFIELD_NOT_FOUND",
        c"ICEFIELD_ALREADY_EXISTS",
        c"ICEFIELD_NO_SPACE",
        c"ICEFIELD_FULL",
        c"ICEFIELD_SHADOWED",
        c"ICEFIELD_NO_MEMORY",
        c"ICEFIELD_KEY_TOO_LONG",
        c"ICEFIELD_VALUE_TOO_LONG",
        c"ICEFIELD_READ_ONLY",
        c"ICEFIELD_POISONED",
        c"ICEFIELD_FORKED",
        c"ICEFIELD_UNSUPPORTED",
        c"ICEFIELD_DELTA_FULL",
        c"ICEFIELD_SOURCE",
        c"ICEFIELD_INVALID",
        c"ICEFIELD_NULL_POINTER",
        c"ICEFIELD_BUFFER_TOO_SMALL",
        c"ICEFIELD_PANIC",
        c"ICEFIELD_OTHER",
    ];
    let index = usize::try_from(status).unwrap_or(usize::MAX);
    names.get(index).unwrap_or(&c"ICEFIELD_OTHER").as_ptr()
}
