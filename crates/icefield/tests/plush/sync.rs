//! Durability of writes on disks, and the futures that report it.

use std::sync::Arc;
use std::task::{Context, Poll, Wake};

use icefield::base::hash::HashKind;
use icefield::storage::{Errno, FaultAction, FaultAt, FaultMode, FaultPlan};
use icefield::{Durability, Error, OnFailure, Op, Plush, SyncMode};

use super::{Check, TINY};

/// A table on a disk syncs its writes, as far as a test without a power failure can show.
#[test]
fn disks_are_synced() -> Check {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
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

/// Writes on a disk that are acknowledged before they are synced must all be present after the table is closed or
/// synced, and their futures must complete.
#[test]
fn relaxed_writes_are_synced_in_the_end() -> Check {
    for mode in [SyncMode::Always, SyncMode::Every(5), SyncMode::Never] {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
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

/// A table on a disk with enough capacity keeps its records in the root: a batch costs exactly one sync.
#[test]
fn a_batch_on_a_disk_is_one_sync() -> Check {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let counting = Arc::new(FaultPlan::counting());
    let options = Plush::<u64, u64>::options().durability(Durability::Disk).capacity(40_000);
    let table = options.faults(counting.clone()).create(directory.path().join("clicks.ice"))?;
    let records: Vec<(u64, u64)> = (0..40_000).map(|key| (key, !key)).collect();
    let before = counting.calls();
    records.chunks(100).try_for_each(|batch| table.put_batch(batch))?;
    println!("{} system calls for 400 batches", counting.calls() - before);
    // Each of the two chunks of the log costs one more sync.
    assert_eq!(counting.calls() - before, 402);
    assert_eq!(table.len()?, 40_000);
    Ok(())
}

/// Batches on a disk that need the same root entries at the same time leave writes for their next windows. Writes of one
/// key keep their order all the same, and an operation with a result sees those before it.
#[test]
fn writes_that_wait_for_locks_on_a_disk_keep_their_order() -> Check {
    const KEYS: u64 = 40;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let options = Plush::<u64, str>::options().shape(TINY).durability(Durability::Disk);
    let table = options.create(directory.path().join("table.ice"))?;
    std::thread::scope(|scope| {
        let writer = |thread: u64| {
            let table = &table;
            move || -> icefield::Result<()> {
                for round in 0..20 {
                    // Each key twice; the second write counts.
                    let value = |n: u64| format!("{round}, {}", n / KEYS);
                    let values: Vec<String> = (0..2 * KEYS).map(value).collect();
                    let records: Vec<(u64, &str)> = (0..)
                        .zip(&values)
                        .map(|(n, value)| (n % KEYS * 4 + thread, value.as_str()))
                        .collect();
                    table.put_batch(&records)?;
                    let (key, second) = (round % KEYS * 4 + thread, format!("{round}, 1"));
                    assert_eq!(table.get(key)?.as_deref(), Some(second.as_str()));
                    let mut ops = [
                        Op::put(key, "blind"),
                        Op::put(key + 1_000, "more"),
                        Op::update(key, "looked"),
                        Op::get(key),
                    ];
                    table.execute(&mut ops, OnFailure::Continue)?;
                    assert!(
                        matches!(&ops[2..], [Op::Update(.., Some(before)), Op::Get(_, Some(now))]
                            if before == "blind" && now == "looked"),
                        "{ops:?}"
                    );
                }
                Ok(())
            }
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || writer(thread)())).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    assert!(table.check()?.is_clean());
    Ok(())
}

/// Batches of several threads that write the same keys at the same time share syncs. The value that readers see last is
/// also the last one in the log, and a table that is opened from the log alone has it, too.
#[test]
fn batches_that_share_syncs_leave_what_readers_saw_last() -> Check {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let (path, copy) = (directory.path().join("table.ice"), directory.path().join("copy.ice"));
    let options = || Plush::<u64, u64>::options().shape(TINY).durability(Durability::Disk);
    let table = options().create(&path)?;
    for round in 0..3 {
        write_on_four_threads(&table, round, &|thread, key| thread << 32 | round << 16 | key)?;
        for key in 0..40 {
            let value = table.get(key)?.expect("written by all threads");
            assert_eq!(value & 0xFFFF_FFFF, round << 16 | key);
        }
    }
    let seen: Vec<_> = (0..200).map(|key| table.get(key)).collect::<Result<_, _>>()?;
    // The files as a crash leaves them.
    std::fs::create_dir(&copy)?;
    for file in std::fs::read_dir(&path)? {
        let file = file?;
        std::fs::copy(file.path(), copy.join(file.file_name()))?;
    }
    let opened = options().open(&copy)?;
    assert!(!opened.recovery().was_clean);
    let kept: Vec<_> = (0..200).map(|key| opened.get(key)).collect::<Result<_, _>>()?;
    assert_eq!(kept, seen);
    assert!(opened.check()?.is_clean() && table.check()?.is_clean());
    Ok(())
}

/// When a sync fails that batches share, all of them end. Readers see no record that may be lost.
#[test]
fn a_failed_sync_ends_all_batches_that_share_it() -> Check {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let action = FaultAction::Fail(Errno::IO);
    for failing in 0..10 {
        let counting = Arc::new(FaultPlan::counting());
        let options = || Plush::<u64, u64>::options().shape(TINY).durability(Durability::Disk);
        let first = options().faults(counting.clone());
        drop(first.create(directory.path().join(format!("counted {failing}")))?);
        let nth = counting.calls() + failing;
        let plan = FaultPlan::new(FaultAt { nth, mode: FaultMode::ForGood, action });
        let path = directory.path().join(format!("failing {failing}"));
        let Ok(table) = options().faults(Arc::new(plan)).create(&path) else { continue };
        let written = write_on_four_threads(&table, 0, &|_, key| key);
        assert!(matches!(written, Err(Error::Poisoned | Error::Io { .. })), "{written:?}");
        for key in 0..200 {
            assert!(table.get(key)?.is_none_or(|value| value == key));
        }
    }
    Ok(())
}

/// Writes keys below 40 in batches on four threads, and keys of each thread.
fn write_on_four_threads(
    table: &Plush<u64, u64>,
    round: u64,
    value: &(impl Fn(u64, u64) -> u64 + Sync),
) -> icefield::Result<()> {
    std::thread::scope(|scope| {
        let write = |thread: u64| {
            for part in 0..8 {
                let shared = (0..20).map(|n| (n * 7 + part * 20 + thread) % 40);
                let own = (0..5).map(|n| 40 + thread * 40 + part * 5 + n);
                let records: Vec<_> =
                    shared.chain(own).map(|key| (key, value(thread, key))).collect();
                table.put_batch(&records)?;
                // Locks root entries, and writes nothing.
                let absent: Vec<u64> = (1000..1040).map(|key| key + thread).collect();
                table.remove_batch(&absent, &mut vec![None; absent.len()])?;
                if round % 2 == 1 {
                    let own: Vec<u64> = records.iter().skip(20).map(|&(key, _)| key).collect();
                    table.remove_batch(&own, &mut vec![None; own.len()])?;
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || write(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

/// A table on a disk that is larger than the memory is read page by page, with the same results.
#[test]
fn a_table_larger_than_memory_has_its_records() -> Check {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let path = directory.path().join("table.ice");
    let counting = Arc::new(FaultPlan::counting());
    let options = || {
        let options = Plush::<u64, str>::options().shape(TINY).durability(Durability::Disk);
        options.sync(SyncMode::Never).memory(1 << 14).faults(counting.clone())
    };
    let value = |key: u64| format!("{key} times the number {key}");
    let keys: Vec<u64> = (0..400).collect();
    let table = options().create(&path)?;
    for keys in keys.chunks(100) {
        let values: Vec<String> = keys.iter().map(|&key| value(key)).collect();
        let records: Vec<(u64, &str)> =
            keys.iter().zip(&values).map(|(&key, value)| (key, value.as_str())).collect();
        table.put_batch(&records)?;
    }
    drop(table);
    for reads_only in [false, true] {
        let options = options();
        let table =
            if reads_only { options.open_read_only(&path)? } else { options.open(&path)? };
        let mut found = vec![None; keys.len() + 50];
        table.get_batch(&(0..450).collect::<Vec<u64>>(), &mut found)?;
        for (key, found) in (0..).zip(&found) {
            let wanted = (key < 400).then(|| value(key));
            assert_eq!(found.as_deref(), wanted.as_deref());
            assert_eq!(table.get(key)?.as_deref(), wanted.as_deref());
        }
        assert_eq!(table.len()?, 400);
        assert!(table.check()?.is_clean());
    }
    assert!(counting.sites().contains(&"read_pages"));
    Ok(())
}

/// While level 1 is the last level, a chain may continue one of its entries. That entry may then hold more records for
/// one entry of level 2 than the latter has room for. Writes that make room ahead, for several root entries together,
/// must not expect room in that entry of level 2, or they would never end.
#[test]
fn a_level_below_crowded_entries_lets_writes_end() -> Check {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let table = Plush::<u64, u64>::options()
        .shape(TINY)
        .hash(HashKind::Constant)
        .durability(Durability::Disk)
        .create(directory.path().join("table.ice"))?;
    let put = |keys: std::ops::Range<u64>| keys.into_iter().try_for_each(|key| table.put(key, key));
    put(0..200)?;
    let before = table.capacity();
    table.reserve(before)?;
    assert!(table.capacity() > before, "a level more");
    put(200..400)?;
    for key in 0..400 {
        assert_eq!(table.get(key)?, Some(key));
    }
    assert!(table.check()?.is_clean());
    Ok(())
}

/// A failed sync is reported to all waiting futures and ends all writing.
#[test]
fn a_failed_sync_is_told() -> Check {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
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

pub(super) fn block_on<F: Future>(future: F) -> F::Output {
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
