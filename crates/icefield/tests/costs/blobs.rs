//! Records by reference: an update writes the value, and the key only if it is new.

use icefield::storage::sim::{Sim, SimOptions};
use icefield::{Computed, Dash, DashOptions, Directory, Eh, Iceberg, Lh, Op, Table};

use crate::{Cost, cost, counted, counting};

/// The number of keys is so small that no chunk of the blob store is started during the measurement.
const KEYS: u64 = 64;

/// A key takes 16 lines and a value takes one, so that the count of written lines distinguishes them.
fn key(number: u64) -> String {
    format!("{number:01000}")
}

const VALUE: [u8; 40] = [7; 40];

/// Checks that `values` values were written and linked, with `fences` fences.
fn values(found: Cost, values: u64, fences: u64, what: &str) {
    assert_eq!((found.flushes, found.fences), (2 * values, fences), "{what}");
}

fn updates_write_values(sim: &Sim, table: &impl Table<Key = str, Value = [u8]>, fences: u64) {
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let records: Vec<(&str, &[u8])> = keys.iter().map(|key| (key.as_str(), &VALUE[..])).collect();
    for (key, value) in &records {
        let insert = cost(sim, || table.put(key, value));
        assert!(insert.flushes >= 18, "a key, a value and a slot: {insert:?}");
    }
    for round in 0..3 {
        for (key, value) in &records {
            let what = |call: &str| format!("{call} in round {round}");
            values(cost(sim, || table.put(key, value)), 1, fences, &what("put"));
            values(cost(sim, || table.insert(key, value)), 1, fences, &what("insert"));
            values(cost(sim, || table.update(key, value)), 1, fences, &what("update"));
            let computed = cost(sim, || {
                let put = table.compute(key, |_| icefield::Decision::Put(VALUE.to_vec()))?;
                assert!(matches!(put, Computed::Put(Some(_))));
                Ok(())
            });
            values(computed, 1, fences, &what("compute"));
            let occupied = cost(sim, || table.try_insert(key, value));
            assert_eq!((occupied.flushes, occupied.fences), (0, 0), "try_insert of present");
        }
    }
}

fn batches_write_values(
    sim: &Sim,
    table: &impl Table<Key = str, Value = [u8]>,
    [batched, mixed]: [u64; 2],
) {
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let records: Vec<(&str, &[u8])> = keys.iter().map(|key| (key.as_str(), &VALUE[..])).collect();
    for round in 0..3 {
        for window in records.chunks(32) {
            let what = |call: &str| format!("{call} of 32 in round {round}");
            values(cost(sim, || table.put_batch(window)), 32, batched, &what("put_batch"));
            let mut ops: Vec<Op<'_, str, [u8]>> =
                window.iter().map(|&(key, value)| Op::Put(key, value)).collect();
            let found = cost(sim, || table.execute(&mut ops, icefield::OnFailure::Continue));
            values(found, 32, mixed, &what("mixed batch"));
        }
    }
}

/// Checks the fences of a single update (`single`), and of 32 updates in a batch of updates and in a mixed batch
/// (`windows`).
fn costs(sim: &Sim, table: &impl Table<Key = str, Value = [u8]>, single: u64, windows: [u64; 2]) {
    updates_write_values(sim, table, single);
    batches_write_values(sim, table, windows);
}

fn dash<P: Directory>() {
    let sim = counting();
    let options = DashOptions::<str, [u8], P>::default().capacity(1_000).hash_seed([1, 2]);
    let table: Dash<str, [u8], P, Sim> = options.create_on(sim.clone()).expect("room");
    costs(&sim, &table, 2, [2, 2]);
}

#[test]
fn updates_of_a_dash_write_the_value_only() {
    dash::<Eh>();
    dash::<Lh>();
}

#[test]
fn updates_of_an_iceberg_write_the_value_only() {
    // If fences are free, the operations of a batch of updates do not share them.
    for (free_fences, batched) in [(false, 2), (true, 64)] {
        let sim = Sim::new(SimOptions { free_fences, ..counted() });
        let options = Iceberg::<str, [u8]>::options().capacity(1_000).hash_seed([1, 2]);
        let table = options.create_on(sim.clone()).expect("room");
        costs(&sim, &table, 2, [batched, 2]);
    }
}
