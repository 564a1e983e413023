//! Ranges return the same records as ranges of an ordered map, also with concurrent writers.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex};

use icefield::storage::Medium;
use icefield::storage::sim::{Pick, Sim, SimOptions};
use icefield::{Error, Key, Partition, Plush, Shape};
use icefield_torture::rng::mix;

use super::{Check, TINY};

/// Compares every range with that of a `BTreeMap` after random writes: across levels, tombstones and reopenings, for
/// several key types.
#[test]
fn ranges_are_those_of_a_tree() -> Check {
    ranges_of::<u64>(Some((0, 4095)), |n| n)?;
    // All keys are in one corner of the range.
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
    let first = tree.keys().next().expect("a thousand").clone();
    let all = rescued.range(K::arg(&first), usize::MAX)?;
    assert!(all.into_iter().eq(tree), "a rescued table has ranges, too");
    Ok(())
}

/// Keys with a common prefix, and numbers in a small part of their range. Thousands of them are in one entry, whose
/// leaves are split, emptied and reused, across reopenings and new levels.
#[test]
fn crowded_keys_have_ranges() -> Check {
    ranges_of::<u64>(None, |n| 1_700_000_000_000 + n)?;
    ranges_of::<i64>(None, |n| -(n as i64))?;
    ranges_of::<u128>(None, u128::from)?;
    ranges_of::<str>(None, |n| format!("https://example.com/item/{n:04}"))?;
    ranges_of::<[u8]>(None, |n| [vec![7; 30], n.to_be_bytes().to_vec()].concat())
}

/// Keys are inserted and removed in ascending order, and later records reuse the leaves of removed ones.
#[test]
fn a_window_of_numbers_that_count_up_takes_bounded_space() -> Check {
    let options = || Plush::<u64, u64>::options().partition(Partition::Range);
    let table = options().in_memory()?;
    let space = |table: &Plush<u64, u64>| table.stats().storage_bytes;
    let mut first = 0;
    for n in 0..120_000_u64 {
        table.put(1 << 40 | n, n)?;
        if let Some(old) = n.checked_sub(5_000) {
            table.delete(1 << 40 | old)?;
        }
        if n == 30_000 {
            first = space(&table);
        }
    }
    assert_eq!(table.len()?, 5_000);
    assert!(space(&table) <= 2 * first, "{first} bytes became {}", space(&table));
    assert_eq!(table.range(0, 1)?, [(1 << 40 | 115_000, 115_000)]);
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    Ok(())
}

/// Permanent keys are in every range, once and in order, while keys around them are inserted and removed.
#[test]
fn ranges_among_writers_miss_nothing_that_stays() -> Check {
    let options = Plush::<u64, u64>::options().partition(Partition::Range);
    let options = options.shape(Shape { slots: 2, fan_bits: 2, ..TINY });
    among_writers(&options.clone().key_range(0, 2_999).in_memory()?)?;
    // All keys are in one entry.
    among_writers(&options.in_memory()?)
}

fn among_writers(table: &Plush<u64, u64>) -> Check {
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

/// A table that shrinks has the same ranges afterwards, also after crashes during the shrinking, and splits its
/// leaves again. The keys are in one entry, whose leaves move in their file; in all entries, so that the last level
/// is removed; or concentrated in many entries, which have leaves above the last level.
#[test]
fn ranges_outlive_shrinking() -> Check {
    let keys: [fn(u64) -> u64; 3] = [|n| 1 << 40 | n, |n| n << 54, |n| ((n / 16) << 58) | (n % 16)];
    for key in keys {
        let shape = Shape { slots: 2, fan_bits: 2, ..TINY };
        let options = || Plush::<u64, u64>::options().shape(shape).partition(Partition::Range);
        let sim = Sim::new(SimOptions::default());
        let table = options().hash_seed([1, 2]).create_on(sim.clone())?;
        let mut tree = BTreeMap::new();
        for round in 0..6 {
            for n in 0..600 {
                let key = key(mix(n ^ round << 32) % 1_000);
                table.put(key, round)?;
                tree.insert(key, round);
            }
            // Removes nearly all keys, or about half of them.
            let goes = |key: u64| mix(key ^ round) % 100 < 98 - round % 2 * 40;
            for key in tree.keys().copied().filter(|&key| goes(key)).collect::<Vec<_>>() {
                table.delete(key)?;
                tree.remove(&key);
            }
            let images = Arc::new(Mutex::new(Vec::new()));
            let base = sim.image();
            sim.on_event({
                let images = Arc::clone(&images);
                move |point| {
                    let number = point.event().number;
                    if mix(number).is_multiple_of(300) {
                        let mut image = base.clone();
                        point.space().image(Pick::sample(number % 4, number), &mut image);
                        images.lock().expect("no panic").push(image);
                    }
                }
            });
            table.shrink_to_fit()?;
            sim.no_observer();
            expect_ranges(&table, &tree, &key)?;
            let images = std::mem::take(&mut *images.lock().expect("no panic"));
            println!("{} images, {:?}", images.len(), table.stats());
            for image in images {
                let sim = Sim::from_image(&image, SimOptions::default());
                let table = options().open_on(sim)?;
                expect_ranges(&table, &tree, &key)?;
                (0..300).try_for_each(|n| table.put(key(n), n))?;
                assert!(table.check()?.is_clean());
            }
        }
    }
    Ok(())
}

fn expect_ranges<M: Medium>(
    table: &Plush<u64, u64, M>,
    tree: &BTreeMap<u64, u64>,
    key: &impl Fn(u64) -> u64,
) -> Check {
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    for n in 0..1_000 {
        assert_eq!(table.get(key(n))?, tree.get(&key(n)).copied(), "key {n}");
    }
    for from in (0..1_000).step_by(90) {
        let found = table.range(key(from), 150)?;
        let right = tree.range(key(from)..).take(150).map(|(key, value)| (*key, *value));
        assert!(found.into_iter().eq(right), "from {from}");
    }
    Ok(())
}
