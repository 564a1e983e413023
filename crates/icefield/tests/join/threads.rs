//! The threads of probes live with their index.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use icefield::JoinIndex;
use icefield_torture::scratch::Scratch;

/// The environment variable with which the child process is started. The child has no other test's threads.
const CHILD: &str = "ICEFIELD_JOIN_THREADS";
/// Number of keys of the indexes; more than one task of a probe.
const KEYS: u64 = 50_000;

/// Returns the number of this process's threads that probe.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.trim_ascii_end() == b"icefield-probe").count()
}

/// Waits until this number of threads probe or wait for probes. A new thread takes its name when it first runs, and a
/// thread can be joined shortly before the system removes it.
fn wait_for(count: usize) {
    let started = Instant::now();
    while threads() != count {
        assert!(started.elapsed() < Duration::from_secs(60), "{} threads", threads());
        std::thread::yield_now();
    }
}

/// The entry of the child process. Without the variable it does nothing.
#[test]
fn threads_entry() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().join("index");
    let keys: Vec<u64> = (0..KEYS).collect();
    let options = JoinIndex::<u64>::options().threads(3);
    let built = options.build(&path, &keys, &keys).unwrap();
    let opened = options.open_read_only(&path).unwrap();
    for index in [built, opened] {
        assert_eq!(index.probe_count(&keys[..1000]).unwrap(), 1000);
        assert_eq!(threads(), 0, "a small batch needs no threads");
        assert_eq!(index.probe_count(&keys[..40_000]).unwrap(), 40_000);
        wait_for(1); // The batch has work for two threads.
        for _ in 0..10 {
            assert_eq!(index.semi(&keys).unwrap().count_ones(), KEYS);
        }
        wait_for(2);
        index.set_threads(1);
        assert_eq!(index.probe_count(&keys).unwrap(), KEYS);
        drop(index);
        wait_for(0);
    }
    let (hash, verify) = (|key: &[u8]| key.len() as u64, |_: &[u8], _| true);
    let path = scratch.path().join("hashed");
    let index = options.build_with_hash(&path, &["key"], &[7], hash, verify).unwrap();
    assert_eq!(index.probe_count(&vec!["key"; 50_000]).unwrap(), 50_000);
    wait_for(2);
    drop(index);
    wait_for(0);
    std::process::exit(0)
}

#[test]
fn threads_live_with_their_index() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "threads::threads_entry", "--nocapture", "--test-threads=1"]);
    assert!(command.env(CHILD, "1").status().unwrap().success());
}

/// Several threads probe one index at the same time, and their closures probe it, too.
#[test]
fn probes_share_the_threads() {
    let keys: Vec<u64> = (0..KEYS).collect();
    let index = JoinIndex::<u64>::options().threads(3).build_in_memory(&keys, &keys).unwrap();
    let (index, keys) = (&index, &keys);
    std::thread::scope(|scope| {
        for caller in 0..3 {
            scope.spawn(move || {
                for round in 0..10 {
                    let sum = AtomicU64::new(0);
                    let add = |position: usize, payload: u64| {
                        assert_eq!(position as u64, payload);
                        sum.fetch_add(payload, Ordering::Relaxed);
                        if payload % 20_000 == caller + round {
                            assert_eq!(index.probe_count(keys).unwrap(), KEYS);
                        }
                    };
                    index.probe(keys, add).unwrap();
                    assert_eq!(sum.into_inner(), KEYS * (KEYS - 1) / 2);
                }
            });
        }
    });
}

/// A panic in the caller's closure reaches the caller, and the index stays usable.
#[test]
fn a_panic_ends_its_probe_only() {
    let keys: Vec<u64> = (0..KEYS).collect();
    let index = JoinIndex::<u64>::options().threads(2).build_in_memory(&keys, &keys).unwrap();
    index.insert(KEYS, KEYS).unwrap();
    for wrong in [0, KEYS - 1] {
        let visit = |_, payload| {
            if payload == wrong {
                std::panic::panic_any(wrong);
            }
        };
        let probe = std::panic::AssertUnwindSafe(|| index.probe(&keys, visit));
        assert_eq!(std::panic::catch_unwind(probe).unwrap_err().downcast_ref(), Some(&wrong));
        assert_eq!(index.probe_count(&keys).unwrap(), KEYS);
    }
    index.merge().unwrap();
    assert_eq!(index.len(), KEYS + 1);
}
