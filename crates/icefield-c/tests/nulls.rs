//! Null pointers and closed handles: each is an error, and never undefined behaviour.
//!
//! `every_handle_may_be_null` calls all functions that take a handle, which a closed handle's variable is; a function
//! that is missing fails the test.

#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "null pointers are allowed, and the others are valid"
)]
#![allow(dead_code, reason = "`common` is for all tests")]

mod common;

use std::collections::BTreeSet;
use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};

use common::{c, c_path, call, close, ok, table};
use icefield_c::icefield_status::*;
use icefield_c::*;

/// Calls that must answer ICEFIELD_NULL_POINTER: each name with the arguments but the last, which is for the error.
macro_rules! refused {
    ($($name:ident($($argument:expr),* $(,)?);)*) => {{
        let mut names = BTreeSet::new();
        $(
            // SAFETY: null pointers are allowed, and the others are valid.
            let (status, message) = call(|error| unsafe { $name($($argument,)* error) });
            assert_eq!(status, ICEFIELD_NULL_POINTER, "{}: {message}", stringify!($name));
            // Without a place for the error, too.
            // SAFETY: null pointers are allowed, and the others are valid.
            let status = unsafe { $name($($argument,)* null_mut()) };
            assert_eq!(status, ICEFIELD_NULL_POINTER, "{}", stringify!($name));
            names.insert(stringify!($name));
        )*
        names
    }};
}

extern "C" fn visit(_: *mut c_void, _: *const u8, _: usize) {}
extern "C" fn visit_pair(_: *mut c_void, _: u64, _: u64) {}
extern "C" fn hash(_: *mut c_void, _: *const u8, len: usize) -> u64 {
    len as u64
}
extern "C" fn has_key(_: *mut c_void, _: *const u8, _: usize, _: u64) -> u8 {
    1
}
extern "C" fn visit_each(_: *mut c_void, _: usize, _: u8, _: *const u8, _: usize) {}

#[test]
fn every_handle_may_be_null() {
    let (mut word, mut other, mut byte, mut size, mut narrow) =
        (1_u64, 1_u64, 1_u8, 1_usize, 1_u32);
    let (w, o, b, s) = (&raw mut word, &raw mut other, &raw mut byte, &raw mut size);
    let (n, text) = (&raw mut narrow, c("/nowhere"));
    let path = text.as_ptr();
    let names = refused! {
        icefield_table_close(null_mut());
        icefield_table_get_word(null(), 1, w, b);
        icefield_table_try_insert_word(null(), 1, 1, w, b);
        icefield_table_insert_word(null(), 1, 1, w, b);
        icefield_table_put_word(null(), 1, 1);
        icefield_table_update_word(null(), 1, 1, w, b);
        icefield_table_remove_word(null(), 1, w, b);
        icefield_table_get_words(null(), w, 1, o, b);
        icefield_table_try_insert_words(null(), w, w, 1, o, b);
        icefield_table_insert_words(null(), w, w, 1, o, b);
        icefield_table_put_words(null(), w, w, 1);
        icefield_table_update_words(null(), w, w, 1, o, b);
        icefield_table_remove_words(null(), w, 1, o, b);
        icefield_table_get(null(), b, 1, null_mut(), 0, s, b);
        icefield_table_get_with(null(), b, 1, Some(visit), null_mut(), b);
        icefield_table_contains(null(), b, 1, b);
        icefield_table_try_insert(null(), b, 1, b, 1, b, null_mut());
        icefield_table_insert(null(), b, 1, b, 1, b, null_mut());
        icefield_table_put(null(), b, 1, b, 1);
        icefield_table_update(null(), b, 1, b, 1, b, null_mut());
        icefield_table_remove(null(), b, 1, b, null_mut());
        icefield_table_get_batch(null(), null(), 0, &mut null_mut());
        icefield_table_get_batch_with(null(), null(), 0, Some(visit_each), null_mut());
        icefield_table_put_batch(null(), null(), 0);
        icefield_table_insert_batch(null(), null(), 0, null_mut());
        icefield_table_remove_batch(null(), null(), 0, null_mut());
        icefield_table_scan(null(), 0, 1, &mut null_mut());
        icefield_table_len(null(), w);
        icefield_table_uuid(null(), b);
        icefield_table_stats(null(), null_mut(), null_mut());
        icefield_table_clear(null());
        icefield_table_reserve(null(), 1);
        icefield_table_shrink_to_fit(null());
        icefield_table_sync(null());
        icefield_table_recovery(null(), null_mut());
        icefield_table_check(null(), null_mut(), null_mut());
        icefield_table_backup(null(), path, null_mut());
        icefield_table_salvage(null(), path, null_mut(), null_mut());
        icefield_values_get(null(), 0, null_mut(), b);
        icefield_page_record(null(), 0, null_mut());
        icefield_page_words(null(), w, o, 1, s);
        icefield_page_next(null(), w, b);
        icefield_page_damaged(null(), 0, null_mut(), b, null_mut());
        icefield_dlht_close(null_mut());
        icefield_dlht_get(null(), 1, w, b);
        icefield_dlht_try_insert(null(), 1, 1, w, b);
        icefield_dlht_insert(null(), 1, 1, w, b);
        icefield_dlht_update(null(), 1, 1, w, b);
        icefield_dlht_remove(null(), 1, w, b);
        icefield_dlht_fetch_add(null(), 1, 1, w);
        icefield_dlht_compare_exchange(null(), 1, 1, 1, b, w);
        icefield_dlht_get_batch(null(), w, 1, o, b);
        icefield_dlht_try_insert_batch(null(), w, w, 1, o, b);
        icefield_dlht_insert_batch(null(), w, w, 1, o, b);
        icefield_dlht_update_batch(null(), w, w, 1, o, b);
        icefield_dlht_remove_batch(null(), w, 1, o, b);
        icefield_dlht_len(null(), w);
        icefield_dlht_stats(null(), null_mut(), null_mut());
        icefield_dlht_scan(null(), w, 1, w, o, 1, s, b);
        icefield_dlht_clear(null());
        icefield_dlht_reserve(null(), 1);
        icefield_dlht_shrink_to_fit(null());
        icefield_join_close(null_mut());
        icefield_join_probe_count(null(), w, 1, o);
        icefield_join_probe_some(null(), w, 1, o, o, 1, s, s);
        icefield_join_probe_into(null(), w, 1, 1, &mut null_mut(), s);
        icefield_join_semi(null(), w, 1, o, 1, o, o);
        icefield_join_anti(null(), w, 1, o, 1, o);
        icefield_join_insert(null(), 1, 1);
        icefield_join_insert_batch(null(), w, w, 1);
        icefield_join_remove(null(), 1, w);
        icefield_join_remove_batch(null(), w, 1, o);
        icefield_join_remove_pair(null(), 1, 1, b);
        icefield_join_for_each(null(), Some(visit_pair), null_mut());
        icefield_join_probe_count_bytes(null(), null(), 0, o);
        icefield_join_probe_some_bytes(null(), null(), 0, o, o, 1, s, s);
        icefield_join_probe_into_bytes(null(), null(), 0, 1, &mut null_mut(), s);
        icefield_join_semi_bytes(null(), null(), 0, o, 1, o, o);
        icefield_join_anti_bytes(null(), null(), 0, o, 1, o);
        icefield_join_insert_bytes(null(), b, 1, 1);
        icefield_join_insert_batch_bytes(null(), null(), w, 0);
        icefield_join_remove_bytes(null(), b, 1, w);
        icefield_join_remove_pair_bytes(null(), b, 1, 1, b);
        icefield_join_merge(null(), null_mut());
        icefield_join_len(null(), w);
        icefield_join_generation(null(), w);
        icefield_join_uuid(null(), b);
        icefield_join_set_threads(null(), 1);
        icefield_join_threads(null(), n);
        icefield_join_stats(null(), null_mut());
        icefield_join_recovery(null(), null_mut());
        icefield_join_check(null(), null_mut(), null_mut());
        icefield_join_sync(null());
        icefield_join_backup(null(), path, null_mut());
    };

    // Functions without a status: their results for null are documented.
    // SAFETY: null pointers are allowed, and the others are valid.
    let without_status = unsafe {
        assert!(icefield_table_design(null()).is_null() && icefield_table_path(null()).is_null());
        assert!(icefield_table_key_type(null()).is_null());
        assert!(icefield_table_value_type(null()).is_null());
        assert_eq!((icefield_values_len(null()), icefield_page_len(null())), (0, 0));
        assert_eq!((icefield_page_damaged_len(null()), icefield_texts_len(null())), (0, 0));
        assert!(icefield_texts_get(null(), 0).is_null());
        assert_eq!((icefield_counters_len(null()), icefield_counters_value(null(), 0)), (0, 0));
        assert!(icefield_counters_name(null(), 0).is_null());
        assert_eq!(icefield_pairs_len(null()), 0);
        assert!(icefield_pairs_positions(null()).is_null());
        assert!(icefield_pairs_payloads(null()).is_null());
        icefield_values_free(null_mut());
        icefield_page_free(null_mut());
        icefield_texts_free(null_mut());
        icefield_counters_free(null_mut());
        icefield_pairs_free(null_mut());
        [
            "icefield_table_design",
            "icefield_table_path",
            "icefield_table_key_type",
            "icefield_table_value_type",
            "icefield_values_len",
            "icefield_page_len",
            "icefield_page_damaged_len",
            "icefield_texts_len",
            "icefield_texts_get",
            "icefield_counters_len",
            "icefield_counters_value",
            "icefield_counters_name",
            "icefield_pairs_len",
            "icefield_pairs_positions",
            "icefield_pairs_payloads",
            "icefield_values_free",
            "icefield_page_free",
            "icefield_texts_free",
            "icefield_counters_free",
            "icefield_pairs_free",
        ]
    };
    // No handle, or a test of their own below or in `tables.rs`.
    let others = [
        "icefield_abi_version",
        "icefield_version",
        "icefield_status_name",
        "icefield_error_status",
        "icefield_error_message",
        "icefield_error_os_code",
        "icefield_error_free",
        "icefield_table_create",
        "icefield_table_open",
        "icefield_table_open_read_only",
        "icefield_salvage_files",
        "icefield_dlht_create",
        "icefield_join_build",
        "icefield_join_build_in_memory",
        "icefield_join_open",
        "icefield_join_open_read_only",
        "icefield_join_build_bytes",
        "icefield_join_open_bytes",
        "icefield_join_open_read_only_bytes",
    ];
    let mut called = names;
    called.extend(without_status);
    called.extend(others);
    let listed: BTreeSet<&str> = include_str!("../symbols.txt").lines().collect();
    assert_eq!(called, listed);
}

#[test]
fn every_required_pointer_may_be_null() {
    let place = tempfile::tempdir().unwrap();
    let words = table(&place.path().join("words"), "dash-eh", "u64", "u64");
    let texts = table(&place.path().join("texts"), "dash-eh", "str", "str");
    let (mut dlht, mut join, mut page) = (null_mut(), null_mut(), null_mut());
    let (mut word, mut other, mut byte, mut size) = (1_u64, 1_u64, 1_u8, 1_usize);
    let (w, o, b, s) = (&raw mut word, &raw mut other, &raw mut byte, &raw mut size);
    let (of, text) = (c("u64"), c_path(&place.path().join("new")));
    let (of, path) = (of.as_ptr(), text.as_ptr());
    let design = c("dash-eh");
    let design = design.as_ptr();
    let no_text: *const c_char = null();
    let mut values = null_mut();
    let one = icefield_slice { data: null(), len: 1 };
    let record = icefield_record { key: one, value: one };
    let mut table = null_mut();
    let (h, same, none): (icefield_hash_bytes, icefield_row_has_key, _) =
        (Some(hash), Some(has_key), null_mut());
    let name = icefield_slice { data: b, len: 1 };
    let (k, mut names, mut join_at_path) = (&raw const name, null_mut(), null_mut());
    // SAFETY: null pointers are allowed, and the others are valid.
    unsafe {
        ok(|e| icefield_dlht_create(null(), &mut dlht, e));
        ok(|e| icefield_join_build_in_memory(w, w, 1, null(), &mut join, e));
        let at = c_path(&place.path().join("names"));
        let at = at.as_ptr();
        ok(|e| icefield_join_build_bytes(at, k, w, 1, h, same, none, null(), &mut names, e));
        ok(|e| icefield_table_scan(words, 0, 1, &mut page, e));
        ok(|e| icefield_table_get_batch(texts, null(), 0, &mut values, e));
    }
    refused! {
        icefield_table_create(no_text, design, of, of, null(), &mut table);
        icefield_table_create(path, no_text, of, of, null(), &mut table);
        icefield_table_create(path, design, no_text, of, null(), &mut table);
        icefield_table_create(path, design, of, no_text, null(), &mut table);
        icefield_table_create(path, design, of, of, null(), null_mut());
        icefield_table_open(no_text, null(), &mut table);
        icefield_table_open(path, null(), null_mut());
        icefield_table_open_read_only(no_text, null(), &mut table);
        icefield_table_open_read_only(path, null(), null_mut());
        icefield_table_get_word(words, 1, w, null_mut());
        icefield_table_get_words(words, null(), 1, o, b);
        icefield_table_get_words(words, w, 1, o, null_mut());
        icefield_table_try_insert_words(words, null(), w, 1, o, b);
        icefield_table_try_insert_words(words, w, null(), 1, o, b);
        icefield_table_insert_words(words, null(), w, 1, o, b);
        icefield_table_insert_words(words, w, null(), 1, o, b);
        icefield_table_update_words(words, null(), w, 1, o, b);
        icefield_table_update_words(words, w, null(), 1, o, b);
        icefield_table_put_words(words, null(), w, 1);
        icefield_table_put_words(words, w, null(), 1);
        icefield_table_remove_words(words, null(), 1, o, b);
        icefield_table_get(texts, null(), 1, null_mut(), 0, s, b);
        icefield_table_get(texts, b, 1, null_mut(), 1, s, b);
        icefield_table_get(texts, b, 1, null_mut(), 0, null_mut(), b);
        icefield_table_get(texts, b, 1, null_mut(), 0, s, null_mut());
        icefield_table_get_with(texts, null(), 1, Some(visit), null_mut(), b);
        icefield_table_get_with(texts, b, 1, None, null_mut(), b);
        icefield_table_get_with(texts, b, 1, Some(visit), null_mut(), null_mut());
        icefield_table_contains(texts, null(), 1, b);
        icefield_table_contains(texts, b, 1, null_mut());
        icefield_table_try_insert(texts, null(), 1, b, 1, b, null_mut());
        icefield_table_try_insert(texts, b, 1, null(), 1, b, null_mut());
        icefield_table_insert(texts, null(), 1, b, 1, b, null_mut());
        icefield_table_insert(texts, b, 1, null(), 1, b, null_mut());
        icefield_table_put(texts, null(), 1, b, 1);
        icefield_table_put(texts, b, 1, null(), 1);
        icefield_table_update(texts, null(), 1, b, 1, b, null_mut());
        icefield_table_update(texts, b, 1, null(), 1, b, null_mut());
        icefield_table_remove(texts, null(), 1, b, null_mut());
        icefield_table_get_batch(texts, null(), 1, &mut null_mut());
        icefield_table_get_batch(texts, &one, 1, &mut null_mut());
        icefield_table_get_batch(texts, null(), 0, null_mut());
        icefield_table_get_batch_with(texts, null(), 1, Some(visit_each), null_mut());
        icefield_table_get_batch_with(texts, null(), 0, None, null_mut());
        icefield_table_put_batch(texts, null(), 1);
        icefield_table_put_batch(texts, &record, 1);
        icefield_table_insert_batch(texts, null(), 1, null_mut());
        icefield_table_remove_batch(texts, null(), 1, null_mut());
        icefield_table_scan(words, 0, 1, null_mut());
        icefield_table_len(words, null_mut());
        icefield_table_recovery(words, null_mut());
        icefield_table_check(words, null_mut(), null_mut());
        icefield_table_backup(words, no_text, null_mut());
        icefield_table_salvage(words, no_text, null_mut(), null_mut());
        icefield_salvage_files(no_text, path, null_mut(), null_mut());
        icefield_salvage_files(path, no_text, null_mut(), null_mut());
        icefield_values_get(values, 0, null_mut(), null_mut());
        icefield_page_record(page, 0, null_mut());
        icefield_page_words(page, null_mut(), w, 1, s);
        icefield_page_words(page, w, null_mut(), 1, s);
        icefield_page_words(page, w, w, 1, null_mut());
        icefield_page_next(page, w, null_mut());
        icefield_dlht_create(null(), null_mut());
        icefield_dlht_get(dlht, 1, w, null_mut());
        icefield_dlht_compare_exchange(dlht, 1, 1, 1, null_mut(), w);
        icefield_dlht_get_batch(dlht, null(), 1, o, b);
        icefield_dlht_get_batch(dlht, w, 1, o, null_mut());
        icefield_dlht_try_insert_batch(dlht, null(), w, 1, o, b);
        icefield_dlht_try_insert_batch(dlht, w, null(), 1, o, b);
        icefield_dlht_insert_batch(dlht, null(), w, 1, o, b);
        icefield_dlht_insert_batch(dlht, w, null(), 1, o, b);
        icefield_dlht_update_batch(dlht, null(), w, 1, o, b);
        icefield_dlht_update_batch(dlht, w, null(), 1, o, b);
        icefield_dlht_remove_batch(dlht, null(), 1, o, b);
        icefield_dlht_len(dlht, null_mut());
        icefield_dlht_scan(dlht, null_mut(), 1, w, o, 1, s, b);
        icefield_dlht_scan(dlht, w, 1, null_mut(), o, 1, s, b);
        icefield_dlht_scan(dlht, w, 1, o, null_mut(), 1, s, b);
        icefield_dlht_scan(dlht, w, 1, o, o, 1, null_mut(), b);
        icefield_dlht_scan(dlht, w, 1, o, o, 1, s, null_mut());
        icefield_join_build(no_text, w, w, 1, null(), &mut join);
        icefield_join_build(path, null(), w, 1, null(), &mut join);
        icefield_join_build(path, w, null(), 1, null(), &mut join);
        icefield_join_build(path, w, w, 1, null(), null_mut());
        icefield_join_build_in_memory(null(), w, 1, null(), &mut join);
        icefield_join_build_in_memory(w, null(), 1, null(), &mut join);
        icefield_join_build_in_memory(w, w, 1, null(), null_mut());
        icefield_join_open(no_text, null(), &mut join);
        icefield_join_open(path, null(), null_mut());
        icefield_join_open_read_only(no_text, null(), &mut join);
        icefield_join_open_read_only(path, null(), null_mut());
        icefield_join_probe_count(join, null(), 1, o);
        icefield_join_probe_count(join, w, 1, null_mut());
        icefield_join_probe_some(join, null(), 1, o, o, 1, s, s);
        icefield_join_probe_some(join, w, 1, null_mut(), o, 1, s, s);
        icefield_join_probe_some(join, w, 1, o, null_mut(), 1, s, s);
        icefield_join_probe_some(join, w, 1, o, o, 1, null_mut(), s);
        icefield_join_probe_some(join, w, 1, o, o, 1, s, null_mut());
        icefield_join_probe_into(join, null(), 1, 1, &mut null_mut(), s);
        icefield_join_probe_into(join, w, 1, 1, null_mut(), s);
        icefield_join_semi(join, null(), 1, o, 1, o, o);
        icefield_join_semi(join, w, 1, null_mut(), 1, o, o);
        icefield_join_anti(join, null(), 1, o, 1, o);
        icefield_join_anti(join, w, 1, null_mut(), 1, o);
        icefield_join_insert_batch(join, null(), w, 1);
        icefield_join_insert_batch(join, w, null(), 1);
        icefield_join_len(join, null_mut());
        icefield_join_generation(join, null_mut());
        icefield_join_uuid(join, null_mut());
        icefield_join_threads(join, null_mut());
        icefield_join_stats(join, null_mut());
        icefield_join_recovery(join, null_mut());
        icefield_join_check(join, null_mut(), null_mut());
        icefield_join_backup(join, no_text, null_mut());
        icefield_join_remove_batch(join, null(), 1, o);
        icefield_join_for_each(join, None, null_mut());
        icefield_table_uuid(words, null_mut());
        icefield_join_build_bytes(no_text, k, w, 1, h, same, none, null(), &mut join_at_path);
        icefield_join_build_bytes(path, null(), w, 1, h, same, none, null(), &mut join_at_path);
        icefield_join_build_bytes(path, k, null(), 1, h, same, none, null(), &mut join_at_path);
        icefield_join_build_bytes(path, k, w, 1, None, same, none, null(), &mut join_at_path);
        icefield_join_build_bytes(path, k, w, 1, h, None, none, null(), &mut join_at_path);
        icefield_join_build_bytes(path, k, w, 1, h, same, none, null(), null_mut());
        icefield_join_open_bytes(no_text, h, same, none, null(), &mut join_at_path);
        icefield_join_open_bytes(path, None, same, none, null(), &mut join_at_path);
        icefield_join_open_bytes(path, h, None, none, null(), &mut join_at_path);
        icefield_join_open_bytes(path, h, same, none, null(), null_mut());
        icefield_join_open_read_only_bytes(no_text, h, same, none, null(), &mut join_at_path);
        icefield_join_open_read_only_bytes(path, None, same, none, null(), &mut join_at_path);
        icefield_join_open_read_only_bytes(path, h, None, none, null(), &mut join_at_path);
        icefield_join_open_read_only_bytes(path, h, same, none, null(), null_mut());
        icefield_join_probe_count_bytes(names, null(), 1, o);
        icefield_join_probe_count_bytes(names, k, 1, null_mut());
        icefield_join_probe_some_bytes(names, null(), 1, o, o, 1, s, s);
        icefield_join_probe_some_bytes(names, k, 1, null_mut(), o, 1, s, s);
        icefield_join_probe_some_bytes(names, k, 1, o, null_mut(), 1, s, s);
        icefield_join_probe_some_bytes(names, k, 1, o, o, 1, null_mut(), s);
        icefield_join_probe_some_bytes(names, k, 1, o, o, 1, s, null_mut());
        icefield_join_probe_into_bytes(names, null(), 1, 1, &mut null_mut(), s);
        icefield_join_probe_into_bytes(names, k, 1, 1, null_mut(), s);
        icefield_join_semi_bytes(names, null(), 1, o, 1, o, o);
        icefield_join_semi_bytes(names, k, 1, null_mut(), 1, o, o);
        icefield_join_anti_bytes(names, null(), 1, o, 1, o);
        icefield_join_anti_bytes(names, k, 1, null_mut(), 1, o);
        icefield_join_insert_bytes(names, null(), 1, 1);
        icefield_join_insert_batch_bytes(names, null(), w, 1);
        icefield_join_insert_batch_bytes(names, k, null(), 1);
        icefield_join_remove_bytes(names, null(), 1, o);
        icefield_join_remove_pair_bytes(names, null(), 1, 1, b);
    };
    // SAFETY: null pointers are allowed, and the others are valid.
    unsafe {
        icefield_page_free(&mut page);
        icefield_values_free(&mut values);
        ok(|e| icefield_dlht_close(&mut dlht, e));
        ok(|e| icefield_join_close(&mut join, e));
        ok(|e| icefield_join_close(&mut names, e));
    }
    close(words);
    close(texts);
    assert!(!place.path().join("new").exists(), "refused calls create nothing");
}
