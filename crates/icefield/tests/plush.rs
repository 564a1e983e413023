//! Plush end to end: words and bytes, every key and value, levels, reopening, equal hashes, batches, threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::task::{Context, Poll, Wake};

use icefield::base::hash::HashKind;
use icefield::pm::sim::{Pick, Sim, SimOptions};
use icefield::pm::{Errno, FaultAction, FaultAt, FaultMode, FaultPlan};
use icefield::{Durability, Error, Key, Occupied, Partition, Plush, Shape, SyncMode};

type Check = Result<(), Box<dyn std::error::Error>>;

const TINY: Shape = Shape {
    root_bits: 1,
    first_bits: 0,
    fan_bits: 1,
    slots: 2,
    log_bits: 0,
    log_chunks: 2,
    log_records: 8,
};

#[test]
fn words_sink_through_the_levels_and_stay() -> Check {
    for shape in [Shape::default(), TINY] {
        let table = Plush::<u64, u64>::options().shape(shape).in_memory()?;
        let keys = if shape == TINY { 5_000 } else { 200_000 };
        for key in 0..keys {
            table.put(key, key * 3)?;
        }
        for key in 0..keys {
            assert_eq!(table.get(key)?, Some(key * 3), "key {key}");
        }
        assert_eq!(table.try_insert(7, 0)?, Err(Occupied(21)));
        assert_eq!(table.get(keys)?, None);
        assert_eq!(table.len()?, keys);
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
        for key in (0..keys).step_by(2) {
            assert_eq!(table.remove(key)?, Some(key * 3));
        }
        assert_eq!(table.iter().count() as u64, keys / 2);
        println!("{:?}", table.stats());
        table.clear()?;
        assert_eq!(table.len()?, 0);
        assert_eq!(table.insert(1, 1)?, None);
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
    }
    Ok(())
}

#[test]
fn every_key_and_every_value_can_be_stored() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let edges = [0, 1, 2, 0x80, 1 << 63, u64::MAX - 1, u64::MAX];
    let table = Plush::<u64, u64>::options().shape(TINY).create(&path)?;
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
    let table = Plush::<u64, u64>::open(&path)?;
    assert_eq!(table.len()?, edges.len() as u64);
    let mut records = table.iter().collect::<Result<Vec<_>, _>>()?;
    records.sort_unstable();
    assert_eq!(records, edges.map(|key| (key, key)));
    table.clear()?;
    assert_eq!(table.get(0)?, None);
    Ok(())
}

#[test]
fn equal_hashes_continue_their_entry() -> Check {
    for shape in [TINY, Shape::default()] {
        let table =
            Plush::<u64, u64>::options().shape(shape).hash(HashKind::Constant).in_memory()?;
        let keys = if shape == TINY { 500 } else { 10_000 };
        for round in 0..2 {
            for key in 0..keys {
                table.put(key, key + round)?;
            }
        }
        for key in (0..keys).step_by(7) {
            assert_eq!(table.get(key)?, Some(key + 1));
        }
        assert_eq!(table.get(keys)?, None);
        assert!(table.stats().pm_bytes < 16 << 20, "{:?}", table.stats());
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(report.records, keys);
        for key in 0..keys {
            assert_eq!(table.remove(key)?, Some(key + 1));
        }
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
    }
    Ok(())
}

/// Updates and removals for ever: space stays bounded.
#[test]
fn stale_records_take_bounded_space() -> Check {
    let table = Plush::<u64, u64>::options().shape(TINY).in_memory()?;
    for round in 0..200 {
        for key in 0..100 {
            table.put(key, round)?;
        }
    }
    let bytes = table.stats().pm_bytes;
    for round in 0..2_000 {
        for key in 0..100 {
            table.put(key, round)?;
        }
    }
    println!("{:?}", table.stats());
    assert!(table.stats().pm_bytes <= bytes * 2, "{bytes} {:?}", table.stats());
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    Ok(())
}

/// What a crash takes of records without a log: none that a checkpoint, a migration or a clean end came after.
#[test]
fn unlogged_records_are_durable_after_a_checkpoint() -> Check {
    let mut lost = 0;
    for seed in 0..40 {
        let sim = Sim::new(SimOptions { seed, ..SimOptions::default() });
        let table = Plush::<u64, u64>::options().shape(TINY).create_on(sim.clone())?;
        for key in 0..20 {
            table.put(key, 1)?;
            table.put_unlogged(key, 2)?;
        }
        table.checkpoint(2)?;
        for key in 0..5 {
            table.put_unlogged(key, 3)?;
        }
        table.put(5, 4)?;
        let mut image = sim.image();
        sim.crash_point(|point| point.space().image(Pick::AllOld, &mut image));
        let again =
            Plush::<u64, u64>::options().open_on(Sim::from_image(&image, SimOptions::default()))?;
        for key in 0..20 {
            let value = again.get(key)?;
            match key {
                0..5 => assert!(value == Some(2) || value == Some(3), "key {key}: {value:?}"),
                5 => assert_eq!(value, Some(4)),
                _ => assert_eq!(value, Some(2), "key {key}"),
            }
            lost += u64::from(value == Some(2) && key < 5);
        }
        assert!(again.check()?.is_clean());
        drop(table);
        let closed = Sim::from_image(&sim.image(), SimOptions::default());
        let closed = Plush::<u64, u64>::options().open_on(closed)?;
        assert_eq!((closed.get(0)?, closed.get(19)?), (Some(3), Some(2)));
    }
    println!("{lost} unlogged records were lost, as they may");
    assert!(lost > 0);
    Ok(())
}

/// Logs of three megabytes are replayed by as many threads as there are.
#[test]
fn long_logs_are_replayed_together() -> Check {
    let shape = Shape { root_bits: 8, log_chunks: 2, log_records: 1 << 14, ..Shape::default() };
    let options = SimOptions {
        counting: true,
        recording: false,
        region_bytes: 64 << 20,
        space_bytes: 64 << 20,
        ..SimOptions::default()
    };
    let sim = Sim::new(options.clone());
    let table = Plush::<u64, u64>::options().shape(shape).create_on(sim.clone())?;
    for key in 0..60_000 {
        table.put(key % 50_000, key)?;
    }
    let again = Plush::<u64, u64>::options().open_on(Sim::from_image(&sim.image(), options))?;
    assert!(!again.recovery().was_clean);
    for key in 0..50_000 {
        let newest = if key < 10_000 { key + 50_000 } else { key };
        assert_eq!(again.get(key)?, Some(newest), "key {key}");
    }
    let report = again.check()?;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.records, 50_000);
    Ok(())
}

#[test]
fn shrinking_drops_what_is_stale() -> Check {
    let table = Plush::<u64, u64>::options().shape(TINY).in_memory()?;
    table.bulk_load((0..1_000).map(|key| (key, key)))?;
    table.retain(|key, _| key % 10 == 0)?;
    table.shrink_to_fit()?;
    assert_eq!(table.len()?, 100);
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    table.reserve(1_200)?;
    assert!(table.capacity() >= 1_300, "{:?}", table.stats());
    assert_eq!(table.iter().count(), 100);
    Ok(())
}

/// A table that is asked to survive power cuts does, as far as a test without one can tell.
#[test]
fn disks_are_synced() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let options = || Plush::<u64, str>::options().shape(TINY).durability(Durability::Disk);
    let table = options().create(&path)?;
    for key in 0..50 {
        table.put(key, "one")?;
    }
    let pairs: Vec<(u64, &str)> = (50..100).map(|key| (key, "many")).collect();
    table.put_batch(&pairs)?;
    drop(table);
    let table = options().open(&path)?;
    assert_eq!(table.len()?, 100);
    assert!(table.check()?.is_clean());
    Ok(())
}

/// Random writes, and every range as a tree has it: across levels, tombstones and reopening, for keys of several types.
#[test]
fn ranges_are_those_of_a_tree() -> Check {
    ranges_of::<u64>(Some((0, 4095)), |n| n)?;
    // All of them in one corner of the range.
    ranges_of::<u64>(None, |n| n * n)?;
    ranges_of::<i32>(Some((-2048, 2047)), |n| n as i32 - 2048)?;
    ranges_of::<[u8; 4]>(None, |n| ((n as u32) << 20).to_le_bytes())?;
    ranges_of::<u128>(None, |n| u128::from(n) << 110 | 7)?;
    ranges_of::<str>(None, |n| format!("{:x}", n * n))?;
    let hashed = Plush::<u64, u64>::in_memory()?;
    assert!(matches!(hashed.range(0, 1), Err(Error::Unsupported(_))));
    Ok(())
}

fn ranges_of<K: Key + ?Sized>(
    bounds: Option<(K::Owned, K::Owned)>,
    key: impl Fn(u64) -> K::Owned,
) -> Check
where
    K::Owned: Ord,
{
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let shape = Shape { slots: 2, fan_bits: 2, ..TINY };
    let mut options = Plush::<K, u64>::options().shape(shape).partition(Partition::Range);
    if let Some((first, last)) = &bounds {
        options = options.key_range(K::arg(first), K::arg(last));
    }
    let mut table = options.create(&path)?;
    let mut tree = BTreeMap::new();
    let mut random = 7_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let mut records = 0;
    for step in 0..4_000 {
        let number = draw(4096);
        let key_here = key(number);
        match draw(8) {
            0 | 1 => {
                table.delete(K::arg(&key_here))?;
                tree.remove(&key_here);
            }
            2 => {
                let limit = [0, 1, 7, 100, 10_000][draw(5) as usize];
                let found = table.range(K::arg(&key_here), limit)?;
                let right = tree.range(&key_here..).take(limit);
                let right: Vec<_> =
                    right.map(|(key, value)| (K::Owned::clone(key), *value)).collect();
                assert!(found == right, "from {key_here:?}, {limit} at most");
                records += found.len();
            }
            _ => {
                table.put(K::arg(&key_here), step)?;
                tree.insert(key_here, step);
            }
        }
        if step % 1_000 == 999 {
            drop(table);
            table = Plush::open(&path)?;
        }
    }
    println!("{}: {records} records in ranges, {} at the end", K::TYPE, tree.len());
    assert!(records > 1_000 && tree.len() > 1_000);
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    let rescued = directory.path().join("rescued.ice");
    table.salvage(&rescued)?;
    let rescued = Plush::<K, u64>::open(&rescued)?;
    let all = rescued.range(K::arg(&key(0)), usize::MAX)?;
    assert!(all.into_iter().eq(tree), "a rescued table has ranges, too");
    Ok(())
}

/// Keys that stay are in every range, once and in order, while others come and go around them.
#[test]
fn ranges_among_writers_miss_nothing_that_stays() -> Check {
    let shape = Shape { slots: 2, fan_bits: 2, ..TINY };
    let options = Plush::<u64, u64>::options().shape(shape).partition(Partition::Range);
    let table = options.key_range(0, 2_999).in_memory()?;
    (0..1_000).try_for_each(|key| table.put(key * 3, 0))?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| -> Check {
        let writer = scope.spawn(|| -> icefield::Result<()> {
            for round in 1..6 {
                for key in 0..1_000 {
                    table.put(key * 3, round)?;
                    table.put(key * 3 + 1, round)?;
                    table.delete(key * 3 + 1 + key % 2)?;
                }
            }
            done.store(true, Release);
            Ok(())
        });
        let mut ranges = 0;
        while !done.load(Acquire) || ranges < 20 {
            let from = ranges * 97 % 2_000;
            let found = table.range(from, 300)?;
            assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0));
            let last = found.last().map_or(0, |record| record.0);
            let stays = found.iter().filter(|record| record.0 % 3 == 0).count() as u64;
            assert_eq!(stays, last / 3 + 1 - from.div_ceil(3), "from {from} to {last}");
            ranges += 1;
        }
        println!("{ranges} ranges");
        writer.join().expect("no panic")?;
        Ok(())
    })
}

/// Migrations come one at a time, not in cascades through the levels.
#[test]
fn a_write_takes_one_migration() -> Check {
    let shape = Shape { root_bits: 0, log_bits: 0, log_records: 1 << 10, ..Shape::default() };
    let table = Plush::<u64, u64>::options().shape(shape).hash_seed([1, 2]).in_memory()?;
    let detail = |name| {
        let stats = table.stats();
        stats.details.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    };
    let mut writes_by_migrations = [0; 8];
    let mut before = 0;
    for key in 0..300_000_u64 {
        table.put(key, key)?;
        let migrations = detail("migrations");
        writes_by_migrations[(migrations - before).min(7) as usize] += 1;
        before = migrations;
    }
    println!("{} levels, writes by migrations: {writes_by_migrations:?}", detail("levels"));
    assert_eq!(detail("levels"), 4);
    assert!(writes_by_migrations[1] > 3_000);
    let cascades: u64 = writes_by_migrations[2..].iter().sum();
    assert!(cascades <= 10, "{writes_by_migrations:?}");
    Ok(())
}

/// The counter of log epochs wraps around, within sessions and after crashes between them.
#[test]
fn log_epochs_wrap_around() -> Check {
    let mut wraps = 0;
    for first in [(1 << 48) - 40, (1 << 20) - 40] {
        for first_bits in [0, 1, 2] {
            let shape = Shape { first_bits, log_records: 16, ..TINY };
            let options = Plush::<u64, u64>::options().shape(shape).first_epoch(first);
            let mut sim = Sim::new(SimOptions { recording: false, ..SimOptions::default() });
            let mut table = options.create_on(sim.clone())?;
            for round in 0..60 {
                for key in 0..20 {
                    table.put((key * 7 + round) % 50, round)?;
                }
                // As after a crash: what is there without closing.
                let image = sim.image();
                sim = Sim::from_image(
                    &image,
                    SimOptions { recording: false, ..SimOptions::default() },
                );
                table = Plush::<u64, u64>::options().open_on(sim.clone())?;
                for key in 0..20 {
                    assert_eq!(table.get((key * 7 + round) % 50)?, Some(round));
                }
                let report = table.check()?;
                assert!(report.is_clean(), "{report:?}");
            }
            let stats = table.stats();
            println!("{first:#x}, {first_bits}: {stats:?}");
            wraps += 1;
        }
    }
    assert_eq!(wraps, 6);
    Ok(())
}

/// Writes on a disk that are acknowledged before they are synced: all of them are there when the table has ended, or
/// has been told to sync, and the futures hear of it.
#[test]
fn relaxed_writes_are_synced_in_the_end() -> Check {
    for mode in [SyncMode::Always, SyncMode::Every(5), SyncMode::Never] {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("table.ice");
        let options = || {
            let options = Plush::<u64, str>::options().shape(TINY).durability(Durability::Disk);
            options.sync(mode)
        };
        let table = options().create(&path)?;
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let table = &table;
                scope.spawn(move || -> icefield::Result<()> {
                    let futures: Vec<_> =
                        (0..60).map(|n| table.put_async(thread * 1000 + n, "later")).collect();
                    table.put(thread * 1000 + 60, "now")?;
                    futures.into_iter().try_for_each(block_on)?;
                    block_on(table.committed())
                });
            }
        });
        assert_eq!(table.get(2059)?.as_deref(), Some("later"));
        let pairs: Vec<(u64, &str)> = (5000..5700).map(|key| (key, "many")).collect();
        table.put_batch(&pairs)?;
        table.sync()?;
        let last = table.put_async(9999, "last");
        drop(table);
        block_on(last)?;
        let table = options().open(&path)?;
        assert!(table.recovery().was_clean);
        assert_eq!((table.len()?, table.get(9999)?.as_deref()), (3 * 61 + 701, Some("last")));
        assert!(table.check()?.is_clean());
    }
    Ok(())
}

/// A sync that fails is told to everybody who waits, and ends all writing.
#[test]
fn a_failed_sync_is_told() -> Check {
    let directory = tempfile::tempdir()?;
    let make = |name: &str, faults: &Arc<FaultPlan>| -> Result<_, Error> {
        let options = Plush::<u64, u64>::options().durability(Durability::Disk);
        let options = options.sync(SyncMode::Never).faults(faults.clone());
        let table = options.create(directory.path().join(name))?;
        table.put(1, 10)?;
        block_on(table.committed())?;
        Ok(table)
    };
    let counting = Arc::new(FaultPlan::counting());
    let table = make("good.ice", &counting)?;
    let calls = counting.calls();
    table.put(2, 20)?;
    assert_eq!(counting.calls(), calls, "a relaxed write makes no system call");
    table.sync()?;
    assert!(counting.calls() > calls);
    drop(table);

    let action = FaultAction::Fail(Errno::IO);
    let failing = FaultPlan::new(FaultAt { nth: calls + 1, mode: FaultMode::ForGood, action });
    let table = make("bad.ice", &Arc::new(failing))?;
    table.put(2, 20)?;
    let (one, two) = (table.committed(), table.put_async(3, 30));
    assert!(matches!(block_on(one), Err(Error::Poisoned)));
    assert!(matches!(block_on(two), Err(Error::Poisoned)));
    assert!(matches!(table.put(4, 40), Err(Error::Poisoned)));
    assert!(matches!(table.sync(), Err(Error::Poisoned)));
    assert_eq!((table.get(2)?, table.get(4)?), (Some(20), None));
    let last = table.committed();
    drop(table);
    assert!(matches!(block_on(last), Err(Error::Poisoned)));
    Ok(())
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn threads_write_together() -> Check {
    for shape in [TINY, Shape::default()] {
        let table = Plush::<u64, u64>::options().shape(shape).in_memory()?;
        let keys = if shape == TINY { 500 } else { 20_000 };
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let table = &table;
                scope.spawn(move || -> icefield::Result<()> {
                    for key in 0..keys {
                        table.fetch_add(key, 1)?;
                        table.put((thread + 1) * 1_000_000 + key, key)?;
                    }
                    Ok(())
                });
            }
        });
        for key in 0..keys {
            assert_eq!(table.get(key)?, Some(3), "key {key}");
        }
        assert_eq!(table.len()?, keys * 4);
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
    }
    Ok(())
}

#[test]
fn bytes_of_any_length() -> Check {
    for shape in [TINY, Shape::default()] {
        let table = Plush::<[u8], [u8]>::options().shape(shape).in_memory()?;
        let count = if shape == TINY { 300 } else { 5_000 };
        let key = |n: u32| format!("key number {n}").into_bytes();
        let value = |n: u32| vec![n as u8; (n as usize * 37) % 3000];
        for n in 0..count {
            assert_eq!(table.insert(&key(n), &value(n))?, None);
        }
        for n in 0..count {
            assert_eq!(table.get(&key(n))?, Some(value(n)));
            assert_eq!(table.get_with(&key(n), |bytes| bytes.len())?, Some(value(n).len()));
        }
        for n in (0..count).step_by(3) {
            assert_eq!(table.insert(&key(n), b"new")?, Some(value(n)));
            assert_eq!(table.remove(&key(n + 1))?, Some(value(n + 1)).filter(|_| n + 1 < count));
        }
        let big = vec![7; 16 << 20];
        table.put(b"big", &big)?;
        assert_eq!(table.get(b"big")?, Some(big));
        let long = vec![0; (16 << 20) + 1];
        assert!(matches!(table.put(b"big", &long), Err(Error::ValueTooLong { .. })));
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
    }
    Ok(())
}

/// Chunks of the payload log are freed and written again, however often the same keys are updated.
#[test]
fn payloads_take_bounded_space() -> Check {
    let table = Plush::<str, [u8]>::options().shape(TINY).blob_chunk_bytes(1 << 12).in_memory()?;
    for n in 0..50 {
        table.put(&format!("stays {n}"), &[n; 100])?;
    }
    for round in 0..3_000_u32 {
        for n in 0..10 {
            table.put(&format!("changes {n}"), &[round as u8; 100])?;
        }
    }
    println!("{:?}", table.stats());
    assert!(table.stats().pm_bytes < 4 << 20, "{:?}", table.stats());
    for n in 0..50 {
        assert_eq!(table.get(&format!("stays {n}"))?, Some(vec![n; 100]));
    }
    for n in 0..10 {
        assert_eq!(table.get(&format!("changes {n}"))?, Some(vec![2_999_u32 as u8; 100]));
    }
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    Ok(())
}

#[test]
fn reopens_after_closing_and_after_forgetting() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let table = Plush::<str, u64>::create(&path)?;
    for n in 0..30_000 {
        table.put(&format!("key {n}"), n)?;
    }
    assert!(
        matches!(Plush::<str, u64>::open(&path), Err(Error::Locked { pid }) if pid == std::process::id())
    );
    drop(table);
    assert!(matches!(Plush::<u64, u64>::open(&path), Err(Error::TypeMismatch { .. })));
    let reader = Plush::<str, u64>::open_read_only(&path)?;
    let another = Plush::<str, u64>::open_read_only(&path)?;
    assert_eq!(reader.get("key 77")?, Some(77));
    assert_eq!(another.iter().count(), 30_000);
    assert!(matches!(reader.put("x", 1), Err(Error::ReadOnly)));
    drop((reader, another));
    let table = Plush::<str, u64>::open(&path)?;
    assert!(table.recovery().was_clean);
    assert_eq!(table.len()?, 30_000);
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    let copy = directory.path().join("copy.ice");
    table.backup(&copy)?;
    assert_eq!(Plush::<str, u64>::open(&copy)?.len()?, 30_000);
    let rescued = directory.path().join("rescued.ice");
    assert_eq!(table.salvage(&rescued)?.records, 30_000);
    assert_eq!(Plush::<str, u64>::open(&rescued)?.get("key 2999")?, Some(2_999));
    Ok(())
}
