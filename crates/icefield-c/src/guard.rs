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
