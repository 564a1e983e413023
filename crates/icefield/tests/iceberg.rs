//! IcebergHT end to end: words and bytes, every key and value, doublings, reopening, equal hashes, batches, threads.

use icefield::base::hash::HashKind;
use icefield::{Cursor, Decision, Durability, Error, Iceberg, Occupied, OnFailure, Op, Yards};

type Check = Result<(), Box<dyn std::error::Error>>;

const TINY: Yards = Yards { front: 2, back: 1 };

#[test]
fn words_grow_and_stay() -> Check {
    let table = Iceberg::<u64, u64>::in_memory()?;
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
fn tiny_buckets_double_under_the_writes() -> Check {
    let table = Iceberg::<u64, u64>::options().yards(TINY).in_memory()?;
    for key in 0..2_000 {
        assert_eq!(table.insert(key, key)?, None, "key {key}");
        for past in (0..=key).step_by(97) {
            assert_eq!(table.get(past)?, Some(past), "after {key}");
        }
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

/// One key word means an empty slot: its record has a slot of its own.
#[test]
fn every_key_and_every_value_can_be_stored() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let edges = [0, 1, 2, 0x80, 1 << 63, u64::MAX - 1, u64::MAX];
    let table = Iceberg::<u64, u64>::create(&path)?;
    for key in edges {
        for value in edges {
            table.put(key, value)?;
            assert_eq!(table.get(key)?, Some(value));
        }
        assert_eq!(table.remove(key)?, Some(u64::MAX));
        assert_eq!((table.get(key)?, table.remove(key)?), (None, None));
        assert_eq!(table.try_insert(key, !key)?, Ok(()));
        assert_eq!(table.try_insert(key, 5)?, Err(Occupied(!key)));
        assert_eq!(table.update(key, key)?, Some(!key));
    }
    assert!(table.check()?.is_clean());
    drop(table);
    let table = Iceberg::<u64, u64>::open(&path)?;
    assert_eq!(table.len()?, edges.len() as u64);
    let mut records = table.iter().collect::<Result<Vec<_>, _>>()?;
    records.sort_unstable();
    assert_eq!(records, edges.map(|key| (key, key)));
    table.clear()?;
    assert_eq!(table.get(0)?, None);
    Ok(())
}

#[test]
fn equal_hashes_end_in_the_overflow_yard() -> Check {
    for yards in [TINY, Yards::default()] {
        let table =
            Iceberg::<u64, u64>::options().yards(yards).hash(HashKind::Constant).in_memory()?;
        for key in 0..10_000 {
            assert_eq!(table.try_insert(key, key)?, Ok(()));
        }
        for key in 0..10_000 {
            assert_eq!(table.get(key)?, Some(key));
        }
        assert_eq!(table.get(10_000)?, None);
        assert!(table.stats().pm_bytes < 64 << 20, "{:?}", table.stats());
        let mut seen = 0;
        let mut next = Some(Cursor::START);
        while let Some(cursor) = next {
            let page = table.scan(cursor, 10)?;
            seen += page.records.len();
            next = page.next;
        }
        assert_eq!(seen, 10_000);
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
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
    let table = Iceberg::<[u8], [u8]>::in_memory()?;
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
    let table = Iceberg::<str, u64>::create(&path)?;
    for n in 0..3_000 {
        table.put(&format!("key {n}"), n)?;
    }
    assert!(
        matches!(Iceberg::<str, u64>::open(&path), Err(Error::Locked { pid }) if pid == std::process::id())
    );
    drop(table);
    assert!(matches!(Iceberg::<u64, u64>::open(&path), Err(Error::TypeMismatch { .. })));
    let reader = Iceberg::<str, u64>::open_read_only(&path)?;
    let another = Iceberg::<str, u64>::open_read_only(&path)?;
    assert_eq!(reader.get("key 77")?, Some(77));
    assert_eq!(another.iter().count(), 3_000);
    assert!(matches!(reader.put("x", 1), Err(Error::ReadOnly)));
    drop((reader, another));
    let table = Iceberg::<str, u64>::open(&path)?;
    assert!(table.recovery().was_clean);
    assert_eq!(table.len()?, 3_000);
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    let copy = directory.path().join("copy.ice");
    table.backup(&copy)?;
    assert_eq!(Iceberg::<str, u64>::open(&copy)?.len()?, 3_000);
    let rescued = directory.path().join("rescued.ice");
    assert_eq!(table.salvage(&rescued)?.records, 3_000);
    assert_eq!(Iceberg::<str, u64>::open(&rescued)?.get("key 2999")?, Some(2_999));
    Ok(())
}

/// Recovery on one thread and on several makes the same table of the same files.
#[test]
fn threads_recover_together() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let table = Iceberg::<u64, u64>::options().capacity(400_000).create(&path)?;
    let pairs: Vec<(u64, u64)> = (0..300_000).map(|key| (key, !key)).collect();
    table.put_batch(&pairs)?;
    drop(table);
    for threads in [1, 2, 5] {
        let table = Iceberg::<u64, u64>::options().threads(threads).open(&path)?;
        assert_eq!(table.len()?, 300_000, "{threads} threads");
        for key in (0..300_000).step_by(7) {
            assert_eq!(table.get(key)?, Some(!key), "{threads} threads");
        }
        assert_eq!(table.get(300_000)?, None);
    }
    Ok(())
}

#[test]
fn a_medium_that_reorders_lines_is_refused() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path = directory.path().join("table.ice");
    let options = || Iceberg::<u64, u64>::options().durability(Durability::Disk);
    assert!(matches!(options().create(&path), Err(Error::Unsupported(_))));
    assert!(matches!(options().open(&path), Err(Error::Unsupported(_))));
    let options = Iceberg::<u64, u64>::options();
    assert!(matches!(options.max_load(1.5).in_memory(), Err(Error::InvalidOption { .. })));
}

#[test]
fn batches_answer_like_single_calls() -> Check {
    let table = Iceberg::<u64, u64>::in_memory()?;
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

/// Two mixed batches once waited for each other: each read a key whose bucket the other's window held.
#[test]
fn reads_of_batches_wait_for_nobody_while_they_hold_locks() -> Check {
    const KEYS: u64 = 128;
    let table = Iceberg::<u64, u64>::options().capacity(KEYS).in_memory()?;
    let pairs: Vec<(u64, u64)> = (0..KEYS).map(|key| (key, key)).collect();
    table.put_batch(&pairs)?;
    let rounds = 10_000;
    let run = |thread: u64| -> icefield::Result<u64> {
        let mut read = 0;
        for round in 0..rounds {
            // One thread writes what the other reads.
            let key = |n: u64| (n * 7 + round * 31) % (KEYS / 2) * 2;
            let ops = (0..32)
                .flat_map(|n| [Op::put(key(n) + thread, round), Op::get(key(n) + 1 - thread)]);
            let mut ops: Vec<_> = ops.collect();
            table.execute(&mut ops, OnFailure::Continue)?;
            read += ops.iter().filter(|op| matches!(op, Op::Get(_, Some(_)))).count() as u64;
        }
        Ok(read)
    };
    let read = std::thread::scope(|scope| {
        let threads = [0, 1].map(|thread| {
            let run = &run;
            scope.spawn(move || run(thread))
        });
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .sum::<icefield::Result<u64>>()
    })?;
    println!("2 threads, {rounds} mixed batches each, {read} reads");
    assert_eq!(read, 2 * rounds * 32);
    Ok(())
}

/// A read in a batch once waited for the lock that its own batch held: for another key of the same bucket.
#[test]
fn reads_of_a_batch_pass_its_own_locks() -> Check {
    let table = Iceberg::<u64, u64>::in_memory()?;
    assert_eq!(table.stats().details[0], ("buckets", 1));
    table.put(2, 20)?;
    let mut ops = [Op::insert(1, 10), Op::get(2), Op::get(3), Op::get(1), Op::remove(2)];
    assert_eq!(table.execute(&mut ops, OnFailure::Continue)?, 5);
    let found: Vec<_> =
        ops[1..4].iter().map(|op| if let Op::Get(_, v) = op { *v } else { None }).collect();
    assert_eq!(found, [Some(20), None, Some(10)]);
    Ok(())
}

#[test]
fn threads_count_together() -> Check {
    let table = Iceberg::<u64, u64>::options().yards(Yards { front: 4, back: 2 }).in_memory()?;
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

#[test]
fn space_is_given_back() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let table = Iceberg::<u64, u64>::create(&path)?;
    let pairs: Vec<(u64, u64)> = (0..200_000).map(|key| (key, !key)).collect();
    table.put_batch(&pairs)?;
    let large = table.stats();
    table.retain(|key, _| key % 100 == 0)?;
    table.shrink_to_fit()?;
    let small = table.stats();
    assert!(small.capacity * 16 <= large.capacity, "{large:?} {small:?}");
    let check = |table: &Iceberg<u64, u64>| -> Check {
        for key in 0..200_000 {
            assert_eq!(table.get(key)?, (key % 100 == 0).then_some(!key), "key {key}");
        }
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
        Ok(())
    };
    check(&table)?;
    drop(table);
    let table = Iceberg::<u64, u64>::open(&path)?;
    check(&table)?;
    table.put_batch(&pairs)?;
    assert_eq!(table.len()?, 200_000);
    assert_eq!(table.get(77)?, Some(!77));
    assert!(table.check()?.is_clean());
    println!("{:?}", table.stats());
    Ok(())
}

/// Keys that stay are found, with their values, while the table doubles and halves under the reads.
#[test]
fn reads_go_on_while_the_table_grows_and_shrinks() -> Check {
    let table = Iceberg::<u64, u64>::options().yards(Yards { front: 8, back: 4 }).in_memory()?;
    for key in 0..50 {
        table.put(key, key + 7)?;
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut reads = 0_u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..30 {
                let keys: Vec<u64> = (1_000..4_000).collect();
                let pairs: Vec<(u64, u64)> = keys.iter().map(|&key| (key, key)).collect();
                table.put_batch(&pairs).expect("put");
                table.remove_batch(&keys, &mut vec![None; keys.len()]).expect("remove");
                table.shrink_to_fit().expect("shrink");
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            for key in 0..50 {
                assert_eq!(table.get(key).expect("get"), Some(key + 7));
            }
            let stable = table.iter().filter(|r| r.as_ref().is_ok_and(|&(key, _)| key < 50));
            assert_eq!(stable.count(), 50);
            reads += 50;
        }
    });
    let stats = table.stats();
    println!("{reads} reads, {stats:?}");
    assert!(stats.details.iter().any(|&(name, count)| name == "halvings" && count >= 30));
    assert!(table.check()?.is_clean());
    Ok(())
}

/// A smaller bound than the table has grown to keeps it from growing, not from opening.
#[test]
fn a_table_opens_under_a_smaller_bound() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let table = Iceberg::<u64, u64>::options().capacity(200_000).create(&path)?;
    let pairs: Vec<(u64, u64)> = (0..200_000).map(|key| (key, !key)).collect();
    table.put_batch(&pairs)?;
    drop(table);
    let table = Iceberg::<u64, u64>::options().max_bytes(1 << 20).open(&path)?;
    assert_eq!((table.len()?, table.get(199_999)?), (200_000, Some(!199_999)));
    assert!(matches!(table.reserve(10_000_000), Err(Error::NoSpace { .. })));
    table.put(1 << 40, 1)?;
    assert!(table.check()?.is_clean());
    Ok(())
}

#[test]
fn room_is_made_ahead() -> Check {
    let table = Iceberg::<u64, u64>::options().yards(TINY).hash(HashKind::Constant).in_memory()?;
    for key in 0..500 {
        table.put(key, key)?;
    }
    table.reserve(10_000)?;
    assert!(table.capacity() >= 10_500);
    assert_eq!(table.len()?, 500);
    assert!(table.check()?.is_clean());
    Ok(())
}
