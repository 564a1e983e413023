//! Durable tables through the ABI.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use common::{c, c_path, call, close, ok, table};
use icefield_c::icefield_status::*;
use icefield_c::*;

#[test]
fn words_one_by_one() {
    let place = tempfile::tempdir().unwrap();
    for design in icefield::AnyTable::DESIGNS {
        let table = table(&place.path().join(design), design, "u64", "i64");
        // SAFETY: all pointers are valid.
        unsafe {
            let (mut value, mut present) = (9, 9);
            ok(|e| icefield_table_get_word(table, 1, &mut value, &mut present, e));
            assert_eq!((value, present), (0, 0));
            ok(|e| icefield_table_put_word(table, 1, 10, e));
            ok(|e| icefield_table_try_insert_word(table, 1, 11, &mut value, &mut present, e));
            assert_eq!((value, present), (10, 1));
            ok(|e| icefield_table_insert_word(table, 1, 12, &mut value, &mut present, e));
            assert_eq!((value, present), (10, 1));
            ok(|e| icefield_table_update_word(table, 2, 20, &mut value, &mut present, e));
            assert_eq!((value, present), (0, 0));
            ok(|e| icefield_table_get_word(table, 1, null_mut(), &mut present, e));
            assert_eq!(present, 1);
            ok(|e| icefield_table_remove_word(table, 1, &mut value, &mut present, e));
            assert_eq!((value, present), (12, 1));
            ok(|e| icefield_table_remove_word(table, 1, null_mut(), null_mut(), e));
            let mut len = 9;
            ok(|e| icefield_table_len(table, &mut len, e));
            assert_eq!(len, 0);
        }
        close(table);
    }
}

#[test]
fn words_in_batches() {
    let place = tempfile::tempdir().unwrap();
    let table = table(&place.path().join("t"), "dash-eh", "u64", "u64");
    let keys: Vec<u64> = (0..5000).collect();
    let values: Vec<u64> = keys.iter().map(|key| key * 10).collect();
    let (n, mut found, mut present) = (keys.len(), vec![1; 5000], vec![9_u8; 5000]);
    // SAFETY: all arrays have n entries.
    unsafe {
        let (k, v) = (keys.as_ptr(), values.as_ptr());
        ok(|e| icefield_table_put_words(table, k, v, n / 2, e));
        let (f, p) = (found.as_mut_ptr(), present.as_mut_ptr());
        ok(|e| icefield_table_try_insert_words(table, k, v, n, f, p, e));
        assert!(present.iter().enumerate().all(|(i, &p)| p == u8::from(i < n / 2)));
        assert!(found.iter().enumerate().all(|(i, &f)| f == if i < n / 2 { values[i] } else { 0 }));
        ok(|e| icefield_table_insert_words(table, k, k, n, null_mut(), p, e));
        assert!(present.iter().all(|&p| p == 1));
        ok(|e| icefield_table_update_words(table, k, v, n, f, null_mut(), e));
        assert_eq!(found, keys);
        ok(|e| icefield_table_get_words(table, k, n, f, p, e));
        assert_eq!(found, values);
        ok(|e| icefield_table_get_words(table, k, n, null_mut(), p, e));
        ok(|e| icefield_table_remove_words(table, k, n, f, p, e));
        assert_eq!(found, values);
        ok(|e| icefield_table_remove_words(table, k, n, null_mut(), p, e));
        assert!(present.iter().all(|&p| p == 0));
        // Nothing to do.
        ok(|e| icefield_table_put_words(table, null(), null(), 0, e));
        ok(|e| icefield_table_get_words(table, null(), 0, null_mut(), null_mut(), e));

        let overlapping = call(|e| icefield_table_get_words(table, k, n, k.cast_mut(), p, e));
        assert_eq!(overlapping.0, ICEFIELD_INVALID, "{}", overlapping.1);
        let endless = call(|e| icefield_table_put_words(table, k, v, usize::MAX, e));
        assert_eq!(endless.0, ICEFIELD_INVALID, "{}", endless.1);
    }
    close(table);
}

#[test]
fn calls_on_words_need_words() {
    let place = tempfile::tempdir().unwrap();
    let table = table(&place.path().join("t"), "dash-eh", "str", "u64");
    // SAFETY: all pointers are valid.
    let (status, message) = call(|e| unsafe { icefield_table_put_word(table, 1, 2, e) });
    assert_eq!(status, ICEFIELD_TYPE_MISMATCH);
    assert!(message.contains("str"), "{message}");
    close(table);
}

extern "C" fn add_length(context: *mut c_void, _: *const u8, len: usize) {
    // SAFETY: the tests pass a usize.
    unsafe { *context.cast::<usize>() += len };
}

extern "C" fn add_each(context: *mut c_void, index: usize, present: u8, _: *const u8, len: usize) {
    // SAFETY: the tests pass a vector.
    unsafe { (*context.cast::<Vec<(usize, u8, usize)>>()).push((index, present, len)) };
}

fn slice(bytes: &[u8]) -> icefield_slice {
    icefield_slice { data: bytes.as_ptr(), len: bytes.len() }
}

/// Returns the texts of values, and frees them.
fn take(mut values: *mut icefield_values) -> Vec<Option<Vec<u8>>> {
    let mut all = Vec::new();
    // SAFETY: all pointers are valid.
    unsafe {
        for index in 0..icefield_values_len(values) {
            let (mut value, mut present) = (slice(&[]), 9);
            ok(|e| icefield_values_get(values, index, &mut value, &mut present, e));
            let bytes = (value.len > 0).then(|| std::slice::from_raw_parts(value.data, value.len));
            all.push((present == 1).then(|| bytes.unwrap_or_default().to_vec()));
        }
        let mut present = 9;
        ok(|e| icefield_values_get(values, 1 << 40, null_mut(), &mut present, e));
        assert_eq!(present, 0);
        icefield_values_free(&mut values);
        icefield_values_free(&mut values);
    }
    all
}

#[test]
fn bytes() {
    let place = tempfile::tempdir().unwrap();
    let table = table(&place.path().join("t"), "plush", "str", "bytes");
    let one = |text: &str| Some(text.as_bytes().to_vec());
    // SAFETY: all pointers are valid.
    unsafe {
        let (key, value) = (b"one", b"eins");
        let (k, v) = (key.as_ptr(), value.as_ptr());
        let (mut present, mut len, mut buffer) = (9, 9, [0_u8; 8]);
        ok(|e| icefield_table_put(table, k, 3, v, 4, e));
        let b = buffer.as_mut_ptr();
        ok(|e| icefield_table_get(table, k, 3, b, 8, &mut len, &mut present, e));
        assert_eq!((&buffer[..4], len, present), (&b"eins"[..], 4, 1));
        let small = call(|e| icefield_table_get(table, k, 3, b, 3, &mut len, &mut present, e));
        assert_eq!((small.0, len, present), (ICEFIELD_BUFFER_TOO_SMALL, 4, 1));
        let none =
            call(|e| icefield_table_get(table, k, 3, null_mut(), 0, &mut len, &mut present, e));
        assert_eq!((none.0, len), (ICEFIELD_BUFFER_TOO_SMALL, 4));
        ok(|e| icefield_table_get(table, k, 2, null_mut(), 0, &mut len, &mut present, e));
        assert_eq!((len, present), (0, 0));
        ok(|e| icefield_table_contains(table, k, 3, &mut present, e));
        assert_eq!(present, 1);
        let mut total = 0_usize;
        let context = (&raw mut total).cast();
        ok(|e| icefield_table_get_with(table, k, 3, Some(add_length), context, &mut present, e));
        assert_eq!((total, present), (4, 1));

        let mut before = null_mut();
        ok(|e| icefield_table_try_insert(table, k, 3, v, 1, &mut present, &mut before, e));
        assert_eq!((present, take(before)), (1, vec![one("eins")]));
        ok(|e| icefield_table_insert(table, k, 3, v, 1, &mut present, &mut before, e));
        assert_eq!((present, take(before)), (1, vec![one("eins")]));
        ok(|e| icefield_table_update(table, k, 2, v, 1, &mut present, &mut before, e));
        assert_eq!((present, take(before)), (0, vec![None]));
        ok(|e| icefield_table_insert(table, k, 1, null(), 0, null_mut(), null_mut(), e));
        ok(|e| icefield_table_remove(table, k, 1, &mut present, &mut before, e));
        assert_eq!((present, take(before)), (1, vec![one("")]));

        let record = |key: &'static [u8], value: &'static [u8]| icefield_record {
            key: slice(key),
            value: slice(value),
        };
        let records = [record(b"two", b"zwei"), record(b"", b"leer")];
        ok(|e| icefield_table_put_batch(table, records.as_ptr(), 2, e));
        ok(|e| icefield_table_insert_batch(table, records.as_ptr(), 2, &mut before, e));
        assert_eq!(take(before), [one("zwei"), one("leer")]);
        ok(|e| icefield_table_insert_batch(table, records.as_ptr(), 2, null_mut(), e));
        let keys = [slice(b"two"), slice(b"six"), slice(b"")];
        ok(|e| icefield_table_get_batch(table, keys.as_ptr(), 3, &mut before, e));
        assert_eq!(take(before), [one("zwei"), None, one("leer")]);
        let mut seen: Vec<(usize, u8, usize)> = Vec::new();
        let context = (&raw mut seen).cast();
        ok(|e| icefield_table_get_batch_with(table, keys.as_ptr(), 3, Some(add_each), context, e));
        assert_eq!(seen, [(0, 1, 4), (1, 0, 0), (2, 1, 4)]);
        ok(|e| icefield_table_remove_batch(table, keys.as_ptr(), 3, &mut before, e));
        assert_eq!(take(before), [one("zwei"), None, one("leer")]);

        let bad = call(|e| icefield_table_put(table, [0xFF].as_ptr(), 1, v, 4, e));
        assert_eq!(bad.0, ICEFIELD_INVALID, "{}", bad.1);
    }
    close(table);
}

#[test]
fn scans_and_reports() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("t");
    let mut table = table(&path, "iceberg", "u64", "u64");
    // SAFETY: all pointers are valid.
    unsafe {
        let keys: Vec<u64> = (0..3000).collect();
        ok(|e| icefield_table_put_words(table, keys.as_ptr(), keys.as_ptr(), keys.len(), e));
        let (mut cursor, mut has_next, mut all) = (ICEFIELD_CURSOR_START, 1, Vec::<u64>::new());
        while has_next == 1 {
            let mut page = null_mut();
            ok(|e| icefield_table_scan(table, cursor, 100, &mut page, e));
            let (mut k, mut v) =
                (vec![0; icefield_page_len(page)], vec![0; icefield_page_len(page)]);
            let (room, mut len) = (k.len(), 0);
            let (kp, vp) = (k.as_mut_ptr(), v.as_mut_ptr());
            ok(|e| icefield_page_words(page, kp, vp, room, &mut len, e));
            assert_eq!((&k, len), (&v, room));
            if room > 0 {
                let small = call(|e| icefield_page_words(page, kp, vp, room - 1, &mut len, e));
                assert_eq!((small.0, len), (ICEFIELD_BUFFER_TOO_SMALL, room));
                let mut record = std::mem::zeroed();
                ok(|e| icefield_page_record(page, 0, &mut record, e));
                assert_eq!((record.key.len, record.value.len), (8, 8));
                assert_eq!(record.key.data.cast::<[u8; 8]>().read(), k[0].to_le_bytes());
            }
            let beyond = call(|e| icefield_page_record(page, room, &mut std::mem::zeroed(), e));
            assert_eq!(beyond.0, ICEFIELD_INVALID);
            assert_eq!(icefield_page_damaged_len(page), 0);
            all.extend(k);
            ok(|e| icefield_page_next(page, &mut cursor, &mut has_next, e));
            icefield_page_free(&mut page);
            assert!(page.is_null());
        }
        all.sort_unstable();
        assert_eq!(all, keys);

        let mut stats: icefield_stats = std::mem::zeroed();
        let refused = call(|e| icefield_table_stats(table, &mut stats, null_mut(), e));
        assert_eq!(refused.0, ICEFIELD_INVALID, "struct_size is 0");
        stats.struct_size = size_of::<icefield_stats>();
        let mut counters = null_mut();
        ok(|e| icefield_table_stats(table, &mut stats, &mut counters, e));
        assert_eq!((stats.len_estimate, stats.durability), (3000, ICEFIELD_DURABILITY_PROCESS));
        assert!(stats.storage_bytes > 0 && icefield_counters_len(counters) > 0);
        assert!(!CStr::from_ptr(icefield_counters_name(counters, 0)).is_empty());
        icefield_counters_free(&mut counters);

        // A caller of an older version has fewer fields, one of a newer version more.
        stats = std::mem::zeroed();
        stats.struct_size = 2 * size_of::<u64>();
        ok(|e| icefield_table_stats(table, &mut stats, null_mut(), e));
        assert_eq!((stats.len_estimate, stats.capacity), (3000, 0));
        let mut wide = [7_u64; 64];
        wide[0] = size_of_val(&wide) as u64;
        ok(|e| icefield_table_stats(table, wide.as_mut_ptr().cast(), null_mut(), e));
        assert_eq!((wide[1], wide[63]), (3000, 0));

        let mut check: icefield_check_report = std::mem::zeroed();
        check.struct_size = size_of_val(&check);
        let mut faults = null_mut();
        ok(|e| icefield_table_check(table, &mut check, &mut faults, e));
        assert_eq!((check.records, check.is_clean, icefield_texts_len(faults)), (3000, 1, 0));
        assert!(icefield_texts_get(faults, 0).is_null());
        icefield_texts_free(&mut faults);

        let mut backup: icefield_backup_report = std::mem::zeroed();
        backup.struct_size = size_of_val(&backup);
        let copy = c_path(&place.path().join("copy"));
        ok(|e| icefield_table_backup(table, copy.as_ptr(), &mut backup, e));
        assert!(backup.bytes > 0);
        let again = call(|e| icefield_table_backup(table, copy.as_ptr(), null_mut(), e));
        assert_eq!(again.0, ICEFIELD_ALREADY_EXISTS);
        let mut saved: icefield_salvage_report = std::mem::zeroed();
        saved.struct_size = size_of_val(&saved);
        let (new, mut lost) = (c_path(&place.path().join("new")), null_mut());
        ok(|e| icefield_table_salvage(table, new.as_ptr(), &mut saved, &mut lost, e));
        assert_eq!((saved.records, saved.lost), (3000, 0));
        icefield_texts_free(&mut lost);

        ok(|e| icefield_table_sync(table, e));
        ok(|e| icefield_table_reserve(table, 10_000, e));
        ok(|e| icefield_table_clear(table, e));
        ok(|e| icefield_table_shrink_to_fit(table, e));
        let name = |text| CStr::from_ptr(text).to_str().unwrap().to_owned();
        assert_eq!(name(icefield_table_design(table)), "iceberg");
        assert_eq!(name(icefield_table_key_type(table)), "u64");
        assert_eq!(name(icefield_table_value_type(table)), "u64");
        assert_eq!(name(icefield_table_path(table)), path.to_str().unwrap());
        ok(|e| icefield_table_close(&mut table, e));

        let mut saved_again = null_mut();
        let third = c_path(&place.path().join("third"));
        ok(|e| {
            icefield_salvage_files(copy.as_ptr(), third.as_ptr(), null_mut(), &mut saved_again, e)
        });
        icefield_texts_free(&mut saved_again);
        ok(|e| icefield_table_open_read_only(copy.as_ptr(), null(), &mut table, e));
        let mut recovery: icefield_recovery_report = std::mem::zeroed();
        recovery.struct_size = size_of_val(&recovery);
        ok(|e| icefield_table_recovery(table, &mut recovery, e));
        assert!(recovery.open_ns > 0);
        let refused = call(|e| icefield_table_put_word(table, 1, 1, e));
        assert_eq!(refused.0, ICEFIELD_READ_ONLY);
    }
    close(table);
}

#[test]
fn options_and_errors_of_opening() {
    let place = tempfile::tempdir().unwrap();
    let path = c_path(&place.path().join("t"));
    let mut table = null_mut();
    // SAFETY: all pointers are valid.
    unsafe {
        let (status, message) = call(|e| icefield_table_open(path.as_ptr(), null(), &mut table, e));
        assert_eq!(status, ICEFIELD_NOT_FOUND);
        assert!(message.contains(place.path().to_str().unwrap()), "{message}");
        let mut options: icefield_table_options = std::mem::zeroed();
        options.struct_size = size_of_val(&options);
        let (plush, u64_) = (c("plush"), c("u64"));
        let create = |options: *const icefield_table_options, table: &mut *mut icefield_table| {
            let (path, design, of) = (path.as_ptr(), plush.as_ptr(), u64_.as_ptr());
            call(|e| icefield_table_create(path, design, of, of, options, table, e))
        };
        for change in [
            |options: &mut icefield_table_options| options.durability = 6,
            |options: &mut icefield_table_options| options.sync_mode = 3,
            |options: &mut icefield_table_options| options.verify = 2,
            |options: &mut icefield_table_options| options.reserved = 1,
            |options: &mut icefield_table_options| options.struct_size = 0,
            |options: &mut icefield_table_options| options.struct_size = usize::MAX,
        ] {
            let mut bad = options;
            change(&mut bad);
            let (status, message) = create(&bad, &mut table);
            assert_eq!(status, ICEFIELD_INVALID, "{message}");
        }
        // A program of a newer version: what this version does not have must be 0.
        let mut newer = [0_u64; 20];
        newer[0] = size_of_val(&newer) as u64;
        newer[19] = 1;
        assert_eq!(create(newer.as_ptr().cast(), &mut table).0, ICEFIELD_UNSUPPORTED);
        options.capacity = 1000;
        assert_eq!(create(&options, &mut table).0, ICEFIELD_OK);
        assert_eq!(create(&options, &mut null_mut()).0, ICEFIELD_ALREADY_EXISTS);
        let locked = call(|e| icefield_table_open(path.as_ptr(), null(), &mut null_mut(), e));
        assert_eq!(locked.0, ICEFIELD_LOCKED);
        close(table);
        newer[19] = 0;
        let newer: *const icefield_table_options = newer.as_ptr().cast();
        ok(|e| icefield_table_open(path.as_ptr(), newer, &mut table, e));
        close(table);
        let bad = c("no-such-design");
        let (status, message) = call(|e| {
            let (path, of) = (path.as_ptr(), u64_.as_ptr());
            icefield_table_create(path, bad.as_ptr(), of, of, null(), &mut table, e)
        });
        assert_eq!(status, ICEFIELD_INVALID);
        assert!(message.contains("dash-eh"), "{message}");
        let not_utf8 = [0xFF_u8, 0];
        let (status, _) = call(|e| {
            let (path, of) = (path.as_ptr(), u64_.as_ptr());
            icefield_table_create(path, not_utf8.as_ptr().cast(), of, of, null(), &mut table, e)
        });
        assert_eq!(status, ICEFIELD_INVALID);
    }
}

#[test]
fn versions_and_names() {
    // SAFETY: the texts are static, and null is allowed.
    unsafe {
        assert_eq!(icefield_abi_version(), 1);
        let text = |text| CStr::from_ptr(text).to_str().unwrap();
        assert_eq!(text(icefield_version()), env!("CARGO_PKG_VERSION"));
        for (number, name) in [(0, "ICEFIELD_OK"), (23, "ICEFIELD_PANIC"), (99, "ICEFIELD_OTHER")] {
            assert_eq!(text(icefield_status_name(number)), name);
        }
        for number in 0..=24 {
            let status: icefield_status = std::mem::transmute(number);
            assert_eq!(text(icefield_status_name(number)), format!("{status:?}"));
        }
        assert_eq!(icefield_error_status(null()), ICEFIELD_NULL_POINTER);
        assert_eq!(icefield_error_os_code(null()), 0);
        icefield_error_free(null_mut());
    }
}
