//! IcebergHT end to end, beyond what all designs share (`designs.rs`): parallel recovery, reads in batches that hold
//! locks, reads during growth, halving, the size limit.

use icefield::{Durability, Error, Iceberg, OnFailure, Op, Yards};
// Its tables are compiled already (record 0108).
use icefield_torture as _;

type Check = Result<(), Box<dyn std::error::Error>>;

/// Recovery on one thread and on several threads gives the same table.
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

/// Two mixed batches once waited for each other: each read a key whose bucket the other's window had locked.
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
            // Each thread writes the keys that the other one reads.
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

/// A read in a batch once waited for a lock that the batch itself held for another key of the same bucket.
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

/// Keys that are never removed are found, with their values, while the table doubles and halves.
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

/// A limit below the present size prevents growth, but not opening.
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
