//! Batches on tables of any types.

use std::ffi::c_void;

use crate::error::icefield_status;
use crate::error::{Failure, icefield_error};
use crate::pointers::{
    handle, icefield_record, icefield_slice, is_null, optional, out, slice, slices,
};
use crate::table::icefield_table;
use crate::values::icefield_values;

/// Receives the index of a key and its value, which is valid during the call only. For an absent key, `present` is 0
/// and `value` is NULL. The rules of icefield_visit hold.
pub type icefield_visit_each = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        index: usize,
        present: u8,
        value: *const u8,
        len: usize,
    ),
>;

/// Gets the values of `count` keys, with overlapping memory latencies. values: a list of `count` values, which the
/// caller frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_get_batch(
    table: *const icefield_table,
    keys: *const icefield_slice,
    count: usize,
    values: *mut *mut icefield_values,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (table, mut values) = (handle(table, "table")?, out(values, "values")?);
        let found = table.table.get_batch(&slices(keys, count, "keys")?)?;
        icefield_values::store(found, &mut values);
        Ok(())
    })
}

/// Passes the values of `count` keys to `visit`, in order, with overlapping memory latencies. If the call fails,
/// `visit` has been called for the keys before the failing one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_get_batch_with(
    table: *const icefield_table,
    keys: *const icefield_slice,
    count: usize,
    visit: icefield_visit_each,
    context: *mut c_void,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = &handle(table, "table")?.table;
        let visit = visit.ok_or_else(|| is_null("visit"))?;
        table.get_batch_with(&slices(keys, count, "keys")?, |index, value| match value {
            Some(value) => visit(context, index, 1, value.as_ptr(), value.len()),
            None => visit(context, index, 0, std::ptr::null(), 0),
        })?;
        Ok(())
    })
}

/// The keys and values of records.
type Records<'a> = Vec<(&'a [u8], &'a [u8])>;

/// Returns records as Rust's slices.
///
/// # Safety
/// As [`slice`], also for the bytes of each record.
unsafe fn records<'a>(
    records: *const icefield_record,
    count: usize,
) -> Result<Records<'a>, Failure> {
    // SAFETY: as this function.
    let all = unsafe { slice(records, count, "records") }?;
    let record = |record: &icefield_record| {
        // SAFETY: as this function.
        unsafe { Ok((record.key.bytes("key")?, record.value.bytes("value")?)) }
    };
    all.iter().map(record).collect()
}

/// Inserts `count` records or replaces their values, in order; all are durable when the call returns. Nothing is
/// changed if a key or value is not valid for the table's types; after another error, the records before the failing
/// one are durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_put_batch(
    table: *const icefield_table,
    records: *const icefield_record,
    count: usize,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = &handle(table, "table")?.table;
        Ok(table.put_batch(&self::records(records, count)?)?)
    })
}

/// As icefield_table_put_batch. previous: optional; a list of the `count` previous values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_insert_batch(
    table: *const icefield_table,
    records: *const icefield_record,
    count: usize,
    previous: *mut *mut icefield_values,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = &handle(table, "table")?.table;
        let before = table.insert_batch(&self::records(records, count)?)?;
        icefield_values::store(before, &mut optional(previous));
        Ok(())
    })
}

/// Removes `count` keys, with the guarantees of icefield_table_put_batch. previous: optional; a list of the `count`
/// removed values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_remove_batch(
    table: *const icefield_table,
    keys: *const icefield_slice,
    count: usize,
    previous: *mut *mut icefield_values,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = &handle(table, "table")?.table;
        let removed = table.remove_batch(&slices(keys, count, "keys")?)?;
        icefield_values::store(removed, &mut optional(previous));
        Ok(())
    })
}
