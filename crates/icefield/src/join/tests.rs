use std::collections::HashMap;

use super::*;
use crate::Error;
use crate::base::hash::HashKind;
use crate::storage::sim::{Sim, SimOptions};

/// Returns the pairs of an index, sorted.
fn pairs<M: Medium>(index: &JoinIndex<u64, M>) -> Vec<(u64, u64)> {
    let mut pairs = Vec::new();
    index.for_each(|key, payload| pairs.push((key, payload))).unwrap();
    pairs.sort_unstable();
    pairs
}

fn checked<M: Medium>(index: &JoinIndex<u64, M>) {
    let report = index.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.faults);
    assert_eq!(report.records, index.len());
}

#[test]
fn skewed_keys_make_wide_groups() {
    for hash in [HashKind::Strong, HashKind::Constant, HashKind::Crowded] {
        let keys: Vec<u64> =
            (0..3000_u64).map(|n| if n.is_multiple_of(3) { n } else { 5 }).collect();
        let payloads: Vec<u64> = (0..3000).collect();
        let options = JoinIndex::<u64>::options().hash(hash).hash_seed([1, 2]);
        let index = options.build_in_memory(&keys, &payloads).unwrap();
        checked(&index);
        assert!(index.stats().unwrap().wide_groups >= 1);
        let mut counts = HashMap::<u64, u64>::new();
        keys.iter().for_each(|key| *counts.entry(*key).or_default() += 1);
        for key in 0..3100 {
            let expected = counts.get(&key).copied().unwrap_or(0);
            assert_eq!(index.probe_count(&[key]).unwrap(), expected, "{key}");
        }
    }
}

/// Most keys are equal, so that their share has too many records to be settled by copying.
#[test]
fn a_share_that_keys_crowd_into_is_settled_in_its_place() {
    const HOT: u64 = 1_100_000;
    const OTHERS: u64 = 100_000;
    let keys: Vec<u64> =
        (0..HOT + OTHERS).map(|n| if n.is_multiple_of(12) { n / 12 + 1 } else { 0 }).collect();
    let index =
        JoinIndex::<u64>::options().hash_seed([1, 2]).build_in_memory(&keys, &keys).unwrap();
    checked(&index);
    assert_eq!(index.probe_count(&[0]).unwrap(), HOT);
    let others: Vec<u64> = (1..=OTHERS).collect();
    assert_eq!(index.probe_count(&others).unwrap(), OTHERS);
}

#[test]
fn merges_of_both_kinds_keep_every_pair() {
    for (count, changes, kind) in
        [(40_000_u64, 900_u64, MergeKind::PerBucket), (100, 900, MergeKind::Rebuild)]
    {
        let sim = Sim::new(SimOptions { recording: false, ..SimOptions::default() });
        let keys: Vec<u64> = (0..count).collect();
        let source = source::Slices { keys: &keys, payloads: &keys };
        let index = JoinIndex::<u64>::options().threads(3).build_on(sim.clone(), &source).unwrap();
        let mut expected: Vec<(u64, u64)> = keys.iter().map(|&key| (key, key)).collect();
        for n in 0..changes {
            match n % 3 {
                0 => {
                    index.insert(n, n + 1).unwrap();
                    expected.push((n, n + 1));
                }
                1 => {
                    assert_eq!(index.remove(n).unwrap(), u64::from(n < count));
                    expected.retain(|&(key, _)| key != n);
                }
                _ => {
                    assert_eq!(index.remove_pair(n, n).unwrap(), n < count);
                    expected.retain(|&pair| pair != (n, n));
                }
            }
        }
        expected.sort_unstable();
        assert_eq!(pairs(&index), expected);
        checked(&index);
        let report = index.merge().unwrap();
        assert_eq!((report.kind, report.generation), (kind, 2));
        assert_eq!(pairs(&index), expected);
        checked(&index);
        drop(index);
        let image = sim.image();
        let again = Sim::from_image(&image, SimOptions::default());
        let index = JoinIndex::<u64>::options().open_on(again).unwrap();
        assert!(index.recovery().was_clean);
        assert_eq!(pairs(&index), expected);
    }
}

/// A source whose second reading differs from the first.
struct Fickle(std::sync::atomic::AtomicU64);

impl JoinSource for Fickle {
    fn read(
        &self,
        _: usize,
        _: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> crate::Result<()>,
    ) -> crate::Result<()> {
        let first = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let keys: Vec<u64> = (first..first + 100).collect();
        show(&keys, &keys)
    }
}

#[test]
fn a_fickle_source_is_an_error() {
    let fickle = Fickle(0.into());
    let built = JoinIndex::<u64>::options().threads(1).build_in_memory_from(&fickle);
    // Each reading has a hundred keys, all in one share. Only settling could detect that the keys differ, but it need
    // not do so: all keys of the second reading are in the file.
    if let Ok(index) = built {
        checked(&index);
        assert_eq!(index.len(), 100);
    }
    struct Growing(std::sync::atomic::AtomicU64);
    impl JoinSource for Growing {
        fn read(
            &self,
            _: usize,
            _: usize,
            show: &mut dyn FnMut(&[u64], &[u64]) -> crate::Result<()>,
        ) -> crate::Result<()> {
            let count = 100 + self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let keys: Vec<u64> = (0..count).collect();
            show(&keys, &keys)
        }
    }
    let built = JoinIndex::<u64>::options().threads(1).build_in_memory_from(&Growing(0.into()));
    assert!(matches!(built, Err(Error::Source { .. })));
}

#[test]
fn a_full_delta_store_merges_or_refuses() {
    let options = JoinIndex::<u64>::options().delta_limit(10);
    let index = options.build_in_memory(&[], &[]).unwrap();
    for n in 0..35 {
        index.insert(n, n).unwrap();
    }
    assert_eq!((index.len(), index.generation()), (35, 4));
    checked(&index);
    let index = options.on_full(OnFull::Refuse).build_in_memory(&[1], &[1]).unwrap();
    index.insert_batch(&[(2, 2); 10]).unwrap();
    assert!(matches!(index.insert(3, 3), Err(Error::DeltaFull)));
    assert_eq!(index.probe_count(&[1, 2, 3]).unwrap(), 11);
    index.merge().unwrap();
    index.insert(3, 3).unwrap();
}

#[test]
fn a_large_generation_is_let_go_of_before_anybody_needs_its_lock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large.ice");
    let keys: Vec<u64> = (0..1_000_000).collect();
    let options = JoinIndex::<u64>::options().threads(2);
    let index = options.build(&path, &keys, &keys).unwrap();
    for round in 0..3 {
        index.insert(round, 7).unwrap();
        assert_eq!(index.merge().unwrap().kind, MergeKind::PerBucket);
    }
    drop(index);
    let index = options.open(&path).unwrap();
    index.insert(3, 7).unwrap();
    checked(&index);
    assert_eq!(index.probe_count(&[0, 1, 2, 3, 4]).unwrap(), 9);
}
