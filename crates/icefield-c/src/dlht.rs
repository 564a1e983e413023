//! `Dlht`: a concurrent map of words in memory.

use icefield::{Collection, Cursor, Dlht, Table};

use crate::bytes::too_small;
use crate::error::icefield_error;
use crate::error::icefield_status;
use crate::options::icefield_dlht_options;
use crate::pointers::{check_report, handle, optional, options, out, outs, report};
use crate::reports::{icefield_counters, icefield_stats};
use crate::words::Answers;

/// A map of words in memory.
pub struct icefield_dlht(pub(crate) Dlht<u64, u64>);

/// Creates an empty map. options: optional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_create(
    options: *const icefield_dlht_options,
    dlht: *mut *mut icefield_dlht,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let mut dlht = out(dlht, "dlht")?;
        let made = icefield_dlht(self::options(options, "options")?.build()?);
        dlht.set(0, Box::into_raw(Box::new(made)));
        Ok(())
    })
}

/// Frees a map and sets the variable to NULL. Does nothing if the variable is NULL. No other thread may use the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_close(
    dlht: *mut *mut icefield_dlht,
    error: *mut *mut icefield_error,
) -> icefield_status {
    // SAFETY: the caller passes the address of a handle's variable.
    unsafe { crate::objects::close(dlht, error) }
}

/// Gets the value of `key`. present: 1 if the key is present, else 0. value: optional; 0 if the key is absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_get(
    dlht: *const icefield_dlht,
    key: u64,
    value: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let dlht = handle(dlht, "dlht")?;
        out(present, "present")?;
        Answers::one(value, present).set(0, dlht.0.get(key));
        Ok(())
    })
}

/// Inserts `key` only if it is absent. present: optional; 1 if the key was present, and nothing was changed. previous:
/// optional; the present value, or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_try_insert(
    dlht: *const icefield_dlht,
    key: u64,
    value: u64,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let inserted = Table::try_insert(&handle(dlht, "dlht")?.0, key, value)?;
        let before = inserted.err().map(|occupied| occupied.0);
        Answers::one(previous, present).set(0, before);
        Ok(())
    })
}

/// Inserts `key` or replaces its value. present: optional; 1 if the key was present. previous: optional; the previous
/// value, or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_insert(
    dlht: *const icefield_dlht,
    key: u64,
    value: u64,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let before = Table::insert(&handle(dlht, "dlht")?.0, key, value)?;
        Answers::one(previous, present).set(0, before);
        Ok(())
    })
}

/// Replaces the value only if `key` is present. present: optional; 1 if it was. previous: optional; the previous value,
/// or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_update(
    dlht: *const icefield_dlht,
    key: u64,
    value: u64,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let before = Table::update(&handle(dlht, "dlht")?.0, key, value)?;
        Answers::one(previous, present).set(0, before);
        Ok(())
    })
}

/// Removes `key`. present: optional; 1 if it was present. previous: optional; its value, or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_remove(
    dlht: *const icefield_dlht,
    key: u64,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let before = Table::remove(&handle(dlht, "dlht")?.0, key)?;
        Answers::one(previous, present).set(0, before);
        Ok(())
    })
}

/// Adds `delta` to the value of `key`, with wrap-around, in one atomic step; an absent key counts as 0. previous:
/// optional; the value before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_fetch_add(
    dlht: *const icefield_dlht,
    key: u64,
    delta: u64,
    previous: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        optional(previous).set(0, Table::fetch_add(&handle(dlht, "dlht")?.0, key, delta)?);
        Ok(())
    })
}

/// Replaces the value of `key` by `value` if it is `expected`, in one atomic step. exchanged: 1 if it was replaced,
/// else 0. found: optional; the value that the key had, or 0 if it is absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_compare_exchange(
    dlht: *const icefield_dlht,
    key: u64,
    expected: u64,
    value: u64,
    exchanged: *mut u8,
    found: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (dlht, mut exchanged) = (handle(dlht, "dlht")?, out(exchanged, "exchanged")?);
        let outcome = Table::compare_exchange(&dlht.0, key, expected, value)?;
        exchanged.set(0, u8::from(outcome.is_ok()));
        optional(found).set(0, outcome.map_or_else(Option::unwrap_or_default, |()| expected));
        Ok(())
    })
}

/// Gets the number of records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_len(
    dlht: *const icefield_dlht,
    len: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (dlht, mut len) = (handle(dlht, "dlht")?, out(len, "len")?);
        len.set(0, dlht.0.len() as u64);
        Ok(())
    })
}

/// Gets sizes, in constant time. stats: optional. counters: optional; further counters, which the caller frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_stats(
    dlht: *const icefield_dlht,
    stats: *mut icefield_stats,
    counters: *mut *mut icefield_counters,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let dlht = handle(dlht, "dlht")?;
        check_report(stats, "stats")?;
        let found = dlht.0.stats();
        report(stats, icefield_stats::from(&found));
        icefield_counters::store(&found.details, &mut optional(counters));
        Ok(())
    })
}

/// Reads about `n` records from `*cursor` on, and stores the cursor of the next part in `*cursor`. The first cursor is
/// ICEFIELD_CURSOR_START.
///
/// keys, values: arrays of `capacity` results. len: the number of records. If it exceeds `capacity`, the call fails
/// with ICEFIELD_BUFFER_TOO_SMALL, and only `len` has been stored; a `capacity` of n + 64 is enough in most cases.
/// has_next: 0 after the last part, else 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_scan(
    dlht: *const icefield_dlht,
    cursor: *mut u64,
    n: usize,
    keys: *mut u64,
    values: *mut u64,
    capacity: usize,
    len: *mut usize,
    has_next: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let dlht = handle(dlht, "dlht")?;
        let start = *handle(cursor, "cursor")?;
        let (mut cursor, mut len) = (out(cursor, "cursor")?, out(len, "len")?);
        let mut has_next = out(has_next, "has_next")?;
        let (mut keys, mut values) =
            (outs(keys, capacity, "keys")?, outs(values, capacity, "values")?);
        let page = dlht.0.scan(Cursor(start), n);
        let count = page.records.len();
        len.set(0, count);
        if count > capacity {
            return Err(too_small("keys", count, capacity));
        }
        for (index, &(key, value)) in page.records.iter().enumerate() {
            keys.set(index, key);
            values.set(index, value);
        }
        has_next.set(0, u8::from(page.next.is_some()));
        cursor.set(0, page.next.unwrap_or(Cursor::START).0);
        Ok(())
    })
}

/// Removes every record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_clear(
    dlht: *const icefield_dlht,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, { Ok(Collection::clear(&handle(dlht, "dlht")?.0)?) })
}

/// Makes room for `additional` more records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_reserve(
    dlht: *const icefield_dlht,
    additional: u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, { Ok(Collection::reserve(&handle(dlht, "dlht")?.0, additional)?) })
}

/// Frees memory that the records do not need.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_shrink_to_fit(
    dlht: *const icefield_dlht,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, { Ok(Collection::shrink_to_fit(&handle(dlht, "dlht")?.0)?) })
}
