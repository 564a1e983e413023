//! Concurrent threads on a map.

use std::sync::atomic::{AtomicU64, Ordering};

use icefield::{Decision, DlhtBuildHasher, DlhtMap};
use icefield_torture::Rng;

use crate::counting::Counting;
use crate::fewer;
use crate::spread::Spread;

/// Every addition counts exactly once, whether by `compute`, by `compare_exchange` or by a first insert.
#[test]
fn counters_add_up() {
    const COUNTERS: u64 = 40;
    let rounds = fewer(30_000, 60) as u64;
    for spread in 0..3 {
        let map = DlhtMap::with_capacity_and_hasher(0, Spread::any(spread));
        let again = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (map, again) = (&map, &again);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for _ in 0..rounds {
                        add_one(map, &mut rng, again, COUNTERS);
                    }
                });
            }
        });
        let guard = map.pin();
        let sum: u64 = map.iter(&guard).map(|(_, value)| *value).sum();
        println!("spread {spread}: {sum} in {} counters, {again:?} times again", map.len());
        assert_eq!(sum, 3 * rounds);
    }
}

fn add_one(map: &DlhtMap<u64, u64, Spread>, rng: &mut Rng, again: &AtomicU64, counters: u64) {
    let (key, guard) = (rng.below(counters), map.pin());
    if rng.one_in(2) {
        let mut tries = 0;
        map.compute(
            key,
            |value| {
                tries += 1;
                Decision::Put(value.map_or(1, |value| value + 1))
            },
            &guard,
        );
        again.fetch_add(tries - 1, Ordering::Relaxed);
        return;
    }
    let mut value = *map.get_or_insert(key, 0, &guard);
    while let Err(present) = map.compare_exchange(key, &value, value + 1, &guard) {
        again.fetch_add(1, Ordering::Relaxed);
        value = *present.expect("nobody removes");
    }
}

/// Threads use disjoint keys, in batches, on a map that grows and shrinks. All records come from one counting
/// allocator and return to it.
#[test]
fn batches_find_what_they_left_while_the_map_grows() {
    let keys = fewer(20_000, 150) as u64;
    let allocator = Counting::default();
    let map = DlhtMap::<u64, String, _, _>::new_in(allocator.clone());
    let before = map.capacity();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let map = &map;
            scope.spawn(move || own_batches(map, thread, keys));
        }
        scope.spawn(|| (0..fewer(20, 3)).for_each(|_| map.shrink_to_fit()));
    });
    println!("{} records, capacity {before} to {}", map.len(), map.capacity());
    let left = 3 * (keys / 2) as usize;
    assert_eq!((map.len(), map.iter(&map.pin()).count()), (left, left));
    assert!(map.capacity() > before);
    map.shrink_to_fit();
    drop(map);
    assert_eq!(allocator.held(), (0, 0));
}

fn own_batches(map: &DlhtMap<u64, String, DlhtBuildHasher, Counting>, thread: u64, keys: u64) {
    let own = |n: u64| n * 3 + thread;
    let mut rng = Rng::new(thread);
    let mut done = 0;
    while done < keys {
        let guard = map.pin();
        let some: Vec<u64> = (done..keys.min(done + 1 + rng.below(200))).collect();
        let records = || some.iter().map(|&n| (own(n), n.to_string()));
        assert!(map.try_insert_batch(records(), &guard).iter().all(Result::is_ok));
        let seen = map.update_batch(records(), &guard);
        assert!(some.iter().zip(seen).all(|(n, value)| value == Some(&n.to_string())));
        done += some.len() as u64;
        let earlier: Vec<u64> = (0..300).map(|_| rng.below(done)).collect();
        let asked: Vec<u64> = earlier.iter().map(|&n| own(n)).collect();
        let asked: Vec<&u64> = asked.iter().collect();
        let mut found = vec![None; asked.len()];
        map.get_batch(&asked, &mut found, &guard);
        assert!(earlier.iter().zip(found).all(|(n, value)| value == Some(&n.to_string())));
    }
    let gone: Vec<u64> = (keys / 2..keys).map(own).collect();
    let asked: Vec<&u64> = gone.iter().collect();
    let mut removed = vec![None; asked.len()];
    let guard = map.pin();
    map.remove_batch(&asked, &mut removed, &guard);
    assert!((keys / 2..keys).zip(removed).all(|(n, value)| value == Some(&n.to_string())));
}

/// Passes over a map that other threads grow and shrink return each permanent key once, with its value.
#[test]
fn passes_see_what_stays_once() {
    let (stable, passes) = (200_u64, fewer(200, 4));
    let map = DlhtMap::<u64, u64, _>::with_capacity_and_hasher(0, Spread::any(1));
    (0..stable).for_each(|key| map.put(key, key + 7));
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 1..3_u64 {
            let (map, done) = (&map, &done);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                while done.load(Ordering::Acquire) == 0 {
                    let first = thread * 100_000;
                    (first..first + 500).for_each(|key| map.put(key, rng.word()));
                    (first..first + 500).for_each(|key| map.delete(&key));
                    map.shrink_to_fit();
                }
            });
        }
        for pass in 0..passes {
            let mut seen = Vec::new();
            let guard = map.pin();
            if pass % 2 == 0 {
                seen.extend(map.iter(&guard).map(|(key, value)| (*key, *value)));
            } else {
                map.for_each(|key, value| {
                    seen.push((*key, *value));
                    std::ops::ControlFlow::Continue(())
                });
            }
            seen.retain(|&(key, _)| key < stable);
            seen.sort_unstable();
            assert!(seen.into_iter().eq((0..stable).map(|key| (key, key + 7))));
        }
        done.store(1, Ordering::Release);
    });
}
