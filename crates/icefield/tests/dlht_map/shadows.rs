//! Shadow inserts: random sequences against a reference map, and threads that commit and abort while the map changes.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use icefield::{Computed, Decision, DlhtBuildHasher, DlhtMap, DlhtMapShadow, Error, NotShadowed};
use icefield_torture::Rng;

use crate::counting::Counting;
use crate::fewer;

type Map = DlhtMap<u64, String, DlhtBuildHasher, Counting>;

/// A shadowed key is absent for every call that reads, and refused by every call that inserts.
fn check_hidden(map: &Map, key: u64) {
    let guard = map.pin();
    assert_eq!(map.get(&key, &guard), None);
    assert!(!map.contains(&key) && map.iter(&guard).all(|(other, _)| *other != key));
    assert_eq!(map.update(key, String::new(), &guard), None);
    assert_eq!(map.remove(&key, &guard), None);
    assert_eq!(
        map.compute(
            key,
            |value| {
                assert!(value.is_none());
                Decision::Remove
            },
            &guard
        ),
        Computed::Removed(None)
    );
    let refused = map.checked_insert(key, "refused".to_owned(), &guard).expect_err("shadowed");
    assert!(matches!(refused.error, Error::Shadowed) && refused.value == "refused");
    assert!(map.checked_try_insert(key, String::new(), &guard).is_err());
    assert!(map.checked_get_or_insert_with(key, String::new, &guard).is_err());
    let put = map.checked_compute(key, |_| Decision::Put(String::new()), &guard);
    assert!(matches!(put, Err(Error::Shadowed)));
    let again = map.try_insert_shadow(key, String::new(), &guard);
    assert_eq!(again.err(), Some(NotShadowed::Shadowed));
}

#[test]
fn shadow_inserts_agree_with_a_reference_map() {
    let mut ended = [0; 3];
    for seed in 0..fewer(60, 4) as u64 {
        let (allocator, mut rng) = (Counting::default(), Rng::new(seed));
        let options = DlhtMap::<u64, String>::options().geometry(0, 1);
        let map: Map = options.allocator(allocator.clone()).build().expect("small");
        let mut right = HashMap::new();
        let mut shadows: Vec<DlhtMapShadow<'_, u64, String, _, _>> = Vec::new();
        for step in 0..fewer(300, 40) {
            let (key, value, guard) = (rng.below(60), step.to_string(), map.pin());
            let held = shadows.iter().any(|shadow| *shadow.key() == key);
            match rng.below(10) {
                0..4 => match map.try_insert_shadow(key, value.clone(), &guard) {
                    Ok(shadow) => {
                        assert!(!held && !right.contains_key(&key));
                        assert_eq!((shadow.key(), shadow.value()), (&key, &value));
                        shadows.push(shadow);
                    }
                    Err(NotShadowed::Occupied(present)) => {
                        assert_eq!(right.get(&key), Some(present))
                    }
                    Err(NotShadowed::Shadowed) => assert!(held),
                },
                4..6 if !shadows.is_empty() => {
                    let shadow = shadows.swap_remove(rng.index(shadows.len()));
                    let (key, value) = (*shadow.key(), shadow.value().clone());
                    let end = rng.index(3);
                    ended[end] += 1;
                    match end {
                        0 => {
                            shadow.commit();
                            right.insert(key, value);
                        }
                        1 => shadow.abort(),
                        _ => drop(shadow),
                    }
                }
                6 if held => check_hidden(&map, key),
                6 => assert_eq!(
                    map.insert(key, value.clone(), &guard).cloned(),
                    right.insert(key, value)
                ),
                7 => assert_eq!(map.remove(&key, &guard).cloned(), right.remove(&key)),
                8 if rng.one_in(4) => {
                    map.clear();
                    right.clear();
                }
                8 if rng.one_in(3) => map.shrink_to_fit(),
                8 => map.reserve(rng.index(200)),
                _ => {
                    let seen: HashMap<u64, String> = map
                        .snapshot(&guard)
                        .iter()
                        .map(|(key, value)| (*key, value.clone()))
                        .collect();
                    assert_eq!(seen, right);
                    assert_eq!(map.clone().len(), right.len());
                }
            }
            assert_eq!(map.len(), right.len(), "seed {seed}");
        }
        shadows.into_iter().for_each(|shadow| check_hidden(&map, *shadow.key()));
        let guard = map.pin();
        assert!(right.iter().all(|(key, value)| map.get(key, &guard) == Some(value)));
        drop(guard);
        drop(map);
        assert_eq!(allocator.held(), (0, 0), "seed {seed}");
    }
    println!("committed, aborted, dropped: {ended:?}");
    assert!(cfg!(miri) || ended.iter().all(|&count| count > 50));
}

/// Threads reserve keys by shadow inserts. Of the threads that want a key, one has it until it commits or aborts.
/// Others grow, shrink and clear the map meanwhile, and no committed record is lost unless it is cleared or removed.
#[test]
fn one_thread_at_a_time_holds_a_key() {
    const KEYS: u64 = 8;
    let map = DlhtMap::<u64, u64>::options().geometry(0, 1).build().expect("small");
    let holders: Vec<AtomicBool> = (0..KEYS).map(|_| AtomicBool::new(false)).collect();
    let (done, counts) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 3]);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3_u64)
            .map(|thread| {
                let (map, holders, counts) = (&map, &holders, &counts);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for round in 0..fewer(20_000, 60) as u64 {
                        let (key, guard) = (rng.below(KEYS), map.pin());
                        match map.try_insert_shadow(key, round, &guard) {
                            Ok(shadow) => {
                                assert!(!holders[key as usize].swap(true, Ordering::AcqRel));
                                assert_eq!(map.get(&key, &guard), None);
                                assert!(holders[key as usize].swap(false, Ordering::AcqRel));
                                if rng.one_in(2) {
                                    shadow.commit();
                                }
                                counts[0].fetch_add(1, Ordering::Relaxed);
                            }
                            Err(NotShadowed::Occupied(_)) => {
                                map.remove(&key, &guard);
                                counts[1].fetch_add(1, Ordering::Relaxed);
                            }
                            Err(NotShadowed::Shadowed) => {
                                counts[2].fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                (1000..1200).for_each(|key| map.put(key, key));
                map.clear();
                map.shrink_to_fit();
            }
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        done.store(true, Ordering::Release);
    });
    println!("made, occupied, shadowed: {counts:?}");
    assert!(cfg!(miri) || counts[..2].iter().all(|count| count.load(Ordering::Relaxed) > 100));
    assert_eq!(map.len(), map.iter(&map.pin()).count());
}

#[test]
fn plain_inserts_of_shadowed_keys_panic_and_change_nothing() {
    let map = DlhtMap::<u64, u64>::new();
    let guard = map.pin();
    let shadow = map.try_insert_shadow(1, 10, &guard).expect("absent");
    let panics = |call: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    panics(&|| map.put(1, 11));
    panics(&|| assert!(map.insert_batch([(2, 20), (1, 11)], &guard).is_empty()));
    panics(&|| assert!(*map.entry(1, &guard).or_insert(11) == 0));
    assert_eq!((map.len(), map.get(&2, &guard)), (1, Some(&20)));
    // The holder may be another thread, and may hold the key longer than the guard.
    drop(guard);
    std::thread::scope(|scope| {
        scope.spawn(|| shadow.commit());
    });
    assert_eq!(map.get_cloned(&1), Some(10));
}
