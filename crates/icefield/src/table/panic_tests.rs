//! Batches that end by a panic in a user's conversion of a key or value, while the table holds locks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine::Design;
use crate::engine::iceberg::Yards;
use crate::storage::sim::{Sim, SimOptions};
use crate::types::{Owned, RecordArg};
use crate::{DashEh, DashLh, DurableTable, Iceberg, Plush, Result, TableOptions, Value, Word};

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

/// Runs a batch that panics on a table with `records` records. Whatever it has written must be counted, and must be there
/// after a crash as well; afterwards, the table must be as good as any.
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

/// Runs a batch whose first result cannot be converted. The blobs of keys that were present already must not leak.
fn results_panic<D: Design>(options: impl Fn() -> TableOptions<str, Natural, D>) -> Result<()> {
    let table = options().create_on(Sim::new(SimOptions::default()))?;
    let keys: Vec<_> = (0..20).map(|key| format!("a key of some length {key}")).collect();
    let pairs: Vec<_> = keys.iter().map(|key| (key.as_str(), Natural(1313))).collect();
    table.put_batch(&pairs)?;
    let mut present = vec![Ok(()); pairs.len()];
    let run = AssertUnwindSafe(|| table.try_insert_batch(&pairs, &mut present));
    assert!(catch_unwind(run).is_err(), "{}: no number is 1313", D::TITLE);
    // `check` converts all values.
    table.put_batch(&keys.iter().map(|key| (key.as_str(), Natural(1))).collect::<Vec<_>>())?;
    let report = table.check()?;
    assert!(report.is_clean(), "{}: {:?}, {} leaked", D::TITLE, report.faults, report.leaked);
    Ok(())
}

fn panics_leave_whole_writes<D: Design>(
    words: impl Fn() -> TableOptions<Natural, Natural, D>,
    bytes: impl Fn() -> TableOptions<Natural, [u8], D>,
    keys: impl Fn() -> TableOptions<str, Natural, D>,
) -> Result<()> {
    results_panic(keys)?;
    for records in [0, 50, 120] {
        for last in [5, 20, 31, 40] {
            let pairs: Vec<_> =
                (0..last).map(|index| (Natural(index), Natural(last - 2 - index))).collect();
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
