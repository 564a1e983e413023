//! The frame of every call: panics become errors, and errors go to the caller's variable.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::icefield_status::{self, *};
use crate::error::{Failure, icefield_error};

/// Runs the body of a function of the ABI. The body may use the function's pointers as the header allows, and ends with
/// `Ok(())`.
macro_rules! guarded {
    ($error:expr, $body:block) => {
        // SAFETY: the caller of each function follows the rules at the top of the header: pointers that are not null
        // refer to memory of the type and the length that the parameters name, and handles are open.
        unsafe { $crate::guard::run($error, || $body) }
    };
}

/// Runs `body`; stores its error or panic in the caller's variable.
///
/// # Safety
/// `error` is null or points to a variable for an error.
#[inline(always)]
pub(crate) unsafe fn run(
    error: *mut *mut icefield_error,
    body: impl FnOnce() -> Result<(), Failure>,
) -> icefield_status {
    // A body changes nothing but tables, which stay consistent when a call panics, and the caller's results.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return ICEFIELD_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => panicked(&*panic),
    };
    // SAFETY: as this function.
    unsafe { failure.store(error) }
}

#[cold]
fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    Failure::new(ICEFIELD_PANIC, format!("the library panicked: {text}; report this as a bug"))
}

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
            return Err(crate::pointers::is_null("handle"));
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

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr::null_mut;

    use super::*;
    use crate::error::{icefield_error_free, icefield_error_message};

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
}
