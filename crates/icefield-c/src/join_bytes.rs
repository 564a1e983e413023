//! A join index whose keys are bytes. It stores their hashes. The caller hashes keys, and compares them by payload.

use std::ffi::{c_char, c_void};

use icefield::Pairs;

use crate::error::icefield_status;
use crate::error::{Failure, icefield_error};
use crate::join_handle::{
    Index, functions, icefield_hash_bytes, icefield_join, icefield_row_has_key,
};
use crate::join_probes::{check_words, icefield_pairs, list_of, store, store_some};
use crate::options::icefield_join_options;
use crate::pointers::{
    Out, handle, icefield_slice, optional, options, out, outs, path, slice, slices,
};

/// Returns the keys of a probe, or an error if places of results overlap them.
///
/// # Safety
/// As [`slices`].
unsafe fn keys_apart_from<'a>(
    results: &[&Out<'_, u64>],
    keys: *const icefield_slice,
    count: usize,
) -> Result<Vec<&'a [u8]>, Failure> {
    // SAFETY: as this function.
    let (array, keys) = unsafe { (slice(keys, count, "keys")?, slices(keys, count, "keys")?) };
    for result in results {
        result.apart(array)?;
        keys.iter().try_for_each(|key| result.apart(key))?;
    }
    Ok(keys)
}

/// Builds an index of `count` pairs at `path`, as icefield_join_build does, with keys of any length.
///
/// hash, has_key: required; called until the index is closed. context: their first argument. options: optional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_build_bytes(
    path: *const c_char,
    keys: *const icefield_slice,
    payloads: *const u64,
    count: usize,
    hash: icefield_hash_bytes,
    has_key: icefield_row_has_key,
    context: *mut c_void,
    options: *const icefield_join_options,
    join: *mut *mut icefield_join,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (path, mut join) = (self::path(path, "path")?, out(join, "join")?);
        let (keys, payloads) = (slices(keys, count, "keys")?, slice(payloads, count, "payloads")?);
        let (hash, verify) = functions(hash, has_key, context)?;
        let options = self::options(options, "options")?.checked()?;
        let index = options.build_with_hash(path, &keys, payloads, hash, verify)?;
        join.set(0, icefield_join::new(Index::Bytes(index)));
        Ok(())
    })
}

/// Opens the index of bytes at `path`, as icefield_join_open does. `hash` must be the function of the build; one with
/// another hash of `icefield` is ICEFIELD_INVALID. The other parameters are those of icefield_join_build_bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_open_bytes(
    path: *const c_char,
    hash: icefield_hash_bytes,
    has_key: icefield_row_has_key,
    context: *mut c_void,
    options: *const icefield_join_options,
    join: *mut *mut icefield_join,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (path, mut join) = (self::path(path, "path")?, out(join, "join")?);
        let (hash, verify) = functions(hash, has_key, context)?;
        let options = self::options(options, "options")?.checked()?;
        let index = options.open_with_hash(path, hash, verify)?;
        join.set(0, icefield_join::new(Index::Bytes(index)));
        Ok(())
    })
}

/// Opens the index of bytes at `path` for reading only. The parameters are those of icefield_join_open_bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_open_read_only_bytes(
    path: *const c_char,
    hash: icefield_hash_bytes,
    has_key: icefield_row_has_key,
    context: *mut c_void,
    options: *const icefield_join_options,
    join: *mut *mut icefield_join,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (path, mut join) = (self::path(path, "path")?, out(join, "join")?);
        let (hash, verify) = functions(hash, has_key, context)?;
        let options = self::options(options, "options")?.checked()?;
        let index = options.open_read_only_with_hash(path, hash, verify)?;
        join.set(0, icefield_join::new(Index::Bytes(index)));
        Ok(())
    })
}

/// As icefield_join_probe_count, for keys of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_probe_count_bytes(
    join: *const icefield_join,
    keys: *const icefield_slice,
    count: usize,
    pairs: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (join, mut pairs) = (handle(join, "join")?.bytes()?, out(pairs, "pairs")?);
        pairs.set(0, join.probe_count(&slices(keys, count, "keys")?)?);
        Ok(())
    })
}

/// As icefield_join_probe_some, for keys of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_probe_some_bytes(
    join: *const icefield_join,
    keys: *const icefield_slice,
    count: usize,
    positions: *mut u64,
    payloads: *mut u64,
    capacity: usize,
    pairs: *mut usize,
    done: *mut usize,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let join = handle(join, "join")?.bytes()?;
        let positions = outs(positions, capacity, "positions")?;
        let payloads = outs(payloads, capacity, "payloads")?;
        let keys = keys_apart_from(&[&positions, &payloads], keys, count)?;
        let (pairs, done) = (out(pairs, "pairs")?, out(done, "done")?);
        let mut found = Pairs::default();
        let probed = join.probe_some(&keys, capacity, &mut found)?;
        store_some(&found, probed, capacity, [positions, payloads], [pairs, done])
    })
}

/// As icefield_join_probe_into, for keys of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_probe_into_bytes(
    join: *const icefield_join,
    keys: *const icefield_slice,
    count: usize,
    most: usize,
    pairs: *mut *mut icefield_pairs,
    done: *mut usize,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (join, keys) = (handle(join, "join")?.bytes()?, slices(keys, count, "keys")?);
        optional(done).set(0, join.probe_some(&keys, most, list_of(pairs)?)?);
        Ok(())
    })
}

/// As icefield_join_semi, for keys of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_semi_bytes(
    join: *const icefield_join,
    keys: *const icefield_slice,
    count: usize,
    words: *mut u64,
    word_count: usize,
    ones: *mut u64,
    pairs: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let join = handle(join, "join")?.bytes()?;
        let mut words = outs(words, word_count, "words")?;
        let keys = keys_apart_from(&[&words], keys, count)?;
        check_words(count, word_count)?;
        let found = if pairs.is_null() {
            join.semi(&keys)?
        } else {
            let (found, number) = join.semi_count(&keys)?;
            optional(pairs).set(0, number);
            found
        };
        store(&found, &mut words, &mut optional(ones));
        Ok(())
    })
}

/// As icefield_join_anti, for keys of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_anti_bytes(
    join: *const icefield_join,
    keys: *const icefield_slice,
    count: usize,
    words: *mut u64,
    word_count: usize,
    ones: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let join = handle(join, "join")?.bytes()?;
        let mut words = outs(words, word_count, "words")?;
        let keys = keys_apart_from(&[&words], keys, count)?;
        check_words(count, word_count)?;
        store(&join.anti(&keys)?, &mut words, &mut optional(ones));
        Ok(())
    })
}

/// As icefield_join_insert, for a key of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_insert_bytes(
    join: *const icefield_join,
    key: *const u8,
    key_len: usize,
    payload: u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let join = handle(join, "join")?.bytes()?;
        Ok(join.insert(slice(key, key_len, "key")?, payload)?)
    })
}

/// As icefield_join_insert_batch, for keys of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_insert_batch_bytes(
    join: *const icefield_join,
    keys: *const icefield_slice,
    payloads: *const u64,
    count: usize,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let join = handle(join, "join")?.bytes()?;
        let (keys, payloads) = (slices(keys, count, "keys")?, slice(payloads, count, "payloads")?);
        let pairs: Vec<_> = keys.into_iter().zip(payloads.iter().copied()).collect();
        Ok(join.insert_batch(&pairs)?)
    })
}

/// As icefield_join_remove, for a key of bytes. If another key has the same hash, a crash during the call may leave
/// some of the pairs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_remove_bytes(
    join: *const icefield_join,
    key: *const u8,
    key_len: usize,
    removed: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let pairs = handle(join, "join")?.bytes()?.remove(slice(key, key_len, "key")?)?;
        optional(removed).set(0, pairs);
        Ok(())
    })
}

/// As icefield_join_remove_pair, for a key of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_remove_pair_bytes(
    join: *const icefield_join,
    key: *const u8,
    key_len: usize,
    payload: u64,
    removed: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let join = handle(join, "join")?.bytes()?;
        let is_removed = join.remove_pair(slice(key, key_len, "key")?, payload)?;
        optional(removed).set(0, u8::from(is_removed));
        Ok(())
    })
}
