//! Options at their limits, and builds where a file or directory already exists.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use icefield::{AnyTable, DashEh, Error, JoinIndex, JoinOptions, OnFull};

fn options() -> JoinOptions<u64> {
    JoinIndex::<u64>::options()
}

/// Builds a small index, changes it and probes it.
fn works(options: &JoinOptions<u64>) -> Result<JoinIndex<u64>, Error> {
    let keys: Vec<u64> = (0..3000).map(|n| n % 1000).collect();
    let index = options.build_in_memory(&keys, &keys)?;
    index.insert(1, 7)?;
    assert_eq!(index.remove(2)?, 3);
    assert_eq!(index.probe_count(&[0, 1, 2, 3]).unwrap(), 3 + 4 + 3);
    index.merge()?;
    assert!(index.check()?.is_clean());
    Ok(index)
}

#[test]
fn threads_at_their_limits() {
    for (threads, taken) in [(0, 1), (1, 1), (1024, 1024), (1025, 1024), (usize::MAX, 1024)] {
        let index = works(&options().threads(threads)).unwrap();
        assert_eq!(index.threads(), taken);
        index.set_threads(1);
        index.set_threads(threads);
        assert_eq!(index.threads(), taken);
    }
}

#[test]
fn filter_bits_at_their_limits() {
    for bits in [0, 2, 64] {
        let index = works(&options().filter_bits_per_key(bits)).unwrap();
        assert_eq!(index.stats().unwrap().filter_bits_per_key, u64::from(bits));
    }
    for bits in [1, 65, u32::MAX] {
        let refused = works(&options().filter_bits_per_key(bits));
        assert!(
            matches!(refused, Err(Error::InvalidOption { option: "filter_bits_per_key", .. })),
            "{bits}"
        );
    }
}

#[test]
fn delta_limits_at_their_limits() {
    const MOST: u64 = (1 << 30) - 2;
    for (limit, taken) in [(0, 1), (1, 1), (MOST, MOST), (MOST + 1, MOST), (u64::MAX, MOST)] {
        let index = works(&options().delta_limit(limit)).unwrap();
        assert_eq!(index.stats().unwrap().delta_limit, taken);
    }
    let index =
        options().delta_limit(0).on_full(OnFull::Refuse).build_in_memory(&[1], &[1]).unwrap();
    index.insert(2, 2).unwrap();
    assert!(matches!(index.insert(3, 3), Err(Error::DeltaFull)));
}

#[test]
fn bytes_at_their_limits() {
    let directory = tempfile::tempdir().unwrap();
    for bytes in [0, 1] {
        let refused = options().max_bytes(bytes).build(directory.path().join("i"), &[1], &[1]);
        assert!(matches!(refused, Err(Error::NoSpace { .. })), "{bytes}");
        assert!(matches!(
            options().max_bytes(bytes).build_in_memory(&[1], &[1]),
            Err(Error::NoSpace { .. })
        ));
    }
    for bytes in [1 << 40, 1 << 44, (1 << 44) + 1, u64::MAX] {
        works(&options().max_bytes(bytes)).unwrap();
    }
}

#[test]
fn seeds_at_their_limits() {
    for seed in [[0, 0], [u64::MAX, u64::MAX]] {
        works(&options().hash_seed(seed)).unwrap();
    }
}

#[test]
fn a_build_replaces_what_it_shall_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("index");
    drop(JoinIndex::build(&path, &[1_u64], &[10]).unwrap());
    // Without `replace`, nothing that exists is replaced.
    let refused = JoinIndex::build(&path, &[2_u64, 3], &[20, 30]);
    assert!(matches!(refused, Err(Error::AlreadyExists { path: found }) if found == path));
    assert_eq!(JoinIndex::<u64>::open(&path).unwrap().probe_count(&[1]).unwrap(), 1);
    let replacing = options().replace(true);
    let index = replacing.build(&path, &[2_u64, 3], &[20, 30]).unwrap();
    assert_eq!((index.generation(), index.probe_count(&[1, 2, 3]).unwrap()), (2, 2));
    assert!(matches!(replacing.build(&path, &[1], &[]), Err(Error::InvalidOption { .. })));
    assert!(matches!(JoinIndex::<i64>::open(&path), Err(Error::TypeMismatch { .. })));
    assert!(AnyTable::open_read_only(&path).is_err());
    drop(index);
    // With `replace`, an absent index is created.
    assert_eq!(replacing.build(directory.path().join("new"), &[1], &[1]).unwrap().generation(), 1);
    let table = directory.path().join("table");
    drop(DashEh::<u64, u64>::options().create(&table).unwrap());
    assert!(matches!(options().build(&table, &[1], &[1]), Err(Error::AlreadyExists { .. })));
    assert!(matches!(replacing.build(&table, &[1], &[1]), Err(Error::TypeMismatch { .. })));
    assert!(DashEh::<u64, u64>::open(&table).is_ok());
    let hashed = |options: &JoinOptions<u64>| {
        options
            .build_with_hash(&path, &["a"], &[1], |key| key.len() as u64, |_, _| true)
            .map(|index| index.len())
    };
    assert!(matches!(hashed(&options()), Err(Error::AlreadyExists { .. })));
    assert!(matches!(hashed(&replacing), Err(Error::TypeMismatch { .. })));
}
