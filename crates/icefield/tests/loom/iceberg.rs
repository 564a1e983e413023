//! IcebergHT's rule for reads without a lock: every result of a read is durable, a value as well as an absence. The
//! line of fingerprints is the real one; the slot and the medium are models.

use icefield::FrontLine;
use icefield::base::sync::{AtomicU64, Lines, Ordering, yield_now};
use loom::sync::Arc;
use loom::thread;

/// The fingerprint of the one key.
const FINGERPRINT: u8 = 0x41;

/// The slot word of an absent key.
const ABSENT: u64 = 0;

/// A front bucket with one writer. With two writers, loom would order a failed attempt to take the lock after the other
/// writer's release of the lock, although the attempt has read the value that the release overwrites. The slot holds
/// the number of its last change, so a newer state is larger. The number is odd if the key is present. The slot is one
/// word, because a slot is loaded as a whole.
struct Bucket {
    lines: Lines,
    number: u32,
    slot: AtomicU64,
    /// The oldest state of the slot that a crash may leave.
    durable: AtomicU64,
}

fn is_present(change: u64) -> bool {
    change % 2 == 1
}

impl Bucket {
    /// Creates a bucket in the durable state `change`; the key's slot is number `number`.
    fn new(number: u32, change: u64) -> Self {
        let word = || AtomicU64::new(change);
        let bucket = Self { lines: Lines::new(1).unwrap(), number, slot: word(), durable: word() };
        if is_present(change) {
            bucket.line().publish(number, FINGERPRINT);
        }
        bucket
    }

    fn line(&self) -> FrontLine<'_> {
        FrontLine(&self.lines[0])
    }

    fn locked(&self) -> FrontLine<'_> {
        while !self.line().try_lock() {
            yield_now();
        }
        self.line()
    }

    /// Stores the slot, then makes it durable, as a fence would.
    fn persist(&self, change: u64) {
        // Release (E3).
        self.slot.store(change, Ordering::Release);
        self.durable.store(change, Ordering::Relaxed);
    }

    /// Inserts the key or replaces its value.
    fn put(&self) {
        let line = self.locked();
        let before = self.slot.load(Ordering::Relaxed);
        self.persist(before + if is_present(before) { 2 } else { 1 });
        line.publish(self.number, FINGERPRINT);
        line.unlock();
    }

    /// Removes the key if it is present.
    fn remove(&self) {
        let line = self.locked();
        let before = self.slot.load(Ordering::Relaxed);
        if is_present(before) {
            self.persist(before + 1);
            line.clear(self.number);
        }
        line.unlock();
    }

    /// Loads the slot if the fingerprints lead to it.
    fn find(&self) -> Option<u64> {
        let found = self.line().candidates(FINGERPRINT, 1 << self.number) != 0;
        // Acquire (E3).
        found.then(|| self.slot.load(Ordering::Acquire)).filter(|&change| is_present(change))
    }

    fn wait_unlocked(&self) {
        while self.line().is_locked() {
            yield_now();
        }
    }

    /// Checks that the result of a read is durable.
    fn judge(&self, found: Option<u64>) {
        let durable = self.durable.load(Ordering::Relaxed);
        match found {
            Some(change) => assert!(durable >= change, "a crash could take the value back"),
            // In the models that can miss the key, it is present at first and is never inserted again.
            None => assert!(!is_present(durable), "a crash could bring the key back"),
        }
    }

    /// Reads as the table does: the slot, then the lock bit.
    fn read(&self) {
        let found = self.find();
        self.wait_unlocked();
        self.judge(found);
    }

    /// Makes the first read of a batch: loads the slot that was prefetched, whatever the fingerprints now contain, then
    /// the lock bit. A miss here is not a result, because the batch then searches again.
    fn read_where_hinted(&self) {
        // Acquire (E3).
        let found = Some(self.slot.load(Ordering::Acquire)).filter(|&change| is_present(change));
        self.wait_unlocked();
        if found.is_some() {
            self.judge(found);
        }
    }

    /// Reads as [`Bucket::read_where_hinted`] does, then by the fingerprints. The key is not removed in between.
    fn read_where_hinted_and_again(&self) {
        // Acquire (E3).
        let first = self.slot.load(Ordering::Acquire);
        self.wait_unlocked();
        let second = self.find();
        self.wait_unlocked();
        if is_present(first) {
            assert!(
                second.is_some_and(|second| second >= first),
                "an older state after a newer one"
            );
        }
    }

    /// Reads the lock bit before the slot, which is wrong.
    fn read_too_early(&self) {
        self.wait_unlocked();
        let found = self.find();
        self.judge(found);
    }

    /// Checks that two reads in sequence do not go back in time.
    fn read_twice(&self) {
        let first = self.find();
        self.wait_unlocked();
        let second = self.find();
        self.wait_unlocked();
        if let (Some(first), Some(second)) = (first, second) {
            assert!(second >= first, "an older value after a newer one");
        }
        self.judge(second.or(first));
    }
}

type Role = fn(&Bucket);

/// Lets `roles` race for a bucket in the state `change`, with an ordinary slot and with the one whose fingerprint
/// shares its byte with the lock. Every rotation of the roles is explored.
fn race<const ROLES: usize>(change: u64, mut roles: [Role; ROLES]) {
    for turn in 0..2 * ROLES {
        roles.rotate_left(1);
        let number = if turn < ROLES { 0 } else { 63 };
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(3));
        builder.max_branches = 100_000;
        builder.check(move || {
            let bucket = Arc::new(Bucket::new(number, change));
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
            assert!(!bucket.line().is_locked());
            let (slot, durable) = (&bucket.slot, &bucket.durable);
            assert_eq!(slot.load(Ordering::Relaxed), durable.load(Ordering::Relaxed));
            assert_eq!(bucket.find().is_some(), is_present(slot.load(Ordering::Relaxed)));
        });
    }
}

/// Reads, and checks the result only if the key was found: the key is inserted during the read.
fn if_found(bucket: &Bucket) {
    let found = bucket.find();
    bucket.wait_unlocked();
    if found.is_some() {
        bucket.judge(found);
    }
}

#[test]
fn an_inserted_record_that_is_read_is_durable() {
    race(ABSENT, [Bucket::put, if_found]);
}

#[test]
fn a_replaced_value_that_is_read_is_durable() {
    race(1, [Bucket::put, Bucket::read]);
}

#[test]
fn the_end_of_a_record_that_is_told_is_durable() {
    race(1, [Bucket::remove, Bucket::read]);
}

#[test]
fn a_record_that_comes_again_in_the_same_slot_is_durable_when_it_is_read() {
    let again: Role = |bucket| {
        bucket.remove();
        bucket.put();
    };
    race(1, [again, if_found]);
}

#[test]
fn two_reads_do_not_go_back_in_time() {
    race(1, [Bucket::put, Bucket::read_twice]);
}

#[test]
fn a_record_that_is_read_where_a_hint_says_is_durable() {
    race(ABSENT, [Bucket::put, Bucket::read_where_hinted]);
    race(1, [Bucket::put, Bucket::read_where_hinted]);
    race(1, [Bucket::remove, Bucket::read_where_hinted]);
    race(ABSENT, [Bucket::put, Bucket::read_where_hinted_and_again]);
    race(1, [Bucket::put, Bucket::read_where_hinted_and_again]);
}

#[test]
#[should_panic(expected = "a crash could take the value back")]
fn a_lock_bit_seen_before_the_slot_says_nothing() {
    race(1, [Bucket::put, Bucket::read_too_early]);
}

#[test]
#[should_panic(expected = "a crash could bring the key back")]
fn nor_does_it_of_a_miss() {
    race(1, [Bucket::remove, Bucket::read_too_early]);
}
