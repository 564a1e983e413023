//! The process resources that many small tables use: addresses, mappings, files.

use icefield::{AnyOptions, AnyTable};

use super::*;

/// Limits per table that allow 2,000 tables: a process has 65,530 mappings by default, and up to 65,536 open files.
const MAPPINGS_A_TABLE: usize = 32;
const FILES_A_TABLE: usize = 32;
/// A limit per table that allows 20 tables in 64 GiB of addresses.
const ADDRESSES_A_TABLE: u64 = 3 << 30;
const TABLES: usize = 16;

fn kilobytes(line: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn taken() -> (usize, usize, u64) {
    let mappings = fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let files = fs::read_dir("/proc/self/fd").unwrap().count();
    (mappings, files, kilobytes("VmSize:") << 10)
}

#[test]
fn small_tables_take_little() {
    let status = crate::in_child("footprint::child_with_many_tables", &[]);
    assert!(status.success(), "{status:?}");
}

#[test]
#[ignore = "run by small_tables_take_little"]
fn child_with_many_tables() {
    for design in AnyTable::DESIGNS {
        for types in ["u64", "str"] {
            let scratch = fast_scratch();
            let before = taken();
            let tables: Vec<_> = (0..TABLES)
                .map(|number| {
                    let path = scratch.path().join(number.to_string());
                    let options = AnyOptions::default();
                    let table = AnyTable::create(&path, design, types, types, &options).unwrap();
                    for key in 0..1000_u64 {
                        let key = format!("{key:08}");
                        table.put(key.as_bytes(), b"12345678").unwrap();
                    }
                    table
                })
                .collect();
            let after = taken();
            let (mappings, files) =
                ((after.0 - before.0).div_ceil(TABLES), (after.1 - before.1).div_ceil(TABLES));
            let addresses = (after.2 - before.2) / TABLES as u64;
            println!(
                "{design} of {types}: {mappings} mappings, {files} files, {} MiB",
                addresses >> 20
            );
            assert!(mappings <= MAPPINGS_A_TABLE, "{design} of {types}: {mappings} mappings");
            assert!(files <= FILES_A_TABLE, "{design} of {types}: {files} files");
            assert!(addresses <= ADDRESSES_A_TABLE, "{design} of {types}: {addresses} bytes");
            assert!(tables.iter().all(|table| table.len().unwrap() == 1000));
        }
    }
}
