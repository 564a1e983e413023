//! Compares calls of the C interface with the same calls of `AnyTable` and `Dlht`, in alternating rounds.
//!
//! ```sh
//! cargo run --release -p icefield-c --example overhead -- /dev/shm
//! ```
//!
//! The functions of C are called through pointers that the compiler cannot resolve, as a program calls a shared
//! library.

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::Instant;

use icefield::{AnyOptions, AnyTable, Dlht};
use icefield_c::*;

const ROUNDS: usize = 21;
const CALLS: u64 = 400_000;
const BATCH: usize = 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let at = env::args().nth(1).unwrap_or_else(|| env::temp_dir().display().to_string());
    let directory = tempfile::tempdir_in(at)?;
    println!("nanoseconds a call: medians of {ROUNDS} alternating rounds");
    println!("{:44} {:>9} {:>9} {:>9}", "call", "Rust", "C", "C - Rust");
    for records in [1000, 4_000_000] {
        words(directory.path(), records)?;
        dlht(records);
    }
    bytes(directory.path())
}

/// Runs both functions in alternating rounds of `calls` calls, and prints a line.
fn compare(name: &str, calls: u64, mut rust: impl FnMut(), mut c: impl FnMut()) {
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        for (times, run) in times.iter_mut().zip([&mut rust as &mut dyn FnMut(), &mut c]) {
            let started = Instant::now();
            run();
            times.push(started.elapsed().as_secs_f64() * 1e9 / calls as f64);
        }
    }
    let mut differences: Vec<f64> =
        times[1].iter().zip(&times[0]).map(|(c, rust)| c - rust).collect();
    let [rust, c] = times.each_mut().map(|times| median(times));
    println!("{name:44} {rust:9.1} {c:9.1} {:9.1}", median(&mut differences));
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns keys below `records` in an order without a pattern.
fn keys(records: u64) -> Vec<u64> {
    let mut key = 1_u64;
    let mut next = || {
        key = key.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (key >> 20) % records
    };
    (0..CALLS).map(|_| next()).collect()
}

/// Two equal tables, because a table has one writer.
fn words(directory: &Path, records: u64) -> Result<(), Box<dyn Error>> {
    let path = |name: &str| directory.join(format!("{name}-{records}"));
    let options = AnyOptions { capacity: Some(records), ..AnyOptions::default() };
    let numbers: Vec<u64> = (0..records).collect();
    let create = |name: &str| {
        let table = AnyTable::create(path(name), "dash-eh", "u64", "u64", &options)?;
        if let Some(words) = table.words() {
            words.put_batch(&numbers, &numbers)?;
        }
        Ok::<_, icefield::Error>(table)
    };
    drop(create("c")?);
    let rust = create("rust")?;
    let place = std::ffi::CString::new(path("c").display().to_string())?;
    let mut c = null_mut();
    // SAFETY: all pointers are valid.
    unsafe { icefield_table_open(place.as_ptr(), null(), &mut c, null_mut()) };
    let (get, keys) = (black_box(icefield_table_get_word as GetWord), keys(records));
    compare(
        &format!("dash-eh, {records} words: get_with, get_word"),
        CALLS,
        || {
            let mut sum = 0;
            for key in &keys {
                let value = rust.get_with(&key.to_le_bytes(), |value| {
                    u64::from_le_bytes(value.try_into().unwrap_or_default())
                });
                sum += value.ok().flatten().unwrap_or(0);
            }
            black_box(sum);
        },
        || {
            let (mut sum, mut value, mut present) = (0, 0, 0);
            for &key in &keys {
                // SAFETY: the table is open, and the results have places.
                unsafe { get(c, key, &mut value, &mut present, null_mut()) };
                sum += value;
            }
            black_box(sum);
        },
    );
    let (mut values, mut present) = (vec![0; BATCH], vec![0; BATCH]);
    let get_all = black_box(icefield_table_get_words as GetWords);
    let as_bytes: Vec<[u8; 8]> = keys.iter().map(|key| key.to_le_bytes()).collect();
    let slices: Vec<&[u8]> = as_bytes.iter().map(|key| &key[..]).collect();
    compare(
        &format!("dash-eh, {records} words: get_batch_with, get_words"),
        CALLS,
        || {
            let mut sum = 0;
            for keys in slices.chunks(BATCH) {
                let add = |_, value: Option<&[u8]>| {
                    sum += value.map_or(0, |value| {
                        u64::from_le_bytes(value.try_into().unwrap_or_default())
                    });
                };
                black_box(rust.get_batch_with(keys, add).is_ok());
            }
            black_box(sum);
        },
        || {
            for keys in keys.chunks(BATCH) {
                let (values, present) = (values.as_mut_ptr(), present.as_mut_ptr());
                // SAFETY: the table is open, and the arrays are as long as the keys or longer.
                unsafe { get_all(c, keys.as_ptr(), keys.len(), values, present, null_mut()) };
            }
            black_box(&values);
        },
    );
    let put = black_box(icefield_table_put_word as PutWord);
    compare(
        &format!("dash-eh, {records} words: put, put_word"),
        CALLS,
        || {
            for key in &keys {
                black_box(rust.put(&key.to_le_bytes(), &key.to_le_bytes()).is_ok());
            }
        },
        || {
            for &key in &keys {
                // SAFETY: the table is open.
                unsafe { put(c, key, key, null_mut()) };
            }
        },
    );
    // SAFETY: nothing uses the handle.
    unsafe { icefield_table_close(&mut c, null_mut()) };
    Ok(())
}

type GetWord = unsafe extern "C" fn(
    *const icefield_table,
    u64,
    *mut u64,
    *mut u8,
    *mut *mut icefield_error,
) -> icefield_status;
type GetWords = unsafe extern "C" fn(
    *const icefield_table,
    *const u64,
    usize,
    *mut u64,
    *mut u8,
    *mut *mut icefield_error,
) -> icefield_status;
type PutWord = unsafe extern "C" fn(
    *const icefield_table,
    u64,
    u64,
    *mut *mut icefield_error,
) -> icefield_status;
type GetDlht = unsafe extern "C" fn(
    *const icefield_dlht,
    u64,
    *mut u64,
    *mut u8,
    *mut *mut icefield_error,
) -> icefield_status;
type GetBytes = unsafe extern "C" fn(
    *const icefield_table,
    *const u8,
    usize,
    *mut u8,
    usize,
    *mut usize,
    *mut u8,
    *mut *mut icefield_error,
) -> icefield_status;

type Contains = unsafe extern "C" fn(
    *const icefield_table,
    *const u8,
    usize,
    *mut u8,
    *mut *mut icefield_error,
) -> icefield_status;
type PutBytes = unsafe extern "C" fn(
    *const icefield_table,
    *const u8,
    usize,
    *const u8,
    usize,
    *mut *mut icefield_error,
) -> icefield_status;

fn dlht(records: u64) {
    let rust = Dlht::<u64, u64>::with_capacity(records as usize);
    let (mut c, keys) = (null_mut(), keys(records));
    let (get, n) = (black_box(icefield_dlht_get as GetDlht), records as usize);
    let numbers: Vec<u64> = (0..records).collect();
    numbers.iter().for_each(|&key| rust.put(key, key));
    // SAFETY: all pointers are valid.
    unsafe {
        let mut options: icefield_dlht_options = std::mem::zeroed();
        (options.struct_size, options.capacity) = (size_of_val(&options), records);
        icefield_dlht_create(&options, &mut c, null_mut());
        let numbers = numbers.as_ptr();
        icefield_dlht_insert_batch(c, numbers, numbers, n, null_mut(), null_mut(), null_mut());
    }
    compare(
        &format!("dlht, {records} words: get, get"),
        CALLS,
        || {
            black_box(keys.iter().map(|&key| rust.get(key).unwrap_or(0)).sum::<u64>());
        },
        || {
            let (mut sum, mut value, mut present) = (0, 0, 0);
            for &key in &keys {
                // SAFETY: the map is open, and the results have places.
                unsafe { get(c, key, &mut value, &mut present, null_mut()) };
                sum += value;
            }
            black_box(sum);
        },
    );
    // SAFETY: nothing uses the handle.
    unsafe { icefield_dlht_close(&mut c, null_mut()) };
}

/// Reads of one table through two handles: in two tables, the records would lie at other places of the cache, which
/// costs more than a call.
fn bytes(directory: &Path) -> Result<(), Box<dyn Error>> {
    let names: Vec<Vec<u8>> = (0..1000).map(|key| format!("page/{key:06}").into_bytes()).collect();
    let create = |path: &Path, len: usize| {
        let table = AnyTable::create(path, "dash-eh", "bytes", "bytes", &AnyOptions::default())?;
        names.iter().try_for_each(|name| table.put(name, &vec![7; len]))?;
        Ok::<_, icefield::Error>(())
    };
    let keys = keys(1000);
    let asked = || keys.iter().map(|&key| &names[key as usize]);
    let (get, contains) =
        (black_box(icefield_table_get as GetBytes), black_box(icefield_table_contains as Contains));
    let (mut buffer, mut copy) = ([0_u8; 512], [0_u8; 512]);
    for len in [8, 100, 400] {
        let path = directory.join(format!("bytes-{len}"));
        create(&path, len)?;
        let rust = AnyTable::open_read_only(&path)?;
        let (place, mut c) = (std::ffi::CString::new(path.display().to_string())?, null_mut());
        // SAFETY: all pointers are valid.
        unsafe { icefield_table_open_read_only(place.as_ptr(), null(), &mut c, null_mut()) };
        compare(
            &format!("dash-eh, 1000 values of {len} bytes: get_with, get"),
            CALLS,
            || {
                for name in asked() {
                    let show = |value: &[u8]| copy[..value.len()].copy_from_slice(value);
                    black_box((rust.get_with(name, show).is_ok(), &copy));
                }
            },
            || {
                let (mut len, mut present) = (0, 0);
                for name in asked() {
                    let (key, to) = (name.as_ptr(), buffer.as_mut_ptr());
                    // SAFETY: the table is open, and the results have places.
                    unsafe { get(c, key, name.len(), to, 512, &mut len, &mut present, null_mut()) };
                    black_box(&buffer);
                }
            },
        );
        compare(
            &format!("dash-eh, 1000 values of {len} bytes: contains, contains"),
            CALLS,
            || asked().for_each(|name| drop(black_box(rust.contains(name)))),
            || {
                let mut present = 0;
                for name in asked() {
                    // SAFETY: the table is open, and the result has a place.
                    unsafe { contains(c, name.as_ptr(), name.len(), &mut present, null_mut()) };
                    black_box(present);
                }
            },
        );
        // SAFETY: nothing uses the handle.
        unsafe { icefield_table_close(&mut c, null_mut()) };
    }
    // A table has one writer, so there are two, which change places.
    let tables = [directory.join("bytes-a"), directory.join("bytes-b")];
    tables.iter().try_for_each(|path| create(path, 100))?;
    let put = black_box(icefield_table_put as PutBytes);
    for [of_rust, of_c] in [[0, 1], [1, 0]] {
        let rust = AnyTable::open(&tables[of_rust])?;
        let place = std::ffi::CString::new(tables[of_c].display().to_string())?;
        let mut c = null_mut();
        // SAFETY: all pointers are valid.
        unsafe { icefield_table_open(place.as_ptr(), null(), &mut c, null_mut()) };
        compare(
            &format!("dash-eh, 1000 values of 100 bytes: put, put ({of_rust}, {of_c})"),
            CALLS,
            || asked().for_each(|name| drop(black_box(rust.put(name, &copy[..100])))),
            || {
                for name in asked() {
                    let (key, value) = (name.as_ptr(), copy.as_ptr());
                    // SAFETY: the table is open, and the arrays have these lengths.
                    unsafe { put(c, key, name.len(), value, 100, null_mut()) };
                }
            },
        );
        // SAFETY: nothing uses the handle.
        unsafe { icefield_table_close(&mut c, null_mut()) };
    }
    Ok(())
}
