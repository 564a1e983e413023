//! Batches on `Dlht`.

use icefield::{Dlht, Occupied, Result, Table};

use crate::dlht::icefield_dlht;
use crate::error::icefield_status;
use crate::error::{Failure, icefield_error};
use crate::pointers::{handle, outs, slice};
use crate::words::Answers;

/// The number of operations of which the results are converted at a time. So the memory for results is limited, and the
/// pipeline of a batch, which is about a hundred operations long, drains seldom.
const PART: usize = 2048;

/// Gets the values of `count` keys, with overlapping memory latencies: the fast way to read. values, present: arrays of
/// `count` results as of icefield_dlht_get; `values` is optional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_get_batch(
    dlht: *const icefield_dlht,
    keys: *const u64,
    count: usize,
    values: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let dlht = &handle(dlht, "dlht")?.0;
        let keys = slice(keys, count, "keys")?;
        outs(present, count, "present")?;
        let answers = Answers::of_batch(values, present, count, &[keys])?;
        keys_in_parts(keys, answers, |keys, found| {
            dlht.get_batch(keys, found);
            Ok(())
        })
    })
}

/// Calls icefield_dlht_try_insert for `count` keys and values in order. previous, present: optional arrays of `count`
/// results. If the call fails, some of the operations have run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_try_insert_batch(
    dlht: *const icefield_dlht,
    keys: *const u64,
    values: *const u64,
    count: usize,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let run = |dlht: &Dlht<u64, u64>, records: &[(u64, u64)], before: &mut [Option<u64>]| {
            let mut outcomes = vec![Ok(()); records.len()];
            Table::try_insert_batch(dlht, records, &mut outcomes)?;
            for (before, outcome) in before.iter_mut().zip(outcomes) {
                *before = outcome.err().map(Occupied::into_inner);
            }
            Ok(())
        };
        write_batch(dlht, [keys, values], count, previous, present, run)
    })
}

/// Calls icefield_dlht_insert for `count` keys and values in order, as icefield_dlht_try_insert_batch does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_insert_batch(
    dlht: *const icefield_dlht,
    keys: *const u64,
    values: *const u64,
    count: usize,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        write_batch(dlht, [keys, values], count, previous, present, |dlht, records, before| {
            Table::insert_batch(dlht, records, before)
        })
    })
}

/// Calls icefield_dlht_update for `count` keys and values in order, as icefield_dlht_try_insert_batch does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_update_batch(
    dlht: *const icefield_dlht,
    keys: *const u64,
    values: *const u64,
    count: usize,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        write_batch(dlht, [keys, values], count, previous, present, |dlht, records, before| {
            Table::update_batch(dlht, records, before)
        })
    })
}

/// Calls icefield_dlht_remove for `count` keys in order, as icefield_dlht_try_insert_batch does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_dlht_remove_batch(
    dlht: *const icefield_dlht,
    keys: *const u64,
    count: usize,
    previous: *mut u64,
    present: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let dlht = &handle(dlht, "dlht")?.0;
        let keys = slice(keys, count, "keys")?;
        let answers = Answers::of_batch(previous, present, count, &[keys])?;
        keys_in_parts(keys, answers, |keys, removed| Table::remove_batch(dlht, keys, removed))
    })
}

/// Runs a batch on keys, part by part.
fn keys_in_parts(
    keys: &[u64],
    mut answers: Answers<'_>,
    mut run: impl FnMut(&[u64], &mut [Option<u64>]) -> Result<()>,
) -> std::result::Result<(), Failure> {
    let mut results = vec![None; keys.len().min(PART)];
    for (part, keys) in keys.chunks(PART).enumerate() {
        let results = &mut results[..keys.len()];
        run(keys, results)?;
        for (index, &result) in results.iter().enumerate() {
            answers.set(part * PART + index, result);
        }
    }
    Ok(())
}

/// Runs a batch of writes with the pointers of a function of the ABI, part by part.
///
/// # Safety
/// The rules of the header hold for the pointers.
unsafe fn write_batch(
    dlht: *const icefield_dlht,
    [keys, values]: [*const u64; 2],
    count: usize,
    previous: *mut u64,
    present: *mut u8,
    run: impl Fn(&Dlht<u64, u64>, &[(u64, u64)], &mut [Option<u64>]) -> Result<()>,
) -> std::result::Result<(), Failure> {
    // SAFETY: as this function.
    let (dlht, keys, values) = unsafe {
        (&handle(dlht, "dlht")?.0, slice(keys, count, "keys")?, slice(values, count, "values")?)
    };
    // SAFETY: as this function.
    let mut answers = unsafe { Answers::of_batch(previous, present, count, &[keys, values]) }?;
    let (mut records, mut results) = (Vec::with_capacity(count.min(PART)), Vec::new());
    for (part, (keys, values)) in keys.chunks(PART).zip(values.chunks(PART)).enumerate() {
        records.clear();
        records.extend(keys.iter().copied().zip(values.iter().copied()));
        results.clear();
        results.resize(records.len(), None);
        run(dlht, &records, &mut results)?;
        for (index, &result) in results.iter().enumerate() {
            answers.set(part * PART + index, result);
        }
    }
    Ok(())
}
