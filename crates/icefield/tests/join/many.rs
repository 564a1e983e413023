//! Keys with many pairs: the lines that probes and removals read.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use icefield::storage::sim::{Sim, SimOptions};
use icefield::{HashedJoinIndex, JoinIndex, JoinSource};

/// A source of the pairs with the numbers below the given one.
struct Numbered(fn(u64) -> (u64, u64), u64);

impl JoinSource for Numbered {
    fn read(
        &self,
        part: usize,
        parts: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> icefield::Result<()>,
    ) -> icefield::Result<()> {
        for number in (part as u64..self.1).step_by(parts) {
            let (key, payload) = self.0(number);
            show(&[key], &[payload])?;
        }
        Ok(())
    }
}

/// Returns a source of pairs that all have the key 7, with all payloads below the given number.
fn one_key(payloads: u64) -> Numbered {
    Numbered(|payload| (7, payload), payloads)
}

/// Returns the lines of the medium that `call` reads.
fn lines(sim: &Sim, call: impl FnOnce()) -> u64 {
    let read = || sim.counters().line_reads.iter().map(|(_, lines)| lines).sum::<u64>();
    let before = read();
    sim.begin_op();
    call();
    read() - before
}

#[test]
fn the_first_match_decides() {
    const PAIRS: u64 = 20_000;
    let sim = Sim::new(SimOptions { recording: false, counting: true, ..SimOptions::default() });
    let options = JoinIndex::<u64>::options().threads(1).hash_seed([1, 2]);
    let index = options.build_on(sim.clone(), &one_key(PAIRS)).unwrap();
    let all = lines(&sim, || assert_eq!(index.probe_count(&[7]).unwrap(), PAIRS));
    assert!(all > PAIRS / 5, "{all}");
    assert!(lines(&sim, || assert_eq!(index.semi(&[7]).unwrap().count_ones(), 1)) < 10);
    assert!(lines(&sim, || assert_eq!(index.anti(&[7]).unwrap().count_ones(), 0)) < 10);
    // `semi` also reads few lines if the key has changes in the delta store.
    let first = std::sync::Mutex::new(Vec::new());
    index.probe(&[7], |_, payload| first.lock().unwrap().push(payload)).unwrap();
    let [first, second, ..] = first.into_inner().unwrap()[..] else { panic!("there are more") };
    // The search for a pair stops when the pair is found.
    assert!(lines(&sim, || assert!(index.remove_pair(7, first).unwrap())) < 10);
    assert!(lines(&sim, || assert_eq!(index.semi(&[7]).unwrap().count_ones(), 1)) < 10);
    index.insert(7, PAIRS).unwrap();
    assert!(lines(&sim, || assert_eq!(index.semi(&[7]).unwrap().count_ones(), 1)) < 10);
    assert!(lines(&sim, || assert!(index.remove_pair(7, PAIRS).unwrap())) < 10);
    assert!(lines(&sim, || assert!(index.remove_pair(7, second).unwrap())) < 10);
    assert_eq!(index.probe_count(&[7]).unwrap(), PAIRS - 2);
    // The search for an absent pair reads all pairs of the key.
    assert!(lines(&sim, || assert!(!index.remove_pair(7, first).unwrap())) > PAIRS / 5);
    // When a removed key is inserted and removed again, its pairs in the base are not read again.
    assert_eq!(index.remove(7).unwrap(), PAIRS - 2);
    index.insert(7, 1).unwrap();
    assert!(lines(&sim, || assert_eq!(index.remove(7).unwrap(), 1)) < 10);
    assert_eq!(index.semi(&[7]).unwrap().count_ones(), 0);
    assert!(index.check().unwrap().is_clean());
}

/// Opening does not search the base for the removed pairs one by one.
#[test]
fn removed_pairs_are_replayed_together() {
    const PAIRS: u64 = 20_000;
    let sim = Sim::new(SimOptions { recording: false, counting: true, ..SimOptions::default() });
    let options = JoinIndex::<u64>::options().threads(1).hash_seed([1, 2]);
    let index = options.build_on(sim.clone(), &one_key(PAIRS)).unwrap();
    (0..500).for_each(|payload| assert!(index.remove_pair(7, payload).unwrap()));
    index.insert(8, 1).unwrap();
    (500..1000).for_each(|payload| assert!(index.remove_pair(7, payload).unwrap()));
    drop(index);
    let image = sim.image();
    let again = Sim::from_image(
        &image,
        SimOptions { recording: false, counting: true, ..SimOptions::default() },
    );
    let mut index = None;
    let read = lines(&again, || index = Some(options.open_on(again.clone()).unwrap()));
    assert!(read < 5000, "{read}");
    let index = index.unwrap();
    assert_eq!((index.len(), index.probe_count(&[7, 8]).unwrap()), (PAIRS - 999, PAIRS - 999));
    assert!(index.check().unwrap().is_clean());
}

/// Builds an index of `keys`, whose hashes are their lengths. `looks` counts the calls of the comparison.
#[allow(clippy::type_complexity, reason = "named once")]
fn hashed<'a>(
    path: &std::path::Path,
    keys: &'a [&str],
    looks: &'a AtomicU64,
) -> HashedJoinIndex<impl Fn(&[u8]) -> u64 + Sync, impl Fn(&[u8], u64) -> bool + Sync + 'a> {
    let rows: Vec<u64> = (0..keys.len() as u64).collect();
    let verify = move |key: &[u8], row: u64| {
        looks.fetch_add(1, Relaxed);
        keys.get(row as usize).is_some_and(|found| found.as_bytes() == key)
    };
    let options = JoinIndex::<u64>::options().threads(1);
    options.build_with_hash(path, keys, &rows, |key| key.len() as u64, verify).unwrap()
}

fn rows_of<H: Fn(&[u8]) -> u64 + Sync, V: Fn(&[u8], u64) -> bool + Sync>(
    index: &HashedJoinIndex<H, V>,
    key: &str,
) -> BTreeSet<u64> {
    let rows = std::sync::Mutex::new(BTreeSet::new());
    index
        .probe(&[key], |_, row| {
            rows.lock().unwrap().insert(row);
        })
        .unwrap();
    rows.into_inner().unwrap()
}

#[test]
fn the_first_row_of_a_hash_decides_and_a_key_goes_by_one_record() {
    const PAIRS: usize = 5000;
    let directory = tempfile::tempdir().unwrap();
    let (keys, looks) = (vec!["ann"; PAIRS], AtomicU64::new(0));
    let path = directory.path().join("i");
    let index = hashed(&path, &keys, &looks);
    assert_eq!(index.semi(&["ann"; 1000]).unwrap().count_ones(), 1000);
    assert_eq!(looks.swap(0, Relaxed), 1000);
    assert_eq!(index.semi(&["eve"]).unwrap().count_ones(), 0);
    assert_eq!(looks.swap(0, Relaxed), PAIRS as u64, "an equal hash");
    assert_eq!(index.semi_count(&["ann", "bo"]).unwrap().1, PAIRS as u64);
    // The search skips the pair that the delta store removes.
    assert!(index.remove_pair(b"ann", 0).unwrap());
    looks.store(0, Relaxed);
    assert_eq!(index.semi(&["ann"]).unwrap().count_ones(), 1);
    assert_eq!(looks.swap(0, Relaxed), 1);
    assert_eq!(index.remove(b"ann").unwrap(), PAIRS as u64 - 1);
    assert_eq!((index.len(), index.hashes().stats().unwrap().delta_changes), (0, 2));
    assert_eq!(index.remove(b"ann").unwrap(), 0);
    assert!(index.hashes().check().unwrap().is_clean());
}

#[test]
fn keys_with_equal_hashes_are_removed_apart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("i");
    let keys: Vec<&str> = (0..6000).map(|row| if row % 3 == 0 { "ann" } else { "bob" }).collect();
    let looks = AtomicU64::new(0);
    let index = hashed(&path, &keys, &looks);
    // Some of the pairs are in the delta store, one of them twice.
    assert!(index.remove_pair(b"ann", 3).unwrap());
    index.insert(b"ann", 3).unwrap();
    index.insert(b"ann", 6).unwrap();
    index.insert(b"bob", 1).unwrap();
    let bobs: BTreeSet<u64> = (0..6000).filter(|row| row % 3 != 0).collect();
    assert_eq!(index.remove(b"ann").unwrap(), 2001);
    assert_eq!(rows_of(&index, "ann"), BTreeSet::new());
    assert_eq!(rows_of(&index, "bob"), bobs);
    assert_eq!(index.len(), 4001);
    assert!(index.hashes().check().unwrap().is_clean());
    drop(index);
    let options = JoinIndex::<u64>::options();
    let verify = |key: &[u8], row: u64| keys[row as usize].as_bytes() == key;
    let index = options.open_with_hash(&path, |key| key.len() as u64, verify).unwrap();
    assert_eq!((index.len(), rows_of(&index, "bob")), (4001, bobs.clone()));
    index.merge().unwrap();
    assert_eq!((index.len(), rows_of(&index, "bob")), (4001, bobs));
    assert_eq!(index.remove(b"bob").unwrap(), 4001);
    assert!(index.is_empty() && index.hashes().check().unwrap().is_clean());
}

#[test]
fn pairs_are_found_in_parts() {
    const PAIRS: u64 = 3000;
    let keys: Vec<u64> = (0..100_000).map(|at| if at % 10_000 == 0 { 7 } else { at + 8 }).collect();
    for threads in [1, 4] {
        let options = JoinIndex::<u64>::options().threads(threads);
        let index = options.build_in_memory_from(&one_key(PAIRS)).unwrap();
        index.insert(8, 1).unwrap();
        let mut pairs = icefield::Pairs::default();
        // The key 8 is not among the keys, but in the delta store, which is therefore searched, too.
        index.probe_into(&keys, &mut pairs).unwrap();
        assert_eq!(pairs.len() as u64, 10 * PAIRS);
        let (mut done, mut parts) = (0, 0);
        let mut found = BTreeSet::new();
        while done < keys.len() {
            done += {
                let count = index.probe_some(&keys[done..], 1000, &mut pairs).unwrap();
                assert!(count > 0 && (pairs.len() <= 1000 || count == 1));
                let positions = pairs.positions().iter().map(|&at| done as u64 + at);
                found.extend(positions.zip(pairs.payloads().iter().copied()));
                count
            };
            parts += 1;
        }
        assert!(found.iter().all(|&(position, _)| position % 10_000 == 0));
        assert_eq!(found.len() as u64, 10 * PAIRS);
        assert!((20..400).contains(&parts), "{parts}");
    }
}

/// Removals share fences, and each key is removed once.
#[test]
fn keys_are_removed_in_batches() {
    const KEYS: u64 = 3000;
    let sim = Sim::new(SimOptions { recording: false, counting: true, ..SimOptions::default() });
    let options = JoinIndex::<u64>::options().threads(1).hash_seed([1, 2]).delta_limit(10_000);
    let index = options
        .build_on(sim.clone(), &Numbered(|number| (number / 2, number % 2), 2 * KEYS))
        .unwrap();
    index.insert(1, 7).unwrap();
    let keys: Vec<u64> = (0..KEYS).flat_map(|key| [key, key, KEYS + key]).collect();
    let before = sim.counters().fences;
    assert_eq!(index.remove_batch(&keys).unwrap(), 2 * KEYS + 1);
    let fences = sim.counters().fences - before;
    assert!(fences < KEYS / 100, "{fences} fences");
    assert_eq!((index.remove_batch(&keys).unwrap(), index.remove_batch(&[]).unwrap()), (0, 0));
    assert_eq!((index.len(), index.probe_count(&keys).unwrap()), (0, 0));
    index.insert(2, 8).unwrap();
    drop(index);

    let index = options.open_on(Sim::from_image(&sim.image(), SimOptions::default())).unwrap();
    assert_eq!((index.len(), index.probe_count(&keys).unwrap()), (1, 2));
    assert!(index.check().unwrap().is_clean());
    assert_eq!(index.merge().unwrap().pairs, 1);
}
