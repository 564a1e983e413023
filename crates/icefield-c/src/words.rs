//! Calls on tables of words: single keys and arrays.
//!
//! A word is the integer whose little-endian bytes the calls on bytes take.

use icefield::{AnyWords, Result as IceResult};

use crate::error::icefield_status;
use crate::error::{Failure, icefield_error};
use crate::pointers::{Out, handle, optional, optionals, out, outs, slice};
use crate::table::icefield_table;

/// The caller's places for the results of a call on words: for each key, a value and whether there is one.
pub(crate) struct Answers<'a> {
    values: Out<'a, u64>,
    present: Out<'a, u8>,
}

impl Answers<'_> {
    /// Returns the places of a call on one key, each of which may be null.
    ///
    /// # Safety
    /// As [`optional`].
    #[inline(always)]
    pub(crate) unsafe fn one(value: *mut u64, present: *mut u8) -> Self {
        // SAFETY: as this function.
        unsafe { Self { values: optional(value), present: optional(present) } }
    }

    /// Returns the places of a batch of `count` keys, each of which may be null; an error if they overlap an argument.
    ///
    /// # Safety
    /// As [`optionals`].
    pub(crate) unsafe fn of_batch(
        values: *mut u64,
        present: *mut u8,
        count: usize,
        arguments: &[&[u64]],
    ) -> Result<Self, Failure> {
        // SAFETY: as this function.
        let (values, present) =
            unsafe { (optionals(values, count, "values")?, optionals(present, count, "present")?) };
        for argument in arguments {
            values.apart(argument)?;
            present.apart(argument)?;
        }
        Ok(Self { values, present })
    }

    /// Stores the answer for a key; the value of an absent key is 0.
    #[inline(always)]
    pub(crate) fn set(&mut self, index: usize, found: Option<u64>) {
        self.values.set(index, found.unwrap_or(0));
        self.present.set(index, u8::from(found.is_some()));
    }
}

/// Gets the value of `key`. present: 1 if the key is present, else 0. value: optional; 0 if the key is absent.
///
/// This and the other calls on words accept tables whose keys and values have 8 bytes ("u64", "i64", "f64", "[u8; 8]"),
/// and return ICEFIELD_TYPE_MISMATCH for others. A word is the value converted to uint64_t; for "f64" it is the bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_get_word(
    table: *const icefield_table,
    key: u64,
    value: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = handle(table, "table")?;
        out(present, "present")?;
        Answers::one(value, present).set(0, table.words()?.get(key)?);
        Ok(())
    })
}

/// Inserts `key` only if it is absent. present: optional; 1 if the key was present, and nothing was changed. previous:
/// optional; the present value, or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_try_insert_word(
    table: *const icefield_table,
    key: u64,
    value: u64,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let inserted = handle(table, "table")?.words()?.try_insert(key, value)?;
        let before = inserted.err().map(|occupied| occupied.0);
        Answers::one(previous, present).set(0, before);
        Ok(())
    })
}

/// Inserts `key` or replaces its value. present: optional; 1 if the key was present. previous: optional; the previous
/// value, or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_insert_word(
    table: *const icefield_table,
    key: u64,
    value: u64,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let before = handle(table, "table")?.words()?.insert(key, value)?;
        Answers::one(previous, present).set(0, before);
        Ok(())
    })
}

/// Inserts `key` or replaces its value, without the previous value, which may be faster.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_put_word(
    table: *const icefield_table,
    key: u64,
    value: u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, { Ok(handle(table, "table")?.words()?.put(key, value)?) })
}

/// Replaces the value only if `key` is present. present: optional; 1 if it was. previous: optional; the previous value,
/// or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_update_word(
    table: *const icefield_table,
    key: u64,
    value: u64,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let before = handle(table, "table")?.words()?.update(key, value)?;
        Answers::one(previous, present).set(0, before);
        Ok(())
    })
}

/// Removes `key`. present: optional; 1 if it was present. previous: optional; its value, or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_remove_word(
    table: *const icefield_table,
    key: u64,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let before = handle(table, "table")?.words()?.remove(key)?;
        Answers::one(previous, present).set(0, before);
        Ok(())
    })
}

/// Gets the values of `count` keys, with overlapping memory latencies. values, present: arrays of `count` results as of
/// icefield_table_get_word; `values` is optional. If the call fails, some of the results may have been stored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_get_words(
    table: *const icefield_table,
    keys: *const u64,
    count: usize,
    values: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let words = handle(table, "table")?.words()?;
        let keys = slice(keys, count, "keys")?;
        outs(present, count, "present")?;
        let mut answers = Answers::of_batch(values, present, count, &[keys])?;
        words.get_batch(keys, |index, value| answers.set(index, value))?;
        Ok(())
    })
}

/// A batch of writes with results.
type WriteBatch<'a> =
    fn(AnyWords<'a>, &[u64], &[u64], &mut dyn FnMut(usize, Option<u64>)) -> IceResult<()>;

/// Runs a batch of writes with the pointers of a function of the ABI.
///
/// # Safety
/// The rules of the header hold for the pointers.
unsafe fn write_batch(
    table: *const icefield_table,
    [keys, values]: [*const u64; 2],
    count: usize,
    previous: *mut u64,
    present: *mut u8,
    run: WriteBatch<'_>,
) -> Result<(), Failure> {
    // SAFETY: as this function.
    let (words, keys, values) = unsafe {
        (
            handle(table, "table")?.words()?,
            slice(keys, count, "keys")?,
            slice(values, count, "values")?,
        )
    };
    // SAFETY: as this function.
    let mut answers = unsafe { Answers::of_batch(previous, present, count, &[keys, values]) }?;
    Ok(run(words, keys, values, &mut |index, before| answers.set(index, before))?)
}

/// Calls icefield_table_try_insert_word for `count` keys and values in order; all are durable when the call returns.
/// previous, present: optional arrays of `count` results. If the call fails, the operations before the failing one are
/// durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_try_insert_words(
    table: *const icefield_table,
    keys: *const u64,
    values: *const u64,
    count: usize,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        write_batch(table, [keys, values], count, previous, present, |words, keys, values, f| {
            words.try_insert_batch(keys, values, f)
        })
    })
}

/// Calls icefield_table_insert_word for `count` keys and values in order, as icefield_table_try_insert_words does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_insert_words(
    table: *const icefield_table,
    keys: *const u64,
    values: *const u64,
    count: usize,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        write_batch(table, [keys, values], count, previous, present, |words, keys, values, f| {
            words.insert_batch(keys, values, f)
        })
    })
}

/// Calls icefield_table_put_word for `count` keys and values in order, as icefield_table_try_insert_words does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_put_words(
    table: *const icefield_table,
    keys: *const u64,
    values: *const u64,
    count: usize,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let words = handle(table, "table")?.words()?;
        Ok(words.put_batch(slice(keys, count, "keys")?, slice(values, count, "values")?)?)
    })
}

/// Calls icefield_table_update_word for `count` keys and values in order, as icefield_table_try_insert_words does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_update_words(
    table: *const icefield_table,
    keys: *const u64,
    values: *const u64,
    count: usize,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        write_batch(table, [keys, values], count, previous, present, |words, keys, values, f| {
            words.update_batch(keys, values, f)
        })
    })
}

/// Calls icefield_table_remove_word for `count` keys in order, as icefield_table_try_insert_words does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_remove_words(
    table: *const icefield_table,
    keys: *const u64,
    count: usize,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        // A removal has no value. The keys take that place, and are not read as values.
        write_batch(table, [keys, keys], count, previous, present, |words, keys, _, f| {
            words.remove_batch(keys, f)
        })
    })
}
