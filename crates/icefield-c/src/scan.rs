//! Pages of a scan.

use std::ffi::{CString, c_char};

use icefield::{AnyPage, Cursor};

use crate::bytes::too_small;
use crate::error::icefield_status::{self, ICEFIELD_INVALID, ICEFIELD_TYPE_MISMATCH};
use crate::error::{Failure, c_string, icefield_error};
use crate::pointers::{handle, icefield_record, icefield_slice, optional, out, outs};
use crate::table::icefield_table;

/// The cursor of a table's beginning.
pub const ICEFIELD_CURSOR_START: u64 = 0;

/// The records of one part of a table, and the cursor of the next part.
pub struct icefield_page {
    records: Vec<(Vec<u8>, Vec<u8>)>,
    damaged: Vec<(Option<Vec<u8>>, CString)>,
    next: Option<Cursor>,
}

impl From<AnyPage> for icefield_page {
    fn from(page: AnyPage) -> Self {
        let damaged = page.damaged.into_iter();
        let damaged = damaged.map(|damage| (damage.key, c_string(damage.detail))).collect();
        Self { records: page.records, damaged, next: page.next }
    }
}

/// Reads about `n` records from `cursor` on. A cursor is ICEFIELD_CURSOR_START or comes from icefield_page_next; it
/// stays valid while the table changes, and across reopening. A record that is present throughout a scan is returned
/// once. page: the caller frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_scan(
    table: *const icefield_table,
    cursor: u64,
    n: usize,
    page: *mut *mut icefield_page,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (table, mut page) = (handle(table, "table")?, out(page, "page")?);
        let read = icefield_page::from(table.table.scan(Cursor(cursor), n)?);
        page.set(0, Box::into_raw(Box::new(read)));
        Ok(())
    })
}

/// Returns the number of records of a page; 0 for NULL. A page without records need not be the last one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_page_len(page: *const icefield_page) -> usize {
    // SAFETY: the pointer is null or that of a page that has not been freed.
    unsafe { page.as_ref() }.map_or(0, |page| page.records.len())
}

/// Gets the record at `index`, whose bytes belong to the page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_page_record(
    page: *const icefield_page,
    index: usize,
    record: *mut icefield_record,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (page, mut record) = (handle(page, "page")?, out(record, "record")?);
        let (key, value) = entry(&page.records, index)?;
        let (key, value) = (icefield_slice::of(key), icefield_slice::of(value));
        record.set(0, icefield_record { key, value });
        Ok(())
    })
}

/// Stores the records of a page of words in two arrays. len: the number of records. If it exceeds `capacity`, the call
/// fails with ICEFIELD_BUFFER_TOO_SMALL, and only `len` has been stored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_page_words(
    page: *const icefield_page,
    keys: *mut u64,
    values: *mut u64,
    capacity: usize,
    len: *mut usize,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (page, mut len) = (handle(page, "page")?, out(len, "len")?);
        let (mut keys, mut values) =
            (outs(keys, capacity, "keys")?, outs(values, capacity, "values")?);
        let count = page.records.len();
        len.set(0, count);
        if count > capacity {
            return Err(too_small("keys", count, capacity));
        }
        for (index, (key, value)) in page.records.iter().enumerate() {
            keys.set(index, word(key)?);
            values.set(index, word(value)?);
        }
        Ok(())
    })
}

fn word(bytes: &[u8]) -> Result<u64, Failure> {
    let bytes = bytes.try_into().map_err(|_| {
        let text = "the page has keys or values that are not words of 8 bytes";
        Failure::new(ICEFIELD_TYPE_MISMATCH, text)
    })?;
    Ok(u64::from_le_bytes(bytes))
}

/// Gets the cursor of the next page. has_next: 0 after the last page, else 1. cursor: optional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_page_next(
    page: *const icefield_page,
    cursor: *mut u64,
    has_next: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let next = handle(page, "page")?.next;
        out(has_next, "has_next")?.set(0, u8::from(next.is_some()));
        optional(cursor).set(0, next.unwrap_or(Cursor::START).0);
        Ok(())
    })
}

/// Returns the number of damaged records that the scan found in this part of the table; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_page_damaged_len(page: *const icefield_page) -> usize {
    // SAFETY: the pointer is null or that of a page that has not been freed.
    unsafe { page.as_ref() }.map_or(0, |page| page.damaged.len())
}

/// Gets the damaged record at `index`. key: optional; the key's bytes. has_key: optional; 0 if the key cannot be read.
/// detail: optional; the fault. The bytes and the text belong to the page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_page_damaged(
    page: *const icefield_page,
    index: usize,
    key: *mut icefield_slice,
    has_key: *mut u8,
    detail: *mut *const c_char,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (found, fault) = entry(&handle(page, "page")?.damaged, index)?;
        let bytes = found.as_ref().map_or(icefield_slice::EMPTY, |key| icefield_slice::of(key));
        optional(key).set(0, bytes);
        optional(has_key).set(0, u8::from(found.is_some()));
        optional(detail).set(0, fault.as_ptr());
        Ok(())
    })
}

fn entry<T>(entries: &[T], index: usize) -> Result<&T, Failure> {
    entries.get(index).ok_or_else(|| {
        Failure::new(ICEFIELD_INVALID, format!("index {index} of {} entries", entries.len()))
    })
}

/// Frees a page and sets the variable to NULL. Does nothing if `page` or the variable is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_page_free(page: *mut *mut icefield_page) {
    // SAFETY: the caller passes the address of a variable, or null.
    unsafe { crate::objects::free(page) };
}
