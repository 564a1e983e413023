//! Tables on the simulated medium, small enough for Miri.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::base::hash::{Hash, HashKind};
use crate::engine::iceberg::Yards;
use crate::storage::sim::{Sim, SimOptions};
use crate::{Decision, Durability, Iceberg, IcebergOptions, Key, OnFailure, Op, Result, Value};

/// The number of records that makes a [`tiny`] table double several times.
const RECORDS: u64 = 40;

fn tiny<K: Key + ?Sized, V: Value + ?Sized>() -> IcebergOptions<K, V> {
    let options = Iceberg::options().yards(Yards { front: 2, back: 1 }).hash_seed([1, 2]);
    options.blob_chunk_bytes(1 << 10).max_bytes(1 << 20).max_depth(6)
}

/// Returns a medium with the files that another process would find.
fn reopened(sim: &Sim) -> Sim {
    Sim::from_image(&sim.image(), SimOptions::default())
}

#[test]
fn words_come_and_go() -> Result<()> {
    [false, true].into_iter().try_for_each(|free_fences| {
        words_come_and_go_on(Sim::new(SimOptions { free_fences, ..SimOptions::default() }))
    })
}

fn words_come_and_go_on(sim: Sim) -> Result<()> {
    let table = tiny::<u64, u64>().create_on(sim.clone())?;
    for key in 0..RECORDS {
        assert_eq!(table.insert(key, key + 1)?, None);
    }
    let pairs: Vec<(u64, u64)> = (0..RECORDS).map(|key| (2 * key, key)).collect();
    let mut previous = vec![None; pairs.len()];
    table.insert_batch(&pairs, &mut previous)?;
    for ((key, _), previous) in pairs.iter().zip(previous) {
        assert_eq!(previous, (*key < RECORDS).then_some(key + 1));
    }
    let keys: Vec<u64> = (0..10).map(|key| 2 * RECORDS + key).collect();
    let mut removed = vec![None; keys.len()];
    table.remove_batch(&keys, &mut removed)?;
    assert!(removed.iter().all(Option::is_none));
    table.put_batch(&keys.iter().map(|&key| (key, key)).collect::<Vec<_>>())?;
    // Puts the same key twice in one batch.
    table.put_batch(&[(keys[0], 1), (keys[0], 2)])?;
    table.remove_batch(&keys, &mut removed)?;
    assert_eq!(removed[..2], [Some(2), Some(keys[1])]);
    let add = |value: Option<&u64>| value.map_or(Decision::Keep, |value| Decision::Put(value + 1));
    table.compute(0, add)?;
    let mut ops = [Op::get(0), Op::remove(0), Op::get(0), Op::put(0, 7), Op::get(2)];
    table.execute(&mut ops, OnFailure::Continue)?;
    assert!(matches!(ops[..3], [Op::Get(0, Some(1)), Op::Remove(0, Some(1)), Op::Get(0, None)]));
    assert!(table.check()?.is_clean());
    let records = table.len()?;
    // The table is still open, so the image is that of a crash.
    let image = reopened(&sim);
    drop(table);
    let table = tiny::<u64, u64>().threads(2).open_on(image)?;
    assert_eq!((table.len()?, table.get(0)?, table.get(4)?), (records, Some(7), Some(2)));
    table.retain(|key, _| key < 4)?;
    table.shrink_to_fit()?;
    assert_eq!(table.iter().count(), 4);
    assert!(table.check()?.is_clean());
    table.clear()?;
    assert!(table.is_empty()?);
    Ok(())
}

#[test]
fn bytes_come_and_go() -> Result<()> {
    let sim = Sim::new(SimOptions::default());
    let table = tiny::<str, [u8]>().create_on(sim.clone())?;
    let value = |n: u64| vec![n as u8; n as usize * 7];
    for n in 0..RECORDS / 2 {
        table.put(&n.to_string(), &value(n))?;
    }
    for n in 0..RECORDS / 4 {
        assert_eq!(table.insert(&n.to_string(), b"new")?, Some(value(n)));
        assert_eq!(table.remove(&(n + RECORDS / 4).to_string())?, Some(value(n + RECORDS / 4)));
    }
    drop(table);
    let table = tiny::<str, [u8]>().open_on(reopened(&sim))?;
    assert_eq!(table.len()?, RECORDS / 4);
    assert_eq!(table.get_with("3", |bytes| bytes.len())?, Some(3));
    assert!(table.check()?.is_clean());
    Ok(())
}

#[test]
fn reads_go_on_beside_a_writer() -> Result<()> {
    let table = tiny::<u64, u64>().create_on(Sim::new(SimOptions::default()))?;
    table.put(1000, 1)?;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<()> {
            (0..RECORDS / 2).try_for_each(|key| table.put(key, key).map(drop))?;
            table.remove(1000)?;
            Ok(())
        });
        let mut gone = false;
        while !writer.is_finished() {
            let found = table.get(1000)?;
            assert!(found.is_none() || found == Some(1) && !gone, "it came back");
            gone = found.is_none();
        }
        writer.join().unwrap_or(Ok(()))
    })?;
    assert_eq!((table.get(1000)?, table.len()?), (None, RECORDS / 2));
    assert!(table.check()?.is_clean());
    Ok(())
}

#[test]
#[cfg_attr(miri, ignore = "the real medium")]
fn a_clear_between_batches_leaves_the_count_right() -> Result<()> {
    for durability in [Durability::Memory, Durability::PmemForced] {
        for round in 0..300 {
            let table = tiny::<u64, u64>().durability(durability).in_memory()?;
            let batch: Vec<(u64, u64)> = (0..20).map(|key| (key, round)).collect();
            let begun = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    (0..40).try_for_each(|_| {
                        begun.store(true, Relaxed);
                        table.put_batch(&batch)
                    })
                });
                while !begun.load(Relaxed) {
                    std::hint::spin_loop();
                }
                (0..5).try_for_each(|_| table.clear())?;
                writer.join().unwrap_or(Ok(()))
            })?;
            let report = table.check()?;
            assert!(report.is_clean(), "round {round}: {:?}", report.faults);
        }
    }
    Ok(())
}

#[test]
fn records_in_the_back_yard_are_found_after_every_step() -> Result<()> {
    // Front buckets of two slots, so that many records are in the back yard.
    let mut sim = Sim::new(SimOptions::default());
    let mut table = tiny::<u64, u64>().create_on(sim.clone())?;
    let check = |table: &Iceberg<u64, u64, Sim>, keys: std::ops::Range<u64>| -> Result<()> {
        for key in 0..keys.end {
            let expected = keys.contains(&key).then_some(key);
            assert_eq!(table.get(key)?, expected, "{keys:?}");
        }
        let report = table.check()?;
        assert!(report.is_clean(), "{keys:?}: {:?}", report.faults);
        Ok(())
    };
    // Twice, so that doublings reach depths that have had marks before.
    for _ in 0..2 {
        for key in 0..RECORDS {
            table.put(key, key)?;
            check(&table, 0..key + 1)?;
        }
        sim = reopened(&sim);
        table = tiny::<u64, u64>().open_on(sim.clone())?;
        check(&table, 0..RECORDS)?;
        for key in 0..RECORDS - 2 {
            table.remove(key)?;
            table.shrink_to_fit()?;
            check(&table, key + 1..RECORDS)?;
        }
        table.clear()?;
        check(&table, 0..0)?;
    }
    Ok(())
}

#[test]
#[cfg_attr(miri, ignore = "under Miri, reads take locks, and finding the keys takes long")]
fn batches_find_keys_that_come_and_go() -> Result<()> {
    // Keys with one fingerprint, so that reads find many candidates.
    let hash = Hash::new(HashKind::default(), [1, 2]);
    let mut alike = (1..).filter(|&key| hash.word(key) >> 56 == 77);
    for yards in [Yards { front: 2, back: 1 }, Yards { front: 64, back: 8 }] {
        for (batch, expects) in [(1, true), (20, false), (48, true), (900, false), (900, true)] {
            let options = tiny::<u64, u64>().yards(yards).expects_misses(expects);
            let table = options.create_on(Sim::new(SimOptions::default()))?;
            let mut known: BTreeSet<u64> = (0..20).chain(alike.by_ref().take(20)).collect();
            table.put_batch(&known.iter().map(|&key| (key, key + 1)).collect::<Vec<_>>())?;
            // Runs of present keys, of absent ones, and of both, long enough for both rings of a batch.
            let present: Vec<u64> = known.iter().copied().collect();
            let absent =
                |n: u64| if n.is_multiple_of(5) { alike.next() } else { Some(1_000_000 + n) };
            let keys: Vec<u64> = (0..900)
                .filter_map(absent)
                .enumerate()
                .map(|(n, absent)| match n / 150 % 3 {
                    0 => present[n % 40],
                    1 => absent,
                    _ => [present[n % 40], absent][n * 7 / 4 % 2],
                })
                .collect();
            for keys in keys.chunks(batch) {
                let mut failed = Ok(());
                table.get_batch_with(keys, |index, value| {
                    let (key, is_known) = (keys[index], known.contains(&keys[index]));
                    assert_eq!(value.copied(), is_known.then_some(key + 1), "key {key}");
                    // In the second half of each run, keys come and go after the batch has looked for them ahead, and
                    // the table doubles meanwhile.
                    let mut change = || -> Result<()> {
                        let ahead = &keys[index + 1..keys.len().min(index + 11)];
                        match index % 16 {
                            _ if index % 150 < 75 => Ok(()),
                            0 => ahead.iter().try_for_each(|&next| {
                                known.insert(next);
                                table.put(next, next + 1)
                            }),
                            8 => ahead.iter().step_by(3).try_for_each(|next| {
                                known.remove(next);
                                table.remove(*next).map(drop)
                            }),
                            12 if index > 800 => {
                                known.clear();
                                table.clear()
                            }
                            _ => Ok(()),
                        }
                    };
                    if failed.is_ok() {
                        failed = change();
                    }
                })?;
                failed?;
            }
            assert!(table.check()?.is_clean());
        }
    }
    Ok(())
}
