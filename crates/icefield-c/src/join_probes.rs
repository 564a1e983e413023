//! Probes of a join index.

use std::ffi::c_void;
use std::ptr;

use icefield::{Bitmap, Pairs, Word};

use crate::bytes::too_small;
use crate::error::icefield_status;
use crate::error::{Failure, icefield_error};
use crate::join_handle::{any_index, icefield_join};
use crate::pointers::{Out, handle, is_null, optional, out, outs, slice};

/// The pairs that a probe finds: positions of probe keys, and payloads. A list is used again by later probes, which
/// saves memory allocations.
pub struct icefield_pairs(Pairs);

/// Gets the number of pairs of a probe key and an equal key of the index: the rows of an inner join. Duplicates count
/// on both sides. Like every probe, the call sees one state of the index for all keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_probe_count(
    join: *const icefield_join,
    keys: *const u64,
    count: usize,
    pairs: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (join, mut pairs) = (handle(join, "join")?, out(pairs, "pairs")?);
        pairs.set(0, join.words()?.probe_count(slice(keys, count, "keys")?)?);
        Ok(())
    })
}

/// Finds the pairs of the first of `count` keys: of as many keys as have at most `capacity` pairs together.
///
/// positions, payloads: arrays of `capacity` results: the position in `keys`, and the payload, in no order. pairs: the
/// number of pairs. done: the number of keys that have been probed; pass the rest to the next call. If the first key
/// alone has more than `capacity` pairs, the call fails with ICEFIELD_BUFFER_TOO_SMALL; `pairs` is then the number of
/// that key's pairs, and `done` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_probe_some(
    join: *const icefield_join,
    keys: *const u64,
    count: usize,
    positions: *mut u64,
    payloads: *mut u64,
    capacity: usize,
    pairs: *mut usize,
    done: *mut usize,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let join = handle(join, "join")?.words()?;
        let keys = slice(keys, count, "keys")?;
        let positions = outs(positions, capacity, "positions")?;
        let payloads = outs(payloads, capacity, "payloads")?;
        let (pairs, done) = (out(pairs, "pairs")?, out(done, "done")?);
        positions.apart(keys)?;
        payloads.apart(keys)?;
        let mut found = Pairs::default();
        let probed = join.probe_some(keys, capacity, &mut found)?;
        store_some(&found, probed, capacity, [positions, payloads], [pairs, done])
    })
}

/// Stores the results of icefield_join_probe_some: the pairs of the first `probed` keys.
pub(crate) fn store_some(
    found: &Pairs,
    probed: usize,
    capacity: usize,
    [mut positions, mut payloads]: [Out<'_, u64>; 2],
    [mut pairs, mut done]: [Out<'_, usize>; 2],
) -> Result<(), Failure> {
    pairs.set(0, found.len());
    if found.len() > capacity {
        done.set(0, 0);
        return Err(too_small("positions", found.len(), capacity));
    }
    done.set(0, probed);
    positions.fill(0, found.positions());
    payloads.fill(0, found.payloads());
    Ok(())
}

/// Finds the pairs of the first of `count` keys, as icefield_join_probe_some does, and stores them in a list that
/// grows.
///
/// most: the number of pairs; SIZE_MAX for all. A single key with more is not divided. pairs: the address of a variable
/// that is NULL, or has the list of an earlier call, which is overwritten. done: optional; the number of keys that have
/// been probed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_probe_into(
    join: *const icefield_join,
    keys: *const u64,
    count: usize,
    most: usize,
    pairs: *mut *mut icefield_pairs,
    done: *mut usize,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (join, keys) = (handle(join, "join")?.words()?, slice(keys, count, "keys")?);
        optional(done).set(0, join.probe_some(keys, most, list_of(pairs)?)?);
        Ok(())
    })
}

/// Returns the list in a variable, which may be null: it then gets a new one.
///
/// # Safety
/// `pairs` is null or points to a variable that is null or has a list, which no other call uses.
pub(crate) unsafe fn list_of<'a>(
    pairs: *mut *mut icefield_pairs,
) -> Result<&'a mut Pairs, Failure> {
    // SAFETY: as this function.
    let variable = unsafe { pairs.as_mut() }.ok_or_else(|| is_null("pairs"))?;
    if variable.is_null() {
        *variable = Box::into_raw(Box::new(icefield_pairs(Pairs::default())));
    }
    // SAFETY: as this function; a new list is in a box.
    let list = unsafe { variable.as_mut() }.ok_or_else(|| is_null("pairs"))?;
    Ok(&mut list.0)
}

/// Receives the key and the payload of a pair. The rules of icefield_visit hold; the function must not change or close
/// the index.
pub type icefield_visit_pair =
    Option<unsafe extern "C" fn(context: *mut c_void, key: u64, payload: u64)>;

/// Passes every pair to `visit`, in no order, in the calling thread. If the keys are bytes, `key` is the hash. If the
/// call fails, `visit` may have been called for some of the pairs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_for_each(
    join: *const icefield_join,
    visit: icefield_visit_pair,
    context: *mut c_void,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (join, visit) = (handle(join, "join")?, visit.ok_or_else(|| is_null("visit"))?);
        any_index!(join, |index| {
            index.for_each(|key, payload| visit(context, key.to_word(), payload))?
        });
        Ok(())
    })
}

/// Returns the number of pairs of a list; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_pairs_len(pairs: *const icefield_pairs) -> usize {
    // SAFETY: the pointer is null or that of a list that has not been freed.
    unsafe { pairs.as_ref() }.map_or(0, |pairs| pairs.0.len())
}

/// Returns the positions of a list's pairs, which belong to the list until it is used again; NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_pairs_positions(pairs: *const icefield_pairs) -> *const u64 {
    // SAFETY: the pointer is null or that of a list that has not been freed.
    unsafe { pairs.as_ref() }.map_or(ptr::null(), |pairs| pairs.0.positions().as_ptr())
}

/// Returns the payloads of a list's pairs, which belong to the list until it is used again; NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_pairs_payloads(pairs: *const icefield_pairs) -> *const u64 {
    // SAFETY: the pointer is null or that of a list that has not been freed.
    unsafe { pairs.as_ref() }.map_or(ptr::null(), |pairs| pairs.0.payloads().as_ptr())
}

/// Frees a list and sets the variable to NULL. Does nothing if `pairs` or the variable is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_pairs_free(pairs: *mut *mut icefield_pairs) {
    // SAFETY: the caller passes the address of a variable, or null.
    unsafe { crate::objects::free(pairs) };
}

/// Finds which keys are in the index: a semi-join.
///
/// words: an array of `word_count` results, at least (count + 63) / 64: bit i % 64 of word i / 64 belongs to key i;
/// bits beyond the last key are 0. ones: optional; the number of bits that are 1. pairs: optional; the number of
/// pairs, as of icefield_join_probe_count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_semi(
    join: *const icefield_join,
    keys: *const u64,
    count: usize,
    words: *mut u64,
    word_count: usize,
    ones: *mut u64,
    pairs: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (join, keys) = (handle(join, "join")?.words()?, slice(keys, count, "keys")?);
        let mut words = outs(words, word_count, "words")?;
        check_words(count, word_count)?;
        words.apart(keys)?;
        let found = if pairs.is_null() {
            join.semi(keys)?
        } else {
            let (found, number) = join.semi_count(keys)?;
            optional(pairs).set(0, number);
            found
        };
        store(&found, &mut words, &mut optional(ones));
        Ok(())
    })
}

/// Finds which keys are not in the index: an anti-join. The results are those of icefield_join_semi.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_anti(
    join: *const icefield_join,
    keys: *const u64,
    count: usize,
    words: *mut u64,
    word_count: usize,
    ones: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (join, keys) = (handle(join, "join")?.words()?, slice(keys, count, "keys")?);
        let mut words = outs(words, word_count, "words")?;
        check_words(count, word_count)?;
        words.apart(keys)?;
        store(&join.anti(keys)?, &mut words, &mut optional(ones));
        Ok(())
    })
}

/// Returns an error if `word_count` words have no room for the bits of `count` keys.
pub(crate) fn check_words(count: usize, word_count: usize) -> Result<(), Failure> {
    let needed = count.div_ceil(64);
    if word_count < needed {
        return Err(too_small("words", needed, word_count));
    }
    Ok(())
}

/// Stores the results of a semi-join or an anti-join.
pub(crate) fn store(found: &Bitmap, words: &mut Out<'_, u64>, ones: &mut Out<'_, u64>) {
    words.fill(0, found.as_words());
    ones.set(0, found.count_ones());
}
