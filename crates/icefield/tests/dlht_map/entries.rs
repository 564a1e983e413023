//! Entries and conditional removals, against a reference map and by several threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use icefield::{Computed, Decision, DlhtMap};
use icefield_torture::Rng;

use crate::fewer;
use crate::spread::Spread;

#[test]
fn entries_agree_with_those_of_std() {
    for seed in 0..fewer(40, 4) as u64 {
        let map = DlhtMap::with_hasher(Spread::any(seed));
        let (mut right, mut rng) = (HashMap::<u64, u64>::new(), Rng::new(seed));
        for _ in 0..fewer(500, 60) {
            let (key, value, guard) = (rng.below(30), rng.below(100), map.pin());
            match rng.below(9) {
                0 => assert_eq!(
                    map.entry(key, &guard).or_insert(value),
                    right.entry(key).or_insert(value)
                ),
                1 => {
                    let put = map.entry(key, &guard).or_insert_with_key(|key| key + value);
                    assert_eq!(put, right.entry(key).or_insert_with_key(|key| key + value));
                }
                2 => {
                    let put = map.entry(key, &guard).and_modify(|it| *it += value).or_insert(1);
                    let wanted = right.entry(key).and_modify(|it| *it += value).or_insert(1);
                    assert_eq!(put, wanted);
                }
                3 => {
                    let modified =
                        map.entry(key, &guard).and_modify(|it| *it += value).modified().copied();
                    right.entry(key).and_modify(|it| *it += value);
                    assert_eq!(modified, right.get(&key).copied());
                }
                4 => assert_eq!(
                    map.entry(key, &guard).insert(value).copied(),
                    right.insert(key, value)
                ),
                5 => assert_eq!(map.entry(key, &guard).remove().copied(), right.remove(&key)),
                6 => {
                    let removed =
                        map.remove_if(&key, |_, it| it.is_multiple_of(2), &guard).copied();
                    let present = right.get(&key).copied().filter(|it| it.is_multiple_of(2));
                    assert_eq!(removed, present);
                    if present.is_some() {
                        right.remove(&key);
                    }
                }
                7 => assert_eq!(map.entry(key, &guard).or_default(), right.entry(key).or_default()),
                _ => {
                    let computed = map.entry(key, &guard).compute(|_| Decision::Keep);
                    assert_eq!(computed, Computed::Kept(right.get(&key)));
                    assert_eq!(map.entry(key, &guard).get(), right.get(&key));
                }
            }
            assert_eq!(map.len(), right.len());
        }
    }
}

/// `and_modify` with `or_insert` counts every call once, also when other threads remove the counters. Each removed
/// counter is added up by the thread that removed it.
#[test]
fn counters_of_entries_lose_no_addition() {
    let rounds = fewer(20_000, 60) as u64;
    for spread in 0..3 {
        let (map, removed) = (DlhtMap::with_hasher(Spread::any(spread)), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (map, removed) = (&map, &removed);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for _ in 0..rounds {
                        let (key, guard) = (rng.below(4), map.pin());
                        map.entry(key, &guard).and_modify(|count| *count += 1).or_insert(1_u64);
                        if rng.one_in(4) {
                            let taken =
                                map.remove_if(&key, |_, count| count.is_multiple_of(3), &guard);
                            assert!(taken.is_none_or(|count| count.is_multiple_of(3)));
                            removed.fetch_add(taken.copied().unwrap_or(0), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let left: u64 = map.values(&map.pin()).sum();
        let removed = removed.load(Ordering::Relaxed);
        println!("spread {spread}: {left} left, {removed} removed");
        assert_eq!(left + removed, 3 * rounds);
        assert!(removed > 0);
    }
}

/// A closure that lets another operation come in between is called again, for each of the two parts of an entry.
#[test]
fn closures_of_entries_are_called_again() {
    let map = DlhtMap::<u32, u32>::new();
    let guard = map.pin();
    // Absent at first; inserted while the value is made; removed while the copy is modified: one of the two at last.
    let (mut modified, mut made) = (0, 0);
    let value = map
        .entry(1, &guard)
        .and_modify(|value| {
            modified += 1;
            if modified == 1 {
                map.delete(&1);
            }
            *value += 1;
        })
        .or_insert_with(|| {
            made += 1;
            map.put(1, 10);
            100
        });
    assert_eq!((value, modified, made), (&100, 1, 1));
    assert_eq!(map.get(&1, &guard), Some(&100));
}
