//! Dash-EH end to end: words and bytes, growth, reopening, equal hashes, batches, threads.

use icefield::base::hash::HashKind;
use icefield::{Cursor, DashEh, Decision, Error, Geometry, Occupied, OnFailure, Op};

type Check = Result<(), Box<dyn std::error::Error>>;

const TINY: Geometry = Geometry { buckets: 2, slots: 2, stash: 1 };

#[test]
fn words_grow_and_stay() -> Check {
    let table = DashEh::<u64, u64>::in_memory()?;
    for key in 0..100_000 {
        assert_eq!(table.try_insert(key, key * 3)?, Ok(()), "key {key}");
    }
    for key in 0..100_000 {
        assert_eq!(table.get(key)?, Some(key * 3), "key {key}");
        assert_eq!(table.try_insert(key, 0)?, Err(Occupied(key * 3)));
    }
    assert_eq!(table.get(100_000)?, None);
    assert_eq!(table.len()?, 100_000);
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    for key in (0..100_000).step_by(2) {
        assert_eq!(table.remove(key)?, Some(key * 3));
    }
    assert_eq!(table.iter().count(), 50_000);
    table.clear()?;
    assert_eq!(table.len()?, 0);
    assert_eq!(table.insert(1, 1)?, None);
    assert!(table.check()?.is_clean());
    println!("{:?}", table.stats());
    Ok(())
}

#[test]
fn tiny_segments_split_and_double() -> Check {
    let table = DashEh::<u64, u64>::options().geometry(TINY).in_memory()?;
    for key in 0..2_000 {
        assert_eq!(table.insert(key, key)?, None, "key {key}");
        if key % 100 == 0 {
            let report = table.check()?;
            assert!(report.is_clean(), "after {key}: {report:?}");
        }
    }
    for key in 0..2_000 {
        assert_eq!(table.get(key)?, Some(key));
    }
    println!("{:?}", table.stats());
    Ok(())
}

#[test]
fn equal_hashes_end_in_a_chain() -> Check {
    for geometry in [TINY, Geometry::default()] {
        let table = DashEh::<u64, u64>::options()
            .geometry(geometry)
            .hash(HashKind::Constant)
            .in_memory()?;
        for key in 0..10_000 {
            assert_eq!(table.try_insert(key, key)?, Ok(()));
        }
        for key in 0..10_000 {
            assert_eq!(table.get(key)?, Some(key));
        }
        assert_eq!(table.get(10_000)?, None);
        assert!(table.stats().pm_bytes < 64 << 20, "{:?}", table.stats());
        let page = table.scan(Cursor::START, 10)?;
        assert_eq!(page.records.len(), 10_000);
        for key in 0..10_000 {
            assert_eq!(table.remove(key)?, Some(key));
        }
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
    }
    Ok(())
}

#[test]
fn bytes_of_any_length() -> Check {
    let table = DashEh::<[u8], [u8]>::in_memory()?;
    let key = |n: u32| format!("key number {n}").into_bytes();
    let value = |n: u32| vec![n as u8; (n as usize * 37) % 3000];
    for n in 0..5_000 {
        assert_eq!(table.insert(&key(n), &value(n))?, None);
    }
    for n in 0..5_000 {
        assert_eq!(table.get(&key(n))?, Some(value(n)));
        assert_eq!(table.get_with(&key(n), |bytes| bytes.len())?, Some(value(n).len()));
    }
    for n in (0..5_000).step_by(3) {
        assert_eq!(table.insert(&key(n), b"new")?, Some(value(n)));
        assert_eq!(table.remove(&key(n + 1))?, Some(value(n + 1)).filter(|_| n + 1 < 5_000));
    }
    let big = vec![7; 16 << 20];
    table.put(b"big", &big)?;
    assert_eq!(table.get(b"big")?, Some(big));
    assert!(matches!(table.put(b"big", &vec![0; (16 << 20) + 1]), Err(Error::ValueTooLong { .. })));
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    Ok(())
}

#[test]
fn reopens_after_closing_and_after_forgetting() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let table = DashEh::<str, u64>::create(&path)?;
    for n in 0..3_000 {
        table.put(&format!("key {n}"), n)?;
    }
    assert!(
        matches!(DashEh::<str, u64>::open(&path), Err(Error::Locked { pid }) if pid == std::process::id())
    );
    drop(table);
    assert!(matches!(DashEh::<u64, u64>::open(&path), Err(Error::TypeMismatch { .. })));
    let reader = DashEh::<str, u64>::open_read_only(&path)?;
    let another = DashEh::<str, u64>::open_read_only(&path)?;
    assert_eq!(reader.get("key 77")?, Some(77));
    assert_eq!(another.iter().count(), 3_000);
    assert!(matches!(reader.put("x", 1), Err(Error::ReadOnly)));
    drop((reader, another));
    let table = DashEh::<str, u64>::open(&path)?;
    assert!(table.recovery().was_clean);
    assert_eq!(table.len()?, 3_000);
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    Ok(())
}

#[test]
fn batches_answer_like_single_calls() -> Check {
    let table = DashEh::<u64, u64>::in_memory()?;
    let pairs: Vec<(u64, u64)> = (0..50_000).map(|n| (n % 30_000, n)).collect();
    let mut previous = vec![None; pairs.len()];
    table.insert_batch(&pairs, &mut previous)?;
    for (n, before) in previous.iter().enumerate() {
        assert_eq!(*before, (n >= 30_000).then(|| n as u64 - 30_000), "operation {n}");
    }
    let keys: Vec<u64> = (0..40_000).collect();
    let mut found = vec![None; keys.len()];
    table.get_batch(&keys, &mut found)?;
    for (key, found) in keys.iter().zip(&found) {
        let expected = (*key < 30_000).then(|| if *key < 20_000 { key + 30_000 } else { *key });
        assert_eq!(*found, expected, "key {key}");
    }
    let mut removed = vec![None; keys.len()];
    table.remove_batch(&keys, &mut removed)?;
    assert_eq!(removed, found);
    assert_eq!(table.len()?, 0);
    let mut ops = [Op::put(1, 1), Op::get(1), Op::remove(1), Op::remove(1), Op::put(2, 2)];
    assert_eq!(table.execute(&mut ops, OnFailure::Stop)?, 4);
    assert!(matches!(ops[1], Op::Get(1, Some(1))));
    assert!(table.is_empty()?);
    assert!(table.check()?.is_clean());
    Ok(())
}

#[test]
fn threads_count_together() -> Check {
    let table = DashEh::<u64, u64>::options()
        .geometry(Geometry { buckets: 4, slots: 3, stash: 2 })
        .in_memory()?;
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let table = &table;
            scope.spawn(move || {
                for n in 0..5_000_u64 {
                    table
                        .compute(n % 97, |count| Decision::Put(count.copied().unwrap_or(0) + 1))
                        .expect("compute");
                    table.put(1_000 + thread * 10_000 + n, n).expect("put");
                }
            });
        }
    });
    let total: u64 = (0..97).map(|key| table.get(key).expect("get").unwrap_or(0)).sum();
    assert_eq!(total, 20_000);
    assert_eq!(table.len()?, 20_097);
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    Ok(())
}

/// A split copies the chain of its segment and needs as many new blocks at once: `reserve` once waited for them for
/// ever.
#[test]
fn reserve_meets_long_chains() -> Check {
    let table =
        DashEh::<u64, u64>::options().geometry(TINY).hash(HashKind::Constant).in_memory()?;
    for key in 0..500 {
        table.put(key, key)?;
    }
    table.reserve(10_000)?;
    assert_eq!(table.len()?, 500);
    assert!(table.check()?.is_clean());
    Ok(())
}
