//! Tests the simulator with known bugs of other systems: it must detect each planted bug and pass each corrected
//! table.

mod simulator {
    pub mod planted;
    pub mod shelf;
}

use icefield::storage::sim::{Model, SiteKind};
use icefield_torture::crash::mutate::{MutateOptions, run_machine_sites};
use icefield_torture::crash::{CrashOptions, run_machine};

use simulator::planted::*;
use simulator::shelf::{Shelf, Small};

#[track_caller]
fn passes<T: Small>(model: Model) {
    let options = CrashOptions { model, ..CrashOptions::default() };
    let report = run_machine::<Shelf<T>>(&options);
    if let Some(failure) = &report.first {
        panic!("{} on {model:?}: {failure}", T::NAME);
    }
    assert!(report.states >= 20_000 && report.histories > 5, "{report:?}");
}

#[track_caller]
fn fails<T: Small>(model: Model, word: &str) {
    fails_with::<T>(model, false, word);
}

/// With `threads`, the bug needs several threads, which on a busy machine seldom meet; otherwise a short history of one
/// thread must expose it.
#[track_caller]
fn fails_with<T: Small>(model: Model, threads: bool, word: &str) {
    let states = if threads { 600_000 } else { 60_000 };
    let options = CrashOptions { model, threads, states, enough: 1, ..CrashOptions::default() };
    let report = run_machine::<Shelf<T>>(&options);
    let Some(failure) = report.first else {
        panic!("{} on {model:?}: nothing was noticed in {} images", T::NAME, report.states)
    };
    assert!(failure.to_string().contains(word), "{failure}");
    assert!(failure.trace.len() <= 12, "{failure}");
}

#[test]
fn correct_tables_pass_on_both_models() {
    for model in [Model::Pmem, Model::Disk] {
        passes::<Bitmap<0>>(model);
        passes::<Mover<0>>(model);
        passes::<Doubling<0>>(model);
        passes::<Splitting<0>>(model);
        passes::<Locking<0>>(model);
        passes::<Filled<0>>(model);
        passes::<Eager<0>>(model);
        passes::<Allocating<0>>(model);
        passes::<Wide<0>>(model);
        passes::<Stashed<0>>(model);
    }
    passes::<Bitmap<REDUNDANT>>(Model::Pmem);
}

#[test]
fn pm1_validity_in_the_fence_window_of_the_data() {
    fails::<Bitmap<SHARED_FENCE>>(Model::Pmem, "key");
    fails::<Bitmap<SHARED_FENCE>>(Model::Disk, "key");
}

#[test]
fn pm2_a_move_that_leaves_both_copies() {
    fails::<Mover<1>>(Model::Pmem, "a pass sees");
}

#[test]
fn pm3_a_doubling_published_field_by_field() {
    fails::<Doubling<1>>(Model::Pmem, "event");
}

#[test]
fn pm4_depth_before_directory() {
    fails::<Splitting<1>>(Model::Pmem, "key");
}

#[test]
fn pm5_locks_that_survive() {
    fails::<Locking<DURABLE_LOCK>>(Model::Pmem, "hang");
    fails::<Locking<VOLATILE_LOCK>>(Model::Pmem, "hang");
}

#[test]
fn pm6_a_flush_of_the_wrong_range() {
    fails::<Bitmap<WRONG_RANGE>>(Model::Pmem, "key");
}

#[test]
fn pm7_missing_fences_and_creation() {
    fails::<Bitmap<NO_FENCE>>(Model::Pmem, "key");
    fails::<Bitmap<NO_LAST_FENCE>>(Model::Pmem, "key");
    fails::<Filled<1>>(Model::Pmem, "event");
}

#[test]
fn pm8_a_reader_ahead_of_the_medium() {
    // Either the detector, or a crash that reverts a returned value, can find the bug first.
    fails_with::<Eager<1>>(Model::Pmem, true, "threads");
}

#[test]
fn pm8_a_pass_ahead_of_the_medium() {
    fails_with::<Stashed<1>>(Model::Pmem, true, "a pass shows");
}

#[test]
fn pm9_blocks_that_nobody_owns() {
    fails::<Allocating<1>>(Model::Pmem, "taken, not linked");
}

#[test]
fn pm10_torn_and_swapped_stores() {
    fails::<Bitmap<TORN>>(Model::Pmem, "key");
    fails::<SameLine<true>>(Model::Pmem, "key");
}

#[test]
fn pm11_a_line_is_not_atomic_and_a_page_has_no_order() {
    fails::<Wide<1>>(Model::Pmem, "key");
    passes::<SameLine<false>>(Model::Pmem);
    fails::<SameLine<false>>(Model::Disk, "key");
}

#[test]
fn a_clear_by_halves() {
    fails::<Bitmap<HALF_CLEAR>>(Model::Pmem, "took effect in part");
}

#[test]
fn every_needed_site_is_noticed_and_the_needless_ones_are_named() {
    let options = MutateOptions {
        states: 4_000,
        survey_states: 4_000,
        histories: 100,
        ..MutateOptions::default()
    };
    let report = run_machine_sites::<Shelf<Bitmap<0>>>(&options);
    assert!(report.redundant.is_empty() && report.unordered.is_empty(), "{report:#?}");
    assert!(report.sites >= 6 && report.caught == report.sites, "{report:#?}");
    let report = run_machine_sites::<Shelf<Bitmap<REDUNDANT>>>(&options);
    let kinds: Vec<_> = report.redundant.iter().chain(&report.idle).map(|site| site.kind).collect();
    assert!(kinds.contains(&SiteKind::Flush) && kinds.contains(&SiteKind::Fence), "{report:#?}");
}
