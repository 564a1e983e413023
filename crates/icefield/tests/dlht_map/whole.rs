//! Maps as a whole: drop, `clear`, moving records out, copies, comparisons, and the conventions of std.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use icefield::{DlhtBuildHasher, DlhtMap};
use icefield_torture::Rng;

use crate::counting::Counting;
use crate::fewer;
use crate::spread::Spread;

/// A value that counts its drops, and panics in some of them.
struct Fragile(Arc<AtomicI64>, bool);

impl Drop for Fragile {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        assert!(!self.1, "this destructor panics");
    }
}

type FragileMap = DlhtMap<u64, Fragile, Spread, Counting>;

/// Returns a map with records in two namespaces, and the count of its live values.
fn fragile(seed: u64, allocator: &Counting, panicking: u64) -> (FragileMap, Arc<AtomicI64>) {
    let map = DlhtMap::with_capacity_and_hasher_in(0, Spread::any(seed), allocator.clone());
    let live = Arc::<AtomicI64>::default();
    let value = |key: u64| {
        live.fetch_add(1, Ordering::Relaxed);
        Fragile(live.clone(), panicking != 0 && key.is_multiple_of(panicking))
    };
    let other = map.namespace(7).expect("below 4096");
    (0..fewer(300, 40) as u64).for_each(|key| map.put(key, value(key)));
    (0..20).for_each(|key| other.put(key, value(key)));
    (map, live)
}

/// Destructors that panic leak no record and free none twice, and the panic continues.
#[test]
fn destructors_that_panic_leak_nothing() {
    for seed in 0..4 {
        for how in 0..4 {
            let allocator = Counting::default();
            let (mut map, live) = fragile(seed, &allocator, 3);
            let ended = catch_unwind(AssertUnwindSafe(|| match how {
                0 => drop(map),
                1 => {
                    map.clear();
                    drop(map);
                }
                2 => drop(map.into_iter()),
                _ => drop(map.drain()),
            }));
            assert!(ended.is_err(), "a destructor panicked: {seed} {how}");
            assert_eq!((live.load(Ordering::Relaxed), allocator.held()), (0, (0, 0)), "{how}");
        }
    }
}

/// Records that a guard protects are freed after a `clear`, by later calls, and not earlier.
#[test]
fn cleared_records_live_as_long_as_guards() {
    for seed in 0..4 {
        let allocator = Counting::default();
        let (map, live) = fragile(seed, &allocator, 0);
        let all = live.load(Ordering::Relaxed);
        let guard = map.pin();
        let seen: Vec<&Fragile> = map.values(&guard).collect();
        map.clear();
        assert_eq!((map.len(), map.iter(&guard).count()), (0, 0));
        assert_eq!(live.load(Ordering::Relaxed), all);
        assert!(seen.iter().all(|value| Arc::ptr_eq(&value.0, &live)));
        drop(guard);
        (0..100).for_each(|_| drop(map.pin()));
        assert_eq!((live.load(Ordering::Relaxed), allocator.held()), (0, (0, 0)));
        let more = Fragile(live.clone(), false);
        live.fetch_add(1, Ordering::Relaxed);
        map.put(1, more);
        assert_eq!(map.len(), 1);
        // Without a guard, nothing remains when `clear` returns.
        map.clear();
        assert_eq!((live.load(Ordering::Relaxed), allocator.held()), (0, (0, 0)));
    }
}

/// Random maps, with records in an unfinished transfer, are copied, compared and taken apart.
#[test]
fn maps_are_copied_compared_and_taken_apart() {
    let mut taken_early = 0;
    for seed in 0..fewer(60, 4) as u64 {
        let allocator = Counting::default();
        let mut rng = Rng::new(seed);
        let mut map = DlhtMap::<u64, String, _, _>::with_capacity_and_hasher_in(
            0,
            Spread::any(seed),
            allocator.clone(),
        );
        let other = map.namespace(9).expect("below 4096");
        let mut right = HashMap::new();
        for _ in 0..rng.below(fewer(900, 200) as u64) {
            let (key, value) = (rng.below(600), rng.word().to_string());
            if rng.one_in(4) {
                other.put(key, value.clone());
                right.insert((9, key), value);
            } else {
                map.put(key, value.clone());
                right.insert((0, key), value);
            }
        }
        let copy = map.clone();
        assert!(copy == map && copy.len() == right.len());
        let guard = copy.pin();
        let space = copy.namespace(9).expect("below 4096");
        for ((of, key), value) in &right {
            let found = if *of == 0 { copy.get(key, &guard) } else { space.get(key, &guard) };
            assert_eq!(found, Some(value));
        }
        if let Some((&key, _)) = copy.iter(&guard).next() {
            copy.insert(key, "changed".to_owned(), &guard);
            assert!(copy != map);
            copy.remove(&key, &guard);
            assert!(copy != map);
        }
        drop(guard);

        let mut expected: Vec<(u64, String)> =
            right.iter().map(|((_, key), value)| (*key, value.clone())).collect();
        expected.sort();
        let mut drain = map.drain();
        assert_eq!(drain.len(), expected.len());
        if rng.one_in(3) {
            // Ends early: the rest is dropped.
            let some = rng.index(expected.len() + 1);
            assert_eq!(drain.by_ref().take(some).count(), some);
            assert_eq!(drain.len(), expected.len() - some);
            drop(drain);
            taken_early += 1;
        } else {
            let mut drained: Vec<_> = drain.collect();
            drained.sort();
            assert_eq!(drained, expected);
        }
        assert_eq!((map.len(), map.iter(&map.pin()).count()), (0, 0));
        map.put(1, "new".to_owned());
        assert_eq!(map.len(), 1);
        drop(map);

        let mut left: Vec<_> = copy.clone().into_iter().collect();
        left.sort();
        assert_eq!(left.len(), copy.len());
        let mut owned = copy.into_iter();
        assert_eq!(owned.by_ref().take(3).count(), left.len().min(3));
        drop(owned);
        assert_eq!(allocator.held(), (0, 0), "seed {seed}");
    }
    assert!(taken_early > 0);
}

/// A drain that is forgotten leaves a map that works, and leaks a few records at most.
#[test]
fn a_forgotten_drain_leaves_a_map_that_works() {
    for taken in [0, 1, 10] {
        let mut map = DlhtMap::<u64, u64>::from_iter((0..100).map(|key| (key, key)));
        let mut drain = map.drain();
        assert_eq!(drain.by_ref().take(taken).count(), taken);
        std::mem::forget(drain);
        let guard = map.pin();
        assert_eq!(map.len(), map.iter(&guard).count());
        assert!(map.len() <= 100 - taken && map.len() + taken + 15 >= 100);
        assert!(map.iter(&guard).all(|(key, value)| key == value));
        (0..100).for_each(|key| map.put(key, key));
        assert_eq!(map.len(), 100);
    }
}

#[test]
fn maps_follow_the_conventions_of_std() {
    // Any hash function with a default.
    let map: DlhtMap<u32, u32, std::hash::RandomState> = [(1, 10), (2, 20)].into_iter().collect();
    assert_eq!(map.len(), 2_usize);
    assert!(DlhtMap::<u32, u32, std::hash::RandomState>::default().is_empty());
    let mut map = DlhtMap::from([(1, 10), (2, 20), (1, 11)]);
    map.extend(&HashMap::from([(3, 30)]));
    map.extend([(4, 40)]);
    (&map).extend([(5, 50)]);
    let guard = map.pin();
    let mut keys: Vec<_> = map.keys(&guard).copied().collect();
    keys.sort_unstable();
    assert_eq!(keys, [1, 2, 3, 4, 5]);
    assert_eq!(map.values(&guard).sum::<i32>(), 151);
    assert!(map.contains_key(&5) && !map.contains_key(&6));
    assert_eq!(map.get_key_value(&2, &guard), Some((&2, &20)));
    assert_eq!(map.remove_entry(&2, &guard), Some((&2, &20)));
    assert_eq!(map.remove_entry(&2, &guard), None);
    assert_eq!(format!("{:?}", DlhtMap::from([("one", 1)])), r#"{"one": 1}"#);
    // The iterators may be sent to other threads.
    std::thread::scope(|scope| {
        let records = map.iter(&guard);
        let count = scope.spawn(move || records.count()).join().expect("no panic");
        assert_eq!(count, 4);
    });
    let (one, other) = (DlhtMap::from([(1, 1)]), DlhtMap::from([(1, 2)]));
    assert!(one != other && one == one.clone());
}

/// Dropping a large map needs no memory for its records: the peak stays at the size of the map.
#[test]
#[cfg_attr(miri, ignore = "reads the process's memory from the system")]
fn dropping_and_clearing_a_map_needs_no_memory() {
    // The records come from an allocator that gives nothing more while the map is dropped.
    let allocator = Counting::default();
    let map = DlhtMap::<u64, u64, DlhtBuildHasher, _>::new_in(allocator.clone());
    (0..10_000).for_each(|key| map.put(key, key));
    let (asked, (_, blocks)) = (allocator.asked(), allocator.held());
    assert_eq!(blocks, 10_000);
    map.clear();
    assert_eq!((allocator.asked(), allocator.held()), (asked, (0, 0)));
    (0..10_000).for_each(|key| map.put(key, key));
    let asked = allocator.asked();
    drop(map);
    assert_eq!((allocator.asked(), allocator.held()), (asked, (0, 0)));
}
