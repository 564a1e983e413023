//! Behaviour that all persistent designs share, end to end: words and bytes, growth, equal hashes, reopening,
//! batches, threads. The test bodies are generic; tests of one design are in its own file.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use icefield::base::hash::HashKind;
use icefield::{
    Cursor, DashEh, DashLh, DashOptions, Decision, Directory, Durable, Error, Geometry, Iceberg,
    IcebergOptions, Key, Occupied, OnFailure, Op, Plush, PlushOptions, Result, Shape, Table, Value,
    Yards,
};
use icefield_torture::timed::within;

mod designs {
    mod bounds;
}

type Check = std::result::Result<(), Box<dyn std::error::Error>>;

/// The size of a table's parts.
#[derive(Clone, Copy)]
enum Parts {
    /// Few slots: structure changes every few inserts.
    Tiny,
    /// Somewhat more slots.
    Small,
    /// The default size.
    Usual,
}

const ALL_PARTS: [Parts; 3] = [Parts::Tiny, Parts::Small, Parts::Usual];

/// A design, generic over the types.
trait Design {
    type Table<K: Key + ?Sized, V: Value + ?Sized>: Durable<Key = K, Value = V>;

    fn made_of<K: Key + ?Sized, V: Value + ?Sized>(
        parts: Parts,
        hash: HashKind,
    ) -> Result<Self::Table<K, V>>;

    fn in_memory<K: Key + ?Sized, V: Value + ?Sized>() -> Result<Self::Table<K, V>>;
    fn create<K: Key + ?Sized, V: Value + ?Sized>(path: &Path) -> Result<Self::Table<K, V>>;
    fn open<K: Key + ?Sized, V: Value + ?Sized>(path: &Path) -> Result<Self::Table<K, V>>;
    fn open_read_only<K: Key + ?Sized, V: Value + ?Sized>(path: &Path)
    -> Result<Self::Table<K, V>>;

    /// Returns the number of records that the iterator of `table` yields.
    fn iterated<K: Key + ?Sized, V: Value + ?Sized>(table: &Self::Table<K, V>) -> usize;
}

/// Generates the tests of one design. `$parts` is a function that sets the [`Parts`] in the design's options.
macro_rules! design {
    ($module:ident, $table:ident, $parts:path) => {
        mod $module {
            use super::*;

            struct This;

            impl Design for This {
                type Table<K: Key + ?Sized, V: Value + ?Sized> = $table<K, V>;

                fn made_of<K: Key + ?Sized, V: Value + ?Sized>(
                    parts: Parts,
                    hash: HashKind,
                ) -> Result<$table<K, V>> {
                    $parts($table::options(), parts).hash(hash).in_memory()
                }

                fn in_memory<K: Key + ?Sized, V: Value + ?Sized>() -> Result<$table<K, V>> {
                    $table::in_memory()
                }

                fn create<K: Key + ?Sized, V: Value + ?Sized>(
                    path: &Path,
                ) -> Result<$table<K, V>> {
                    $table::create(path)
                }

                fn open<K: Key + ?Sized, V: Value + ?Sized>(path: &Path) -> Result<$table<K, V>> {
                    $table::open(path)
                }

                fn open_read_only<K: Key + ?Sized, V: Value + ?Sized>(
                    path: &Path,
                ) -> Result<$table<K, V>> {
                    $table::open_read_only(path)
                }

                fn iterated<K: Key + ?Sized, V: Value + ?Sized>(table: &$table<K, V>) -> usize {
                    table.iter().count()
                }
            }

            design!(@tests words_grow_and_stay, tiny_parts_grow_under_the_writes,
                every_key_and_every_value_can_be_stored, equal_hashes_stay_within_bounds, room_is_made_ahead,
                bytes_of_any_length, reopens_after_closing, batches_answer_like_single_calls,
                threads_count_together, closures_may_use_the_table);
        }
    };
    (@tests $($test:ident),*) => {$(
        #[test]
        fn $test() -> Check {
            super::$test::<This>()
        }
    )*};
}

design!(dash_eh, DashEh, dash_of);
design!(dash_lh, DashLh, dash_of);
design!(iceberg, Iceberg, iceberg_of);
design!(plush, Plush, plush_of);

fn dash_of<K: Key + ?Sized, V: Value + ?Sized, D: Directory>(
    options: DashOptions<K, V, D>,
    parts: Parts,
) -> DashOptions<K, V, D> {
    options.geometry(match parts {
        Parts::Tiny => Geometry { buckets: 2, slots: 2, stash: 1 },
        Parts::Small => Geometry { buckets: 4, slots: 3, stash: 2 },
        Parts::Usual => Geometry::default(),
    })
}

fn iceberg_of<K: Key + ?Sized, V: Value + ?Sized>(
    options: IcebergOptions<K, V>,
    parts: Parts,
) -> IcebergOptions<K, V> {
    options.yards(match parts {
        Parts::Tiny => Yards { front: 2, back: 1 },
        Parts::Small => Yards { front: 4, back: 2 },
        Parts::Usual => Yards::default(),
    })
}

fn plush_of<K: Key + ?Sized, V: Value + ?Sized>(
    options: PlushOptions<K, V>,
    parts: Parts,
) -> PlushOptions<K, V> {
    options.shape(match parts {
        Parts::Tiny => {
            Shape { root_bits: 1, slots: 4, log_bits: 1, log_records: 40, ..Shape::default() }
        }
        Parts::Small => Shape { root_bits: 2, fan_bits: 2, log_records: 64, ..Shape::default() },
        Parts::Usual => Shape::default(),
    })
}

fn assert_sound(table: &impl Durable) -> Check {
    let report = table.check()?;
    assert!(report.is_clean(), "{report:?}");
    Ok(())
}

fn words_grow_and_stay<D: Design>() -> Check {
    let table = D::in_memory::<u64, u64>()?;
    for key in 0..100_000 {
        assert_eq!(table.try_insert(key, key * 3)?, Ok(()), "key {key}");
    }
    for key in 0..100_000 {
        assert_eq!(table.get(key)?, Some(key * 3), "key {key}");
        assert_eq!(table.try_insert(key, 0)?, Err(Occupied(key * 3)));
    }
    assert_eq!(table.get(100_000)?, None);
    assert_eq!(table.len()?, 100_000);
    assert_sound(&table)?;
    for key in (0..100_000).step_by(2) {
        assert_eq!(table.remove(key)?, Some(key * 3));
    }
    assert_eq!(D::iterated(&table), 50_000);
    table.clear()?;
    assert_eq!(table.len()?, 0);
    assert_eq!(table.insert(1, 1)?, None);
    assert_sound(&table)?;
    println!("{:?}", table.stats());
    Ok(())
}

fn tiny_parts_grow_under_the_writes<D: Design>() -> Check {
    let table = D::made_of::<u64, u64>(Parts::Tiny, HashKind::Strong)?;
    for key in 0..2_000 {
        assert_eq!(table.insert(key, key)?, None, "key {key}");
        for past in (0..=key).step_by(97) {
            assert_eq!(table.get(past)?, Some(past), "after {key}");
        }
        if key % 100 == 0 {
            assert_sound(&table)?;
        }
    }
    for key in 0..2_000 {
        assert_eq!(table.get(key)?, Some(key));
    }
    println!("{:?}", table.stats());
    Ok(())
}

/// Covers the words that a design reserves for its own use.
fn every_key_and_every_value_can_be_stored<D: Design>() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let edges = [0, 1, 2, 0x80, 1 << 63, u64::MAX - 1, u64::MAX];
    let table = D::create::<u64, u64>(&path)?;
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
    assert_sound(&table)?;
    drop(table);
    let table = D::open::<u64, u64>(&path)?;
    assert_eq!(table.len()?, edges.len() as u64);
    let mut records = table.scan(Cursor::START, 100)?.records;
    records.sort_unstable();
    assert_eq!(records, edges.map(|key| (key, key)));
    table.clear()?;
    assert_eq!(table.get(0)?, None);
    Ok(())
}

fn equal_hashes_stay_within_bounds<D: Design>() -> Check {
    for parts in ALL_PARTS {
        let table = D::made_of::<u64, u64>(parts, HashKind::Constant)?;
        for key in 0..5_000 {
            assert_eq!(table.try_insert(key, key)?, Ok(()));
        }
        for key in 0..5_000 {
            assert_eq!(table.get(key)?, Some(key));
        }
        assert_eq!(table.get(5_000)?, None);
        assert!(table.stats().storage_bytes < 32 << 20, "{:?}", table.stats());
        let (mut seen, mut next) = (0, Some(Cursor::START));
        while let Some(cursor) = next {
            let page = table.scan(cursor, 10)?;
            seen += page.records.len();
            next = page.next;
        }
        assert_eq!(seen, 5_000);
        assert_sound(&table)?;
        for key in 0..5_000 {
            assert_eq!(table.remove(key)?, Some(key));
        }
        assert_sound(&table)?;
    }
    Ok(())
}

/// All keys have equal hashes, so no structure change makes room for them in their buckets.
fn room_is_made_ahead<D: Design>() -> Check {
    let table = D::made_of::<u64, u64>(Parts::Tiny, HashKind::Constant)?;
    for key in 0..500 {
        table.put(key, key)?;
    }
    table.reserve(10_000)?;
    assert!(table.capacity() >= 10_500);
    assert_eq!(table.len()?, 500);
    assert_sound(&table)
}

fn bytes_of_any_length<D: Design>() -> Check {
    let table = D::in_memory::<[u8], [u8]>()?;
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
    let too_long = vec![0; (16 << 20) + 1];
    assert!(matches!(table.put(b"big", &too_long), Err(Error::ValueTooLong { .. })));
    // The operations of a batch before the one that fails take place, and none after it.
    let batch: [(&[u8], &[u8]); 4] =
        [(b"first", b"1"), (b"second", b"2"), (b"third", &too_long), (b"fourth", b"4")];
    let failed =
        [table.put_batch(&batch), table.insert_batch(&batch[1..], &mut [None, None, None])];
    assert!(failed.iter().all(|failed| matches!(failed, Err(Error::ValueTooLong { .. }))));
    let found = batch.iter().map(|(key, _)| table.get(key)).collect::<Result<Vec<_>, _>>()?;
    let expected = [Some(b"1".to_vec()), Some(b"2".to_vec()), None, None];
    assert_eq!(found, expected);
    assert_sound(&table)
}

fn reopens_after_closing<D: Design>() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let table = D::create::<str, u64>(&path)?;
    for n in 0..3_000 {
        table.put(&format!("key {n}"), n)?;
    }
    let locked = D::open::<str, u64>(&path);
    assert!(matches!(locked, Err(Error::Locked { pid, .. }) if pid == std::process::id()));
    drop(table);
    assert!(matches!(D::open::<u64, u64>(&path), Err(Error::TypeMismatch { .. })));
    let reader = D::open_read_only::<str, u64>(&path)?;
    let another = D::open_read_only::<str, u64>(&path)?;
    assert_eq!(reader.get("key 77")?, Some(77));
    assert_eq!(D::iterated(&another), 3_000);
    assert!(matches!(reader.put("x", 1), Err(Error::ReadOnly)));
    drop((reader, another));
    let table = D::open::<str, u64>(&path)?;
    assert!(table.recovery().was_clean);
    assert_eq!(table.len()?, 3_000);
    assert_sound(&table)?;
    let copy = directory.path().join("copy.ice");
    table.backup(&copy)?;
    assert_eq!(D::open::<str, u64>(&copy)?.len()?, 3_000);
    let rescued = directory.path().join("rescued.ice");
    assert_eq!(table.salvage(&rescued)?.records, 3_000);
    assert_eq!(D::open::<str, u64>(&rescued)?.get("key 2999")?, Some(2_999));
    Ok(())
}

fn batches_answer_like_single_calls<D: Design>() -> Check {
    let table = D::in_memory::<u64, u64>()?;
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
    assert_sound(&table)
}

fn threads_count_together<D: Design>() -> Check {
    let table = D::made_of::<u64, u64>(Parts::Small, HashKind::Strong)?;
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
    assert_sound(&table)
}

/// Closures run without a lock held, and no thread waits for them, so they may change the table in any way.
fn closures_may_use_the_table<D: Design + 'static>() -> Check {
    let done = within(Duration::from_secs(60), || -> Result<()> {
        let table = D::made_of::<u64, [u8]>(Parts::Tiny, HashKind::Strong)?;
        let meddle = |number: u64| {
            let key = 1_000 + number;
            table.put(key, &[7; 100]).expect("put");
            table.put_batch(&[(key + 1, b"more"), (1, b"one")]).expect("put_batch");
            table.remove(key).expect("remove");
            match number % 8 {
                0 => table.clear().expect("clear"),
                2 => table.reserve(100).expect("reserve"),
                4 => table.shrink_to_fit().expect("shrink_to_fit"),
                6 => assert!(table.len().expect("len") < 1_000),
                _ => {}
            }
        };
        for round in 0..16 {
            (0..20).try_for_each(|key| table.put(key, &[round as u8; 50]))?;
            table.get_with(1, |_| meddle(round))?;
            let mut calls = 0;
            table.compute(2, |_| {
                meddle(round + calls);
                calls += 1;
                Decision::Put(vec![1; 30])
            })?;
            (0..20).try_for_each(|key| table.put(key, b"again"))?;
            table.for_each(|key, _| {
                meddle(round + key % 2);
                if *key < 10 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            let mut shown = 0;
            table.retain(|key, _| {
                shown += 1;
                if shown < 20 {
                    meddle(round * 2 + 1);
                }
                key % 2 == 0
            })?;
        }
        Ok(())
    });
    Ok(done.map_err(|ending| format!("{ending:?}"))??)
}
