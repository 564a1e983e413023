//! The memory that a table takes: for its capacity, after it has grown, and for what was never used.

use icefield::{Dlht, DlhtHash, DlhtMap, DlhtSet, Error, Table};

fn detail(table: &Dlht<u64, u64>, name: &str) -> u64 {
    let details = table.stats().details;
    details.iter().find(|(found, _)| *found == name).map_or(0, |(_, count)| *count)
}

#[test]
fn a_capacity_is_kept_in_45_bytes_a_key() {
    for records in [10_000_u64, 12_345, 50_000, 99_999, 250_000] {
        let table = Dlht::<u64, u64>::with_capacity(records as _);
        let bytes = table.stats().dram_bytes;
        assert!(bytes <= 45 * records, "{bytes} bytes for {records}");
        (0..records).for_each(|key| table.put(key, key));
        assert_eq!(table.stats().dram_bytes, bytes, "no growth");
        assert_eq!(detail(&table, "hash-functions-before"), 0);
    }
}

#[test]
fn a_table_that_has_grown_keeps_at_most_90_bytes_a_key() {
    let table = Dlht::<u64, u64>::new();
    let (mut from, mut sum, mut count) = (0, 0.0, 0);
    for step in 0..=64 {
        let to = (10_000.0 * 2_f64.powf(f64::from(step) / 16.0)) as u64;
        (from..to).for_each(|key| table.put(key, key));
        from = to;
        // A transfer in progress is finished by the calls that follow.
        for key in 0..2 * detail(&table, "bins") {
            if detail(&table, "transferring") == 0 {
                break;
            }
            (0..1000).for_each(|more| assert!(table.get((key + more) % to).is_some()));
        }
        let per_key = table.stats().dram_bytes as f64 / to as f64;
        assert!(per_key <= 90.0, "{per_key} bytes a key at {to}");
        (sum, count) = (sum + per_key, count + 1);
    }
    assert!(sum / f64::from(count) <= 65.0, "{} bytes a key on average", sum / f64::from(count));
}

/// Once, the records of a batch were not counted before its end, and an index that was full seemed to be crowded.
#[test]
fn batches_of_any_length_grow_the_table_alike() {
    for records in [16_384_usize, 30_000, 120_000] {
        for hash in [DlhtHash::Strong, DlhtHash::Modulo] {
            let of = |batch: usize| {
                // With a given seed, both tables are full at the same record.
                let options = Dlht::<u64, u64>::options().hash(hash).hash_seed([1, 2]);
                let table = options.build().expect("memory");
                let all: Vec<(u64, u64)> = (0..records as u64).map(|key| (key, key)).collect();
                all.chunks(batch).for_each(|some| table.put_batch(some));
                assert_eq!(detail(&table, "hash-functions-before"), 0, "{records} in {batch}");
                table.reserve(0);
                detail(&table, "bins")
            };
            assert_eq!(of(1), of(16_384));
        }
    }
}

#[test]
fn a_transfer_is_finished_by_calls_of_any_kind() {
    let calls: [fn(&Dlht<u64, u64>); 6] = [
        |table| assert_eq!(table.get(1), Some(1)),
        |table| assert_eq!(table.get(u64::MAX), None),
        |table| table.get_batch(&[1, 2], &mut [None; 2]),
        |table| assert_eq!(table.remove(u64::MAX), None),
        |table| assert_eq!(table.update(1, 1), Some(1)),
        |table| assert!(!table.scan(icefield::Cursor::START, 3).records.is_empty()),
    ];
    for (at, call) in calls.into_iter().enumerate() {
        let table = Dlht::<u64, u64>::with_capacity(20_000);
        let mut key = 0;
        while detail(&table, "transferring") == 0 {
            table.put(key, key);
            key += 1;
        }
        let limit = 2 * detail(&table, "bins");
        let needed = (0..limit).find(|_| {
            call(&table);
            detail(&table, "transferring") == 0
        });
        assert!(needed.is_some(), "call {at}");
        assert!((0..key).all(|key| table.get(key) == Some(key)));
    }
}

#[test]
fn reserving_nothing_changes_nothing() {
    let table = Dlht::<u64, u64>::options().hash_seed([1, 2]).build().expect("memory");
    for key in 0..20_000 {
        table.put(key, key);
        if key % 50 == 0 {
            table.reserve(0);
            let bytes = table.stats().dram_bytes;
            table.reserve(0);
            assert_eq!(table.stats().dram_bytes, bytes, "{key}");
            assert!(detail(&table, "bins").is_power_of_two(), "{key}");
        }
    }
}

/// Returns the resident bytes of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 =
        status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

/// Calls on a table of gigabytes that holds one record do not touch its memory.
#[test]
#[cfg(target_os = "linux")]
fn unused_memory_is_not_touched() {
    const MANY: u64 = 1 << 26;
    const LITTLE: u64 = 512 << 20;
    let calls: [fn(&Dlht<u64, u64>); 4] = [
        |table| table.clear(),
        |table| table.shrink_to_fit(),
        |table| drop(table.snapshot()),
        |table| assert_eq!(table.iter().count(), 1),
    ];
    for (at, call) in calls.into_iter().enumerate() {
        let table = Dlht::<u64, u64>::from_iter([(1, 1)]);
        table.reserve(MANY as _);
        assert!(table.stats().dram_bytes > 4 * LITTLE);
        let before = resident();
        call(&table);
        let touched = resident().saturating_sub(before);
        assert!(touched < LITTLE, "call {at} touched {touched} bytes");
    }
    let before = resident();
    let set = DlhtSet::<u64>::with_capacity(MANY as _);
    assert!(set.insert(1) && set.iter().eq([1]));
    set.clear();
    let map = DlhtMap::<u64, u64>::with_capacity(MANY as _);
    map.put(1, 1);
    map.clear();
    drop((set, map));
    assert!(resident().saturating_sub(before) < LITTLE);
}

#[test]
fn a_limit_of_bytes_is_used_up() {
    let table = Dlht::<u64, u64>::options().max_bytes(1_000_000).build().expect("memory");
    let refused = (0..).find_map(|key| Some((key, Table::put(&table, key, key).err()?)));
    let (records, error) = refused.expect("a limit");
    assert!(matches!(error, Error::Full));
    (0..records).for_each(|key| assert_eq!(table.get(key), Some(key)));
    let bytes = table.stats().dram_bytes;
    assert!((800_000..=1_000_000).contains(&bytes), "{bytes}");
    assert!(records > 1_000_000 / 45, "{records} records");
    assert!(matches!(Table::reserve(&table, 100_000), Err(Error::Full)));
}
