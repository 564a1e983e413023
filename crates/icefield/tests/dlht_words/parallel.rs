//! The feature `rayon`: parallel iteration beside writers, and filling in parallel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use icefield::base::hash::HashKind;
use icefield::{Dlht, DlhtHash, DlhtSet};
use icefield_torture::Rng;
use rayon::prelude::*;

use super::Ending;

/// Enough threads to divide an iteration into many parts.
fn with_threads<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(8).build().expect("threads");
    pool.install(work)
}

#[test]
fn parallel_iteration_returns_each_record_once() {
    with_threads(|| {
        for (hash, len) in [(DlhtHash::Strong, 100_000_u64), (DlhtHash::Modulo, 20_000)] {
            let options = Dlht::<u64, u64>::options().hash(hash).geometry(0, 1);
            let table = options.build().expect("small");
            (0..len).for_each(|key| table.put(key, !key));
            let threads = Mutex::new(BTreeSet::new());
            let mut records: Vec<(u64, u64)> = table
                .par_iter()
                .inspect(|_| {
                    threads.lock().expect("no panic").insert(rayon::current_thread_index());
                })
                .collect();
            records.par_sort_unstable();
            assert!(records.into_iter().eq((0..len).map(|key| (key, !key))));
            println!("{} threads took part", threads.into_inner().expect("no panic").len());
            assert!(table.par_iter().any(|(key, _)| key == 7));
            assert!(table.par_iter().find_any(|&(_, value)| value == 0).is_none());
            assert_eq!(table.into_par_iter().count() as u64, len);
        }
        assert_eq!(Dlht::<u64, u64>::new().par_iter().count(), 0);
    });
}

/// Other keys come and go, and the table grows, shrinks and changes its hash function. Every record that stays is
/// returned exactly once.
#[test]
fn parallel_iteration_beside_writers_returns_what_stays() {
    const STAYS: u64 = 4000;
    let (mut shapes, mut hashes) = (0, 0);
    for seed in 0..9_u64 {
        let hash = [DlhtHash::Strong, DlhtHash::Modulo, DlhtHash::Kind(HashKind::Crowded)];
        let options = Dlht::<u64, u64>::options().hash(hash[seed as usize % 3]);
        let table = options.geometry(seed as u32 % 2 * 12, 1).build().expect("small");
        (0..STAYS).for_each(|key| table.put(key, key));
        let before = table.stats();
        let (begun, over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rng = Rng::new(seed);
                while !over.load(Ordering::Relaxed) {
                    // Keys that share the low bits of their hash crowd under two of the functions.
                    let key = STAYS + (rng.below(40_000) << (rng.below(2) * 20));
                    if rng.one_in(3) {
                        table.delete(key)
                    } else {
                        table.put(key, 0)
                    }
                    if rng.one_in(20_000) {
                        table.retain(|key, _| key < STAYS);
                        table.shrink_to_fit();
                    }
                    begun.fetch_add(1, Ordering::Relaxed);
                }
            });
            let _ending = Ending(&over);
            with_threads(|| {
                for _ in 0..6 {
                    let mut keys: Vec<u64> =
                        table.par_iter().map(|(key, _)| key).filter(|&key| key < STAYS).collect();
                    keys.sort_unstable();
                    assert_eq!(keys.len() as u64, STAYS, "{seed}");
                    assert!(keys.into_iter().eq(0..STAYS), "{seed}");
                    let next = begun.load(Ordering::Relaxed) + 5000;
                    while begun.load(Ordering::Relaxed) < next {
                        std::thread::yield_now();
                    }
                }
            });
        });
        let after = table.stats();
        shapes += u64::from(after.capacity != before.capacity);
        let changed = |(name, count): &&(&str, u64)| *name == "hash-functions-before" && *count > 0;
        hashes += after.details.iter().filter(changed).count();
    }
    println!("{shapes} tables changed their size, {hashes} their hash function");
    assert!(shapes > 2 && hashes > 1, "{shapes} {hashes}");
}

#[test]
fn collections_are_filled_in_parallel() {
    with_threads(|| {
        let right: BTreeMap<u64, u64> = (0..50_000).map(|key| (key, key / 3)).collect();
        let table: Dlht<u64, u64> = (0..50_000_u64).into_par_iter().map(|n| (n, n / 3)).collect();
        assert_eq!(table.iter().collect::<BTreeMap<_, _>>(), right);
        let mut other = Dlht::<u64, u64>::new();
        other.par_extend(&right);
        assert!(other == table);
        // Without a known length, and with few records a part.
        other.par_extend((0..50_000_u64).into_par_iter().filter(|n| n % 100 == 0).map(|n| (n, 1)));
        assert_eq!(other.values().filter(|&value| value == 1).count(), 500 + 3);

        let set: DlhtSet<u64> = (0..50_000_u64).into_par_iter().map(|n| n / 2).collect();
        assert_eq!(set.len(), 25_000);
        let mut copy = DlhtSet::new();
        copy.par_extend(&right.keys().copied().filter(|key| *key < 25_000).collect::<Vec<_>>());
        assert!(copy == set && set.par_iter().all(|key| copy.contains(key)));
        assert_eq!(set.into_par_iter().map(|key| key % 2).sum::<u64>(), 12_500);
    });
}
