//! The memory of records: allocations that are refused, counts of live records, one drop for each.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use icefield::{
    Decision, DlhtBuildHasher, DlhtGuard, DlhtMap, DlhtMapOp, Error, OnFailure, RecordAllocator,
};
use icefield_torture::Rng;

use crate::counting::Counting;
use crate::fewer;
use crate::spread::Spread;

type Map = DlhtMap<String, String, Spread, Counting>;

/// When the allocator refuses memory, the call returns or drops its record and leaves the map unchanged.
#[test]
fn a_map_whose_allocator_refuses_goes_on() {
    let (mut refused, mut panics) = (0, 0);
    for every in [1, 2, 3, 7, 50] {
        for seed in 0..fewer(4, 2) as u64 {
            let allocator = Counting::refusing(every);
            let map = Map::with_capacity_and_hasher_in(0, Spread::any(seed), allocator.clone());
            let (mut right, mut rng) = (HashMap::new(), Rng::new(seed));
            for step in 0..fewer(400, 40) as u64 {
                let (key, value) = (format!("key {}", rng.below(60)), format!("value {step}"));
                let guard = map.pin();
                let call = rng.below(4);
                if call == 0 {
                    match map.checked_insert(key.clone(), value.clone(), &guard) {
                        Ok(before) => assert_eq!(before.cloned(), right.insert(key, value)),
                        Err(back) => {
                            assert!(matches!(back.error, Error::NoMemory { .. }), "{back:?}");
                            assert_eq!((back.key, back.value), (key, value));
                            refused += 1;
                        }
                    }
                } else {
                    let done = catch_unwind(AssertUnwindSafe(|| match call {
                        1 => map.remove(key.as_str(), &guard).cloned(),
                        2 => map.insert(key.clone(), value.clone(), &guard).cloned(),
                        _ => map
                            .compute(key.clone(), |_| Decision::Put(value.clone()), &guard)
                            .before()
                            .cloned(),
                    }));
                    match done {
                        Ok(before) if call == 1 => assert_eq!(before, right.remove(&key)),
                        Ok(before) => assert_eq!(before, right.insert(key, value)),
                        Err(_) => panics += 1,
                    }
                }
                assert_eq!(map.len(), right.len());
            }
            let guard = map.pin();
            assert!(right.iter().all(|(key, value)| map.get(key, &guard) == Some(value)));
            assert_eq!(map.iter(&guard).count(), right.len());
            drop(guard);
            drop(map);
            assert_eq!(allocator.held(), (0, 0));
        }
    }
    println!("{refused} records refused, {panics} calls that panicked");
    assert!(refused > 20 && panics > 20);
}

/// A batch that runs out of memory has executed exactly the operations before the one that failed.
#[test]
fn a_batch_stops_where_memory_ends() {
    let allocator = Counting::refusing(8);
    let map = DlhtMap::<u64, u64, _, _>::new_in(allocator.clone());
    let guard = map.pin();
    let all = (0..100).map(|key| (key, key));
    let batch = catch_unwind(AssertUnwindSafe(|| map.insert_batch(all, &guard).len()));
    assert!(batch.is_err());
    assert_eq!(map.len(), 7);
    assert!((0..7).all(|key| map.get(&key, &guard) == Some(&key)));
    drop(guard);
    drop(map);
    assert_eq!(allocator.held(), (0, 0));
}

/// A mixed batch that runs out of memory stops in the same way. The failed one and those after it keep their records.
#[test]
fn a_mixed_batch_stops_where_memory_ends() {
    let allocator = Counting::refusing(8);
    let map = DlhtMap::<u64, u64, _, _>::new_in(allocator.clone());
    let guard = map.pin();
    let mut ops: Vec<DlhtMapOp<'_, '_, u64, u64>> =
        (0..100).map(|key| DlhtMapOp::insert(key, key)).collect();
    let mut execute = || map.execute(&mut ops, OnFailure::Continue, &guard);
    assert!(catch_unwind(AssertUnwindSafe(&mut execute)).is_err());
    assert_eq!(map.len(), 7);
    let left = ops.into_iter().filter_map(DlhtMapOp::into_record).map(|(key, _)| key);
    assert!(left.eq(7..100), "the eighth keeps its record too");
    drop(guard);
    drop(map);
    assert_eq!(allocator.held(), (0, 0));
}

/// Counts live values, and detects one that is dropped twice or read after its drop.
struct Counted(Arc<AtomicI64>, u64);

const ALIVE: u64 = 0x00A1_1CE0;

impl Counted {
    fn new(count: &Arc<AtomicI64>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone(), ALIVE)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert_eq!(self.1, ALIVE);
        self.1 = 0;
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn maps_free_every_record_once_and_none_that_is_looked_at() {
    let (count, allocator) = (Arc::<AtomicI64>::default(), Counting::default());
    free_every_record(&DlhtMap::<String, Counted>::new(), &count);
    assert_eq!(count.load(Ordering::Relaxed), 0);
    free_every_record(&DlhtMap::new_in(allocator.clone()), &count);
    assert_eq!((count.load(Ordering::Relaxed), allocator.held()), (0, (0, 0)));
}

/// Three threads insert, replace and remove the same keys by all calls, and read the returned values.
fn free_every_record<A: RecordAllocator>(
    map: &DlhtMap<String, Counted, DlhtBuildHasher, A>,
    count: &Arc<AtomicI64>,
) {
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for _ in 0..fewer(20_000, 100) {
                    let (key, guard) = (format!("key {}", rng.below(2000)), map.pin());
                    let seen = disturb(map, &mut rng, key, count, &guard);
                    assert!(seen.is_none_or(|value| value.1 == ALIVE));
                    if rng.one_in(5000) {
                        map.clear();
                    }
                }
            });
        }
    });
    let guard = map.pin();
    assert_eq!(map.len(), map.iter(&guard).count());
}

fn disturb<'g, A: RecordAllocator>(
    map: &DlhtMap<String, Counted, DlhtBuildHasher, A>,
    rng: &mut Rng,
    key: String,
    count: &Arc<AtomicI64>,
    guard: &'g DlhtGuard<'_>,
) -> Option<&'g Counted> {
    match rng.below(8) {
        0 => map.insert(key, Counted::new(count), guard),
        1 => map.remove(key.as_str(), guard),
        2 => map.try_insert(key, Counted::new(count), guard).err().map(|present| present.0),
        3 => map.compute(key, |_| Decision::Put(Counted::new(count)), guard).before(),
        4 => {
            let record = |n: usize| (format!("{}{n}", &key[..key.len() - 1]), Counted::new(count));
            map.insert_batch((0..10).map(record), guard).into_iter().flatten().next()
        }
        5 => {
            let keys: Vec<String> = (0..10).map(|_| format!("key {}", rng.below(2000))).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let mut removed = [None; 10];
            map.remove_batch(&keys, &mut removed, guard);
            removed.into_iter().flatten().next()
        }
        6 => {
            let keys = [key.clone(), format!("key {}", rng.below(2000))];
            let mut ops = [
                DlhtMapOp::remove(keys[0].as_str()),
                DlhtMapOp::try_insert(keys[1].clone(), Counted::new(count)),
                DlhtMapOp::get(keys[1].as_str()),
                DlhtMapOp::update(key, Counted::new(count)),
            ];
            map.execute(&mut ops, OnFailure::Stop, guard);
            ops.iter().find_map(DlhtMapOp::value)
        }
        _ => map.get(key.as_str(), guard),
    }
}
