//! Calls for which memory is missing: the forms that return errors do so and change nothing, and the plain forms panic.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use icefield::storage::{Errno, FaultMode, FaultPlan};
use icefield::{Dlht, DlhtHash, DlhtSet, Error};
use icefield_torture::faulty::fail_at;

const LEN: u64 = 200;

fn is_no_memory<T: Debug>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::NoMemory { .. }))
}

fn panics<T>(call: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_err()
}

/// Returns a plan under which a table can be created, but no further index.
fn no_more_memory() -> Arc<FaultPlan> {
    fail_at(3, FaultMode::ForGood, Errno::NOMEM)
}

#[test]
fn tables_without_memory_keep_their_records() {
    let faults = no_more_memory();
    let options = Dlht::<u64, u64>::options().capacity(10_000).hash(DlhtHash::Modulo);
    let table = options.faults(Arc::clone(&faults)).build().expect("small");
    (0..LEN).for_each(|key| table.put(key, !key));
    for _ in 0..2 {
        assert!(is_no_memory(table.try_reserve(100_000)));
        assert!(is_no_memory(table.try_shrink_to_fit()));
        assert!(is_no_memory(table.try_snapshot()));
        assert!(is_no_memory(table.try_clear()));
        assert!(is_no_memory(table.try_drain()));
        assert!(is_no_memory(table.try_clone()));
        assert!(panics(|| table.reserve(100_000)) && panics(|| table.shrink_to_fit()));
        assert!(panics(|| table.snapshot()) && panics(|| table.clear()));
        assert!(panics(|| table.drain()) && panics(|| table.clone()));
        assert!(table.try_reserve(100).is_ok(), "there is room");
        assert!(table.iter().all(|(key, value)| value == !key));
        assert_eq!((table.len() as u64, table.iter().count() as u64), (LEN, LEN));
    }
    faults.heal();
    let copy = table.try_clone().expect("memory");
    table.try_reserve(100_000).expect("memory");
    assert_eq!(table.try_drain().expect("memory").count() as u64, LEN);
    assert_eq!((table.len(), copy.len() as u64), (0, LEN));
}

#[test]
fn sets_without_memory_keep_their_keys() {
    let faults = no_more_memory();
    let options = DlhtSet::<u64>::options().capacity(10_000).faults(Arc::clone(&faults));
    let set = options.build().expect("small");
    (0..LEN).for_each(|key| assert!(set.insert(key)));
    assert!(is_no_memory(set.try_reserve(100_000)));
    assert!(is_no_memory(set.try_shrink_to_fit()));
    assert!(is_no_memory(set.try_snapshot()));
    assert!(is_no_memory(set.try_clear()));
    assert!(is_no_memory(set.try_drain()));
    assert!(is_no_memory(set.try_clone()));
    assert!(panics(|| set.reserve(100_000)) && panics(|| set.clear()) && panics(|| set.clone()));
    let refused = (LEN..).find(|&key| set.checked_insert(key).is_err()).expect("no memory");
    assert!(panics(|| set.insert(refused)) && panics(|| set.try_insert_shadow(refused)));
    assert!(is_no_memory(set.checked_insert_shadow(refused)));
    assert!(is_no_memory(set.checked_insert_batch(&[0, refused], &mut [false; 2])));
    assert_eq!(set.len() as u64, refused);
    faults.heal();
    assert!(set.checked_insert(refused).expect("memory"));
    assert_eq!(set.drain().count() as u64, refused + 1);
}

/// Changes of present keys need no room, so a full table does not refuse them; an insert by an entry panics, and leaves
/// the table as it was.
#[test]
fn entries_of_full_tables_panic_only_when_they_insert() {
    let table = Dlht::<u64, u64>::options().capacity(100).fixed_size().build().expect("small");
    let full = (0..).find(|&key| table.checked_insert(key, key).is_err()).expect("it is full");
    let len = table.len();
    assert!(matches!(table.checked_insert(full, 1), Err(Error::Full)));
    assert!(panics(|| table.entry(full).or_insert(1)));
    assert!(panics(|| table.entry(full).and_modify(|value| *value += 1).or_insert(1)));
    assert!(panics(|| table.get_or_insert_with(full, || 1)));
    table.entry(full).and_modify(|value| *value += 1);
    assert_eq!(table.entry(full).and_modify(|value| *value += 1).apply(), None);
    assert_eq!(table.entry(7).and_modify(|value| *value += 1).or_insert(1), 8);
    assert_eq!((table.entry(7).or_insert(1), table.remove_if(full, |_| true)), (8, None));
    assert_eq!((table.len(), table.get(full)), (len, None));
    let shadow = table.try_insert_shadow(7, 1);
    assert!(shadow.is_err(), "present");
}

/// A key that a shadow insert holds is absent, and cannot be inserted.
#[test]
fn entries_of_held_keys_insert_nothing() {
    let table = Dlht::<u64, u64>::new();
    let shadow = table.try_insert_shadow(1, 10).expect("absent");
    assert!(matches!(table.checked_insert(1, 1), Err(Error::Shadowed)));
    assert!(panics(|| table.entry(1).or_default()));
    assert!(panics(|| table.entry(1).and_modify(|value| *value += 1).or_insert(1)));
    assert_eq!(table.entry(1).and_modify(|value| *value += 1).apply(), None);
    assert_eq!(table.remove_if(1, |_| true), None);
    shadow.commit();
    assert_eq!(table.entry(1).or_default(), 10);
}

/// A closure that panics leaves the value as it was. An entry that is dropped by that panic does not run its closure.
#[test]
fn panics_of_closures_change_nothing() {
    let table = Dlht::<u64, u64>::from([(1, 10)]);
    assert!(panics(|| {
        table.entry(1).and_modify(|value| {
            *value += 1;
            panic!("in the closure");
        });
    }));
    assert!(panics(|| table.entry(2).or_insert_with(|| panic!("in the closure"))));
    assert!(panics(|| {
        let _entry = table.entry(1).and_modify(|value| *value += 1);
        panic!("before the entry is used");
    }));
    assert!(panics(|| table.remove_if(1, |_| panic!("in the closure"))));
    assert_eq!(table, Dlht::from([(1, 10)]));
}
