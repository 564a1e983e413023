//! Maps in memory and join indexes through the ABI.

#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(dead_code, reason = "`common` is for all tests")]

mod common;

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use common::{c_path, call, ok};
use icefield_c::icefield_status::*;
use icefield_c::*;

#[test]
fn dlht() {
    let mut dlht = null_mut();
    let (mut value, mut present) = (9, 9);
    // SAFETY: all pointers are valid.
    unsafe {
        ok(|e| icefield_dlht_create(null(), &mut dlht, e));
        ok(|e| icefield_dlht_try_insert(dlht, 1, 10, &mut value, &mut present, e));
        assert_eq!((value, present), (0, 0));
        ok(|e| icefield_dlht_try_insert(dlht, 1, 11, &mut value, &mut present, e));
        assert_eq!((value, present), (10, 1));
        ok(|e| icefield_dlht_insert(dlht, 1, 12, &mut value, null_mut(), e));
        assert_eq!(value, 10);
        ok(|e| icefield_dlht_update(dlht, 2, 1, null_mut(), &mut present, e));
        assert_eq!(present, 0);
        ok(|e| icefield_dlht_get(dlht, 1, &mut value, &mut present, e));
        assert_eq!((value, present), (12, 1));
        ok(|e| icefield_dlht_fetch_add(dlht, 1, u64::MAX, &mut value, e));
        assert_eq!(value, 12);
        let mut exchanged = 9;
        ok(|e| icefield_dlht_compare_exchange(dlht, 1, 12, 0, &mut exchanged, &mut value, e));
        assert_eq!((exchanged, value), (0, 11));
        ok(|e| icefield_dlht_compare_exchange(dlht, 1, 11, 5, &mut exchanged, &mut value, e));
        assert_eq!((exchanged, value), (1, 11));
        ok(|e| icefield_dlht_remove(dlht, 1, &mut value, &mut present, e));
        assert_eq!((value, present), (5, 1));

        let n = 10_000;
        let keys: Vec<u64> = (0..n as u64).collect();
        let values: Vec<u64> = keys.iter().map(|key| key * 3).collect();
        let (k, v) = (keys.as_ptr(), values.as_ptr());
        let (mut found, mut there) = (vec![9; n], vec![9; n]);
        let (f, p) = (found.as_mut_ptr(), there.as_mut_ptr());
        ok(|e| icefield_dlht_insert_batch(dlht, k, v, n, f, p, e));
        assert!(there.iter().all(|&present| present == 0));
        ok(|e| icefield_dlht_get_batch(dlht, k, n, f, p, e));
        assert!(found == values && there.iter().all(|&present| present == 1));
        ok(|e| icefield_dlht_try_insert_batch(dlht, k, k, n, f, null_mut(), e));
        assert_eq!(found, values);
        ok(|e| icefield_dlht_update_batch(dlht, k, k, n, null_mut(), p, e));
        let mut len = 0;
        ok(|e| icefield_dlht_len(dlht, &mut len, e));
        assert_eq!(len, n as u64);
        let mut stats: icefield_stats = std::mem::zeroed();
        stats.struct_size = size_of_val(&stats);
        ok(|e| icefield_dlht_stats(dlht, &mut stats, null_mut(), e));
        assert_eq!(stats.len_estimate, n as u64);

        let (mut cursor, mut has_next, mut all) = (ICEFIELD_CURSOR_START, 1, Vec::<u64>::new());
        while has_next == 1 {
            let (mut k, mut v, mut len) = ([0; 300], [0; 300], 0);
            let (k_, v_) = (k.as_mut_ptr(), v.as_mut_ptr());
            ok(|e| {
                icefield_dlht_scan(dlht, &mut cursor, 100, k_, v_, 300, &mut len, &mut has_next, e)
            });
            all.extend(&k[..len]);
            assert_eq!(k[..len], v[..len]);
        }
        all.sort_unstable();
        assert_eq!(all, keys);
        ok(|e| icefield_dlht_remove_batch(dlht, k, n - 1, f, p, e));
        assert_eq!(found[..n - 1], keys[..n - 1]);
        ok(|e| icefield_dlht_reserve(dlht, 1000, e));
        ok(|e| icefield_dlht_clear(dlht, e));
        ok(|e| icefield_dlht_shrink_to_fit(dlht, e));
        ok(|e| icefield_dlht_close(&mut dlht, e));
        assert!(dlht.is_null());
    }
}

#[test]
fn a_full_dlht_refuses() {
    // SAFETY: all pointers are valid.
    let mut options: icefield_dlht_options = unsafe { std::mem::zeroed() };
    options.struct_size = size_of_val(&options);
    (options.capacity, options.fixed_size) = (10, 1);
    let mut dlht = null_mut();
    // SAFETY: all pointers are valid.
    unsafe {
        ok(|e| icefield_dlht_create(&options, &mut dlht, e));
        let full = (0..10_000).find_map(|key| {
            let (status, _) =
                call(|e| icefield_dlht_insert(dlht, key, 0, null_mut(), null_mut(), e));
            (status != ICEFIELD_OK).then_some(status)
        });
        assert_eq!(full, Some(ICEFIELD_FULL));
        ok(|e| icefield_dlht_close(&mut dlht, e));
        options.hash = 3;
        assert_eq!(call(|e| icefield_dlht_create(&options, &mut dlht, e)).0, ICEFIELD_INVALID);
    }
}

#[test]
fn joins() {
    let place = tempfile::tempdir().unwrap();
    let path = c_path(&place.path().join("j"));
    let (keys, payloads) = ([1_u64, 2, 2, 3], [10_u64, 20, 21, 30]);
    // SAFETY: all pointers are valid.
    let mut options: icefield_join_options = unsafe { std::mem::zeroed() };
    options.struct_size = size_of_val(&options);
    options.threads = 1;
    let mut join = null_mut();
    // SAFETY: all pointers are valid.
    unsafe {
        let (k, p) = (keys.as_ptr(), payloads.as_ptr());
        ok(|e| icefield_join_build(path.as_ptr(), k, p, 4, &options, &mut join, e));
        let again =
            call(|e| icefield_join_build(path.as_ptr(), k, p, 4, &options, &mut null_mut(), e));
        assert_eq!(again.0, ICEFIELD_ALREADY_EXISTS);
        let probes = [2_u64, 9, 1, 2];
        let q = probes.as_ptr();
        let mut count = 0;
        ok(|e| icefield_join_probe_count(join, q, 4, &mut count, e));
        assert_eq!(count, 5);

        let (mut at, mut done, mut found) = (0, 0, Vec::new());
        let (mut positions, mut payloads, mut pairs) = ([0; 2], [0; 2], 0);
        while at < probes.len() {
            let (a, b) = (positions.as_mut_ptr(), payloads.as_mut_ptr());
            let (rest, n) = (q.add(at), probes.len() - at);
            ok(|e| icefield_join_probe_some(join, rest, n, a, b, 2, &mut pairs, &mut done, e));
            found.extend((0..pairs).map(|i| (at + positions[i] as usize, payloads[i])));
            at += done;
        }
        found.sort_unstable();
        assert_eq!(found, [(0, 20), (0, 21), (2, 10), (3, 20), (3, 21)]);
        let (a, b) = (positions.as_mut_ptr(), payloads.as_mut_ptr());
        let small =
            call(|e| icefield_join_probe_some(join, q, 4, a, b, 1, &mut pairs, &mut done, e));
        assert_eq!((small.0, pairs, done), (ICEFIELD_BUFFER_TOO_SMALL, 2, 0));

        let mut list = null_mut();
        ok(|e| icefield_join_probe_into(join, q, 4, usize::MAX, &mut list, &mut done, e));
        assert_eq!((icefield_pairs_len(list), done), (5, 4));
        ok(|e| icefield_join_probe_into(join, q, 1, usize::MAX, &mut list, null_mut(), e));
        let payloads = std::slice::from_raw_parts(icefield_pairs_payloads(list), 2);
        assert_eq!(payloads.iter().sum::<u64>(), 41);
        assert_eq!(*icefield_pairs_positions(list), 0);
        icefield_pairs_free(&mut list);
        assert_eq!(icefield_pairs_len(list), 0);

        let (mut words, mut ones) = ([u64::MAX; 1], 0);
        let w = words.as_mut_ptr();
        ok(|e| icefield_join_semi(join, q, 4, w, 1, &mut ones, &mut count, e));
        assert_eq!((words[0], ones, count), (0b1101, 3, 5));
        ok(|e| icefield_join_semi(join, q, 4, w, 1, null_mut(), null_mut(), e));
        ok(|e| icefield_join_anti(join, q, 4, w, 1, &mut ones, e));
        assert_eq!((words[0], ones), (0b10, 1));
        let small = call(|e| icefield_join_anti(join, q, 4, w, 0, &mut ones, e));
        assert_eq!(small.0, ICEFIELD_BUFFER_TOO_SMALL);

        ok(|e| icefield_join_insert(join, 9, 90, e));
        ok(|e| icefield_join_insert_batch(join, k, p, 4, e));
        let (mut removed, mut one) = (9, 9);
        ok(|e| icefield_join_remove(join, 2, &mut removed, e));
        ok(|e| icefield_join_remove_pair(join, 1, 10, &mut one, e));
        assert_eq!((removed, one), (4, 1));
        let mut merge: icefield_merge_report = std::mem::zeroed();
        merge.struct_size = size_of_val(&merge);
        ok(|e| icefield_join_merge(join, &mut merge, e));
        assert_eq!((merge.pairs, merge.generation), (4, 2));
        let (mut len, mut generation, mut uuid, mut threads) = (0, 0, [0; 16], 0);
        ok(|e| icefield_join_len(join, &mut len, e));
        ok(|e| icefield_join_generation(join, &mut generation, e));
        ok(|e| icefield_join_uuid(join, uuid.as_mut_ptr(), e));
        ok(|e| icefield_join_set_threads(join, 2, e));
        ok(|e| icefield_join_threads(join, &mut threads, e));
        assert_eq!((len, generation, threads), (4, 2, 2));
        assert_ne!(uuid, [0; 16]);
        let mut stats: icefield_join_statistics = std::mem::zeroed();
        stats.struct_size = size_of_val(&stats);
        ok(|e| icefield_join_stats(join, &mut stats, e));
        assert_eq!((stats.pairs, stats.delta_changes), (4, 0));
        let mut check: icefield_check_report = std::mem::zeroed();
        check.struct_size = size_of_val(&check);
        ok(|e| icefield_join_check(join, &mut check, null_mut(), e));
        assert_eq!((check.is_clean, check.records), (1, 4));
        ok(|e| icefield_join_sync(join, e));
        let copy = c_path(&place.path().join("copy"));
        ok(|e| icefield_join_backup(join, copy.as_ptr(), null_mut(), e));
        let mut all: Vec<(u64, u64)> = Vec::new();
        ok(|e| icefield_join_for_each(join, Some(gather), (&raw mut all).cast(), e));
        all.sort_unstable();
        assert_eq!(all, [(1, 10), (3, 30), (3, 30), (9, 90)]);
        ok(|e| icefield_join_remove_batch(join, [3, 7, 3].as_ptr(), 3, &mut removed, e));
        assert_eq!(removed, 2);
        let (status, message) =
            call(|e| icefield_join_remove_bytes(join, [1].as_ptr(), 1, null_mut(), e));
        assert!(status == ICEFIELD_TYPE_MISMATCH && message.contains("words"), "{message}");
        ok(|e| icefield_join_close(&mut join, e));

        ok(|e| icefield_join_open(copy.as_ptr(), null(), &mut join, e));
        let mut recovery: icefield_recovery_report = std::mem::zeroed();
        recovery.struct_size = size_of_val(&recovery);
        ok(|e| icefield_join_recovery(join, &mut recovery, e));
        assert_eq!(recovery.generation, 2);
        ok(|e| icefield_join_close(&mut join, e));
        ok(|e| icefield_join_open_read_only(path.as_ptr(), null(), &mut join, e));
        assert_eq!(call(|e| icefield_join_insert(join, 1, 1, e)).0, ICEFIELD_READ_ONLY);
        ok(|e| icefield_join_close(&mut join, e));
        ok(|e| icefield_join_build_in_memory(k, p, 4, null(), &mut join, e));
        ok(|e| icefield_join_close(&mut join, e));
    }
}

unsafe extern "C" fn gather(context: *mut c_void, key: u64, payload: u64) {
    // SAFETY: the callers pass a list.
    unsafe { (*context.cast::<Vec<(u64, u64)>>()).push((key, payload)) };
}

/// The rows of an index of names.
struct Names {
    rows: Vec<&'static str>,
}

/// Has equal hashes for names of the same length.
unsafe extern "C" fn hash_name(_: *mut c_void, name: *const u8, len: usize) -> u64 {
    // SAFETY: the library passes a key.
    let name = unsafe { std::slice::from_raw_parts(name, len) };
    if name == b"icefield" { 77 } else { len as u64 }
}

unsafe extern "C" fn other_hash(_: *mut c_void, _: *const u8, _: usize) -> u64 {
    78
}

unsafe extern "C" fn row_has_name(
    context: *mut c_void,
    name: *const u8,
    len: usize,
    row: u64,
) -> u8 {
    // SAFETY: the callers pass names, and the library passes a key.
    let (names, name) =
        unsafe { (&*context.cast::<Names>(), std::slice::from_raw_parts(name, len)) };
    u8::from(names.rows.get(row as usize).is_some_and(|row| row.as_bytes() == name))
}

fn slices(texts: &[&str]) -> Vec<icefield_slice> {
    texts.iter().map(|text| icefield_slice { data: text.as_ptr(), len: text.len() }).collect()
}

#[test]
fn joins_of_bytes() {
    let place = tempfile::tempdir().unwrap();
    let path = c_path(&place.path().join("names"));
    let path = path.as_ptr();
    let mut names = Names { rows: vec!["ann", "bob", "ann", "", "al"] };
    let context = (&raw mut names).cast::<c_void>();
    let (hash, has) = (Some(hash_name as _), Some(row_has_name as _));
    let (keys, payloads) = (slices(&["ann", "bob", "ann", ""]), [0, 1, 2, 3]);
    let (k, p) = (keys.as_ptr(), payloads.as_ptr());
    let mut join = null_mut();
    // SAFETY: all pointers are valid.
    unsafe {
        let (status, message) = call(|e| {
            icefield_join_build_bytes(path, k, p, 4, None, has, context, null(), &mut join, e)
        });
        assert!(status == ICEFIELD_NULL_POINTER && message.contains("`hash`"), "{message}");
        let (status, message) = call(|e| {
            icefield_join_build_bytes(path, k, p, 4, hash, None, context, null(), &mut join, e)
        });
        assert!(status == ICEFIELD_NULL_POINTER && message.contains("`has_key`"), "{message}");
        ok(|e| icefield_join_build_bytes(path, k, p, 4, hash, has, context, null(), &mut join, e));

        let probes = slices(&["eve", "ann", "", "bob"]);
        let q = probes.as_ptr();
        let (mut count, mut pairs, mut done) = (0, 0, 0);
        ok(|e| icefield_join_probe_count_bytes(join, q, 4, &mut count, e));
        assert_eq!(count, 4);
        let (mut at, mut found) = (0, Vec::new());
        let (mut positions, mut rows) = ([0; 2], [0; 2]);
        let (a, b) = (positions.as_mut_ptr(), rows.as_mut_ptr());
        while at < 4 {
            let (q, n) = (q.add(at), 4 - at);
            ok(|e| icefield_join_probe_some_bytes(join, q, n, a, b, 2, &mut pairs, &mut done, e));
            found.extend((0..pairs).map(|i| (at as u64 + *a.add(i), *b.add(i))));
            at += done;
        }
        found.sort_unstable();
        assert_eq!(found, [(1, 0), (1, 2), (2, 3), (3, 1)]);
        let small = call(|e| {
            icefield_join_probe_some_bytes(join, q.add(1), 1, a, b, 1, &mut pairs, &mut done, e)
        });
        assert_eq!((small.0, pairs, done), (ICEFIELD_BUFFER_TOO_SMALL, 2, 0));
        let mut list = null_mut();
        let most = usize::MAX;
        ok(|e| icefield_join_probe_into_bytes(join, q, 4, most, &mut list, &mut done, e));
        assert_eq!((icefield_pairs_len(list), done), (4, 4));
        icefield_pairs_free(&mut list);

        let (mut words, mut ones) = ([u64::MAX; 1], 0);
        let w = words.as_mut_ptr();
        ok(|e| icefield_join_semi_bytes(join, q, 4, w, 1, &mut ones, &mut count, e));
        assert_eq!((*w, ones, count), (0b1110, 3, 4));
        ok(|e| icefield_join_semi_bytes(join, q, 4, w, 1, null_mut(), null_mut(), e));
        ok(|e| icefield_join_anti_bytes(join, q, 4, w, 1, &mut ones, e));
        assert_eq!((*w, ones), (0b1, 1));
        let small = call(|e| icefield_join_anti_bytes(join, q, 4, w, 0, &mut ones, e));
        assert_eq!(small.0, ICEFIELD_BUFFER_TOO_SMALL);

        let over = probes.as_ptr().cast::<u64>().cast_mut();
        let overlaps = call(|e| icefield_join_anti_bytes(join, q, 4, over, 1, &mut ones, e));
        assert_eq!(overlaps.0, ICEFIELD_INVALID, "{}", overlaps.1);

        let (mut removed, mut one) = (9, 9);
        ok(|e| icefield_join_remove_bytes(join, b"ann".as_ptr(), 3, &mut removed, e));
        ok(|e| icefield_join_remove_pair_bytes(join, null(), 0, 3, &mut one, e));
        assert_eq!((removed, one), (2, 1));
        ok(|e| icefield_join_remove_pair_bytes(join, b"eve".as_ptr(), 3, 1, &mut one, e));
        assert_eq!(one, 0, "bob's row has the hash of eve");
        ok(|e| icefield_join_insert_bytes(join, b"al".as_ptr(), 2, 4, e));
        ok(|e| icefield_join_insert_batch_bytes(join, k, p, 1, e));
        let mut merge: icefield_merge_report = std::mem::zeroed();
        merge.struct_size = size_of_val(&merge);
        ok(|e| icefield_join_merge(join, &mut merge, e));
        let mut all: Vec<(u64, u64)> = Vec::new();
        ok(|e| icefield_join_for_each(join, Some(gather), (&raw mut all).cast(), e));
        all.sort_unstable();
        assert_eq!((merge.pairs, &all[..]), (3, &[(2, 4), (3, 0), (3, 1)][..]));

        let (status, message) =
            call(|e| icefield_join_probe_count(join, [1].as_ptr(), 1, &mut count, e));
        assert!(status == ICEFIELD_TYPE_MISMATCH && message.contains("_bytes"), "{message}");
        let mut check: icefield_check_report = std::mem::zeroed();
        check.struct_size = size_of_val(&check);
        ok(|e| icefield_join_check(join, &mut check, null_mut(), e));
        assert_eq!((check.is_clean, check.records), (1, 3));
        ok(|e| icefield_join_close(&mut join, e));

        let other = Some(other_hash as _);
        let wrong =
            call(|e| icefield_join_open_bytes(path, other, has, context, null(), &mut join, e));
        assert_eq!(wrong.0, ICEFIELD_INVALID, "{}", wrong.1);
        let wrong = call(|e| icefield_join_open(path, null(), &mut join, e));
        assert_eq!(wrong.0, ICEFIELD_TYPE_MISMATCH, "{}", wrong.1);
        ok(|e| icefield_join_open_bytes(path, hash, has, context, null(), &mut join, e));
        ok(|e| icefield_join_probe_count_bytes(join, q, 4, &mut count, e));
        assert_eq!(count, 2);
        ok(|e| icefield_join_close(&mut join, e));
        ok(|e| icefield_join_open_read_only_bytes(path, hash, has, context, null(), &mut join, e));
        let refused = call(|e| icefield_join_insert_bytes(join, null(), 0, 3, e));
        assert_eq!(refused.0, ICEFIELD_READ_ONLY);
        ok(|e| icefield_join_close(&mut join, e));
    }
}
