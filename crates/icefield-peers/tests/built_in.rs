//! Tests every compiled-in peer in memory against the interface's contract.

#![cfg(feature = "rust")]
#![allow(clippy::unwrap_used, reason = "a test program: to panic is to fail")]

use icefield_peers::{Found, Kind, Operation, Writes, built_in};

fn in_memory() -> Vec<Box<dyn Kind>> {
    built_in().into_iter().filter(|kind| !kind.is_persistent()).collect()
}

#[test]
fn every_kind_keeps_records() {
    let kinds = in_memory();
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    let mut expected = vec!["dashmap", "papaya", "scc", "hashbrown-sharded"];
    if cfg!(feature = "cpp") {
        expected.extend(["libcuckoo", "onetbb"]);
    }
    assert_eq!(names, expected);
    for kind in &kinds {
        assert!(kind.offers(Operation::Update) && kind.offers(Operation::InsDel));
        assert!(!kind.offers(Operation::Put) && !kind.offers(Operation::Bytes));
        assert!(kind.open(&std::env::temp_dir(), Writes::Durable).is_err(), "no files");
        let table = kind.create(100, None).unwrap();
        let keys: Vec<u64> = (0..1000).chain([u64::MAX]).collect();
        let values: Vec<u64> = keys.iter().map(|key| key.wrapping_mul(3)).collect();
        let sum =
            |values: &[u64]| values.iter().fold(0, |sum: u64, value| sum.wrapping_add(*value));
        assert_eq!(table.insert(&keys, &values), 1001, "{}", kind.name());
        assert_eq!(table.insert(&keys, &keys), 0, "present keys keep their values");
        assert_eq!(table.get(&keys), Found { hits: 1001, sum: sum(&values) });
        assert_eq!(table.get(&[5000]), Found::default());
        assert_eq!(table.update(&[1, 5000], &[10, 20]), 1);
        assert_eq!(table.get(&[1, 5000]), Found { hits: 1, sum: 10 });
        assert_eq!(table.remove(&[1, 2, 5000]), 2);
        assert_eq!(table.insdel(&[1, 3, 5000]), 2, "3 is there already");
        assert_eq!(table.get(&keys).hits, 998);
        assert_eq!((table.put(&[1], &[1]), table.failure()), (0, None));
        assert_eq!(table.put_bytes(&[b"1"], &[b"1"]), 0);
        table.get_bytes(&[b"1"], &mut |_| unreachable!("no records of bytes"));
    }
}

#[test]
fn threads_share_a_table() {
    for kind in in_memory() {
        let table = kind.create(1 << 16, None).unwrap();
        let new: u64 = std::thread::scope(|scope| {
            let table = &*table;
            let threads: Vec<_> = (0..4_u64)
                .map(|thread| {
                    scope.spawn(move || {
                        // Each key is inserted by two threads.
                        let keys: Vec<u64> =
                            (0..10_000).map(|i| i + 10_000 * (thread / 2)).collect();
                        table.insert(&keys, &keys)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(new, 20_000, "{}", kind.name());
    }
}
