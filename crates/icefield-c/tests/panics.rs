//! Panics become errors. The test has the frame of the calls only, without the tables.

#![allow(non_camel_case_types, reason = "the names are those of the header")]
#![allow(clippy::missing_safety_doc, dead_code, unused_macros, reason = "for the library")]

#[path = "../src/error.rs"]
mod error;
#[path = "../src/error_calls.rs"]
mod error_calls;
#[macro_use]
#[path = "../src/guard.rs"]
mod guard;
#[path = "../src/objects.rs"]
mod objects;
#[path = "../src/pointers.rs"]
mod pointers;

use std::ffi::CStr;
use std::ptr::null_mut;

use error::icefield_status::*;
use error_calls::{icefield_error_free, icefield_error_message};
use guard::run;
use objects::{close, free};

#[test]
fn panics_become_errors() {
    let mut error = null_mut();
    // SAFETY: the pointers are null or those of variables.
    unsafe {
        assert_eq!(run(&mut error, || panic!("number {}", 7)), ICEFIELD_PANIC);
        let message = CStr::from_ptr(icefield_error_message(error));
        assert!(message.to_string_lossy().contains("number 7"), "{message:?}");
        icefield_error_free(&mut error);
        assert_eq!(run(null_mut(), || panic!("without a place")), ICEFIELD_PANIC);
    }
}

#[test]
fn panics_of_destructors_are_caught() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("a destructor");
        }
    }
    let (mut one, mut other) = (Box::into_raw(Box::new(Bad)), Box::into_raw(Box::new(Bad)));
    // SAFETY: the pointers are null or those of variables.
    unsafe {
        free(&mut one);
        assert_eq!(close(&mut other, null_mut()), ICEFIELD_PANIC);
        assert_eq!(close(&mut other, null_mut()), ICEFIELD_OK);
        assert_eq!(close::<Bad>(null_mut(), null_mut()), ICEFIELD_NULL_POINTER);
    }
    assert!(one.is_null() && other.is_null());
}
