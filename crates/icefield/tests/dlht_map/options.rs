//! Options, refusals, pages and snapshots.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use icefield::{Cursor, DlhtMap, DlhtMapOp, Error, OnFailure, Refused};
use icefield_torture::Rng;

use crate::counting::Counting;
use crate::fewer;
use crate::spread::Spread;

/// A full map of a fixed size refuses new keys and returns their records. All other operations continue.
#[test]
fn a_full_map_refuses_new_keys_only() {
    let mut refusals = 0;
    for seed in 0..fewer(40, 4) as u64 {
        let (allocator, mut rng) = (Counting::default(), Rng::new(seed));
        let options = DlhtMap::<u64, String>::options().geometry(rng.below(4) as u32, 1);
        let options = options.hasher(Spread::any(seed)).allocator(allocator.clone());
        let fixed = rng.one_in(2);
        let map = match fixed {
            true => options.fixed_size().build().expect("small"),
            false => options.max_bytes(1 << 10).build().expect("small"),
        };
        let mut right = HashMap::new();
        for _ in 0..fewer(600, 60) {
            let (key, value, guard) = (rng.below(200), rng.word().to_string(), map.pin());
            let refused = match rng.below(5) {
                0 => map.checked_insert(key, value.clone(), &guard).map(drop).err(),
                1 => map.checked_put(key, value.clone()).err(),
                2 => {
                    let update = map.checked_update(key, value.clone(), &guard);
                    assert_eq!(update.expect("needs no room").cloned(), right.get(&key).cloned());
                    right.entry(key).and_modify(|it| *it = value);
                    continue;
                }
                3 => {
                    assert_eq!(map.remove(&key, &guard).cloned(), right.remove(&key));
                    continue;
                }
                _ => match map.checked_try_insert(key, value.clone(), &guard) {
                    Ok(outcome) => {
                        assert_eq!(outcome.is_err(), right.contains_key(&key));
                        right.entry(key).or_insert(value);
                        continue;
                    }
                    Err(refused) => Some(refused),
                },
            };
            match refused {
                None => drop(right.insert(key, value)),
                Some(Refused { error, key: back, value: value_back }) => {
                    assert!(matches!(error, Error::Full), "{error}");
                    assert_eq!((back, value_back), (key, value));
                    assert!(!right.contains_key(&key), "a present key needs no room");
                    refusals += 1;
                }
            }
            assert_eq!(map.len(), right.len());
        }
        let guard = map.pin();
        assert!(right.iter().all(|(key, value)| map.get(key, &guard) == Some(value)));
        // A copy of a full map holds the same records, and refuses in the same way.
        let copy = map.clone();
        assert!(copy == map);
        let grows = (1000..1200).all(|key| copy.checked_put(key, String::new()).is_ok());
        let equal_hashes = seed % 4 < 2;
        assert!(!grows || equal_hashes, "seed {seed}");
        drop(guard);
        drop((map, copy));
        assert_eq!(allocator.held(), (0, 0), "seed {seed}");
    }
    println!("{refusals} refusals");
    assert!(cfg!(miri) || refusals > 1000);
}

/// A mixed batch that is refused keeps the records that have not been put, and continues where it ended.
#[test]
fn a_refused_batch_goes_on_where_it_ended() {
    let map = DlhtMap::<u64, u64>::options().fixed_size().build().expect("small");
    let guard = map.pin();
    let mut ops: Vec<DlhtMapOp<'_, '_, u64, u64>> =
        (0..1000).map(|key| DlhtMapOp::insert(key, key)).collect();
    let refused = map.checked_execute(&mut ops, OnFailure::Continue, &guard);
    assert!(matches!(refused, Err(Error::Full)), "{refused:?}");
    let ran = ops.iter().take_while(|op| op.has_run()).count();
    assert!(ran > 100 && ops[ran..].iter().all(|op| !op.has_run()));
    assert_eq!(map.len(), ran);
    (0..ran as u64).for_each(|key| map.delete(&key));
    let _ = map.checked_execute(&mut ops, OnFailure::Continue, &guard);
    let further = ops.iter().filter(|op| op.has_run()).count();
    assert!(further > ran);
    assert_eq!(map.get(&(ran as u64), &guard), Some(&(ran as u64)));
    let left = ops.into_iter().filter_map(DlhtMapOp::into_record);
    assert!(left.eq((further as u64..1000).map(|key| (key, key))));
}

#[test]
fn options_that_cannot_be_are_refused() {
    let options = || DlhtMap::<u64, u64>::options();
    for ratio in [-1.0, 3.5, f64::NAN] {
        let refused = options().link_ratio(ratio).build();
        assert!(matches!(refused, Err(Error::InvalidOption { option: "link_ratio", .. })));
    }
    assert!(
        cfg!(miri) || matches!(options().capacity(1 << 60).build(), Err(Error::NoMemory { .. }))
    );
    assert!(options().capacity(5000).build().is_ok_and(|map| map.capacity() >= 5000));
    assert!(format!("{:?}", options().fixed_size()).contains("fixed_size: true"));
}

/// A thread writes ascending versions to all keys in turn, removes some, and others grow and shrink the map. Every
/// snapshot shows one moment: versions that differ by one at most, in the order of the keys.
#[test]
fn snapshots_show_one_moment() {
    const KEYS: u64 = 50;
    for spread in 0..3 {
        let (map, done) = (DlhtMap::with_hasher(Spread::any(spread)), AtomicBool::new(false));
        let (mut moments, written) = (0, AtomicU64::new(0));
        (0..KEYS).for_each(|key| map.put(key, 0));
        let snapshots = fewer(100, 5);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut version = 0_u64;
                while !done.load(Ordering::Acquire) {
                    version += 1;
                    written.store(version, Ordering::Release);
                    (0..KEYS).for_each(|key| map.put(key, version));
                    (0..30).for_each(|more| map.put(1000 + version % 7 * 30 + more, version));
                    (0..30).for_each(|more| map.delete(&(1000 + (version + 3) % 7 * 30 + more)));
                }
            });
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    map.reserve(500);
                    map.shrink_to_fit();
                }
            });
            let mut newest = 0;
            for _ in 0..snapshots {
                // Lets the writer begin another version, unless it is asleep for long.
                let yields = |_: &u32| written.load(Ordering::Acquire) <= newest;
                (0..1000).take_while(yields).for_each(|_| std::thread::yield_now());
                let guard = map.pin();
                let snapshot = map.snapshot(&guard);
                let mut stable: Vec<(u64, u64)> = snapshot
                    .iter()
                    .filter(|(key, _)| **key < KEYS)
                    .map(|(key, version)| (*key, *version))
                    .collect();
                stable.sort_unstable();
                assert!(stable.iter().map(|record| record.0).eq(0..KEYS));
                assert!(stable.is_sorted_by(|one, next| one.1 >= next.1), "{stable:?}");
                assert!(stable[0].1 - stable[stable.len() - 1].1 <= 1, "{stable:?}");
                moments += u64::from(stable[0].1 > newest);
                newest = stable[0].1;
                // It shows the same a second time, although the map has changed.
                map.put(5000, newest);
                assert_eq!(
                    snapshot.into_iter().filter(|(key, _)| **key < KEYS).count() as u64,
                    KEYS
                );
            }
            done.store(true, Ordering::Release);
        });
        println!("spread {spread}: {moments} different moments in {snapshots} snapshots");
        assert!(cfg!(miri) || moments > 5);
    }
}

/// Pages return each permanent key once while others grow and shrink the map, with a guard for each page.
#[test]
fn pages_return_what_stays_once() {
    let (stable, passes) = (200_u64, fewer(40, 3));
    let map = DlhtMap::with_hasher(Spread::any(3));
    let (other, done) = (map.namespace(5).expect("below 4096"), AtomicBool::new(false));
    (0..stable).for_each(|key| map.put(key, key + 7));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                (1000..1500).for_each(|key| map.put(key, key));
                (0..300).for_each(|key| other.put(key, 0));
                (1000..1500).for_each(|key| map.delete(&key));
                other.retain(|_, _| false);
                map.shrink_to_fit();
            }
        });
        for _ in 0..passes {
            let (mut seen, mut next) = (Vec::new(), Some(Cursor::START));
            while let Some(cursor) = next {
                let guard = map.pin();
                let page = map.scan(cursor, 20, &guard);
                seen.extend(page.records.iter().map(|&(key, value)| (*key, *value)));
                next = page.next;
            }
            seen.retain(|&(key, _)| key < stable);
            seen.sort_unstable();
            assert!(seen.into_iter().eq((0..stable).map(|key| (key, key + 7))));
        }
        done.store(true, Ordering::Release);
    });
}
