//! Calls of the ABI from Rust.

use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr;

use icefield_c::icefield_status::*;
use icefield_c::*;

pub fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

pub fn c_path(path: &Path) -> CString {
    c(path.to_str().unwrap())
}

/// Runs a call; returns its status, and the message of its error. An error has the status that the call returned.
pub fn call(
    run: impl FnOnce(*mut *mut icefield_error) -> icefield_status,
) -> (icefield_status, String) {
    let mut error = ptr::null_mut();
    let status = run(&mut error);
    // SAFETY: the error comes from the library.
    unsafe {
        assert_eq!(error.is_null(), status == ICEFIELD_OK);
        let message = CStr::from_ptr(icefield_error_message(error)).to_str().unwrap().to_owned();
        if !error.is_null() {
            assert_eq!(icefield_error_status(error), status);
            assert!(!message.is_empty());
        }
        icefield_error_free(&mut error);
        assert!(error.is_null());
        (status, message)
    }
}

/// Runs a call that must succeed.
pub fn ok(run: impl FnOnce(*mut *mut icefield_error) -> icefield_status) {
    let (status, message) = call(run);
    assert_eq!(status, ICEFIELD_OK, "{message}");
}

/// Creates a table.
pub fn table(path: &Path, design: &str, key: &str, value: &str) -> *mut icefield_table {
    let (path, design, key, value) = (c_path(path), c(design), c(key), c(value));
    let mut table = ptr::null_mut();
    ok(|error| {
        // SAFETY: all pointers are valid.
        unsafe {
            icefield_table_create(
                path.as_ptr(),
                design.as_ptr(),
                key.as_ptr(),
                value.as_ptr(),
                ptr::null(),
                &mut table,
                error,
            )
        }
    });
    table
}

pub fn close(mut table: *mut icefield_table) {
    // SAFETY: the table is open, and no thread uses it.
    ok(|error| unsafe { icefield_table_close(&mut table, error) });
    assert!(table.is_null());
    // A second close of the variable does nothing.
    // SAFETY: null is allowed.
    ok(|error| unsafe { icefield_table_close(&mut table, error) });
}
