//! A table has exclusive use of its medium: no other table changes the bytes that it lends.

use icefield::storage::sim::{Sim, SimOptions};
use icefield::{DashEh, Result};

use super::*;

fn looking() -> Sim {
    Sim::new(SimOptions { recording: false, ..SimOptions::default() })
}

fn detail<T>(result: Result<T>) -> String {
    match result {
        Err(Error::InvalidOption { detail, .. }) => detail,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("the medium was taken"),
    }
}

#[test]
fn a_medium_whose_regions_are_in_use_is_refused() {
    let directory = scratch();
    let path = directory.path().join("t.ice");
    drop(DashEh::<u64, u64>::create(&path).unwrap());
    let storage = Mapped::open(&path, process()).unwrap();
    let segments = storage.region("segments.ice", 1 << 30).unwrap();
    let refused = detail(DashEh::<u64, u64>::options().open_on(storage));
    assert!(refused.contains("segments.ice"), "{refused}");
    drop(segments);
    let storage = Mapped::open(&path, process()).unwrap();
    drop(storage.region("segments.ice", 1 << 30).unwrap());
    DashEh::<u64, u64>::options().open_on(storage).unwrap();

    let sim = looking();
    let region = sim.region(DATA, 4096).unwrap();
    let refused = detail(DashEh::<u64, u64>::options().create_on(sim.clone()));
    assert!(refused.contains(DATA), "{refused}");
    drop(region);
    DashEh::<u64, u64>::options().create_on(sim).unwrap();
}

#[test]
fn a_table_that_changes_in_place_is_not_read_beside_its_writer() {
    let directory = scratch();
    let path = directory.path().join("t.ice");
    let _writer = DashEh::<u64, u64>::create(&path).unwrap();
    let options = MappedOptions { beside_writer: true, ..process() };
    let storage = Mapped::open_read_only(&path, options).unwrap();
    detail(DashEh::<u64, u64>::options().open_on(storage));
}

#[test]
fn one_simulated_medium_has_one_table() {
    let sim = looking();
    let one = DashEh::<u64, u64>::options().create_on(sim.clone()).unwrap();
    detail(DashEh::<u64, u64>::options().open_on(sim.clone()));
    detail(sim.region("segments.ice", 1 << 20));
    detail(sim.discard_region("segments.ice"));
    one.put(1, 10).unwrap();
    drop(one);
    let again = DashEh::<u64, u64>::options().open_on(sim.clone()).unwrap();
    assert_eq!(again.get(1).unwrap(), Some(10));
    drop(again);
    assert!(!sim.region("segments.ice", 1 << 20).unwrap().is_empty());
}

/// A failed opening releases the medium.
#[test]
fn a_medium_that_holds_no_table_stays_free() {
    let sim = looking();
    assert!(matches!(
        DashEh::<u64, u64>::options().open_on(sim.clone()),
        Err(Error::NotFound { .. })
    ));
    DashEh::<u64, u64>::options().create_on(sim).unwrap();
}

#[test]
fn a_region_outlives_its_simulated_medium() {
    let region = {
        let sim = looking();
        let region = sim.region(DATA, 1 << 20).unwrap();
        sim.grow(&region, 1 << 20).unwrap();
        cell(&region, 4096).store(&sim, 7, Relaxed);
        region
    };
    let other = Mapped::anonymous(MappedOptions::default()).unwrap();
    assert_eq!(cell(&region, 4096).load(&other, Relaxed), 7);
}
