//! Salvage copies intact records and lists the damaged ones, for every file that is damaged, short or missing.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use icefield::{AnyOptions, AnyTable, Cursor, DashLh};

/// Returns the file with the keys and values that slots refer to.
fn bytes_file(table: &Path) -> PathBuf {
    ["blobs.ice", "payload.ice"]
        .map(|name| table.join(name))
        .into_iter()
        .find(|path| path.exists())
        .expect("a file of bytes")
}

/// Returns the value of a key. A few values are longer than a chunk of Plush's payload log.
fn value_of(key: u64) -> Vec<u8> {
    let more = if key % 2000 == 1 { 150_000 } else { key as usize % 40 };
    format!("value {key} {}", "x".repeat(more)).into_bytes()
}

/// Creates and closes a table with words as keys and strings as values. A table of linear hashing starts small, so that
/// it splits.
fn made(path: &Path, design: &str, records: u64) {
    if design == "dash-lh" {
        drop(DashLh::<u64, str>::options().first_array(1).create(path).unwrap());
    } else {
        drop(AnyTable::create(path, design, "u64", "str", &AnyOptions::default()).unwrap());
    }
    let table = AnyTable::open(path).unwrap();
    put_all(&table, 0..records);
    for key in (0..records).step_by(10) {
        table.remove(&key.to_le_bytes()).unwrap();
    }
}

fn put_all(table: &AnyTable, keys: Range<u64>) {
    let all: Vec<_> = keys.map(|key| (key.to_le_bytes(), value_of(key))).collect();
    for some in all.chunks(512) {
        let some: Vec<(&[u8], &[u8])> = some.iter().map(|(k, v)| (&k[..], &v[..])).collect();
        table.put_batch(&some).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    drop(fs::remove_dir_all(to));
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn records_of(path: &Path) -> HashMap<u64, Vec<u8>> {
    let table = AnyTable::open_read_only(path).unwrap();
    let report = table.check().unwrap();
    assert!(report.is_clean(), "{report:?}");
    let (mut all, mut next) = (HashMap::new(), Some(Cursor::START));
    while let Some(cursor) = next {
        let page = table.scan(cursor, 1000).unwrap();
        for (key, value) in page.records {
            all.insert(u64::from_le_bytes(key.try_into().expect("eight bytes")), value);
        }
        next = page.next;
    }
    all
}

#[test]
fn a_damaged_value_is_listed_and_left_out() {
    for design in AnyTable::DESIGNS {
        let place = tempfile::tempdir().unwrap();
        let (path, new) = (place.path().join("m.ice"), place.path().join("m2.ice"));
        let table = AnyTable::create(&path, design, "u64", "str", &AnyOptions::default()).unwrap();
        table.put(&1_u64.to_le_bytes(), b"Alice in Wonderland").unwrap();
        table.put(&2_u64.to_le_bytes(), b"Bob").unwrap();
        drop(table);
        let file = bytes_file(&path);
        let mut bytes = fs::read(&file).unwrap();
        let at = bytes.windows(6).position(|some| some == b"Wonder").unwrap();
        bytes[at] = b'X';
        fs::write(&file, bytes).unwrap();

        let report = AnyTable::salvage_files(&path, &new).unwrap();
        assert_eq!(
            (report.records, report.lost.len(), report.damaged.len()),
            (1, 1, 1),
            "{design}"
        );
        let damaged = &report.damaged[0];
        assert_eq!(damaged.key.as_deref(), Some(&1_u64.to_le_bytes()[..]), "{design}");
        assert_eq!(damaged.value.as_deref(), Some(&b"Alice in Xonderland"[..]), "{design}");
        assert!(damaged.reason.contains("checksum"), "{design}: {}", damaged.reason);
        assert_eq!(records_of(&new), HashMap::from([(2, b"Bob".to_vec())]), "{design}");
    }
}

/// Damages each byte of a key's block in turn. A verifying scan must return or report each record exactly once.
#[test]
fn a_verifying_scan_leaves_nothing_out() {
    let place = tempfile::tempdir().unwrap();
    let (whole, path) = (place.path().join("whole.ice"), place.path().join("t.ice"));
    let keys: Vec<String> = (0..5000).map(|number| format!("key {number} in Wonderland")).collect();
    for design in AnyTable::DESIGNS {
        drop(fs::remove_dir_all(&whole));
        if *design == "dash-lh" {
            drop(DashLh::<str, u64>::options().first_array(1).create(&whole).unwrap());
        } else {
            drop(AnyTable::create(&whole, design, "str", "u64", &AnyOptions::default()).unwrap());
        }
        let table = AnyTable::open(&whole).unwrap();
        for key in &keys {
            table.put(key.as_bytes(), &7_u64.to_le_bytes()).unwrap();
        }
        drop(table);
        let bytes = fs::read(bytes_file(&whole)).unwrap();
        let content = |key: &String| {
            bytes.windows(key.len()).position(|it| it == key.as_bytes()).expect("stored")
        };
        let mut scanned = 0;
        for at in
            keys.iter().step_by(1601).map(content).flat_map(|at| at.saturating_sub(24)..at + 2)
        {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x90;
            for opens in [AnyTable::open_read_only_with, AnyTable::open_with] {
                copy(&whole, &path);
                fs::write(bytes_file(&path), &damaged).unwrap();
                let options = AnyOptions { verify: true, ..AnyOptions::default() };
                let Ok(table) = opens(path.as_path(), &options) else { continue };
                let Ok(page) = table.scan(Cursor::START, 10_000) else { continue };
                let (whole, damaged) = (page.records.len(), page.damaged.len());
                assert_eq!(whole + damaged, keys.len(), "{design}: {damaged} damaged by byte {at}");
                scanned += 1;
            }
        }
        assert!(scanned > 100, "{design}: {scanned}");
    }
}

#[test]
fn as_much_is_lost_as_check_finds() {
    for design in AnyTable::DESIGNS {
        let place = tempfile::tempdir().unwrap();
        let (path, new) = (place.path().join("t.ice"), place.path().join("new.ice"));
        made(&path, design, 20_000);
        let file = bytes_file(&path);
        let mut bytes = fs::read(&file).unwrap();
        let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
        for flip in 0..40 {
            bytes[flip * 2_654_435_761 % end] ^= 1 << (flip % 8);
        }
        fs::write(&file, bytes).unwrap();
        let found = AnyTable::open_read_only(&path).unwrap().check().unwrap();
        // If a value cannot be read, `check` also reports a wrong record count, which is not a separate loss.
        let faults: Vec<_> =
            found.faults.iter().filter(|fault| !fault.contains("records were found")).collect();
        assert!(!faults.is_empty(), "{design}");
        let report = AnyTable::salvage_files(&path, &new).unwrap();
        // In Plush, the damaged record may be one that was removed; the damage is then a fault but no loss.
        let is_more = design == &"plush" && report.lost.len() < faults.len();
        let are_equal = report.lost.len() == faults.len();
        assert!(are_equal || is_more, "{design}: {:?} {faults:?}", report.lost);
        assert_eq!(report.records + report.lost.len() as u64, 18_000, "{design}");
        for (key, value) in records_of(&new) {
            assert_eq!(value, value_of(key), "{design}");
        }
    }
}

/// Returns the minimum number of the 18,000 records that salvage finds if a file is missing or lacks its last page.
fn least(design: &str, file: &str, is_gone: bool) -> u64 {
    match (design, file, is_gone) {
        // Directories and headers only help to find the slots, and salvage can find the slots without them. In these
        // tables, `chains.ice` contains no record.
        (
            "dash-eh" | "dash-lh",
            "directory-0.ice" | "directory-1.ice" | "chains.ice" | "headers.ice",
            _,
        ) => 18_000,
        ("plush", "payloadmap.ice", _) => 18_000,
        ("dash-eh" | "dash-lh", "segments.ice", false) => 17_000,
        ("iceberg", "front.ice", false) => 17_000,
        ("iceberg", "back.ice" | "overflow.ice", _) => 12_000,
        ("plush", "journals.ice", _) => 18_000,
        ("plush", "levels.ice", _) => 1_000,
        _ => 0,
    }
}

/// Salvages a copy of a table after `damage`, and compares the salvaged records. Returns their keys.
fn rescue(whole: &Path, path: &Path, what: &str, damage: impl FnOnce(&Path)) -> Vec<u64> {
    let new = path.with_extension("new");
    copy(whole, path);
    drop(fs::remove_dir_all(&new));
    damage(path);
    let report =
        AnyTable::salvage_files(path, &new).unwrap_or_else(|error| panic!("{what}: {error}"));
    println!("{what}: {} records, {} losses", report.records, report.lost.len());
    let records = records_of(&new);
    for (key, value) in &records {
        assert_eq!(value, &value_of(*key), "{what}");
    }
    assert_eq!(report.records, records.len() as u64, "{what}");
    assert!(report.records == 18_000 || !report.lost.is_empty(), "{what}");
    records.into_keys().collect()
}

#[test]
fn lost_headers_and_words_of_chunks_are_made_anew() {
    for design in AnyTable::DESIGNS {
        let names: &[&str] = match *design {
            "iceberg" => continue,
            "plush" => &["payloadmap.ice"],
            _ => &["headers.ice", "directory-1.ice"],
        };
        let place = tempfile::tempdir().unwrap();
        let (whole, path) = (place.path().join("whole.ice"), place.path().join("t.ice"));
        made(&whole, design, 40_000);
        // The table is cleared and then filled with half as many records, so that old records remain in unused space.
        AnyTable::open(&whole).unwrap().clear().unwrap();
        put_all(&AnyTable::open(&whole).unwrap(), 100_000..118_000);
        for name in names {
            let len = fs::read(whole.join(name)).unwrap().len();
            for range in [0..len, 64..len, 0..256, 16..24] {
                let what = format!("{design}, {name}, bytes {range:?}");
                let keys = rescue(&whole, &path, &what, |path| {
                    let mut bytes = fs::read(path.join(name)).unwrap();
                    bytes[range].fill(0);
                    fs::write(path.join(name), bytes).unwrap();
                });
                assert_eq!(keys.len(), 18_000, "{what}");
                assert!(keys.iter().all(|key| *key >= 100_000), "{what}: what was removed is back");
            }
        }
    }
}

#[test]
fn the_other_files_give_what_they_hold() {
    for design in AnyTable::DESIGNS {
        let place = tempfile::tempdir().unwrap();
        let whole = place.path().join("whole.ice");
        made(&whole, design, 20_000);
        let names: Vec<_> = fs::read_dir(&whole)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "table.ice" && name != "lock")
            .collect();
        for name in names {
            for is_gone in [true, false] {
                let what = format!("{design}, {name} {}", if is_gone { "gone" } else { "short" });
                let least = least(design, &name, is_gone);
                let keys = rescue(&whole, &place.path().join("t.ice"), &what, |path| {
                    let path = path.join(&name);
                    if is_gone {
                        fs::remove_file(path).unwrap();
                    } else {
                        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
                        file.set_len(file.metadata().unwrap().len().saturating_sub(4096)).unwrap();
                    }
                });
                assert!(keys.len() as u64 >= least, "{what}");
            }
        }
    }
}

/// Damage can turn a key into bytes that are not a value of its type. These bytes have another hash, so the record
/// seems to belong to another segment. Scans must report it all the same.
#[test]
fn a_scan_reports_a_key_that_is_no_value_of_its_type() {
    const VALUE: u64 = 0x1CEF_1E1D_0000_0001;
    let place = tempfile::tempdir().unwrap();
    let (whole, path) = (place.path().join("whole.ice"), place.path().join("t.ice"));
    for design in ["dash-eh", "dash-lh", "iceberg"] {
        drop(fs::remove_dir_all(&whole));
        let options = AnyOptions { capacity: Some(100_000), ..AnyOptions::default() };
        let table = AnyTable::create(&whole, design, "bool", "u64", &options).unwrap();
        table.put(&[1], &VALUE.to_le_bytes()).unwrap();
        drop(table);
        let record: Vec<u8> = [1, VALUE].into_iter().flat_map(u64::to_le_bytes).collect();
        let mut copies = 0;
        for file in fs::read_dir(&whole).unwrap().map(|entry| entry.unwrap().file_name()) {
            let bytes = fs::read(whole.join(&file)).unwrap();
            let is_record = |at: &usize| bytes[*at..].starts_with(&record);
            for at in (0..bytes.len()).step_by(8).filter(is_record) {
                for damage in 2..30 {
                    let mut bytes = bytes.clone();
                    bytes[at] = damage;
                    copy(&whole, &path);
                    fs::write(path.join(&file), bytes).unwrap();
                    let Ok(table) = AnyTable::open_read_only(&path) else { continue };
                    let Ok(page) = table.scan(Cursor::START, 100) else { continue };
                    assert!(page.records.is_empty(), "{design}: {damage} is no bool");
                    assert_eq!(page.damaged.len(), 1, "{design}: a key {damage} is reported");
                    copies += 1;
                }
            }
        }
        assert!(copies > 0, "{design}: the record lies in a file");
    }
}
