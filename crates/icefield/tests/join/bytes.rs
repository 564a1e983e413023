//! Probes by byte keys use several threads.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeSet, HashSet};
use std::sync::{Condvar, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use icefield::{JoinIndex, Pairs};

/// Number of keys of the index; more than one task of a probe.
const KEYS: u64 = 40_000;

fn text(key: u64) -> String {
    format!("key {key}")
}

fn number(key: &[u8]) -> u64 {
    std::str::from_utf8(&key[4..]).unwrap().parse().unwrap()
}

/// The threads that have called [`meet`](Self::meet).
#[derive(Default)]
struct Meeting(Mutex<Option<HashSet<ThreadId>>>, Condvar);

impl Meeting {
    fn begin(&self) {
        *self.0.lock().unwrap() = Some(HashSet::new());
    }

    /// Waits until a second thread calls this function.
    fn meet(&self) {
        let mut threads = self.0.lock().unwrap();
        let Some(met) = &mut *threads else { return };
        met.insert(std::thread::current().id());
        self.1.notify_all();
        let alone = |threads: &mut Option<HashSet<_>>| {
            threads.as_ref().is_some_and(|threads| threads.len() < 2)
        };
        let (mut threads, waited) =
            self.1.wait_timeout_while(threads, Duration::from_secs(60), alone).unwrap();
        if waited.timed_out() {
            *threads = None;
        }
    }

    /// Returns whether two threads met.
    fn end(&self) -> bool {
        self.0.lock().unwrap().take().is_some_and(|threads| threads.len() == 2)
    }
}

#[test]
fn all_threads_hash_and_verify() {
    let directory = tempfile::tempdir().unwrap();
    let keys: Vec<String> = (0..KEYS).map(text).collect();
    let rows: Vec<u64> = (0..KEYS).collect();
    let (hashing, verifying) = (Meeting::default(), Meeting::default());
    // Pairs of keys have equal hashes.
    let hash = |key: &[u8]| match key {
        b"icefield" => 0,
        key => {
            hashing.meet();
            number(key) / 2
        }
    };
    let verify = |key: &[u8], row: u64| {
        verifying.meet();
        number(key) == row % KEYS
    };
    let options = JoinIndex::<u64>::options().threads(2);
    let index =
        options.build_with_hash(directory.path().join("i"), &keys, &rows, hash, verify).unwrap();
    // Key 3 has rows 3 and 3 + KEYS, and key 4 has none.
    index.insert(text(3).as_bytes(), 3 + KEYS).unwrap();
    assert_eq!(index.remove(text(4).as_bytes()).unwrap(), 1);
    let expected: BTreeSet<(u64, u64)> =
        (0..KEYS).filter(|&row| row != 4).map(|row| (row, row)).chain([(3, 3 + KEYS)]).collect();
    let probes: Vec<String> = (0..2 * KEYS).map(text).collect();

    hashing.begin();
    let mut pairs = Pairs::default();
    index.probe_into(&probes, &mut pairs).unwrap();
    assert!(hashing.end(), "one thread hashed all keys");
    let all = |pairs: &Pairs, first: u64| -> Vec<(u64, u64)> {
        let positions = pairs.positions().iter().map(|position| first + position);
        positions.zip(pairs.payloads().iter().copied()).collect()
    };
    assert_eq!(all(&pairs, 0).into_iter().collect::<BTreeSet<_>>(), expected);
    assert_eq!(pairs.len(), expected.len());

    verifying.begin();
    assert_eq!(index.probe_count(&probes).unwrap(), KEYS);
    assert!(verifying.end(), "one thread verified all pairs");
    let seen = Mutex::new(BTreeSet::new());
    index
        .probe(&probes, |position, row| {
            assert!(seen.lock().unwrap().insert((position as u64, row)))
        })
        .unwrap();
    assert_eq!(seen.into_inner().unwrap(), expected);
    let (found, count) = index.semi_count(&probes).unwrap();
    assert_eq!((&found, count), (&index.semi(&probes).unwrap(), KEYS));
    assert!(found.ones().eq((0..KEYS as usize).filter(|&at| at != 4)));
    assert_eq!(index.anti(&probes).unwrap().count_ones(), KEYS + 1);

    let (mut done, mut found) = (0, BTreeSet::new());
    while done < probes.len() {
        let count = index.probe_some(&probes[done..], 5000, &mut pairs).unwrap();
        assert!(count > 0 && pairs.len() <= 5000);
        found.extend(all(&pairs, done as u64));
        done += count;
    }
    assert_eq!(found, expected);
}
