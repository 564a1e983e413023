//! Drains, iterators and set algebra beside writers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use icefield::{Dlht, DlhtSet};
use icefield_torture::Rng;

use super::Ending;

const EACH: u64 = 30_000;
const THREADS: u64 = 2;

/// Each writer inserts ascending keys, so the keys that are present at one moment are the first ones of each writer: a
/// drain must return the keys that follow those of the previous drain, without a gap.
#[test]
fn a_drain_is_of_one_moment() {
    let table = Dlht::<u64, u64>::options().geometry(0, 1).build().expect("small");
    let next = |last: &mut [u64], records: Vec<(u64, u64)>| {
        let mut keys: Vec<u64> = records.into_iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        for key in keys {
            let (thread, number) = (key / EACH, key % EACH);
            assert_eq!(number, last[thread as usize], "the next key of writer {thread}");
            last[thread as usize] += 1;
        }
    };
    let mut last = [0; THREADS as usize];
    // Writers wait for drains now and then, so that they cannot end before the first drain.
    let (drains, mut with_records) = (&AtomicU64::new(0), 0);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|number| {
                let table = &table;
                scope.spawn(move || {
                    for key in number * EACH..(number + 1) * EACH {
                        if key % (EACH / 20) == 0 {
                            // The second drain from now begins after this.
                            let wanted = drains.load(Ordering::Relaxed) + 2;
                            while drains.load(Ordering::Relaxed) < wanted {
                                thread::yield_now();
                            }
                        }
                        match key % 3 {
                            0 => table.put(key, key),
                            1 => table.put_batch(&[(key, key)]),
                            _ => assert_eq!(table.entry(key).or_insert(key), key),
                        }
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            let records: Vec<_> = table.drain().collect();
            drains.fetch_add(1, Ordering::Relaxed);
            with_records += u64::from(!records.is_empty());
            next(&mut last, records);
        }
    });
    next(&mut last, table.drain().collect());
    assert_eq!((last, table.len()), ([EACH; THREADS as usize], 0));
    assert!(with_records >= 10, "{with_records} drains had records");
}

/// A drain keeps its records while the table changes and after it is gone.
#[test]
fn drained_records_stay_readable() {
    let table = Dlht::<u64, u64>::options().geometry(0, 1).build().expect("small");
    let held = table.try_insert_shadow(1 << 40, 1).expect("absent");
    (0..1000).for_each(|key| table.put(key, key));
    let mut first = table.drain();
    let some: Vec<_> = first.by_ref().take(10).collect();
    (0..1000).for_each(|key| table.put(key, key + 1));
    let second = table.drain();
    held.commit();
    assert_eq!(table.iter().collect::<Vec<_>>(), [(1 << 40, 1)], "shadow inserts stay");
    drop(table);
    assert_eq!(first.by_ref().count() + some.len(), 1000);
    assert_eq!(first.next(), None);
    let mut records: Vec<_> = second.collect();
    records.sort_unstable();
    assert!(records.into_iter().eq((0..1000).map(|key| (key, key + 1))));
}

#[test]
fn set_algebra_beside_writers_is_exact_for_keys_that_stay() {
    const STAYS: u64 = 2000;
    // The even keys below `STAYS` stay in `a`, and those that are multiples of three stay in `b`.
    let options = || DlhtSet::<u64>::options().geometry(0, 1);
    let (a, b) = (options().build().expect("small"), options().build().expect("small"));
    (0..STAYS).filter(|key| key % 2 == 0).for_each(|key| assert!(a.insert(key)));
    (0..STAYS).filter(|key| key % 3 == 0).for_each(|key| assert!(b.insert(key)));
    let (a, b, over) = (&a, &b, &AtomicBool::new(false));
    let mut rounds = 0;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut rng = Rng::new(1);
            while !over.load(Ordering::Relaxed) {
                let (set, key) = (if rng.one_in(2) { a } else { b }, STAYS + rng.below(50_000));
                if rng.one_in(3) {
                    set.remove(key)
                } else {
                    set.insert(key)
                };
                if rng.one_in(5000) {
                    set.retain(|key| key < STAYS);
                    set.shrink_to_fit();
                }
            }
        });
        let _ending = Ending(over);
        let staying = |keys: &mut dyn Iterator<Item = u64>| {
            let mut keys: Vec<u64> = keys.filter(|&key| key < STAYS).collect();
            keys.sort_unstable();
            keys
        };
        let right = |wanted: fn(bool, bool) -> bool| -> Vec<u64> {
            (0..STAYS).filter(|key| wanted(key % 2 == 0, key % 3 == 0)).collect()
        };
        for _ in 0..20 {
            assert_eq!(staying(&mut a.union(b)), right(|a, b| a | b));
            assert_eq!(staying(&mut a.intersection(b)), right(|a, b| a & b));
            assert_eq!(staying(&mut a.difference(b)), right(|a, b| a & !b));
            assert_eq!(staying(&mut a.symmetric_difference(b)), right(|a, b| a ^ b));
            assert_eq!(staying(&mut a.snapshot().iter()), right(|a, _| a));
            assert_eq!(staying(&mut a.clone().into_iter()), right(|a, _| a));
            assert!(!a.is_disjoint(b) && !a.is_subset(b));
            rounds += 1;
        }
    });
    assert_eq!(rounds, 20);
}
