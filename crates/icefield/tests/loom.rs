//! Loom models of the small protocols, which explore interleavings and the stale reads that the memory model allows.
//! Empty unless the crate is compiled for loom:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p icefield --test loom --features sim --release
//! ```
//!
//! Models of two threads in this file and in `gate` are explored completely, all others with at most 1 to 5 preemptions
//! (`LOOM_MAX_PREEMPTIONS` sets another bound for all models). Loom looks for a race only against the last access of an
//! atomic, so its findings depend on the order of the threads. Therefore every model runs in each order.
#![cfg(loom)]

#[path = "loom/dlht.rs"]
mod dlht;
#[path = "loom/gate.rs"]
mod gate;
#[path = "loom/iceberg.rs"]
mod iceberg;
#[path = "loom/link_pool.rs"]
mod link_pool;
#[path = "loom/reclaim.rs"]
mod reclaim;
#[path = "loom/thread_pool.rs"]
mod thread_pool;

use icefield::base::sync::{AtomicU32, AtomicU64, Ordering};
use icefield::base::version_lock::{lock, read_begin, try_lock, validate};
use loom::sync::Arc;
use loom::thread;

const KEY: u64 = 7;
const NO_KEY: u64 = 0;
const FREE: u64 = 0;
const USED: u64 = 1;

/// A lock and the two words that it protects.
struct Bucket {
    lock: AtomicU32,
    words: [AtomicU64; 2],
}

impl Bucket {
    fn new(words: [u64; 2]) -> Self {
        Self { lock: AtomicU32::new(0), words: words.map(AtomicU64::new) }
    }

    fn load(&self, index: usize) -> u64 {
        // Relaxed: validation must make this load safe.
        self.words[index].load(Ordering::Relaxed)
    }

    fn store(&self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::Relaxed);
    }

    /// Returns both words if they are consistent.
    fn read(&self) -> Option<[u64; 2]> {
        let version = read_begin(&self.lock);
        let words = [self.load(0), self.load(1)];
        validate(&self.lock, version).then_some(words)
    }
}

type Role = fn(&Bucket);

/// Lets `roles` race for a bucket that starts with `words`, then checks it with `afterwards`. The last role runs on the
/// main thread, each of the others on a separate thread. Every rotation of the roles is explored.
fn race<const ROLES: usize>(words: [u64; 2], mut roles: [Role; ROLES], afterwards: Role) {
    for _ in 0..ROLES {
        roles.rotate_left(1);
        let mut builder = loom::model::Builder::new();
        if ROLES > 2 {
            builder.preemption_bound = builder.preemption_bound.or(Some(3));
        }
        builder.check(move || {
            let bucket = Arc::new(Bucket::new(words));
            let [spawned @ .., last] = &roles[..] else { return };
            let threads: Vec<_> = spawned
                .iter()
                .map(|&role| {
                    let bucket = Arc::clone(&bucket);
                    thread::spawn(move || role(&bucket))
                })
                .collect();
            last(&bucket);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            afterwards(&bucket);
        });
    }
}

/// Changes both words, which must be equal before.
fn change_both(bucket: &Bucket) {
    let guard = lock(&bucket.lock);
    let value = bucket.load(0) + 1;
    guard.begin_change();
    bucket.store(0, value);
    bucket.store(1, value);
}

#[test]
fn a_reader_sees_all_of_a_change_or_none() {
    let reader = |bucket: &Bucket| {
        if let Some([a, b]) = bucket.read() {
            assert_eq!(a, b, "half a change");
        }
    };
    race([0, 0], [change_both, reader], |bucket| assert_eq!(bucket.read(), Some([1, 1])));
}

#[test]
fn a_version_brings_the_data_that_it_covers() {
    let reader = |bucket: &Bucket| {
        let before = read_begin(&bucket.lock);
        let value = bucket.load(0);
        if validate(&bucket.lock, before) && value == 0 && read_begin(&bucket.lock) != before {
            assert_eq!(bucket.load(0), 1, "a new version with old data");
        }
    };
    race([0, 0], [change_both, reader], |_| ());
}

#[test]
fn two_writers_lose_no_update() {
    race([0, 0], [change_both, change_both], |bucket| assert_eq!(bucket.read(), Some([2, 2])));
}

#[test]
fn trying_never_waits_and_never_shares() {
    /// Word 0 counts the attempts that got the lock, word 1 those that did not.
    fn try_to_count(bucket: &Bucket) {
        if let Some(guard) = try_lock(&bucket.lock) {
            let count = bucket.load(0);
            guard.begin_change();
            bucket.store(0, count + 1);
        } else {
            bucket.words[1].fetch_add(1, Ordering::Relaxed);
        }
    }
    race([0, 0], [try_to_count, try_to_count], |bucket| {
        assert!(bucket.load(0) > 0, "one of two that try gets it");
        assert_eq!(bucket.load(0) + bucket.load(1), 2);
    });
}

/// Moves the key from slot 0 to slot 1.
fn displace(bucket: &Bucket) {
    let guard = lock(&bucket.lock);
    guard.begin_change();
    bucket.store(1, KEY);
    bucket.store(0, NO_KEY);
}

/// Reads slot 1, then slot 0. In this order, a reader can miss a key that moves from slot 0 to slot 1.
fn finds_key(bucket: &Bucket) -> bool {
    bucket.load(1) == KEY || bucket.load(0) == KEY
}

#[test]
fn a_validated_miss_is_a_miss() {
    let reader = |bucket: &Bucket| {
        let version = read_begin(&bucket.lock);
        let found = finds_key(bucket);
        assert!(found || !validate(&bucket.lock, version), "the key was there all the time");
    };
    race([KEY, NO_KEY], [displace, reader], |bucket| assert!(finds_key(bucket)));
}

#[test]
#[should_panic(expected = "the key was there all the time")]
fn a_miss_that_is_not_validated_is_wrong() {
    let reader = |bucket: &Bucket| assert!(finds_key(bucket), "the key was there all the time");
    race([KEY, NO_KEY], [displace, reader], |_| ());
}

/// Word 0 is the state of the slot, word 1 its content. One writer frees the slot. The next writer fills the slot
/// before it begins a change, because no reader uses a free slot. A reader that still considered the slot used must
/// detect that the slot was freed (E3 in the lock's header; without that fence, this model fails).
#[test]
fn a_free_slot_may_be_filled_without_stopping_readers() {
    const OLD: u64 = 10;
    const NEW: u64 = 11;
    let remover = |bucket: &Bucket| {
        let guard = lock(&bucket.lock);
        guard.begin_change();
        bucket.store(0, FREE);
    };
    let inserter = |bucket: &Bucket| {
        let Some(_guard) = try_lock(&bucket.lock) else { return };
        if bucket.load(0) == FREE {
            bucket.store(1, NEW);
        }
    };
    let reader = |bucket: &Bucket| {
        if let Some([used, slot]) = bucket.read() {
            assert!(
                used == FREE || slot == OLD,
                "nobody has said that the slot holds anything else"
            );
        }
    };
    race([USED, OLD], [remover, inserter, reader], |bucket| assert_eq!(bucket.load(0), FREE));
}

/// A writer stores the record under the writer bit, then begins the change. A reader that started in between must see
/// none of the change or all of it.
#[test]
fn a_reader_may_start_under_the_writer_bit() {
    let writer = |bucket: &Bucket| {
        let guard = lock(&bucket.lock);
        bucket.store(1, KEY);
        guard.begin_change();
        bucket.store(0, USED);
    };
    let reader = |bucket: &Bucket| {
        if let Some([used, slot]) = bucket.read() {
            assert!(used == FREE || slot == KEY, "published before its record");
        }
    };
    race([FREE, NO_KEY], [writer, reader], |bucket| assert_eq!(bucket.read(), Some([USED, KEY])));
}
