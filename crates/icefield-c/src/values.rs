//! Values that calls return, for results whose number or length the caller cannot know.

use crate::error::icefield_error;
use crate::error::icefield_status;
use crate::pointers::{Out, handle, icefield_slice, out};

/// The values that a call returns, each present or absent. They belong to the caller, until icefield_values_free.
pub struct icefield_values(Vec<Option<Vec<u8>>>);

impl icefield_values {
    /// Stores new values in the caller's variable, or drops them if the caller wants none.
    pub(crate) fn store(values: Vec<Option<Vec<u8>>>, place: &mut Out<'_, *mut Self>) {
        if place.is_wanted() {
            place.set(0, Box::into_raw(Box::new(Self(values))));
        }
    }
}

/// Returns the number of values, one for each key of the call, absent ones included; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_values_len(values: *const icefield_values) -> usize {
    // SAFETY: the pointer is null or that of values that have not been freed.
    unsafe { values.as_ref() }.map_or(0, |values| values.0.len())
}

/// Gets the value at `index`. present: 1 if there is one, else 0. value: optional; the bytes, which belong to `values`.
/// An index beyond the last value is like an absent key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_values_get(
    values: *const icefield_values,
    index: usize,
    value: *mut icefield_slice,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let values = handle(values, "values")?;
        let found = values.0.get(index).and_then(Option::as_ref);
        out(present, "present")?.set(0, u8::from(found.is_some()));
        let bytes = found.map_or(icefield_slice::EMPTY, |value| icefield_slice::of(value));
        crate::pointers::optional(value).set(0, bytes);
        Ok(())
    })
}

/// Frees values and sets the variable to NULL. Does nothing if `values` or the variable is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_values_free(values: *mut *mut icefield_values) {
    // SAFETY: the caller passes the address of a variable, or null.
    unsafe { crate::objects::free(values) };
}
