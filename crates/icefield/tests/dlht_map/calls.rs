//! Refused calls, user code inside calls, and futures.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use icefield::{Computed, Decision, DlhtBuildHasher, DlhtMap, DlhtMapOp, OnFailure};
use icefield_torture::Rng;

use crate::fewer;
use crate::spread::Spread;

/// Every key has hash 0, so all keys share one slot. No record may be confused with another or lost.
#[test]
fn maps_tell_keys_of_one_hash_apart() {
    let map = DlhtMap::with_hasher(Spread::Constant(DlhtBuildHasher::default()));
    let namespace = map.namespace(4095).expect("below 4096");
    let guard = map.pin();
    let mut right = HashMap::new();
    let mut rng = Rng::new(9);
    for _ in 0..fewer(5000, 300) {
        let (key, value) = (rng.below(40), rng.word());
        match rng.below(4) {
            0 => assert_eq!(map.remove(&key, &guard).copied(), right.remove(&key)),
            1 => assert_eq!(map.get(&key, &guard), right.get(&key)),
            2 => {
                let before = map.update(key, value, &guard).copied();
                assert_eq!(before, right.get(&key).copied());
                right.entry(key).and_modify(|present| *present = value);
            }
            _ => assert_eq!(map.insert(key, value, &guard).copied(), right.insert(key, value)),
        }
        if key == 7 {
            namespace.insert(key, 1, &guard);
        }
        assert_eq!(map.len(), right.len() + namespace.iter(&guard).count());
    }
    assert_eq!(namespace.get(&7, &guard), Some(&1));
    let mut records: Vec<_> = map.iter(&guard).map(|(&key, &value)| (key, value)).collect();
    let mut right: Vec<_> = right.into_iter().collect();
    records.sort_unstable();
    right.sort_unstable();
    assert_eq!(records, right);
    assert!(map.namespace(4096).is_err());
}

#[test]
fn maps_refuse_the_guard_of_another_map() {
    let (one, other) = (DlhtMap::<u32, u32>::new(), DlhtMap::<u32, u32>::new());
    let guard = other.pin();
    let refuses = |call: &dyn Fn() -> bool| assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    refuses(&|| one.get(&1, &guard).is_some());
    refuses(&|| one.insert(1, 1, &guard).is_some());
    refuses(&|| one.insert_batch([(1, 1)], &guard).is_empty());
    refuses(&|| {
        one.get_batch(&[&1], &mut [None], &guard);
        true
    });
    refuses(&|| {
        one.remove_batch(&[&1], &mut [None], &guard);
        true
    });
    refuses(&|| one.execute(&mut [DlhtMapOp::get(&1)], OnFailure::Stop, &guard) == 1);
    refuses(&|| one.compute(1, |_| Decision::Remove, &guard).before().is_some());
    refuses(&|| one.iter(&guard).next().is_some());
    assert!(one.is_empty());
}

#[test]
fn what_user_code_does_in_a_call_is_its_own_affair() {
    let (map, more) = (DlhtMap::<u32, String>::new(), fewer(1000, 100) as u32);
    let guard = map.pin();
    // A closure that panics leaves the map unchanged.
    map.insert(1, "one".to_owned(), &guard);
    let panics = |call: &dyn Fn() -> bool| assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    panics(&|| map.compute(1, |_| panic!("not now"), &guard).before().is_some());
    panics(&|| map.get_or_insert_with(2, || panic!("not now"), &guard).is_empty());
    panics(&|| {
        map.retain(|_, _| panic!("not now"));
        true
    });
    assert_eq!((map.len(), map.get(&1, &guard)), (1, Some(&"one".to_owned())));
    // A closure that changes the record is called again with the new value.
    let mut shown = Vec::new();
    let computed = map.compute(
        1,
        |value| {
            shown.push(value.cloned());
            if shown.len() == 1 {
                map.insert_batch((10..more).map(|key| (key, "more".to_owned())), &guard);
                map.insert(1, "uno".to_owned(), &guard);
            }
            Decision::Put("eins".to_owned())
        },
        &guard,
    );
    assert_eq!(computed, Computed::Put(Some(&"uno".to_owned())));
    assert_eq!(shown, [Some("one".to_owned()), Some("uno".to_owned())]);
    // A closure that creates a value may insert the key itself; this first insert then wins.
    let first = |key| {
        map.insert(key, "first".to_owned(), &guard);
        "second".to_owned()
    };
    assert_eq!(map.get_or_insert_with(5, || first(5), &guard), "first");
    assert_eq!(map.len(), more as usize - 10 + 2);
}

/// Reads a hundred keys. Each read is suspended once before any is finished.
#[test]
fn futures_yield_once_and_then_read() {
    let map = DlhtMap::<_, _>::from_iter((0..100_u32).map(|key| (key, key.to_string())));
    let (guard, space) = (map.pin(), map.namespace(7).expect("below 4096"));
    let mut context = Context::from_waker(Waker::noop());
    let keys: Vec<u32> = (50..150).collect();
    let mut reads: Vec<_> = keys.iter().map(|key| Box::pin(map.get_async(key, &guard))).collect();
    assert!(reads.iter_mut().all(|read| read.as_mut().poll(&mut context).is_pending()));
    // The reads see the changes made since their creation.
    map.insert(149, "late".to_owned(), &guard);
    for (key, mut read) in keys.iter().zip(reads) {
        assert_eq!(read.as_mut().poll(&mut context), Poll::Ready(map.get(key, &guard)));
    }
    let mut copy = pin!(space.get_cloned_async(&1));
    assert!(copy.as_mut().poll(&mut context).is_pending());
    space.insert(1, "in space".to_owned(), &guard);
    let found = Poll::Ready(Some("in space".to_owned()));
    // A future can continue on another thread.
    let moved = std::thread::scope(|scope| {
        let poll = move || copy.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        scope.spawn(poll).join().expect("no panic")
    });
    assert_eq!(moved, found);
}
