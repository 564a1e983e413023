//! Tables of constant size: no growth and no refusal, however often their records are replaced.

use icefield::{Dlht, DlhtMap, DlhtSet, DlhtTable, Error, OnFailure, Op, Shared, Table, Threading};
use icefield_torture::Rng;

const RECORDS: u64 = 20_000;
const TURNS: u64 = 40;

fn bytes<M: Threading>(table: &DlhtTable<u64, u64, M>) -> u64 {
    table.stats().dram_bytes
}

/// Replaces each record of a full table `TURNS` times, by `turn(key to insert, key to remove)`.
fn churn(percent: u64, capacity: u64, mut fill: impl FnMut(u64), mut turn: impl FnMut(u64, u64)) {
    let live = capacity * percent / 100;
    (0..live).for_each(&mut fill);
    (0..live * TURNS).for_each(|key| turn(live + key, key));
}

fn single<M: Threading>(percent: u64) {
    let table = DlhtTable::<u64, u64, M>::options().capacity(RECORDS as _).build().expect("memory");
    let before = bytes(&table);
    churn(
        percent,
        RECORDS,
        |key| table.put(key, key),
        |new, old| {
            table.put(new, new);
            assert_eq!(table.remove(old), Some(old));
        },
    );
    assert_eq!(bytes(&table), before, "{percent} % of the capacity");
}

#[test]
fn tables_do_not_grow_at_constant_size() {
    for percent in [50, 70, 90] {
        single::<Shared>(percent);
        single::<icefield::Local>(percent);
    }
}

#[test]
fn batches_do_not_grow_at_constant_size() {
    const BATCH: u64 = 512;
    for percent in [50, 70, 90] {
        let table = Dlht::<u64, u64>::with_capacity(RECORDS as _);
        let before = bytes(&table);
        let live = RECORDS * percent / 100 - BATCH;
        (0..live).for_each(|key| table.put(key, key));
        for start in (0..live * TURNS).step_by(BATCH as usize) {
            let mut ops: Vec<Op<'_, u64, u64>> = Vec::new();
            for key in start..start + BATCH {
                ops.extend([Op::put(live + key, key), Op::remove(key)]);
            }
            assert_eq!(table.execute(&mut ops, OnFailure::Stop), ops.len());
        }
        assert_eq!(bytes(&table), before, "{percent} % of the capacity");
    }
}

#[test]
fn sets_and_maps_do_not_grow_at_constant_size() {
    for percent in [50, 90] {
        let set = DlhtSet::<u64>::with_capacity(RECORDS as _);
        let before = set.stats().dram_bytes;
        churn(
            percent,
            RECORDS,
            |key| assert!(set.insert(key)),
            |new, old| {
                assert!(set.insert(new) && set.remove(old));
            },
        );
        assert_eq!(set.stats().dram_bytes, before);

        let map = DlhtMap::<u64, u64>::with_capacity(RECORDS as _);
        let index_bytes = || map.stats().details[0];
        let before = index_bytes();
        churn(
            percent,
            RECORDS,
            |key| map.put(key, key),
            |new, old| {
                map.put(new, new);
                map.delete(&old);
            },
        );
        assert_eq!(index_bytes(), before);
    }
}

/// Inserts and removals in random order, mostly at the capacity. A table must refuse what exceeds its capacity at some
/// time, and nothing before.
#[test]
fn tables_of_fixed_size_refuse_nothing_below_their_capacity() {
    let mut refused = 0;
    for seed in 0..300_u64 {
        let mut rng = Rng::new(seed);
        let asked = 1 + rng.below(if seed % 10 == 0 { 5000 } else { 300 });
        let options = Dlht::<u64, u64>::options().capacity(asked as _).fixed_size();
        let table = options.hash_seed([seed, 3]).build().expect("memory");
        let capacity = table.capacity() as u64;
        assert!(capacity >= asked);
        let mut live: Vec<u64> = Vec::new();
        for key in 0..3000 {
            if live.len() as u64 == capacity || (rng.below(20) == 0 && !live.is_empty()) {
                let at = rng.below(live.len() as u64) as usize;
                assert!(table.remove(live.swap_remove(at)).is_some());
            }
            match Table::put(&table, key, key) {
                Ok(()) => live.push(key),
                Err(error) => panic!("{error}: {} of {capacity} records, seed {seed}", live.len()),
            }
        }
        // Beyond the capacity, the table may take a few more.
        for key in 3000..3000 + capacity + 1000 {
            match Table::put(&table, key, key) {
                Ok(()) => {}
                Err(Error::Full) => {
                    refused += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!((0..3000).filter(|&key| table.get(key).is_some()).count() == live.len());
    }
    assert_eq!(refused, 300);
}

#[test]
fn a_batch_counts_its_own_removals() {
    let table = Dlht::<u64, u64>::options().capacity(1000).fixed_size().build().expect("memory");
    let capacity = table.capacity() as u64;
    (0..capacity).for_each(|key| table.put(key, key));
    for round in 1..20 {
        let mut ops: Vec<Op<'_, u64, u64>> = Vec::new();
        for key in 0..capacity {
            ops.extend([
                Op::remove((round - 1) * capacity + key),
                Op::put(round * capacity + key, 0),
            ]);
        }
        let ran = Table::execute(&table, &mut ops, OnFailure::Stop).expect("room");
        assert_eq!((ran, table.len() as u64), (ops.len(), capacity));
    }
}
