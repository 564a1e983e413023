//! Batches that end by a panic in a user's conversion of a key or value.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine::Design;
use crate::engine::iceberg::Yards;
use crate::storage::sim::{Sim, SimOptions};
use crate::types::{Owned, RecordArg};
use crate::{
    DashEh, DashLh, DurableTable, Iceberg, OnFailure, Op, Plush, Result, TableOptions, Value, Word,
};

/// A word that cannot be converted if it is negative, nor back if it is 1313.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Natural(i64);

impl Word for Natural {
    const TYPE: &'static str = "natural";

    fn to_word(self) -> u64 {
        u64::try_from(self.0).expect("a natural number")
    }

    fn from_word(word: u64) -> Option<Self> {
        assert_ne!(word, 1313, "an unlucky number");
        i64::try_from(word).ok().map(Self)
    }
}

const KEYS: std::ops::Range<i64> = 0..200;

/// Returns the values of all keys of a table without faults.
fn all<V: Value + ?Sized, D: Design>(
    table: &DurableTable<Natural, V, D, Sim>,
) -> Result<Vec<Option<Owned<V>>>> {
    let report = table.check()?;
    assert!(report.is_clean(), "{}: {:?}", D::TITLE, report.faults);
    KEYS.map(|key| table.get(Natural(key))).collect()
}

/// Runs a batch that panics on a table with `records` records. Whatever it has written must be counted, and must be
/// there after a crash as well; afterwards, the table must be as good as any.
fn panic_in_a_batch<V: Value + ?Sized, D: Design>(
    options: &impl Fn() -> TableOptions<Natural, V, D>,
    records: i64,
    value: fn(i64) -> V::Arg<'static>,
    batch: impl FnOnce(&DurableTable<Natural, V, D, Sim>) -> Result<()>,
) -> Result<()>
where
    Owned<V>: PartialEq,
{
    let sim = Sim::new(SimOptions::default());
    let table = options().create_on(sim.clone())?;
    (0..records).try_for_each(|key| table.put(Natural(key), value(1)).map(drop))?;
    let run = AssertUnwindSafe(|| batch(&table));
    assert!(catch_unwind(run).is_err(), "{}: no number is negative", D::TITLE);
    let found = all(&table)?;
    assert_eq!(table.len()?, found.iter().flatten().count() as u64);
    let reopened = || Sim::from_image(&sim.image(), SimOptions::default());
    assert_eq!(all(&options().open_on(reopened())?)?, found, "{}", D::TITLE);
    KEYS.into_iter().try_for_each(|key| table.put(Natural(key), value(2)).map(drop))?;
    let complete = all(&options().open_on(reopened())?)?;
    assert!(complete.iter().all(|found| *found == complete[0]) && complete[0].is_some());
    Ok(())
}

/// Puts and removes keys of which one cannot be converted, at places that the batch meets in different states.
fn keys_panic<V: Value + ?Sized, D: Design>(
    options: impl Fn() -> TableOptions<Natural, V, D>,
    value: fn(i64) -> V::Arg<'static>,
) -> Result<()>
where
    Owned<V>: PartialEq,
{
    for records in [0, 50, 120] {
        for bad in [3, 31, 40, 64, 79] {
            let key = |index| Natural(if index == bad { -1 } else { index });
            let keys: Vec<_> = (0..80).map(key).collect();
            let pairs: Vec<RecordArg<'_, Natural, V>> =
                keys.iter().map(|&key| (key, value(3))).collect();
            panic_in_a_batch(&options, records, value, |table| table.put_batch(&pairs))?;
            panic_in_a_batch(&options, records, value, |table| {
                table.remove_batch(&keys, &mut vec![None; keys.len()])
            })?;
        }
    }
    Ok(())
}

/// A call on a table with keys by reference, and the pairs of the table.
type Call<'a, D> =
    &'a dyn Fn(&DurableTable<str, Natural, D, Sim>, &[(&str, Natural)]) -> Result<()>;

/// Returns new keys, as many as there are pairs.
fn renamed(pairs: &[(&str, Natural)]) -> Vec<String> {
    pairs.iter().map(|(key, _)| format!("{key}, another one")).collect()
}

/// Returns a pair for each key; one of the values cannot be converted.
fn with_a_bad_value(keys: &[String]) -> impl Iterator<Item = (&str, Natural)> {
    let value = |index| if index == 15 { Natural(-1) } else { Natural(1) };
    keys.iter().enumerate().map(move |(index, key)| (key.as_str(), value(index)))
}

/// Runs calls that panic after they have written blobs for keys: because the result of an earlier operation cannot be
/// converted, or the value of a later one. No blob may leak.
fn blobs_do_not_leak<D: Design>(options: impl Fn() -> TableOptions<str, Natural, D>) -> Result<()> {
    let try_insert: Call<'_, D> =
        &|table, pairs| table.try_insert_batch(pairs, &mut vec![Ok(()); pairs.len()]);
    // The second operation on a key closes the window, while its record is prepared.
    let try_insert_twice: Call<'_, D> = &|table, pairs| {
        let twice: Vec<_> = pairs.iter().flat_map(|&pair| [pair; 2]).collect();
        table.try_insert_batch(&twice, &mut vec![Ok(()); twice.len()])
    };
    let execute_twice: Call<'_, D> = &|table, pairs| {
        let op = |&(key, value): &(_, _)| Op::try_insert(key, value);
        let mut ops: Vec<_> = pairs.iter().flat_map(|pair| [op(pair), op(pair)]).collect();
        table.execute(&mut ops, OnFailure::Continue).map(drop)
    };
    let put_bad: Call<'_, D> = &|table, pairs| {
        let new = renamed(pairs);
        table.put_batch(&with_a_bad_value(&new).collect::<Vec<_>>())
    };
    let execute_bad: Call<'_, D> = &|table, pairs| {
        let new = renamed(pairs);
        let ops = with_a_bad_value(&new).map(|(key, value)| Op::put(key, value));
        table.execute(&mut ops.collect::<Vec<_>>(), OnFailure::Continue).map(drop)
    };
    let keys: Vec<_> = (0..20).map(|key| format!("a key of some length {key}")).collect();
    let with = |value| keys.iter().map(move |key| (key.as_str(), value)).collect::<Vec<_>>();
    let calls = [try_insert, try_insert_twice, execute_twice, put_bad, execute_bad];
    for (number, call) in calls.into_iter().enumerate() {
        let table = options().create_on(Sim::new(SimOptions::default()))?;
        table.put_batch(&with(Natural(1313)))?;
        let run = AssertUnwindSafe(|| call(&table, &with(Natural(1313))));
        assert!(catch_unwind(run).is_err(), "{} {number}: no panic", D::TITLE);
        // `check` converts all values.
        table.put_batch(&with(Natural(1)))?;
        let report = table.check()?;
        let leaked = report.leaked;
        assert!(report.is_clean(), "{} {number}: {:?}, {leaked} leaked", D::TITLE, report.faults);
    }
    Ok(())
}

fn panics_leave_whole_writes<D: Design>(
    words: impl Fn() -> TableOptions<Natural, Natural, D>,
    bytes: impl Fn() -> TableOptions<Natural, [u8], D>,
    keys: impl Fn() -> TableOptions<str, Natural, D>,
) -> Result<()> {
    blobs_do_not_leak(keys)?;
    for records in [0, 50, 120] {
        for count in [5, 20, 31, 40] {
            // Only the last value is negative.
            let pairs: Vec<_> =
                (0..count).map(|index| (Natural(index), Natural(count - 2 - index))).collect();
            panic_in_a_batch(&words, records, Natural, |table| table.put_batch(&pairs))?;
        }
    }
    keys_panic(words, Natural)?;
    keys_panic(bytes, |n| &[7; 100][..10 * n as usize])
}

#[test]
fn a_panic_in_a_batch_leaves_whole_writes_in_dash_eh() -> Result<()> {
    panics_leave_whole_writes(DashEh::options, DashEh::options, DashEh::options)
}

#[test]
fn a_panic_in_a_batch_leaves_whole_writes_in_dash_lh() -> Result<()> {
    panics_leave_whole_writes(DashLh::options, DashLh::options, DashLh::options)
}

#[test]
fn a_panic_in_a_batch_leaves_whole_writes_in_iceberg() -> Result<()> {
    // Small buckets, so that some records are in the back yard.
    let yards = Yards { front: 8, back: 2 };
    panics_leave_whole_writes(
        || Iceberg::options().yards(yards).capacity(150),
        || Iceberg::options().yards(yards).capacity(150),
        Iceberg::options,
    )
}

#[test]
fn a_panic_in_a_batch_leaves_whole_writes_in_plush() -> Result<()> {
    panics_leave_whole_writes(Plush::options, Plush::options, Plush::options)
}
