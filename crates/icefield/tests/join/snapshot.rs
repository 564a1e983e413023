//! A probe sees one state of the delta store for all of its keys.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use icefield::{JoinIndex, MergeKind, Pairs, Word};
use icefield_torture::rng::Rng;
use icefield_torture::timed::within;

/// Number of keys of the indexes; several tasks of a probe.
const KEYS: u64 = 50_000;

fn pairs(index: &JoinIndex<u64>, keys: &[u64]) -> Vec<(u64, u64)> {
    let mut pairs = Pairs::default();
    index.probe_into(keys, &mut pairs).unwrap();
    let mut pairs: Vec<_> =
        pairs.positions().iter().copied().zip(pairs.payloads().iter().copied()).collect();
    pairs.sort_unstable();
    pairs
}

/// Makes changes in the first call of a probe's closure. The rest of the probe must not see them.
fn changes_stay_unseen(index: &JoinIndex<u64>, keys: &[u64], change: impl Fn() + Sync) {
    let before = pairs(index, keys);
    let seen = Mutex::new(Vec::new());
    let once = AtomicBool::new(false);
    index
        .probe(keys, |position, payload| {
            if !once.swap(true, Ordering::Relaxed) {
                change();
            }
            seen.lock().unwrap().push((position as u64, payload));
        })
        .unwrap();
    let mut seen = seen.into_inner().unwrap();
    seen.sort_unstable();
    assert!(seen == before, "{} pairs, then {}", before.len(), seen.len());
    assert!(pairs(index, keys) != before, "the changes had no effect");
}

#[test]
fn changes_during_a_probe_stay_unseen() {
    let keys: Vec<u64> = (0..KEYS).collect();
    for threads in [1, 2] {
        let options = JoinIndex::<u64>::options().threads(threads).delta_limit(1 << 20);
        let index = options.build_in_memory(&keys, &keys).unwrap();
        let last = KEYS - 1;
        // The delta store is empty when the first probe begins.
        changes_stay_unseen(&index, &keys, || {
            index.insert(last, 1).unwrap();
            assert_eq!(index.remove(last - 1).unwrap(), 1);
        });
        // Kills entries that the probe sees, and adds others to the same chains.
        changes_stay_unseen(&index, &keys, || {
            assert!(index.remove_pair(last, 1).unwrap());
            assert!(index.remove_pair(last, last).unwrap());
            index.insert(last, 2).unwrap();
            index.insert(last - 1, 3).unwrap();
            assert_eq!(index.remove(last - 1).unwrap(), 1);
            assert_eq!(index.remove(last).unwrap(), 1);
        });
        index.insert_batch(&[(last, 5), (last, 5), (last - 2, 6)]).unwrap();
        // Rebuilds the chains.
        changes_stay_unseen(&index, &keys, || {
            assert_eq!(index.remove(last).unwrap(), 2);
            let more: Vec<(u64, u64)> = keys.iter().map(|&key| (key, key + 1)).collect();
            index.insert_batch(&more).unwrap();
            assert!(index.remove_pair(last - 2, 6).unwrap());
        });
        // A probe keeps its generation.
        changes_stay_unseen(&index, &keys, || {
            assert_ne!(index.merge().unwrap().kind, MergeKind::Nothing);
            index.insert(last, 7).unwrap();
        });
        assert!(index.check().unwrap().is_clean());
    }
}

#[test]
fn a_set_of_insertions_is_seen_by_all_keys_or_none() {
    const SET: u64 = 1000;
    const SETS: u64 = 40;
    let keys: Vec<u64> = (0..KEYS).collect();
    let options = JoinIndex::<u64>::options().threads(2).delta_limit(SET * SETS);
    let index = options.build_in_memory(&keys, &keys).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for payload in 0..SETS {
                let set: Vec<(u64, u64)> =
                    (0..SET).map(|key| (key * (KEYS / SET), payload)).collect();
                index.insert_batch(&set).unwrap();
                std::thread::yield_now();
            }
            done.store(true, Ordering::Release);
        });
        let mut pairs = Pairs::default();
        let mut last = 0;
        while !done.load(Ordering::Acquire) {
            let (marked, semi) = index.semi_count(&keys).unwrap();
            index.probe_into(&keys, &mut pairs).unwrap();
            for found in [index.probe_count(&keys).unwrap(), semi, pairs.len() as u64] {
                assert_eq!((found - KEYS) % SET, 0, "{found}");
            }
            assert!(marked.count_ones() == KEYS && semi >= last);
            last = semi;
        }
    });
    assert_eq!(index.probe_count(&keys).unwrap(), KEYS + SET * SETS);
}

/// Random changes of few keys, so that chains are long, and pairs are hidden several times.
#[test]
fn changed_keys_have_the_pairs_of_a_model() {
    const FEW: u64 = 40;
    let mut rng = Rng::new(7);
    for bits in [0, 8] {
        let base: Vec<u64> = (0..600).map(|n| n % FEW).collect();
        let payloads: Vec<u64> = base.iter().map(|_| rng.below(3)).collect();
        let options =
            JoinIndex::<u64>::options().threads(1).filter_bits_per_key(bits).delta_limit(10_000);
        let index = options.build_in_memory(&base, &payloads).unwrap();
        let mut model = BTreeMap::<u64, Vec<u64>>::new();
        for (&key, &payload) in base.iter().zip(&payloads) {
            model.entry(key).or_default().push(payload);
        }
        let probes: Vec<u64> = (0..500).map(|n| n * 7 % (FEW + 5)).collect();
        for round in 0..30 {
            for _ in 0..100 {
                let (key, payload) = (rng.below(FEW), rng.below(3));
                let of_key = model.entry(key).or_default();
                match rng.below(40) {
                    0 => {
                        assert_eq!(index.remove(key).unwrap(), of_key.len() as u64);
                        of_key.clear();
                    }
                    1..16 => {
                        let at = of_key.iter().position(|&found| found == payload);
                        assert_eq!(index.remove_pair(key, payload).unwrap(), at.is_some());
                        at.map(|at| of_key.swap_remove(at));
                    }
                    _ => {
                        index.insert(key, payload).unwrap();
                        of_key.push(payload);
                    }
                }
            }
            let of = |key: u64| model.get(&key).map_or(&[][..], Vec::as_slice);
            let mut expected: Vec<(u64, u64)> = (0..)
                .zip(&probes)
                .flat_map(|(at, &key)| of(key).iter().map(move |&payload| (at, payload)))
                .collect();
            expected.sort_unstable();
            assert!(pairs(&index, &probes) == expected, "round {round}");
            let count = expected.len() as u64;
            assert_eq!(index.probe_count(&probes).unwrap(), count);
            let (marked, found) = index.semi_count(&probes).unwrap();
            let present = probes.iter().filter(|&&key| !of(key).is_empty()).count() as u64;
            assert_eq!((marked.count_ones(), found), (present, count));
            assert_eq!(index.semi(&probes).unwrap(), marked);
            if round % 10 == 9 {
                index.merge().unwrap();
            }
        }
        assert!(index.check().unwrap().is_clean());
    }
}

/// A key whose conversion changes an index.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Restless(u64);

static RESTLESS: OnceLock<JoinIndex<Restless>> = OnceLock::new();

impl Word for Restless {
    const TYPE: &'static str = "restless";

    fn to_word(self) -> u64 {
        if let (7, Some(index)) = (self.0, RESTLESS.get()) {
            index.insert(Self(8), 1).unwrap();
        }
        self.0
    }

    fn from_word(word: u64) -> Option<Self> {
        Some(Self(word))
    }
}

#[test]
fn conversions_of_keys_run_without_a_lock() {
    let index = JoinIndex::in_memory(&[Restless(7)], &[1]).unwrap();
    index.insert(Restless(7), 2).unwrap();
    assert!(RESTLESS.set(index).is_ok());
    let probe = || {
        let index = RESTLESS.get().unwrap();
        let seven = index.probe_count(&[Restless(7)]).unwrap();
        (seven, index.probe_count(&[Restless(8)]).unwrap() > 0)
    };
    assert_eq!(within(Duration::from_secs(60), probe), Ok((2, true)));
}
