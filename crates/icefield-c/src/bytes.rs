//! Calls on single keys of tables of any types.

use std::ffi::c_void;

use crate::error::icefield_status::{self, ICEFIELD_BUFFER_TOO_SMALL};
use crate::error::{Failure, icefield_error};
use crate::pointers::{Out, handle, is_null, optional, out, outs, slice};
use crate::table::icefield_table;
use crate::values::icefield_values;

/// Receives the bytes of a value, which are valid during the call only. It may call the table, except for close. It
/// must return: no exception and no longjmp may leave it.
pub type icefield_visit =
    Option<unsafe extern "C" fn(context: *mut c_void, value: *const u8, len: usize)>;

/// Gets the value of a key into the caller's buffer.
///
/// present: 1 if the key is present, else 0. len: the length of the value; 0 if the key is absent. If the value has
/// more than `capacity` bytes, the call fails with ICEFIELD_BUFFER_TOO_SMALL, `buffer` is unchanged, and `len` and
/// `present` have been stored. buffer: may be NULL if `capacity` is 0.
///
/// Keys and values of each type have one form in bytes, which docs/c.md lists: integers are little-endian. Bytes of
/// another length, and bytes that are not a value of the type, cause ICEFIELD_INVALID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_get(
    table: *const icefield_table,
    key: *const u8,
    key_len: usize,
    buffer: *mut u8,
    capacity: usize,
    len: *mut usize,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = &handle(table, "table")?.table;
        let key = slice(key, key_len, "key")?;
        let mut buffer = outs(buffer, capacity, "buffer")?;
        let (mut len, mut present) = (out(len, "len")?, out(present, "present")?);
        buffer.apart(key)?;
        let found = table.get_with(key, |value| {
            if value.len() <= capacity {
                buffer.fill(0, value);
            }
            value.len()
        })?;
        len.set(0, found.unwrap_or(0));
        present.set(0, u8::from(found.is_some()));
        match found {
            Some(needed) if needed > capacity => Err(too_small("buffer", needed, capacity)),
            _ => Ok(()),
        }
    })
}

#[cold]
pub(crate) fn too_small(name: &str, needed: usize, capacity: usize) -> Failure {
    let text = format!("`{name}` has room for {capacity}, but {needed} are needed");
    Failure::new(ICEFIELD_BUFFER_TOO_SMALL, text)
}

/// Passes the value of a key to `visit`, if the key is present. No lock is held meanwhile. present: 1 if the key is
/// present, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_get_with(
    table: *const icefield_table,
    key: *const u8,
    key_len: usize,
    visit: icefield_visit,
    context: *mut c_void,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = &handle(table, "table")?.table;
        let (visit, mut present) =
            (visit.ok_or_else(|| is_null("visit"))?, out(present, "present")?);
        let key = slice(key, key_len, "key")?;
        let found = table.get_with(key, |value| visit(context, value.as_ptr(), value.len()))?;
        present.set(0, u8::from(found.is_some()));
        Ok(())
    })
}

/// Checks whether a key is present. present: 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_contains(
    table: *const icefield_table,
    key: *const u8,
    key_len: usize,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (table, mut present) = (handle(table, "table")?, out(present, "present")?);
        present.set(0, u8::from(table.table.contains(slice(key, key_len, "key")?)?));
        Ok(())
    })
}

/// Stores the value that a key had before a call, in a list of one value.
fn answer(
    before: Option<Vec<u8>>,
    present: &mut Out<'_, u8>,
    previous: &mut Out<'_, *mut icefield_values>,
) {
    present.set(0, u8::from(before.is_some()));
    icefield_values::store(vec![before], previous);
}

/// Inserts a key only if it is absent. present: optional; 1 if the key was present, and nothing was changed. previous:
/// optional; a list of one value, the present one if there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_try_insert(
    table: *const icefield_table,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    present: *mut u8,
    previous: *mut *mut icefield_values,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = &handle(table, "table")?.table;
        let (key, value) = (slice(key, key_len, "key")?, slice(value, value_len, "value")?);
        let before = table.try_insert(key, value)?.err().map(|occupied| occupied.0);
        answer(before, &mut optional(present), &mut optional(previous));
        Ok(())
    })
}

/// Inserts a key or replaces its value. present: optional; 1 if the key was present. previous: optional; a list of one
/// value, the previous one if there was one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_insert(
    table: *const icefield_table,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    present: *mut u8,
    previous: *mut *mut icefield_values,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = &handle(table, "table")?.table;
        let before =
            table.insert(slice(key, key_len, "key")?, slice(value, value_len, "value")?)?;
        answer(before, &mut optional(present), &mut optional(previous));
        Ok(())
    })
}

/// Inserts a key or replaces its value, without the previous value, which may be faster.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_put(
    table: *const icefield_table,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = &handle(table, "table")?.table;
        Ok(table.put(slice(key, key_len, "key")?, slice(value, value_len, "value")?)?)
    })
}

/// Replaces the value only if the key is present. present: optional; 1 if it was. previous: optional; a list of one
/// value, the previous one if there was one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_update(
    table: *const icefield_table,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    present: *mut u8,
    previous: *mut *mut icefield_values,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = &handle(table, "table")?.table;
        let before =
            table.update(slice(key, key_len, "key")?, slice(value, value_len, "value")?)?;
        answer(before, &mut optional(present), &mut optional(previous));
        Ok(())
    })
}

/// Removes a key. present: optional; 1 if it was present. previous: optional; a list of one value, the removed one if
/// there was one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_remove(
    table: *const icefield_table,
    key: *const u8,
    key_len: usize,
    present: *mut u8,
    previous: *mut *mut icefield_values,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let before = handle(table, "table")?.table.remove(slice(key, key_len, "key")?)?;
        answer(before, &mut optional(present), &mut optional(previous));
        Ok(())
    })
}
