//! Short scenarios with every kind of table, small enough for Miri.

use std::thread;

use super::{Dlht, DlhtLocal, DlhtMap, DlhtSet, DlhtSetLocal};
use crate::outcome::OnFailure;
use crate::table::Op;

const KEYS: u64 = 40;

#[test]
fn two_threads_grow_one_table() {
    let table = Dlht::<u64, u64>::options().geometry(0, 1).build().expect("small");
    thread::scope(|scope| {
        for first in [0, 1] {
            let table = &table;
            scope.spawn(move || {
                for key in (first..KEYS).step_by(2) {
                    assert_eq!(table.insert(key, key), None);
                    table.update(key, key + 1);
                    assert_eq!(table.get(key), Some(key + 1));
                }
            });
        }
        let table = &table;
        scope.spawn(move || {
            for _ in 0..3 {
                assert!(table.iter().all(|(key, value)| value == key || value == key + 1));
                assert!(table.snapshot().iter().count() as u64 <= KEYS);
            }
        });
    });
    assert_eq!(table.len() as u64, KEYS);
    let keys: Vec<u64> = (0..KEYS).collect();
    let mut found = vec![None; keys.len()];
    table.remove_batch(&keys, &mut found);
    assert!((0..KEYS).zip(found).all(|(key, found)| found == Some(key + 1)));
    table.clear();
}

#[test]
fn a_reader_lasts_while_the_table_grows() {
    let table = Dlht::<u64, u64>::options().geometry(0, 1).build().expect("small");
    table.put(0, 0);
    thread::scope(|scope| {
        let table = &table;
        scope.spawn(|| {
            let reader = table.reader();
            let mut last = 0;
            while last < KEYS - 1 {
                assert_eq!(reader.get(0), Some(0));
                last = (last..KEYS).take_while(|&key| reader.contains(key)).last().unwrap_or(last);
                thread::yield_now();
            }
        });
        (1..KEYS).for_each(|key| table.put(key, key));
    });
}

#[test]
fn a_local_table_grows_shrinks_and_clears() {
    let table = DlhtLocal::<u64, u64>::options().geometry(0, 1).build().expect("small");
    (0..KEYS).for_each(|key| table.put(key, key));
    (0..KEYS / 2).for_each(|key| table.delete(key));
    table.shrink_to_fit();
    let shadow = table.try_insert_shadow(0, 1).expect("absent");
    table.clear();
    shadow.commit();
    assert_eq!(table.iter().collect::<Vec<_>>(), [(0, 1)]);
}

#[test]
fn shadow_inserts_of_a_batch_end_as_their_holder_says() {
    let table = Dlht::<u64, u64>::options().geometry(0, 1).build().expect("small");
    for commits in [false, true] {
        let shadows = table.shadows();
        let mut ops: Vec<_> = (0..KEYS).map(|key| Op::shadow(key, key, &shadows)).collect();
        assert_eq!(table.execute(&mut ops, OnFailure::Stop), ops.len());
        assert_eq!((shadows.len() as u64, table.len()), (KEYS, 0));
        shadows.take(7).expect("held").abort();
        if commits {
            shadows.commit();
        }
    }
    assert_eq!((table.len() as u64, table.get(7), table.get(8)), (KEYS - 1, None, Some(8)));
}

#[test]
fn entries_and_drains_of_two_threads() {
    let table = Dlht::<u64, u64>::options().geometry(0, 1).build().expect("small");
    let drained: u64 = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for key in 0..KEYS {
                table.entry(key % 7).and_modify(|count| *count += 1).or_insert(1);
            }
        });
        let mut drained = 0;
        for key in 0..3 {
            drained += table.drain().map(|(_, count)| count).sum::<u64>();
            drained += table.remove_if(key, |count| *count > 1).unwrap_or(0);
        }
        writer.join().expect("no panic");
        drained
    });
    assert_eq!(drained + table.values().sum::<u64>(), KEYS);
    assert_eq!(table.clone().into_iter().count(), table.len());
}

#[test]
fn sets_of_one_thread_and_of_many() {
    let set = DlhtSetLocal::<u64>::options().geometry(0, 1).build().expect("small");
    let shadow = set.try_insert_shadow(KEYS).expect("absent");
    (0..KEYS).for_each(|key| assert!(set.insert(key)));
    let (drained, shared) = (set.drain(), DlhtSet::from([1, 2, KEYS]));
    shadow.commit();
    assert_eq!(set.intersection(&shared).collect::<Vec<_>>(), [KEYS]);
    assert_eq!(drained.count() as u64, KEYS);
    assert_eq!((set.len(), set.snapshot().iter().count(), set.into_iter().len()), (1, 1, 1));
}

#[test]
fn two_threads_replace_one_map_s_records() {
    let map = DlhtMap::<String, Vec<u64>>::new();
    thread::scope(|scope| {
        for thread in 0..2_u64 {
            let map = &map;
            scope.spawn(move || {
                for round in 0..KEYS {
                    let guard = map.pin();
                    let key = (round % 3).to_string();
                    map.insert(key.clone(), vec![thread, round], &guard);
                    if let Some(value) = map.get(key.as_str(), &guard) {
                        assert_eq!(value.len(), 2);
                    }
                    if round % 5 == 0 {
                        map.remove(key.as_str(), &guard);
                    }
                    if round == 20 {
                        map.clear();
                    }
                }
            });
        }
    });
    let guard = map.pin();
    assert_eq!(map.iter(&guard).count(), map.len());
}
