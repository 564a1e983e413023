//! Tests every peer in files: it answers as a map does, and durable writes survive reopening.

#![cfg(feature = "kv")]
#![allow(clippy::unwrap_used, reason = "a test program: to panic is to fail")]

use std::collections::HashMap;

use icefield_peers::{Error, Found, Kind, Operation, Peer, Writes, built_in};

fn kinds() -> Vec<Box<dyn Kind>> {
    let kinds: Vec<_> = built_in().into_iter().filter(|kind| kind.is_persistent()).collect();
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    assert_eq!(names, ["redb", "lmdb", "rocksdb"]);
    kinds
}

/// Returns the next pseudo-random number.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Returns distinct keys from a small range, so that many have been used before. One key of the range is replaced by
/// the largest key, `u64::MAX`.
fn keys(state: &mut u64) -> Vec<u64> {
    let (first, count) = (next(state) % 500, 1 + next(state) % 100);
    let keys = (0..count).map(|i| (first + i * 7) % 700);
    let mut keys: Vec<u64> = keys.map(|key| if key == 3 { u64::MAX } else { key }).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn found(map: &HashMap<u64, u64>, keys: &[u64]) -> Found {
    let mut found = Found::default();
    for value in keys.iter().filter_map(|key| map.get(key)) {
        found.hits += 1;
        found.sum = found.sum.wrapping_add(*value);
    }
    found
}

/// Makes calls of all kinds and compares their answers with a map's.
fn compare(name: &str, table: &dyn Peer, map: &mut HashMap<u64, u64>, state: &mut u64) {
    for round in 0..60 {
        let keys = keys(state);
        let values: Vec<u64> =
            keys.iter().map(|key| key.wrapping_mul(3).wrapping_add(round)).collect();
        let present = keys.iter().filter(|key| map.contains_key(key)).count() as u64;
        let absent = keys.len() as u64 - present;
        let pairs = || keys.iter().copied().zip(values.iter().copied());
        match next(state) % 5 {
            0 => {
                assert_eq!(table.put(&keys, &values), keys.len() as u64, "{name}");
                map.extend(pairs());
            }
            1 => {
                assert_eq!(table.insert(&keys, &values), absent, "{name}");
                pairs().for_each(|(key, value)| _ = map.entry(key).or_insert(value));
            }
            2 => {
                assert_eq!(table.update(&keys, &values), present, "{name}");
                pairs().for_each(|(key, value)| _ = map.entry(key).and_modify(|old| *old = value));
            }
            3 => {
                assert_eq!(table.remove(&keys), present, "{name}");
                keys.iter().for_each(|key| _ = map.remove(key));
            }
            _ => {
                assert_eq!(table.insdel(&keys), absent, "{name}");
                keys.iter().for_each(|key| _ = map.remove(key));
            }
        }
        assert_eq!(table.get(&keys), found(map, &keys), "{name}");
    }
    let all: Vec<u64> = (0..700).chain([u64::MAX]).collect();
    assert_eq!(table.get(&all), found(map, &all), "{name}");
    assert_eq!(table.failure(), None, "{name}");
}

#[test]
fn stores_answer_as_a_map_does() {
    for kind in kinds() {
        let calls = [Operation::Put, Operation::Get, Operation::InsDel, Operation::Bytes];
        assert!(calls.iter().all(|call| kind.offers(*call)));
        for writes in [Writes::Durable, Writes::Relaxed] {
            let dir = tempfile::tempdir().unwrap();
            let table = kind.open(&dir.path().join("new"), writes).unwrap();
            compare(kind.name(), &*table, &mut HashMap::new(), &mut 1);
        }
    }
}

#[test]
fn durable_records_are_there_when_a_store_is_opened_again() {
    for kind in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let (mut map, mut state) = (HashMap::new(), 2);
        for _ in 0..3 {
            let table = kind.open(dir.path(), Writes::Durable).unwrap();
            let all: Vec<u64> = (0..700).chain([u64::MAX]).collect();
            assert_eq!(table.get(&all), found(&map, &all), "{}", kind.name());
            compare(kind.name(), &*table, &mut map, &mut state);
        }
    }
}

/// Returns the values of the keys that are present, in order.
fn bytes_of(table: &dyn Peer, keys: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    table.get_bytes(keys, &mut |value| found.push(value.to_vec()));
    found
}

#[test]
fn records_of_bytes_are_kept_beside_those_of_words() {
    for kind in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let long = vec![7; 5000];
        let keys: [&[u8]; 3] = [b"one", b"another key", &5_u64.to_be_bytes()[..4]];
        for round in 0..2 {
            let table = kind.open(dir.path(), Writes::Durable).unwrap();
            if round == 0 {
                assert_eq!(table.put(&[1, 2], &[10, 20]), 2);
                assert_eq!(table.put_bytes(&keys, &[b"old", b"", &long]), 3, "{}", kind.name());
                assert_eq!(table.put_bytes(&keys[..1], &[b"new"]), 1);
            }
            let found = bytes_of(&*table, &[keys[2], b"absent", keys[0], keys[1]]);
            assert_eq!(found, [&long[..], b"new", b""], "{}", kind.name());
            assert_eq!(table.get(&[1, 2, 3]), Found { hits: 2, sum: 30 });
            assert_eq!(table.failure(), None);
        }
    }
}

#[test]
fn threads_share_a_store() {
    for kind in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let table = kind.create(1 << 13, Some(dir.path())).unwrap();
        let (new, updated) = std::thread::scope(|scope| {
            let table = &*table;
            let threads: Vec<_> = (0..4_u64)
                .map(|thread| {
                    scope.spawn(move || {
                        let (mut new, mut updated) = (0, 0);
                        // Each key is inserted by two threads at about the same time.
                        for start in (0..1000).step_by(100) {
                            let start = start + 1000 * (thread / 2);
                            let keys: Vec<u64> = (start..start + 100).collect();
                            new += table.insert(&keys, &keys);
                            updated += table.update(&keys, &keys);
                        }
                        (new, updated)
                    })
                })
                .collect();
            let done = threads.into_iter().map(|thread| thread.join().unwrap());
            done.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
        });
        assert_eq!((new, updated), (2000, 4000), "{}", kind.name());
        assert_eq!(table.failure(), None);
    }
}

#[test]
fn what_cannot_be_opened_is_an_error() {
    for kind in kinds() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(kind.create(1, None), Err(Error::NotMade(_))), "files want a directory");
        let file = dir.path().join("file");
        std::fs::write(&file, "no directory").unwrap();
        let error = kind.open(&file, Writes::Durable).err().unwrap();
        assert!(matches!(&error, Error::NotOpened { name, .. } if name == kind.name()));
        assert!(error.to_string().starts_with(kind.name()));
    }
}
