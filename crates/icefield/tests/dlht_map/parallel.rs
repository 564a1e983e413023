//! The feature `rayon`: parallel iteration beside writers, and filling in parallel.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use icefield::DlhtMap;
use icefield_torture::Rng;
use rayon::prelude::*;

use crate::fewer;
use crate::spread::Spread;

/// Enough threads to divide an iteration into many parts.
fn with_threads<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().expect("threads");
    pool.install(work)
}

#[test]
fn maps_are_filled_and_read_in_parallel() {
    let len = fewer(50_000, 300) as u32;
    with_threads(|| {
        let map: DlhtMap<u32, String> =
            (0..len).into_par_iter().map(|n| (n, n.to_string())).collect();
        let space = map.namespace(1).expect("small");
        space.put(7, "seven".to_owned());
        let guard = map.pin();
        let mut records: Vec<_> =
            map.par_iter(&guard).map(|(key, value)| (*key, value.clone())).collect();
        records.par_sort_unstable();
        assert!(records.into_iter().eq((0..len).map(|n| (n, n.to_string()))));
        assert_eq!(space.par_iter(&guard).collect::<Vec<_>>(), [(&7, &"seven".to_owned())]);
        assert!(map.par_iter(&guard).any(|(_, value)| value == "17"));
        drop(guard);
        // Every namespace is moved out.
        let moved: BTreeMap<String, u32> = map.into_par_iter().map(|(k, v)| (v, k)).collect();
        assert_eq!(moved.len() as u32, len + 1);

        let right: BTreeMap<u32, u32> = (0..1000).map(|n| (n, n / 3)).collect();
        let mut words = DlhtMap::<u32, u32>::new();
        words.par_extend(&right);
        // Without a known length, and with few records a part.
        words.par_extend((0..1000_u32).into_par_iter().filter(|n| n % 100 == 0).map(|n| (n, 1)));
        assert_eq!(words.values(&words.pin()).filter(|&&value| value == 1).count(), 10 + 3);
        assert_eq!(DlhtMap::<u32, u32>::new().into_par_iter().count(), 0);
    });
}

/// Iterators that end early drop the records that they have not returned.
#[test]
fn a_parallel_owner_that_ends_early_leaks_nothing() {
    let allocator = crate::counting::Counting::default();
    let map = DlhtMap::with_capacity_and_hasher_in(0, Spread::any(2), allocator.clone());
    (0..fewer(5000, 200) as u32).for_each(|n| map.put(n, n.to_string()));
    let found = with_threads(|| map.into_par_iter().find_any(|(key, _)| key % 50 == 7));
    assert!(found.is_some_and(|(key, value)| value == key.to_string()));
    assert_eq!(allocator.held(), (0, 0));
}

/// Other keys come and go, and the map grows and shrinks. Every record that stays is returned exactly once.
#[test]
fn parallel_iteration_beside_writers_returns_what_stays() {
    let stays = fewer(2000, 60) as u64;
    for seed in 0..4 {
        let map = DlhtMap::with_capacity_and_hasher(0, Spread::any(seed));
        // A constant hash makes one list of all records.
        let keys = if seed % 4 == 1 { 40 } else { stays };
        (0..keys).for_each(|key| map.put(key, key.to_string()));
        let (begun, over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rng = Rng::new(seed);
                while !over.load(Ordering::Relaxed) {
                    let key = keys + rng.below(10 * keys);
                    if rng.one_in(2) {
                        map.delete(&key)
                    } else {
                        map.put(key, String::new())
                    }
                    if rng.one_in(20 * keys) {
                        map.retain(|key, _| *key < keys);
                        map.shrink_to_fit();
                    }
                    begun.fetch_add(1, Ordering::Relaxed);
                }
            });
            with_threads(|| {
                for _ in 0..fewer(6, 2) {
                    let guard = map.pin();
                    let stayed = map.par_iter(&guard).filter(|(key, _)| **key < keys);
                    let mut seen: Vec<u64> = stayed
                        .map(|(key, value)| if *value == key.to_string() { *key } else { u64::MAX })
                        .collect();
                    seen.sort_unstable();
                    assert!(seen.into_iter().eq(0..keys), "seed {seed}");
                    drop(guard);
                    let next = begun.load(Ordering::Relaxed) + fewer(2000, 20) as u64;
                    while begun.load(Ordering::Relaxed) < next {
                        std::thread::yield_now();
                    }
                }
            });
            over.store(true, Ordering::Relaxed);
        });
    }
}
